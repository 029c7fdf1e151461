//! What goes and what stays, case by case and by property.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

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
fn a_payload_without_secrets_is_the_same_memory() {
    for payload in [
        r#"{"kind":"ConfigMap","apiVersion":"v1","data":{"Secret":"no"}}"#,
        r#"{"kind":"Secret","apiVersion":"other/v1","data":{"a":"kept"}}"#,
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
fn a_kind_written_with_escapes_is_a_secret_all_the_same() {
    let (clean, values) =
        redact(r#"{"k\u0069nd":"\u0053ecret","apiVersion":"\u0076\u0031","d\u0061ta":{"a":"x"}}"#);
    assert_eq!(values, 1);
    assert!(clean.ends_with(r#"{"a":"**REDACTED**"}}"#), "{clean}");
}

#[test]
fn last_applied_configurations_with_secrets_go() {
    let last_applied = "kubectl.kubernetes.io/last-applied-configuration";
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"annotations": {last_applied: "half a {", "other": "kept"}}});
    assert_eq!(redact(&secret.to_string()).1, 1);
    let wrapper = json!({"apiVersion": "k.example.org/v1", "kind": "Object",
        "metadata": {"annotations": {last_applied: r#"{"manifest":{"kind":"Secret"}}"#}}});
    assert_eq!(redact(&wrapper.to_string()).1, 1);
    let innocent = json!({"apiVersion": "k.example.org/v1", "kind": "Object",
        "metadata": {"annotations": {last_applied: r#"{"connectionSecretRef":{"name":"x"}}"#}}});
    assert_eq!(redact(&innocent.to_string()).1, 0);
}

#[test]
fn secrets_in_odd_shapes_go() {
    let last_applied = "kubectl.kubernetes.io/last-applied-configuration";
    let inner = json!({"apiVersion": "v1", "kind": "Secret"}).to_string();
    let outer = json!({"metadata": {"annotations": {last_applied: inner}}}).to_string();
    for (payload, values) in [
        (r#"{"apiVersion":"v1","kind":"Secret","data":{"b":"LEAK","x":{"kubectl.kubernetes.io/last-applied-configuration":"LEAK"}}}"#.to_owned(), 2),
        (r#"{"kind":"Secret","kind":"Other","apiVersion":"v1","apiVersion":"v2","data":{"a":"LEAK"},"data":"LEAK"}"#.to_owned(), 2),
        (r#"{"kind":"SecretList","apiVersion":"v1","items":[{"data":{"a":"LEAK"}},{"stringData":{"b":["LEAK"]}}]}"#.to_owned(), 2),
        (r#"{"items":[{"data":{"a":"LEAK"},"x":{"data":{"b":"kept"}}}],"kind":"SecretList","apiVersion":"v1"}"#.to_owned(), 1),
        (json!({"apiVersion": "v1", "kind": "Secret", "metadata": [{"a": {last_applied: "LEAK"}}]}).to_string(), 1),
        (json!({"kind": "Object", "metadata": {"annotations": {last_applied: format!("LEAK {outer}")}}}).to_string(), 1),
        (r#"{"x":{"credentials":{"env":{"PASSWORD":"LEAK"},"secretRef":{"password":"LEAK","key":"kept"},"key":"LEAK"}}}"#.to_owned(), 3),
    ] {
        let (clean, found) = redact(&payload);
        assert_eq!(found, values, "{payload}");
        assert!(!clean.contains("LEAK"), "{clean}");
        assert_eq!(clean.matches("kept").count(), payload.matches("kept").count(), "{clean}");
    }
}

#[test]
fn when_connection_details_were_published_is_no_secret() {
    let payload =
        r#"{"status":{"connectionDetails":{"lastPublishedTime":"2026-11-16T04:36:46Z"}}}"#;
    assert_eq!(redact(payload), (payload.to_owned(), 0));
}

#[test]
fn the_users_patterns_hold_in_last_applied_configurations_too() {
    let redactor = Redactor::new(&[], &["(?i)password"]).unwrap();
    let applied = json!({"spec": {"adminPassword": "LEAK"}}).to_string();
    let payload = json!({"kind": "XR", "spec": {"adminPassword": "LEAK"}, "metadata": {"annotations":
        {"kubectl.kubernetes.io/last-applied-configuration": applied}}});
    let (clean, values) = redact_with(&redactor, &payload.to_string());
    assert_eq!(values, 2);
    assert!(!clean.contains("LEAK"), "{clean}");
}

#[test]
fn connection_details_and_credentials_go_but_references_in_a_spec_stay() {
    let payload = json!({
        "credentials": {"db": {"credentialData": {"data": {"name": "x", "source": "y"}}}},
        "observed": {"resources": {"a": {"connectionDetails": {"type": "z"}}}},
        "input": {"resources": [{"connectionDetails": [
            {"name": "user", "type": "FromValue", "value": "inline"}]}]},
        "desired": {"resources": {"config": {"resource": {"spec": {"credentials": {
            "source": "Secret", "secretRef": {"name": "n", "namespace": "s", "key": "k"},
            "inline": "w"}}}}}},
    });
    let (clean, values) = redact(&payload.to_string());
    assert_eq!(values, 5);
    let clean: Value = serde_json::from_str(&clean).unwrap();
    let at = |pointer: &str| clean.pointer(pointer).unwrap().as_str().unwrap().to_owned();
    assert_eq!(at("/credentials/db/credentialData/data/name"), REDACTED);
    assert_eq!(at("/credentials/db/credentialData/data/source"), REDACTED);
    assert_eq!(at("/observed/resources/a/connectionDetails/type"), REDACTED);
    assert_eq!(at("/input/resources/0/connectionDetails/0/value"), REDACTED);
    assert_eq!(
        at("/input/resources/0/connectionDetails/0/type"),
        "FromValue"
    );
    let spec = "/desired/resources/config/resource/spec/credentials";
    assert_eq!(at(&format!("{spec}/secretRef/key")), "k");
    assert_eq!(at(&format!("{spec}/inline")), REDACTED);
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
fn nesting_has_no_limit() {
    let depth = 100_000;
    let inner = r#"{"kind":"Secret","apiVersion":"v1","data":{"a":"x"}}"#;
    let payload = format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(redact(&payload).1, 1);
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

    #[test]
    fn what_is_redacted_is_redacted_for_good(payload in any_json()) {
        let (once, _) = redact(&payload.to_string());
        prop_assert_eq!(redact(&once), (once.clone(), 0));
    }

    #[test]
    fn any_bytes_are_taken(bytes: Vec<u8>) {
        redactor().redact(&Bytes::from(bytes));
    }
}
