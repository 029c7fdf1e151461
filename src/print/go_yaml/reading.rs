//! What go-yaml reads from the JSON text of a value, before any of it is printed again.
//!
//! Invariant: JSON is not quite YAML 1.1. A number may change its type, U+0085 is a line end and
//! some text is refused; everything else is read as it was written.
//!
//! Must not know: how YAML is laid out.

use std::borrow::Cow;
use std::iter;

use serde_json::{Number, Value};

use crate::print::go_json;

/// A longer key, in characters of its JSON, is refused: it would need too much lookahead.
const LONGEST_KEY: usize = 1024;
const NEXT_LINE: char = '\u{85}';

/// The number as it is printed again: an integer if its JSON text is one that fits 64 bits, else a
/// float as Go's `%g`, with an exponent below 1e-4 and from 1e6 up.
pub(super) fn read_number(number: &Number) -> String {
    let mut json = String::new();
    go_json::write_number(number, &mut json);
    if let Ok(integer) = json.parse::<i64>() {
        return integer.to_string();
    }
    let float = number.as_f64().unwrap_or_default();
    if json.parse::<u64>().is_ok() || (1e-4..1e6).contains(&float.abs()) {
        return json;
    }
    let (mantissa, exponent) = go_json::shortest_scientific(float);
    format!("{mantissa}e{exponent:+03}")
}

/// JSON leaves U+0085 bare and the YAML reader takes it for a line end. One alone becomes a space,
/// of several in a row each but the first a line feed, and the spaces around them go.
pub(super) fn fold_next_lines(text: &str) -> Cow<'_, str> {
    let Some((first, rest)) = text.split_once(NEXT_LINE) else {
        return text.into();
    };
    let mut folded = String::from(first.trim_end_matches(' '));
    let mut empty_lines = 0;
    let mut lines = rest.split(NEXT_LINE).peekable();
    while let Some(line) = lines.next() {
        let is_last = lines.peek().is_none();
        let indented = line.trim_start_matches(' ');
        let line = if is_last {
            indented
        } else {
            indented.trim_end_matches(' ')
        };
        if line.is_empty() && !is_last {
            empty_lines += 1;
            continue;
        }
        match empty_lines {
            0 => folded.push(' '),
            _ => folded.extend(iter::repeat_n('\n', empty_lines)),
        }
        folded.push_str(line);
        empty_lines = 0;
    }
    folded.into()
}

/// Whether the YAML reader accepts the value's JSON text.
pub(super) fn is_readable(value: &Value) -> bool {
    match value {
        Value::String(text) => is_readable_text(text),
        Value::Array(items) => items.iter().all(is_readable),
        Value::Object(members) => members.iter().all(|(key, member)| {
            let mut json = String::new();
            go_json::write_string(key, &mut json);
            // A key without `?` has to end on its line.
            let fits = json.chars().count() <= LONGEST_KEY && !key.contains(NEXT_LINE);
            fits && is_readable_text(key) && is_readable(member)
        }),
        _ => true,
    }
}

fn is_readable_text(text: &str) -> bool {
    // Controls below U+0020 arrive as JSON escapes, these do not.
    let is_refused = |c| matches!(c, '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}');
    let mut lines = text.split(NEXT_LINE).peekable();
    let mut is_first = true;
    while let Some(line) = lines.next() {
        // A document mark at the start of a line ends the document, even inside of quotes.
        let mark = line
            .strip_prefix("---")
            .or_else(|| line.strip_prefix("..."));
        let ends_document = mark
            .is_some_and(|rest| rest.starts_with(' ') || rest.is_empty() && lines.peek().is_some());
        if line.contains(is_refused) || ends_document && !is_first {
            return false;
        }
        is_first = false;
    }
    true
}
