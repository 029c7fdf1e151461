//! A record's bytes → the step it belongs to, its payload, its error. Pure.
//!
//! `StepMeta` went over the wire in two layouts under one name. Field 3 tells them apart: in the
//! shipped one it is the span id, a string that is never empty; in the draft it is the step index,
//! a varint that is absent when zero.
//!
//! Invariant: every input decodes. What is wrong with it is told as [`Oddity`]; the payload, or
//! where even that can't be told apart the whole message, is always handed on. Payloads are slices
//! of the input, never copies, and nothing here looks into them.

use bytes::Bytes;
use prost::{
    Message as _,
    encoding::{DecodeContext, WireType, decode_key, skip_field},
};

use crate::{
    proto::{draft, pipeline},
    reconcile::{Subject, SubjectType},
    record::RecordKind,
    time::Timestamp,
};

/// Names and ids of Kubernetes objects take a few hundred bytes. A meta beyond this is none: it
/// would be kept in memory.
const MAX_META_BYTES: usize = 16 * 1024;
/// Errors are kept in memory too; gRPC carries none that is longer.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// A message taken apart.
#[derive(Clone, Debug, PartialEq)]
pub struct StepMessage {
    pub kind: RecordKind,
    pub meta: StepMeta,
    /// JSON, if the sender kept to the protocol.
    pub payload: Bytes,
    /// Why the call failed; empty when it did not.
    pub error: String,
    pub oddities: Vec<Oddity>,
}

/// Which step of which pipeline a message belongs to, whatever the layout.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepMeta {
    pub timestamp: Option<Timestamp>,
    pub trace_id: String,
    pub span_id: String,
    pub step_index: i32,
    pub step_name: String,
    pub iteration: i32,
    pub function_name: String,
    pub subject: Option<Subject>,
}

/// What is wrong with a message that is kept all the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Oddity {
    NotProtobuf,
    NoMeta,
    UnknownLayout,
    EmptyTraceId,
}

impl Oddity {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotProtobuf => "not_protobuf",
            Self::NoMeta => "no_meta",
            Self::UnknownLayout => "unknown_layout",
            Self::EmptyTraceId => "empty_trace_id",
        }
    }
}

/// Takes a message apart; see the module's invariant.
pub fn decode_step(kind: RecordKind, message: &Bytes) -> StepMessage {
    let Some(envelope) = decode_envelope(kind, message) else {
        return StepMessage {
            kind,
            meta: StepMeta::default(),
            payload: message.clone(),
            error: String::new(),
            oddities: vec![Oddity::NotProtobuf],
        };
    };
    let mut oddities = Vec::new();
    let meta = if envelope.meta.is_empty() {
        oddities.push(Oddity::NoMeta);
        StepMeta::default()
    } else if envelope.meta.len() > MAX_META_BYTES {
        oddities.push(Oddity::UnknownLayout);
        StepMeta::default()
    } else if let Some(meta) = decode_meta(&envelope.meta) {
        if meta.trace_id.is_empty() {
            oddities.push(Oddity::EmptyTraceId);
        }
        meta
    } else {
        oddities.push(Oddity::UnknownLayout);
        StepMeta::default()
    };
    StepMessage {
        kind,
        meta,
        payload: envelope.payload,
        error: envelope.error,
        oddities,
    }
}

struct Envelope {
    payload: Bytes,
    error: String,
    meta: Bytes,
}

fn decode_envelope(kind: RecordKind, message: &Bytes) -> Option<Envelope> {
    // Cloning `Bytes` counts a reference; decoding from it slices.
    let envelope = match kind {
        RecordKind::Request => {
            let pipeline::EmitRequestRequest { request, meta } =
                pipeline::EmitRequestRequest::decode(message.clone()).ok()?;
            Envelope {
                payload: request,
                error: String::new(),
                meta,
            }
        }
        RecordKind::Response => {
            let pipeline::EmitResponseRequest {
                response,
                error,
                meta,
            } = pipeline::EmitResponseRequest::decode(message.clone()).ok()?;
            Envelope {
                payload: response,
                error: shorten(error),
                meta,
            }
        }
    };
    Some(envelope)
}

/// The beginning of an error that is longer than any real one.
fn shorten(mut error: String) -> String {
    if error.len() > MAX_ERROR_BYTES {
        error.truncate(error.floor_char_boundary(MAX_ERROR_BYTES));
        error.push('…');
    }
    error
}

fn decode_meta(meta: &Bytes) -> Option<StepMeta> {
    // NOTE: the second try costs nothing on the wire as it is, and saves a message whose sender
    // left out the field that tells.
    match wire_type_of_field_3(meta) {
        Some(WireType::LengthDelimited) => decode_shipped(meta).or_else(|| decode_draft(meta)),
        Some(WireType::Varint) | None => decode_draft(meta).or_else(|| decode_shipped(meta)),
        Some(_) => None,
    }
}

fn wire_type_of_field_3(meta: &Bytes) -> Option<WireType> {
    let mut rest = meta.clone();
    while !rest.is_empty() {
        let (field, wire_type) = decode_key(&mut rest).ok()?;
        if field == 3 {
            return Some(wire_type);
        }
        skip_field(wire_type, field, &mut rest, DecodeContext::default()).ok()?;
    }
    None
}

fn decode_shipped(meta: &Bytes) -> Option<StepMeta> {
    use pipeline::step_meta::Context;

    let meta = pipeline::StepMeta::decode(meta.clone()).ok()?;
    let subject = meta.context.map(|context| match context {
        Context::OperationMeta(operation) => {
            Subject::operation(operation.operation_name, operation.operation_uid)
        }
        Context::CompositionMeta(composition) => Subject {
            kind_of_subject: SubjectType::Composite,
            api_version: composition.composite_resource_api_version,
            kind: composition.composite_resource_kind,
            namespace: composition.composite_resource_namespace,
            name: composition.composite_resource_name,
            uid: composition.composite_resource_uid,
            composition: composition.composition_name,
        },
    });
    Some(StepMeta {
        timestamp: meta
            .timestamp
            .and_then(|at| Timestamp::from_parts(at.seconds, at.nanos)),
        trace_id: meta.trace_id,
        span_id: meta.span_id,
        step_index: meta.step_index,
        step_name: meta.step_name,
        iteration: meta.iteration,
        function_name: meta.function_name,
        subject,
    })
}

fn decode_draft(meta: &Bytes) -> Option<StepMeta> {
    let meta = draft::StepMeta::decode(meta.clone()).ok()?;
    Some(StepMeta {
        timestamp: meta
            .timestamp
            .and_then(|at| Timestamp::from_parts(at.seconds, at.nanos)),
        trace_id: meta.trace_id,
        span_id: meta.span_id,
        step_index: meta.step_index,
        step_name: String::new(),
        iteration: meta.iteration,
        function_name: meta.function_name,
        subject: Some(Subject {
            kind_of_subject: SubjectType::Composite,
            api_version: meta.composite_resource_api_version,
            kind: meta.composite_resource_kind,
            namespace: meta.composite_resource_namespace,
            name: meta.composite_resource_name,
            uid: meta.composite_resource_uid,
            composition: meta.composition_name,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(payload: &'static [u8], meta: Vec<u8>) -> Bytes {
        let message = pipeline::EmitRequestRequest {
            request: payload.into(),
            meta: meta.into(),
        };
        message.encode_to_vec().into()
    }

    fn draft_meta() -> draft::StepMeta {
        draft::StepMeta {
            trace_id: "t".into(),
            span_id: "s".into(),
            step_index: 0,
            iteration: 2,
            function_name: "f".into(),
            composition_name: "c".into(),
            composite_resource_uid: "u".into(),
            composite_resource_name: "n".into(),
            composite_resource_namespace: "ns".into(),
            composite_resource_api_version: "g/v1".into(),
            composite_resource_kind: "K".into(),
            timestamp: Some(prost_types::Timestamp {
                seconds: 7,
                nanos: 5,
            }),
        }
    }

    #[test]
    fn the_draft_layout_is_told_by_field_3_whether_present_or_not() {
        for index in [0, 3] {
            let meta = draft::StepMeta {
                step_index: index,
                ..draft_meta()
            };
            let message = request(b"{}", meta.encode_to_vec());
            let step = decode_step(RecordKind::Request, &message);
            assert_eq!(step.oddities, []);
            assert_eq!(step.meta.step_index, index);
            assert_eq!((&*step.meta.trace_id, &*step.meta.span_id), ("t", "s"));
            assert_eq!(step.meta.timestamp, Timestamp::from_parts(7, 5));
            let subject = step.meta.subject.unwrap();
            assert_eq!(
                (&*subject.kind, subject.group(), &*subject.uid),
                ("K", "g", "u")
            );
        }
    }

    #[test]
    fn payloads_are_slices_of_the_message() {
        let message = request(br#"{"a":1}"#, draft_meta().encode_to_vec());
        let step = decode_step(RecordKind::Request, &message);
        assert!(message.as_ptr_range().contains(&step.payload.as_ptr()));
    }

    #[test]
    fn odd_messages_keep_their_payload() {
        let cases = [
            (request(b"{}", vec![]), Oddity::NoMeta),
            // Field 3 as a fixed64 is neither layout.
            (
                request(b"{}", vec![0x19, 0, 0, 0, 0, 0, 0, 0, 0]),
                Oddity::UnknownLayout,
            ),
            (
                request(
                    b"{}",
                    draft::StepMeta {
                        trace_id: String::new(),
                        ..draft_meta()
                    }
                    .encode_to_vec(),
                ),
                Oddity::EmptyTraceId,
            ),
        ];
        for (message, oddity) in cases {
            let step = decode_step(RecordKind::Request, &message);
            assert_eq!(step.oddities, [oddity]);
            assert_eq!(step.payload, "{}");
        }
    }

    #[test]
    fn what_is_no_protobuf_is_handed_on_whole() {
        let garbage = Bytes::from_static(b"\xff\xff\xff not protobuf");
        let step = decode_step(RecordKind::Response, &garbage);
        assert_eq!(step.oddities, [Oddity::NotProtobuf]);
        assert_eq!(step.payload, garbage);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_decode(bytes: Vec<u8>) {
            let bytes = Bytes::from(bytes);
            decode_step(RecordKind::Request, &bytes);
            decode_step(RecordKind::Response, &bytes);
            decode_meta(&bytes);
        }
    }
}
