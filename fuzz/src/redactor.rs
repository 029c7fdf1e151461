//! The redactor: it leaves what a slow one leaves that walks a tree.
//!
//! The first byte chooses the rules and how the payload is written; the rest is JSON, read
//! leniently (see `json`).

use std::fmt::Write as _;

use bytes::Bytes;
use spanplane::redact::{CleanPayload, REDACTED, Redactor};

use super::{
    agreement::{REDACTORS, RULES, compare, withholds_at_most},
    json::lenient,
    slow::Node,
};

/// See above.
pub fn check(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else {
        return;
    };
    let rules = usize::from(*choice) % RULES.len();
    let style = usize::from(*choice) / RULES.len();
    let payload = lenient(bytes);
    if let Err(difference) = compare(&payload, style.is_multiple_of(2), rules) {
        panic!("by the rules {rules}: {difference}");
    }
    check_bytes(&REDACTORS[rules], bytes);
    check_escapes(&payload, rules, style);
}

/// Whatever the bytes are.
fn check_bytes(redactor: &Redactor, bytes: &[u8]) {
    let payload = Bytes::copy_from_slice(bytes);
    let redacted = redactor.redact(&payload);
    let clean = redacted.payload.as_bytes();
    let is_withheld = clean == REDACTED.as_bytes();
    if redacted.values == 0 {
        assert_eq!(clean, bytes, "nothing was redacted");
    }
    match &redacted.payload {
        CleanPayload::Empty => assert!(bytes.is_empty()),
        CleanPayload::Json(_) => assert_ne!(clean, REDACTED.as_bytes()),
        CleanPayload::Text(text) => assert!(is_withheld || std::str::from_utf8(text).is_ok()),
        CleanPayload::Binary(_) => assert!(std::str::from_utf8(bytes).is_err()),
    }
    if redactor.has_nothing_to_hide(bytes) {
        assert!(redacted.values == 0 || is_withheld);
    }
    let again = redactor.redact(&Bytes::copy_from_slice(clean)).payload;
    assert!(
        withholds_at_most(clean, again.as_bytes()),
        "redacted twice: {redacted:?}, {again:?}"
    );
}

/// However a payload is written, no less is redacted.
fn check_escapes(payload: &Node, rules: usize, style: usize) {
    let mut text = String::new();
    write_escaped(payload, style, &mut text);
    let redactor = &REDACTORS[rules];
    let escaped = redactor.redact(&Bytes::from(text.clone()));
    let plain = super::agreement::written(payload, false);
    let plain = redactor.redact(&Bytes::from(plain));
    let (CleanPayload::Json(escaped), CleanPayload::Json(plain)) =
        (&escaped.payload, &plain.payload)
    else {
        panic!("not JSON: {text}");
    };
    let [escaped, plain]: [Node; 2] =
        [escaped, plain].map(|json| serde_json::from_slice(json).unwrap());
    assert!(
        covers(&escaped, &plain),
        "{text}\nescaped {escaped:?}\nplain {plain:?}"
    );
}

/// Whether the one hides all that the other hides.
fn covers(one: &Node, other: &Node) -> bool {
    match (one, other) {
        (Node::Text(text), _) if text == REDACTED => true,
        (Node::List(one), Node::List(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| covers(one, other))
        }
        (Node::Object(one), Node::Object(other)) => {
            let same = |((key, one), (name, other)): (&(String, Node), &(String, Node))| {
                key == name && covers(one, other)
            };
            one.len() == other.len() && one.iter().zip(other).all(same)
        }
        (Node::Text(one), Node::Text(other)) if one != other => {
            // JSON in a string; else it is YAML, which is compared with a real library elsewhere.
            let inner = [one, other].map(|text| serde_json::from_str::<Node>(text));
            match inner {
                [Ok(one), Ok(other)] => covers(&one, &other),
                _ => one.contains(REDACTED) || !other.contains(REDACTED),
            }
        }
        (one, other) => one == other,
    }
}

/// With characters of its texts as escapes, and blanks.
fn write_escaped(node: &Node, style: usize, out: &mut String) {
    match node {
        Node::Text(text) => write_text(text, style, out),
        Node::List(items) => {
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                out.push_str(if place > 0 { ",\t" } else { "" });
                write_escaped(item, style, out);
            }
            out.push(']');
        }
        Node::Object(members) => {
            out.push('{');
            for (place, (key, value)) in members.iter().enumerate() {
                out.push_str(if place > 0 { " , " } else { " " });
                write_text(key, style, out);
                out.push_str(" :\r\n");
                write_escaped(value, style, out);
            }
            out.push('}');
        }
        other => out.push_str(&super::agreement::written(other, false)),
    }
}

/// Every so many characters as an escape.
fn write_text(text: &str, style: usize, out: &mut String) {
    let every = style % 7 + 1;
    out.push('"');
    for (place, character) in text.chars().enumerate() {
        let mut units = [0; 2];
        if place % every == style % every || matches!(character, '"' | '\\' | '\0'..'\x20') {
            for unit in character.encode_utf16(&mut units) {
                write!(out, "\\u{unit:04x}").unwrap();
            }
        } else {
            out.push(character);
        }
    }
    out.push('"');
}
