//! Observed and desired states, read from payloads.
//!
//! Invariant: a part of the wrong type is as good as missing; it costs nothing but itself.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::{Json, Values};

/// A composite and its composed resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State<'d> {
    pub composite: Option<Resource<'d>>,
    /// By name.
    pub resources: Vec<(Cow<'d, str>, Resource<'d>)>,
}

/// A resource of a state.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource<'d> {
    pub body: Json<'d>,
    /// Connection details; values are redacted.
    pub details: Option<Json<'d>>,
    /// What a function said.
    pub ready: Option<bool>,
}

/// A request, taken apart and not read.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RequestParts<'d> {
    #[serde(borrow)]
    pub(super) observed: Option<&'d RawValue>,
    #[serde(borrow)]
    pub(super) desired: Option<&'d RawValue>,
}

/// A response, taken apart and not read.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ResponseParts<'d> {
    #[serde(borrow)]
    pub(super) desired: Option<&'d RawValue>,
}

impl<'d> State<'d> {
    /// Reads a state; `None` if something else stands in its place. What is not there is an empty
    /// state: zero values are left out on the wire.
    pub fn read(text: Option<&'d str>) -> Option<Self> {
        Self::read_within(text, &Values::up_to(usize::MAX))
    }

    /// The same; `None` too if it has more values than are left.
    pub fn read_within(text: Option<&'d str>, values: &Values) -> Option<Self> {
        let Some(text) = text else {
            return Some(Self::default());
        };
        let Ok(Json::Object(members)) = Json::parse_within(text, values) else {
            return None;
        };
        let mut state = Self::default();
        for (name, value) in members {
            match (name.as_ref(), value) {
                ("composite", Json::Object(parts)) => state.composite = Some(Resource::of(parts)),
                ("resources", Json::Object(resources)) => {
                    let read = |(name, value)| match value {
                        Json::Object(parts) => (name, Resource::of(parts)),
                        _ => (name, Resource::of(Vec::new())),
                    };
                    state.resources = resources.into_iter().map(read).collect();
                }
                _ => {}
            }
        }
        Some(state)
    }

    pub fn resource(&self, name: &str) -> Option<&Resource<'d>> {
        let place = self
            .resources
            .binary_search_by(|(other, _)| other.as_ref().cmp(name));
        place
            .ok()
            .and_then(|place| self.resources.get(place))
            .map(|(_, resource)| resource)
    }
}

impl<'d> Resource<'d> {
    fn of(parts: Vec<(Cow<'d, str>, Json<'d>)>) -> Self {
        let mut resource = Self {
            body: Json::Object(Vec::new()),
            details: None,
            ready: None,
        };
        for (name, value) in parts {
            match name.as_ref() {
                "resource" => resource.body = value,
                "connectionDetails" => resource.details = Some(value),
                "ready" => {
                    resource.ready = match value.text() {
                        Some("READY_TRUE") => Some(true),
                        Some("READY_FALSE") => Some(false),
                        _ => None,
                    }
                }
                _ => {}
            }
        }
        resource
    }

    /// Such as `Subnet`.
    pub fn kind(&self) -> &str {
        self.body
            .member("kind")
            .and_then(Json::text)
            .unwrap_or_default()
    }

    /// Such as `prod-net-x7k2p`; empty before it has one.
    pub fn name(&self) -> &str {
        let name = self.body.at_pointer("/metadata/name");
        name.and_then(Json::text).unwrap_or_default()
    }

    /// What tells it from one that was made again under the same name; empty before it has one.
    pub fn uid(&self) -> &str {
        let uid = self.body.at_pointer("/metadata/uid");
        uid.and_then(Json::text).unwrap_or_default()
    }

    /// It is on its way out.
    pub fn is_being_deleted(&self) -> bool {
        self.body
            .at_pointer("/metadata/deletionTimestamp")
            .is_some()
    }

    /// The status of a condition, such as `True`.
    pub fn condition(&self, condition_type: &str) -> Option<&Json<'d>> {
        let conditions = self.body.at_pointer("/status/conditions")?.items()?;
        let is_it = |condition: &&Json<'d>| {
            condition.member("type").and_then(Json::text) == Some(condition_type)
        };
        conditions.iter().find(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_part_by_part() {
        let text = r#"{"composite":{"resource":{"kind":"XR"}},"resources":{
            "b":{"resource":{"kind":"Bucket","metadata":{"name":"b-1"}},"ready":"READY_TRUE"},"a":7}}"#;
        let state = State::read(Some(text)).unwrap();
        assert_eq!(state.composite.as_ref().map(Resource::kind), Some("XR"));
        let bucket = state.resource("b").unwrap();
        assert_eq!(
            (bucket.kind(), bucket.name(), bucket.ready),
            ("Bucket", "b-1", Some(true))
        );
        assert_eq!(state.resource("a").map(Resource::kind), Some(""));
        assert_eq!(state.resource("c"), None);
    }

    #[test]
    fn nothing_is_an_empty_state_and_nonsense_is_none() {
        assert_eq!(State::read(None), Some(State::default()));
        assert_eq!(State::read(Some("[]")), None);
        assert_eq!(
            State::read(Some(r#"{"resources":[]}"#)),
            Some(State::default())
        );
    }
}
