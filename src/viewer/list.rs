//! `/`: reconciles, the newest first; with the id of one, the way to it.

use std::sync::Arc;

use axum::{
    extract::{RawQuery, State},
    response::{Html, IntoResponse as _, Redirect, Response},
};
use futures_util::StreamExt as _;
use maud::{Markup, html};

use super::{
    Viewer,
    address::{self, Params},
    failure::Failure,
    filter,
    gist::in_short,
    page::Page,
    words::{Badge, kind_and_group, lasted, plain, several, short_id, step_name, when},
};
use crate::{
    archive::{IndexError, Query},
    line::{Line, LineStep},
    time::Timestamp,
};

/// On a page.
const ROWS: usize = 50;
/// Parts of the index that can't be read and are told.
const MAX_ERRORS: usize = 3;

/// Some lines, and what could not be read on the way.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) lines: Vec<Line>,
    pub(super) errors: Vec<IndexError>,
    pub(super) has_more: bool,
}

impl Viewer {
    /// The first lines that a query asks for. A store that does not answer has not said that there
    /// are none.
    pub(super) async fn lines(&self, query: Query, most: usize) -> Result<Found, Failure> {
        let mut stream = Box::pin(self.answers.lines(query));
        let mut found = Found::default();
        while let Some(line) = stream.next().await {
            match line {
                Ok(_) if found.lines.len() == most => {
                    found.has_more = true;
                    break;
                }
                Ok(line) => found.lines.push(line),
                Err(error) if found.errors.len() < MAX_ERRORS => found.errors.push(error),
                Err(_) => {}
            }
        }
        let mut errors = found.errors.iter();
        match errors.position(|error| error.store_error().is_some()) {
            Some(at) if found.lines.is_empty() => Err(found.errors.swap_remove(at).into()),
            _ => Ok(found),
        }
    }
}

pub(super) async fn show(
    State(viewer): State<Arc<Viewer>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    let params = Params::parse(query.as_deref());
    if let Some(id) = params.text("id") {
        let line = viewer.find(id).await?;
        return Ok(Redirect::to(&address::trace(&line.trace_id)).into_response());
    }
    let table = rows(&viewer, &params).await?;
    let is_first = params.text("until").is_none();
    let live = address::Params::parse(query.as_deref()).without(&["until"]);
    let page = Page {
        title: "Reconciles".to_owned(),
        ..Page::default()
    };
    let body = page.render(&html! {
        div class="title-row" {
            h1 { "Reconciles" }
            @if is_first {
                p class="live" data-live=(format!("/rows?{live}")) role="status" hidden {
                    span class="pulse" aria-hidden="true" {}
                    span { "live" }
                }
            }
        }
        (filter::form(&params))
        div id="rows" { (table) }
    });
    Ok(Html(body.into_string()).into_response())
}

/// The table alone, for who has the page already.
pub(super) async fn show_rows(
    State(viewer): State<Arc<Viewer>>,
    RawQuery(query): RawQuery,
) -> Result<Html<String>, Failure> {
    let params = Params::parse(query.as_deref());
    Ok(Html(rows(&viewer, &params).await?.into_string()))
}

async fn rows(viewer: &Viewer, params: &Params) -> Result<Markup, Failure> {
    let now = viewer.clock.now();
    let found = viewer.lines(filter::query_of(params, now)?, ROWS).await?;
    let oldest = found.lines.last().map(|line| line.started_at);
    Ok(html! {
        (trouble(&found.errors))
        @if found.lines.is_empty() {
            (nothing(params))
        } @else {
            (table(&found.lines, now))
        }
        nav class="pages" aria-label="Pages" {
            @if params.text("until").is_some() {
                a class="button quiet" href=(params.with("/", "until", "")) { "← Newest" }
            }
            @if let (true, Some(oldest)) = (found.has_more, oldest) {
                a class="button quiet" rel="next" href=(params.with("/", "until", &oldest.rfc3339())) {
                    "Older →"
                }
            }
        }
    })
}

/// What of the index can't be read.
pub(super) fn trouble(errors: &[IndexError]) -> Markup {
    html! {
        @for error in errors {
            p class="alarm warn" role="alert" {
                span class="sign" aria-hidden="true" { "!" }
                "A part of the index is not shown: " (plain(&error.to_string()))
            }
        }
    }
}

fn nothing(params: &Params) -> Markup {
    let is_filtered = filter::NAMES.iter().any(|name| params.text(name).is_some());
    html! {
        section class="sorry" {
            @if is_filtered {
                h2 { "No reconcile fits these filters" }
                p { "Names are whole names, in upper and lower case as they are; a kind may be in any case." }
                p { a class="button" href="/" { "All reconciles" } }
            } @else {
                h2 { "No reconcile is known yet" }
                p {
                    "A reconcile is listed here about a minute after it happened, once Crossplane runs with "
                    code { "--enable-pipeline-inspector" }
                    " and shares its socket with the sidecar."
                }
            }
        }
    }
}

fn table(lines: &[Line], now: Timestamp) -> Markup {
    html! {
        table class="list" {
            caption class="sr" { "Reconciles, the newest first" }
            thead {
                tr {
                    th scope="col" { "When" }
                    th scope="col" { "Resource" }
                    th scope="col" { "Status" }
                    th scope="col" { "What happened" }
                    th scope="col" class="wide" { "Steps" }
                    th scope="col" class="number" { "Took" }
                    th scope="col" class="wide" { "Trace" }
                }
            }
            tbody {
                @for line in lines { (row(line, now)) }
            }
        }
    }
}

fn row(line: &Line, now: Timestamp) -> Markup {
    let subject = &line.subject;
    html! {
        tr class=[(!line.changed).then_some("same")] {
            td class="when" { (when(line.started_at, now)) }
            th scope="row" class="subject" {
                a href=(address::trace(&line.trace_id)) {
                    span class="kind" title=(kind_and_group(line)) { (plain(&subject.kind)) }
                    " "
                    span class="name" { (plain(&subject.name)) }
                }
                @if !subject.namespace.is_empty() {
                    span class="namespace" { (plain(&subject.namespace)) }
                }
            }
            td { (Badge::of_status(line.status)) }
            td class="points" {
                @if !line.changed { (Badge::of_change(false)) }
                @for point in in_short(line) { (point) }
            }
            td class="wide" { (strip(&line.steps)) }
            td class="number" { (lasted(Some(line.duration_ms))) }
            td class="wide id" { code { (short_id(&line.trace_id)) } }
        }
    }
}

/// One mark a step.
fn strip(steps: &[LineStep]) -> Markup {
    const MOST: usize = 12;
    html! {
        span class="strip" {
            @for step in steps.iter().take(MOST) {
                span class={ "tick " (step.status.as_str()) }
                    title=(format!("{} {}", step_name(step), lasted(step.duration_ms))) {}
            }
            span class="strip-count" { (several(steps.len(), "step")) }
        }
    }
}
