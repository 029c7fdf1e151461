//! Why a step or a reconcile failed, in few values for searching and in words for people.
//!
//! Invariant: a step without a response failed, whatever its status says, unless the sidecar did not
//! wait for it; nothing else fails that its status does not call a failure.

use crate::line::{INTERRUPTED, Line, LineStep, Severity, Status, StepResult};

/// What stands for every missing response.
const NO_RESPONSE: &str = "no_response";

/// Why something failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Failure<'l> {
    pub(super) error_type: &'l str,
    pub(super) message: &'l str,
}

/// How a step ended, as its span says it.
pub(super) fn step_status(step: &LineStep) -> Status {
    if step.ended_at.is_some() {
        step.status
    } else {
        step.status.max(Status::Incomplete)
    }
}

impl<'l> Failure<'l> {
    pub(super) fn of_step(step: &'l LineStep) -> Option<Self> {
        let fallback = Self::by_status(step_status(step))?;
        if is_interrupted(step) {
            return None;
        }
        let error_type = match &step.error_type {
            _ if step.ended_at.is_none() => NO_RESPONSE,
            Some(error_type) if !error_type.is_empty() => error_type,
            _ => fallback.error_type,
        };
        Some(Self {
            error_type,
            message: message_of(step).unwrap_or(fallback.message),
        })
    }

    /// Where a reconcile failed, if any step did, and why.
    pub(super) fn of_line(line: &'l Line) -> Option<(Self, Option<&'l LineStep>)> {
        let fallback = Self::by_status(line.status)?;
        // The first of the worst.
        let steps = line.steps.iter().rev();
        let failed = steps.max_by_key(|step| step_status(step));
        if failed.is_some_and(is_interrupted) {
            return None;
        }
        let of_step = failed.and_then(|step| Some((Self::of_step(step)?, Some(step))));
        Some(of_step.unwrap_or((fallback, None)))
    }

    /// What is said where nobody said more.
    fn by_status(status: Status) -> Option<Self> {
        let (error_type, message) = match status {
            Status::Ok | Status::Warning => return None,
            Status::Incomplete => (NO_RESPONSE, "no response came"),
            Status::Fatal => ("fatal", "a result was fatal"),
            // The word of OpenTelemetry's conventions for what has no other.
            Status::Error => ("_OTHER", "the call failed"),
        };
        Some(Self {
            error_type,
            message,
        })
    }
}

fn is_interrupted(step: &LineStep) -> bool {
    step.error_type.as_deref() == Some(INTERRUPTED)
}

/// The first thing that a step has to say about its failure.
fn message_of(step: &LineStep) -> Option<&str> {
    let is_fatal = |result: &&StepResult| result.severity == Severity::Fatal;
    let fatal = step.facts.results.iter().find(is_fatal);
    let error = step.error.as_deref().filter(|error| !error.is_empty());
    let message = error.or_else(|| Some(fatal?.message.as_str()));
    message.filter(|message| !message.is_empty())
}
