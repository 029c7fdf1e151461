//! Secrets, things like Secrets, and lists of Secrets.

use serde_json::json;

use super::{
    Place, base64, covered, covered_text, desired, kept, not_covered, observed, secret, with_input,
};

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn places() -> Vec<Place> {
    vec![
        covered("`data` of a Secret, observed", |canary| {
            observed(&json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": base64(canary)}}))
        }),
        covered("`data` of a Secret, desired", |canary| {
            desired(&json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": base64(canary)}}))
        }),
        covered("`data` of a Secret among `requiredResources`", |canary| {
            let secret =
                json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": base64(canary)}});
            json!({"requiredResources": {"boot": {"items": [{"resource": secret}]}}})
        }),
        covered("`data` of a Secret among `extraResources`", |canary| {
            let secret =
                json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": base64(canary)}});
            json!({"extraResources": {"boot": {"items": [{"resource": secret}]}}})
        }),
        covered("`stringData` of a Secret", |canary| {
            desired(&secret(canary))
        }),
        covered("a Secret in a function's `input`", |canary| {
            with_input(&json!({"resources": [{"base": secret(canary)}]}))
        }),
        covered(
            "a Secret in the `context`",
            |canary| json!({"context": {"example.org/found": [secret(canary)]}}),
        ),
        covered(
            "a Secret in an Operation's `output`",
            |canary| json!({"output": {"created": secret(canary)}}),
        ),
        covered("a Secret in another object's manifest", |canary| {
            desired(
                &json!({"apiVersion": "kubernetes.crossplane.io/v1alpha2", "kind": "Object",
                "spec": {"forProvider": {"manifest": secret(canary)}}}),
            )
        }),
        covered("a Secret without `apiVersion`", |canary| {
            observed(&json!({"kind": "Secret", "data": {"a": base64(canary)}}))
        }),
        covered("a Secret of `core/v1`", |canary| {
            observed(
                &json!({"apiVersion": "core/v1", "kind": "Secret", "data": {"a": base64(canary)}}),
            )
        }),
        covered("a Secret of any other API group", |canary| {
            observed(
                &json!({"apiVersion": "example.org/v1", "kind": "Secret", "data": {"a": canary}}),
            )
        }),
        covered(
            "a Secret without `kind`, by its `type`: `Opaque`",
            |canary| json!({"context": {"found": {"data": {"a": base64(canary)}, "type": "Opaque"}}}),
        ),
        covered(
            "a Secret without `kind`, by its `type`: `kubernetes.io/tls`",
            |canary| json!({"context": {"found": {"data": {"a": base64(canary)}, "type": "kubernetes.io/tls"}}}),
        ),
        covered_text(
            "the same, written with an escaped slash: `kubernetes.io\\/tls`",
            |canary| {
                format!(r#"{{"input":{{"type":"kubernetes.io\/tls","data":{{"a":"{canary}"}}}}}}"#)
            },
        ),
        covered(
            "a Secret whose `kind` is an empty string, by its `type`",
            |canary| desired(&json!({"kind": "", "type": "Opaque", "data": {"a": canary}})),
        ),
        covered(
            "a connection secret without `kind`, by its `type`: `connection.crossplane.io/v1alpha1`",
            |canary| {
                json!({"context": {"found":
                    {"data": {"a": base64(canary)}, "type": "connection.crossplane.io/v1alpha1"}}})
            },
        ),
        covered(
            "`stringData` of something without `kind`",
            |canary| json!({"context": {"found": {"stringData": {"a": canary}}}}),
        ),
        covered_text("a Secret that says its `kind` last", |canary| {
            format!(r#"{{"data":{{"a":"{canary}"}},"kind":"Secret"}}"#)
        }),
        covered_text("a Secret that says its `kind` first", |canary| {
            format!(r#"{{"kind":"Secret","data":{{"a":"{canary}"}}}}"#)
        }),
        covered_text("a Secret that has two kinds", |canary| {
            format!(r#"{{"kind":"Secret","kind":"Other","data":{{"a":"{canary}"}}}}"#)
        }),
        covered_text(
            "a Secret whose keys and kind are written with escapes",
            |canary| format!(r#"{{"k\u0069nd":"\u0053ecret","d\u0061ta":{{"a":"{canary}"}}}}"#),
        ),
        covered("`data` of a Secret that is nested", |canary| {
            observed(
                &json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": {"b": [{"name": canary}]}}}),
            )
        }),
        covered("`data` of a Secret that is a string", |canary| {
            observed(&json!({"apiVersion": "v1", "kind": "Secret", "data": canary}))
        }),
        covered("`data` of a Secret that is a list", |canary| {
            observed(&json!({"apiVersion": "v1", "kind": "Secret", "data": [canary]}))
        }),
        covered(
            "items of a `v1` `List` that are Secrets",
            |canary| json!({"context": {"found": {"apiVersion": "v1", "kind": "List", "items": [secret(canary)]}}}),
        ),
        covered("items without a kind of a `v1` `List`", |canary| {
            json!({"context": {"found": {"apiVersion": "v1", "kind": "List",
                "items": [{"apiVersion": "v1", "kind": "Secret"}, {"data": {"a": base64(canary)}}]}}})
        }),
        covered("items without a kind of a `SecretList`", |canary| {
            json!({"context": {"found": {"apiVersion": "v1", "kind": "SecretList",
                "items": [{"data": {"a": base64(canary)}}]}}})
        }),
        covered(
            "`data` of a `ClusterSecret`, or any other kind with `Secret` in its name",
            |canary| {
                observed(
                    &json!({"apiVersion": "clustersecret.io/v1", "kind": "ClusterSecret", "data": {"a": base64(canary)}}),
                )
            },
        ),
        covered(
            "`spec.target.template.data` of an `ExternalSecret`",
            |canary| {
                desired(
                    &json!({"apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret",
                "spec": {"target": {"template": {"data": {"a": canary}}}}}),
                )
            },
        ),
        covered("`spec.template.data` of a `SealedSecret`", |canary| {
            desired(
                &json!({"apiVersion": "bitnami.com/v1alpha1", "kind": "SealedSecret",
                "spec": {"template": {"data": {"a": canary}}}}),
            )
        }),
        covered(
            "values in the `data` list of a kind with `Secret` in its name",
            |canary| {
                desired(&json!({"apiVersion": "example.org/v1", "kind": "AppSecret",
                "spec": {"data": [{"name": "a", "value": canary}]}}))
            },
        ),
        covered_text("a Secret nested more than 1,000 levels deep", |canary| {
            let secret = secret(canary);
            format!("{}{secret}{}", "[".repeat(1_001), "]".repeat(1_001))
        }),
        covered_text(
            "any of more than 100,000 values: the payload is withheld",
            |canary| {
                let numbers = "1,".repeat(100_001);
                format!(r#"{{"kind":"Secret","data":[{numbers}"{canary}"]}}"#)
            },
        ),
        kept("name, labels and type of a Secret", |name| {
            observed(&json!({"apiVersion": "v1", "kind": "Secret", "metadata":
                {"name": name, "labels": {"app": name}}, "type": name, "data": {"a": "eA=="}}))
        }),
        kept(
            "which remote secrets an `ExternalSecret` is made from",
            |name| {
                desired(
                    &json!({"apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret", "spec": {
                "data": [{"remoteRef": {"conversionStrategy": "Default", "key": format!("prod/{name}"), "property": name},
                    "secretKey": name}],
                "secretStoreRef": {"kind": "ClusterSecretStore", "name": name}}}),
                )
            },
        ),
        kept("the schema of a Secret", |text| {
            json!({"requiredSchemas": {"secret": {"openapiV3": {"properties":
                {"stringData": {"description": text, "type": "object"}}}}}})
        }),
        kept("`data` of a `ConfigMap`", |text| {
            observed(&json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": text}}))
        }),
        not_covered(
            "the keys of a Secret: a key that is itself the secret",
            |canary| observed(&json!({"apiVersion": "v1", "kind": "Secret", "data": {canary: ""}})),
        ),
        not_covered(
            "`data` of something without `kind` and without a known `type`",
            |canary| json!({"context": {"found": {"data": {"a": base64(canary)}, "metadata": {"name": canary}}}}),
        ),
    ]
}
