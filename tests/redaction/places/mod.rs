//! Every place in which a secret, or something that looks like one, may be, and whether it is
//! redacted. docs/redaction.md is made from this table.
//!
//! Uses nothing but `spanplane`, `serde_json` and `base64`, so that other tests can include it.

mod annotations;
mod connections;
mod keys;
mod other;
mod secrets;
mod strings;
mod yaml;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

/// What becomes of the canary in a place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Expected {
    /// It is redacted.
    Covered,
    /// It stays: it is a name or a reference, which answers and replays need.
    Kept,
    /// It stays, and that is documented.
    NotCovered,
}

/// The user's settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flags {
    pub(crate) pointers: &'static [&'static str],
    pub(crate) keys: &'static [&'static str],
    pub(crate) secret_keys: bool,
}

/// A place, and a payload with something in that place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) section: &'static str,
    pub(crate) name: &'static str,
    pub(crate) expected: Expected,
    pub(crate) flags: Flags,
    payload: Payload,
}

#[derive(Clone, Copy, Debug)]
enum Payload {
    Json(fn(&str) -> Value),
    Text(fn(&str) -> String),
}

const DEFAULTS: Flags = Flags {
    pointers: &[],
    keys: &[],
    secret_keys: true,
};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// All of them, section by section.
pub(crate) fn places() -> Vec<Place> {
    let sections = [
        ("Secrets", secrets::places()),
        ("Annotations of Secrets", annotations::places()),
        ("Connection details and credentials", connections::places()),
        ("Keys that name a secret", keys::places()),
        ("JSON inside strings", strings::places()),
        ("YAML inside strings", yaml::places()),
        ("Everything else", other::places()),
    ];
    let places = sections.into_iter().flat_map(|(section, places)| {
        places
            .into_iter()
            .map(move |place| Place { section, ..place })
    });
    places.collect()
}

impl Place {
    /// The payload with this canary in its place.
    pub(crate) fn payload(&self, canary: &str) -> String {
        match self.payload {
            Payload::Json(payload) => payload(canary).to_string(),
            Payload::Text(payload) => payload(canary),
        }
    }

    fn with(self, flags: Flags) -> Self {
        Self { flags, ..self }
    }
}

fn place(name: &'static str, expected: Expected, payload: Payload) -> Place {
    Place {
        section: "",
        name,
        expected,
        flags: DEFAULTS,
        payload,
    }
}

fn covered(name: &'static str, payload: fn(&str) -> Value) -> Place {
    place(name, Expected::Covered, Payload::Json(payload))
}

fn kept(name: &'static str, payload: fn(&str) -> Value) -> Place {
    place(name, Expected::Kept, Payload::Json(payload))
}

fn not_covered(name: &'static str, payload: fn(&str) -> Value) -> Place {
    place(name, Expected::NotCovered, Payload::Json(payload))
}

/// A place in a payload that `json!` can't write.
fn covered_text(name: &'static str, payload: fn(&str) -> String) -> Place {
    place(name, Expected::Covered, Payload::Text(payload))
}

fn not_covered_text(name: &'static str, payload: fn(&str) -> String) -> Place {
    place(name, Expected::NotCovered, Payload::Text(payload))
}

fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

/// A request that observes one composed resource.
fn observed(resource: &Value) -> Value {
    json!({"observed": {"resources": {"one": {"resource": resource}}}})
}

/// A response that desires one composed resource.
fn desired(resource: &Value) -> Value {
    json!({"desired": {"resources": {"one": {"resource": resource, "ready": "READY_TRUE"}}}})
}

/// A composed resource of no kind that anybody knows, with this spec.
fn with_spec(spec: &Value) -> Value {
    desired(&json!({"apiVersion": "example.org/v1", "kind": "Database", "spec": spec}))
}

/// A request whose function has this input.
fn with_input(input: &Value) -> Value {
    json!({"input": input, "meta": {"tag": "t"}})
}

/// A Secret with this canary.
fn secret(canary: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, "stringData": {"a": canary}})
}
