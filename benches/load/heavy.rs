//! Reconciles that are hard work: Secrets in payloads of 32 MiB, and a payload of many keys.

use std::{
    fmt::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fastrand::Rng;
use prost::Message as _;
use spanplane::{
    client::InspectorClient,
    proto::pipeline::{
        CompositionMeta, EmitRequestRequest, EmitResponseRequest, StepMeta, step_meta::Context,
    },
    record::RecordKind,
    time::{Clock as _, SystemClock},
};
use tonic::Status;

use crate::{
    payload::{STEPS, uuid},
    rough::{Calls, PATIENCE},
};

/// The most that a message may have by default, with room for what is around the payload.
const LARGEST: usize = 32 * 1024 * 1024 - 64 * 1024;
const RECONCILES: usize = 2;
/// Each in a resource of its own.
const SECRET_EVERY: usize = 64 * 1024;

/// Two reconciles of an XR, one right after the other: each step's request and response as large as
/// can be, with Secrets among its resources.
pub(crate) async fn secrets(socket: &Path) -> Calls {
    let mut client = InspectorClient::new(socket.to_owned(), PATIENCE);
    let mut seen = Calls::default();
    for version in 0..RECONCILES {
        let trace_id = uuid(&mut Rng::new());
        for step in 0..STEPS {
            let meta = meta("heavy", &trace_id, step);
            let observed = with_secrets("observed", LARGEST, version, step);
            emit(
                &mut client,
                &mut seen,
                RecordKind::Request,
                request(&meta, observed),
            )
            .await;
            let desired = with_secrets("desired", LARGEST, version, step);
            emit(
                &mut client,
                &mut seen,
                RecordKind::Response,
                response(&meta, desired),
            )
            .await;
        }
    }
    seen
}

/// A reconcile with a payload of 15 MB that is little else than 1.5 million keys, then a small one.
pub(crate) async fn many_keys(socket: &Path) -> Calls {
    let mut client = InspectorClient::new(socket.to_owned(), PATIENCE);
    let mut seen = Calls::default();
    let keys = keys(1_500_000);
    for (name, payload) in [("keys", keys), ("small", small())] {
        let meta = meta(name, &uuid(&mut Rng::new()), 0);
        emit(
            &mut client,
            &mut seen,
            RecordKind::Request,
            request(&meta, payload),
        )
        .await;
        emit(
            &mut client,
            &mut seen,
            RecordKind::Response,
            response(&meta, small()),
        )
        .await;
    }
    seen
}

/// A reconcile of one step, whose halves are sent to two processes.
pub(crate) struct Split {
    meta: Bytes,
}

impl Split {
    pub(crate) fn new(xr: &str) -> Self {
        Self {
            meta: meta(xr, &uuid(&mut Rng::new()), 0),
        }
    }

    /// A request that is as large as can be, and no text.
    pub(crate) async fn ask(&self, client: &mut InspectorClient) -> Result<(), Status> {
        let message = EmitRequestRequest {
            request: vec![0xfe; LARGEST].into(),
            meta: self.meta.clone(),
        };
        let message = message.encode_to_vec().into();
        client.emit(RecordKind::Request, message).await
    }

    pub(crate) async fn answer(&self, client: &mut InspectorClient) -> Result<(), Status> {
        let message = response(&self.meta, small());
        client.emit(RecordKind::Response, message).await
    }
}

async fn emit(client: &mut InspectorClient, seen: &mut Calls, kind: RecordKind, message: Bytes) {
    let begun = Instant::now();
    let answer: Result<(), Status> = client.emit(kind, message).await;
    let took: Duration = begun.elapsed();
    seen.note(took, answer);
}

fn with_secrets(state: &str, bytes: usize, version: usize, step: usize) -> String {
    let mut rng = Rng::with_seed((version * STEPS + step) as u64);
    let mut json = format!("{{\"{state}\":{{\"resources\":{{");
    let mut separator = "";
    for number in 0.. {
        if json.len() + SECRET_EVERY + 1024 > bytes {
            break;
        }
        let end = json.len() + SECRET_EVERY;
        put(
            &mut json,
            format_args!(
                "{separator}\"r{number}\":{{\"resource\":{{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"metadata\":\
                 {{\"name\":\"s{number}\"}},\"data\":{{\"password\":\"{:032x}\"}}}}}},\"o{number}\":{{\"resource\":\
                 {{\"apiVersion\":\"example.org/v1\",\"kind\":\"Bulk\",\"metadata\":{{\"name\":\"o{number}\"}},\"spec\":{{\"rows\":[0",
                rng.u128(..)
            ),
        );
        while json.len() < end {
            put(
                &mut json,
                format_args!(
                    ",{{\"cidr\":\"10.{}.{}.0/24\",\"port\":{},\"group\":\"sg-{:08x}\"}}",
                    rng.u8(..),
                    rng.u8(..),
                    rng.u16(..),
                    rng.u32(..)
                ),
            );
        }
        json.push_str("]}}}");
        separator = ",";
    }
    json.push_str("}}}");
    json
}

fn keys(count: usize) -> String {
    let mut json =
        "{\"observed\":{\"resources\":{\"many\":{\"resource\":{\"spec\":{\"k\":0".to_owned();
    for number in 0..count {
        put(&mut json, format_args!(",\"{number:x}\":1"));
    }
    json.push_str("}}}}}}");
    json
}

fn small() -> String {
    "{\"desired\":{},\"meta\":{\"tag\":\"small\"}}".to_owned()
}

fn request(meta: &Bytes, payload: String) -> Bytes {
    let message = EmitRequestRequest {
        request: payload.into(),
        meta: meta.clone(),
    };
    message.encode_to_vec().into()
}

fn response(meta: &Bytes, payload: String) -> Bytes {
    let message = EmitResponseRequest {
        response: payload.into(),
        error: String::new(),
        meta: meta.clone(),
    };
    message.encode_to_vec().into()
}

fn meta(name: &str, trace_id: &str, step: usize) -> Bytes {
    let now = SystemClock.now().as_nanos();
    let meta = StepMeta {
        timestamp: Some(prost_types::Timestamp {
            seconds: now.div_euclid(1_000_000_000),
            nanos: i32::try_from(now.rem_euclid(1_000_000_000)).unwrap_or_default(),
        }),
        trace_id: trace_id.to_owned(),
        span_id: uuid(&mut Rng::new()),
        step_index: i32::try_from(step).unwrap_or_default(),
        step_name: format!("step-{step}"),
        iteration: 0,
        function_name: "function-heavy".to_owned(),
        context: Some(Context::CompositionMeta(CompositionMeta {
            composition_name: "heavy".to_owned(),
            composite_resource_uid: name.to_owned(),
            composite_resource_name: name.to_owned(),
            composite_resource_namespace: "default".to_owned(),
            composite_resource_api_version: "example.org/v1".to_owned(),
            composite_resource_kind: "Platform".to_owned(),
        })),
    };
    meta.encode_to_vec().into()
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a text can't fail.
    out.write_fmt(text).unwrap_or_default();
}
