//! What an index entry covers of its reconcile.
//!
//! Invariant: an entry that was written before and is made again from the same messages covers the
//! same; one that lacks a message, or has one more, does not. Times alone don't tell: where the
//! clock stepped back, a late response may change neither the start nor the end.

use serde::{Deserialize, de::IgnoredAny};

use super::Line;
use crate::time::Timestamp;

/// The times of a reconcile, and how many of its messages are known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Coverage {
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub requests: usize,
    pub responses: usize,
}

/// As much of a step as it takes.
#[derive(Debug, Deserialize)]
pub struct CoveredStep {
    request: Option<IgnoredAny>,
    ended_at: Option<Timestamp>,
}

impl Coverage {
    /// Of an entry that was not read as a whole.
    pub fn of_steps(started_at: Timestamp, ended_at: Timestamp, steps: &[CoveredStep]) -> Self {
        Self {
            started_at,
            ended_at,
            requests: steps.iter().filter(|step| step.request.is_some()).count(),
            responses: steps.iter().filter(|step| step.ended_at.is_some()).count(),
        }
    }
}

impl Line {
    pub fn coverage(&self) -> Coverage {
        let (started_at, ended_at) = (self.started_at, self.ended_at);
        let steps = self.steps.iter();
        let responses = steps.clone().filter(|step| step.ended_at.is_some());
        Coverage {
            started_at,
            ended_at,
            requests: steps.filter(|step| step.request.is_some()).count(),
            responses: responses.count(),
        }
    }
}
