//! Any text as JSON.
//!
//! JSON is read as what it is. What isn't JSON is read as if it were: missing brackets, quotes,
//! colons and commas are added, and words are texts. So a mutation of JSON nearly always is JSON
//! again. Two signs are added: what follows a backtick stands in a string, as JSON, and what
//! follows a caret does so with blanks and line breaks.

use super::{agreement::written, slow::Node};

/// `serde_json` reads 127 levels.
const MAX_DEPTH: usize = 100;
/// Each string around another one doubles its escapes.
const MAX_STRINGS: usize = 6;

/// See above.
pub(crate) fn lenient(bytes: &[u8]) -> Node {
    let text = String::from_utf8_lossy(bytes);
    let mut reader = Reader {
        text: &text,
        depth: 0,
        strings: 0,
    };
    reader.value()
}

struct Reader<'t> {
    /// What is left.
    text: &'t str,
    depth: usize,
    strings: usize,
}

impl Reader<'_> {
    fn peek(&mut self) -> Option<char> {
        let blank = |c: char| c.is_whitespace() || c == ',' || c == ':';
        self.text = self.text.trim_start_matches(blank);
        self.text.chars().next()
    }

    fn take(&mut self) -> Option<char> {
        let mut chars = self.text.chars();
        let first = chars.next();
        self.text = chars.as_str();
        first
    }

    fn value(&mut self) -> Node {
        let first = self.peek();
        match first {
            None | Some('}' | ']') => Node::Null,
            Some('"') => Node::Text(self.string()),
            Some('{' | '[') if self.depth >= MAX_DEPTH => {
                self.take();
                Node::Null
            }
            Some('`' | '^') if self.strings >= MAX_STRINGS => {
                self.take();
                Node::Null
            }
            Some('`' | '^') => {
                self.take();
                self.strings += 1;
                let inner = self.value();
                self.strings -= 1;
                Node::Text(written(&inner, first == Some('^')))
            }
            Some('[') => {
                self.take();
                self.depth += 1;
                let mut items = Vec::new();
                while !matches!(self.peek(), None | Some(']' | '}')) {
                    items.push(self.value());
                }
                self.take();
                self.depth -= 1;
                Node::List(items)
            }
            Some('{') => {
                self.take();
                self.depth += 1;
                let mut members = Vec::new();
                while !matches!(self.peek(), None | Some(']' | '}')) {
                    let key = match self.peek() {
                        Some('"') => self.string(),
                        _ => self.word(),
                    };
                    members.push((key, self.value()));
                }
                self.take();
                self.depth -= 1;
                Node::Object(members)
            }
            Some(_) => {
                let word = self.word();
                let read: Option<Node> = serde_json::from_str(&word).ok();
                read.unwrap_or(Node::Text(word))
            }
        }
    }

    /// At least one character.
    fn word(&mut self) -> String {
        let mut word: String = self.take().into_iter().collect();
        let is_end = |c: char| c.is_whitespace() || ",:{}[]\"`^".contains(c);
        let end = self.text.find(is_end).unwrap_or(self.text.len());
        let (more, rest) = self.text.split_at(end);
        word.push_str(more);
        self.text = rest;
        word
    }

    fn string(&mut self) -> String {
        self.take();
        let mut string = String::new();
        loop {
            match self.take() {
                None | Some('"') => return string,
                Some('\\') => string.push(self.escaped()),
                Some(other) => string.push(other),
            }
        }
    }

    fn escaped(&mut self) -> char {
        match self.take() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('u') => {
                let code = self.text.get(..4);
                let code = code.and_then(|code| u32::from_str_radix(code, 16).ok());
                match code.and_then(char::from_u32) {
                    Some(character) => {
                        self.text = self.text.get(4..).unwrap_or_default();
                        character
                    }
                    None => 'u',
                }
            }
            other => other.unwrap_or('\\'),
        }
    }
}
