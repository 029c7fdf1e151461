//! `/open`: where the links in spans lead. A payload, or a part of it, in its reconcile.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{RawQuery, State},
    response::{Html, Redirect},
};
use maud::{Markup, html};

use super::{
    Viewer,
    address::{self, Params},
    failure::Failure,
    page::Page,
    payload::{Tree, bare},
    raw::missing,
    reconcile::{sorry, trail_into},
    search::find_word,
    words::{count, plain, several, size},
};
use crate::{
    answers::{Payload, PayloadsError, StoredDocument},
    archive::{Key, Query},
    json::Json,
    line::Line,
};

/// On a page.
const LINES: usize = 3_000;
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
) -> Result<Html<String>, Failure> {
    let params = Params::parse(query.as_deref());
    let key = params.text("key").unwrap_or_default();
    let pointer = params.text("pointer").unwrap_or_default();
    let parsed = Key::parse(key).ok_or_else(|| PayloadsError::NotAKey(key.to_owned()))?;
    let _desk = viewer.take_desk().await;
    let stored = viewer.answers.document(key).await;
    let line = viewer.line_of(&parsed, stored.as_ref().ok()).await;
    let (content, line) = match (stored, line) {
        (Ok(stored), line) => (
            opened(&stored, key, pointer, &params)?,
            line.unwrap_or_default(),
        ),
        // With its reconcile around it, a payload that is gone is not nothing.
        (Err(error), Ok(Some(line))) => (sorry(&error.into()), Some(line)),
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
            h1 class="pointer" { (heading(line.as_ref(), pointer)) }
            (ways(line.as_ref(), key, pointer, can_sign))
        }
        p class="quiet key" { code data-copy { (plain(key)) } }
        (content)
    });
    Ok(Html(body.into_string()))
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
        stored: Option<&StoredDocument>,
    ) -> Result<Option<Line>, Failure> {
        let Some((began, in_key)) = key.began() else {
            return Ok(None);
        };
        // In a key, an odd id stands in other letters.
        let document = stored.and_then(|stored| stored.open().ok());
        let trace_id = document.map_or(in_key.into(), |document| document.trace_id);
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

fn heading(line: Option<&Line>, pointer: &str) -> Markup {
    let (payload, below) = split_pointer(pointer);
    let mut segments = payload.split('/').skip(2);
    let place: Option<usize> = segments.next().and_then(|place| place.parse().ok());
    let what = segments.next().unwrap_or("object");
    let step = line.zip(place).and_then(|(line, _)| step_at(line, payload));
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

/// The step that a payload is of; its place in the line may differ from that in the object.
fn step_at<'l>(line: &'l Line, payload: &str) -> Option<(usize, &'l str)> {
    let mut steps = line.steps.iter().enumerate();
    let is_at =
        |at: &Option<crate::line::PayloadRef>| at.as_ref().is_some_and(|at| at.pointer == payload);
    let (place, step) = steps.find(|(_, step)| is_at(&step.request) || is_at(&step.response))?;
    Some((place, &step.name))
}

fn ways(line: Option<&Line>, key: &str, pointer: &str, can_sign: bool) -> Markup {
    let (payload, below) = split_pointer(pointer);
    let step = line.and_then(|line| Some((line, step_at(line, payload)?.0)));
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

fn opened(
    stored: &StoredDocument,
    key: &str,
    pointer: &str,
    params: &Params,
) -> Result<Markup, Failure> {
    let document = stored
        .open()
        .map_err(|error| Failure::opening(key, error))?;
    if pointer.is_empty() {
        return Ok(contents(&document, key));
    }
    let (payload, below) = split_pointer(pointer);
    let text = match document.payload_at(payload) {
        Payload::Missing => return Err(missing(pointer)),
        Payload::Json(text) => text,
        Payload::Text(text) => return Ok(bare("This is no JSON.", text)),
        Payload::Base64(text) => return Ok(bare("This is not even text; in base64:", text)),
    };
    let Ok(whole) = Json::parse(text) else {
        return Ok(bare("This JSON is nested too deeply to be folded.", text));
    };
    let value = whole.at_pointer(below).ok_or_else(|| missing(pointer))?;
    Ok(html! {
        (searching(value, key, pointer, params))
        (part(value, key, pointer, params))
    })
}

/// What an object holds.
fn contents(document: &crate::answers::Document<'_>, key: &str) -> Markup {
    html! {
        ol class="contents" {
            @for (place, step) in document.steps.iter().enumerate() {
                li {
                    span class="name" { (plain(&step.name)) } " " span class="function" { (plain(&step.function)) }
                    " "
                    @for what in ["request", "response"] {
                        @let pointer = format!("/steps/{place}/{what}");
                        @if document.payload_at(&pointer) == Payload::Missing {
                            span class="quiet" { "no " (what) }
                        } @else {
                            a href=(address::open(key, &pointer)) { (what) }
                        }
                        " "
                    }
                }
            }
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
                            a href=(address::open(key, &format!("{pointer}{}", hit.pointer))) {
                                code class="path" { (plain(&hit.path)) }
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
    let page = |from: usize| params.with("/open", "from", &from.to_string());
    html! {
        (tree)
        @if total > tree.most() {
            nav class="pages" aria-label="Pages" {
                @if tree.from > 0 {
                    a class="button quiet" href=(page(tree.from.saturating_sub(tree.most()))) { "← Before" }
                }
                span { (count(tree.from + 1)) " to " (count(end)) " of " (count(total)) }
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
