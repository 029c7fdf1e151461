//! Manifests in YAML, against a real YAML library: what it reads as the data of a Secret goes, and
//! what it writes stays readable.

use std::sync::LazyLock;

use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use serde_norway::{Deserializer, Value as Yaml};
use spanplane::redact::{REDACTED, Redactor};

use crate::cases;

static REDACTOR: LazyLock<Redactor> = LazyLock::new(|| Redactor::new::<&str>(&[], &[]).unwrap());

/// A text as the redactor leaves it, in a string of a payload.
fn redact(text: &str) -> String {
    let payload = json!({"input": {"template": text}}).to_string();
    let redacted = REDACTOR.redact(&Bytes::from(payload));
    let clean: Value = serde_json::from_slice(redacted.payload.as_bytes()).unwrap();
    let text = clean["input"]["template"].as_str().unwrap();
    text.to_owned()
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof!["[ -~]{0,12}", "[a-z\n'\":#{}\\-]{0,16}", "[a-zé\n ]{0,40}"]
}

/// A map of values of a Secret, each with a canary.
fn any_data() -> impl Strategy<Value = Value> {
    let value = (any_text(), any_text()).prop_map(|(one, other)| format!("{one}canary{other}"));
    prop::collection::btree_map("[a-zA-Z._-]{1,8}", value, 1..4).prop_map(|data| json!(data))
}

fn any_secret() -> impl Strategy<Value = Value> {
    // A template's action stays in an annotation: it is no copy of anything.
    let note = any_text().prop_filter("an action", |text| {
        !text.contains("{{") && !text.contains("{%")
    });
    (any_data(), prop::option::of(any_data()), note).prop_map(|(data, string_data, note)| {
        let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "data": data,
            "metadata": {"annotations": {"note": note}, "name": "x"}});
        if let Some(string_data) = string_data {
            secret["stringData"] = string_data;
        }
        secret
    })
}

fn any_other() -> impl Strategy<Value = Value> {
    (any_text(), any_text()).prop_map(|(one, other)| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": one, "b": [other]},
            "spec": {"secretRef": {"name": "x"}}})
    })
}

/// Documents as people write them.
fn any_document() -> impl Strategy<Value = Value> {
    prop_oneof![
        any_secret(),
        any_other(),
        any_secret().prop_map(|secret| json!({"kind": "Object", "spec": {"manifest": secret}})),
        (vec(any_secret(), 1..3), any_other()).prop_map(|(mut items, other)| {
            items.push(other);
            json!({"kind": "List", "items": items})
        }),
    ]
}

/// What has to be left of a document.
fn expected(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let is_secret = members.get("kind").is_some_and(|kind| kind == "Secret");
            let is_copy = |note: &Value| {
                let note = note.as_str().unwrap_or_default();
                note.contains(['{', '\\', '\n'])
            };
            let members = members.iter().map(|(key, value)| {
                let is_data = is_secret && (key == "data" || key == "stringData");
                let left = match value {
                    Value::Object(data) if is_data => data
                        .keys()
                        .map(|key| (key.clone(), json!(REDACTED)))
                        .collect(),
                    value if is_secret && key == "metadata" => {
                        let mut metadata = value.clone();
                        if is_copy(&metadata["annotations"]["note"]) {
                            metadata["annotations"]["note"] = json!(REDACTED);
                        }
                        metadata
                    }
                    value => expected(value),
                };
                (key.clone(), left)
            });
            Value::Object(members.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(expected).collect(),
        value => value.clone(),
    }
}

/// All documents of a text, unless one of them isn't YAML.
fn read(text: &str) -> Option<Vec<Yaml>> {
    let documents = Deserializer::from_str(text).map(Yaml::deserialize);
    documents.collect::<Result<_, _>>().ok()
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn only_the_data_of_secrets_goes(documents in vec(any_document(), 1..4), crlf: bool) {
        let texts = documents.iter().map(|document| serde_norway::to_string(document).unwrap());
        let mut text = texts.collect::<Vec<_>>().join("---\n");
        if crlf {
            text = text.replace('\n', "\r\n");
        }
        let clean = redact(&text);
        let holds_secret = documents.iter().any(|document| expected(document) != *document);
        if !holds_secret {
            prop_assert_eq!(clean, text);
        } else if clean != REDACTED {
            prop_assert!(!clean.contains("canary"), "{text}\nwas left as\n{clean}");
            let left: Vec<Value> = Deserializer::from_str(&clean)
                .map(|document| Value::deserialize(document).unwrap())
                .collect();
            let whole: Vec<_> = documents.iter().map(expected).collect();
            prop_assert_eq!(left, whole, "{}\nwas left as\n{}", text, clean);
        }
    }
}

/// What a Secret may be written with, or something that looks like one.
const FRAGMENTS: [&str; 107] = [
    "kind: Secret",
    "kind: Secret",
    "kind: Secret",
    "kind: ConfigMap",
    "'kind': \"Secret\"",
    "\"kind\" : Secret # c",
    "kind:",
    "Secret",
    "kind: !!str Secret",
    "kind: &k Secret",
    "kind: *k",
    "? kind",
    ": Secret",
    "data:",
    "data:",
    "data:",
    "stringData:",
    "\"data\":",
    "data: {a: @}",
    "data: {a: @,",
    "data: |",
    "data: &d",
    "data: *d",
    "data: [@]",
    "data: \"@",
    "a: @",
    "b: @",
    "c: '@'",
    "d: \"@\" # c",
    "e: |",
    "f: >-",
    "g: \"@",
    "@\"",
    "h: {i: @}",
    "j: [@,",
    "@]",
    "@",
    "@}",
    "- kind: Secret",
    "- data:",
    "- a: @",
    "- @",
    "items:",
    "spec:",
    "# @",
    "<<: *d",
    "kind: \"\\x53ecret\"",
    "kind: &k \"\\u0053ecret\"",
    "\"\\U00000053ecret\"",
    "kind: \"Sec\\",
    "kind: \"a",
    "ret\"",
    "Secret\"",
    "\"k\\x69nd\": Secret",
    "\"d\\x61ta\":",
    "\"string\\x44ata\":",
    // Blocks of text with indentation indicators, and what stands in them.
    "e: |2",
    "e: |-1",
    "e: >2+ # c",
    "data: |2",
    "- |",
    "- >-",
    "--- |",
    "--- # c",
    "---",
    "...",
    "%YAML 1.1",
    "kind: |-",
    "kind: >-",
    "kind: \"Sec\\",
    // Comments and tabs.
    "a: @ # c",
    "a: # c",
    "data: # c",
    "kind: Secret\t# c",
    "#",
    "a:\t@",
    "\ta: @",
    "data:\t",
    "\t@",
    "\t",
    "",
    // Keys with properties, or behind a question mark.
    "!!str data:",
    "&e data:",
    "&e kind: Secret",
    "? data",
    "?",
    "?\tdata",
    "? \"data\"",
    "- ? data",
    ":",
    ": {a: @}",
    ":   a: @",
    "data",
    "spec: {? data : {a: @}}",
    "spec: {data: {a: @}}",
    "{kind: Secret, data: {a: @}}",
    "--- {kind: Secret, data: {a: @}}",
    "--- {kind: Secret,",
    "--- &k",
    "--- !!map",
    "x: &d data",
    "*d :",
    "spec: {*d : {a: @}}",
    // Actions of a template.
    "{{- if .x }}",
    "{{ end }}",
    "{% if x %}",
    "a: '{{ @ }}'",
];

/// What ends lines; the last ones only do so in YAML 1.1, and are no escapes in JSON.
const BREAKS: [&str; 6] = ["\n", "\r\n", "\r", "\u{85}", "\u{2028}", "\u{2029}"];

/// Lines at random, each with a canary of its own where there is an `@`; and the same without the
/// lines that are actions of a template.
fn any_lines() -> impl Strategy<Value = (String, String)> {
    let fragment = prop::sample::select(&FRAGMENTS[..]);
    let line = (
        prop::sample::select(&[0_usize, 0, 0, 0, 1, 2, 2, 2, 3, 4][..]),
        fragment,
        prop::sample::select(&BREAKS[..]),
    );
    let breaks = prop_oneof![
        4 => Just(Some("\n")),
        2 => prop::sample::select(&BREAKS[..]).prop_map(Some),
        1 => Just(None),
    ];
    (vec(line, 2..9), any::<bool>(), breaks).prop_map(|(lines, separated, breaks)| {
        let (mut text, mut rendered) = (String::new(), String::new());
        for (number, (indent, fragment, own_break)) in lines.into_iter().enumerate() {
            let end = breaks.unwrap_or(own_break);
            let fragment = fragment.replace('@', &format!("canary{number}"));
            let line = format!("{}{fragment}{end}", " ".repeat(indent));
            let is_action = fragment.starts_with("{{") || fragment.starts_with("{%");
            let marker = format!("---{end}");
            let marker = (separated && number == 3).then_some(marker.as_str());
            rendered.extend(
                (!is_action)
                    .then_some(line.as_str())
                    .into_iter()
                    .chain(marker),
            );
            text.extend([line.as_str()].into_iter().chain(marker));
        }
        (text, rendered)
    })
}

/// The strings in the data of Secrets, as the library reads it.
fn secrets_in(value: &Yaml, in_secret: bool, in_data: bool, found: &mut Vec<String>) {
    match value {
        Yaml::String(text) if in_data => found.push(text.clone()),
        Yaml::Sequence(items) => {
            for item in items {
                secrets_in(item, in_secret, in_data, found);
            }
        }
        Yaml::Mapping(members) => {
            let kind = members.get("kind").and_then(Yaml::as_str);
            let in_secret = in_secret || kind.is_some_and(|kind| kind.contains("Secret"));
            for (key, value) in members {
                let key = key.as_str().unwrap_or_default();
                let begins_data = (key == "data" && in_secret) || key == "stringData";
                secrets_in(value, in_secret, in_data || begins_data, found);
            }
        }
        Yaml::Tagged(tagged) => secrets_in(&tagged.value, in_secret, in_data, found),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: u32::MAX, ..cases(3_000) })]

    #[test]
    fn what_yaml_reads_as_data_of_a_secret_goes((text, rendered) in any_lines()) {
        let documents = read(&rendered);
        prop_assume!(documents.is_some());
        let mut secrets = Vec::new();
        for mut document in documents.unwrap() {
            // A merge that can't be done leaves the rest to look at.
            let merged = document.apply_merge();
            prop_assume!(merged.is_ok());
            secrets_in(&document, false, false, &mut secrets);
        }
        let clean = redact(&text);
        for secret in secrets {
            for canary in secret.split(|other: char| !other.is_ascii_alphanumeric()) {
                let stays = canary.starts_with("canary") && clean.contains(canary);
                prop_assert!(!stays, "{canary} stays in\n{text}\nwas left as\n{clean}");
            }
        }
    }
}

/// What [`only_the_data_of_secrets_goes`] has found.
#[test]
fn what_once_went_stays() {
    let text = "a: \" \\n\"\nb:\n- ''\nspec:\n  secretRef:\n    name: x\nc:\n- |2-\n\n    \":'\n";
    assert_eq!(redact(text), text);
}

/// What the property above has found.
#[test]
fn what_once_stayed_goes() {
    for text in [
        "j: [canary0,\nstringData:\ncanary2]\n",
        "data:\n  data: {a: canary1}\nkind: ConfigMap\n  Secret\n",
        "data:\n  a: canary1\nkind: a\n  b\n  Secret\n",
        "kind: \"\\x53ecret\"\ndata:\n  a: canary1\n",
        "kind: Secret\n\"d\\x61ta\":\n  a: canary1\n",
        "kind: \"a\n  Secret\"\ndata:\n  a: canary1\n",
        "kind: Secret\nstringData:\n  a: |2-\n\n    {{canary}}\n",
        "spec: {? data : {a: canary0}}\nkind: Secret\n",
        "spec: {data: {a: canary0}}\nkind: |-\n --- {kind: Secret, data: {a: canary2}}\n",
    ] {
        let clean = redact(text);
        assert!(!clean.contains("canary"), "{text}\nwas left as\n{clean}");
    }
}
