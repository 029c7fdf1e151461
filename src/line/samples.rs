//! Lines to test with.

use super::{
    Line, LineStep, LineSubject, ObjectRef, Outcome, PayloadState, Status, StepFacts, SubjectFacts,
};
use crate::{
    ids::{OtelSpanId, OtelTraceId},
    reconcile::SubjectType,
    time::Timestamp,
};

/// 2023-11-14T04:00:00Z: past, whatever the clock of a store says.
const HOUR_START: i64 = 1_699_934_400;

/// Seconds after four o'clock.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_parts(HOUR_START + seconds, 0).unwrap()
}

/// A line of one step.
pub(crate) fn line(trace_id: &str, started_at: Timestamp) -> Line {
    let otel_trace_id = OtelTraceId::of(trace_id);
    Line {
        v: 1,
        trace_id: trace_id.to_owned(),
        otel_trace_id: otel_trace_id.to_string(),
        root_span_id: otel_trace_id.root_span().to_string(),
        previous_trace_id: None,
        parent_trace_id: None,
        started_at,
        ended_at: started_at,
        duration_ms: 12.5,
        subject: subject(),
        status: Status::Ok,
        changed: false,
        revision: 0,
        steps: vec![step("function-a", started_at)],
        object: ObjectRef {
            key: format!("v1/reconciles/{trace_id}"),
            state: PayloadState::Stored,
            bytes: 1,
            redaction: None,
        },
        resources: Outcome::default(),
        dropped: Vec::new(),
        dropped_count: 0,
        flapping: Vec::new(),
        flapping_count: 0,
    }
}

/// The same with this many steps.
pub(crate) fn with_steps(mut line: Line, steps: usize) -> Line {
    line.steps = vec![step("function-a", line.started_at); steps];
    line
}

/// The same, grown to about this many bytes that don't compress.
pub(crate) fn padded(mut line: Line, bytes: usize) -> Line {
    let digits = |salt: usize| OtelTraceId::of(&format!("{}{salt}", line.trace_id)).to_string();
    line.resources.create = (0..bytes / 35).map(digits).collect();
    line
}

pub(crate) fn step(function: &str, started_at: Timestamp) -> LineStep {
    LineStep {
        index: 0,
        name: "first".to_owned(),
        iteration: 0,
        function: function.to_owned(),
        span_id: "span".to_owned(),
        otel_span_id: OtelSpanId::of("span").to_string(),
        started_at,
        ended_at: Some(started_at),
        duration_ms: Some(12.5),
        status: Status::Ok,
        error: None,
        error_type: None,
        cached: false,
        request: None,
        response: None,
        facts: StepFacts::default(),
    }
}

fn subject() -> LineSubject {
    LineSubject {
        kind_of_subject: SubjectType::Composite,
        api_version: "platform.example.org/v1".to_owned(),
        kind: "Network".to_owned(),
        namespace: "default".to_owned(),
        name: "prod-net".to_owned(),
        uid: "uid-1".to_owned(),
        composition: "networks".to_owned(),
        facts: SubjectFacts::default(),
    }
}
