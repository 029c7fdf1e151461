//! The places of a text whose values are replaced, and the text that remains.
//!
//! Invariant: the list is bounded. Values that don't fit are never kept in clear: whoever finds
//! too many has to withhold the text that they are in.

use bytes::Bytes;

use super::REDACTED;
use crate::pace::breathe_after;

/// More values than this are not replaced one by one: each replacement may be fourteen times as
/// long as the value, so that a payload could outgrow the sidecar's memory.
pub const MAX_VALUES: usize = 100_000;

/// What is copied at once.
const SLICE_BYTES: usize = 64 * 1024;

/// A text has more places under suspicion than are kept track of.
#[derive(Debug)]
pub(super) struct TooMany;

/// How a replacement is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    /// A JSON string, inside as many other JSON strings.
    Json { strings_around: u8 },
    /// A YAML string behind its key's colon. Single quotes need no escape in JSON.
    Yaml,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Edit {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) form: Form,
}

impl Edit {
    /// Replaces a value of the JSON text itself.
    pub(super) fn json(start: usize, end: usize) -> Self {
        let form = Form::Json { strings_around: 0 };
        Self { start, end, form }
    }
}

/// Adds to a list as long as it has room.
pub(super) fn push_bounded<T>(list: &mut Vec<T>, item: T) -> Result<(), TooMany> {
    if list.len() >= MAX_VALUES {
        return Err(TooMany);
    }
    list.push(item);
    Ok(())
}

/// Puts edits in order and drops those inside of others.
pub(super) fn settle(edits: &mut Vec<Edit>) {
    edits.sort_unstable_by_key(|edit| (edit.start, std::cmp::Reverse(edit.end)));
    let mut end = 0;
    edits.retain(|edit| {
        let is_first = edit.start >= end;
        end = end.max(edit.end);
        is_first
    });
}

/// The text with all edits made; they are in order.
pub(super) fn apply(text: &[u8], edits: &[Edit]) -> Bytes {
    // NOTE: the exact size, or the text would be copied, and be in memory twice, once it outgrows
    // a guess.
    let removed: usize = edits.iter().map(|edit| edit.end - edit.start).sum();
    let added: usize = edits.iter().map(|edit| edit.form.len()).sum();
    let mut clean = Vec::with_capacity(text.len() - removed + added);
    let copy = |clean: &mut Vec<u8>, from: usize, to: usize| {
        let part = text.get(from..to).unwrap_or_default();
        for slice in part.chunks(SLICE_BYTES) {
            clean.extend_from_slice(slice);
            breathe_after(slice.len());
        }
    };
    let mut copied = 0;
    for edit in edits {
        copy(&mut clean, copied, edit.start);
        edit.form.write(&mut clean);
        copied = edit.end;
    }
    copy(&mut clean, copied, text.len());
    clean.into()
}

impl Form {
    /// How many backslashes stand before a quote.
    fn escapes(strings_around: u8) -> usize {
        (1_usize << strings_around) - 1
    }

    fn len(self) -> usize {
        REDACTED.len()
            + match self {
                Self::Json { strings_around } => 2 * (Self::escapes(strings_around) + 1),
                Self::Yaml => " ''".len(),
            }
    }

    fn write(self, out: &mut Vec<u8>) {
        let quote = |out: &mut Vec<u8>| match self {
            Self::Json { strings_around } => {
                out.extend(std::iter::repeat_n(b'\\', Self::escapes(strings_around)));
                out.push(b'"');
            }
            Self::Yaml => out.push(b'\''),
        };
        if self == Self::Yaml {
            out.push(b' ');
        }
        quote(out);
        out.extend_from_slice(REDACTED.as_bytes());
        quote(out);
    }
}
