//! Pipelines as short as `[step(request, response)]`, and what is said about them.

mod bounds;
mod captures;
mod facts;
mod flapping;
mod outcomes;
mod properties;

use bytes::Bytes;

use super::*;
use crate::{
    fingerprint::Fingerprint,
    line::{MAX_ENTRIES, MAX_NAMES, MAX_TEXT_BYTES},
    reconcile::{Closing, Half, Step, Subject, TraceId},
    record::{Position, SegmentId},
    time::Timestamp,
};

/// A step with its payloads.
#[derive(Clone, Debug, Default)]
struct Call {
    request: Option<Bytes>,
    response: Option<Bytes>,
    error: String,
}

fn json(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn step(request: &str, response: &str) -> Call {
    Call {
        request: Some(json(request)),
        response: Some(json(response)),
        error: String::new(),
    }
}

impl Call {
    fn without_request(mut self) -> Self {
        self.request = None;
        self
    }

    fn without_response(mut self) -> Self {
        self.response = None;
        self
    }

    fn error(mut self, error: &str) -> Self {
        error.clone_into(&mut self.error);
        self
    }
}

fn half() -> Half {
    Half {
        position: Position {
            segment: SegmentId(1),
            offset: 0,
        },
        fingerprint: Fingerprint::of(b""),
        size: 0,
        received_at: Timestamp::default(),
    }
}

/// The reconcile that these calls make.
fn reconcile(subject: Subject, calls: &[Call]) -> ClosedReconcile {
    let steps = (0..).zip(calls).map(|(index, call)| Step {
        span_id: format!("span-{index}"),
        index,
        iteration: 0,
        name: format!("step-{index}"),
        function: "function".to_owned(),
        started_at: Timestamp::default(),
        error: call.error.clone(),
        request: call.request.as_ref().map(|_| half()),
        response: call.response.as_ref().map(|_| half()),
        unanswered: None,
    });
    ClosedReconcile {
        trace_id: TraceId("trace".into()),
        subject,
        steps: steps.collect(),
        records: Vec::new(),
        first_received_at: Timestamp::default(),
        maybe_fatal: false,
        succeeded_at: None,
        closing: Closing::Idle,
    }
}

fn summarise_of(subject: Subject, calls: &[Call]) -> Summary {
    let mut summariser = Summariser::new();
    for (place, call) in calls.iter().enumerate() {
        if let Some(request) = &call.request {
            summariser.read(place, RecordKind::Request, request);
        }
        if let Some(response) = &call.response {
            summariser.read(place, RecordKind::Response, response);
        }
    }
    summariser.finish(&reconcile(subject, calls))
}

fn summarise(calls: &[Call]) -> Summary {
    summarise_of(Subject::default(), calls)
}

/// A state of these resources, each a name and the size that it has.
fn state(resources: &[(&str, u64)]) -> String {
    let resource = |(name, size): &(&str, u64)| {
        format!(r#""{name}":{{"resource":{{"kind":"Disk","spec":{{"size":{size}}}}}}}"#)
    };
    let resources: Vec<_> = resources.iter().map(resource).collect();
    format!(r#"{{"resources":{{{}}}}}"#, resources.join(","))
}

fn request(observed: &[(&str, u64)], desired: &[(&str, u64)]) -> String {
    format!(
        r#"{{"observed":{},"desired":{}}}"#,
        state(observed),
        state(desired)
    )
}

fn response(desired: &[(&str, u64)]) -> String {
    format!(r#"{{"desired":{}}}"#, state(desired))
}
