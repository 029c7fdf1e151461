//! What goes and what stays, case by case and by property.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{edits::Edit, *};
use crate::pace::breaths_during;

fn redactor() -> Redactor {
    Redactor::new::<&str>(&[], &[]).unwrap()
}

fn redact_with(redactor: &Redactor, payload: &str) -> (String, u64) {
    let redacted = redactor.redact(&Bytes::copy_from_slice(payload.as_bytes()));
    let CleanPayload::Json(bytes) = redacted.payload else {
        panic!("not JSON: {payload}");
    };
    (String::from_utf8(bytes.to_vec()).unwrap(), redacted.values)
}

fn redact(payload: &str) -> (String, u64) {
    redact_with(&redactor(), payload)
}

#[test]
fn a_secrets_values_go_and_every_other_byte_stays() {
    let (clean, values) = redact(
        r#"{ "data":{"a":"x" , "b":{"c":[1,null,true]}},"kind":"Secret", "stringData" : {"é":"\"}"} ,"apiVersion":"v1","n":1.50}"#,
    );
    assert_eq!(
        clean,
        r#"{ "data":{"a":"**REDACTED**" , "b":{"c":["**REDACTED**",null,"**REDACTED**"]}},"kind":"Secret", "stringData" : {"é":"**REDACTED**"} ,"apiVersion":"v1","n":1.50}"#
    );
    assert_eq!(values, 4);
}

#[test]
fn rules_that_redact_something_else_are_told_apart() {
    let with = |pointers: &[&str], keys: &[&str]| Redactor::new(pointers, keys).unwrap().rules();
    let all = [
        with(&[], &[]),
        with(&["/a"], &[]),
        with(&["/a", "/b"], &[]),
        with(&["/a/b"], &[]),
        with(&[], &["a"]),
        with(&[], &["a", "b"]),
        redactor().with_secret_keys(false).rules(),
    ];
    let different: std::collections::HashSet<_> = all.iter().collect();
    assert_eq!(different.len(), all.len());
    assert_eq!(with(&["/a"], &["b"]), with(&["/a"], &["b"]));
}

#[test]
fn a_payload_without_secrets_is_the_same_memory() {
    for payload in [
        r#"{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"a Secret {}"}}"#,
        r#"{"spec":{"passwordSecretRef":{"key":"password","name":"x"}}}"#,
        r#"{"spec":{"message":"the \"Secret\" has no password"}}"#,
        r#"{"kind":"Secret","apiVersion":"v1","data":{"a":"**REDACTED**"}}"#,
        r#"{"desired":{"composite":{"connectionDetails":{"a":"KipSRURBQ1RFRCoq"}}}}"#,
    ] {
        let bytes = Bytes::copy_from_slice(payload.as_bytes());
        let redacted = redactor().redact(&bytes);
        assert_eq!(redacted.values, 0, "{payload}");
        let CleanPayload::Json(clean) = redacted.payload else {
            panic!("{payload}")
        };
        assert_eq!(clean.as_ptr(), bytes.as_ptr(), "{payload}");
    }
}

#[test]
fn a_private_key_written_with_escapes_goes_all_the_same() {
    let (clean, values) = redact(r#"{"a":"-----BEGIN PRIV\u0041TE KEY-----\nx\n"}"#);
    assert_eq!((clean.as_str(), values), (r#"{"a":"**REDACTED**"}"#, 1));
}

#[test]
fn white_space_that_yaml_does_not_know_keeps_nobody_from_getting_on() {
    for content in [
        "{b: canary\\f",
        "[\\fcanary",
        "{\\f# x: canary}",
        "{a: \\u000bcanary}",
        "{\\fcanary}",
    ] {
        let text = format!(r#"{{"a":"apiVersion: v1\nkind: Secret\ndata: {content}"}}"#);
        let (clean, values) = redact(&text);
        assert!(values == 1 && !clean.contains("canary"), "{clean}");
    }
}

#[test]
fn brackets_in_quotes_close_nothing() {
    let (clean, values) = redact(r#"{"a":"kind: Secret\nstringData: {\"}\n\":\"canary"}"#);
    assert_eq!((clean.as_str(), values), (r#"{"a":"**REDACTED**"}"#, 1));
}

#[test]
fn a_kind_written_with_escapes_is_a_secret_all_the_same() {
    let (clean, values) =
        redact(r#"{"k\u0069nd":"\u0053ecret","apiVersion":"\u0076\u0031","d\u0061ta":{"a":"x"}}"#);
    assert_eq!(values, 1);
    assert!(clean.ends_with(r#"{"a":"**REDACTED**"}}"#), "{clean}");
}

#[test]
fn the_users_pointers_and_patterns_hold() {
    let redactor = Redactor::new(
        &[
            "/input/apiKey",
            "/desired/resources/*/resource/spec/a~1b",
            "/list/1",
        ],
        &["(?i)password"],
    )
    .unwrap();
    let payload = json!({
        "input": {"apiKey": "1", "other": "kept"},
        "desired": {"resources": {"x": {"resource": {"spec": {"a/b": {"deep": "2"}, "c": "kept"}}}}},
        "list": ["kept", "3"],
        "spec": {"adminPassword": "4"},
    });
    let (clean, values) = redact_with(&redactor, &payload.to_string());
    assert_eq!(values, 4);
    assert_eq!(clean.matches("kept").count(), 3);
}

/// Some text again and again, up to this many bytes.
fn repeated(part: &str, bytes: usize) -> String {
    part.repeat(bytes / part.len())
}

const MIB: usize = 1024 * 1024;
/// Each of these is read within a millisecond at the very most.
const SLICES: usize = MIB / (256 * 1024);

#[test]
fn others_get_the_cpu_while_a_long_payload_is_read() {
    let search = Search::new().unwrap();
    let values = repeated(r#"{"a":[1,"b\n"],"c":null},"#, MIB);
    let json = format!("[{values}1]");
    let string = format!(r#"["{}"]"#, repeated(r"\n\n", MIB));
    let numbers = format!("[{}1]", repeated("1234567890,", MIB));
    let nested = "[".repeat(MIB / 2) + &"]".repeat(MIB / 2);
    for text in [&json, &string, &numbers, &nested] {
        assert!(breaths_during(|| is_json(text)) >= SLICES);
        assert!(breaths_during(|| search.finds_any(text.as_bytes())) >= SLICES);
        assert!(breaths_during(|| search.finds_any_that_counts(text.as_bytes(), true)) >= SLICES);
        let edits = [Edit::json(1, 2)];
        assert!(breaths_during(|| apply(text.as_bytes(), &edits)) >= SLICES);
        let rules = Redactor::new(&[], &["^pin$"]).unwrap().rules;
        assert!(breaths_during(|| find_secret_values(text, &rules, 0)) >= SLICES);
    }
}

#[test]
fn others_get_the_cpu_while_a_long_string_is_read() {
    let rules = Redactor::new(&[], &["^pin$"]).unwrap().rules;
    let manifest = |part: &str| format!("apiVersion: v1\nkind: Secret\nspec:\n{part}\n");
    for (name, text) in [
        ("lines", manifest(&repeated("  a: b\n", MIB))),
        (
            "data",
            manifest(&format!("  data:\n{}", repeated("    a: b\n", MIB))),
        ),
        (
            "a block of text",
            manifest(&format!("  data: |\n{}", repeated("    a\n", MIB))),
        ),
        (
            "flow style",
            manifest(&format!("  a: [{}]", repeated("{b: c},\n  ", MIB))),
        ),
        (
            "a line of flow style",
            manifest(&format!("  a: [{}]", repeated("b, ", MIB))),
        ),
        (
            "quotes",
            manifest(&format!("  a: \"{}\"", repeated("b\n  ", MIB))),
        ),
        (
            "a line of quotes",
            manifest(&format!("  a: \"{}\"", repeated("b ", MIB))),
        ),
        ("escapes", repeated("\\\"x", MIB)),
        ("pairs", repeated("\"a\": \"b\" ", MIB)),
    ] {
        let breaths = breaths_during(|| manifests::find_secret_values(&text, &rules));
        assert!(breaths >= SLICES, "{name}: {breaths}");
    }
    let pairs = repeated("a: b, ", MIB);
    assert!(breaths_during(|| manifests::has_named_key(&pairs, &rules)) >= SLICES);
}

#[test]
fn a_long_text_counts_as_json_if_a_short_one_does() {
    let long = " ".repeat(1024 * 1024);
    for text in [
        "1",
        "[1,2",
        "[1]x",
        "{\"a\":\"\\ud800\"}",
        "\"\u{2028}é\"",
        "\"\n\"",
        "01",
        "1e999",
        "",
        &"[".repeat(10_000),
        &("[".repeat(10_000) + &"]".repeat(10_000)),
    ] {
        let json = is_json(text);
        assert_eq!(is_json(&format!("{long}{text}")), json, "{text}");
        assert_eq!(is_json(&format!("{text}{long}")), json, "{text}");
    }
}

#[test]
fn rules_that_are_none_are_refused() {
    assert!(matches!(
        Redactor::new(&["a/b"], &[]),
        Err(RuleError::Pointer(_))
    ));
    assert!(matches!(
        Redactor::new(&[], &["("]),
        Err(RuleError::KeyPattern(_))
    ));
}

#[test]
fn what_is_no_json_is_withheld_if_it_mentions_a_secret() {
    let check = |payload: &'static [u8]| redactor().redact(&Bytes::from_static(payload)).payload;
    let withheld = CleanPayload::Text(Bytes::from_static(REDACTED.as_bytes()));
    assert_eq!(check(br#"{"kind":"Secret","data":{"a":"#), withheld);
    assert_eq!(check(b"\xff connectionDetails"), withheld);
    assert_eq!(
        check(b"plain"),
        CleanPayload::Text(Bytes::from_static(b"plain"))
    );
    assert_eq!(
        check(b"\xff"),
        CleanPayload::Binary(Bytes::from_static(b"\xff"))
    );
    assert_eq!(check(b""), CleanPayload::Empty);
}

#[test]
fn what_is_nested_too_deeply_goes_whole() {
    let inner = r#"{"kind":"Secret","data":{"a":"x"}}"#;
    let nested =
        |depth: usize, inner: &str| format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth));
    let (clean, values) = redact(&nested(MAX_DEPTH - 2, inner));
    assert!(clean.contains(r#""data":{"a":"**REDACTED**"}"#) && values == 1);
    let (clean, values) = redact(&nested(100_000, inner));
    let withheld = nested(MAX_DEPTH, r#""**REDACTED**""#);
    assert!(clean == withheld && values == 1);
}

#[test]
fn a_payload_with_too_many_values_is_withheld() {
    let payload = |values: usize| {
        let numbers = vec!["1"; values].join(",");
        Bytes::from(format!(r#"{{"kind":"Secret","data":{{"a":[{numbers}]}}}}"#))
    };
    let redacted = redactor().redact(&payload(MAX_VALUES));
    assert!(matches!(redacted.payload, CleanPayload::Json(_)));
    assert_eq!(redacted.values, MAX_VALUES as u64);
    assert_eq!(
        redactor().redact(&payload(MAX_VALUES + 1)),
        Redacted::withheld()
    );
}

#[test]
fn what_a_string_holds_is_redacted_where_it_stands() {
    // Escapes as Go writes them, a pair of surrogates, and one string inside of another.
    let (clean, values) = redact(
        r#"{"a":"{\"x\":\"\u003c\ud83d\ude00é\", \"password\" : \"s3\\n\u00e9\",\"b\":\"{\\\"token\\\":\\\"t\\\"}\"}"}"#,
    );
    assert_eq!(
        clean,
        r#"{"a":"{\"x\":\"\u003c\ud83d\ude00é\", \"password\" : \"**REDACTED**\",\"b\":\"{\\\"token\\\":\\\"**REDACTED**\\\"}\"}"}"#
    );
    assert_eq!(values, 2);
}

#[test]
fn only_values_of_a_secret_in_yaml_go() {
    let template = concat!(
        "{{ $name := .x }}\r\n---\nkind: ConfigMap\ndata: {a: b} # c\n---\n",
        "apiVersion: v1\nkind: Secret # d\ndata:\n  a:   eA==  # e\n  b: |\n    f\n\n    g\n",
        "  {{- if .x }}\n  c: {{ .y }}\n  {{- end }}\nmetadata:\n  name: {{ $name }}\n",
    );
    let (clean, values) = redact(&json!({ "template": template }).to_string());
    let clean: Value = serde_json::from_str(&clean).unwrap();
    assert_eq!(
        clean["template"],
        concat!(
            "{{ $name := .x }}\r\n---\nkind: ConfigMap\ndata: {a: b} # c\n---\n",
            "apiVersion: v1\nkind: Secret # d\ndata:\n  a: '**REDACTED**'\n  b: '**REDACTED**'\n",
            "  {{- if .x }}\n  c: '**REDACTED**'\n  {{- end }}\nmetadata:\n  name: {{ $name }}\n",
        )
    );
    assert_eq!(values, 3);
}

const CANARY: &str = "canary-s3cr3t";

/// JSON as it may come, with objects that look like Kubernetes ones.
fn any_json() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        Just("data".to_owned()),
        Just("kind".to_owned()),
        Just("apiVersion".to_owned()),
        Just("stringData".to_owned()),
        Just("connectionDetails".to_owned()),
        Just("items".to_owned()),
        Just("kubectl.kubernetes.io/last-applied-configuration".to_owned()),
        "[a-z\"\\\\é\n]{0,4}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!("Secret")),
        Just(json!("v1")),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::hash_map(key.clone(), inner, 0..5).prop_map(Value::from_iter),
        ]
    })
}

/// A Secret with the canary somewhere under its data.
fn any_secret() -> impl Strategy<Value = Value> {
    let canary = any_json().prop_map(|around| match around {
        Value::Array(mut items) => {
            items.push(json!({ "x": CANARY }));
            Value::Array(items)
        }
        Value::Object(mut members) => {
            members.insert("deep".to_owned(), json!([CANARY]));
            Value::Object(members)
        }
        _ => json!(CANARY),
    });
    (canary, any_json(), prop::bool::ANY).prop_map(|(canary, other, string)| {
        let field = if string { "stringData" } else { "data" };
        json!({"apiVersion": "v1", "kind": "Secret", field: {"k": canary}, "other": other})
    })
}

proptest! {
    #[test]
    fn a_canary_anywhere_under_a_secret_never_comes_out(
        secret in any_secret(),
        path in prop::collection::vec("[a-zA-Z]{1,12}", 0..6),
        sibling in any_json(),
        pretty: bool,
    ) {
        let mut payload = secret;
        for (depth, key) in path.iter().enumerate() {
            payload = if depth % 2 == 0 {
                json!({ key: payload, "sibling": sibling.clone() })
            } else {
                json!([sibling.clone(), payload])
            };
        }
        let text = if pretty {
            serde_json::to_string_pretty(&payload).unwrap()
        } else {
            payload.to_string()
        };
        let (clean, values) = redact(&text);
        prop_assert!(!clean.contains(CANARY), "{clean}");
        prop_assert!(values > 0);
        serde_json::from_str::<Value>(&clean).unwrap();
    }
}
