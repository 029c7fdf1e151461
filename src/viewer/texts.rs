//! The few payloads that a page needs, taken out of a document so that the rest can go.
//!
//! Invariant: memory holds the texts of one or two steps, not a reconcile's.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    answers::{Document, Payload, State},
    line::{Line, LineStep, PayloadRef},
};

/// What was asked or answered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Text {
    Missing,
    Json(String),
    /// It is no JSON.
    Other(String),
    /// It is not even text.
    Base64(String),
}

impl Text {
    pub(super) fn of(document: &Document<'_>, at: Option<&PayloadRef>) -> Self {
        match at.map_or(Payload::Missing, |at| document.payload_at(&at.pointer)) {
            Payload::Missing => Self::Missing,
            Payload::Json(text) => Self::Json(text.to_owned()),
            Payload::Text(text) => Self::Other(text.to_owned()),
            Payload::Base64(text) => Self::Base64(text.to_owned()),
        }
    }

    fn parts(&self) -> Option<Parts<'_>> {
        match self {
            Self::Json(text) => serde_json::from_str(text).ok(),
            _ => None,
        }
    }
}

/// A payload, taken apart and not read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Parts<'t> {
    #[serde(borrow)]
    observed: Option<&'t RawValue>,
    #[serde(borrow)]
    desired: Option<&'t RawValue>,
}

/// What a step was asked and what it answered.
#[derive(Debug)]
pub(super) struct StepTexts {
    pub(super) request: Text,
    pub(super) response: Text,
    has_failed: bool,
}

/// The states that these tell of; `None` for what is not known.
#[derive(Debug)]
pub(super) struct StepStates<'t> {
    pub(super) observed: Option<State<'t>>,
    pub(super) given: Option<State<'t>>,
    /// What a step that failed returned is nothing: nobody applies it.
    pub(super) returned: Option<State<'t>>,
}

impl StepTexts {
    pub(super) fn of(document: &Document<'_>, step: &LineStep) -> Self {
        Self {
            request: Text::of(document, step.request.as_ref()),
            response: Text::of(document, step.response.as_ref()),
            has_failed: step.status.is_failure(),
        }
    }

    /// What was observed at first, and what was desired in the end.
    pub(super) fn of_ends(document: &Document<'_>, line: &Line) -> Self {
        let first = line.steps.iter().find_map(|step| step.request.as_ref());
        let last = line.steps.last().and_then(|step| step.response.as_ref());
        Self {
            request: Text::of(document, first),
            response: Text::of(document, last),
            has_failed: line.steps.iter().any(|step| step.status.is_failure()),
        }
    }

    pub(super) fn states(&self) -> StepStates<'_> {
        let request = self.request.parts();
        let response = self.response.parts().filter(|_| !self.has_failed);
        let observed = request.as_ref().and_then(|parts| parts.observed);
        StepStates {
            observed: observed.and_then(|text| State::read(Some(text.get()))),
            given: request.and_then(|parts| State::read(parts.desired.map(RawValue::get))),
            returned: response.and_then(|parts| State::read(parts.desired.map(RawValue::get))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_from_what_is_there() {
        let json = |text: &str| Text::Json(text.to_owned());
        let texts = |response, has_failed| StepTexts {
            request: json(r#"{"observed":{"composite":{}},"desired":{}}"#),
            response,
            has_failed,
        };
        let done = texts(json("{}"), false);
        let states = done.states();
        assert!(
            states
                .observed
                .is_some_and(|state| state.composite.is_some())
        );
        assert_eq!(states.given, Some(State::default()));
        assert_eq!(states.returned, Some(State::default()));
        assert_eq!(texts(json("{}"), true).states().returned, None);
        assert_eq!(
            texts(Text::Other("x".to_owned()), false).states().returned,
            None
        );
    }
}
