//! A tree as YAML for people: members in order, texts of several lines as blocks.
//!
//! Invariant: what is written is YAML that reads back as the same tree, under YAML 1.1 and 1.2; and
//! it holds no character that a terminal obeys or that turns text around, since texts that have
//! any are quoted, with escapes.

use std::borrow::Cow;

use super::{Json, words::reads_as_other_type};
use crate::text::is_showable;

/// What a piece of YAML is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Piece {
    /// Indentation, line ends, `:`, `-` and the like.
    Mark,
    Name,
    Text,
    /// A number, a truth value, null.
    Word,
}

/// Where YAML goes, piece by piece.
pub trait YamlSink {
    fn write(&mut self, piece: Piece, text: &str);
}

impl YamlSink for String {
    fn write(&mut self, _: Piece, text: &str) {
        self.push_str(text);
    }
}

/// A value that is no container, as YAML has it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Scalar<'j> {
    Line(Piece, Cow<'j, str>),
    /// What stands behind the name, such as `|-`, and the lines below it.
    Block(&'static str, &'j str),
}

/// How a value that is no container, or an empty one, is written.
pub fn scalar<'j>(value: &'j Json<'_>) -> Scalar<'j> {
    let word = |word: &'static str| Scalar::Line(Piece::Word, word.into());
    match value {
        Json::Null => word("null"),
        Json::Bool(true) => word("true"),
        Json::Bool(false) => word("false"),
        Json::Number(number) => Scalar::Line(Piece::Word, number.to_string().into()),
        Json::List(_) => word("[]"),
        Json::Object(_) => word("{}"),
        Json::Text(text) => {
            block(text).unwrap_or_else(|| Scalar::Line(Piece::Text, one_line(text)))
        }
    }
}

/// Writes a value, line by line, each ending with a line end.
pub fn write_yaml(value: &Json<'_>, out: &mut impl YamlSink) {
    write_value(value, 0, Place::Document, out);
}

/// What stands before a value on its line.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Place {
    Document,
    /// A name and a colon.
    Member,
    /// A dash.
    Item,
}

fn write_value(value: &Json<'_>, indent: usize, place: Place, out: &mut impl YamlSink) {
    match value {
        Json::Object(members) if !members.is_empty() => {
            if place == Place::Member {
                out.write(Piece::Mark, "\n");
            }
            for (count, (name, member)) in members.iter().enumerate() {
                // The first member stands behind the dash.
                if count > 0 || place != Place::Item {
                    write_indent(indent, out);
                }
                out.write(Piece::Name, &one_line(name));
                out.write(Piece::Mark, ":");
                let deeper = match member {
                    // Under its name a list is not indented.
                    Json::List(_) => indent,
                    _ => indent + 2,
                };
                write_value(member, deeper, Place::Member, out);
            }
        }
        Json::List(items) if !items.is_empty() => {
            if place == Place::Member {
                out.write(Piece::Mark, "\n");
            }
            for (count, item) in items.iter().enumerate() {
                if count > 0 || place != Place::Item {
                    write_indent(indent, out);
                }
                out.write(Piece::Mark, "- ");
                write_value(item, indent + 2, Place::Item, out);
            }
        }
        _ => write_scalar(value, indent, place, out),
    }
}

fn write_scalar(value: &Json<'_>, indent: usize, place: Place, out: &mut impl YamlSink) {
    if place == Place::Member {
        out.write(Piece::Mark, " ");
    }
    match scalar(value) {
        Scalar::Line(piece, text) => out.write(piece, &text),
        Scalar::Block(header, text) => {
            out.write(Piece::Mark, header);
            // A document that is one text is indented too: it may begin with anything.
            let indent = if place == Place::Document { 2 } else { indent };
            for line in text.lines() {
                out.write(Piece::Mark, "\n");
                if !line.is_empty() {
                    write_indent(indent, out);
                    out.write(Piece::Text, line);
                }
            }
        }
    }
    out.write(Piece::Mark, "\n");
}

fn write_indent(columns: usize, out: &mut impl YamlSink) {
    const BLANKS: &str = "                                ";
    let mut left = columns;
    while left > 0 {
        let piece = BLANKS.get(..left.min(BLANKS.len())).unwrap_or(BLANKS);
        out.write(Piece::Mark, piece);
        left -= piece.len();
    }
}

/// A text of several lines as a block, if it can be one.
fn block(text: &str) -> Option<Scalar<'_>> {
    if !text.contains('\n') {
        return None;
    }
    let body = text.strip_suffix('\n').unwrap_or(text);
    let header = if body.len() == text.len() { "|-" } else { "|" };
    // A block that begins with a blank, or ends with several line ends, needs marks that few
    // people can read; a tab at the start of a line is no indentation.
    let is_fit = !body.starts_with([' ', '\n', '\t'])
        && !body.ends_with('\n')
        && !body.is_empty()
        && body
            .chars()
            .all(|c| c == '\n' || c == '\t' || is_showable(c));
    is_fit.then_some(Scalar::Block(header, body))
}

/// A text on one line: bare if it reads back as itself, else in double quotes.
fn one_line(text: &str) -> Cow<'_, str> {
    if is_bare(text) {
        return Cow::Borrowed(text);
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            _ if is_showable(character) => quoted.push(character),
            _ => {
                let code = u32::from(character);
                let is_wide = code > 0xFFFF;
                let escaped = is_wide.then(|| format!("\\U{code:08x}"));
                quoted.push_str(&escaped.unwrap_or_else(|| format!("\\u{code:04x}")));
            }
        }
    }
    quoted.push('"');
    Cow::Owned(quoted)
}

fn is_bare(text: &str) -> bool {
    const FIRST: &str = " -?:,[]{}#&*!|>'\"%@`=~<.";
    !text.is_empty()
        && text.chars().all(is_showable)
        && !text.starts_with(|first| FIRST.contains(first))
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.starts_with("0o")
        && !reads_as_other_type(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn yaml(json: &str) -> String {
        let mut out = String::new();
        write_yaml(&Json::parse(json).unwrap(), &mut out);
        out
    }

    #[test]
    fn reads_like_kubernetes() {
        let json = r#"{"kind":"Network","metadata":{"name":"prod-net","labels":{}},"spec":{
            "script":"set -e\nrun\n","note":"a\nb","rules":[{"ports":[80,443],"open":true},["x"],null]}}"#;
        assert_eq!(
            yaml(json),
            "\
kind: Network
metadata:
  labels: {}
  name: prod-net
spec:
  note: |-
    a
    b
  rules:
  - open: true
    ports:
    - 80
    - 443
  - - x
  - null
  script: |
    set -e
    run
"
        );
    }

    #[test]
    fn what_would_read_as_something_else_is_quoted() {
        for text in [
            "",
            "yes",
            "1.0",
            "0o17",
            "- x",
            "a: b",
            "a #b",
            " x",
            "#",
            "null",
            "2026-11-16",
        ] {
            let json = serde_json::to_string(text).unwrap();
            assert_eq!(yaml(&json), format!("\"{text}\"\n"));
        }
        for text in [
            "prod-net",
            "a:b",
            "10.0.0.0/16",
            "1.2.3",
            "é",
            "arn:aws:s3:::x",
            "👍",
        ] {
            let json = serde_json::to_string(text).unwrap();
            assert_eq!(yaml(&json), format!("{text}\n"));
        }
    }

    #[test]
    fn a_terminal_obeys_nothing_of_it() {
        assert_eq!(
            yaml(r#""\u001b[31mred\u009b\u202e""#),
            "\"\\u001b[31mred\\u009b\\u202e\"\n"
        );
        assert_eq!(
            yaml(r#"{"a\nb\u0007":"x\ny\u001b"}"#),
            "\"a\\nb\\u0007\": \"x\\ny\\u001b\"\n"
        );
    }

    fn texts() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>(),
            "[a-c0-9 \\n\\t:#'\"\\-\\[\\]{}|>%@!&*?,.~_=<]{0,12}"
        ]
    }

    fn values() -> impl Strategy<Value = serde_json::Value> {
        use serde_json::Value;
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            texts().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(texts(), inner, 0..4)
                    .prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_reads_back_as_the_same(value in values()) {
            let json = value.to_string();
            let yaml = yaml(&json);
            let read: serde_json::Value = serde_norway::from_str(&yaml).expect(&yaml);
            prop_assert_eq!(read, value, "{}", yaml);
            let obeyed = |c: char| c != '\n' && c != '\t' && c.is_control();
            prop_assert!(!yaml.contains(obeyed), "{yaml:?}");
        }
    }
}
