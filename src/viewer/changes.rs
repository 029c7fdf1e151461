//! `/trace/{id}/changes`: what a reconcile observed and desired, against the one before.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::Html,
};
use maud::{Markup, html};

use super::{
    Viewer, address,
    diff::Cards,
    failure::Failure,
    page::Page,
    reconcile::trail_into,
    texts::StepTexts,
    words::{short_id, when},
};
use crate::{
    answers::{self, compare},
    line::Line,
};

impl Viewer {
    /// What a reconcile observed at first and desired in the end.
    pub(super) async fn ends(&self, line: &Line) -> Result<StepTexts, Failure> {
        let stored = self.answers.payloads(line).await?;
        let document = stored.open();
        let document = document.map_err(|error| Failure::opening(&line.object.key, error))?;
        Ok(StepTexts::of_ends(&document, line))
    }
}

pub(super) async fn show(
    State(viewer): State<Arc<Viewer>>,
    Path(id): Path<String>,
) -> Result<Html<String>, Failure> {
    let line = viewer.find(&id).await?;
    let previous = viewer.answers.previous_of(&line).await?;
    let previous = previous.ok_or_else(|| Failure::Missing {
        what: "No earlier reconcile of this XR is known.".to_owned(),
        advice: "It is the first, or those before it are older than what the store keeps.",
    })?;
    let _desk = viewer.take_desk().await;
    let [before, after] = [viewer.ends(&previous).await?, viewer.ends(&line).await?];
    let page = Page {
        title: "What changed".to_owned(),
        trail: trail_into(&line),
    };
    let body = page.render(&html! {
        div class="title-row" {
            h1 { "What changed" }
            p class="quiet" {
                "since " a href=(address::trace(&previous.trace_id)) { code { (short_id(&previous.trace_id)) } }
                ", " (when(previous.started_at, viewer.clock.now()))
            }
        }
        (section(&line, "Desired in the end", "desired", before.returned().as_ref(), after.returned().as_ref()))
        (section(&line, "Observed", "observed", before.observed().as_ref(), after.observed().as_ref()))
    });
    Ok(Html(body.into_string()))
}

/// One state against another, under a title of its own.
pub(super) fn section(
    line: &Line,
    title: &str,
    id: &str,
    before: Option<&answers::State<'_>>,
    after: Option<&answers::State<'_>>,
) -> Markup {
    html! {
        section id=(id) {
            h2 { (title) }
            @if let (Some(before), Some(after)) = (before, after) {
                @let found = compare(before, after);
                @let changes = Cards {
                    changes: &found,
                    trace_id: &line.trace_id,
                    composite: &line.subject.name,
                    without_bookkeeping: true,
                };
                @if changes.is_empty() {
                    p class="nothing" { "Nothing, but for what changes with every write." }
                } @else { (changes) }
            } @else {
                p class="nothing" {
                    "Not known: one of both did not end well, or its payloads are not there."
                }
            }
        }
    }
}
