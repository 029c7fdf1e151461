//! Recorded messages: what a real Crossplane emitted, to be sent again.
//!
//! A capture is a zstd-compressed file of JSON lines, one a call, in the order of arrival.
//! Invariant: a message is the bytes that were recorded, unless it is replayed as one of another
//! run, which changes its timestamp and ids and nothing else, or put into the draft layout, which
//! changes its meta.

use std::{
    collections::HashMap,
    io::{self, BufRead as _, BufReader},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use prost::Message as _;
use serde::Deserialize;

use crate::{
    decode::{StepMessage, decode_step},
    proto::{
        draft,
        pipeline::{self, step_meta::Context},
    },
    reconcile::PayloadHash,
    record::{Record, RecordKind},
    time::Timestamp,
};

/// Why a capture can't be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error("cannot decompress the capture")]
    Decompress(#[from] io::Error),
    #[error("line {line} of the capture is no recorded call")]
    Line {
        line: usize,
        source: serde_json::Error,
    },
    #[error("line {line} of the capture has no base64 in `raw_b64`")]
    Message {
        line: usize,
        source: base64::DecodeError,
    },
}

#[derive(Deserialize)]
struct RecordedCall {
    rpc: Rpc,
    received_at_ns: i64,
    raw_b64: String,
}

#[derive(Deserialize)]
enum Rpc {
    EmitRequest,
    EmitResponse,
}

/// All messages of a capture, in the order of their arrival.
pub fn read_capture(compressed: &[u8]) -> Result<Vec<Record>, CaptureError> {
    let lines = BufReader::new(zstd::Decoder::new(compressed)?).lines();
    let records = lines.enumerate().map(|(index, text)| {
        let line = index + 1;
        let call: RecordedCall =
            serde_json::from_str(&text?).map_err(|source| CaptureError::Line { line, source })?;
        let message = STANDARD
            .decode(call.raw_b64)
            .map_err(|source| CaptureError::Message { line, source })?;
        Ok(Record {
            kind: match call.rpc {
                Rpc::EmitRequest => RecordKind::Request,
                Rpc::EmitResponse => RecordKind::Response,
            },
            received_at: Timestamp::from_nanos(call.received_at_ns),
            message: message.into(),
        })
    });
    records.collect()
}

/// A recorded message, as far as it can be told.
pub fn step_of(record: &Record) -> StepMessage {
    decode_step(record.kind, &record.message)
}

/// A function that took longer is not waited for any longer.
const LONGEST_CALL: Duration = Duration::from_millis(100);

/// Sends a capture again as what happens now, with ids of its own.
#[derive(Debug)]
pub struct Replay {
    run: String,
    /// When each call was made, then and now.
    calls: HashMap<String, (Timestamp, Timestamp)>,
}

impl Replay {
    /// Ids are made from those of the capture and `run`.
    pub fn new(run: String) -> Self {
        Self {
            run,
            calls: HashMap::new(),
        }
    }

    /// The message to send, and how long to wait before: what lay between a request and its
    /// response does so again.
    pub fn next(&mut self, record: &Record, now: Timestamp) -> (Duration, Bytes) {
        let span_id = step_of(record).meta.span_id;
        let is_response = record.kind == RecordKind::Response;
        let known = self.calls.get(&span_id).filter(|_| is_response);
        let (then, made_at) = known.copied().unwrap_or((record.received_at, now));
        self.calls.insert(span_id, (then, made_at));
        let took = record.received_at.since(then).min(LONGEST_CALL);
        let message = replayed(record, made_at, &self.run);
        ((made_at + took).since(now), message)
    }
}

/// The same message as one of another run: with another timestamp, and with ids made from its
/// own and `run`. As it is, if it is none of the shipped layout.
fn replayed(record: &Record, timestamp: Timestamp, run: &str) -> Bytes {
    let changed = with_meta(record.kind, &record.message, |mut meta| {
        let nanos = timestamp.as_nanos();
        meta.timestamp = Some(prost_types::Timestamp {
            seconds: nanos.div_euclid(1_000_000_000),
            nanos: i32::try_from(nanos.rem_euclid(1_000_000_000)).ok()?,
        });
        meta.trace_id = other_id(&meta.trace_id, run);
        meta.span_id = other_id(&meta.span_id, run);
        Some(meta.encode_to_vec())
    });
    changed.unwrap_or_else(|| record.message.clone())
}

/// The same message as the first published design has it: without a step name. `None` if it is of
/// an Operation, which that design does not know, or none of the shipped layout.
pub fn in_draft_layout(kind: RecordKind, message: &Bytes) -> Option<Bytes> {
    with_meta(kind, message, |meta| {
        let Some(Context::CompositionMeta(composition)) = meta.context else {
            return None;
        };
        let drafted = draft::StepMeta {
            trace_id: meta.trace_id,
            span_id: meta.span_id,
            step_index: meta.step_index,
            iteration: meta.iteration,
            function_name: meta.function_name,
            composition_name: composition.composition_name,
            composite_resource_uid: composition.composite_resource_uid,
            composite_resource_name: composition.composite_resource_name,
            composite_resource_namespace: composition.composite_resource_namespace,
            composite_resource_api_version: composition.composite_resource_api_version,
            composite_resource_kind: composition.composite_resource_kind,
            timestamp: meta.timestamp,
        };
        Some(drafted.encode_to_vec())
    })
}

/// The same message with another meta.
fn with_meta(
    kind: RecordKind,
    message: &Bytes,
    change: impl FnOnce(pipeline::StepMeta) -> Option<Vec<u8>>,
) -> Option<Bytes> {
    let change = |meta: &Bytes| {
        let meta = pipeline::StepMeta::decode(meta.clone()).ok()?;
        Some(Bytes::from(change(meta)?))
    };
    let changed = match kind {
        RecordKind::Request => {
            let mut envelope = pipeline::EmitRequestRequest::decode(message.clone()).ok()?;
            envelope.meta = change(&envelope.meta)?;
            envelope.encode_to_vec()
        }
        RecordKind::Response => {
            let mut envelope = pipeline::EmitResponseRequest::decode(message.clone()).ok()?;
            envelope.meta = change(&envelope.meta)?;
            envelope.encode_to_vec()
        }
    };
    Some(changed.into())
}

/// A UUID that stands for this id in this run.
fn other_id(id: &str, run: &str) -> String {
    let mut digits = PayloadHash::of(format!("{run} {id}").as_bytes()).to_string();
    digits.truncate(32);
    for dash in [20, 16, 12, 8] {
        digits.insert(dash, '-');
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_run_has_other_ids_and_times_and_the_same_payloads() {
        let capture = include_bytes!("../tests/fixtures/captures/dropper.jsonl.zst");
        let at = Timestamp::from_nanos(1_700_000_000_000_000_001);
        for record in read_capture(capture).unwrap() {
            let again = |run| {
                let message = replayed(&record, at, run);
                decode_step(record.kind, &message)
            };
            let (first, second, own) = (again("1"), again("2"), step_of(&record));
            assert_eq!(first.payload, own.payload);
            assert_eq!(first.meta.timestamp, Some(at));
            assert_eq!(first.meta.subject, own.meta.subject);
            assert_eq!(first.meta.trace_id.len(), 36);
            assert_ne!(first.meta.trace_id, own.meta.trace_id);
            assert_ne!(first.meta.trace_id, second.meta.trace_id);
            assert_ne!(first.meta.span_id, second.meta.span_id);
        }
    }

    #[test]
    fn a_response_comes_as_long_after_its_request_as_it_did() {
        let capture = include_bytes!("../tests/fixtures/captures/dropper.jsonl.zst");
        let records = read_capture(capture).unwrap();
        let [request, response, ..] = &records[..] else {
            panic!("the capture has a call");
        };
        let now = Timestamp::from_nanos(1_700_000_000_000_000_000);
        let mut replay = Replay::new("run".to_owned());
        let (wait, message) = replay.next(request, now);
        assert_eq!(wait, Duration::ZERO);
        assert_eq!(
            decode_step(request.kind, &message).meta.timestamp,
            Some(now)
        );
        let later = now + Duration::from_millis(1);
        let (wait, message) = replay.next(response, later);
        let took = response.received_at.since(request.received_at);
        assert_eq!(wait + Duration::from_millis(1), took);
        assert_eq!(
            decode_step(response.kind, &message).meta.timestamp,
            Some(now)
        );
    }
}
