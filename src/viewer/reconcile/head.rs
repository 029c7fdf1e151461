//! What a reconcile is of, when it was, and the ways on from it.

use maud::{Markup, html};

use crate::{
    line::Line,
    time::Timestamp,
    viewer::{
        address,
        words::{Badge, clock, kind_and_group, lasted, plain, size, when},
    },
};

pub(super) fn render(line: &Line, next: Option<&Line>, now: Timestamp) -> Markup {
    let subject = &line.subject;
    html! {
        div class="title-row" {
            h1 {
                span class="kind" title=(kind_and_group(line)) { (plain(&subject.kind)) }
                " "
                span class="name" { (plain(&subject.name)) }
            }
            (Badge::of_status(line.status))
            (Badge::of_change(line.changed))
            (ways(line, next))
        }
        (facts(line, now))
    }
}

fn ways(line: &Line, next: Option<&Line>) -> Markup {
    html! {
        nav class="ways" aria-label="Other reconciles" {
            @if let Some(previous) = &line.previous_trace_id {
                a class="button quiet" rel="prev" href=(address::trace(previous)) { "← Previous" }
            }
            @if let Some(next) = next {
                a class="button quiet" rel="next" href=(address::trace(&next.trace_id)) { "Next →" }
            }
            @if let Some(parent) = &line.parent_trace_id {
                a class="button quiet" href=(address::trace(parent)) { "↑ Parent" }
            }
            @if line.previous_trace_id.is_some() {
                a class="button quiet" href=(address::changes(&line.trace_id)) { "What changed" }
            }
            a class="button quiet" href=(address::history(line)) { "History" }
        }
    }
}

fn facts(line: &Line, now: Timestamp) -> Markup {
    let subject = &line.subject;
    let revision = subject.facts.composition_revision.as_deref();
    html! {
        dl class="facts" {
            div {
                dt { "Began" }
                dd { (when(line.started_at, now)) " " span class="exact" { (clock(line.started_at)) } }
            }
            div { dt { "Took" } dd { (lasted(Some(line.duration_ms))) } }
            @if !subject.namespace.is_empty() {
                div { dt { "Namespace" } dd { (plain(&subject.namespace)) } }
            }
            @if !subject.composition.is_empty() {
                div {
                    dt { "Composition" }
                    dd {
                        (plain(&subject.composition))
                        @if let Some(revision) = revision {
                            " " span class="exact" { (plain(revision)) }
                        }
                    }
                }
            }
            @if let Some(generation) = subject.facts.generation {
                div { dt { "Generation" } dd { (generation) } }
            }
            div {
                dt { "Trace" }
                dd { code data-copy { (plain(&line.trace_id)) } }
            }
            div {
                dt { "Payloads" }
                dd {
                    a href=(address::open(&line.object.key, "")) {
                        (size(line.object.bytes)) " " (line.object.state.as_str())
                    }
                }
            }
        }
    }
}
