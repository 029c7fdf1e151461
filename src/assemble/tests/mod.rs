//! The assembler, driven by messages as short as `request("t", 0).at(5)`.
//!
//! Times are milliseconds of a log that begins at [`at`]`(0)`. A message's trace also names its
//! subject, unless it is said to be [`Message::of`] another.

mod bounds;
pub(crate) mod captures;
mod clock;
mod closing;
mod pairing;
mod properties;

use super::*;
use crate::{
    fingerprint::Fingerprint,
    reconcile::Step,
    record::{Position, SegmentId},
};

/// A time of the log.
fn at(millis: i64) -> Timestamp {
    Timestamp::from_nanos(1_794_803_806_000_000_000 + millis * 1_000_000)
}

/// A message yet to arrive.
#[derive(Clone, Debug)]
struct Message {
    kind: RecordKind,
    meta: StepMeta,
    payload: String,
    error: String,
    fatal: bool,
    arrival: Timestamp,
}

fn request(trace: &str, step: i32) -> Message {
    message(RecordKind::Request, trace, step)
}

fn response(trace: &str, step: i32) -> Message {
    message(RecordKind::Response, trace, step)
}

fn message(kind: RecordKind, trace: &str, step: i32) -> Message {
    let meta = StepMeta {
        trace_id: trace.to_owned(),
        span_id: format!("{trace}-{step}"),
        step_index: step,
        step_name: format!("step-{step}"),
        subject: Some(xr(trace)),
        ..StepMeta::default()
    };
    Message {
        kind,
        meta,
        payload: format!("{} of {trace}, step {step}", kind.as_str()),
        error: String::new(),
        fatal: false,
        arrival: at(0),
    }
}

fn xr(name: &str) -> Subject {
    Subject {
        api_version: "example.org/v1".to_owned(),
        kind: "XNetwork".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        ..Subject::default()
    }
}

impl Message {
    fn at(mut self, millis: i64) -> Self {
        self.arrival = at(millis);
        self
    }

    fn of(mut self, subject: &str) -> Self {
        self.meta.subject = Some(xr(subject));
        self
    }

    fn of_operation(mut self, name: &str) -> Self {
        let uid = format!("uid-of-{name}");
        self.meta.subject = Some(Subject::operation(name.to_owned(), uid));
        self
    }

    fn of_nobody(mut self) -> Self {
        self.meta.subject = None;
        self
    }

    /// When core says that the step began.
    fn began(mut self, millis: i64) -> Self {
        self.meta.timestamp = Some(at(millis));
        self
    }

    fn iteration(mut self, iteration: i32) -> Self {
        self.meta.iteration = iteration;
        self
    }

    fn span(mut self, span_id: &str) -> Self {
        span_id.clone_into(&mut self.meta.span_id);
        self
    }

    fn payload(mut self, payload: &str) -> Self {
        payload.clone_into(&mut self.payload);
        self
    }

    fn error(mut self, error: &str) -> Self {
        error.clone_into(&mut self.error);
        self.payload.clear();
        self
    }

    fn fatal(mut self) -> Self {
        self.fatal = true;
        self
    }

    fn into_arrival(self, position: Position) -> Arrival {
        Arrival {
            kind: self.kind,
            meta: self.meta,
            error: self.error,
            half: Half {
                position,
                fingerprint: Fingerprint::of(self.payload.as_bytes()),
                size: self.payload.len(),
                received_at: self.arrival,
            },
            maybe_fatal: self.fatal,
        }
    }
}

/// Where the nth message of a log lies.
fn nth(index: usize) -> Position {
    Position {
        segment: SegmentId(1),
        offset: u32::try_from(index).unwrap(),
    }
}

/// An assembler and the log it has followed so far.
#[derive(Debug)]
struct Following {
    assembler: Assembler,
    records: usize,
    closed: Vec<ClosedReconcile>,
}

impl Following {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        Self {
            assembler: Assembler::new(limits),
            records: 0,
            closed: Vec::new(),
        }
    }

    fn accept(&mut self, message: Message) {
        let arrival = message.into_arrival(nth(self.records));
        self.records += 1;
        self.assembler.accept(arrival, &mut self.closed);
    }

    fn accept_all(&mut self, messages: impl IntoIterator<Item = Message>) {
        for message in messages {
            self.accept(message);
        }
    }

    fn advance(&mut self, millis: i64) {
        self.assembler.advance(at(millis), &mut self.closed);
    }

    fn close_all(&mut self) {
        self.assembler.close_all(&mut self.closed);
    }

    /// What was closed since this was last asked.
    fn closed(&mut self) -> Vec<ClosedReconcile> {
        std::mem::take(&mut self.closed)
    }

    /// The one that was closed since this was last asked.
    fn only_closed(&mut self) -> ClosedReconcile {
        let closed = self.closed();
        let [only] = <[_; 1]>::try_from(closed).expect("one closed reconcile");
        only
    }

    /// Traces closed since this was last asked, and why.
    fn closings(&mut self) -> Vec<(String, Closing)> {
        let closed = self.closed().into_iter();
        closed
            .map(|reconcile| (reconcile.trace_id.to_string(), reconcile.closing))
            .collect()
    }

    fn open_count(&self) -> usize {
        self.assembler.open.len()
    }
}

/// What becomes of messages once everything is closed.
fn assemble(messages: impl IntoIterator<Item = Message>) -> Vec<ClosedReconcile> {
    let mut log = Following::new();
    log.accept_all(messages);
    log.close_all();
    log.closed()
}

fn assemble_one(messages: impl IntoIterator<Item = Message>) -> ClosedReconcile {
    let [only] = <[_; 1]>::try_from(assemble(messages)).expect("one closed reconcile");
    only
}

fn closing(trace: &str, why: Closing) -> (String, Closing) {
    (trace.to_owned(), why)
}

/// Where a step's request and response lie.
fn halves(step: &Step) -> (Option<usize>, Option<usize>) {
    let index_of = |half: &Option<Half>| half.as_ref().map(|half| half.position.offset as usize);
    (index_of(&step.request), index_of(&step.response))
}

fn steps_of(reconcile: &ClosedReconcile) -> Vec<(Option<usize>, Option<usize>)> {
    reconcile.steps.iter().map(halves).collect()
}

fn records_of(reconcile: &ClosedReconcile) -> Vec<usize> {
    let offsets = reconcile.records.iter().map(|position| position.offset);
    offsets.map(|offset| offset as usize).collect()
}
