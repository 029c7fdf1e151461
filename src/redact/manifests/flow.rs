//! Flow style, which is JSON with fewer quotes, and quoted texts: where their tokens are.
//!
//! Invariant: whatever is handed out was closed before the document ended. Actions of templates
//! are scalars.

use std::ops::Range;

use memchr::memmem;

use super::lines::{Lines, is_action_opening};
use crate::pace::breathe_after;

/// What may stand between tokens.
const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// A part of a flow collection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Token {
    Open { is_mapping: bool },
    Close,
    Comma,
    Colon,
    Scalar(Range<usize>),
}

/// The tokens of the collection that begins at a place, up to the bracket that closes it.
#[derive(Debug)]
pub(super) struct Tokens<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
    /// The last token was a scalar in quotes, or a bracket that closes: a colon may follow at once.
    is_behind_quotes: bool,
}

/// It doesn't close, or isn't flow style at all.
#[derive(Debug)]
pub(super) struct Unclosed;

impl<'t> Tokens<'t> {
    pub(super) fn new(text: &'t str, start: usize) -> Self {
        Self {
            text,
            at: start,
            depth: 0,
            is_behind_quotes: false,
        }
    }

    /// How far they have been read.
    pub(super) fn end(&self) -> usize {
        self.at
    }

    pub(super) fn read(&mut self) -> Result<Token, Unclosed> {
        let before = self.at;
        self.skip_space()?;
        let bytes = self.text.as_bytes();
        let start = self.at;
        let byte = *bytes.get(start).ok_or(Unclosed)?;
        let is_behind_quotes = std::mem::replace(&mut self.is_behind_quotes, false);
        let rest = self.text.get(start..).unwrap_or_default();
        self.at += 1;
        let token = match byte {
            b'{' if is_action_opening(rest) => {
                self.at = end_of_action(self.text, start).ok_or(Unclosed)?;
                // What follows at once is a part of the same scalar.
                self.at = self.end_of_plain(self.at)?;
                Token::Scalar(start..self.at)
            }
            b'{' | b'[' => {
                self.depth += 1;
                Token::Open {
                    is_mapping: byte == b'{',
                }
            }
            b'}' | b']' => {
                self.depth -= 1;
                self.is_behind_quotes = true;
                Token::Close
            }
            b',' => Token::Comma,
            b':' if is_behind_quotes || self.ends_key(start) => Token::Colon,
            b'"' | b'\'' => {
                self.at = end_of_quoted(self.text, start).ok_or(Unclosed)?;
                self.is_behind_quotes = true;
                Token::Scalar(start..self.at)
            }
            _ => {
                self.at = self.end_of_plain(start)?;
                Token::Scalar(start..self.at)
            }
        };
        breathe_after(self.at - before);
        Ok(token)
    }

    /// Whether the collection has been closed.
    pub(super) fn is_done(&self) -> bool {
        self.depth == 0
    }

    /// Goes on behind spaces, line breaks and comments.
    fn skip_space(&mut self) -> Result<(), Unclosed> {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            match byte {
                b'\n' => {
                    self.at += 1;
                    if begins_document(self.text, self.at) {
                        return Err(Unclosed);
                    }
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'#' if is_apart(bytes, self.at) => {
                    let rest = bytes.get(self.at..).unwrap_or_default();
                    self.at += memchr::memchr(b'\n', rest).unwrap_or(rest.len());
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// Whether the colon here ends a key.
    fn ends_key(&self, colon: usize) -> bool {
        let next = self.text.as_bytes().get(colon + 1);
        next.is_none_or(|next| next.is_ascii_whitespace() || b",[]{}\"'".contains(next))
    }

    /// Where the scalar without quotes that begins here ends.
    fn end_of_plain(&self, start: usize) -> Result<usize, Unclosed> {
        let bytes = self.text.as_bytes();
        let mut at = start;
        while let Some(byte) = bytes.get(at) {
            let rest = self.text.get(at..).unwrap_or_default();
            match byte {
                b'{' if is_action_opening(rest) => {
                    at = end_of_action(self.text, at).ok_or(Unclosed)?;
                }
                b',' | b'[' | b']' | b'{' | b'}' => break,
                b':' if self.ends_key(at) => break,
                b'#' if is_apart(bytes, at) => break,
                b'\n' if begins_document(self.text, at + 1) => return Err(Unclosed),
                _ => at += 1,
            }
        }
        let written = self.text.get(start..at).unwrap_or_default();
        // NOTE: only what is skipped between tokens. A form feed is white space to Rust; without it
        // nothing may be left of the scalar, and reading would never get on.
        Ok(start + written.trim_end_matches(SPACE).len())
    }
}

/// Where the collection that begins here ends, behind the bracket that closes it.
pub(super) fn end_of_collection(text: &str, start: usize) -> Option<usize> {
    let mut tokens = Tokens::new(text, start);
    loop {
        tokens.read().ok()?;
        if tokens.is_done() {
            return Some(tokens.end());
        }
    }
}

/// Whether a comment may begin here.
fn is_apart(bytes: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| bytes.get(before));
    before.is_none_or(u8::is_ascii_whitespace)
}

/// Whether the line that begins here ends the document.
fn begins_document(text: &str, at: usize) -> bool {
    let is_marker = text
        .get(at..)
        .is_some_and(|rest| rest.starts_with("---") || rest.starts_with("..."));
    is_marker
        && Lines::new(text, at, text.len())
            .next()
            .is_some_and(|line| line.is_separator())
}

/// Where the action of a template that begins here ends.
fn end_of_action(text: &str, start: usize) -> Option<usize> {
    let inside = text.get(start + 2..)?;
    let end: &[u8] = match text.as_bytes().get(start + 1)? {
        b'{' => b"}}",
        b'%' => b"%}",
        _ => b"#}",
    };
    // NOTE: only on this line, or a text full of openings would take quadratic time.
    let line = memchr::memchr(b'\n', inside.as_bytes()).unwrap_or(inside.len());
    let found = memmem::find(inside.get(..line)?.as_bytes(), end)?;
    Some(start + 2 + found + end.len())
}

/// Where the text in quotes that begins here ends, behind its closing quote, if it does so before
/// its document ends.
pub(super) fn end_of_quoted(text: &str, start: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let quote = *bytes.get(start)?;
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        breathe_after(1);
        match byte {
            b'\\' if quote == b'"' && bytes.get(at) != Some(&b'\n') => at += 1,
            b'\n' if begins_document(text, at) => return None,
            byte if *byte == quote => {
                if quote == b'"' || bytes.get(at) != Some(&quote) {
                    return Some(at);
                }
                at += 1;
            }
            _ => {}
        }
    }
    None
}
