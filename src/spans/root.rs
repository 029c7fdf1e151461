//! The root span: what stands for the whole reconcile.
//!
//! Invariant: its list of attributes is complete; it has room for all of them at once.

use opentelemetry_proto::tonic::trace::v1::{
    Span,
    span::{Link, SpanKind},
};

use super::{
    Reconcile, SAMPLED, attributes::Attributes, events::Events, failure::Failure, span_name,
    status_of,
};
use crate::{
    ids::OtelTraceId,
    line::{Dropped, FlappingField, Line},
    reconcile::SubjectType,
};

/// The root span, with what no step of the pipeline dropped.
pub(super) fn span_of_root(reconcile: &Reconcile<'_>, drops: &[&Dropped]) -> Span {
    let Reconcile { line, extent, .. } = *reconcile;
    let failure = Failure::of_line(line).map(|(failure, _)| failure);
    let (attributes, dropped_attributes_count) = attributes_of(reconcile).finish();
    let events = Events::of_root(extent, drops);
    Span {
        trace_id: reconcile.trace_id.0.to_vec(),
        span_id: reconcile.root_id.0.to_vec(),
        flags: SAMPLED,
        name: name_of(line),
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: extent.start,
        end_time_unix_nano: extent.end,
        attributes,
        dropped_attributes_count,
        events: events.kept,
        dropped_events_count: events.dropped,
        links: links_of(reconcile),
        status: status_of(failure.as_ref()),
        ..Span::default()
    }
}

fn name_of(line: &Line) -> String {
    match line.subject.kind_of_subject {
        SubjectType::Composite => span_name("reconcile", &line.subject.composition),
        SubjectType::Operation => "operation".to_owned(),
    }
}

/// To the roots of other reconciles.
fn links_of(reconcile: &Reconcile<'_>) -> Vec<Link> {
    let line = reconcile.line;
    let others = [
        ("previous", &line.previous_trace_id),
        ("parent", &line.parent_trace_id),
    ];
    let link_to = |(what, trace_id): (&str, &Option<String>)| {
        let trace_id = trace_id
            .as_deref()
            .filter(|trace_id| !trace_id.is_empty())?;
        let trace_id = OtelTraceId::of(trace_id);
        if trace_id == reconcile.trace_id {
            return None;
        }
        let mut attributes = Attributes::of_event();
        attributes.term("crossplane.link", what);
        let (attributes, dropped_attributes_count) = attributes.finish();
        Some(Link {
            trace_id: trace_id.0.to_vec(),
            span_id: trace_id.root_span().0.to_vec(),
            attributes,
            dropped_attributes_count,
            flags: SAMPLED,
            ..Link::default()
        })
    };
    others.into_iter().filter_map(link_to).collect()
}

fn attributes_of(reconcile: &Reconcile<'_>) -> Attributes {
    let line = reconcile.line;
    let mut attributes = Attributes::of_span();
    attributes.term("crossplane.reconcile.status", line.status.as_str());
    if let Some((failure, step)) = Failure::of_line(line) {
        attributes.term("error.type", failure.error_type);
        if let Some(step) = step {
            attributes.term("crossplane.failed.step", &step.name);
            attributes.term("crossplane.failed.function", &step.function);
        }
        attributes.text("crossplane.error", failure.message);
    }
    attributes.flag("crossplane.reconcile.changed", line.changed);
    attributes.count("crossplane.reconcile.steps", line.steps.len() as u64);
    add_subject(&mut attributes, line);
    add_object(&mut attributes, reconcile);
    add_resources(&mut attributes, line);
    attributes
}

fn add_subject(attributes: &mut Attributes, line: &Line) {
    let subject = &line.subject;
    attributes.term("k8s.object.kind", &subject.kind);
    attributes.term("k8s.object.name", &subject.name);
    attributes.term("k8s.namespace.name", &subject.namespace);
    attributes.term("k8s.object.uid", &subject.uid);
    attributes.term("k8s.object.api_version", &subject.api_version);
    attributes.term("crossplane.composition.name", &subject.composition);
    let facts = &subject.facts;
    let revision = facts.composition_revision.as_deref();
    attributes.term(
        "crossplane.composition.revision",
        revision.unwrap_or_default(),
    );
    if let Some(generation) = facts.generation {
        attributes.int("crossplane.xr.generation", generation);
    }
    let version = facts.resource_version.as_deref();
    attributes.term(
        "crossplane.xr.resource_version",
        version.unwrap_or_default(),
    );
    attributes.term("crossplane.trace.id", &line.trace_id);
}

fn add_object(attributes: &mut Attributes, reconcile: &Reconcile<'_>) {
    let object = &reconcile.line.object;
    let url = reconcile.links.object_url(object);
    attributes.term("crossplane.object.state", object.state.as_str());
    attributes.whole("crossplane.object.url", &url.unwrap_or_default());
    attributes.whole("crossplane.object.key", &object.key);
}

fn add_resources(attributes: &mut Attributes, line: &Line) {
    let resources = &line.resources;
    attributes.counted_list(
        "crossplane.resources.create.count",
        resources.create_count,
        "crossplane.resources.create.names",
        resources.create.iter(),
    );
    attributes.counted_list(
        "crossplane.resources.update.count",
        resources.update_count,
        "crossplane.resources.update.names",
        resources.update.iter(),
    );
    attributes.counted_list(
        "crossplane.resources.delete.count",
        resources.delete_count,
        "crossplane.resources.delete.names",
        resources.delete.iter(),
    );
    attributes.counted_list(
        "crossplane.resources.dropped.count",
        line.dropped_count,
        "crossplane.resources.dropped.names",
        line.dropped.iter().map(|dropped| &dropped.resource),
    );
    attributes.count("crossplane.resources.unchanged.count", resources.unchanged);
    attributes.counted_list(
        "crossplane.flapping.count",
        line.flapping_count,
        "crossplane.flapping.fields",
        line.flapping.iter().map(field_name),
    );
}

/// `resource:field`; a field of the composite stands alone, and so does a whole resource.
fn field_name(flapping: &FlappingField) -> String {
    let FlappingField { resource, field } = flapping;
    match (resource.as_str(), field.as_str()) {
        ("", field) => field.to_owned(),
        // All of it.
        (resource, "") => resource.to_owned(),
        (resource, field) => format!("{resource}:{field}"),
    }
}
