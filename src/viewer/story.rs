//! `/trace/{id}/resource?name=…`: why a resource was created, changed, deleted, or not.

use std::sync::Arc;

use axum::{
    extract::{Path, RawQuery, State},
    response::Html,
};
use maud::{Markup, PreEscaped, html};

use super::{
    Viewer,
    address::{self, Params},
    diff::{CARDS_BYTES, Cards, field_rows},
    failure::Failure,
    page::Page,
    reconcile::{dot, trail_into},
    words::{Badge, full_name, plain, several, short_name, sign_of, step_name},
};
use crate::{
    answers::{
        Mark, Moment, Pipeline, Reason, Selection, Sequel, Story, tell_asked_last, tell_existence,
        tell_fate, tell_moment, tell_readiness, tell_sequel,
    },
    json::Change,
    line::{Line, LineStep},
    text::cut,
};

/// Of a sentence that quotes what a resource says of itself.
const SENTENCE_BYTES: usize = 2048;
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
    let lines: Vec<_> = [Some(&line), next.as_ref()].into_iter().flatten().collect();
    let _desk = viewer.take_desk(&line.object.key, &lines).await?;
    let selection = Selection::states().of_resource(name);
    let stored = viewer.answers.excerpt(&line, &selection).await?;
    let later = match &next {
        // What does not fit beside it is not known here.
        Some(next) => {
            let answers = viewer.answers_beside(stored.text().len() as u64);
            let selection = Selection::observed(next).of_resource(name);
            answers.excerpt(next, &selection).await.ok()
        }
        None => None,
    };
    let values = viewer.values();
    let opening = |error| Failure::opening(&line.object.key, error);
    let document = stored.open().map_err(opening)?;
    let pipeline = Pipeline::read_within(&line, &document, &values);
    if values.is_exceeded() {
        let key = line.object.key.clone();
        return Err(Failure::TooLarge { key });
    }
    let later = later.as_ref().and_then(|later| later.open().ok());
    let later = next.as_ref().zip(later.as_ref());
    let later = later
        .map(|(next, later)| Pipeline::read_within(&first_step_of(next), later, &values))
        .filter(|_| !values.is_exceeded());
    let story = Story::of(&pipeline, name);
    let sequel = Sequel::of(&pipeline, later.as_ref(), name);
    let answers = &viewer.answers;
    let is_unheard_of = story.is_unheard_of();
    let seen_last = if is_unheard_of {
        let last = answers.named_last(&line, name, None).await?;
        Some(last.ok_or_else(|| never_heard_of(&line, name))?)
    } else {
        None
    };
    let asked_last = if is_unheard_of || story.reason == Reason::NotAskedFor {
        answers.asked_last(&line, name, None).await?
    } else {
        None
    };

    let shown = if name.is_empty() {
        &line.subject.name
    } else {
        name
    };
    let page = Page {
        title: short_name(shown),
        trail: trail_into(&line),
    };
    let kind = story
        .desired
        .or(story.observed)
        .map_or("", |resource| resource.kind());
    let body = page.render(&html! {
        div class="title-row" {
            h1 { span class="kind" { (short_name(kind)) } " " span class="name" { (short_name(shown)) } }
            (Badge::of_fate(story.fate))
            nav class="ways" aria-label="More of it" {
                a class="button quiet" href=(address::history_of(&line, name)) { "Its history" }
                a class="button quiet" href=(address::trace(&line.trace_id)) { "Its reconcile" }
            }
        }
        section class="verdict" aria-labelledby="verdict-title" {
            h2 id="verdict-title" class="sr" { "What becomes of it" }
            p class="lead" { (plain(&tell_fate(&story, &line))) }
            @if let Reason::Lacks { fields, .. } = &story.reason { (lacking(fields)) }
            @if let Some(readiness) = tell_readiness(&story) { p { (readiness) } }
            @if let Some(last) = &asked_last {
                @if let Some(told) = tell_asked_last(last, name) {
                    p { (plain(&told)) " " a href=(address::story(&last.trace_id, name)) { "Its story there" } }
                }
            }
            @if let Some(last) = &seen_last {
                p { a href=(address::story(&last.trace_id, name)) { "Where it was seen last" } }
            }
            @if story.is_predicted() {
                p class="sequel" {
                    (plain(&tell_sequel(story.fate, &sequel, next.as_ref()))) " "
                    @if let Some(next) = &next {
                        a href=(address::story(&next.trace_id, name)) { "Its story there" }
                    }
                }
            }
            @if let Sequel::StillLacking(fields) = &sequel { (lacking(fields)) }
        }
        section aria-labelledby="moments-title" {
            h2 id="moments-title" { "Step by step" }
            ol class="moments" {
                li class="observed" { p { (plain(&cut(&tell_existence(&pipeline, &story), SENTENCE_BYTES))) } }
                (moments(&line, &story))
            }
        }
    });
    Ok(Html(body.into_string()))
}

/// Nobody ever spoke of it.
fn never_heard_of(line: &Line, name: &str) -> Failure {
    Failure::Missing {
        what: format!(
            "No step of {} asked for {} in any reconcile that is known, and it does not exist.",
            full_name(line),
            plain(name)
        ),
        advice: "Its reconcile shows which resources there are.",
    }
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

/// What is desired and not observed.
fn lacking(fields: &[Change<'_>]) -> Markup {
    let (rows, shown) = field_rows(fields.iter().take(MAX_FIELDS));
    html! {
        div class="change" {
            (rows)
            @if fields.len() > shown {
                p class="nothing" { "and " (several(fields.len() - shown, "field")) " more" }
            }
        }
    }
}

/// What each step did to it, as far as there is room for the details.
fn moments(line: &Line, story: &Story<'_>) -> Markup {
    let mut told = String::new();
    for moment in &story.moments {
        if let Some(step) = line.steps.get(moment.place) {
            let has_room = told.len() < CARDS_BYTES;
            told.push_str(&moment_of(line, step, moment, has_room).into_string());
        }
    }
    PreEscaped(told)
}

fn moment_of(line: &Line, step: &LineStep, moment: &Moment<'_>, has_room: bool) -> Markup {
    let cell = &moment.cell;
    let cards = Cards {
        changes: moment.change.as_slice(),
        trace_id: &line.trace_id,
        composite: &line.subject.name,
        without_bookkeeping: false,
    };
    let title = match cell.mark {
        Mark::Added => "What it asks for",
        Mark::Dropped => "What it drops",
        _ => "What it changes",
    };
    html! {
        li class={ "c " (cell.mark.as_str()) } {
            p {
                span class="node" aria-hidden="true" { (sign_of(cell.mark)) }
                a href=(address::step(&line.trace_id, moment.place)) { (step_name(step)) } " "
                (tell_moment(moment, step))
                (dot(cell.ready))
            }
            @if has_room && !cards.is_empty() {
                details open[cell.mark != Mark::Added] { summary { (title) } (cards) }
            }
        }
    }
}
