//! A log that is full before anybody follows it, a sidecar that sends to a collector, and the
//! spans that arrived there.

use std::collections::{BTreeMap, BTreeSet};

use opentelemetry_proto::tonic::{
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use spanplane::{
    capture::step_of,
    config::{Settings, Telemetry},
    ids::OtelTraceId,
    record::Record,
    serve::Sidecar,
};
use tokio::net::TcpListener;

use crate::support::{Home, otlp::OtlpServer, stop};
pub(crate) use crate::support::{every_capture, fill_spool, until};

/// Attributes that say whether an object was there yet.
const STATES: [&str; 2] = ["crossplane.object.state", "crossplane.payload.state"];

/// Settings that send spans to this address. A sampler may have its argument behind a `=`.
pub(crate) fn sending_to(url: &str, sampler: &str, mut settings: Settings) -> Settings {
    let (sampler, argument) = sampler.split_once('=').unwrap_or((sampler, ""));
    let lookup = |name: &str| {
        let value = match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => url,
            "OTEL_EXPORTER_OTLP_PROTOCOL" => "grpc",
            "OTEL_TRACES_SAMPLER" => sampler,
            "OTEL_TRACES_SAMPLER_ARG" => argument,
            _ => return None,
        };
        Some(value.to_owned())
    };
    settings.telemetry = Telemetry::from_variables(&lookup);
    assert_eq!(settings.telemetry.ignored, []);
    settings
}

/// Runs a sidecar on a log that holds these messages; returns the spans that it sent.
pub(crate) async fn spans_of_log(home: &Home, flags: &[&str], records: &[Record]) -> Vec<Span> {
    fill_spool(&home.data_dir(), records).await;
    let collector = OtlpServer::start_grpc().await;
    let settings = sending_to(collector.url(), "always_on", home.settings(flags));
    let sidecar = Sidecar::start(settings).await.unwrap();
    let traces = traces_of(records);
    // NOTE: a stop would end waiting for responses that never come, and say so in the spans.
    until("every trace has its root", || {
        traces.is_subset(&roots(&spans(&collector)))
    })
    .await;
    stop(sidecar).await;
    spans(&collector)
}

/// What a collector took, in order.
pub(crate) fn spans(collector: &OtlpServer) -> Vec<Span> {
    let requests = collector.received().into_iter();
    let resources = requests.flat_map(|request| request.resource_spans);
    let scopes = resources.flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

/// The traces that messages belong to.
pub(crate) fn traces_of(records: &[Record]) -> BTreeSet<Vec<u8>> {
    let ids = records.iter().map(|record| step_of(record).meta.trace_id);
    ids.map(|id| OtelTraceId::of(&id).0.to_vec()).collect()
}

/// The traces whose root is among these.
pub(crate) fn roots(spans: &[Span]) -> BTreeSet<Vec<u8>> {
    let roots = spans.iter().filter(|span| is_root(span));
    roots.map(|span| span.trace_id.clone()).collect()
}

pub(crate) fn is_root(span: &Span) -> bool {
    span.parent_span_id.is_empty()
}

/// The spans of each trace, in the order in which they came.
pub(crate) fn by_trace(spans: &[Span]) -> BTreeMap<Vec<u8>, Vec<Span>> {
    let mut traces: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for span in spans {
        let trace = traces.entry(span.trace_id.clone()).or_default();
        trace.push(span.clone());
    }
    traces
}

/// A text attribute; empty if there is none.
pub(crate) fn text<'a>(attributes: &'a [KeyValue], key: &str) -> &'a str {
    match value(attributes, key) {
        Some(Value::StringValue(text)) => text,
        _ => "",
    }
}

pub(crate) fn value<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    let attribute = attributes.iter().find(|attribute| attribute.key == key)?;
    attribute.value.as_ref()?.value.as_ref()
}

/// A span without what may differ from one sending to the next: whether its object was there yet,
/// and where its home was.
pub(crate) fn without_state(mut span: Span, home: &str) -> Span {
    let in_events = span.events.iter_mut().map(|event| &mut event.attributes);
    for attributes in in_events.chain([&mut span.attributes]) {
        attributes.retain(|attribute| !STATES.contains(&attribute.key.as_str()));
        for attribute in attributes {
            let value = attribute.value.as_mut().and_then(|it| it.value.as_mut());
            if let Some(Value::StringValue(text)) = value {
                *text = text.replace(home, "HOME");
            }
        }
    }
    span
}

/// The ids of a trace and a span.
pub(crate) type SpanKey = (Vec<u8>, Vec<u8>);

/// Each span by the ids of its trace and its own; it may come twice, but says the same.
pub(crate) fn assert_told_once(spans: &[Span]) -> BTreeMap<SpanKey, Span> {
    let mut told: BTreeMap<_, Span> = BTreeMap::new();
    for span in spans {
        let id = (span.trace_id.clone(), span.span_id.clone());
        let known = told.entry(id).or_insert_with(|| span.clone());
        assert_eq!(known, span, "told in two ways");
    }
    told
}

/// What all payload events of these spans say of their objects.
pub(crate) fn payload_states(spans: &[Span]) -> Vec<String> {
    let events = spans.iter().flat_map(|span| &span.events);
    let states = events.map(|event| text(&event.attributes, "crossplane.payload.state"));
    let states = states.filter(|state| !state.is_empty());
    states.map(ToOwned::to_owned).collect()
}

/// An address at which nobody listens.
pub(crate) async fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}
