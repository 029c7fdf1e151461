//! What the spans of a line say, rule by rule.

mod events;
mod hostile;
mod picture;
mod rules;
mod strategies;
mod times;

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{Span, span::Event},
};

use super::*;
use crate::{
    line::{
        Desired, Dropped, LineStep, LineSubject, ObjectRef, Outcome, PayloadRef, PayloadState,
        Severity, SeverityCounts, Status as LineStatus, StepFacts, StepResult, SubjectFacts,
    },
    reconcile::SubjectType,
    time::Timestamp,
};

const TRACE: &str = "784cb8b6-6017-4578-99ba-46a9391f7d1d";
const KEY: &str = "v1/reconciles/Network.example.org/default/prod-net/2026-11-16/\
                   043646.133-784cb8b6-6017-4578-99ba-46a9391f7d1d.json.zst";

fn links() -> Links {
    Links::new("http://localhost:8686", "s3://traces")
}

/// Milliseconds after the reconcile began.
fn at(millis: i64) -> Timestamp {
    Timestamp::from_nanos(1_794_803_806_133_000_000 + millis * 1_000_000)
}

/// An answered step that took 20 ms, as the place in its pipeline.
fn step(index: i32) -> LineStep {
    let span_id = format!("0f0a1b2c-3d4e-4f50-8172-93a4b5c6d7{index:02}");
    let payload = |half: &str| PayloadRef {
        pointer: format!("/steps/{index}/{half}"),
        sha256: "ab".repeat(32),
        size: 4096,
        redacted: 0,
    };
    LineStep {
        index,
        name: format!("step-{index}"),
        iteration: 0,
        function: "function-go-templating".to_owned(),
        otel_span_id: OtelSpanId::of(&span_id).to_string(),
        span_id,
        started_at: at(i64::from(index) * 25),
        ended_at: Some(at(i64::from(index) * 25 + 20)),
        duration_ms: Some(20.0),
        status: LineStatus::Ok,
        error: None,
        error_type: None,
        cached: false,
        request: Some(payload("request")),
        response: Some(payload("response")),
        facts: StepFacts {
            desired: Some(Desired::default()),
            ..StepFacts::default()
        },
    }
}

fn line(steps: Vec<LineStep>) -> Line {
    let ends = steps.iter().filter_map(|step| step.ended_at);
    let ended_at = ends.max().unwrap_or(at(0));
    Line {
        v: 1,
        trace_id: TRACE.to_owned(),
        otel_trace_id: OtelTraceId::of(TRACE).to_string(),
        root_span_id: OtelTraceId::of(TRACE).root_span().to_string(),
        previous_trace_id: None,
        parent_trace_id: None,
        started_at: at(0),
        ended_at,
        duration_ms: 0.0,
        subject: LineSubject {
            kind_of_subject: SubjectType::Composite,
            api_version: "example.org/v1".to_owned(),
            kind: "Network".to_owned(),
            namespace: "default".to_owned(),
            name: "prod-net".to_owned(),
            uid: "0c6fbd0c-5a6c-4a68-9e0b-1f4a1f3f0001".to_owned(),
            composition: "networks-aws".to_owned(),
            facts: SubjectFacts::default(),
        },
        status: LineStatus::Ok,
        changed: false,
        revision: 0,
        steps,
        object: ObjectRef {
            key: KEY.to_owned(),
            state: PayloadState::Stored,
            bytes: 9000,
            redaction: None,
        },
        resources: Outcome::default(),
        dropped: Vec::new(),
        dropped_count: 0,
        flapping: Vec::new(),
        flapping_count: 0,
    }
}

fn result(severity: Severity, message: &str) -> StepResult {
    StepResult {
        severity,
        reason: None,
        message: message.to_owned(),
    }
}

fn dropped(resource: &str, step: Option<u32>, observed: bool) -> Dropped {
    Dropped {
        resource: resource.to_owned(),
        step,
        observed,
    }
}

/// The value of an attribute as text, a list with commas.
fn shown(attributes: &[KeyValue], key: &str) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.key == key)?;
    let value = attribute.value.as_ref()?.value.as_ref()?;
    Some(match value {
        Value::StringValue(text) => text.clone(),
        Value::BoolValue(flag) => flag.to_string(),
        Value::IntValue(number) => number.to_string(),
        Value::DoubleValue(number) => number.to_string(),
        Value::ArrayValue(array) => {
            let texts: Vec<_> = array.values.iter().map(text_of).collect();
            texts.join(",")
        }
        other => panic!("{key} is {other:?}"),
    })
}

fn text_of(value: &AnyValue) -> &str {
    match &value.value {
        Some(Value::StringValue(text)) => text,
        other => panic!("{other:?} is no text"),
    }
}

trait Says {
    /// The value of an attribute; empty if it is not there.
    fn says(&self, key: &str) -> String;
}

impl Says for Span {
    fn says(&self, key: &str) -> String {
        shown(&self.attributes, key).unwrap_or_default()
    }
}

impl Says for Event {
    fn says(&self, key: &str) -> String {
        shown(&self.attributes, key).unwrap_or_default()
    }
}

fn event_names(span: &Span) -> Vec<&str> {
    span.events
        .iter()
        .map(|event| event.name.as_str())
        .collect()
}
