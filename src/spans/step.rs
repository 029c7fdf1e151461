//! The span of a step: one function call.
//!
//! Invariant: what matters most to who searches is added first, so that a step with more to say
//! than there is room for loses the least.

use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};

use super::{
    Reconcile, SAMPLED,
    attributes::Attributes,
    events::Events,
    failure::{Failure, step_status},
    span_name, status_of,
    times::{Extent, clock_skew},
};
use crate::{
    ids::OtelSpanId,
    line::{Condition, Dropped, LineStep, PayloadRef, Requirement},
};

/// The service that every function implements.
const RPC_SERVICE: &str = "apiextensions.fn.proto.v1.FunctionRunnerService";
const RPC_METHOD: &str = "RunFunction";

/// The span of a step, with what it dropped.
pub(super) fn span_of_step(
    reconcile: &Reconcile<'_>,
    step: &LineStep,
    id: OtelSpanId,
    drops: &[&Dropped],
) -> Span {
    let extent = Extent::of_step(step, reconcile.extent);
    let failure = Failure::of_step(step);
    let mut attributes = Attributes::of_span();
    add_identity(&mut attributes, reconcile, step, failure.as_ref());
    add_addresses(&mut attributes, reconcile, step);
    add_verdict(&mut attributes, step);
    add_desired(&mut attributes, step);
    add_details(&mut attributes, step);
    let (attributes, dropped_attributes_count) = attributes.finish();
    let events = Events::of_step(reconcile, step, extent, drops);
    Span {
        trace_id: reconcile.trace_id.0.to_vec(),
        span_id: id.0.to_vec(),
        parent_span_id: reconcile.root_id.0.to_vec(),
        flags: SAMPLED,
        name: name_of(step),
        kind: SpanKind::Client.into(),
        start_time_unix_nano: extent.start,
        end_time_unix_nano: extent.end,
        attributes,
        dropped_attributes_count,
        events: events.kept,
        dropped_events_count: events.dropped,
        status: status_of(failure.as_ref()),
        ..Span::default()
    }
}

/// Older layouts have no step name.
fn name_of(step: &LineStep) -> String {
    let name = if step.name.is_empty() {
        &step.function
    } else {
        &step.name
    };
    span_name(RPC_METHOD, name)
}

fn add_identity(
    attributes: &mut Attributes,
    reconcile: &Reconcile<'_>,
    step: &LineStep,
    failure: Option<&Failure<'_>>,
) {
    let subject = &reconcile.line.subject;
    attributes.term("crossplane.step.status", step_status(step).as_str());
    attributes.term(
        "error.type",
        failure.map_or("", |failure| failure.error_type),
    );
    attributes.term("crossplane.step.name", &step.name);
    attributes.int("crossplane.step.index", step.index.into());
    if step.iteration != 0 {
        attributes.int("crossplane.step.iteration", step.iteration.into());
    }
    attributes.term("crossplane.function.name", &step.function);
    attributes.term("service.peer.name", &step.function);
    // Its older name, which Jaeger shows in the timeline.
    attributes.term("peer.service", &step.function);
    attributes.term("crossplane.composition.name", &subject.composition);
    attributes.term("k8s.object.kind", &subject.kind);
    attributes.term("k8s.object.name", &subject.name);
    attributes.term("k8s.namespace.name", &subject.namespace);
    attributes.term("crossplane.trace.id", &reconcile.line.trace_id);
    attributes.term("crossplane.span.id", &step.span_id);
}

fn add_addresses(attributes: &mut Attributes, reconcile: &Reconcile<'_>, step: &LineStep) {
    let url = |payload: &Option<PayloadRef>| {
        let pointer = &payload.as_ref()?.pointer;
        reconcile.links.payload_url(&reconcile.line.object, pointer)
    };
    attributes.whole(
        "crossplane.request.url",
        &url(&step.request).unwrap_or_default(),
    );
    attributes.whole(
        "crossplane.response.url",
        &url(&step.response).unwrap_or_default(),
    );
    attributes.term("rpc.system", "grpc");
    attributes.term("rpc.service", RPC_SERVICE);
    attributes.term("rpc.method", RPC_METHOD);
}

fn add_verdict(attributes: &mut Attributes, step: &LineStep) {
    attributes.text(
        "crossplane.error",
        step.error.as_deref().unwrap_or_default(),
    );
    let facts = &step.facts;
    // The first of the worst.
    let worst = facts
        .results
        .iter()
        .rev()
        .max_by_key(|result| result.severity);
    if let Some(worst) = worst {
        attributes.term("crossplane.result.severity", worst.severity.as_str());
        attributes.text("crossplane.result.message", &worst.message);
    }
    attributes.count("crossplane.results.fatal", facts.result_counts.fatal);
    attributes.count("crossplane.results.warning", facts.result_counts.warning);
}

fn add_desired(attributes: &mut Attributes, step: &LineStep) {
    let Some(desired) = &step.facts.desired else {
        return;
    };
    let count = |count: u64, names: &[String]| count.max(names.len() as u64);
    attributes.size("crossplane.desired.total", desired.total);
    attributes.count("crossplane.desired.ready", desired.ready);
    // What a step that failed did not return is not removed: nothing of it is applied.
    if !step_status(step).is_failure() {
        attributes.counted_list(
            "crossplane.desired.removed",
            desired.removed_count,
            "crossplane.desired.removed.names",
            desired.removed.iter(),
        );
    }
    let added = count(desired.added_count, &desired.added);
    attributes.count("crossplane.desired.added", added);
    let changed = count(desired.changed_count, &desired.changed);
    attributes.count("crossplane.desired.changed", changed);
}

fn add_details(attributes: &mut Attributes, step: &LineStep) {
    let facts = &step.facts;
    let missing = facts.requirements.iter();
    let missing = missing.filter(|requirement| requirement.found == Some(0));
    let missing: Vec<_> = missing.map(|requirement| &requirement.name).collect();
    attributes.list_or_count(
        "crossplane.requirements.missing",
        "crossplane.requirements.missing.count",
        missing.into_iter(),
    );
    if let Some(skew) = clock_skew(step) {
        attributes.double("crossplane.clock_skew_ms", skew.as_secs_f64() * 1000.0);
    }
    if step.cached {
        attributes.flag("crossplane.response.cached", true);
    }
    attributes.list_or_count(
        "crossplane.conditions",
        "crossplane.conditions.count",
        facts.conditions.iter().map(condition_in_words),
    );
    if let Some(desired) = &facts.desired {
        attributes.list("crossplane.desired.added.names", &desired.added);
        attributes.list("crossplane.desired.changed.names", &desired.changed);
    }
    attributes.list_or_count(
        "crossplane.requirements",
        "crossplane.requirements.count",
        facts.requirements.iter().map(requirement_in_words),
    );
    if let Some(ttl) = facts.ttl_s {
        attributes.double("crossplane.response.ttl_s", ttl);
    }
    attributes.term(
        "crossplane.response.tag",
        facts.tag.as_deref().unwrap_or_default(),
    );
    attributes.term(
        "crossplane.input.kind",
        facts.input_kind.as_deref().unwrap_or_default(),
    );
    attributes.count("crossplane.results.normal", facts.result_counts.normal);
}

/// `Type=status(reason)`
fn condition_in_words(condition: &Condition) -> String {
    let Condition {
        condition_type,
        status,
        reason,
        ..
    } = condition;
    format!("{condition_type}={status}({reason})")
}

/// `name=Kind.group`
fn requirement_in_words(requirement: &Requirement) -> String {
    let Requirement { name, kind, .. } = requirement;
    match requirement.api_version.split_once('/') {
        Some((group, _)) => format!("{name}={kind}.{group}"),
        None => format!("{name}={kind}"),
    }
}
