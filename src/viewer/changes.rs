//! `/trace/{id}/changes`: what a reconcile observed and desired, against the one before.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::Html,
};
use maud::{Markup, html};

use super::{
    Viewer, address,
    diff::{Cards, MAX_TOLD},
    failure::Failure,
    page::Page,
    reconcile::trail_into,
    texts::StepTexts,
    words::{short_id, when},
};
use crate::{
    answers::{self, Selection, compare_up_to},
    json::Values,
    line::Line,
};

impl Viewer {
    /// What a reconcile observed at first and desired in the end, of all resources or of one;
    /// beside so much text that is held already.
    pub(super) async fn ends(
        &self,
        line: &Line,
        resource: Option<&str>,
        held_bytes: u64,
    ) -> Result<StepTexts, Failure> {
        let selection = Selection::ends(line);
        let selection = match resource {
            Some(name) => selection.of_resource(name),
            None => selection,
        };
        let answers = self.answers_beside(held_bytes);
        let stored = answers.excerpt(line, &selection).await?;
        StepTexts::of_ends(stored, line).map_err(|error| Failure::opening(&line.object.key, error))
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
    let key = &line.object.key;
    let _desk = viewer.take_desk(key, &[&line, &previous]).await?;
    let before = viewer.ends(&previous, None, 0).await?;
    let after = viewer.ends(&line, None, before.bytes()).await?;
    let sections = Sections {
        line: &line,
        values: &|| viewer.values(),
    };
    let desired = sections.section("Desired in the end", "desired", &|values| {
        (before.returned(values), after.returned(values))
    });
    let observed = sections.section("Observed", "observed", &|values| {
        (before.observed(values), after.observed(values))
    });
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
        (desired)
        (observed)
    });
    Ok(Html(body.into_string()))
}

/// Two states, if they are known.
type Sides<'s> = (Option<answers::State<'s>>, Option<answers::State<'s>>);

/// States against others, each under a title of its own. One section's states are in memory at a
/// time.
pub(super) struct Sections<'s> {
    pub(super) line: &'s Line,
    pub(super) values: &'s dyn Fn() -> Values,
}

impl Sections<'_> {
    pub(super) fn section<'t>(
        &self,
        title: &str,
        id: &str,
        read: &dyn Fn(&Values) -> Sides<'t>,
    ) -> Markup {
        let values = (self.values)();
        let sides = read(&values);
        html! {
            section id=(id) {
                h2 { (title) }
                @match sides {
                    _ if values.is_exceeded() => {
                        p class="nothing" { "Not compared: this has too many values for a page." }
                    },
                    (Some(before), Some(after)) => (self.changes(&before, &after)),
                    _ => p class="nothing" {
                        "Not known: one of both did not end well, or its payloads are not there."
                    },
                }
            }
        }
    }

    fn changes(&self, before: &answers::State<'_>, after: &answers::State<'_>) -> Markup {
        let found = compare_up_to(before, after, MAX_TOLD);
        let changes = Cards {
            changes: &found,
            trace_id: &self.line.trace_id,
            composite: &self.line.subject.name,
            without_bookkeeping: true,
        };
        html! {
            @if changes.is_empty() {
                p class="nothing" { "Nothing, but for what changes with every write." }
            } @else { (changes) }
        }
    }
}
