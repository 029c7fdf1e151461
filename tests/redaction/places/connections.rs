//! `connectionDetails` and `credentials`.

use serde_json::json;

use super::{Place, base64, covered, kept, not_covered, observed, with_input, with_spec};

pub(super) fn places() -> Vec<Place> {
    let mut places = details();
    places.extend(credentials());
    places
}

fn details() -> Vec<Place> {
    vec![
        covered(
            "connection details of the XR, observed",
            |canary| json!({"observed": {"composite": {"connectionDetails": {"a": base64(canary)}}}}),
        ),
        covered(
            "connection details of the XR, desired",
            |canary| json!({"desired": {"composite": {"connectionDetails": {"a": base64(canary)}}}}),
        ),
        covered(
            "connection details of a composed resource",
            |canary| json!({"observed": {"resources": {"one": {"connectionDetails": {"name": base64(canary)}}}}}),
        ),
        covered(
            "connection details whose key is `lastPublishedTime`",
            |canary| json!({"observed": {"resources": {"one": {"connectionDetails": {"lastPublishedTime": base64(canary)}}}}}),
        ),
        covered(
            "connection details that are a list, where the protocol has a map",
            |canary| json!({"observed": {"resources": {"one": {"connectionDetails": [{"name": canary, "type": "Value"}]}}}}),
        ),
        covered(
            "connection details that are a string",
            |canary| json!({"observed": {"composite": {"connectionDetails": canary}}}),
        ),
        covered("`connectionDetails` in a spec or status: a map", |canary| {
            with_spec(&json!({"connectionDetails": {"name": canary}}))
        }),
        covered(
            "`connectionDetails` in a spec: the `value` of an entry",
            |canary| {
                with_spec(
                    &json!({"connectionDetails": [{"name": "a", "type": "FromValue", "value": canary}]}),
                )
            },
        ),
        covered(
            "`connectionDetails` in a spec: the `name` of something that isn't an entry",
            |canary| with_spec(&json!({"connectionDetails": [{"name": canary}]})),
        ),
        covered(
            "`connectionDetails` in a spec: a `name` that no key of a Secret can have",
            |canary| {
                with_spec(
                    &json!({"connectionDetails": [{"name": format!("{canary}+/="), "type": "FromValue"}]}),
                )
            },
        ),
        covered(
            "`connectionDetails` in a spec: strings in a list",
            |canary| with_spec(&json!({"connectionDetails": [canary]})),
        ),
        kept(
            "where connection details come from, in function-patch-and-transform's input",
            |name| {
                with_input(&json!({"resources": [{"connectionDetails": [
                {"fromConnectionSecretKey": name, "name": name, "type": "FromConnectionSecretKey"},
                {"fromFieldPath": format!("status.{name}"), "name": name, "type": "FromFieldPath"}]}]}))
            },
        ),
        kept(
            "where connection details come from, in an `Object` of provider-kubernetes",
            |name| {
                with_spec(
                    &json!({"connectionDetails": [{"apiVersion": "v1", "fieldPath": format!("data.{name}"),
                "kind": "Secret", "name": name, "namespace": name, "toConnectionSecretKey": name}]}),
                )
            },
        ),
        kept("when connection details were published", |name| {
            observed(&json!({"metadata": {"name": name},
                "status": {"connectionDetails": {"lastPublishedTime": "2026-11-16T04:36:46Z"}}}))
        }),
        kept(
            "a composed resource that is called `connectionDetails` or `credentials`",
            |name| {
                json!({"desired": {"resources": {
                "connectionDetails": {"resource": {"kind": "Bucket", "spec": {"region": name}}},
                "credentials": {"resource": {"kind": "Bucket", "spec": {"region": name}}}}}})
            },
        ),
        not_covered(
            "`connectionDetails` in a spec: the `name` of an entry, if a key can be called that",
            |canary| with_spec(&json!({"connectionDetails": [{"name": canary, "value": "x"}]})),
        ),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn credentials() -> Vec<Place> {
    vec![
        covered(
            "credentials of a function",
            |canary| json!({"credentials": {"db": {"credentialData": {"data": {"name": base64(canary)}}}}}),
        ),
        covered("`credentials` in a spec: a string", |canary| {
            with_spec(&json!({"credentials": canary}))
        }),
        covered("`credentials` in a spec: a value", |canary| {
            with_spec(&json!({"credentials": {"inline": canary}}))
        }),
        covered(
            "`credentials` in a spec: a value in a reference",
            |canary| {
                with_spec(&json!({"credentials": {"secretRef": {"name": "n", "inline": canary}}}))
            },
        ),
        covered(
            "`credentials` in a spec: a `key` that isn't in a reference",
            |canary| with_spec(&json!({"credentials": {"key": canary}})),
        ),
        covered(
            "`credentials` in a spec: a `type`, `source` or `kind` that isn't one capitalised word",
            |canary| {
                with_spec(
                    &json!({"credentials": {"kind": canary, "source": canary, "type": canary}}),
                )
            },
        ),
        covered(
            "`credentials` in a spec: a `name` or `namespace` that nothing in Kubernetes can have",
            |canary| {
                let canary = format!("{canary}+/=");
                with_spec(&json!({"credentials": {"name": canary, "namespace": canary}}))
            },
        ),
        covered("`credentials` in a spec: a user name", |canary| {
            with_spec(
                &json!({"credentials": {"username": canary, "userName": canary, "user_name": canary}}),
            )
        }),
        covered(
            "`credentials` in a spec: an `apiVersion` that isn't one, and the path of a field",
            |canary| {
                with_spec(
                    &json!({"credentials": {"apiVersion": canary, "fieldPath": canary,
                    "fromFieldPath": canary, "toConnectionSecretKey": canary}}),
                )
            },
        ),
        covered(
            "`credentials` in a spec: a `…Policy` or `…Strategy`, but for those of an `ExternalSecret`",
            |canary| {
                let word: String = canary.chars().filter(char::is_ascii_alphabetic).collect();
                let word = format!("C{word}");
                with_spec(
                    &json!({"credentials": {"tokenStrategy": canary, "policy": canary, "deletionPolicy": word}}),
                )
            },
        ),
        kept(
            "where credentials come from, in a `ProviderConfig`",
            |name| {
                with_spec(&json!({"credentials": {"source": "Secret",
                "secretRef": {"key": name, "name": name, "namespace": name}}}))
            },
        ),
        kept("where credentials come from, in a `Composition`", |name| {
            with_spec(&json!({"pipeline": [{"credentials":
                [{"name": name, "secretRef": {"name": name, "namespace": name}, "source": "Secret"}]}]}))
        }),
        kept("where credentials come from: a file", |name| {
            with_spec(
                &json!({"credentials": {"fs": {"path": format!("/var/run/{name}")}, "source": "Filesystem"}}),
            )
        }),
        not_covered(
            "`credentials` in a spec: a key that ends in `Name`, `Namespace` or `Ref`, with what something can be called",
            |canary| {
                with_spec(
                    &json!({"credentials": {"loginName": canary, "secretNamespace": canary, "someRef": canary}}),
                )
            },
        ),
        not_covered(
            "`credentials` in a spec, in a `…Ref`: `key`, `property`, `remoteKey`, `version`, `fieldPath`, with what a path may have",
            |canary| {
                with_spec(
                    &json!({"credentials": {"secretRef": {"fieldPath": canary, "key": canary,
                    "property": canary, "remoteKey": canary, "version": canary}}}),
                )
            },
        ),
        not_covered(
            "`credentials` in a spec: the `path` in `fs`, and `secretKey` beside a `remoteRef`",
            |canary| {
                with_spec(
                    &json!({"credentials": {"fs": {"path": canary}, "remoteRef": {}, "secretKey": canary}}),
                )
            },
        ),
        not_covered(
            "`connectionDetails` in a spec: the paths and keys that an entry's value comes from, if they look like that",
            |canary| {
                with_spec(
                    &json!({"connectionDetails": [{"name": "a", "connectionSecretKey": canary, "fieldPath": canary,
                    "fromConnectionSecretKey": canary, "fromFieldPath": canary, "toConnectionSecretKey": canary}]}),
                )
            },
        ),
        not_covered(
            "`credentials` in a spec: a `name` or `namespace` that something can be called",
            |canary| with_spec(&json!({"credentials": {"name": canary, "namespace": canary}})),
        ),
        not_covered(
            "`credentials` in a spec: a `type` that is one capitalised word",
            |canary| {
                let word: String = canary.chars().filter(char::is_ascii_alphabetic).collect();
                let word = format!("C{word}");
                json!({"canary": canary, "spec": {"credentials": {"type": word}}})
            },
        ),
    ]
}
