//! Recorded messages: what a real Crossplane emitted, to be sent again.
//!
//! A capture is a zstd-compressed file of JSON lines, one a call, in the order of arrival.
//! Invariant: a message is the bytes that were recorded, unless it is moved in time, which changes
//! its timestamp and nothing else.

use std::io::{self, BufRead as _, BufReader};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use prost::Message as _;
use serde::Deserialize;

use crate::{
    decode::{StepMessage, decode_step},
    proto::pipeline,
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

/// The same message with another timestamp; as it is, if it has none in the shipped layout.
pub fn with_timestamp(kind: RecordKind, message: &Bytes, timestamp: Timestamp) -> Bytes {
    let move_meta = |meta: &Bytes| {
        let mut meta = pipeline::StepMeta::decode(meta.clone()).ok()?;
        let nanos = timestamp.as_nanos();
        meta.timestamp = Some(prost_types::Timestamp {
            seconds: nanos.div_euclid(1_000_000_000),
            nanos: i32::try_from(nanos.rem_euclid(1_000_000_000)).ok()?,
        });
        Some(Bytes::from(meta.encode_to_vec()))
    };
    let moved = match kind {
        RecordKind::Request => pipeline::EmitRequestRequest::decode(message.clone())
            .ok()
            .and_then(|mut envelope| {
                envelope.meta = move_meta(&envelope.meta)?;
                Some(envelope.encode_to_vec())
            }),
        RecordKind::Response => pipeline::EmitResponseRequest::decode(message.clone())
            .ok()
            .and_then(|mut envelope| {
                envelope.meta = move_meta(&envelope.meta)?;
                Some(envelope.encode_to_vec())
            }),
    };
    moved.map_or_else(|| message.clone(), Bytes::from)
}
