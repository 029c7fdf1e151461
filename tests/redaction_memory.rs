//! What redaction allocates beside the payload, whatever that is: one copy of it and a few megabytes,
//! which is what the budget for messages counts on (`receive/budget/processing.rs`).
//!
//! In a test program of its own, since it counts everything that the program allocates.

#![cfg(test)]

use bytes::Bytes;
use peak_alloc::PeakAlloc;
use spanplane::redact::Redactor;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The largest payload that is received by default is a little larger.
const LARGE: usize = 30 * 1_000_000;
/// For what is slow to redact in a build without optimisations.
const SMALLER: usize = 4 * 1_000_000;
/// Besides the payload and one copy of it.
const ALLOWANCE: usize = 16 * 1024 * 1024;

/// Secrets inside of Secrets, around numbers.
fn nested_secrets(secrets: usize, numbers: usize) -> String {
    let numbers = vec!["1"; numbers].join(",");
    let opening = r#"{"apiVersion":"v1","kind":"Secret","data":{"a":"#.repeat(secrets);
    format!("{opening}[{numbers}]{}", "}}".repeat(secrets))
}

/// A list of the same over and over again.
fn list_of(item: &str, bytes: usize) -> String {
    let items = vec![item; bytes / (item.len() + 1)];
    format!("[{}]", items.join(","))
}

/// A string with this text in it.
fn string_of(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

#[test]
fn memory_is_bounded_whatever_the_payload() {
    let redactor = Redactor::new(&["/a/*"], &["pin"]).unwrap();
    let yaml = "kind: Secret\ndata:\n  a: b\n---\n".repeat(50_000);
    let lines = "a:\n".repeat(400_000) + "kind: Secret\ndata:\n  a: b\n";
    let json = list_of(r#"{"password":"x"}"#, 1_000_000);
    let cases: [(&str, String); 14] = [
        ("Secrets around numbers", nested_secrets(110, 250_000)),
        (
            "Secrets around many numbers",
            nested_secrets(110, LARGE / 2),
        ),
        (
            "lists in lists",
            "[".repeat(LARGE / 2) + "\"secret {\"" + &"]".repeat(LARGE / 2),
        ),
        ("Secrets in Secrets", nested_secrets(SMALLER / 50, 1)),
        ("passwords", list_of(r#"{"password":"x"}"#, LARGE)),
        (
            "Secrets",
            list_of(r#"{"data":{"a":1},"kind":"Secret"}"#, SMALLER),
        ),
        (
            "data of one Secret",
            format!(
                r#"{{"kind":"Secret","x":{}}}"#,
                list_of(r#"{"data":1}"#, SMALLER)
            ),
        ),
        (
            "undecided values",
            format!(
                "{{{}\"name\":\"token\"}}",
                r#""value":"x","#.repeat(SMALLER / 12)
            ),
        ),
        (
            "a long string",
            string_of(&format!("{{\"token\":{}", "x".repeat(LARGE))),
        ),
        ("strings of JSON", list_of(&string_of(&json), 2 * SMALLER)),
        (
            "strings in strings",
            list_of(&string_of(&string_of(&json)), 2 * SMALLER),
        ),
        ("strings of YAML", list_of(&string_of(&yaml), SMALLER)),
        (
            "strings of many lines",
            list_of(&string_of(&lines), SMALLER),
        ),
        (
            "a long key",
            format!("{{\"token{}\":\"x\"}}", "k".repeat(SMALLER)),
        ),
    ];
    for (name, payload) in cases {
        let payload = Bytes::from(payload);
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        let redacted = redactor.redact(&payload);
        let peak = ALLOCATOR.peak_usage() - before;
        assert!(redacted.values > 0, "{name}");
        let limit = payload.len() + ALLOWANCE;
        let bytes = payload.len();
        assert!(
            peak < limit,
            "{name}: {peak} bytes for a payload of {bytes}"
        );
        println!(
            "{name}: {bytes} bytes took {peak} more, {} values",
            redacted.values
        );
    }
}
