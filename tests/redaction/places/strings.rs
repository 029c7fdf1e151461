//! JSON inside strings, and JSON inside the strings of that.

use serde_json::{Value, json};

use super::{
    DEFAULTS, Flags, Place, base64, covered, covered_text, kept, not_covered, secret, with_input,
    with_spec,
};

const PIN: Flags = Flags {
    keys: &["^pin$"],
    ..DEFAULTS
};

/// A value inside of so many strings.
fn wrapped(value: &Value, strings: usize) -> Value {
    (0..strings).fold(value.clone(), |value, _| value.to_string().into())
}

/// A spec with a string.
fn string(text: &str) -> Value {
    with_spec(&json!({ "values": text }))
}

pub(super) fn places() -> Vec<Place> {
    let mut places = json();
    places.extend(nearly_json());
    places.extend(named());
    places.extend(others());
    places
}

fn json() -> Vec<Place> {
    vec![
        covered("a Secret as JSON, in any string", |canary| {
            with_input(&json!({"manifest": secret(canary).to_string()}))
        }),
        covered(
            "a key that names a secret, in JSON in any string",
            |canary| {
                with_spec(&json!({"values": json!({"auth": {"password": canary}}).to_string()}))
            },
        ),
        covered(
            "connection details and credentials, in JSON in any string",
            |canary| {
                with_spec(
                    &json!({"values": json!({"credentials": {"inline": canary}}).to_string()}),
                )
            },
        ),
        covered("JSON in a string of JSON in a string", |canary| {
            with_spec(
                &json!({"values": wrapped(&json!({"manifest": wrapped(&secret(canary), 1)}), 1)}),
            )
        }),
        covered("JSON in up to four strings", |canary| {
            with_spec(&json!({"values": wrapped(&secret(canary), 4)}))
        }),
        covered(
            "JSON in more than four strings: the fifth is withheld",
            |canary| with_spec(&json!({"values": wrapped(&secret(canary), 6)})),
        ),
        covered(
            "a Secret as JSON, in a result's message",
            |canary| json!({"results": [{"message": secret(canary).to_string(), "severity": "SEVERITY_WARNING"}]}),
        ),
        covered_text("JSON in a string, written with escapes", |canary| {
            format!(r#"{{"values":"\u007b\u0022password\u0022:\u0022{canary}\u0022}}"}}"#)
        }),
        covered(
            "a string of more than 2 MiB that mentions a secret and may be a manifest",
            |canary| {
                let long = json!({"a": "x".repeat(2 * 1024 * 1024), "password": canary});
                with_spec(&json!({"values": long.to_string()}))
            },
        ),
        covered("JSON behind a byte order mark", |canary| {
            string(&format!("\u{feff}{}", json!({"password": canary})))
        }),
        kept("everything else in a string with JSON", |text| {
            with_spec(&json!({"values": json!({"a": text, "password": "x"}).to_string()}))
        }),
    ]
}

fn nearly_json() -> Vec<Place> {
    vec![
        covered(
            "a Secret as JSON behind other text: the string is withheld",
            |canary| json!({"results": [{"message": format!("cannot apply {}", json!({"kind": "Secret", "data": {"a": canary}}))}]}),
        ),
        covered(
            "JSON that was cut off and mentions a secret: the string is withheld",
            |canary| with_spec(&json!({"values": format!(r#"{{"spec":{{"password":"{canary}"#)})),
        ),
        covered(
            "several JSON texts in one string, if one mentions a secret: the string is withheld",
            |canary| with_spec(&json!({"values": format!("{{}}\n{}", secret(canary))})),
        ),
        covered(
            "a list of JSON that was cut off and mentions a secret: the string is withheld",
            |canary| string(&format!(r#"[{{"password":"{canary}"}},{{"#)),
        ),
        covered(
            "a list of JSON behind another one: the string is withheld",
            |canary| string(&format!(r#"["a"]["b",{{"password":"{canary}"}}]"#)),
        ),
        covered(
            "a string of JSON that was cut off: the string is withheld",
            |canary| {
                let whole =
                    Value::from(json!({"password": canary, "z": 1}).to_string()).to_string();
                string(whole.get(..whole.len() - 3).unwrap())
            },
        ),
        covered(
            "a key that names a secret, in JSON behind other text: the string is withheld",
            |canary| string(&format!(r#"config={{"password":"{canary}"}}"#)),
        ),
        covered(
            "a key that names a secret, in JSON behind `---` or a comment: the string is withheld",
            |canary| {
                let login = json!({"kind": "Login", "spec": {"password": canary}});
                with_spec(
                    &json!({"a": format!("---\n{login}"), "b": format!("# a comment\n{login}"),
                    "c": format!("cannot apply {}", Value::from(login.to_string()))}),
                )
            },
        ),
        covered(
            "`credentials` or `connectionDetails`, in JSON behind other text: the string is withheld",
            |canary| {
                with_spec(
                    &json!({"a": format!("x={}", json!({"credentials": {"inline": canary}})),
                    "b": format!("x={}", json!({"connectionDetails": {"a": canary}}))}),
                )
            },
        ),
        covered(
            "a Secret without `kind`, as JSON behind other text: the string is withheld",
            |canary| {
                string(&format!(
                    "x={}",
                    json!({"data": {"a": canary}, "type": "Opaque"})
                ))
            },
        ),
        kept("messages that quote the name of such a key", |text| {
            json!({"results": [{"message": format!("cannot get \"password\": no key {text:?} in the Secret")},
                {"message": format!("[INFO] token {text} expired\nnew \"token\": {{none}}")}]})
        }),
        not_covered(
            "a key that names a secret without quotes, in what isn't JSON",
            |canary| string(&format!("config={{password: {canary}}}")),
        ),
    ]
}

fn named() -> Vec<Place> {
    vec![
        covered(
            "a key that `--redact-key` matches, in a string of more than 2 MiB: the string is withheld",
            |canary| {
                string(&json!({"a": "x".repeat(2 * 1024 * 1024), "pin": canary}).to_string())
            },
        )
        .with(PIN),
        covered(
            "a key that `--redact-key` matches, in YAML of more than 2 MiB: the string is withheld",
            |canary| string(&format!("a: {}\npin: {canary}\n", "x".repeat(2 * 1024 * 1024))),
        )
        .with(PIN),
        covered(
            "a key that `--redact-key` matches, in JSON in more than four strings: the fifth is withheld",
            |canary| with_spec(&json!({"values": wrapped(&json!({"pin": canary}), 6)})),
        )
        .with(PIN),
        covered(
            "a key that `--redact-key` matches, in JSON that was cut off or is behind other text: the string is withheld",
            |canary| {
                with_spec(&json!({"a": format!(r#"{{"pin":"{canary}","#), "b": format!(r#"x={{"pin":"{canary}"}}"#),
                    "c": format!(r#"[{{"pin":"{canary}"#)}))
            },
        )
        .with(PIN),
        kept("strings without such a key, whatever `--redact-key` matches", |text| {
            with_spec(&json!({"a": format!("{{\"pinned\": {text:?}"), "b": format!("the pin: {{{text}}}")}))
        })
        .with(PIN),
    ]
}

fn others() -> Vec<Place> {
    vec![
        covered("a private key in PEM, in any string", |canary| {
            with_spec(
                &json!({"file": format!("-----BEGIN RSA PRIVATE KEY-----\n{canary}\n-----END RSA PRIVATE KEY-----\n")}),
            )
        }),
        not_covered("JSON or YAML in base64, or packed", |canary| {
            let packed = base64(&secret(canary).to_string());
            json!({"canary": canary, "spec": {"userData": packed}})
        }),
    ]
}
