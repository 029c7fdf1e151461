//! Where the strings and scalars of a JSON text end, and what a string says.
//!
//! Invariant: the text is known to be valid JSON; nothing here checks it again.

use std::{borrow::Cow, ops::Range};

use memchr::memchr2;

/// The content of the string at `span`, quotes included in the span.
pub(super) fn unquote<'t>(text: &'t str, span: &Range<usize>) -> Cow<'t, str> {
    let quoted = text.get(span.clone()).unwrap_or_default();
    let inner = quoted
        .get(1..quoted.len().saturating_sub(1))
        .unwrap_or_default();
    if inner.contains('\\') {
        // A lone surrogate is valid JSON and no string; its raw text will do.
        serde_json::from_str(quoted).map_or(Cow::Borrowed(inner), Cow::Owned)
    } else {
        Cow::Borrowed(inner)
    }
}

/// Where the string that begins at `start` ends, behind its closing quote.
pub(super) fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(hit) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += hit + 1;
        if bytes.get(at - 1) == Some(&b'"') {
            return at;
        }
        at += 1;
    }
    bytes.len()
}

/// Where the number or literal that begins at `start` ends.
pub(super) fn end_of_scalar(bytes: &[u8], start: usize) -> usize {
    let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
    let rest = bytes.get(start..).unwrap_or_default();
    start + rest.iter().position(is_end).unwrap_or(rest.len()).max(1)
}
