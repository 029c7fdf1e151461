//! `/trace/{id}/resource?name=…`: why a resource was created, changed, deleted, or not.

use std::sync::Arc;

use axum::{
    extract::{Path, RawQuery, State},
    response::Html,
};
use maud::{Markup, html};

use super::{
    Viewer,
    address::{self, Params},
    diff::{Cards, field_row},
    failure::Failure,
    page::Page,
    reconcile::{dot, trail_into},
    words::{Badge, plain, several, sign_of},
};
use crate::{
    answers::{Fate, Mark, Moment, Pipeline, Reason, Resource, Sequel, StoredDocument, Story},
    line::Line,
};

/// Two documents that take more together are not held beside each other.
const BOTH_BYTES: usize = 48 * 1024 * 1024;
/// Fields that are missing and named.
const MAX_FIELDS: usize = 50;

pub(super) async fn show(
    State(viewer): State<Arc<Viewer>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Html<String>, Failure> {
    let params = Params::parse(query.as_deref());
    let name = params.raw("name").unwrap_or_default();
    let line = viewer.find(&id).await?;
    let next = viewer.answers.next_of(&line).await?;
    let _desk = viewer.take_desk().await;
    let stored = viewer.answers.payloads(&line).await?;
    let later = match &next {
        Some(next) => viewer.answers.payloads(next).await.ok(),
        None => None,
    };
    let fits = |later: &StoredDocument| later.text().len() + stored.text().len() <= BOTH_BYTES;
    let later = later.filter(fits);
    let opening = |error| Failure::opening(&line.object.key, error);
    let document = stored.open().map_err(opening)?;
    let pipeline = Pipeline::read(&line, &document);
    let later = later.as_ref().and_then(|later| later.open().ok());
    let later = next.as_ref().zip(later.as_ref());
    let later = later.map(|(next, later)| Pipeline::read(&first_step_of(next), later));
    let story = Story::of(&pipeline, name);
    let sequel = Sequel::of(&pipeline, later.as_ref(), name);

    let shown = if name.is_empty() {
        &line.subject.name
    } else {
        name
    };
    let page = Page {
        title: plain(shown).into_owned(),
        trail: trail_into(&line),
    };
    let kind = story
        .desired
        .or(story.observed)
        .map_or("", |resource| resource.kind());
    let body = page.render(&html! {
        div class="title-row" {
            h1 { span class="kind" { (plain(kind)) } " " span class="name" { (plain(shown)) } }
            (Badge::of_fate(story.fate))
            nav class="ways" aria-label="More of it" {
                a class="button quiet" href=(address::history_of(&line, name)) { "Its history" }
                a class="button quiet" href=(address::trace(&line.trace_id)) { "Its reconcile" }
            }
        }
        section class="verdict" aria-labelledby="verdict-title" {
            h2 id="verdict-title" class="sr" { "What becomes of it" }
            p class="lead" { (reason(&line, &story)) }
            @if let Reason::Lacks { fields, .. } = &story.reason {
                div class="change" {
                    @for field in fields.iter().take(MAX_FIELDS) { (field_row(field)) }
                    @if fields.len() > MAX_FIELDS {
                        p class="nothing" { "and " (several(fields.len() - MAX_FIELDS, "field")) " more" }
                    }
                }
            }
            (told_next(&sequel, next.as_ref()))
        }
        section aria-labelledby="moments-title" {
            h2 id="moments-title" { "Step by step" }
            ol class="moments" {
                li class="observed" {
                    p {
                        "Before the pipeline: "
                        strong {
                            @if story.observed.is_some() { "it exists" } @else { "it does not exist" }
                        }
                        @if let Some(name) = story.observed.map(Resource::name).filter(|n| !n.is_empty()) {
                            ", as " code { (plain(name)) }
                        }
                        "."
                    }
                }
                @for moment in &story.moments { (moment_of(&line, moment)) }
            }
        }
    });
    Ok(Html(body.into_string()))
}

/// What was observed stands in the first request.
fn first_step_of(line: &Line) -> Line {
    let mut first = line.clone();
    let place = first.steps.iter().position(|step| step.request.is_some());
    first.steps = first
        .steps
        .into_iter()
        .skip(place.unwrap_or(0))
        .take(1)
        .collect();
    first
}

fn step_name(line: &Line, place: usize) -> Markup {
    let name = line
        .steps
        .get(place)
        .map_or("a step", |step| step.name.as_str());
    html! { a href=(address::step(&line.trace_id, place)) { (plain(name)) } }
}

/// Why it will become what it will.
fn reason(line: &Line, story: &Story<'_>) -> Markup {
    let by_name = |place: &usize| step_name(line, *place);
    html! {
        @match &story.reason {
            Reason::AskedFor { by } => {
                "It will be created: " (by_name(by)) " asks for it, and it does not exist."
            },
            Reason::Lacks { fields, by } => {
                "It will be updated: it lacks " (several(fields.len(), "field"))
                @if let Some(by) = by { " that " (by_name(by)) " touched last" } "."
            },
            Reason::AsDesired { .. } if story.desired.is_none() => {
                "It stays as it is: no step says anything about it."
            },
            Reason::AsDesired { by } => {
                "It stays as it is: all that is desired of it is observed."
                @if let Some(by) = by { " " (by_name(by)) " touched it last." }
            },
            Reason::Dropped { by } if story.fate == Fate::Delete => {
                "It will be deleted: " (by_name(by)) " took it out of the desired state, and it exists."
            },
            Reason::Dropped { by } => {
                "It will not exist: " (by_name(by))
                " took it out of the desired state again, and it was never created."
            },
            Reason::NotAskedFor => "It will be deleted: it exists, and no step asked for it.",
            Reason::Failed { at } => {
                "Nothing becomes of it: the pipeline ended at " (by_name(at))
                ", so that nothing is applied."
            },
            Reason::Unheard => "No step asked for it, and it does not exist.",
            Reason::Untold => "Payloads that would tell are missing.",
        }
    }
}

/// Whether it came true.
fn told_next(sequel: &Sequel<'_>, next: Option<&Line>) -> Markup {
    let Some(next) = next else {
        return html! {
            p class="sequel" {
                "No later reconcile is known, so nobody can tell yet whether that came true."
            }
        };
    };
    let next = html! { a href=(address::trace(&next.trace_id)) { "the next reconcile" } };
    html! {
        p class="sequel" {
            @match sequel {
                Sequel::Nothing => {},
                Sequel::NotSeen => {
                    "What " (next) " observed is not known, so nobody can tell whether that came true."
                },
                Sequel::Confirmed => { strong { "✓ Confirmed" } " by what " (next) " observed." },
                Sequel::BeingDeleted => {
                    strong { "✓ On its way out" } ": " (next) " observed that it is being deleted."
                },
                Sequel::Refuted => {
                    strong { "✕ Not so" } ": " (next) " observed otherwise. Crossplane may not have \
                    got to it yet, or something keeps it from doing so."
                },
                Sequel::StillLacking(fields) => {
                    strong { "✕ Not yet" } ": in " (next) " it still lacked "
                    (several(fields.len(), "field")) "."
                },
            }
        }
        @if let Sequel::StillLacking(fields) = sequel {
            div class="change" {
                @for field in fields.iter().take(MAX_FIELDS) { (field_row(field)) }
            }
        }
    }
}

fn moment_of(line: &Line, moment: &Moment<'_>) -> Markup {
    let cell = &moment.cell;
    let what = match cell.mark {
        Mark::Absent => "did not ask for it",
        Mark::Added => "asked for it",
        Mark::Changed => "changed it",
        Mark::Untouched => "left it as it was",
        Mark::Dropped => "took it out",
        Mark::Unknown => "may have done anything: it failed, or its payloads are not there",
    };
    let changes = moment.change.as_slice();
    let changes = Cards {
        changes,
        trace_id: &line.trace_id,
        composite: &line.subject.name,
        without_bookkeeping: false,
    };
    let told = match cell.mark {
        _ if cell.fields > 0 => several(cell.fields, "field"),
        Mark::Dropped => "What it took out".to_owned(),
        Mark::Added => "What it asked for".to_owned(),
        _ => "What it said".to_owned(),
    };
    html! {
        li class={ "c " (cell.mark.as_str()) } {
            p {
                span class="node" aria-hidden="true" { (sign_of(cell.mark)) }
                (step_name(line, moment.place)) " " (what)
                @match cell.ready.filter(|_| cell.is_ready_news) {
                    Some(true) => ", and called it ready",
                    Some(false) => ", and called it not ready",
                    None => {},
                }
                (dot(cell.ready))
            }
            @if !changes.is_empty() {
                details open[cell.mark != Mark::Added] { summary { (told) } (changes) }
            }
        }
    }
}
