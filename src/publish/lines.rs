//! The line of a reconcile: from its summary, or from the line of an equal one before it.
//!
//! Invariant: a line says the same of a reconcile whether it was read from the payloads or taken
//! from the reconcile before; only ids, times and what lies around it differ.

use std::time::Duration;

use super::StepPayloads;
use crate::{
    ids::OtelTraceId,
    line::{
        Coverage, FlappingField, Line, LineStep, LineSubject, MAX_TEXT_BYTES, ObjectRef,
        SubjectFacts,
    },
    reconcile::{ClosedReconcile, Step, Subject},
    spans::{StepIdentity, step_span_ids},
    summarise::Summary,
    text::cut_text,
    time::Timestamp,
};

/// An answer from core's cache takes about a millisecond from its request; a call of a function on
/// the same machine was seen to take two or more.
const CACHED_WITHIN: Duration = Duration::from_micros(1_500);

/// Texts of all steps, apart from what payloads say.
const HEADS_BYTES: usize = 256 * 1024;
/// Name, function, span id and error.
const HEAD_TEXTS: usize = 4;
/// More than a span id and most names take.
const MIN_HEAD_TEXT_BYTES: usize = 64;

/// What lies around a reconcile.
#[derive(Clone, Debug, Default)]
pub struct Context {
    pub previous_trace_id: Option<String>,
    pub parent_trace_id: Option<String>,
    pub changed: bool,
    pub before: Option<Before>,
    pub flapping: Vec<FlappingField>,
    pub flapping_count: u64,
}

/// What the reconcile before was answered.
#[derive(Clone, Debug)]
pub struct Before {
    answers: Vec<Answer>,
    /// When the last of them came.
    answered_at: Timestamp,
}

#[derive(Clone, Debug)]
struct Answer {
    function: String,
    tag: String,
    /// How long it is good for.
    lasts: f64,
}

impl Before {
    pub fn new(line: &Line, answered_at: Timestamp) -> Self {
        let answers = line.steps.iter().filter_map(|step| {
            Some(Answer {
                function: step.function.clone(),
                tag: step.facts.tag.clone()?,
                lasts: step.facts.ttl_s.unwrap_or_default(),
            })
        });
        Self {
            answers: answers.collect(),
            answered_at,
        }
    }
}

/// The line of a reconcile that was read.
pub fn line_of(
    reconcile: &ClosedReconcile,
    summary: Summary,
    payloads: Vec<StepPayloads>,
    object: ObjectRef,
    context: Context,
) -> Line {
    let mut payloads = payloads.into_iter();
    let mut summaries = summary.steps.into_iter();
    let cut_head = |text: &str| cut_head(text, reconcile.steps.len());
    let steps = reconcile.steps.iter().map(|step| {
        let (status, error_type, facts) = match summaries.next() {
            Some(summary) => (summary.status, summary.error_type, summary.facts),
            None => Default::default(),
        };
        let StepPayloads { request, response } = payloads.next().unwrap_or_default();
        LineStep {
            index: step.index,
            name: cut_head(&step.name),
            iteration: step.iteration,
            function: cut_head(&step.function),
            span_id: cut_head(&step.span_id),
            otel_span_id: String::new(),
            started_at: step.started_at,
            ended_at: answered_at(step),
            duration_ms: None,
            status,
            error: (!step.error.is_empty()).then(|| cut_head(&step.error)),
            error_type,
            cached: false,
            request,
            response,
            facts,
        }
    });
    let mut line = Line {
        v: 1,
        trace_id: reconcile.trace_id.to_string(),
        otel_trace_id: String::new(),
        root_span_id: String::new(),
        previous_trace_id: None,
        parent_trace_id: None,
        started_at: Timestamp::default(),
        ended_at: Timestamp::default(),
        duration_ms: 0.0,
        subject: subject_of(&reconcile.subject),
        status: summary.status,
        changed: true,
        revision: 0,
        steps: steps.collect(),
        object,
        resources: summary.outcome,
        dropped: summary.dropped,
        dropped_count: summary.dropped_count,
        flapping: Vec::new(),
        flapping_count: 0,
    };
    line.subject.facts = summary.subject;
    place(&mut line, reconcile, context);
    line
}

/// The line of a reconcile that asked and answered the same as the one of `last`.
pub fn line_again(
    last: Line,
    reconcile: &ClosedReconcile,
    object: ObjectRef,
    context: Context,
) -> Line {
    let mut line = Line {
        object,
        revision: 0,
        ..last
    };
    line.trace_id = reconcile.trace_id.to_string();
    for (step, again) in line.steps.iter_mut().zip(&reconcile.steps) {
        step.span_id = cut_head(&again.span_id, reconcile.steps.len());
        step.started_at = again.started_at;
        step.ended_at = answered_at(again);
    }
    place(&mut line, reconcile, context);
    line
}

/// Says when it was and what lay around it.
fn place(line: &mut Line, reconcile: &ClosedReconcile, context: Context) {
    let trace_id = OtelTraceId::of(&reconcile.trace_id.0);
    line.otel_trace_id = trace_id.to_string();
    line.root_span_id = trace_id.root_span().to_string();
    line.started_at = reconcile.started_at();
    line.ended_at = ended_at(reconcile);
    line.duration_ms = millis(line.started_at, line.ended_at);
    let span_ids = step_span_ids(trace_id, line.steps.iter().map(StepIdentity::of));
    for (step, span_id) in line.steps.iter_mut().zip(span_ids) {
        step.otel_span_id = span_id.to_string();
    }
    for (step, call) in line.steps.iter_mut().zip(&reconcile.steps) {
        step.duration_ms = step.ended_at.map(|end| millis(step.started_at, end));
        step.cached = context
            .before
            .as_ref()
            .is_some_and(|before| is_cached(step, call, before));
    }
    line.changed = context.changed;
    line.previous_trace_id = context.previous_trace_id;
    line.parent_trace_id = context.parent_trace_id;
    line.flapping = context.flapping;
    line.flapping_count = context.flapping_count;
}

fn subject_of(subject: &Subject) -> LineSubject {
    LineSubject {
        kind_of_subject: subject.kind_of_subject,
        api_version: cut(&subject.api_version),
        kind: cut(&subject.kind),
        namespace: cut(&subject.namespace),
        name: cut(&subject.name),
        uid: cut(&subject.uid),
        composition: cut(&subject.composition),
        facts: SubjectFacts::default(),
    }
}

/// What core sends is short; what somebody else sends need not be.
fn cut(text: &str) -> String {
    cut_text(text, MAX_TEXT_BYTES)
}

/// The same for a text of a step, of which there may be very many.
fn cut_head(text: &str, steps: usize) -> String {
    let each = HEADS_BYTES / HEAD_TEXTS / steps.max(1);
    cut_text(text, each.clamp(MIN_HEAD_TEXT_BYTES, MAX_TEXT_BYTES))
}

fn answered_at(step: &Step) -> Option<Timestamp> {
    step.response.as_ref().map(|half| half.received_at)
}

/// What a line of this reconcile covers.
pub fn coverage_of(reconcile: &ClosedReconcile) -> Coverage {
    let steps = reconcile.steps.iter();
    let responses = steps.clone().filter(|step| step.response.is_some());
    Coverage {
        started_at: reconcile.started_at(),
        ended_at: ended_at(reconcile),
        requests: steps.filter(|step| step.request.is_some()).count(),
        responses: responses.count(),
    }
}

/// When its last response came or, where none did, when waiting for it ended.
fn ended_at(reconcile: &ClosedReconcile) -> Timestamp {
    let ends = reconcile.steps.iter().map(|step| {
        let unanswered = reconcile.unanswered(step).map(|it| it.until);
        unanswered
            .or_else(|| answered_at(step))
            .unwrap_or(step.started_at)
    });
    ends.max()
        .unwrap_or(reconcile.first_received_at)
        .max(reconcile.started_at())
}

/// The same function was asked the same within the time that its answer is good for, and the
/// answer took next to nothing. Core marks nothing, so that this is a guess; but what failed, and
/// what is good for no time, is never kept.
fn is_cached(step: &LineStep, call: &Step, before: &Before) -> bool {
    let (Some(request), Some(response)) = (&call.request, &call.response) else {
        return false;
    };
    let twin = before.answers.iter().find(|answer| {
        answer.function == step.function && Some(&answer.tag) == step.facts.tag.as_ref()
    });
    let lasts = twin.map_or(0.0, |answer| answer.lasts);
    let may_be_kept = |ttl: f64| ttl > 0.0;
    step.error.is_none()
        && may_be_kept(lasts)
        && step.facts.ttl_s.is_some_and(may_be_kept)
        && response.received_at.since(request.received_at) <= CACHED_WITHIN
        && step.started_at.since(before.answered_at).as_secs_f64() <= lasts
}

#[expect(
    clippy::cast_precision_loss,
    reason = "exact up to a hundred days, and nobody minds beyond"
)]
fn millis(from: Timestamp, to: Timestamp) -> f64 {
    to.since(from).as_nanos() as f64 / 1e6
}
