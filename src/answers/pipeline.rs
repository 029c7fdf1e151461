//! A reconcile's states, step by step: what was observed, what each step was given and returned.
//!
//! Invariant: steps stand as in the line, whose facts (names, times, status) count; the document
//! gives the payloads, and may be that of an earlier, equal reconcile. What a step that failed
//! returned is nothing: nobody applies it.

use serde_json::value::RawValue;

use super::{
    comparison::{ResourceChange, compare},
    document::{Document, Payload},
    state::{RequestParts, ResponseParts, State},
};
use crate::{
    json::Values,
    line::{Line, PayloadRef},
    reconcile::SubjectType,
};

/// The states of a reconcile.
#[derive(Debug)]
pub struct Pipeline<'d> {
    /// `None` if no request tells.
    pub observed: Option<State<'d>>,
    pub stages: Vec<Stage>,
    /// An Operation is told nothing of what exists, unless it asks.
    pub is_operation: bool,
    /// Every state that a stage was given or returned.
    states: Vec<State<'d>>,
}

/// What a step did.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    pub has_failed: bool,
    given: Option<usize>,
    returned: Option<usize>,
}

impl<'d> Pipeline<'d> {
    pub fn read(line: &Line, document: &'d Document<'d>) -> Self {
        Self::read_within(line, document, &Values::up_to(usize::MAX))
    }

    /// The same. A state that has more values than are left is not known.
    pub fn read_within(line: &Line, document: &'d Document<'d>, values: &Values) -> Self {
        let mut pipeline = Self {
            observed: None,
            stages: Vec::with_capacity(line.steps.len()),
            is_operation: line.subject.kind_of_subject == SubjectType::Operation,
            states: Vec::new(),
        };
        // The text of the last state read, since the next step is given what this one returned.
        let mut last: Option<(Option<&'d str>, usize)> = None;
        for step in &line.steps {
            let request: RequestParts<'d> = parts(document, step.request.as_ref());
            if pipeline.observed.is_none() && step.request.is_some() {
                let observed = request.observed.map(RawValue::get);
                pipeline.observed =
                    State::read_within(observed, values).filter(|_| observed.is_some());
            }
            let mut state = |text: Option<&'d str>| {
                if let Some((same, place)) = last
                    && same == text
                {
                    return Some(place);
                }
                let place = pipeline.states.len();
                pipeline.states.push(State::read_within(text, values)?);
                last = Some((text, place));
                Some(place)
            };
            let given = has_json(document, step.request.as_ref())
                .then(|| state(request.desired.map(RawValue::get)))
                .flatten();
            let has_failed = step.status.is_failure();
            let returned = (!has_failed && has_json(document, step.response.as_ref()))
                .then(|| {
                    let response: ResponseParts<'d> = parts(document, step.response.as_ref());
                    state(response.desired.map(RawValue::get))
                })
                .flatten();
            pipeline.stages.push(Stage {
                has_failed,
                given,
                returned,
            });
        }
        pipeline
    }

    /// The desired state that a step was given; where its request is missing, what the step before
    /// returned.
    pub fn given(&self, place: usize) -> Option<&State<'d>> {
        let stage = self.stages.get(place)?;
        let before = || self.stages.get(place.checked_sub(1)?)?.returned;
        self.states.get(stage.given.or_else(before)?)
    }

    /// The desired state that a step returned.
    pub fn returned(&self, place: usize) -> Option<&State<'d>> {
        self.states.get(self.stages.get(place)?.returned?)
    }

    /// The desired state that the pipeline ended with; `None` if it did not end well.
    pub fn desired(&self) -> Option<&State<'d>> {
        if self.stages.iter().any(|stage| stage.has_failed) {
            return None;
        }
        self.returned(self.stages.len().checked_sub(1)?)
    }

    /// What a step did to the desired state; `None` if that is not known.
    pub fn changes(&self, place: usize) -> Option<Vec<ResourceChange<'_>>> {
        Some(compare(self.given(place)?, self.returned(place)?))
    }
}

fn payload<'d>(document: &'d Document<'d>, at: Option<&PayloadRef>) -> Payload<'d> {
    at.map_or(Payload::Missing, |at| document.payload_at(&at.pointer))
}

fn has_json(document: &Document<'_>, at: Option<&PayloadRef>) -> bool {
    matches!(payload(document, at), Payload::Json(_))
}

fn parts<'d, P: serde::Deserialize<'d> + Default>(
    document: &'d Document<'d>,
    at: Option<&PayloadRef>,
) -> P {
    match payload(document, at) {
        Payload::Json(json) => serde_json::from_str(json).unwrap_or_default(),
        _ => P::default(),
    }
}
