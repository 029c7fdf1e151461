//! Annotations, of Secrets mostly, that are copies of what they annotate.

use serde_json::{Value, json};

use super::{LAST_APPLIED, Place, base64, covered, desired, kept, not_covered, observed, secret};

fn annotated(key: &str, value: &str) -> Value {
    observed(
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"annotations": {key: value}}}),
    )
}

pub(super) fn places() -> Vec<Place> {
    vec![
        covered("`last-applied-configuration` of a Secret", |canary| {
            annotated(LAST_APPLIED, &secret(canary).to_string())
        }),
        covered(
            "`last-applied-configuration` of a Secret, as YAML",
            |canary| {
                let yaml = format!("apiVersion: v1\nkind: Secret\nstringData:\n  a: {canary}\n");
                annotated(LAST_APPLIED, &yaml)
            },
        ),
        covered(
            "`last-applied-configuration` of a Secret, whatever it is",
            |canary| annotated(LAST_APPLIED, canary),
        ),
        covered(
            "`last-applied-configuration` of something that a Secret is in",
            |canary| {
                let applied = json!({"kind": "Object", "spec": {"forProvider": {"manifest": secret(canary)}}});
                desired(
                    &json!({"kind": "Object", "metadata": {"annotations": {LAST_APPLIED: applied.to_string()}}}),
                )
            },
        ),
        covered(
            "`last-applied-configuration` that holds a Secret as YAML",
            |canary| {
                let yaml =
                    format!("kind: Object\nmanifest:\n  kind: Secret\n  data:\n    a: {canary}\n");
                desired(
                    &json!({"kind": "Object", "metadata": {"annotations": {LAST_APPLIED: yaml}}}),
                )
            },
        ),
        covered("`last-applied-configuration` that was cut off", |canary| {
            let applied = json!({"data": {"a": canary}, "kind": "Secret", "more": "."}).to_string();
            let cut = applied.get(..applied.len() - 2).unwrap();
            desired(&json!({"kind": "Object", "metadata": {"annotations": {LAST_APPLIED: cut}}}))
        }),
        covered("`kapp.k14s.io/original`", |canary| {
            annotated("kapp.k14s.io/original", &secret(canary).to_string())
        }),
        covered(
            "any other annotation that holds a Secret, of anything",
            |canary| {
                desired(
                    &json!({"kind": "Object", "metadata": {"annotations": {"example.org/copy": secret(canary).to_string()}}}),
                )
            },
        ),
        covered("annotations of a Secret that hold JSON", |canary| {
            annotated("example.org/copy", &json!({"a": canary}).to_string())
        }),
        covered("annotations of a Secret of several lines", |canary| {
            annotated("example.org/copy", &format!("a\n{canary}"))
        }),
        covered(
            "the same, with line breaks that only YAML 1.1 knows",
            |canary| annotated("example.org/copy", &format!("a\u{2028}{canary}")),
        ),
        covered(
            "annotations of a Secret of more than 256 bytes: they may be packed copies",
            |canary| {
                annotated(
                    "objectset.rio.cattle.io/applied",
                    &format!("H4sI{}{}", base64(canary), "A".repeat(256)),
                )
            },
        ),
        kept("other annotations of a Secret", |name| {
            annotated("crossplane.io/composition-resource-name", name)
        }),
        not_covered(
            "a short annotation of a Secret that is a copy of its value",
            |canary| annotated("example.org/copy", canary),
        ),
    ]
}
