//! The few payloads that a page needs, taken out of a document so that the rest can go.
//!
//! Invariant: memory holds the texts of one or two steps, not a reconcile's; and of the states that
//! they tell of, which take several times as much, those that are looked at just now.

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

    /// `None` if it is not known, as with the others.
    pub(super) fn observed(&self) -> Option<State<'_>> {
        let observed = self.request.parts()?.observed?;
        State::read(Some(observed.get()))
    }

    pub(super) fn given(&self) -> Option<State<'_>> {
        let given = self.request.parts()?.desired;
        State::read(given.map(RawValue::get))
    }

    /// What a step that failed returned is nothing: nobody applies it.
    pub(super) fn returned(&self) -> Option<State<'_>> {
        let returned = self.response.parts().filter(|_| !self.has_failed)?.desired;
        State::read(returned.map(RawValue::get))
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
        assert!(done.observed().unwrap().composite.is_some());
        assert_eq!(done.given(), Some(State::default()));
        assert_eq!(done.returned(), Some(State::default()));
        assert_eq!(texts(json("{}"), true).returned(), None);
        assert_eq!(texts(Text::Other("x".to_owned()), false).returned(), None);
    }
}
