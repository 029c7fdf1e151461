//! The spans of a reconcile: a pure function of its [`Line`].
//!
//! One root span, then one span a step. What is zero or empty is left out where its absence says
//! the same; where a step has more to say than there is room for, the end of its list in `step`
//! goes.
//!
//! | attribute | type | on | meaning |
//! | --- | --- | --- | --- |
//! | `crossplane.reconcile.status` | string | root | `ok`, `warning`, `incomplete`, `fatal` or `error` |
//! | `crossplane.step.status` | string | step | the same of one step |
//! | `error.type` | string | both | why it failed, of few values; `no_response`, `fatal` and `_OTHER` where nobody said |
//! | `crossplane.reconcile.changed` | bool | root | something differs from the previous reconcile |
//! | `crossplane.reconcile.steps` | int | root | how many steps ran |
//! | `crossplane.step.name`, `.index`, `.iteration` | string, int, int | step | which step of the pipeline |
//! | `crossplane.function.name`, `service.peer.name`, `peer.service` | string | step | the function that was called |
//! | `k8s.object.kind`, `k8s.object.name`, `k8s.namespace.name` | string | both | the XR, or the Operation |
//! | `k8s.object.uid`, `k8s.object.api_version` | string | root | of the same |
//! | `crossplane.composition.name` | string | both | the composition |
//! | `crossplane.composition.revision` | string | root | its revision |
//! | `crossplane.trace.id`, `crossplane.span.id` | string | both, step | the ids as core sent them |
//! | `crossplane.failed.step`, `.function` | string | root | where it failed |
//! | `crossplane.error` | string | both | why the call failed; on the root the first message of the failed step |
//! | `crossplane.object.state`, `.key`, `.url` | string | root | the object that holds the payloads |
//! | `crossplane.request.url`, `crossplane.response.url` | string | step | where a person reads the payload |
//! | `crossplane.resources.{create,update,delete,dropped}.count` | int | root | what will become of the composed resources |
//! | `crossplane.resources.{create,update,delete,dropped}.names` | strings | root | their plain names |
//! | `crossplane.resources.unchanged.count` | int | root | those that stay as they are |
//! | `crossplane.flapping.count`, `.fields` | int, strings | root | fields that go to and fro, as `resource:field` |
//! | `crossplane.xr.generation`, `.resource_version` | int, string | root | of the XR as it was observed |
//! | `rpc.system`, `rpc.service`, `rpc.method` | string | step | always the same: the call of a function |
//! | `crossplane.result.severity`, `.message` | string | step | the worst result, the first of these |
//! | `crossplane.results.{fatal,warning,normal}` | int | step | how many results |
//! | `crossplane.desired.total`, `.ready` | int | step | resources in the desired state that it returned |
//! | `crossplane.desired.{removed,added,changed}` | int | step | against the desired state that it was given; nothing is removed by a step that failed |
//! | `crossplane.desired.{removed,added,changed}.names` | strings | step | their plain names |
//! | `crossplane.requirements.missing` | strings | step | names of those that were asked for and not found |
//! | `crossplane.requirements` | strings | step | what it asked for besides, as `name=Kind.group` |
//! | `crossplane.clock_skew_ms` | double | step | by how much the end came before the start |
//! | `crossplane.response.cached`, `.ttl_s`, `.tag` | bool, double, string | step | core's cache |
//! | `crossplane.conditions` | strings | step | as `Type=status(reason)` |
//! | `crossplane.input.kind` | string | step | `kind.group` of its input |
//! | `crossplane.{conditions,requirements,requirements.missing}.count` | int | step | how many there are, where the list is cut |
//! | `crossplane.link` | string | link | from a root to another: `previous` or `parent` |
//!
//! Events:
//!
//! | event | on, at | attributes |
//! | --- | --- | --- |
//! | `function.request` | step, its start | `crossplane.payload.{state,url,uri,key,pointer,sha256,size}` |
//! | `function.response` | step, its end | the same |
//! | `function.result` | step, its end | `crossplane.result.{severity,reason,message}`, the first few |
//! | `resource.dropped` | the step that dropped it, or the root, its end | `crossplane.resource.{name,observed}`, `crossplane.step.name` |
//!
//! Invariant: whatever the line holds, a span stays within the limits of `attributes` and
//! `events`, steps lie within their root and events within their span, no two spans share an id,
//! and the same line gives the same bytes.

mod attributes;
mod batch;
mod events;
mod facts;
mod failure;
mod identity;
mod links;
mod render;
mod root;
mod step;
mod times;

use opentelemetry_proto::tonic::trace::v1::{Span, Status, status::StatusCode};

use self::{attributes::one_line, events::DropsByStep, failure::Failure, times::Extent};
pub use self::{
    batch::{EncodedSpans, SpanBatch, spans_in},
    identity::{StepIdentity, step_span_ids},
    links::Links,
    render::{Detail, render},
};
use crate::{
    ids::{OtelSpanId, OtelTraceId},
    line::Line,
};

/// W3C trace flags: what is sent is sampled.
const SAMPLED: u32 = 1;
/// Bytes of a span's name. Names are few and short; this is for those who make them otherwise.
const MAX_NAME_BYTES: usize = 128;
/// Bytes of a status message, which backends show in one line.
const MAX_STATUS_BYTES: usize = 255;

/// What every span of a reconcile is made from.
#[derive(Clone, Copy, Debug)]
struct Reconcile<'l> {
    line: &'l Line,
    links: &'l Links,
    trace_id: OtelTraceId,
    root_id: OtelSpanId,
    extent: Extent,
}

/// Root span first, then the steps in order.
pub fn spans_of(line: &Line, links: &Links) -> Vec<Span> {
    let trace_id = OtelTraceId::of(&line.trace_id);
    let reconcile = Reconcile {
        line,
        links,
        trace_id,
        root_id: trace_id.root_span(),
        extent: Extent::of_reconcile(line),
    };
    let drops = DropsByStep::of(line);
    let ids = step_span_ids(trace_id, line.steps.iter().map(StepIdentity::of));
    let steps = line.steps.iter().zip(ids).enumerate();
    let steps = steps
        .map(|(place, (step, id))| step::span_of_step(&reconcile, step, id, drops.of_step(place)));
    let mut spans = vec![root::span_of_root(&reconcile, drops.of_nobody())];
    spans.extend(steps);
    spans
}

/// What a span does, and to what; the latter may be empty.
fn span_name(verb: &str, object: &str) -> String {
    if object.is_empty() {
        return verb.to_owned();
    }
    one_line(&format!("{verb} {object}"), MAX_NAME_BYTES)
}

fn status_of(failure: Option<&Failure<'_>>) -> Option<Status> {
    failure.map(|failure| Status {
        code: StatusCode::Error.into(),
        message: one_line(failure.message, MAX_STATUS_BYTES),
    })
}

#[cfg(test)]
mod tests;
