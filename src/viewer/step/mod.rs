//! `/trace/{id}/step/{place}`: what a function was asked, what it answered, what it did.

mod call;
mod pane;

use std::sync::Arc;

use axum::{
    extract::{Path, RawQuery, State},
    http::HeaderMap,
    response::Html,
};
use maud::{Markup, html};

use super::{
    Viewer,
    address::{self, Params},
    changes::Sections,
    diff::{Cards, MAX_TOLD},
    failure::Failure,
    page::Page,
    payload_bytes,
    reconcile::{did, said, sorry, trail_into},
    texts::StepTexts,
    words::{Badge, clock, lasted, plain, short_id, size, step_name},
};
use crate::{
    answers::{ResourceChange, Selection, compare_up_to},
    json::Values,
    line::{Line, LineStep},
};

impl Viewer {
    /// A step, with its place.
    async fn find_step(&self, id: &str, place: &str) -> Result<(Line, usize), Failure> {
        let line = self.find(id).await?;
        let place = place.parse().ok().filter(|place| *place < line.steps.len());
        let place = place.ok_or_else(|| Failure::Missing {
            what: format!(
                "This reconcile has {} steps, counted from 0.",
                line.steps.len()
            ),
            advice: "Go back to the reconcile, and from there to one of its steps.",
        })?;
        Ok((line, place))
    }

    /// What is selected of a step's payloads, beside so much text that is held already.
    async fn step_texts(
        &self,
        line: &Line,
        step: &LineStep,
        selection: &Selection,
        held_bytes: u64,
    ) -> Result<StepTexts, Failure> {
        let answers = self.answers_beside(held_bytes);
        let stored = answers.excerpt(line, selection).await?;
        StepTexts::of(stored, step).map_err(|error| Failure::opening(&line.object.key, error))
    }

    /// What a step did, to what it was given or against the reconcile before, and its payloads.
    async fn step_content(
        &self,
        line: &Line,
        place: usize,
        step: &LineStep,
        params: &Params,
        origin: &str,
    ) -> Result<Markup, Failure> {
        let is_against_previous = params.text("view") == Some("previous");
        let selection = Selection::of_step(step);
        let texts = self.step_texts(line, step, &selection, 0).await?;
        let what = if is_against_previous {
            self.against_previous(line, step, &texts).await?
        } else {
            done(line, step, &texts, params.raw("resource"), &self.values())
        };
        let path = address::step(&line.trace_id, place);
        Ok(html! {
            section id="did" class="did-section" aria-labelledby="did-title" {
                div class="title-row" {
                    h2 id="did-title" { "What it did" }
                    nav class="choices" aria-label="Against what" {
                        a href={ (path) "#did" } aria-current=[(!is_against_previous).then_some("true")] {
                            "To what it was given"
                        }
                        a href={ (path) "?view=previous#did" } aria-current=[is_against_previous.then_some("true")] {
                            "Against the previous reconcile"
                        }
                    }
                }
                (what)
            }
            div class="panes" {
                (pane::render(line, "Request", step.request.as_ref(), texts.request(), &self.values()))
                (pane::render(line, "Response", step.response.as_ref(), texts.response(), &self.values()))
            }
            (call::render(line, step, texts.request(), origin, self.access.has_token()))
        })
    }

    async fn against_previous(
        &self,
        line: &Line,
        step: &LineStep,
        texts: &StepTexts,
    ) -> Result<Markup, Failure> {
        let previous = self.answers.previous_of(line).await?;
        let earlier = previous
            .as_ref()
            .and_then(|previous| Some((previous, same_step(previous, step)?)));
        let Some((previous, earlier)) = earlier else {
            return Ok(html! {
                p class="nothing" { "No earlier reconcile is known that had a step of this name." }
            });
        };
        let selection = Selection::states_of_step(earlier);
        let before = self.step_texts(previous, earlier, &selection, texts.bytes());
        let before = before.await?;
        let sections = Sections {
            line,
            values: &|| self.values(),
        };
        Ok(against(&sections, previous, &before, texts))
    }
}

pub(super) async fn show(
    State(viewer): State<Arc<Viewer>>,
    Path((id, place)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Html<String>, Failure> {
    let params = Params::parse(query.as_deref());
    let (line, place) = viewer.find_step(&id, &place).await?;
    let step = line.steps.get(place).ok_or(Failure::NoPage)?;
    let origin = viewer.access.origin(&headers);
    let content = async {
        let _seat = viewer.take_seat().await;
        // How large the reconcile before is, is not known yet.
        let is_alone = params.text("view") != Some("previous");
        let payloads = if is_alone {
            payload_bytes(&line)
        } else {
            u64::MAX
        };
        let _memory = viewer.take_memory(&line.object.key, payloads).await?;
        let content = viewer.step_content(&line, place, step, &params, &origin);
        content.await
    };
    let content = match content.await {
        // What its line says is shown all the same.
        Err(failure @ (Failure::TooLarge { .. } | Failure::Crowded { .. })) => {
            too_large(&line, step, &failure)
        }
        content => content?,
    };
    let page = Page {
        title: step_name(step).into_owned(),
        trail: trail_into(&line),
    };
    let body = page.render(&html! {
        (head(&line, place, step))
        (content)
    });
    Ok(Html(body.into_string()))
}

/// In place of payloads that are too large.
fn too_large(line: &Line, step: &LineStep, failure: &Failure) -> Markup {
    let payloads = [("Request", &step.request), ("Response", &step.response)];
    html! {
        (sorry(failure))
        div class="panes" {
            @for (title, at) in payloads {
                @if let Some(at) = at {
                    section class="pane" {
                        div class="pane-head" {
                            h2 { (title) }
                            span class="quiet" { (size(at.size)) }
                            span class="tools" {
                                a href=(address::open(&line.object.key, &at.pointer)) { "Part by part" }
                                a href=(address::raw(&line.object.key, &at.pointer)) { "JSON" }
                                a href={ (address::raw(&line.object.key, &at.pointer)) "&download=yes" } download {
                                    "Download"
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What a step did to one resource, for a page that is already there.
pub(super) async fn show_change(
    State(viewer): State<Arc<Viewer>>,
    Path((id, place)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Html<String>, Failure> {
    let params = Params::parse(query.as_deref());
    let (line, place) = viewer.find_step(&id, &place).await?;
    let step = line.steps.get(place).ok_or(Failure::NoPage)?;
    let resource = params.raw("resource").unwrap_or_default();
    let _desk = viewer.take_desk(&line.object.key, &[&line]).await?;
    let selection = Selection::states_of_step(step).of_resource(resource);
    let texts = viewer.step_texts(&line, step, &selection, 0).await?;
    let body = html! {
        div class="title-row" {
            h2 tabindex="-1" { "What " (step_name(step)) " did" }
            a class="button quiet" href=(address::step(&line.trace_id, place)) { "Whole step" }
            a class="button quiet" href=(address::story(&line.trace_id, resource)) { "Its story" }
        }
        (done(&line, step, &texts, Some(resource), &viewer.values()))
    };
    Ok(Html(body.into_string()))
}

/// The step of another reconcile that does the same.
fn same_step<'l>(line: &'l Line, step: &LineStep) -> Option<&'l LineStep> {
    let mut steps = line.steps.iter();
    steps.find(|other| other.name == step.name && other.iteration == step.iteration)
}

fn head(line: &Line, place: usize, step: &LineStep) -> Markup {
    let before = place
        .checked_sub(1)
        .and_then(|before| Some((before, line.steps.get(before)?)));
    let after = line.steps.get(place + 1).map(|after| (place + 1, after));
    let way = |(place, step): (usize, &LineStep)| {
        (
            address::step(&line.trace_id, place),
            step_name(step).into_owned(),
        )
    };
    html! {
        div class="title-row" {
            h1 { (step_name(step)) }
            (Badge::of_status(step.status))
            @if step.cached { span class="badge quiet" { "cached" } }
            nav class="ways" aria-label="Other steps" {
                @if let Some((address, name)) = before.map(way) {
                    a class="button quiet" rel="prev" href=(address) { "← " (name) }
                }
                @if let Some((address, name)) = after.map(way) {
                    a class="button quiet" rel="next" href=(address) { (name) " →" }
                }
            }
        }
        dl class="facts" {
            div { dt { "Function" } dd { (plain(&step.function)) } }
            div { dt { "Took" } dd { (lasted(step.duration_ms)) } }
            div { dt { "Began" } dd { (clock(step.started_at)) } }
            div { dt { "Desired" } dd { (did(step)) } }
            @if let Some(input) = &step.facts.input_kind { div { dt { "Input" } dd { (plain(input)) } } }
            @if let Some(ttl) = step.facts.ttl_s {
                div { dt { "Answer is good for" } dd { (lasted(Some(ttl * 1_000.0))) } }
            }
            @if let Some(tag) = &step.facts.tag {
                div { dt { "Tag" } dd { code title=(plain(tag)) { (short_id(tag)) } } }
            }
        }
        div class="said" { (said(step)) }
    }
}

/// What a step did to what it was given.
fn done(
    line: &Line,
    step: &LineStep,
    texts: &StepTexts,
    only: Option<&str>,
    values: &Values,
) -> Markup {
    let (Some(given), Some(returned)) = (texts.given(values), texts.returned(values)) else {
        return html! {
            p class="nothing" {
                @if values.is_exceeded() {
                    "Not compared: this has too many values for a page."
                } @else if step.status.is_failure() {
                    "It failed, so that nothing it returned is applied."
                } @else {
                    "Not known: its request or its response is not there."
                }
            }
        };
    };
    let found: Vec<ResourceChange<'_>> = compare_up_to(&given, &returned, MAX_TOLD)
        .into_iter()
        .filter(|change| only.is_none_or(|only| change.name == only))
        .collect();
    let changes = Cards {
        changes: &found,
        trace_id: &line.trace_id,
        composite: &line.subject.name,
        without_bookkeeping: false,
    };
    let shown = only.map(|only| {
        if only.is_empty() {
            &line.subject.name
        } else {
            only
        }
    });
    html! {
        @if changes.is_empty() {
            p class="nothing" {
                @match shown {
                    Some(name) => { "It left " code { (plain(name)) } " as it was." },
                    None => "It left everything as it was.",
                }
            }
        } @else { (changes) }
    }
}

/// A step against the same step of the reconcile before.
fn against(
    sections: &Sections<'_>,
    previous: &Line,
    before: &StepTexts,
    after: &StepTexts,
) -> Markup {
    let returned = |values: &Values| (before.returned(values), after.returned(values));
    let given = |values: &Values| (before.given(values), after.given(values));
    let observed = |values: &Values| (before.observed(values), after.observed(values));
    html! {
        p class="quiet" {
            "The reconcile before is "
            a href=(address::trace(&previous.trace_id)) { code { (short_id(&previous.trace_id)) } } "."
        }
        (sections.section("Returned", "returned", &returned))
        (sections.section("Given", "given", &given))
        (sections.section("Observed", "observed", &observed))
    }
}
