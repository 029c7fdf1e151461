//! JSON as Go's `encoding/json` prints it: the text of `json.Marshal` for the value that
//! `json.Unmarshal` makes of a document.
//!
//! Invariant: every number goes through `f64`, because Go decodes each one to `float64`; an
//! integer beyond 2^53 comes out rounded, as it does there. Keys keep the map's byte order, which
//! is Go's too.
//!
//! Must not know: what the value means, or where the text goes.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// Appends `value` as compact JSON, without a line end.
pub(crate) fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                write_json(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (position, (key, member)) in members.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                write_string(key, out);
                out.push(':');
                write_json(member, out);
            }
            out.push('}');
        }
    }
}

/// Go follows ECMAScript: plain digits from 1e-6 up to below 1e21, an exponent outside of that.
pub(super) fn write_number(number: &Number, out: &mut String) {
    let float = number.as_f64().unwrap_or_default();
    if float == 0.0 || (1e-6..1e21).contains(&float.abs()) {
        out.push_str(&shortest_decimal(float));
    } else {
        let (mantissa, exponent) = shortest_scientific(float);
        // Writing to a String cannot fail.
        write!(out, "{mantissa}e{exponent:+}").unwrap_or_default();
    }
}

/// Mantissa and exponent with the fewest digits that read back as `float`.
///
/// Where two such mantissas are equally near, Go takes the even one and Rust's shortest form the
/// upper one; rounding to that many digits settles it Go's way.
pub(super) fn shortest_scientific(float: f64) -> (String, i32) {
    let shortest = format!("{float:e}");
    let fraction = shortest
        .split_once('.')
        .map_or("", |(_, fraction)| fraction);
    let precision = fraction.chars().take_while(char::is_ascii_digit).count();
    let rounded = format!("{float:.precision$e}");
    let (mantissa, exponent) = rounded.split_once('e').unwrap_or((&rounded, "0"));
    (mantissa.to_owned(), exponent.parse().unwrap_or_default())
}

fn shortest_decimal(float: f64) -> String {
    let shortest = float.to_string();
    match shortest.split_once('.') {
        Some((_, fraction)) => format!("{float:.*}", fraction.len()),
        None => shortest,
    }
}

/// Besides what JSON demands, Go escapes `<`, `>` and `&` (safe inside HTML) and U+2028 and U+2029
/// (line ends in old JavaScript). DEL and the C1 controls stay as they are.
pub(super) fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                write!(out, "\\u{:04x}", u32::from(character)).unwrap_or_default();
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recorded_case_prints_as_go_does() {
        for line in include_str!("../../tests/fixtures/print/cases.jsonl").lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let input = case["input"].as_str().unwrap();
            let mut printed = String::new();
            write_json(&serde_json::from_str(input).unwrap(), &mut printed);
            assert_eq!(printed, case["json"].as_str().unwrap(), "input: {input}");
        }
    }
}
