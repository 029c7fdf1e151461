//! `/trace/{id}`: a reconcile: what is wrong, when its steps ran, and the matrix.

mod head;
mod matrix;
mod rows;
mod waterfall;

use std::sync::Arc;

pub(super) use self::{
    matrix::dot,
    waterfall::{did, said},
};
use axum::{
    extract::{Path, RawQuery, State},
    response::Html,
};
use maud::{Markup, html};

use super::{
    Viewer,
    address::{self, Params},
    failure::Failure,
    gist::{alarms, outcome},
    page::Page,
    words::{full_name, plain, short_id},
};
use crate::{
    answers::{Matrix, Pipeline, Selection},
    line::Line,
};

/// Drops and flaps that are told one by one.
const MAX_ALARMS: usize = 12;

/// The way to a reconcile: the list, then its subject's history.
pub(super) fn trail_to(line: &Line) -> Vec<(String, String)> {
    let subject = format!("{} {}", plain(&line.subject.kind), full_name(line));
    vec![
        ("/".to_owned(), "Reconciles".to_owned()),
        (address::history(line), subject),
    ]
}

/// The way to what is within a reconcile.
pub(super) fn trail_into(line: &Line) -> Vec<(String, String)> {
    let mut trail = trail_to(line);
    trail.push((address::trace(&line.trace_id), short_id(&line.trace_id)));
    trail
}

pub(super) async fn show(
    State(viewer): State<Arc<Viewer>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Html<String>, Failure> {
    let params = Params::parse(query.as_deref());
    let line = viewer.find(&id).await?;
    let next = viewer.answers.next_of(&line).await?;
    let desk = viewer.take_desk(&line.object.key, &[&line]).await;
    let matrix = match &desk {
        Ok(_) => viewer.matrix(&line, &params).await,
        Err(_) => Err(Failure::Crowded {
            key: line.object.key.clone(),
        }),
    };
    let matrix = matrix.unwrap_or_else(|failure| sorry(&failure));
    let page = Page {
        title: short_id(&line.trace_id),
        trail: trail_to(&line),
    };
    let body = page.render(&html! {
        (head::render(&line, next.as_ref(), viewer.clock.now()))
        (told(&line))
        (waterfall::render(&line))
        (matrix)
    });
    Ok(Html(body.into_string()))
}

impl Viewer {
    async fn matrix(&self, line: &Line, params: &Params) -> Result<Markup, Failure> {
        let key = &line.object.key;
        let stored = self.answers.excerpt(line, &Selection::states()).await?;
        let document = stored.open();
        let document = document.map_err(|error| Failure::opening(key, error))?;
        let values = self.values();
        let pipeline = Pipeline::read_within(line, &document, &values);
        if values.is_exceeded() {
            return Err(Failure::TooLarge { key: key.clone() });
        }
        Ok(matrix::render(
            line,
            &pipeline,
            &Matrix::of(&pipeline),
            params,
        ))
    }
}

/// What to know before everything else.
fn told(line: &Line) -> Markup {
    let alarms = alarms(line);
    html! {
        @if !alarms.is_empty() {
            ul class="alarms" aria-label="What is wrong" {
                @for alarm in alarms.iter().take(MAX_ALARMS) { li { (alarm) } }
                @if alarms.len() > MAX_ALARMS {
                    li { "and " (alarms.len() - MAX_ALARMS) " more, in the matrix" }
                }
            }
        }
        @let outcome = outcome(line);
        @if !outcome.is_empty() {
            p class="outcome" {
                span class="label" { "Outcome" }
                @for point in outcome { (point) " " }
            }
        }
    }
}

/// In place of what takes payloads.
pub(super) fn sorry(failure: &Failure) -> Markup {
    html! {
        section class="sorry" {
            h2 {
                @if matches!(failure, Failure::TooLarge { .. }) { "The payloads are too large to be shown here" }
                @else { "The payloads can't be shown" }
            }
            p { (plain(&failure.what())) }
            p { (failure.advice()) }
            (failure.offers())
        }
    }
}
