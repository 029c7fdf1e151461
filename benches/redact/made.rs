//! Payloads that the captures don't have: large ones, full of references to Secrets or of Secrets.

use bytes::Bytes;
use serde_json::{Value, json};

/// How many resources a payload has.
const RESOURCES: usize = 500;

/// What is made, by name.
pub(crate) fn payloads() -> impl Iterator<Item = (&'static str, Vec<Bytes>)> {
    [
        ("made: references", managed_resource as fn(usize) -> Value),
        ("made: secrets", secret),
        ("made: strings", wrapped),
    ]
    .into_iter()
    .map(|(name, resource)| (name, vec![request(resource)]))
}

fn request(resource: fn(usize) -> Value) -> Bytes {
    let resources = (0..RESOURCES).map(|number| {
        let name = format!("resource-{number}");
        (name, json!({ "resource": resource(number) }))
    });
    let request = json!({"observed": {"resources": resources.collect::<Value>()}});
    request.to_string().into()
}

/// A managed resource as providers of Crossplane 1 have them: it says where its secrets go.
fn managed_resource(number: usize) -> Value {
    json!({
        "apiVersion": "rds.aws.upbound.io/v1beta1",
        "kind": "Instance",
        "metadata": {
            "annotations": {"crossplane.io/external-name": format!("db-{number}")},
            "managedFields": [{"fieldsV1": {"f:spec": {"f:forProvider": {"f:passwordSecretRef": {}},
                "f:writeConnectionSecretToRef": {}}}, "manager": "crossplane", "operation": "Apply"}],
        },
        "spec": {
            "forProvider": {
                "engine": "postgres",
                "passwordSecretRef": {"key": "password", "name": format!("db-{number}"), "namespace": "apps"},
                "tags": {"crossplane-name": format!("db-{number}"), "team": "a"},
            },
            "writeConnectionSecretToRef": {"name": format!("db-{number}"), "namespace": "apps"},
        },
        "status": {"conditions": [{"lastTransitionTime": "2026-11-16T04:46:16Z",
            "message": "cannot get the Secret yet", "reason": "ReconcileError", "status": "False", "type": "Synced"}]},
    })
}

/// A Secret as Crossplane 2.2 sends it: its data is redacted.
fn secret(number: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "data": {"password": "**REDACTED**", "username": "**REDACTED**"},
        "kind": "Secret",
        "metadata": {"annotations": {"crossplane.io/composition-resource-name": format!("resource-{number}")},
            "name": format!("db-{number}"), "namespace": "apps"},
        "stringData": {"password": format!("password-{number}"), "username": "admin"},
        "type": "Opaque",
    })
}

/// A resource with a password, which was applied with kubectl.
fn wrapped(number: usize) -> Value {
    let spec = json!({"adminPassword": format!("password-{number}"), "size": "small", "zone": "b"});
    let applied = json!({"apiVersion": "example.org/v1", "kind": "Database", "spec": spec});
    json!({
        "apiVersion": "example.org/v1",
        "kind": "Database",
        "metadata": {"annotations":
            {"kubectl.kubernetes.io/last-applied-configuration": applied.to_string()}},
        "spec": spec,
    })
}
