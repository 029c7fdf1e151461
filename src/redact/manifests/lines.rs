//! Lines of YAML, or of a template of YAML, and what stands in one.

use memchr::memchr;

use super::flow::end_of_collection;
use crate::{
    pace::breathe_after,
    redact::{REDACTED, REDACTED_BASE64},
};

/// A line without its line break.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'t> {
    pub(super) end: usize,
    /// Where the next one begins.
    pub(super) after: usize,
    /// How many spaces it begins with.
    pub(super) column: usize,
    /// What follows them.
    pub(super) content: &'t str,
}

/// The lines of a part of a text.
#[derive(Debug)]
pub(super) struct Lines<'t> {
    text: &'t str,
    at: usize,
    end: usize,
}

/// A key at the beginning of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'t> {
    pub(super) name: &'t str,
    /// What follows its colon.
    pub(super) rest: &'t str,
}

/// What a key without quotes doesn't begin with.
const INDICATORS: &str = "{}[],#&*!|>%@`\"'?:";

impl<'t> Lines<'t> {
    pub(super) fn new(text: &'t str, start: usize, end: usize) -> Self {
        Self {
            text,
            at: start,
            end,
        }
    }
}

impl<'t> Iterator for Lines<'t> {
    type Item = Line<'t>;

    fn next(&mut self) -> Option<Line<'t>> {
        let start = self.at;
        let rest = self.text.get(start..self.end)?;
        if rest.is_empty() {
            return None;
        }
        let (line, long) = match memchr(b'\n', rest.as_bytes()) {
            Some(long) => (rest.get(..long).unwrap_or_default(), long + 1),
            None => (rest, rest.len()),
        };
        self.at = start + long;
        breathe_after(long);
        let line = line.strip_suffix('\r').unwrap_or(line);
        let content = line.trim_start_matches(' ');
        Some(Line {
            end: start + line.len(),
            after: self.at,
            column: line.len() - content.len(),
            content,
        })
    }
}

impl<'t> Line<'t> {
    /// Where its content begins.
    pub(super) fn start_of_content(&self) -> usize {
        self.end - self.content.len()
    }

    pub(super) fn is_blank(&self) -> bool {
        self.content.trim_ascii().is_empty()
    }

    pub(super) fn is_comment(&self) -> bool {
        self.content.starts_with('#')
    }

    /// Whether it is nothing but actions of a template.
    pub(super) fn is_action(&self) -> bool {
        let mut rest = self.content.trim_ascii();
        let is_action = rest.starts_with('{');
        while let Some(behind) = behind_action(rest) {
            rest = behind.trim_ascii_start();
        }
        is_action && rest.is_empty()
    }

    /// Whether it has a text in quotes.
    pub(super) fn has_text(&self) -> bool {
        self.content.contains(['"', '\'', '`'])
    }

    /// Whether one document ends here and the next one begins.
    pub(super) fn is_separator(&self) -> bool {
        let is_marker = self.content.starts_with("---") || self.content.starts_with("...");
        let next = self.content.as_bytes().get(3);
        self.column == 0 && is_marker && next.is_none_or(u8::is_ascii_whitespace)
    }

    /// Whether it begins an item of a list.
    pub(super) fn is_item(&self) -> bool {
        without_dash(self.content).is_some()
    }

    /// The line behind the dashes that it begins with.
    pub(super) fn without_dashes(mut self) -> Self {
        while let Some(rest) = without_dash(self.content) {
            self.column += self.content.len() - rest.len();
            self.content = rest;
        }
        self
    }

    /// What follows the marker on the line where a document begins.
    pub(super) fn behind_marker(mut self) -> Option<Self> {
        let rest = self.content.strip_prefix("---")?.trim_ascii_start();
        if rest.is_empty() || rest.starts_with('#') {
            return None;
        }
        self.column += self.content.len() - rest.len();
        self.content = rest;
        Some(self)
    }

    /// Whether it has a key that isn't read: behind a question mark, a tag or an anchor, or an alias.
    pub(super) fn has_odd_key(&self) -> bool {
        let behind = |content| Self { content, ..*self }.key();
        match self.content.as_bytes() {
            [b'?'] | [b'?', b' ' | b'\t', ..] => true,
            [b'!' | b'&', ..] => behind(behind_properties(self.content)).is_some(),
            [b'*', ..] => begins_with_alias_and_colon(self.content),
            _ => false,
        }
    }

    pub(super) fn key(&self) -> Option<Key<'t>> {
        let content = self.content;
        let (name, rest) = if let Some(quote) = quote_of(content) {
            let (name, rest) = content.get(1..)?.split_once(quote)?;
            (name, rest.trim_ascii_start().strip_prefix(':')?)
        } else {
            let ends_key = |colon: &usize| {
                let next = content.as_bytes().get(colon + 1);
                next.is_none_or(u8::is_ascii_whitespace)
            };
            let mut colons = content.match_indices(':').map(|(colon, _)| colon);
            let colon = colons.find(ends_key)?;
            if content.starts_with(|first| INDICATORS.contains(first)) {
                return None;
            }
            (content.get(..colon)?, content.get(colon + 1..)?)
        };
        let next = rest.as_bytes().first();
        next.is_none_or(u8::is_ascii_whitespace).then_some(Key {
            name: name.trim_ascii_end(),
            rest,
        })
    }
}

fn without_dash(content: &str) -> Option<&str> {
    let rest = content.strip_prefix('-')?;
    let trimmed = rest.trim_start_matches(' ');
    (trimmed.len() < rest.len() || rest.is_empty()).then_some(trimmed)
}

/// What follows the action of a template that a text begins with.
fn behind_action(text: &str) -> Option<&str> {
    let (inside, end) = match text.strip_prefix("{{") {
        Some(inside) => (inside, "}}"),
        None => (text.strip_prefix("{%")?, "%}"),
    };
    inside.split_once(end).map(|(_, behind)| behind)
}

/// Whether a text begins like the action of a template.
pub(super) fn is_action_opening(text: &str) -> bool {
    ["{{", "{%", "{#"]
        .iter()
        .any(|opening| text.starts_with(opening))
}

/// The quote that a text begins with.
pub(super) fn quote_of(text: &str) -> Option<char> {
    let first = text.chars().next();
    first.filter(|first| matches!(first, '"' | '\''))
}

/// The value behind a key, as it is written, without a comment.
pub(super) fn value_of(rest: &str) -> &str {
    let value = rest.trim_ascii();
    if value.starts_with('#') {
        return "";
    }
    match value.find(" #") {
        Some(comment) if quote_of(value).is_none() => {
            value.get(..comment).unwrap_or_default().trim_ascii_end()
        }
        _ => value,
    }
}

/// A scalar without the quotes around it.
pub(super) fn unquoted(value: &str) -> &str {
    let without = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    quote_of(value).and_then(without).unwrap_or(value)
}

/// A value without the tag and the anchor before it.
pub(super) fn behind_properties(value: &str) -> &str {
    let mut value = value.trim_ascii_start();
    while value.starts_with(['!', '&']) {
        let end = value.find(|character: char| character.is_ascii_whitespace());
        let (_, rest) = value.split_at(end.unwrap_or(value.len()));
        value = rest.trim_ascii_start();
    }
    value
}

/// Whether an alias begins a text that stands for a key.
pub(super) fn begins_with_alias_and_colon(text: &str) -> bool {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    text.strip_prefix('*').is_some_and(|name| {
        let rest = name.trim_start_matches(is_part);
        rest.len() < name.len() && rest.trim_ascii_start().starts_with(':')
    })
}

/// Whether a value is none, or has been redacted before.
pub(super) fn is_empty_or_redacted(value: &str) -> bool {
    let value = value.trim_ascii();
    matches!(value, "" | "null" | "~") || matches!(unquoted(value), REDACTED | REDACTED_BASE64)
}

/// Whether a value ends where its lines do, and nothing elsewhere in the text is a part of it.
pub(super) fn closes(value: &str) -> bool {
    let value = value.trim_ascii();
    let count = |brackets: [char; 2]| value.matches(brackets).count();
    match value.chars().next() {
        // Aliases, anchors and tags.
        Some('*' | '&' | '!') => false,
        Some('"') => behind_quotes(value).is_some_and(is_comment_or_nothing),
        Some('\'') => {
            let inner = value.get(1..).unwrap_or_default().replace("''", "");
            let closed = inner.split_once('\'');
            closed.is_some_and(|(_, rest)| is_comment_or_nothing(rest))
        }
        Some('{' | '[') => {
            let end = end_of_collection(value, 0).and_then(|end| value.get(end..));
            count(['{', '[']) == count(['}', ']'])
                && (is_action_opening(value) || end.is_some_and(is_comment_or_nothing))
        }
        _ => true,
    }
}

/// What follows a text in double quotes.
fn behind_quotes(value: &str) -> Option<&str> {
    let mut escaped = true;
    let is_end = |&(_, character): &(usize, char)| {
        let ends = character == '"' && !escaped;
        escaped = character == '\\' && !escaped;
        ends
    };
    let (end, _) = value.char_indices().find(is_end)?;
    value.get(end + 1..)
}

fn is_comment_or_nothing(rest: &str) -> bool {
    let rest = rest.trim_ascii_start();
    rest.is_empty() || rest.starts_with('#')
}
