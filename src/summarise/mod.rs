//! What is worth saying about a reconcile, from its payloads. Pure.
//!
//! Payloads go by one at a time, each read once: `request` and `response` take out what is
//! wanted, `digest` turns a resource into a number to compare, `outcome` holds the states
//! against each other, `verdict` says how a step ended, `flaps` what can't make up its mind.
//!
//! Invariant: every input gives a summary, with what can be known of it. It is the same for the
//! same payloads, and bounded whatever they hold, in size and in what it takes to make; what is too
//! large to be looked at (`allowance`) is unknown, and the step says so. No payload is kept.

mod allowance;
mod composite;
mod desired;
mod digest;
mod fields;
mod flaps;
mod json;
mod names;
mod observed;
mod outcome;
mod request;
mod response;
mod room;
mod verdict;

use std::collections::BTreeMap;

use memchr::memmem;

use self::{
    allowance::{Allowance, has_oversized_string},
    desired::State,
    json::is_object,
    names::Names,
    observed::Observed,
    outcome::{Difference, Ending, Trail, dropped},
    request::{Request, Required, read_request},
    response::{Response, read_response},
    room::StepsRoom,
    verdict::{error_type, status_of},
};
pub use self::{fields::DesiredFields, flaps::FieldHistory};
use crate::{
    line::{
        Dropped, Outcome, SUMMARY_SKIPPED, Severity, Status, StepFacts, StepResult, SubjectFacts,
    },
    reconcile::{ClosedReconcile, SubjectType},
    record::RecordKind,
};

/// Stands in every FATAL result that a function can return.
pub const FATAL: &[u8] = b"SEVERITY_FATAL";

/// What is worth saying about a reconcile.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub subject: SubjectFacts,
    /// That of the worst step.
    pub status: Status,
    /// One for each step of the reconcile, in its order.
    pub steps: Vec<StepSummary>,
    /// Empty unless the pipeline of a composite ran to its end.
    pub outcome: Outcome,
    pub dropped: Vec<Dropped>,
    pub dropped_count: u64,
    /// Of the final desired state.
    pub fields: DesiredFields,
}

/// What is worth saying about a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSummary {
    pub status: Status,
    pub error_type: Option<String>,
    pub facts: StepFacts,
}

/// Takes in the payloads of a reconcile.
#[derive(Debug, Default)]
pub struct Summariser {
    names: Names,
    /// The same in every request of a reconcile; `None` as long as none could be read.
    observed: Option<Observed>,
    subject: SubjectFacts,
    steps: BTreeMap<usize, StepFacts>,
    asked: Option<Asked>,
    answered: Option<Answered>,
    trail: Trail,
    room: StepsRoom,
}

/// What the response to the last request is held against.
#[derive(Debug)]
struct Asked {
    step: usize,
    desired: Option<State>,
    required: Required,
}

/// The last response.
#[derive(Debug)]
struct Answered {
    step: usize,
    desired: State,
    fields: DesiredFields,
}

impl Summariser {
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next payload in: in the order of the steps, named by their place among those of
    /// the reconcile, and of each step the request first. Tells whether it could be read, which
    /// only a JSON object can be.
    pub fn read(&mut self, step: usize, kind: RecordKind, payload: &[u8]) -> bool {
        if has_oversized_string(payload) {
            return is_object(payload) && {
                self.skip(step, kind, memmem::find(payload, FATAL).is_some());
                true
            };
        }
        let allowance = Allowance::default();
        match kind {
            RecordKind::Request => {
                let wants_observed = self.observed.is_none();
                let request = read_request(payload, &mut self.names, &allowance, wants_observed);
                let Some(request) = request else {
                    return false;
                };
                self.take_request(step, request);
            }
            RecordKind::Response => {
                let observed = self.observed.as_ref();
                let response = read_response(payload, &mut self.names, &allowance, observed);
                let Some(response) = response else {
                    return false;
                };
                self.take_response(step, response);
            }
        }
        if allowance.is_exceeded() {
            self.note_skipped(step);
        }
        true
    }

    /// Takes note of a payload that is not looked into: it is too large for that, and may mention
    /// [`FATAL`].
    pub fn skip(&mut self, step: usize, kind: RecordKind, mentions_fatal: bool) {
        self.note_skipped(step);
        // NOTE: it may stand elsewhere in there, but a failure must not pass for a success.
        if kind == RecordKind::Response && mentions_fatal {
            let facts = self.steps.entry(step).or_default();
            facts.result_counts.fatal = 1;
            facts.results.push(StepResult {
                severity: Severity::Fatal,
                reason: None,
                message: "the message was not read: the response is too large to be summarised"
                    .to_owned(),
            });
        }
    }

    fn note_skipped(&mut self, step: usize) {
        let facts = self.steps.entry(step).or_default();
        facts.summary = Some(SUMMARY_SKIPPED.to_owned());
    }

    fn take_request(&mut self, step: usize, request: Request) {
        if let Some((observed, subject)) = request.observed {
            self.observed = Some(observed);
            self.subject = subject;
        }
        let facts = self.steps.entry(step).or_default();
        facts.tag = self.room.fit_text(request.tag);
        facts.input_kind = self.room.fit_text(request.input_kind);
        self.asked = Some(Asked {
            step,
            desired: request.desired,
            required: request.required,
        });
    }

    fn take_response(&mut self, step: usize, response: Response) {
        let asked = self.asked.take().filter(|asked| asked.step == step);
        let (given, required) = asked.map_or((None, Required::default()), |asked| {
            (asked.desired, asked.required)
        });
        // Where the request is missing, what the step before returned is what this one was given.
        let before = self.answered.take();
        let before = before.filter(|before| before.step.checked_add(1) == Some(step));
        let given = given.or(before.map(|before| before.desired));

        let facts = self.steps.entry(step).or_default();
        facts.tag = facts
            .tag
            .take()
            .or_else(|| self.room.fit_text(response.tag));
        facts.ttl_s = response.ttl_s;
        facts.results = self.room.fit_results(response.results);
        facts.result_counts = response.result_counts;
        facts.conditions = self.room.fit_conditions(response.conditions);
        facts.requirements = self.room.fit_requirements(response.requirements);
        for requirement in &mut facts.requirements {
            requirement.found = required.found(&requirement.name);
        }
        let Some((returned, fields)) = response.desired else {
            return;
        };
        let difference = given.map(|given| Difference::between(&given, &returned));
        let difference = difference.unwrap_or_default();
        let described = difference.describe(&returned, &self.names, &mut self.room.names);
        facts.desired = Some(described);
        // A FATAL result often comes with an empty desired state, which nobody applies.
        if facts.result_counts.fatal == 0
            && let Ok(place) = u32::try_from(step)
        {
            self.trail.follow(place, &difference, &returned);
        }
        self.answered = Some(Answered {
            step,
            desired: returned,
            fields,
        });
    }

    /// What is worth saying about the reconcile whose payloads these were.
    pub fn finish(mut self, reconcile: &ClosedReconcile) -> Summary {
        let steps: Vec<_> = reconcile
            .steps
            .iter()
            .enumerate()
            .map(|(place, step)| {
                let facts = self.steps.remove(&place).unwrap_or_default();
                let status = status_of(step, facts.result_counts);
                StepSummary {
                    status,
                    error_type: error_type(step, status, reconcile.unanswered(step))
                        .map(str::to_owned),
                    facts,
                }
            })
            .collect();
        let status = steps.iter().map(|step| step.status).max();
        let status = status.unwrap_or_default();

        let answered = self.answered;
        let answered = answered.filter(|last| last.step.checked_add(1) == Some(steps.len()));
        let ran_to_end = !status.is_failure() && !reconcile.is_fragment();
        let is_composite = reconcile.subject.kind_of_subject == SubjectType::Composite;
        let ending = match (&self.observed, &answered) {
            (Some(observed), Some(answered)) if ran_to_end && is_composite => Some(Ending {
                observed,
                desired: &answered.desired,
            }),
            _ => None,
        };
        let outcome = ending.map(|ending| ending.outcome(&self.trail, &self.names));
        let has_failed = |step| {
            let step = usize::try_from(step).ok().and_then(|step| steps.get(step));
            step.is_none_or(|step| step.status.is_failure())
        };
        let observed = self.observed.as_ref();
        let (dropped, dropped_count) =
            dropped(&self.trail, observed, ending, &self.names, has_failed);
        Summary {
            subject: self.subject,
            status,
            outcome: outcome.unwrap_or_default(),
            dropped,
            dropped_count,
            fields: answered.map_or_else(DesiredFields::unknown, |answered| answered.fields),
            steps,
        }
    }
}

#[cfg(test)]
mod tests;
