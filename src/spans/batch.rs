//! Spans on their way to the collector, encoded once: an `ExportTraceServiceRequest` in bytes.
//!
//! Invariant: nothing between making a span and sending it takes it apart again, unless the
//! collector refuses it.

use bytes::{BufMut as _, Bytes};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest, common::v1::InstrumentationScope,
    resource::v1::Resource, trace::v1::Span,
};
use prost::{
    DecodeError, Message as _,
    encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len, message},
};

/// Numbers of fields: of a request, of what it says of a resource, of what that says of a scope.
const RESOURCE_SPANS: u32 = 1;
const RESOURCE: u32 = 1;
const SCOPE_SPANS: u32 = 2;
const SCOPE: u32 = 1;
const SPAN: u32 = 2;

/// Spans that gather.
#[derive(Debug, Default)]
pub struct SpanBatch {
    /// As they stand in what is said of a scope.
    encoded: Vec<u8>,
    count: u64,
}

impl SpanBatch {
    pub fn extend(&mut self, spans: &[Span]) {
        message::encode_repeated(SPAN, spans, &mut self.encoded);
        self.count += spans.len() as u64;
    }

    pub fn bytes(&self) -> usize {
        self.encoded.len()
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn clear(&mut self) {
        self.encoded.clear();
        self.count = 0;
    }

    /// One request with all of these spans under one resource and one scope.
    pub fn request(&self, resource: &Resource) -> EncodedSpans {
        let scope = InstrumentationScope {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let of_scope = message::encoded_len(SCOPE, &scope) + self.encoded.len();
        let of_resource = message::encoded_len(RESOURCE, resource) + nested_len(of_scope);
        let mut body = Vec::with_capacity(nested_len(of_resource));
        begin_nested(RESOURCE_SPANS, of_resource, &mut body);
        message::encode(RESOURCE, resource, &mut body);
        begin_nested(SCOPE_SPANS, of_scope, &mut body);
        message::encode(SCOPE, &scope, &mut body);
        body.put_slice(&self.encoded);
        EncodedSpans {
            body: body.into(),
            count: self.count,
        }
    }
}

fn begin_nested(field: u32, bytes: usize, out: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(bytes as u64, out);
}

/// What a message of this size takes as a field of another.
fn nested_len(bytes: usize) -> usize {
    key_len(RESOURCE_SPANS) + encoded_len_varint(bytes as u64) + bytes
}

/// A request as it goes over the wire.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EncodedSpans {
    pub body: Bytes,
    /// How many they are.
    pub count: u64,
}

impl EncodedSpans {
    pub fn of(request: &ExportTraceServiceRequest) -> Self {
        Self {
            body: request.encode_to_vec().into(),
            count: spans_in(request).count() as u64,
        }
    }

    /// All of these in one request.
    pub fn joined(parts: &[Self]) -> Self {
        // NOTE: messages that stand one after the other are one: what repeats is appended.
        let bodies: Vec<_> = parts.iter().map(|part| &*part.body).collect();
        Self {
            body: bodies.concat().into(),
            count: parts.iter().map(|part| part.count).sum(),
        }
    }

    pub fn decode(&self) -> Result<ExportTraceServiceRequest, DecodeError> {
        ExportTraceServiceRequest::decode(self.body.clone())
    }
}

/// All spans of a request.
pub fn spans_in(request: &ExportTraceServiceRequest) -> impl Iterator<Item = &Span> {
    let resources = request.resource_spans.iter();
    let scopes = resources.flat_map(|resource| &resource.scope_spans);
    scopes.flat_map(|scope| &scope.spans)
}
