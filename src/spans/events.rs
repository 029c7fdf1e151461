//! What happened within a span: payloads, results, dropped resources.
//!
//! Invariant: at most [`MAX_RESULTS`] results and [`MAX_DROPS`] dropped resources a span, so that
//! with its payloads it has no more than [`MAX_EVENTS`]; events lie within their span, in the
//! order of time.

use opentelemetry_proto::tonic::trace::v1::span::Event;

use super::{Reconcile, attributes::Attributes, times::Extent};
use crate::line::{Dropped, Line, LineStep, PayloadRef, StepResult};

/// Backends are asked to show these in a list.
const MAX_EVENTS: usize = 32;
const MAX_RESULTS: usize = 8;
const MAX_DROPS: usize = 8;
const _: () = assert!(2 + MAX_RESULTS + MAX_DROPS <= MAX_EVENTS);

/// Bytes of a result's message; shorter than an attribute of the span, because there are more.
const MAX_MESSAGE_BYTES: usize = 1024;

/// Dropped resources by the step that dropped them.
#[derive(Debug)]
pub(super) struct DropsByStep<'l> {
    by_step: Vec<Vec<&'l Dropped>>,
    by_nobody: Vec<&'l Dropped>,
}

/// Events on their way onto a span.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) kept: Vec<Event>,
    pub(super) dropped: u32,
}

impl<'l> DropsByStep<'l> {
    pub(super) fn of(line: &'l Line) -> Self {
        let mut drops = Self {
            by_step: vec![Vec::new(); line.steps.len()],
            by_nobody: Vec::new(),
        };
        for dropped in &line.dropped {
            let place = dropped.step.and_then(|place| usize::try_from(place).ok());
            let step = place.and_then(|place| drops.by_step.get_mut(place));
            step.unwrap_or(&mut drops.by_nobody).push(dropped);
        }
        drops
    }

    /// By its place among the steps.
    pub(super) fn of_step(&self, place: usize) -> &[&'l Dropped] {
        self.by_step.get(place).map_or(&[], Vec::as_slice)
    }

    /// What no step of this pipeline asked for.
    pub(super) fn of_nobody(&self) -> &[&'l Dropped] {
        &self.by_nobody
    }
}

impl Events {
    pub(super) fn of_root(extent: Extent, drops: &[&Dropped]) -> Self {
        let kept = drops.iter().take(MAX_DROPS);
        let kept = kept.map(|dropped| drop_event(extent.end, dropped, ""));
        Self {
            kept: kept.collect(),
            dropped: beyond(drops.len() as u64, MAX_DROPS),
        }
    }

    pub(super) fn of_step(
        reconcile: &Reconcile<'_>,
        step: &LineStep,
        extent: Extent,
        drops: &[&Dropped],
    ) -> Self {
        let payload_event = |name, at, payload: &Option<PayloadRef>| {
            let payload = payload.as_ref()?;
            Some(payload_event(reconcile, name, at, payload))
        };
        let request = payload_event("function.request", extent.start, &step.request);
        let response = payload_event("function.response", extent.end, &step.response);
        let results = step.facts.results.iter().take(MAX_RESULTS);
        let results = results.map(|result| result_event(extent.end, result));
        let shown_drops = drops.iter().take(MAX_DROPS);
        let shown_drops = shown_drops.map(|dropped| drop_event(extent.end, dropped, &step.name));
        let kept = request.into_iter().chain(response);

        let counts = step.facts.result_counts;
        let counted = counts.normal.saturating_add(counts.warning);
        let counted = counted.saturating_add(counts.fatal);
        let listed = step.facts.results.len() as u64;
        Self {
            // Drops first: a list that is cut short must not end before them.
            kept: kept.chain(shown_drops).chain(results).collect(),
            dropped: beyond(
                counted.max(listed),
                MAX_RESULTS.min(step.facts.results.len()),
            )
            .saturating_add(beyond(drops.len() as u64, MAX_DROPS)),
        }
    }
}

/// How many are more than are shown.
fn beyond(count: u64, shown: usize) -> u32 {
    u32::try_from(count.saturating_sub(shown as u64)).unwrap_or(u32::MAX)
}

fn payload_event(reconcile: &Reconcile<'_>, name: &str, at: u64, payload: &PayloadRef) -> Event {
    let Reconcile { line, links, .. } = reconcile;
    let url = links.payload_url(&line.object, &payload.pointer);
    let mut attributes = Attributes::of_event();
    attributes.term("crossplane.payload.state", line.object.state.as_str());
    attributes.whole("crossplane.payload.url", &url.unwrap_or_default());
    attributes.whole(
        "crossplane.payload.uri",
        &links.uri(&line.object).unwrap_or_default(),
    );
    attributes.whole("crossplane.payload.key", &line.object.key);
    attributes.whole_term("crossplane.payload.pointer", &payload.pointer);
    attributes.whole_term("crossplane.payload.sha256", &payload.sha256);
    attributes.size("crossplane.payload.size", payload.size);
    event(name, at, attributes)
}

fn result_event(at: u64, result: &StepResult) -> Event {
    let mut attributes = Attributes::of_event();
    attributes.term("crossplane.result.severity", result.severity.as_str());
    attributes.term(
        "crossplane.result.reason",
        result.reason.as_deref().unwrap_or_default(),
    );
    attributes.text_within(
        "crossplane.result.message",
        &result.message,
        MAX_MESSAGE_BYTES,
    );
    event("function.result", at, attributes)
}

fn drop_event(at: u64, dropped: &Dropped, step_name: &str) -> Event {
    let mut attributes = Attributes::of_event();
    attributes.term("crossplane.resource.name", &dropped.resource);
    attributes.flag("crossplane.resource.observed", dropped.observed);
    attributes.term("crossplane.step.name", step_name);
    event("resource.dropped", at, attributes)
}

fn event(name: &str, at: u64, attributes: Attributes) -> Event {
    let (attributes, dropped_attributes_count) = attributes.finish();
    Event {
        time_unix_nano: at,
        name: name.to_owned(),
        attributes,
        dropped_attributes_count,
    }
}
