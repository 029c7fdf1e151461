//! What Crossplane sends: reconciles of a few XRs, interleaved, some of them equal to the one before.

use std::collections::VecDeque;

use prost::Message as _;

use crate::{
    proto::pipeline,
    record::{Record, RecordKind},
    time::Timestamp,
};

const XRS: usize = 4;

/// A message, and what is in it.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) record: Record,
    pub(super) kind: RecordKind,
    pub(super) trace_id: String,
    pub(super) span_id: String,
    pub(super) payload: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Load {
    random: fastrand::Rng,
    xrs: Vec<Xr>,
    reconciles: u64,
}

#[derive(Debug, Default)]
struct Xr {
    /// Payloads change with it.
    generation: u64,
    steps: usize,
    /// Of the reconcile under way.
    trace_id: String,
    /// Of the step under way.
    started_at: Timestamp,
    unsent: VecDeque<(usize, RecordKind)>,
}

impl Load {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed ^ 0x10ad),
            xrs: (0..XRS).map(|_| Xr::default()).collect(),
            reconciles: 0,
        }
    }

    /// The next message of some XR.
    pub(super) fn next(&mut self, now: Timestamp) -> Sent {
        let number = self.random.usize(..self.xrs.len());
        let (random, xr) = (&mut self.random, &mut self.xrs[number]);
        if xr.unsent.is_empty() {
            self.reconciles += 1;
            xr.trace_id = uuid(random);
            if xr.generation == 0 || random.u8(..) < 150 {
                xr.generation += 1;
                xr.steps = random.usize(1..5);
            }
            xr.unsent = (0..xr.steps)
                .flat_map(|step| [(step, RecordKind::Request), (step, RecordKind::Response)])
                .collect();
        }
        let (step, kind) = xr.unsent.pop_front().unwrap();
        if kind == RecordKind::Request {
            xr.started_at = now;
        }
        let span_id = format!("{}{step:04}", xr.trace_id.get(..32).unwrap());
        let payload = payload(number, step, kind, xr.generation);
        let sent = message(number, step, xr, &span_id, kind, &payload);
        Sent {
            record: Record {
                kind,
                received_at: now,
                message: sent.into(),
            },
            kind,
            trace_id: xr.trace_id.clone(),
            span_id,
            payload: payload.into_bytes(),
        }
    }
}

/// The members are sorted: the check reads them back so.
fn payload(xr: usize, step: usize, kind: RecordKind, generation: u64) -> String {
    let padding = "x".repeat(100 + 700 * xr);
    let resource = format!(r#"{{"resource":{{"kind":"Bucket","spec":{{"size":{generation}}}}}}}"#);
    let names = (0..=step).map(|number| format!(r#""r{number}":{resource}"#));
    let resources = names.collect::<Vec<_>>().join(",");
    match kind {
        RecordKind::Request => format!(
            r#"{{"desired":{{"resources":{{{resources}}}}},"meta":{{"tag":"{generation}-{step}"}},"padding":"{padding}"}}"#
        ),
        RecordKind::Response => {
            format!(r#"{{"desired":{{"resources":{{{resources}}}}},"padding":"{padding}"}}"#)
        }
    }
}

fn message(
    xr: usize,
    step: usize,
    state: &Xr,
    span_id: &str,
    kind: RecordKind,
    payload: &str,
) -> Vec<u8> {
    use pipeline::{CompositionMeta, StepMeta, step_meta::Context};

    let meta = StepMeta {
        trace_id: state.trace_id.clone(),
        span_id: span_id.to_owned(),
        step_index: i32::try_from(step).unwrap(),
        step_name: format!("step-{step}"),
        function_name: "function-simulated".to_owned(),
        timestamp: Some(prost_types::Timestamp {
            seconds: state.started_at.as_nanos() / 1_000_000_000,
            nanos: i32::try_from(state.started_at.as_nanos() % 1_000_000_000).unwrap(),
        }),
        context: Some(Context::CompositionMeta(CompositionMeta {
            composition_name: "simulated".to_owned(),
            composite_resource_uid: format!("uid-{xr}"),
            composite_resource_name: format!("xr-{xr}"),
            composite_resource_namespace: "default".to_owned(),
            composite_resource_api_version: "example.org/v1".to_owned(),
            composite_resource_kind: "Simulated".to_owned(),
        })),
        ..StepMeta::default()
    };
    let meta = meta.encode_to_vec().into();
    let payload = payload.as_bytes().to_vec().into();
    match kind {
        RecordKind::Request => pipeline::EmitRequestRequest {
            request: payload,
            meta,
        }
        .encode_to_vec(),
        RecordKind::Response => pipeline::EmitResponseRequest {
            response: payload,
            meta,
            ..pipeline::EmitResponseRequest::default()
        }
        .encode_to_vec(),
    }
}

fn uuid(random: &mut fastrand::Rng) -> String {
    let digits = format!("{:032x}", random.u128(..));
    let part = |range: std::ops::Range<usize>| digits.get(range).unwrap();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(part);
    parts.join("-")
}
