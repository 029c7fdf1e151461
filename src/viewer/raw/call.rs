//! A request as a function can be called with it, written while it is read.
//!
//! What was redacted where bytes belong, which JSON has in base64, would not even parse; so it
//! stands there in base64. Invariant: nothing else is changed, and memory holds one short string
//! and how far in it stands.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use memchr::memchr2;

use crate::redact::REDACTED;

/// Longer strings are nothing that is looked for.
const SHORT_BYTES: usize = 64;
/// What stands further in is no part of a request's own structure.
const MAX_DEPTH: usize = 128;

/// Where this is in the request.
#[derive(Clone, Copy, Debug, Default)]
struct Surroundings {
    /// Within connection details or credentials.
    is_bytes: bool,
    /// Within a resource, which may have members of these names, and what it likes in them.
    is_free: bool,
}

impl Surroundings {
    fn below(self, name: &[u8]) -> Self {
        Self {
            is_bytes: self.is_bytes
                || matches!(name, br#""connectionDetails""# | br#""credentials""#),
            is_free: self.is_free || name == br#""resource""#,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Container {
    is_object: bool,
    /// Of the container, and of the member that is read.
    around: Surroundings,
    member: Surroundings,
}

/// Writes a request.
#[derive(Debug, Default)]
pub(super) struct CallWriter {
    open: Vec<Container>,
    /// Containers below [`MAX_DEPTH`].
    deeper: usize,
    /// A name comes next.
    is_name: bool,
    string: Option<StringBegun>,
}

/// A string that is read.
#[derive(Debug, Default)]
struct StringBegun {
    /// With its quotes, unless it is long and written already.
    text: Vec<u8>,
    is_long: bool,
    is_escaped: bool,
}

impl StringBegun {
    /// Takes what belongs to it, of which it keeps no more than a short string has; returns how
    /// much that is, and whether the string is over.
    fn take(&mut self, rest: &[u8], out: &mut Vec<u8>) -> (usize, bool) {
        let (taken, is_over) = self.end(rest);
        self.keep(rest.get(..taken).unwrap_or(rest), out);
        (taken, is_over)
    }

    fn end(&mut self, rest: &[u8]) -> (usize, bool) {
        if self.is_escaped {
            self.is_escaped = false;
            return (1, false);
        }
        let Some(hit) = memchr2(b'"', b'\\', rest) else {
            return (rest.len(), false);
        };
        self.is_escaped = rest.get(hit) == Some(&b'\\');
        (hit + 1, !self.is_escaped)
    }

    fn keep(&mut self, part: &[u8], out: &mut Vec<u8>) {
        if self.is_long {
            out.extend_from_slice(part);
            return;
        }
        self.text.extend_from_slice(part);
        if self.text.len() > SHORT_BYTES {
            self.is_long = true;
            out.append(&mut self.text);
        }
    }
}

impl CallWriter {
    /// What to write for the next piece.
    pub(super) fn go_on(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.len() + SHORT_BYTES);
        let mut rest = piece;
        while let [byte, behind @ ..] = rest {
            if let Some(mut string) = self.string.take() {
                let (taken, is_over) = string.take(rest, &mut out);
                rest = rest.get(taken..).unwrap_or_default();
                if is_over {
                    self.end_string(&string.text, &mut out);
                } else {
                    self.string = Some(string);
                }
                continue;
            }
            rest = behind;
            if *byte == b'"' {
                let mut string = StringBegun::default();
                string.keep(b"\"", &mut out);
                self.string = Some(string);
                continue;
            }
            self.follow(*byte);
            out.push(*byte);
        }
        out
    }

    fn end_string(&mut self, string: &[u8], out: &mut Vec<u8>) {
        let innermost = self.open.last_mut().filter(|_| self.deeper == 0);
        if self.is_name {
            if let Some(container) = innermost {
                container.member = container.around.below(string);
            }
        } else if let Some(container) = innermost
            && container.member.is_bytes
            && !container.member.is_free
            && is_redacted(string)
        {
            out.push(b'"');
            out.extend(BASE64_STANDARD.encode(REDACTED).bytes());
            out.push(b'"');
            return;
        }
        out.extend_from_slice(string);
    }

    /// Goes on behind a byte that is in no string.
    fn follow(&mut self, byte: u8) {
        match byte {
            b'{' | b'[' => {
                let is_object = byte == b'{';
                self.is_name = is_object;
                if self.open.len() >= MAX_DEPTH {
                    self.deeper += 1;
                    return;
                }
                let around = self.open.last().map(|above| above.member);
                let around = around.unwrap_or_default();
                self.open.push(Container {
                    is_object,
                    around,
                    member: around,
                });
            }
            b'}' | b']' if self.deeper > 0 => self.deeper -= 1,
            b'}' | b']' => {
                self.open.pop();
                self.is_name = false;
            }
            b':' => self.is_name = false,
            b',' => self.is_name = self.open.last().is_some_and(|last| last.is_object),
            _ => {}
        }
    }
}

/// Whether this string, with its quotes, stands for a redacted value.
fn is_redacted(string: &[u8]) -> bool {
    let inside = string.strip_prefix(b"\"");
    inside.and_then(|inside| inside.strip_suffix(b"\"")) == Some(REDACTED.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(request: &str) -> String {
        let texts: Vec<_> = [1, 3, 7, request.len()]
            .into_iter()
            .map(|pieces| {
                let mut writer = CallWriter::default();
                let pieces = request.as_bytes().chunks(pieces);
                pieces.flat_map(|piece| writer.go_on(piece)).collect()
            })
            .collect();
        assert!(texts.iter().all(|text: &Vec<u8>| *text == texts[0]));
        String::from_utf8(texts[0].clone()).unwrap()
    }

    #[test]
    fn a_call_has_bytes_where_bytes_belong() {
        let request = format!(
            r#"{{"credentials":{{"c":{{"credentialData":{{"data":{{"k" : "{REDACTED}"}}}}}}}},
            "observed":{{"composite":{{"connectionDetails":{{"k":"{REDACTED}","l":"x"}},
            "resource":{{"connectionDetails":{{"k":"{REDACTED}"}}}},"ready":"{REDACTED}"}}}},
            "list":[{{"connectionDetails":["{REDACTED}"]}},"{REDACTED}"]}}"#
        );
        let written = call(&request);
        let value: serde_json::Value = serde_json::from_str(&written).unwrap();
        let encoded = BASE64_STANDARD.encode(REDACTED);
        let at = |pointer| value.pointer(pointer).unwrap().as_str().unwrap();
        for pointer in [
            "/credentials/c/credentialData/data/k",
            "/observed/composite/connectionDetails/k",
            "/list/0/connectionDetails/0",
        ] {
            assert_eq!(at(pointer), encoded, "{pointer}");
        }
        for pointer in [
            "/observed/composite/resource/connectionDetails/k",
            "/observed/composite/ready",
            "/list/1",
        ] {
            assert_eq!(at(pointer), REDACTED, "{pointer}");
        }
        // Everything else stands as it was.
        assert_eq!(written.replace(&encoded, REDACTED), request);
    }

    #[test]
    fn names_and_texts_that_look_like_it_are_left_alone() {
        let long = "x".repeat(SHORT_BYTES);
        let request = format!(
            r#"{{"credentials":{{"{REDACTED}":1,"a":"{long}{REDACTED}","b":"\"{REDACTED}","{long}":"\\"}},
            "x\"credentials":"{REDACTED}","y":"{REDACTED}"}}"#
        );
        assert_eq!(call(&request), request);
        let deep = format!(
            r#"{}{{"credentials":"{REDACTED}"}}{}"#,
            "[".repeat(200),
            "]".repeat(200)
        );
        assert_eq!(call(&deep), deep);
        let after = format!(r#"{{"a":{deep},"credentials":"{REDACTED}"}}"#);
        assert!(call(&after).ends_with(&format!(r#":"{}"}}"#, BASE64_STANDARD.encode(REDACTED))));
    }
}
