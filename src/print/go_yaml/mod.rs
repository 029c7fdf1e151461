//! YAML as Go's `sigs.k8s.io/yaml` prints it: the text of `yaml.Marshal` for the value that
//! `json.Unmarshal` makes of a document.
//!
//! That library prints JSON, reads it back as YAML 1.1 (`reading`) and prints what it read with
//! go-yaml v2, an emitter in the lineage of libyaml. This file is the emitter.
//!
//! Invariant: lines, quotes and order are the library's, to the byte, except for the order of keys
//! that it leaves to chance (`keys`).
//!
//! Must not know: what the value means, or where the text goes.

mod keys;
mod reading;

use serde_json::{Map, Value};

use keys::sort_naturally;
use reading::{fold_next_lines, is_readable, read_number};

use crate::json::reads_as_other_type;

/// Hands `value` to `out` as a YAML document that ends with a line end, character by character: it
/// may be a hundred times as long as its JSON, since every line is indented.
///
/// Hands over nothing if the library refuses the value, as it does for a DEL or C1 control character
/// or a key of more than 1,024 characters; the text is never empty otherwise.
pub(crate) fn write_yaml(value: &Value, out: &mut dyn FnMut(char)) {
    if is_readable(value) {
        let mut emitter = Emitter {
            out,
            column: 0,
            after_space: true,
            at_indent: true,
        };
        emitter.write_node(value, None);
        emitter.start_line(0);
    }
}

/// A line is broken at the first single space past this column.
const BEST_WIDTH: usize = 80;
const INDENT: usize = 2;
/// A longer key, in bytes, is written with `?`.
const LONGEST_SIMPLE_KEY: usize = 128;
/// Text that starts with one of these is quoted.
const INDICATORS: &str = " #,[]{}&*!|>'\"%@`";
const NEXT_LINE: char = '\u{85}';
const BYTE_ORDER_MARK: char = '\u{feff}';

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
}

struct Emitter<'a> {
    out: &'a mut dyn FnMut(char),
    /// Characters since the last line end.
    column: usize,
    /// A token may follow without a space.
    after_space: bool,
    /// Nothing but indentation and `-`, `?` or `:` stands on the line: a block may start here.
    at_indent: bool,
}

impl Emitter<'_> {
    /// Writes `value` inside of a block that stands at `parent`; the document has none.
    fn write_node(&mut self, value: &Value, parent: Option<usize>) {
        let inner = parent.map_or(INDENT, |indent| indent + INDENT);
        let block = if parent.is_some() { inner } else { 0 };
        match value {
            Value::Null => self.write_scalar("null", Style::Plain, Some(inner)),
            Value::Bool(true) => self.write_scalar("true", Style::Plain, Some(inner)),
            Value::Bool(false) => self.write_scalar("false", Style::Plain, Some(inner)),
            Value::Number(number) => {
                self.write_scalar(&read_number(number), Style::Plain, Some(inner));
            }
            Value::String(text) => {
                let text = fold_next_lines(text);
                self.write_scalar(&text, choose_style(&text), Some(inner));
            }
            Value::Array(items) if items.is_empty() => self.write_mark("[]", false),
            Value::Object(members) if members.is_empty() => self.write_mark("{}", false),
            Value::Array(items) => {
                // Under its key a sequence is not indented.
                let indent = parent.filter(|_| !self.at_indent).unwrap_or(block);
                for item in items {
                    self.start_line(indent);
                    self.write_mark("-", true);
                    self.write_node(item, Some(indent));
                }
            }
            Value::Object(members) => self.write_mapping(members, block),
        }
    }

    fn write_mapping(&mut self, members: &Map<String, Value>, indent: usize) {
        for (key, member) in sort_naturally(members.iter().collect()) {
            self.start_line(indent);
            let style = choose_style(key);
            if key.len() <= LONGEST_SIMPLE_KEY && !key.contains(is_break) {
                self.write_scalar(key, style, None);
                self.put(':');
            } else {
                self.write_mark("?", true);
                self.write_scalar(key, style, Some(indent + INDENT));
                self.start_line(indent);
                self.write_mark(":", true);
            }
            self.write_node(member, Some(indent));
        }
    }

    /// Writes text whose further lines, if it may have any, stand at `indent`.
    fn write_scalar(&mut self, text: &str, style: Style, indent: Option<usize>) {
        match style {
            Style::Plain => {
                self.write_mark("", false);
                self.write_lines(text, indent);
            }
            Style::SingleQuoted => {
                self.write_mark("'", false);
                self.write_lines(&text.replace('\'', "''"), indent);
                self.put('\'');
            }
            Style::DoubleQuoted => {
                self.write_mark("\"", false);
                self.write_escaped(text, indent);
                self.put('"');
            }
            Style::Literal => return self.write_literal(text, indent.unwrap_or(INDENT)),
        }
        self.after_space = false;
        self.at_indent = false;
    }

    fn write_lines(&mut self, text: &str, indent: Option<usize>) {
        let mut previous = None;
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            let next = characters.peek().copied();
            if previous.is_some_and(is_break) && !is_break(character) {
                self.start_line(indent.unwrap_or_default());
            }
            match indent.filter(|_| character == ' ' && self.column > BEST_WIDTH) {
                Some(indent) if is_amid_words(previous, next) && next != Some(' ') => {
                    self.start_line(indent);
                }
                _ => self.put(character),
            }
            self.at_indent = is_break(character);
            previous = Some(character);
        }
    }

    fn write_escaped(&mut self, text: &str, indent: Option<usize>) {
        // The emitter looks for a byte order mark at the start of the text, whichever character it
        // is at, and so escapes all of them.
        let escapes_all = text.starts_with(BYTE_ORDER_MARK);
        let mut previous = None;
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            let next = characters.peek().copied();
            let needs_escape = !is_printable(character) || is_break(character);
            if escapes_all || needs_escape || matches!(character, '"' | '\\') {
                self.write_escape(character);
            } else {
                match indent.filter(|_| character == ' ' && self.column > BEST_WIDTH) {
                    Some(indent) if is_amid_words(previous, next) => {
                        self.start_line(indent);
                        if next == Some(' ') {
                            self.put('\\');
                        }
                    }
                    _ => self.put(character),
                }
            }
            self.at_indent = false;
            previous = Some(character);
        }
    }

    fn write_escape(&mut self, character: char) {
        let code = u32::from(character);
        let escape = match character {
            '\0' => "0",
            '\u{7}' => "a",
            '\u{8}' => "b",
            '\t' => "t",
            '\n' => "n",
            '\u{b}' => "v",
            '\u{c}' => "f",
            '\r' => "r",
            '\u{1b}' => "e",
            '"' => "\"",
            '\\' => "\\",
            '\u{a0}' => "_",
            '\u{2028}' => "L",
            '\u{2029}' => "P",
            _ if code <= 0xff => &format!("x{code:02X}"),
            _ if code <= 0xffff => &format!("u{code:04X}"),
            _ => &format!("U{code:08X}"),
        };
        self.put('\\');
        escape.chars().for_each(|character| self.put(character));
    }

    fn write_literal(&mut self, text: &str, indent: usize) {
        self.write_mark("|", false);
        if text.starts_with(' ') || text.starts_with(is_break) {
            // Leading blanks hide the indentation, so it is spelled out.
            self.put('2');
        }
        let mut backwards = text.chars().rev();
        if !backwards.next().is_some_and(is_break) {
            self.put('-');
        } else if backwards.next().is_none_or(is_break) {
            self.put('+');
        }
        self.put('\n');
        self.after_space = true;
        self.at_indent = true;
        let mut starts_line = true;
        for character in text.chars() {
            if starts_line && !is_break(character) {
                self.start_line(indent);
            }
            self.put(character);
            starts_line = is_break(character);
            self.at_indent = starts_line;
        }
    }

    /// Goes to column `indent`, on this line if only indentation and marks stand before it.
    fn start_line(&mut self, indent: usize) {
        let is_past = self.column > indent || self.column == indent && !self.after_space;
        if !self.at_indent || is_past {
            self.put('\n');
        }
        while self.column < indent {
            self.put(' ');
        }
        self.after_space = true;
        self.at_indent = true;
    }

    fn write_mark(&mut self, mark: &str, keeps_indent: bool) {
        if !self.after_space {
            self.put(' ');
        }
        mark.chars().for_each(|character| self.put(character));
        self.after_space = false;
        self.at_indent &= keeps_indent;
    }

    fn put(&mut self, character: char) {
        (self.out)(character);
        self.column = if is_break(character) {
            0
        } else {
            self.column + 1
        };
    }
}

/// The emitter never breaks a line at the first or last character, or inside a run of spaces.
fn is_amid_words(previous: Option<char>, next: Option<char>) -> bool {
    previous.is_some_and(|character| character != ' ') && next.is_some()
}

fn choose_style(text: &str) -> Style {
    let is_special = text.chars().any(|character| !is_printable(character));
    let has_pair = |test: fn(char, char) -> bool| {
        text.chars()
            .zip(text.chars().skip(1))
            .any(|(left, right)| test(left, right))
    };
    let breaks_after_space = has_pair(|left, right| left == ' ' && is_break(right));
    let breaks_before_space = has_pair(|left, right| is_break(left) && right == ' ');
    if text.contains('\n') {
        let is_literal = !is_special && !breaks_after_space && !text.ends_with(' ');
        return if is_literal {
            Style::Literal
        } else {
            Style::DoubleQuoted
        };
    }
    if is_special || breaks_after_space || breaks_before_space || reads_as_other_type(text) {
        Style::DoubleQuoted
    } else if has_indicator(text) || text.contains(is_break) {
        Style::SingleQuoted
    } else {
        Style::Plain
    }
}

/// Whether text without a line end would, bare, be taken for YAML's own marks or lose its ends.
fn has_indicator(text: &str) -> bool {
    text.starts_with(|character| INDICATORS.contains(character))
        || text.ends_with([' ', ':'])
        || ["---", "...", "- ", "? "]
            .iter()
            .any(|mark| text.starts_with(mark))
        || [": ", " #"].iter().any(|mark| text.contains(mark))
        || matches!(text, "-" | "?")
}

fn is_break(character: char) -> bool {
    matches!(character, '\r' | '\n' | NEXT_LINE | '\u{2028}' | '\u{2029}')
}

/// The emitter holds tabs and everything past U+FFFD, emoji included, for unprintable.
fn is_printable(character: char) -> bool {
    matches!(character, '\n' | ' '..='~' | '\u{a0}'..='\u{fffd}') && character != BYTE_ORDER_MARK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recorded_case_prints_as_go_does() {
        for line in include_str!("../../../tests/fixtures/print/cases.jsonl").lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let input = case["input"].as_str().unwrap();
            let mut printed = String::new();
            write_yaml(&serde_json::from_str(input).unwrap(), &mut |character| {
                printed.push(character);
            });
            assert_eq!(printed, case["yaml"].as_str().unwrap(), "input: {input}");
        }
    }
}
