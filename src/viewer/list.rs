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
/// Of lines that are in memory for a page: a usual one takes some 5 KB, one of an earlier version
/// may take megabytes.
const LINES_BYTES: usize = 2 * 1024 * 1024;
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
    /// The first lines that a query asks for: so many, or fewer if they are large, but one at least.
    /// A store that does not answer has not said that there are none.
    pub(super) async fn lines(&self, query: Query, most: usize) -> Result<Found, Failure> {
        let mut stream = Box::pin(self.answers.lines(query));
        let mut found = Found::default();
        let mut room = LINES_BYTES;
        while let Some(line) = stream.next().await {
            match line {
                Ok(line) => {
                    let left = room.checked_sub(line.memory_bytes());
                    let is_full = left.is_none() && !found.lines.is_empty();
                    if is_full || found.lines.len() == most {
                        found.has_more = true;
                        break;
                    }
                    room = left.unwrap_or_default();
                    found.lines.push(line);
                }
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

#[cfg(test)]
mod tests {
    use axum::{
        body::Body,
        http::{Request, header::HOST},
    };
    use tower::ServiceExt as _;

    use super::*;
    use crate::{
        archive::{Archive, Compression, IndexJournal, InstanceName, StoreUrl, Variables},
        disk::LocalDisk,
        line::samples::{at, line, padded},
        time::SystemClock,
        viewer::Access,
    };

    /// Of this many reconciles of one subject, whose lines take this many bytes each.
    async fn viewer_of(lines: i64, bytes: usize) -> Viewer {
        let url = StoreUrl::parse("memory:///").unwrap();
        let archive = Archive::open(&url, &Variables::default(), Compression::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let instance = InstanceName::new("pod", at(0));
        let (disk, path) = (Arc::new(LocalDisk), folder.path().to_owned());
        let mut journal = IndexJournal::open(disk, path, instance).unwrap();
        for second in 0..lines {
            let mut line = padded(line(&format!("trace-{second}"), at(second)), bytes);
            line.changed = true;
            journal.append(&line, at(second)).unwrap();
        }
        journal.close_due(at(lines), true).unwrap();
        for batch in journal.ready() {
            let body = std::fs::read(&batch.path).unwrap();
            archive.put_index(&batch.key, body.into()).await.unwrap();
        }
        let access = Access::new([127, 0, 0, 1].into(), None, None);
        Viewer::new(archive, access, Arc::new(SystemClock))
    }

    /// The traces on each page, from the newest to the oldest.
    async fn pages(viewer: Viewer, first: &str) -> Vec<Vec<String>> {
        let routes = viewer.routes();
        let mut path = first.to_owned();
        let mut pages = Vec::new();
        loop {
            let request = Request::get(&path).header(HOST, "localhost");
            let request = request.body(Body::empty()).unwrap();
            let response = routes.clone().oneshot(request).await.unwrap();
            let page = axum::body::to_bytes(response.into_body(), usize::MAX).await;
            let page = String::from_utf8(page.unwrap().to_vec()).unwrap();
            let links = |before: &str| -> Vec<String> {
                let behind = page.split(before).skip(1);
                let links = behind.filter_map(|rest| rest.split(['"', '/']).next());
                links.map(str::to_owned).collect()
            };
            let mut traces = links("href=\"/trace/");
            traces.dedup();
            pages.push(traces);
            let Some(older) = page.split("rel=\"next\" href=\"").nth(1) else {
                return pages;
            };
            path = older.split('"').next().unwrap().replace("&amp;", "&");
        }
    }

    #[tokio::test]
    async fn lines_on_a_page_are_bounded_in_bytes() {
        let viewer = viewer_of(10, 256 * 1024).await;
        let found = viewer.lines(Query::default(), ROWS).await.unwrap();
        assert!(found.has_more);
        let bytes: usize = found.lines.iter().map(Line::memory_bytes).sum();
        assert!((1..=LINES_BYTES).contains(&bytes), "{bytes}");
    }

    #[tokio::test]
    async fn a_line_larger_than_a_page_may_hold_is_shown_alone() {
        let viewer = viewer_of(2, LINES_BYTES).await;
        let found = viewer.lines(Query::default(), ROWS).await.unwrap();
        assert_eq!((found.lines.len(), found.has_more), (1, true));
    }

    #[tokio::test]
    async fn pages_of_large_lines_show_every_reconcile_once() {
        let expected: Vec<_> = (0..10)
            .rev()
            .map(|second| format!("trace-{second}"))
            .collect();
        for first in ["/", "/xr/Network.platform.example.org/default/prod-net"] {
            for bytes in [256 * 1024, LINES_BYTES] {
                let pages = pages(viewer_of(10, bytes).await, first).await;
                assert!(pages.len() > 1, "{first}");
                assert_eq!(pages.concat(), expected, "{first}");
            }
        }
    }
}
