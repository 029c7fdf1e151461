//! A reconcile that more may come for.
//!
//! Invariant: requests and responses pair by span, step and iteration, in any order. The same
//! payload again is a duplicate; another payload for the same place is kept as a step of its own,
//! since nothing that came is dropped.

use super::{Arrival, Limits};
use crate::{
    reconcile::{ClosedReconcile, Closing, Half, Step, Subject, TraceId},
    record::{Position, RecordKind},
    time::Timestamp,
};

#[derive(Debug)]
pub(super) struct OpenReconcile {
    subject: Subject,
    steps: Vec<Step>,
    records: Vec<Position>,
    first_received_at: Timestamp,
    /// By the assembler's time, which never goes back.
    last_activity: Timestamp,
    /// A response says FATAL somewhere.
    maybe_fatal: bool,
    /// A step failed.
    failed: bool,
    /// When the next reconcile of the subject began.
    succeeded_at: Option<Timestamp>,
    /// Of all steps.
    steps_bytes: usize,
}

impl OpenReconcile {
    pub(super) fn new(subject: Subject, first_received_at: Timestamp) -> Self {
        Self {
            subject,
            steps: Vec::new(),
            records: Vec::new(),
            first_received_at,
            last_activity: first_received_at,
            maybe_fatal: false,
            failed: false,
            succeeded_at: None,
            steps_bytes: 0,
        }
    }

    pub(super) fn add(&mut self, arrival: Arrival, now: Timestamp) {
        let started_at = arrival.started_at();
        let Arrival {
            kind,
            meta,
            error,
            half,
            maybe_fatal,
        } = arrival;
        self.records.push(half.position);
        self.first_received_at = self.first_received_at.min(half.received_at);
        self.last_activity = now;
        self.maybe_fatal |= kind == RecordKind::Response && maybe_fatal;
        self.failed |= kind == RecordKind::Response && !error.is_empty();
        if self.subject == Subject::default()
            && let Some(subject) = meta.subject
        {
            self.subject = subject;
        }

        let same_place = |step: &&mut Step| {
            step.span_id == meta.span_id
                && step.index == meta.step_index
                && step.iteration == meta.iteration
        };
        for step in self.steps.iter_mut().filter(same_place) {
            let same_error = kind == RecordKind::Request || step.error == error;
            match half_of(step, kind) {
                Some(known) if known.fingerprint == half.fingerprint && same_error => return,
                Some(_) => {}
                empty @ None => {
                    *empty = Some(half);
                    if kind == RecordKind::Response {
                        self.steps_bytes += error.len();
                        step.error = error;
                    }
                    return;
                }
            }
        }

        let mut step = Step {
            span_id: meta.span_id,
            index: meta.step_index,
            iteration: meta.iteration,
            name: meta.step_name,
            function: meta.function_name,
            started_at,
            error,
            request: None,
            response: None,
            unanswered: None,
        };
        *half_of(&mut step, kind) = Some(half);
        self.steps_bytes += step.memory_bytes();
        self.steps.push(step);
    }

    /// The next reconcile began, by the log's clock.
    pub(super) fn succeed(&mut self, at: Timestamp, now: Timestamp) {
        self.succeeded_at = Some(at);
        self.last_activity = now;
    }

    pub(super) fn subject(&self) -> &Subject {
        &self.subject
    }

    pub(super) fn first_received_at(&self) -> Timestamp {
        self.first_received_at
    }

    pub(super) fn first_position(&self) -> Option<Position> {
        self.records.first().copied()
    }

    /// When its first step began, by the sender's clock.
    pub(super) fn started_at(&self) -> Timestamp {
        let starts = self.steps.iter().map(|step| step.started_at);
        starts.min().unwrap_or(self.first_received_at)
    }

    /// Bytes in memory, about.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.subject.memory_bytes()
            + self.steps_bytes
            + size_of_val(self.records.as_slice())
    }

    pub(super) fn record_count(&self) -> usize {
        self.records.len()
    }

    /// A response may still come. Core calls one step at a time: once a later one has begun,
    /// the response of an earlier one is lost, not late.
    pub(super) fn is_outstanding(&self) -> bool {
        let place = |step: &Step| (step.index, step.iteration);
        let last = self.steps.iter().map(place).max();
        self.steps
            .iter()
            .any(|step| step.awaits_response() && Some(place(step)) == last)
    }

    /// Nothing comes after what ended it. A request that its response overtook still does.
    pub(super) fn is_ended(&self) -> bool {
        let overtaken = self.steps.iter().any(|step| step.request.is_none());
        (self.failed || self.maybe_fatal) && !overtaken && !self.is_outstanding()
    }

    /// Why it is closed once its deadline has passed.
    pub(super) fn closing_by_time(&self) -> Closing {
        match (self.is_outstanding(), self.succeeded_at.is_some()) {
            (true, true) => Closing::Succeeded,
            (true, false) => Closing::Overdue,
            (false, _) => Closing::Idle,
        }
    }

    /// When to stop waiting.
    pub(super) fn deadline(&self, limits: &Limits) -> Timestamp {
        let patience = if self.is_outstanding() && self.succeeded_at.is_none() {
            limits.overdue
        } else {
            limits.idle
        };
        self.last_activity + patience
    }

    pub(super) fn close(mut self, trace_id: TraceId, closing: Closing) -> ClosedReconcile {
        // Stable: steps for the same place stay in the order of their arrival.
        self.steps.sort_by_key(|step| (step.index, step.iteration));
        ClosedReconcile {
            trace_id,
            subject: self.subject,
            steps: self.steps,
            records: self.records,
            first_received_at: self.first_received_at,
            maybe_fatal: self.maybe_fatal,
            succeeded_at: self.succeeded_at,
            closing,
        }
    }
}

fn half_of(step: &mut Step, kind: RecordKind) -> &mut Option<Half> {
    match kind {
        RecordKind::Request => &mut step.request,
        RecordKind::Response => &mut step.response,
    }
}
