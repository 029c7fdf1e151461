//! Puts reconciles together: records and a clock in, closed reconciles out. Pure.
//!
//! Core sends no end-of-pipeline message, so a reconcile is closed when
//!
//! - no response is outstanding and nothing came for [`Limits::idle`];
//! - the next reconcile of the same subject begins (at once if nothing is outstanding, else after
//!   [`Limits::idle`] of silence, since the two may run side by side);
//! - a step failed or returned FATAL, which ends a pipeline;
//! - a response is overdue by [`Limits::overdue`];
//! - too many are open or they take too much memory: the oldest goes first;
//! - one grows too long.
//!
//! What comes later for a closed reconcile opens it again under the same ids; whoever publishes
//! it joins the parts.
//!
//! Time is the log's, not the wall's: a record's arrival moves it forward, so that following the
//! same log again, at any speed, closes the same reconciles.
//!
//! Invariant: metadata, errors and positions only, never payloads, and no more of them in all than
//! [`Limits::bytes`]; every accepted position comes out in exactly one closed reconcile.

mod open;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use self::open::OpenReconcile;
use crate::{
    decode::StepMeta,
    reconcile::{
        ClosedReconcile, Closing, Half, NO_RESPONSE_AFTER, Subject, SubjectIdentity, TraceId,
    },
    record::{Position, RecordKind},
    time::Timestamp,
};

/// When to stop waiting, and for how much.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Core calls the next step within milliseconds of the last answer.
    pub idle: Duration,
    /// Core gives a reconcile 2 minutes; this leaves it some slack.
    pub overdue: Duration,
    /// A platform of 10,000 XRs has a few hundred open at once.
    pub open_reconciles: usize,
    /// Pipelines have a handful of steps, two records each.
    pub records_each: usize,
    /// A usual reconcile takes some 3 KB. An error may take 64 KiB.
    pub bytes: usize,
    /// One that fails ends with its first error.
    pub bytes_each: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(2),
            overdue: NO_RESPONSE_AFTER,
            open_reconciles: 4096,
            records_each: 1024,
            bytes: 8 * 1024 * 1024,
            bytes_each: 1024 * 1024,
        }
    }
}

/// A record with its payload looked at and put away.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub kind: RecordKind,
    pub meta: StepMeta,
    pub error: String,
    pub half: Half,
    /// The response says FATAL somewhere, which ends the pipeline if it is a result that says so.
    pub maybe_fatal: bool,
}

impl Arrival {
    /// When the step began, by the sender's clock if it tells.
    fn started_at(&self) -> Timestamp {
        self.meta.timestamp.unwrap_or(self.half.received_at)
    }
}

/// The open reconciles.
#[derive(Debug)]
pub struct Assembler {
    limits: Limits,
    now: Timestamp,
    /// How far `now` is ahead of the log's clock, which has stepped back by that much.
    ahead: Duration,
    open: HashMap<TraceId, OpenReconcile>,
    deadlines: BTreeSet<(Timestamp, TraceId)>,
    /// By the place of their first record in the log.
    oldest: BTreeMap<Position, TraceId>,
    /// By the arrival of the record that came first.
    arrivals: BTreeSet<(Timestamp, TraceId)>,
    newest_of: HashMap<SubjectIdentity, TraceId>,
    /// What the open ones take.
    bytes: usize,
}

impl Assembler {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            now: Timestamp::default(),
            ahead: Duration::ZERO,
            open: HashMap::new(),
            deadlines: BTreeSet::new(),
            oldest: BTreeMap::new(),
            arrivals: BTreeSet::new(),
            newest_of: HashMap::new(),
            bytes: 0,
        }
    }

    /// Takes a record in; whatever that closes goes to `closed`.
    pub fn accept(&mut self, arrival: Arrival, closed: &mut Vec<ClosedReconcile>) {
        self.follow_step_back(arrival.half.received_at);
        self.advance(arrival.half.received_at, closed);
        self.accept_late(arrival, closed);
    }

    /// The same for a record that came before others in the log: time is not what it says.
    pub fn accept_late(&mut self, arrival: Arrival, closed: &mut Vec<ClosedReconcile>) {
        let trace_id = trace_id_of(&arrival);
        let is_newest = self.begins_newest(&arrival);
        if is_newest && !self.open.contains_key(&trace_id) {
            self.succeed_previous(&arrival, closed);
        }
        if !self.open.contains_key(&trace_id) && self.open.len() >= self.limits.open_reconciles {
            self.close_oldest(closed);
        }

        let now = self.now;
        let subject = arrival.meta.subject.clone().unwrap_or_default();
        let reconcile = self
            .open
            .entry(trace_id.clone())
            .or_insert_with(|| OpenReconcile::new(subject, arrival.half.received_at));
        self.deadlines
            .remove(&(reconcile.deadline(&self.limits), trace_id.clone()));
        let is_new = reconcile.record_count() == 0;
        let bytes_before = if is_new {
            0
        } else {
            bytes_of(&trace_id, reconcile)
        };
        let (position, first) = (arrival.half.position, reconcile.first_received_at());
        if is_new {
            self.oldest.insert(position, trace_id.clone());
        }
        reconcile.add(arrival, now);
        if reconcile.record_count() == 1 || reconcile.first_received_at() != first {
            self.arrivals.remove(&(first, trace_id.clone()));
            self.arrivals
                .insert((reconcile.first_received_at(), trace_id.clone()));
        }
        // NOTE: after adding, which may be what names the subject.
        if is_newest {
            self.newest_of
                .insert(reconcile.subject().identity(), trace_id.clone());
        }

        let bytes = bytes_of(&trace_id, reconcile);
        self.bytes += bytes.saturating_sub(bytes_before);
        let is_too_long =
            reconcile.record_count() >= self.limits.records_each || bytes >= self.limits.bytes_each;
        if is_too_long {
            self.close(&trace_id, Closing::Flooded, closed);
        } else if reconcile.is_ended() {
            self.close(&trace_id, Closing::Ended, closed);
        } else {
            self.deadlines
                .insert((reconcile.deadline(&self.limits), trace_id));
        }
        while self.bytes > self.limits.bytes && !self.open.is_empty() {
            self.close_oldest(closed);
        }
    }

    /// Lets time pass. It never goes back: a clock that steps back stands still here, until a
    /// record shows that it stepped too far to be waited for.
    pub fn advance(&mut self, now: Timestamp, closed: &mut Vec<ClosedReconcile>) {
        self.now = self.now.max(now + self.ahead);
        while let Some((deadline, trace_id)) = self.deadlines.first().cloned() {
            if deadline > self.now {
                break;
            }
            let closing = self.open.get(&trace_id).map(OpenReconcile::closing_by_time);
            self.close(&trace_id, closing.unwrap_or(Closing::Idle), closed);
        }
    }

    /// Closes everything, whatever is outstanding.
    pub fn close_all(&mut self, closed: &mut Vec<ClosedReconcile>) {
        while let Some((_, trace_id)) = self.deadlines.first().cloned() {
            self.close(&trace_id, Closing::ShuttingDown, closed);
        }
    }

    /// When time next closes something, by the log's clock.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let first = self.deadlines.first();
        first.map(|(deadline, _)| *deadline - self.ahead)
    }

    /// Arrival of the oldest record in an open reconcile.
    pub fn oldest_arrival(&self) -> Option<Timestamp> {
        self.arrivals.first().map(|(arrival, _)| *arrival)
    }

    /// Where the first record of an open reconcile lies in the log.
    pub fn oldest_position(&self) -> Option<Position> {
        self.oldest.keys().next().copied()
    }

    /// Goes on from here if the clock stepped back further than anything is waited for: standing
    /// still until it is back would keep everything open for as long.
    fn follow_step_back(&mut self, received_at: Timestamp) {
        let behind = self.now.since(received_at + self.ahead);
        if behind > self.limits.overdue {
            self.ahead += behind;
        }
    }

    /// Whether this begins a reconcile of a subject with a name, and none that began before the
    /// newest one did: that is a straggler.
    fn begins_newest(&self, arrival: &Arrival) -> bool {
        let Some(subject) = &arrival.meta.subject else {
            return false;
        };
        if !begins_reconcile(arrival) || *subject == Subject::default() {
            return false;
        }
        let newest = self.newest_of.get(&subject.identity());
        let newest = newest.and_then(|trace_id| self.open.get(trace_id));
        newest.is_none_or(|newest| arrival.started_at() >= newest.started_at())
    }

    /// A reconcile of this subject begins: the one before has nothing more to come.
    fn succeed_previous(&mut self, arrival: &Arrival, closed: &mut Vec<ClosedReconcile>) {
        let Some(subject) = &arrival.meta.subject else {
            return;
        };
        let Some(previous) = self.newest_of.get(&subject.identity()).cloned() else {
            return;
        };
        let Some(reconcile) = self.open.get_mut(&previous) else {
            return;
        };
        if reconcile.is_outstanding() {
            self.deadlines
                .remove(&(reconcile.deadline(&self.limits), previous.clone()));
            reconcile.succeed(arrival.half.received_at, self.now);
            self.deadlines
                .insert((reconcile.deadline(&self.limits), previous));
        } else {
            self.close(&previous, Closing::Succeeded, closed);
        }
    }

    fn close_oldest(&mut self, closed: &mut Vec<ClosedReconcile>) {
        // NOTE: by place in the log, not by time: no two are equal, and no clock steps.
        if let Some(trace_id) = self.oldest.first_key_value().map(|(_, id)| id.clone()) {
            self.close(&trace_id, Closing::Flooded, closed);
        }
    }

    fn close(&mut self, trace_id: &TraceId, closing: Closing, closed: &mut Vec<ClosedReconcile>) {
        let Some(reconcile) = self.open.remove(trace_id) else {
            return;
        };
        self.bytes = self.bytes.saturating_sub(bytes_of(trace_id, &reconcile));
        self.deadlines
            .remove(&(reconcile.deadline(&self.limits), trace_id.clone()));
        self.arrivals
            .remove(&(reconcile.first_received_at(), trace_id.clone()));
        if let Some(position) = reconcile.first_position() {
            self.oldest.remove(&position);
        }
        let identity = reconcile.subject().identity();
        if self.newest_of.get(&identity) == Some(trace_id) {
            self.newest_of.remove(&identity);
        }
        closed.push(reconcile.close(trace_id.clone(), closing));
    }
}

/// What an open reconcile takes, with its ids in the lists of all.
fn bytes_of(trace_id: &TraceId, reconcile: &OpenReconcile) -> usize {
    trace_id.0.len() + reconcile.memory_bytes()
}

/// Core begins every pipeline with a request for step 0.
fn begins_reconcile(arrival: &Arrival) -> bool {
    arrival.kind == RecordKind::Request
        && arrival.meta.step_index == 0
        && arrival.meta.iteration == 0
        && !arrival.meta.trace_id.is_empty()
}

/// The trace id or, where there is none, whatever keeps this record apart from others.
fn trace_id_of(arrival: &Arrival) -> TraceId {
    let StepMeta {
        trace_id, span_id, ..
    } = &arrival.meta;
    if !trace_id.is_empty() {
        return TraceId(trace_id.as_str().into());
    }
    if !span_id.is_empty() {
        return TraceId(format!("span-{span_id}").into());
    }
    let Half {
        position,
        received_at,
        ..
    } = &arrival.half;
    let (segment, offset) = (position.segment.0, position.offset);
    TraceId(format!("record-{}-{segment}-{offset}", received_at.as_nanos()).into())
}

#[cfg(test)]
pub(crate) mod tests;
