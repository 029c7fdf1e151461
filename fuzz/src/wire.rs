//! The decoder of messages: every input decodes, and what was encoded comes back.

use bytes::Bytes;
use prost::Message as _;
use spanplane::{
    capture::in_draft_layout,
    decode::{Oddity, StepMessage, StepMeta, decode_step},
    proto::{draft, pipeline},
    reconcile::Subject,
    record::RecordKind,
    time::Timestamp,
};

/// Of an error that is kept, and the sign that it was cut.
const MAX_ERROR_BYTES: usize = 64 * 1024 + 3;

/// Takes the bytes as a message of either kind, and as the meta of one.
pub fn check(input: &[u8]) {
    let message = Bytes::copy_from_slice(input);
    for kind in [RecordKind::Request, RecordKind::Response] {
        check_message(kind, &message);
        let envelope = pipeline::EmitRequestRequest {
            request: Bytes::from_static(b"{}"),
            meta: message.clone(),
        };
        let step = check_message(RecordKind::Request, &envelope.encode_to_vec().into());
        assert_eq!(step.payload, "{}", "the payload is kept whatever the meta");
    }
    check_shipped(input);
    check_draft(input);
}

fn check_message(kind: RecordKind, message: &Bytes) -> StepMessage {
    let step = decode_step(kind, message);
    assert_eq!(step, decode_step(kind, message));
    assert_eq!(step.kind, kind);
    assert!(step.error.len() <= MAX_ERROR_BYTES);
    let envelope = match kind {
        RecordKind::Request => pipeline::EmitRequestRequest::decode(message.clone())
            .map(|message| (message.request, message.meta)),
        RecordKind::Response => pipeline::EmitResponseRequest::decode(message.clone())
            .map(|message| (message.response, message.meta)),
    };
    let Ok((payload, meta)) = envelope else {
        assert_eq!(step.oddities, [Oddity::NotProtobuf]);
        assert_eq!(step.payload, message, "the whole message is kept");
        assert_eq!(step.meta, StepMeta::default());
        return step;
    };
    assert_eq!(step.payload, payload);
    let is_slice = message.as_ptr_range().contains(&step.payload.as_ptr());
    assert!(is_slice || step.payload.is_empty(), "the payload is copied");
    assert_eq!(step.oddities.contains(&Oddity::NoMeta), meta.is_empty());
    assert!(step.oddities.len() <= 1);
    let has_no_id = step.meta.trace_id.is_empty();
    assert_eq!(has_no_id, !step.oddities.is_empty());
    if step
        .oddities
        .iter()
        .any(|oddity| *oddity != Oddity::EmptyTraceId)
    {
        assert_eq!(step.meta, StepMeta::default());
    }
    step
}

/// What can be read as the shipped meta comes back, and from the draft layout too.
fn check_shipped(input: &[u8]) {
    use pipeline::step_meta::Context;

    let Ok(meta) = pipeline::StepMeta::decode(input) else {
        return;
    };
    // What tells the layouts apart, and a sign that there is a meta at all.
    if meta.span_id.is_empty() {
        return;
    }
    let envelope = pipeline::EmitResponseRequest {
        response: Bytes::new(),
        error: meta.step_name.clone(),
        meta: meta.encode_to_vec().into(),
    };
    let message = Bytes::from(envelope.encode_to_vec());
    let step = decode_step(RecordKind::Response, &message);
    assert_eq!(step.error, meta.step_name);
    let subject = meta.context.as_ref().map(|context| match context {
        Context::OperationMeta(meta) => {
            Subject::operation(meta.operation_name.clone(), meta.operation_uid.clone())
        }
        Context::CompositionMeta(meta) => Subject {
            api_version: meta.composite_resource_api_version.clone(),
            kind: meta.composite_resource_kind.clone(),
            namespace: meta.composite_resource_namespace.clone(),
            name: meta.composite_resource_name.clone(),
            uid: meta.composite_resource_uid.clone(),
            composition: meta.composition_name.clone(),
            ..Subject::default()
        },
    });
    let expected = StepMeta {
        timestamp: timestamp_of(meta.timestamp),
        trace_id: meta.trace_id,
        span_id: meta.span_id,
        step_index: meta.step_index,
        step_name: meta.step_name,
        iteration: meta.iteration,
        function_name: meta.function_name,
        subject,
    };
    assert_eq!(step.meta, expected);
    if let Some(drafted) = in_draft_layout(RecordKind::Response, &message) {
        let drafted = decode_step(RecordKind::Response, &drafted);
        let expected = StepMeta {
            step_name: String::new(),
            ..expected
        };
        assert_eq!(drafted.meta, expected);
    }
}

/// What can be read as the draft meta comes back.
fn check_draft(input: &[u8]) {
    let Ok(meta) = draft::StepMeta::decode(input) else {
        return;
    };
    let encoded = meta.encode_to_vec();
    if encoded.is_empty() {
        return;
    }
    let envelope = pipeline::EmitRequestRequest {
        request: Bytes::new(),
        meta: encoded.into(),
    };
    let step = decode_step(RecordKind::Request, &envelope.encode_to_vec().into());
    let expected = StepMeta {
        timestamp: timestamp_of(meta.timestamp),
        trace_id: meta.trace_id,
        span_id: meta.span_id,
        step_index: meta.step_index,
        step_name: String::new(),
        iteration: meta.iteration,
        function_name: meta.function_name,
        subject: Some(Subject {
            api_version: meta.composite_resource_api_version,
            kind: meta.composite_resource_kind,
            namespace: meta.composite_resource_namespace,
            name: meta.composite_resource_name,
            uid: meta.composite_resource_uid,
            composition: meta.composition_name,
            ..Subject::default()
        }),
    };
    assert_eq!(step.meta, expected);
}

fn timestamp_of(at: Option<prost_types::Timestamp>) -> Option<Timestamp> {
    at.and_then(|at| Timestamp::from_parts(at.seconds, at.nanos))
}
