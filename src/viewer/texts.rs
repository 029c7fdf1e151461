//! The few payloads that a page needs.
//!
//! Invariant: memory holds the texts that were asked for, once; and of the states that they tell
//! of, which take several times as much, those that are looked at just now.

use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    answers::{Document, OpenError, Payload, State, StoredDocument},
    json::Values,
    line::{Line, LineStep, PayloadRef},
};

/// Where a payload stands in the text of its document.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Place {
    Missing,
    Json(Range<usize>),
    /// It is no JSON, so that it stands there in another form.
    Text(String),
    /// It is not even text.
    Base64(String),
}

impl Place {
    fn of(text: &str, document: &Document<'_>, at: Option<&PayloadRef>) -> Self {
        match at.map_or(Payload::Missing, |at| document.payload_at(&at.pointer)) {
            Payload::Missing => Self::Missing,
            Payload::Json(json) => range_in(text, json).map_or(Self::Missing, Self::Json),
            Payload::Text(text) => Self::Text(text.to_owned()),
            Payload::Base64(text) => Self::Base64(text.to_owned()),
        }
    }
}

/// Where a part of a text stands in it.
fn range_in(whole: &str, part: &str) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    Some(start..start + part.len())
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
    stored: StoredDocument,
    request: Place,
    response: Place,
    has_failed: bool,
}

impl StepTexts {
    pub(super) fn of(stored: StoredDocument, step: &LineStep) -> Result<Self, OpenError> {
        let at = [step.request.as_ref(), step.response.as_ref()];
        Self::at(stored, at, step.status.is_failure())
    }

    /// What was observed at first, and what was desired in the end.
    pub(super) fn of_ends(stored: StoredDocument, line: &Line) -> Result<Self, OpenError> {
        let first = line.steps.iter().find_map(|step| step.request.as_ref());
        let last = line.steps.last().and_then(|step| step.response.as_ref());
        let has_failed = line.steps.iter().any(|step| step.status.is_failure());
        Self::at(stored, [first, last], has_failed)
    }

    fn at(
        stored: StoredDocument,
        [request, response]: [Option<&PayloadRef>; 2],
        has_failed: bool,
    ) -> Result<Self, OpenError> {
        let document = stored.open()?;
        let [request, response] =
            [request, response].map(|at| Place::of(stored.text(), &document, at));
        drop(document);
        Ok(Self {
            stored,
            request,
            response,
            has_failed,
        })
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> u64 {
        self.stored.text().len() as u64
    }

    pub(super) fn request(&self) -> Payload<'_> {
        self.payload(&self.request)
    }

    pub(super) fn response(&self) -> Payload<'_> {
        self.payload(&self.response)
    }

    fn payload<'t>(&'t self, place: &'t Place) -> Payload<'t> {
        match place {
            Place::Missing => Payload::Missing,
            Place::Json(range) => {
                let json = self.stored.text().get(range.clone());
                json.map_or(Payload::Missing, Payload::Json)
            }
            Place::Text(text) => Payload::Text(text),
            Place::Base64(text) => Payload::Base64(text),
        }
    }

    fn parts(&self, place: &Place) -> Option<Parts<'_>> {
        let Place::Json(range) = place else {
            return None;
        };
        serde_json::from_str(self.stored.text().get(range.clone())?).ok()
    }

    /// `None` if it is not known, or has more values than are left; as with the others.
    pub(super) fn observed(&self, values: &Values) -> Option<State<'_>> {
        let observed = self.parts(&self.request)?.observed?;
        State::read_within(Some(observed.get()), values)
    }

    pub(super) fn given(&self, values: &Values) -> Option<State<'_>> {
        let given = self.parts(&self.request)?.desired;
        State::read_within(given.map(RawValue::get), values)
    }

    /// What a step that failed returned is nothing: nobody applies it.
    pub(super) fn returned(&self, values: &Values) -> Option<State<'_>> {
        let returned = self.parts(&self.response).filter(|_| !self.has_failed)?;
        State::read_within(returned.desired.map(RawValue::get), values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::samples;

    fn texts(response: &str, has_failed: bool) -> StepTexts {
        let document = format!(
            r#"{{"v":1,"trace_id":"t","subject":{{"type":"composite","api_version":"","kind":"","namespace":"",
            "name":"","uid":"","composition":""}},"steps":[{{"name":"a","function":"f",
            "request":{{"observed":{{"composite":{{}}}},"desired":{{}}}},{response}}}]}}"#
        );
        let stored = StoredDocument::new(document.into()).unwrap();
        let at = |pointer: &str| PayloadRef {
            pointer: pointer.to_owned(),
            sha256: String::new(),
            size: 1,
            redacted: 0,
        };
        let mut step = samples::line("t", samples::at(0)).steps.remove(0);
        step.request = Some(at("/steps/0/request"));
        step.response = Some(at("/steps/0/response"));
        if has_failed {
            step.status = crate::line::Status::Fatal;
        }
        StepTexts::of(stored, &step).unwrap()
    }

    #[test]
    fn states_are_read_from_what_is_there() {
        let values = || Values::up_to(100);
        let done = texts(r#""response":{}"#, false);
        assert!(done.observed(&values()).unwrap().composite.is_some());
        assert_eq!(done.given(&values()), Some(State::default()));
        assert_eq!(done.returned(&values()), Some(State::default()));
        assert_eq!(done.response(), Payload::Json("{}"));
        assert_eq!(texts(r#""response":{}"#, true).returned(&values()), None);
        let text = texts(r#""response_text":"\"x""#, false);
        assert_eq!(text.response(), Payload::Text("\"x"));
        assert_eq!(text.returned(&values()), None);
        let few = Values::up_to(1);
        assert_eq!(done.observed(&few), None);
        assert!(few.is_exceeded());
    }
}
