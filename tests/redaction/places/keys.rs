//! Keys such as `password`, and keys that only look like that.

use std::sync::LazyLock;

use serde_json::{Value, json};
use spanplane::redact::PROPERTIES;

use super::{
    DEFAULTS, Flags, Place, covered, covered_text, desired, kept, not_covered, observed,
    with_input, with_spec,
};

/// What is not a secret since it only describes one.
static PROPERTIES_IN_WORDS: LazyLock<String> = LazyLock::new(|| {
    let words = PROPERTIES.map(|word| format!("`{word}`"));
    let words = words.join(", ");
    format!(
        "what only describes a secret, such as `tokenUrl`, by the last word of its key: {words}"
    )
});

/// A spec with the canary under all of these keys.
fn under(keys: &[&str], value: &str) -> Value {
    with_spec(
        &keys
            .iter()
            .map(|key| ((*key).to_owned(), Value::from(value)))
            .collect::<Value>(),
    )
}

pub(super) fn places() -> Vec<Place> {
    let mut places = secrets();
    places.extend(pairs());
    places.extend(references());
    places.extend(values());
    places
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn secrets() -> Vec<Place> {
    vec![
        covered("`password`, `passwd`, `passphrase`", |canary| {
            under(&["password", "passwd", "passphrase"], canary)
        }),
        covered("`token`, `secret`", |canary| {
            under(&["token", "secret"], canary)
        }),
        covered("`apiKey`, `api_key`, `api-key`, `api.key`", |canary| {
            under(
                &["apiKey", "api_key", "api-key", "api.key", "apikey"],
                canary,
            )
        }),
        covered("`privateKey`, `private_key`, `private-key`", |canary| {
            under(
                &[
                    "privateKey",
                    "private_key",
                    "private-key",
                    "tls.private.key",
                ],
                canary,
            )
        }),
        covered("`connectionString`, `kubeconfig`", |canary| {
            under(
                &["connectionString", "connection_string", "kubeconfig"],
                canary,
            )
        }),
        covered(
            "the same in any case: `PASSWORD`, `Token`, `aPiKeY`",
            |canary| {
                under(
                    &["PASSWORD", "Token", "aPiKeY", "API_KEY", "pAsSwD"],
                    canary,
                )
            },
        ),
        covered(
            "the only such key of a payload, with both cases inside of a word: `coNNectionString`",
            |canary| under(&["coNNectionString"], canary),
        ),
        covered(
            "the same in any position: `masterPassword`, `tokenValue`, `AWS_SECRET_ACCESS_KEY`",
            |canary| {
                under(
                    &[
                        "masterPassword",
                        "adminPassword",
                        "tokenValue",
                        "clientSecret",
                        "AWS_SECRET_ACCESS_KEY",
                        "passwordHash",
                    ],
                    canary,
                )
            },
        ),
        covered("`secretKey`", |canary| under(&["secretKey"], canary)),
        covered(
            "such a word behind the name of a Secret: `existingSecretToken`, `imagePullSecretPassword`",
            |canary| {
                under(
                    &[
                        "existingSecretToken",
                        "existing-secret-password",
                        "imagePullSecretPassword",
                        "connectionSecretKeyPassword",
                    ],
                    canary,
                )
            },
        ),
        covered("such a key in the XR's spec or status", |canary| {
            json!({"observed": {"composite": {"resource": {"kind": "Login",
                "spec": {"adminPassword": canary}, "status": {"adminPassword": canary}}}}})
        }),
        covered("such a key in a function's `input`", |canary| {
            with_input(&json!({"apiKey": canary}))
        }),
        covered(
            "such a key in the `context`",
            |canary| json!({"context": {"example.org/token": canary}}),
        ),
        covered(
            "such a key in an Operation's `output`",
            |canary| json!({"output": {"newPassword": canary}}),
        ),
        covered("such a key in a `ConfigMap`", |canary| {
            desired(
                &json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"db.password": canary}}),
            )
        }),
        covered("such a key among annotations", |canary| {
            observed(
                &json!({"kind": "Login", "metadata": {"annotations": {"example.org/api-token": canary}}}),
            )
        }),
        covered(
            "such a word anywhere in a path: `secret/foo`, `password/prod`, `app/token/`",
            |canary| {
                under(
                    &["secret/foo", "password/prod", "app/token/", "/token/x"],
                    canary,
                )
            },
        ),
        covered(
            "such a key whose last word only ends like one that describes a secret: `tokencurl`",
            |canary| under(&["tokencurl", "passwordbackpath"], canary),
        ),
        covered_text("such a key, written with escapes", |canary| {
            format!(r#"{{"spec":{{"p\u0061ssword":"{canary}"}}}}"#)
        }),
    ]
}

fn pairs() -> Vec<Place> {
    vec![
        covered(
            "the `value` beside such a `name`, as in a container's `env`",
            |canary| {
                with_spec(
                    &json!({"containers": [{"env": [{"name": "DB_PASSWORD", "value": canary}]}]}),
                )
            },
        ),
        covered(
            "the `value` beside such a `name`, as in a Helm release's `set`",
            |canary| with_spec(&json!({"set": [{"name": "auth.adminPassword", "value": canary}]})),
        ),
        covered(
            "the `value` beside such a `key`, as in a Terraform workspace's `vars`",
            |canary| with_spec(&json!({"vars": [{"key": "api_token", "value": canary}]})),
        ),
        covered_text("the same, `value` first", |canary| {
            format!(r#"{{"env":[{{"value":"{canary}","name":"TOKEN"}}]}}"#)
        }),
        kept("the `value` beside any other `name`", |text| {
            with_spec(
                &json!({"env": [{"name": "PATH", "value": text}, {"name": "SECRET_NAME", "value": text}]}),
            )
        }),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn references() -> Vec<Place> {
    vec![
        kept(
            "keys that end in `Name`, `Namespace`, `Ref`, `Reference` or `Selector`, or the plural: `secretName`, `tokenSecretRef`",
            |name| {
                under(
                    &[
                        "secretName",
                        "secretNames",
                        "secretname",
                        "secretNamespace",
                        "secretNamespaces",
                        "tokenSecretRef",
                        "secretRefs",
                        "secretReference",
                        "token_references",
                        "secretSelector",
                        "tokenSelectors",
                    ],
                    name,
                )
            },
        ),
        kept(
            "everything in a `…Ref`: `passwordSecretRef`, `secretKeyRef`, `writeConnectionSecretToRef`",
            |name| {
                with_spec(&json!({
                "passwordSecretRef": {"key": name, "name": name, "namespace": name},
                "env": [{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"key": name, "name": name}}}],
                "writeConnectionSecretToRef": {"name": name, "namespace": name}}))
            },
        ),
        kept(
            "everything in a `…Selector`, `labels` and `matchLabels`",
            |name| {
                json!({"requirements": {"resources": {"boot-secret": {"apiVersion": "v1", "kind": "Secret",
                "matchLabels": {"labels": {"token": name}}}}},
                "desired": {"resources": {"one": {"resource": {"metadata": {"labels": {"secret": name}},
                    "spec": {"secretSelector": {"token": name}}}}}}})
            },
        ),
        kept(
            "names of composed and required resources: `boot-secret`",
            |name| {
                json!({"desired": {"resources": {"db-password": {"resource": {"kind": name}}}},
                "requiredResources": {"boot-secret": {"items": [{"resource": {"kind": name}}]}}})
            },
        ),
        kept(
            "what says whose key it is: `secrets.example.org/owner`",
            |name| {
                under(
                    &["secrets.example.org/owner", "token.example.org/a/b"],
                    name,
                )
            },
        ),
        kept("lists: `imagePullSecrets`, `secrets`", |name| {
            with_spec(&json!({"imagePullSecrets": [{"name": name}], "secrets": [name]}))
        }),
        kept(
            "names of Secrets, and of keys in them, by convention: `existingSecret`, `existingSecretPasswordKey`, `imagePullSecret`, `fromConnectionSecretKey`",
            |name| {
                under(
                    &[
                        "existingSecret",
                        "existingSecrets",
                        "existingSecretPasswordKey",
                        "existingSecretKeys",
                        "imagePullSecret",
                        "imagePullSecrets",
                        "connectionSecretKey",
                        "fromConnectionSecretKey",
                        "toConnectionSecretKey",
                    ],
                    name,
                )
            },
        ),
        kept(&PROPERTIES_IN_WORDS, |text| {
            let keys = PROPERTIES.map(|word| {
                let (first, rest) = word.split_at(1);
                [
                    format!("token{}{rest}", first.to_uppercase()),
                    format!("token_{word}"),
                    format!("TOKEN-{}", word.to_uppercase()),
                ]
            });
            let keys: Vec<_> = keys.iter().flatten().map(String::as_str).collect();
            under(&keys, text)
        }),
        kept("`managedFields`", |name| {
            observed(
                &json!({"metadata": {"managedFields": [{"fieldsV1": {"f:spec": {"f:password": {}}}, "manager": name}]}}),
            )
        }),
        kept(
            "empty strings, `\"true\"`, `\"false\"`, numbers and booleans: `tokenExpirationSeconds`",
            |name| {
                with_spec(
                    &json!({"password": "", "token": "true", "automountServiceAccountToken": false,
                "maxTokens": 3, "name": name}),
                )
            },
        ),
    ]
}

fn values() -> Vec<Place> {
    const OFF: Flags = Flags {
        secret_keys: false,
        ..DEFAULTS
    };
    vec![
        not_covered("such a key with `--redact-secret-keys=false`", |canary| {
            under(&["password", "apiKey"], canary)
        })
        .with(OFF),
        not_covered(
            "a number under such a key",
            |canary| json!({"canary": canary, "spec": {"password": 20_261_118}}),
        ),
        not_covered("a list under such a key", |canary| {
            with_spec(&json!({"tokens": [canary]}))
        }),
        not_covered("an object under such a key", |canary| {
            with_spec(&json!({"password": {"plain": canary}}))
        }),
        not_covered(
            "such a key in a `…Ref`, `…Selector`, `labels` or `managedFields`",
            |canary| {
                with_spec(
                    &json!({"someRef": {"password": canary}, "someSelector": {"password": canary},
                "labels": {"password": canary}, "managedFields": {"password": canary}}),
                )
            },
        ),
        not_covered(
            "a key that doesn't say so: `pin`, `auth`, `dsn`",
            |canary| under(&["pin", "auth", "dsn"], canary),
        ),
        not_covered("a password in a URL", |canary| {
            with_spec(&json!({"url": format!("postgres://admin:{canary}@db:5432/app")}))
        }),
    ]
}
