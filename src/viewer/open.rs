//! `/open`: where the links in spans lead. A payload, or a part of it, in its reconcile.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{RawQuery, State},
    response::{Html, IntoResponse as _, Redirect, Response},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use maud::{Markup, html};

use super::{
    Viewer,
    address::{self, Params},
    failure::Failure,
    moved::moved_to,
    page::Page,
    payload::{Tree, bare},
    payload_bytes,
    raw::missing,
    reconcile::{sorry, trail_into},
    search::find_word,
    words::{count, plain, several, short_name, size},
};
use crate::{
    answers::{Head, Outline, PayloadsError, StepContents, ValueAt},
    archive::{Key, Query},
    json::Json,
    line::Line,
};

/// On a page.
const LINES: usize = 3_000;
/// Parts of a value that is too large, on a page.
const PARTS: usize = 500;
/// A way that is longer has no page: there is a limit to addresses.
const MAX_POINTER_BYTES: usize = 2048;
/// A longer text stands alone, as it is.
const SHORT_TEXT_BYTES: usize = 1024;
/// How long an address that the store signed is good for.
const SIGNED_FOR: Duration = Duration::from_mins(5);
/// The line of an object's reconcile began when its key says, but for a part that came before.
const AROUND: Duration = Duration::from_hours(1);

/// The payload that a pointer leads to, and the way on from there.
pub(super) fn split_pointer(pointer: &str) -> (&str, &str) {
    // Behind `/steps`, `/2` and `/request`.
    match pointer.match_indices('/').nth(3) {
        Some((end, _)) => pointer.split_at_checked(end).unwrap_or((pointer, "")),
        None => (pointer, ""),
    }
}

pub(super) async fn show(
    State(viewer): State<Arc<Viewer>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    let params = Params::parse(query.as_deref());
    let key = params.text("key").unwrap_or_default();
    let pointer = params.text("pointer").unwrap_or_default();
    let parsed = Key::parse(key).ok_or_else(|| PayloadsError::NotAKey(key.to_owned()))?;
    let _seat = viewer.take_seat().await;
    let head = viewer.answers.head(key).await;
    let line = viewer.line_of(&parsed, head.as_ref().ok()).await;
    let known = line.as_ref().ok().and_then(Option::as_ref);
    let _memory = viewer
        .take_memory(key, known.map_or(u64::MAX, payload_bytes))
        .await?;
    let (content, line) = match (head, line) {
        (Ok(_), line) => (
            viewer.opened(key, pointer, &params).await?,
            line.unwrap_or_default(),
        ),
        // With its reconcile around it, a payload that is gone is not nothing.
        (Err(error), Ok(Some(line))) => match moved_to(&error, &parsed, pointer, &line) {
            Some((key, pointer)) => {
                let now = address::open(&key, &pointer);
                return Ok(Redirect::temporary(&now).into_response());
            }
            None => (sorry(&error.into()), Some(line)),
        },
        (Err(error), line) => return Err(absence(error, line)),
    };
    let can_sign = viewer.answers.archive().can_sign();
    let title = if pointer.is_empty() {
        "Object"
    } else {
        pointer
    };
    let page = Page {
        title: plain(title).into_owned(),
        trail: line.as_ref().map(trail_into).unwrap_or_default(),
    };
    let body = page.render(&html! {
        div class="title-row" {
            h1 class="pointer" { (heading(line.as_ref(), key, pointer)) }
            (ways(line.as_ref(), key, pointer, can_sign))
        }
        p class="quiet key" { code data-copy { (plain(key)) } }
        (content)
    });
    Ok(Html(body.into_string()).into_response())
}

/// Leads to the object itself, by an address that the store takes for a few minutes.
pub(super) async fn sign(
    State(viewer): State<Arc<Viewer>>,
    RawQuery(query): RawQuery,
) -> Result<Redirect, Failure> {
    let params = Params::parse(query.as_deref());
    let key = params.text("key").unwrap_or_default();
    let parsed = Key::parse(key).ok_or_else(|| PayloadsError::NotAKey(key.to_owned()))?;
    let signed = viewer.answers.archive().sign(&parsed, SIGNED_FOR).await;
    match signed.map_err(Failure::Store)? {
        Some(url) => Ok(Redirect::temporary(url.as_str())),
        None => Err(Failure::Missing {
            what: "This store signs no addresses.".to_owned(),
            advice: "Download the payload here instead.",
        }),
    }
}

impl Viewer {
    /// The line of the reconcile that an object holds, if it is still in the index.
    pub(super) async fn line_of(
        &self,
        key: &Key,
        head: Option<&Head>,
    ) -> Result<Option<Line>, Failure> {
        let Some((began, in_key)) = key.began() else {
            return Ok(None);
        };
        // In a key, an odd id stands in other letters.
        let trace_id = head.map_or(in_key, |head| &head.trace_id);
        let query = Query {
            since: Some(began - AROUND),
            until: Some(began + AROUND),
            trace_id: Some(trace_id.to_string()),
            ..Query::default()
        };
        let line = self.lines(query, 1).await?.lines.pop();
        // It was looked for by what its id begins with.
        Ok(line.filter(|line| line.trace_id == trace_id))
    }

    /// What stands at a pointer, or what it consists of if that is too large for a page.
    async fn opened(&self, key: &str, pointer: &str, params: &Params) -> Result<Markup, Failure> {
        if pointer.is_empty() {
            return Ok(contents(&self.answers.contents(key).await?, key));
        }
        let text = match self.answers.value_at(key, pointer).await {
            Err(PayloadsError::TooLarge { .. }) => {
                return self.outlined(key, pointer, params).await;
            }
            value => match value? {
                ValueAt::Missing => return Err(missing(pointer)),
                ValueAt::Json(text) => text,
                ValueAt::Text(text) => return Ok(bare("This is no JSON.", &text)),
                ValueAt::Bytes(bytes) => {
                    let text = BASE64_STANDARD.encode(bytes);
                    return Ok(bare("This is not even text; in base64:", &text));
                }
            },
        };
        let values = self.values();
        match Json::parse_within(&text, &values) {
            Ok(value) => Ok(html! {
                (searching(&value, key, pointer, params))
                (part(&value, key, pointer, params))
            }),
            Err(_) if values.is_exceeded() => {
                drop(text);
                self.outlined(key, pointer, params).await
            }
            Err(_) => Ok(bare("This JSON is nested too deeply to be folded.", &text)),
        }
    }

    /// In place of a value that is too large for a page: its parts, each with a page of its own.
    async fn outlined(&self, key: &str, pointer: &str, params: &Params) -> Result<Markup, Failure> {
        let from = params.number("from").unwrap_or(0);
        let outline = self.answers.outline(key, pointer, from, PARTS).await?;
        // A payload that is no JSON has no parts.
        let outline = outline.unwrap_or_default();
        Ok(parts(&outline, key, pointer, from, params))
    }
}

/// Why an object can't be shown. That it was there once is known from its reconcile alone.
pub(super) fn absence(error: PayloadsError, line: Result<Option<Line>, Failure>) -> Failure {
    match (error, line) {
        (PayloadsError::Gone { key, .. }, Ok(None)) => Failure::Missing {
            what: format!(
                "No such reconcile is known: neither the store nor its index has anything of {key}."
            ),
            advice: "Either it expired long ago and its line with it, or nothing was ever stored \
                     under this key: it may be cut off, or of another store.",
        },
        (PayloadsError::Gone { .. }, Err(failure)) => failure,
        (error, _) => error.into(),
    }
}

fn heading(line: Option<&Line>, key: &str, pointer: &str) -> Markup {
    let (payload, below) = split_pointer(pointer);
    let mut segments = payload.split('/').skip(2);
    let place: Option<usize> = segments.next().and_then(|place| place.parse().ok());
    let what = segments.next().unwrap_or("object");
    let step = line.and_then(|line| step_at(line, key, payload));
    html! {
        @match (step, place) {
            (Some((_, name)), _) => { (plain(name)) " " },
            (None, Some(place)) => { "Step " (place) " " },
            _ => {},
        }
        (plain(what))
        @if !below.is_empty() { code class="path" { (plain(below)) } }
    }
}

/// The step that a payload is of; its place in the line may differ from that in the object. What
/// was in another object is not known.
fn step_at<'l>(line: &'l Line, key: &str, payload: &str) -> Option<(usize, &'l str)> {
    if line.object.key != key {
        return None;
    }
    let mut steps = line.steps.iter().enumerate();
    let is_at =
        |at: &Option<crate::line::PayloadRef>| at.as_ref().is_some_and(|at| at.pointer == payload);
    let (place, step) = steps.find(|(_, step)| is_at(&step.request) || is_at(&step.response))?;
    Some((place, &step.name))
}

fn ways(line: Option<&Line>, key: &str, pointer: &str, can_sign: bool) -> Markup {
    let (payload, below) = split_pointer(pointer);
    let step = line.and_then(|line| Some((line, step_at(line, key, payload)?.0)));
    let above = below
        .rsplit_once('/')
        .map(|(above, _)| format!("{payload}{above}"));
    html! {
        nav class="ways" aria-label="This payload" {
            @if let Some(above) = above {
                a class="button quiet" href=(address::open(key, &above)) { "↑ Around it" }
            }
            @if let Some((line, place)) = step {
                a class="button quiet" href=(address::step(&line.trace_id, place)) { "Its step" }
            }
            @if let Some(line) = line {
                a class="button quiet" href=(address::trace(&line.trace_id)) { "Its reconcile" }
            }
            a class="button quiet" href=(address::raw(key, pointer)) { "JSON" }
            a class="button quiet" href={ (address::raw(key, pointer)) "&download=yes" } download { "Download" }
            @if can_sign {
                a class="button quiet" href=(address::signed(key)) rel="noreferrer" { "Object in the store" }
            }
        }
    }
}

/// What an object holds.
fn contents(steps: &[StepContents], key: &str) -> Markup {
    html! {
        ol class="contents" {
            @for (place, step) in steps.iter().enumerate() {
                li {
                    span class="name" { (plain(&step.name)) } " " span class="function" { (plain(&step.function)) }
                    " "
                    @for (what, bytes) in [("request", step.request), ("response", step.response)] {
                        @match bytes {
                            None => span class="quiet" { "no " (what) },
                            Some(bytes) => {
                                a href=(address::open(key, &format!("/steps/{place}/{what}"))) { (what) }
                                " " span class="quiet" { (size(bytes)) }
                            },
                        }
                        " "
                    }
                }
            }
        }
    }
}

/// What a value consists of that is too large for a page.
fn parts(outline: &Outline, key: &str, pointer: &str, from: usize, params: &Params) -> Markup {
    html! {
        section class="sorry" {
            h2 { "This is too large for a page" }
            p {
                @if outline.bytes > 0 { "It has " (size(outline.bytes)) ". " }
                "Showing it would take more memory than the viewer may use for one page. "
                @if outline.total > 0 { "Open a part of it, or download all of it." }
                @else { "It can be downloaded." }
            }
            p class="offers" {
                a class="button" href={ (address::raw(key, pointer)) "&download=yes" } download {
                    "Download all of it"
                }
            }
        }
        @if !outline.parts.is_empty() {
            ol class="contents" start=(from) aria-label="Its parts" {
                @for part in &outline.parts {
                    li {
                        @let way = address::below(pointer, &part.name);
                        @if part.is_cut || way.len() > MAX_POINTER_BYTES {
                            code class="path" { (short_name(&part.name)) }
                        } @else {
                            a href=(address::open(key, &way)) { code class="path" { (short_name(&part.name)) } }
                        }
                        " " span class="quiet" { (size(part.bytes)) }
                    }
                }
            }
            (pages((from, from + outline.parts.len(), outline.total), PARTS, params))
        }
    }
}

fn searching(value: &Json<'_>, key: &str, pointer: &str, params: &Params) -> Markup {
    let word = params.text("q");
    let found = word.map(|word| find_word(value, word));
    html! {
        form class="find wide" method="get" action="/open" role="search" aria-label="Search this payload" {
            input type="hidden" name="key" value=(key);
            input type="hidden" name="pointer" value=(pointer);
            input type="search" name="q" value=(word.unwrap_or_default()) placeholder="Search names and values"
                aria-label="Search names and values" autocomplete="off";
            button type="submit" { "Search" }
            button class="quiet" type="button" data-expand hidden { "Open all" }
        }
        @if let Some((hits, has_more)) = found {
            section class="hits" aria-label="Found" {
                p { (several(hits.len(), "place")) @if has_more { ", and more" } }
                ol {
                    @for hit in &hits {
                        li {
                            @match &hit.pointer {
                                Some(below) => a href=(address::open(key, &format!("{pointer}{below}"))) {
                                    code class="path" { (plain(&hit.path)) }
                                },
                                None => code class="path" { (plain(&hit.path)) },
                            }
                            " " span class="quiet" { (plain(&hit.value)) }
                        }
                    }
                }
            }
        }
    }
}

fn part(value: &Json<'_>, key: &str, pointer: &str, params: &Params) -> Markup {
    if let Json::Text(text) = value
        && text.len() > SHORT_TEXT_BYTES
    {
        return bare(&format!("A text of {}", size(text.len() as u64)), text);
    }
    let tree = Tree {
        value,
        place: Some((key, pointer)),
        lines: LINES,
        from: params.number("from").unwrap_or(0),
        is_open: false,
    };
    let total = value
        .members()
        .map_or(0, <[_]>::len)
        .max(value.items().map_or(0, <[_]>::len));
    let end = (tree.from + tree.most()).min(total);
    html! {
        (tree)
        (pages((tree.from, end, total), tree.most(), params))
    }
}

/// The ways to what stands before and after these.
fn pages((from, end, total): (usize, usize, usize), most: usize, params: &Params) -> Markup {
    let page = |from: usize| params.with("/open", "from", &from.to_string());
    html! {
        @if total > most {
            nav class="pages" aria-label="Pages" {
                @if from > 0 {
                    a class="button quiet" href=(page(from.saturating_sub(most))) { "← Before" }
                }
                span { (count(from + 1)) " to " (count(end)) " of " (count(total)) }
                @if end < total { a class="button quiet" href=(page(end)) { "After →" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_leads_to_a_payload_and_on() {
        assert_eq!(split_pointer("/steps/2/request"), ("/steps/2/request", ""));
        assert_eq!(
            split_pointer("/steps/2/request/observed/a"),
            ("/steps/2/request", "/observed/a")
        );
        assert_eq!(split_pointer(""), ("", ""));
    }
}
