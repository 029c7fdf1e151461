//! When spans begin and end, in nanoseconds since the Unix epoch.
//!
//! Invariant: no extent ends before it begins, and every step lies within its reconcile, whatever
//! the clocks said.

use std::time::Duration;

use crate::{
    line::{Line, LineStep},
    time::Timestamp,
};

/// From when to when a span lasts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Extent {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Extent {
    pub(super) fn of_reconcile(line: &Line) -> Self {
        let starts = line.steps.iter().map(|step| step.started_at);
        let start = starts.clone().fold(line.started_at, Timestamp::min);
        let ends = line.steps.iter().filter_map(|step| step.ended_at);
        let end = starts.chain(ends).fold(line.ended_at, Timestamp::max);
        Self {
            start: unix_nanos(start),
            end: unix_nanos(end.max(start)),
        }
    }

    /// A step without a response ends with its reconcile.
    pub(super) fn of_step(step: &LineStep, reconcile: Self) -> Self {
        let start = unix_nanos(step.started_at);
        let end = step.ended_at.map_or(reconcile.end, unix_nanos);
        Self {
            start,
            end: end.max(start),
        }
    }
}

/// By how much a step ended before it began: the clocks of core and of the sidecar are one, so it
/// was set back meanwhile.
pub(super) fn clock_skew(step: &LineStep) -> Option<Duration> {
    let ended_at = step.ended_at?;
    (ended_at < step.started_at).then(|| step.started_at.since(ended_at))
}

/// What is before 1970 can't be said.
fn unix_nanos(at: Timestamp) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(0)
}
