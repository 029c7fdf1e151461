//! Where the strings, scalars and containers of a JSON text end, and what a string says.
//!
//! Invariant: the text is known to be valid JSON; nothing here checks it again.

use std::{borrow::Cow, ops::Range};

use memchr::memchr2;

use crate::pace::breathe_after;

/// How long the strings are that are searched byte by byte.
const SHORT: usize = 16;

/// The content of the string at `span`, quotes included in the span.
pub(super) fn unquote<'t>(text: &'t str, span: &Range<usize>) -> Cow<'t, str> {
    let inner = without_quotes(text, span);
    if inner.bytes().any(|byte| byte == b'\\') {
        // A lone surrogate is valid JSON but not a string; its raw text will do.
        decode(text, span).map_or(Cow::Borrowed(inner), Cow::Owned)
    } else {
        Cow::Borrowed(inner)
    }
}

/// The content of the string at `span` without its escapes; `None` if it isn't Unicode.
pub(super) fn decode(text: &str, span: &Range<usize>) -> Option<String> {
    serde_json::from_str(text.get(span.clone())?).ok()
}

/// The text between the quotes of the string at `span`, as it is written.
pub(super) fn without_quotes<'t>(text: &'t str, span: &Range<usize>) -> &'t str {
    text.get(span.start + 1..span.end.saturating_sub(1))
        .unwrap_or_default()
}

/// Where the string that begins at `start` ends, behind its closing quote.
pub(super) fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    // NOTE: most strings are short, and then this is faster than what is fast for long ones.
    for byte in bytes.get(at..).unwrap_or_default().iter().take(SHORT) {
        match byte {
            b'"' => return at + 1,
            b'\\' => break,
            _ => at += 1,
        }
    }
    while let Some(hit) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += hit + 1;
        breathe_after(hit + 1);
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

/// Where the object or list that begins at `start` ends, behind its closing bracket.
pub(super) fn end_of_container(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        breathe_after(1);
        match byte {
            b'"' => {
                at = end_of_string(bytes, at);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth <= 1 => return at + 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// The first byte at or after `at` that isn't white space.
pub(super) fn next_byte(bytes: &[u8], at: usize) -> Option<u8> {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.iter()
        .find(|byte| !byte.is_ascii_whitespace())
        .copied()
}
