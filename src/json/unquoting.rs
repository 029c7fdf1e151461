//! A JSON string that comes piece by piece, as the text that it stands for.
//!
//! Invariants: memory holds a piece and what of an escape or a character is still to come; what is
//! read in pieces, however they are cut, is what would be read at once, and so is what is refused.

use std::str;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use memchr::memchr_iter;

/// Of `\ud83d\ude00`, the longest escape.
const ESCAPE_BYTES: usize = 12;

/// The text is no JSON string, or what it holds is no base64.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct NotAString;

/// What a string stands for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Meaning {
    Text,
    /// Bytes, in base64.
    Bytes,
}

/// Reads a string on the way.
#[derive(Debug)]
pub(crate) struct Unquote {
    meaning: Meaning,
    has_begun: bool,
    /// What could not be read without what follows it.
    left: Vec<u8>,
    /// Base64 that is not a multiple of four characters yet.
    digits: Vec<u8>,
    /// The padding came, so that no more base64 may.
    is_padded: bool,
}

impl Unquote {
    pub(crate) fn new(meaning: Meaning) -> Self {
        Self {
            meaning,
            has_begun: false,
            left: Vec::new(),
            digits: Vec::new(),
            is_padded: false,
        }
    }

    /// What the next piece stands for; the last piece ends with the closing quote.
    pub(crate) fn go_on(&mut self, piece: &[u8]) -> Result<Vec<u8>, NotAString> {
        self.left.extend_from_slice(piece);
        if !self.has_begun {
            match self.left.first() {
                None => return Ok(Vec::new()),
                Some(b'"') => self.left.remove(0),
                Some(_) => return Err(NotAString),
            };
            self.has_begun = true;
        }
        let end = readable(&self.left);
        let rest = self.left.split_off(end);
        let readable = std::mem::replace(&mut self.left, rest);
        self.read(readable)
    }

    /// The string is over.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, NotAString> {
        if self.left.pop() != Some(b'"') || !self.has_begun {
            return Err(NotAString);
        }
        let left = std::mem::take(&mut self.left);
        let mut read = self.read(left)?;
        let rest = std::mem::take(&mut self.digits);
        read.extend(self.decode(&rest)?);
        Ok(read)
    }

    /// Reads text that ends with no beginning of anything.
    fn read(&mut self, escaped: Vec<u8>) -> Result<Vec<u8>, NotAString> {
        let text = if escaped.contains(&b'\\') {
            let mut quoted = Vec::with_capacity(escaped.len() + 2);
            quoted.push(b'"');
            quoted.extend(escaped);
            quoted.push(b'"');
            let text: String = serde_json::from_slice(&quoted).map_err(|_| NotAString)?;
            text.into_bytes()
        } else {
            let is_special = |byte: &u8| *byte == b'"' || byte.is_ascii_control() && *byte != 0x7f;
            if escaped.iter().any(is_special) || str::from_utf8(&escaped).is_err() {
                return Err(NotAString);
            }
            escaped
        };
        if self.meaning == Meaning::Text {
            return Ok(text);
        }
        self.digits.extend(text);
        let rest = self.digits.split_off(self.digits.len() / 4 * 4);
        let whole = std::mem::replace(&mut self.digits, rest);
        self.decode(&whole)
    }

    fn decode(&mut self, digits: &[u8]) -> Result<Vec<u8>, NotAString> {
        if self.is_padded && !digits.is_empty() {
            return Err(NotAString);
        }
        self.is_padded |= digits.ends_with(b"=");
        BASE64_STANDARD.decode(digits).map_err(|_| NotAString)
    }
}

/// How much of this can be read whatever follows. A quote at the end is left: it may close the
/// string.
fn readable(bytes: &[u8]) -> usize {
    // An escape ends within so many bytes, so that only those at the end matter.
    let mut end = bytes.len();
    let mut next = 0;
    for at in memchr_iter(b'\\', bytes) {
        if at < next {
            continue;
        }
        next = at + escape_length(bytes.get(at..).unwrap_or_default());
        if next > bytes.len() {
            end = at;
            break;
        }
    }
    let before = bytes.get(..end).unwrap_or_default();
    if let Err(error) = str::from_utf8(before)
        && error.error_len().is_none()
    {
        end = error.valid_up_to();
    }
    if end > next && bytes.get(..end).and_then(<[u8]>::last) == Some(&b'"') {
        end -= 1;
    }
    end
}

/// Of the escape at the beginning, as far as can be told.
fn escape_length(bytes: &[u8]) -> usize {
    match (bytes.get(1), bytes.get(2), bytes.get(3)) {
        // The first half of a pair.
        (Some(b'u'), Some(b'd' | b'D'), Some(b'8' | b'9' | b'a' | b'A' | b'b' | b'B')) => {
            ESCAPE_BYTES
        }
        (Some(b'u'), Some(_), Some(_)) => 6,
        (Some(b'u'), ..) => ESCAPE_BYTES,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads it in pieces of this size.
    fn unquote(meaning: Meaning, json: &str, pieces: usize) -> Result<Vec<u8>, NotAString> {
        let mut unquote = Unquote::new(meaning);
        let mut read = Vec::new();
        for piece in json.as_bytes().chunks(pieces) {
            read.extend(unquote.go_on(piece)?);
        }
        read.extend(unquote.finish()?);
        Ok(read)
    }

    proptest! {
        #[test]
        fn a_string_is_read_as_serde_reads_it(text in r#"(\PC|["\\\n\u{1}]){0,40}"#, pieces in 1..20_usize) {
            let json = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(unquote(Meaning::Text, &json, pieces), Ok(text.clone().into_bytes()));
            // Every character as an escape, most of them in pairs.
            let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
            let json = format!("\"{}\"", units.collect::<String>());
            prop_assert_eq!(unquote(Meaning::Text, &json, pieces), Ok(text.into_bytes()));
        }

        #[test]
        fn bytes_are_decoded(bytes: Vec<u8>, pieces in 1..20_usize) {
            let json = format!("\"{}\"", BASE64_STANDARD.encode(&bytes));
            prop_assert_eq!(unquote(Meaning::Bytes, &json, pieces), Ok(bytes));
        }
    }

    #[test]
    fn what_is_no_string_is_told() {
        let odd = [
            "1",
            "",
            "\"",
            "\"a",
            r#""\x""#,
            r#""\ud83d!""#,
            r#""\ude00""#,
            r#""\ud83d\ud83d""#,
            "\"a\nb\"",
            r#""a"b""#,
            "\"a\" ",
        ];
        for pieces in 1..10 {
            for odd in odd {
                assert_eq!(
                    unquote(Meaning::Text, odd, pieces),
                    Err(NotAString),
                    "{odd}"
                );
            }
            for odd in ["a!b=", "abc", "QQ==QQ==", "QUI=QUI=QUI=", "Q===", "QR=="] {
                let json = format!("\"{odd}\"");
                assert_eq!(
                    unquote(Meaning::Bytes, &json, pieces),
                    Err(NotAString),
                    "{odd}"
                );
            }
            let mut not_utf8 = Unquote::new(Meaning::Text);
            let mut parts = b"\"a\xffb\"".chunks(pieces);
            let read = parts.try_for_each(|piece| not_utf8.go_on(piece).map(drop));
            assert!(read.is_err() || not_utf8.finish().is_err());
        }
    }
}
