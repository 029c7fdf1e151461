//! Payloads that aren't JSON, what the user names, and what nothing is said about.

use serde_json::json;

use super::{
    DEFAULTS, Flags, LAST_APPLIED, Place, covered, covered_text, desired, kept, not_covered,
    not_covered_text, observed, with_input, with_spec,
};

const POINTERS: Flags = Flags {
    pointers: &["/input/pin", "/desired/resources/*/resource/spec/users"],
    ..DEFAULTS
};
const KEYS: Flags = Flags {
    keys: &["(?i)pin|secret"],
    ..DEFAULTS
};

pub(super) fn places() -> Vec<Place> {
    vec![
        covered("what `--redact` points at", |canary| with_input(&json!({"pin": canary})))
            .with(POINTERS),
        covered("everything below what `--redact` points at", |canary| {
            with_spec(&json!({"users": [{"name": canary}]}))
        })
        .with(POINTERS),
        covered("strings and numbers under a key that `--redact-key` matches", |canary| {
            with_spec(&json!({"pins": canary}))
        })
        .with(KEYS),
        covered("everything but references below a key that `--redact-key` matches", |canary| {
            with_spec(&json!({"pins": [{"plain": canary}, [canary]]}))
        })
        .with(KEYS),
        covered("a key that `--redact-key` matches, in JSON in a string", |canary| {
            let applied = json!({"spec": {"pin": canary}}).to_string();
            observed(&json!({"metadata": {"annotations": {LAST_APPLIED: applied}}}))
        })
        .with(KEYS),
        covered("a key that `--redact-key` matches, in a manifest as YAML", |canary| {
            with_input(&json!({"template": format!("apiVersion: v1\nkind: Login\nspec:\n  pin: {canary}\n")}))
        })
        .with(KEYS),
        covered_text("a payload that isn't JSON and mentions a secret: it is withheld", |canary| {
            format!("{{\"token\": \"{canary}\"")
        }),
        kept("references, whatever `--redact-key` matches", |name| {
            json!({"desired": {"resources": {"boot-secret": {"resource": {"spec":
                {"writeConnectionSecretToRef": {"name": name}, "secretName": name, "secrets": [{"name": name}]}}}}}})
        })
        .with(KEYS),
        kept("results and conditions that talk about secrets", |text| {
            json!({"conditions": [{"message": format!("the Secret {text:?} has no password: token expired"), "type": "Ready"}],
                "results": [{"message": format!("cannot get credentials: secret {text:?} not found"), "severity": "SEVERITY_FATAL"}]})
        }),
        not_covered("a result's or a condition's message", |canary| {
            json!({"conditions": [{"message": format!("logged in with {canary}"), "type": "Ready"}],
                "results": [{"message": format!("logged in with {canary}"), "severity": "SEVERITY_NORMAL"}]})
        }),
        not_covered("a `ConfigMap`, an `input`, a `context`, a spec or a status, under a key that doesn't say so", |canary| {
            let mut payload = desired(&json!({"kind": "ConfigMap", "data": {"a": canary}, "spec": {"b": canary}, "status": {"c": canary}}));
            payload["input"] = json!({"d": canary});
            payload["context"] = json!({"e": canary});
            payload
        }),
        not_covered_text("a payload that isn't JSON and has none of the words above", |canary| {
            format!("{{\"a\": \"{canary}\"")
        }),
    ]
}
