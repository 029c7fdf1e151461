//! What holds for every payload: the fast redactor leaves what the slow one leaves.
//!
//! The fuzz targets include this file too, with `slow` beside it.

use std::{fmt::Write as _, sync::LazyLock};

use bytes::Bytes;
use serde_json::Value;
use spanplane::redact::{CleanPayload, REDACTED, Redactor};

use super::slow::{Node, Rules, Slow, agrees};

/// What the user may have set: pointers, patterns for keys, and whether keys name secrets.
pub(crate) const RULES: [(&[&str], &[&str], bool); 4] = [
    (&[], &[], true),
    (&[], &[], false),
    (&[], &["(?i)pin|secret"], true),
    (
        &["/context/*", "/observed/resources/*/a/0", "/spec/pin"],
        &["^a$"],
        false,
    ),
];

/// Made once: a pattern takes longer to compile than a payload to redact.
pub(crate) static REDACTORS: LazyLock<Vec<Redactor>> = LazyLock::new(|| {
    let redactors = RULES.iter().map(|(pointers, keys, secret_keys)| {
        let redactor = Redactor::new(pointers, keys).unwrap();
        redactor.with_secret_keys(*secret_keys)
    });
    redactors.collect()
});

/// Redacts a payload with both, by the rules at this place in [`RULES`]; tells how they differ.
pub(crate) fn compare(payload: &Node, pretty: bool, rules: usize) -> Result<(), String> {
    let (pointers, keys, secret_keys) = RULES[rules];
    let redactor = &REDACTORS[rules];
    let text = written(payload, pretty);
    let redacted = redactor.redact(&Bytes::from(text.clone()));
    let CleanPayload::Json(clean) = redacted.payload else {
        return Err(format!("not JSON: {text}"));
    };
    let clean = std::str::from_utf8(&clean).unwrap();
    let rules = Rules {
        pointers,
        keys,
        secret_keys,
    };
    let slow = Slow::new(rules, redactor);
    let (slow, values) = slow.redact(&text).unwrap();
    let fast: Node = serde_json::from_str(clean).unwrap();
    if !agrees(&fast, &slow) {
        return Err(format!("{text}\nfast {fast:?}\nslow {slow:?}"));
    }
    if redacted.values != values {
        let fast = redacted.values;
        return Err(format!(
            "{text}\nfast {clean}\n{fast} values, slow {values}"
        ));
    }
    if (values == 0) != (clean == text) {
        return Err(format!("{text}\nfast {clean}\n{values} values"));
    }
    // Once is enough, but for text that is no YAML any more without what was taken out of it.
    let again = redactor.redact(&Bytes::from(clean.to_owned())).payload;
    if !withholds_at_most(clean.as_bytes(), again.as_bytes()) {
        return Err(format!("{text}\nonce {clean}\nagain {again:?}"));
    }
    Ok(())
}

/// Whether redacting again changed nothing but strings, and these were withheld as a whole.
pub(crate) fn withholds_at_most(once: &[u8], again: &[u8]) -> bool {
    fn is_at_most_withheld(once: &Value, again: &Value) -> bool {
        match (once, again) {
            (Value::String(_), Value::String(again)) if again == REDACTED => true,
            (Value::Array(once), Value::Array(again)) => {
                once.len() == again.len()
                    && once
                        .iter()
                        .zip(again)
                        .all(|(a, b)| is_at_most_withheld(a, b))
            }
            (Value::Object(once), Value::Object(again)) => {
                once.len() == again.len()
                    && once
                        .iter()
                        .zip(again)
                        .all(|((name, a), (other, b))| name == other && is_at_most_withheld(a, b))
            }
            (once, again) => once == again,
        }
    }

    if once == again || again == REDACTED.as_bytes() {
        return true;
    }
    match (serde_json::from_slice(once), serde_json::from_slice(again)) {
        (Ok(once), Ok(again)) => is_at_most_withheld(&once, &again),
        _ => false,
    }
}

/// As JSON.
pub(crate) fn written(node: &Node, pretty: bool) -> String {
    let mut text = String::new();
    write_node(node, if pretty { "\n  " } else { "" }, &mut text);
    text
}

fn write_node(node: &Node, space: &str, out: &mut String) {
    match node {
        Node::Null => out.push_str("null"),
        Node::Bool(value) => write!(out, "{value}").unwrap(),
        Node::Number(number) => out.push_str(number),
        Node::Text(text) => out.push_str(&serde_json::to_string(text).unwrap()),
        Node::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(space);
                write_node(item, space, out);
            }
            out.push(']');
        }
        Node::Object(members) => {
            out.push('{');
            for (index, (key, value)) in members.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                write!(
                    out,
                    "{space}{}{space}:{space}",
                    serde_json::to_string(key).unwrap()
                )
                .unwrap();
                write_node(value, space, out);
            }
            out.push('}');
        }
        Node::Holds(inner) => write_node(inner, space, out),
    }
}
