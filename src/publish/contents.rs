//! What is to be known of a payload that comes in pieces, as it stands in a document.
//!
//! Invariant: memory holds a piece and what of the next thing in there is still to come, whatever
//! the size of the payload; however it is cut, the same comes of it.

use memchr::memmem::Finder;

use crate::{
    json::{Meaning, NotAString, Unquote},
    reconcile::PayloadHasher,
    redact::REDACTED,
};

/// Takes a payload in.
#[derive(Debug)]
pub(super) struct Contents {
    /// `None` for what stands there as it came.
    unquote: Option<Unquote>,
    measure: Measure,
}

/// What was measured so far.
#[derive(Debug)]
struct Measure {
    hasher: PayloadHasher,
    size: u64,
    /// All of it so far is how that begins which stands for a redacted value.
    is_marker: bool,
    /// Such values in JSON.
    markers: Occurrences,
}

/// What a payload that was put into a document holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Measured {
    pub(super) sha256: String,
    /// Without what makes a string of it in the document.
    pub(super) size: u64,
    /// Values that are marked as redacted.
    pub(super) marked: u64,
}

impl Contents {
    pub(super) fn in_form(form: &str) -> Self {
        let meaning = match form {
            "" => None,
            "_base64" => Some(Meaning::Bytes),
            _ => Some(Meaning::Text),
        };
        Self {
            unquote: meaning.map(Unquote::new),
            measure: Measure {
                hasher: PayloadHasher::default(),
                size: 0,
                is_marker: true,
                markers: Occurrences::of(format!("\"{REDACTED}\"").as_bytes()),
            },
        }
    }

    /// Fails if this is not what the form says.
    pub(super) fn add(&mut self, json: &[u8]) -> Result<(), NotAString> {
        match &mut self.unquote {
            None => self.measure.add(json),
            Some(unquote) => self.measure.add(&unquote.go_on(json)?),
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Measured, NotAString> {
        if let Some(unquote) = self.unquote {
            self.measure.add(&unquote.finish()?);
        }
        let Measure {
            hasher,
            size,
            is_marker,
            markers,
        } = self.measure;
        let is_redacted = is_marker && size == REDACTED.len() as u64;
        Ok(Measured {
            sha256: hasher.finish().to_string(),
            size,
            marked: if is_redacted { 1 } else { markers.count },
        })
    }
}

impl Measure {
    fn add(&mut self, piece: &[u8]) {
        let before = usize::try_from(self.size).ok();
        let rest = before.and_then(|before| REDACTED.as_bytes().get(before..));
        self.is_marker &= rest.is_some_and(|rest| rest.starts_with(piece));
        self.size += piece.len() as u64;
        self.hasher.update(piece);
        self.markers.add(piece);
    }
}

/// How often something stands in a text that comes in pieces.
#[derive(Debug)]
pub(super) struct Occurrences {
    finder: Finder<'static>,
    /// Something may begin in there.
    left: Vec<u8>,
    pub(super) count: u64,
}

impl Occurrences {
    pub(super) fn of(wanted: &[u8]) -> Self {
        Self {
            finder: Finder::new(wanted).into_owned(),
            left: Vec::new(),
            count: 0,
        }
    }

    pub(super) fn add(&mut self, piece: &[u8]) {
        self.left.extend_from_slice(piece);
        let length = self.finder.needle().len();
        let mut end = 0;
        for at in self.finder.find_iter(&self.left) {
            self.count += 1;
            end = at + length;
        }
        let beginning = self.left.len().saturating_sub(length.saturating_sub(1));
        self.left.drain(..end.max(beginning));
    }
}

#[cfg(test)]
mod tests {
    use memchr::memmem;
    use proptest::prelude::*;

    use super::*;
    use crate::reconcile::PayloadHash;

    fn measured(form: &str, json: &[u8], pieces: usize) -> Result<Measured, NotAString> {
        let mut contents = Contents::in_form(form);
        for piece in json.chunks(pieces) {
            contents.add(piece)?;
        }
        contents.finish()
    }

    proptest! {
        #[test]
        fn a_payload_is_measured_alike_however_it_is_cut(
            text in r#"(["a*]|"\*\*REDACTED\*\*"|\*\*REDACTED\*\*|\PC){0,6}"#,
            pieces in 1..40_usize,
        ) {
            let marker = format!("\"{REDACTED}\"");
            let marked = memmem::find_iter(text.as_bytes(), &marker).count() as u64;
            let marked = if text == REDACTED { 1 } else { marked };
            let expected = Measured {
                sha256: PayloadHash::of(text.as_bytes()).to_string(),
                size: text.len() as u64,
                marked,
            };
            let json = serde_json::to_string(&text).unwrap();
            for (form, json) in [("", &text), ("_text", &json)] {
                let measured = measured(form, json.as_bytes(), pieces);
                prop_assert_eq!(measured.as_ref(), Ok(&expected));
            }
        }
    }

    #[test]
    fn what_is_not_in_its_form_is_told() {
        for pieces in 1..4 {
            measured("_text", b"{}", pieces).unwrap_err();
            measured("_base64", b"\"Q\"", pieces).unwrap_err();
            measured("", b"{", pieces).unwrap();
        }
    }
}
