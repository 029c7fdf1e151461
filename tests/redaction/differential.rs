//! The fast redactor and the slow one agree, on anything that looks a bit like a payload.

use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use spanplane::redact::{CleanPayload, REDACTED};

use crate::{
    agreement::{REDACTORS, RULES, compare, written},
    cases,
    slow::Node,
};

/// What payloads are made of, and what redaction looks at.
const KEYS: [&str; 67] = [
    "a",
    "coNNectionString",
    "annotations",
    "apiKey",
    "apiVersion",
    "api_key",
    "composite",
    "connectionDetails",
    "connectionSecretKey",
    "context",
    "credentials",
    "data",
    "desired",
    "existingSecret",
    "existingSecretPasswordKey",
    "existingSecretToken",
    "imagePullSecretPassword",
    "fieldPath",
    "fs",
    "fromConnectionSecretKey",
    "items",
    "key",
    "kind",
    "kubectl.kubernetes.io/last-applied-configuration",
    "labels",
    "lastPublishedTime",
    "managedFields",
    "manifest",
    "matchLabels",
    "metadata",
    "name",
    "namespace",
    "observed",
    "one",
    "password",
    "passwordSecretRef",
    "path",
    "pin",
    "podSelector",
    "private-key",
    "properties",
    "remoteRef",
    "requiredResources",
    "requirements",
    "resource",
    "resources",
    "secretKey",
    "secretName",
    "secretStrategy",
    "source",
    "spec",
    "stringData",
    "tokenUrl",
    "type",
    "value",
    "x/TOKEN",
    "a.b/token",
    "app/token/",
    "deletionPolicy",
    "metadataPolicy",
    "secret/foo",
    "secretRef",
    "token.b/a",
    "toConnectionSecretKey",
    "userName",
    "username",
    "version",
];
const TEXTS: [&str; 51] = [
    "",
    "kind: Secret\u{2028}data:\u{2028}  a: b",
    "kind: \"Sec\\\u{85}ret\"\u{85}data:\u{85}  a: b",
    "apiVersion: v1\u{2029}kind: X\u{2029}pin: b",
    "the Secret\u{2028}has no token",
    "a\u{85}b",
    "**REDACTED**",
    "2026-11-16T04:36:46Z",
    "ClusterSecret",
    "ConfigMap",
    "DB_PASSWORD",
    "InjectedIdentity",
    "KipSRURBQ1RFRCoq",
    "List",
    "Opaque",
    "Secret",
    "SecretList",
    "a b",
    "a/b:c[0]",
    "a=b+c",
    "apiVersion: v1\nkind: Secret\ndata:\n  a: b",
    "kubernetes.io/tls",
    "plain",
    "secretName",
    "the Secret \"x\" has no token",
    "true",
    "v1",
    "{\"password\":\"x",
    "-----BEGIN PRIVATE KEY-----",
    "[{\"password\":\"x\"},{",
    "[{\"pin\":\"x\"},{",
    "\"{\\\"password\\\":\\\"x",
    "\u{feff}{\"password\":\"x\",\"a\":1}",
    "---\n{\"kind\":\"Login\",\"spec\":{\"password\":\"x\"}}",
    "config={\"password\":\"x\"}",
    "config={\"pin\":\"x\"}",
    "x={\"credentials\":{}}",
    "x={\"data\":{\"a\":\"b\"},\"type\":\"Opaque\"}",
    "apiVersion: v1\nkind: X\na: {token: x, b: [{name: TOKEN, value: y}]}\ncredentials:\n  inline: x",
    "apiVersion: v1\nkind: X\npassword: &a x\ntoken:\n  y\nenv:\n- name: TOKEN\n  value: z\npin: 1",
    "apiVersion: v1\nkind: X\nvalues: \"{\\\"password\\\":\\\"x\\\"}\"",
    "j: [a,\nstringData:\nb]\n",
    "type: kubernetes.io/tls\ndata:\n  a: b",
    "a: b\npin: c",
    "kind: \"\\x53ecret\"\ndata:\n  a: b",
    "kind: \"Sec\\\n  ret\"\ndata:\n  a: b",
    "kind: X\napiVersion: v1\n\"p\\U00000069n\": b",
    "curl \\\n  -H x\\\ny {",
    "pkg.crossplane.io/v1beta1",
    "v1x",
    " ",
];

fn any_key() -> impl Strategy<Value = String> {
    prop_oneof![
        12 => prop::sample::select(&KEYS[..]).prop_map(str::to_owned),
        1 => "[a-z\"\\\\é\n/]{0,4}",
    ]
}

fn any_leaf() -> impl Strategy<Value = Node> {
    prop_oneof![
        1 => Just(Node::Null),
        1 => any::<bool>().prop_map(Node::Bool),
        1 => any::<i32>().prop_map(|number| Node::Number(number.to_string())),
        12 => prop::sample::select(&TEXTS[..]).prop_map(|text| Node::Text(text.to_owned())),
        2 => "[ -~é\n\t]{0,12}".prop_map(Node::Text),
        1 => "[A-Za-z]{250,260}".prop_map(Node::Text),
    ]
}

fn any_node() -> impl Strategy<Value = Node> {
    any_leaf().prop_recursive(8, 80, 6, |inner| {
        prop_oneof![
            2 => vec(inner.clone(), 0..4).prop_map(Node::List),
            8 => vec((any_key(), inner.clone()), 0..7).prop_map(Node::Object),
            1 => (inner, any::<bool>()).prop_map(|(node, pretty)| Node::Text(written(&node, pretty))),
        ]
    })
}

/// A request or a response, more or less.
fn any_payload() -> impl Strategy<Value = Node> {
    let member = |key: &'static str| any_node().prop_map(move |node| (key.to_owned(), node));
    let resources = |key: &'static str, wrapper: &'static str| {
        vec((any_key(), any_node()), 0..4).prop_map(move |members| {
            let members = Node::Object(members);
            (
                key.to_owned(),
                Node::Object(vec![(wrapper.to_owned(), members)]),
            )
        })
    };
    prop_oneof![
        any_node(),
        (
            resources("observed", "resources"),
            resources("desired", "composite"),
            resources("requirements", "resources"),
            member("requiredResources"),
            member("credentials"),
            member("input"),
        )
            .prop_map(|(a, b, c, d, e, f)| Node::Object(vec![a, b, c, d, e, f])),
    ]
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn fast_and_slow_agree(
        payload in any_payload(),
        pretty: bool,
        rules in 0..RULES.len(),
    ) {
        compare(&payload, pretty, rules).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn any_bytes_are_taken(bytes: Vec<u8>) {
        let redacted = REDACTORS[0].redact(&Bytes::from(bytes));
        let is_withheld = redacted.payload.as_bytes() == REDACTED.as_bytes();
        prop_assert!(redacted.values == 0 || is_withheld || matches!(redacted.payload, CleanPayload::Json(_)));
    }
}
