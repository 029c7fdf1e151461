//! The matrix: resources down, steps across, and what each step did to each resource.
//!
//! A resource is a track: it begins where a step asks for it, and ends where one drops it.

use maud::{Markup, html};

use super::rows::{Choice, Entry, Selection, readiness_in_the_end};
use crate::{
    answers::{Cell, Mark, Matrix, Pipeline, Resource, Row, find},
    json::Json,
    line::{Line, LineStep},
    viewer::{
        address::{self, Params},
        words::{Badge, count, lasted, plain, several, short_name, sign_of, step_name},
    },
};

pub(super) fn render(
    line: &Line,
    pipeline: &Pipeline<'_>,
    matrix: &Matrix<'_>,
    params: &Params,
) -> Markup {
    let selection = Selection::of(matrix, params);
    let path = address::trace(&line.trace_id);
    html! {
        section class="matrix-section" aria-labelledby="matrix-title" {
            div class="title-row" {
                h2 id="matrix-title" { "Resources, step by step" }
                (choices(&selection, params, &path))
            }
            div data-matrix {
                div class="frame" tabindex="0" role="region" aria-label="The matrix, which scrolls" {
                    table class="matrix" {
                        caption class="sr" { "What each step did to each resource" }
                        thead { tr {
                            th scope="col" class="corner" { "Resource" }
                            th scope="col" class="observed" { "Observed" }
                            @for (place, step) in line.steps.iter().enumerate() { (column(line, place, step)) }
                            th scope="col" class="fate" { "Outcome" }
                        } }
                        tbody {
                            @for entry in &selection.entries { (entry_row(line, pipeline, entry, params)) }
                        }
                    }
                    @if selection.entries.is_empty() {
                        p class="nothing" { "No resource is like this." }
                    }
                }
                (pages(&selection, params, &path))
            }
            (legend())
        }
    }
}

fn choices(selection: &Selection<'_>, params: &Params, path: &str) -> Markup {
    html! {
        nav class="choices" aria-label="Which resources" {
            @for (choice, number) in Choice::ALL.into_iter().zip(selection.counts) {
                @if number > 0 || choice == selection.choice {
                    @let is_here = choice == selection.choice && params.raw("like").is_none();
                    a href=(format!("{path}?rows={}#matrix-title", choice.as_str()))
                        aria-current=[is_here.then_some("true")] {
                        (choice.title()) " " span class="tally" { (count(number)) }
                    }
                }
            }
        }
        form class="find" method="get" action={ (path) "#matrix-title" } role="search" aria-label="Find resources" {
            input type="hidden" name="rows" value=(selection.choice.as_str());
            input type="search" name="name" value=(params.raw("name").unwrap_or_default())
                placeholder="Name contains" aria-label="Name contains" autocomplete="off" data-narrow;
        }
    }
}

fn column(line: &Line, place: usize, step: &LineStep) -> Markup {
    let class = if step.status.is_failure() {
        "step failed"
    } else {
        "step"
    };
    html! {
        th scope="col" class=(class) {
            a href=(address::step(&line.trace_id, place)) title=(plain(&step.function)) {
                span class="step-name" { (step_name(step)) }
                span class="function" { (plain(&step.function)) }
                span class="function" {
                    @if step.status.is_failure() { (Badge::of_status(step.status)) }
                    @else { (lasted(step.duration_ms)) }
                }
            }
        }
    }
}

fn entry_row(line: &Line, pipeline: &Pipeline<'_>, entry: &Entry<'_>, params: &Params) -> Markup {
    let row = entry.row;
    let observed = pipeline.observed.as_ref();
    let observed = observed.and_then(|observed| find(observed, row.name));
    let is_composite = row.name.is_empty();
    let name = short_name(if is_composite {
        &line.subject.name
    } else {
        row.name
    });
    html! {
        tr class=[is_composite.then_some("composite")] {
            th scope="row" {
                div class="resource" {
                    a href=(address::story(&line.trace_id, row.name)) {
                        span class="name" { (name) }
                    }
                    span class="kind" {
                        (short_name(row.kind))
                        @if is_composite { " · composite" }
                        @if entry.alike > 0 {
                            " · "
                            a class="alike" href=(address::alike(&line.trace_id, params, row.name)) {
                                "and " (count(entry.alike)) " alike"
                            }
                        }
                    }
                }
            }
            (observed_cell(row, observed, pipeline.observed.is_some()))
            @for (place, cell) in row.cells.iter().enumerate() {
                (step_cell(line, place, row, &name, cell))
            }
            td class="fate" {
                (Badge::of_fate(row.fate))
            }
        }
    }
}

fn observed_cell(row: &Row<'_>, observed: Option<&Resource<'_>>, is_known: bool) -> Markup {
    let ready = observed.and_then(|observed| observed.condition("Ready"));
    let ready = ready
        .and_then(|ready| ready.member("status"))
        .and_then(Json::text);
    let ready = ready.map(|status| status == "True");
    let word = match observed {
        None if is_known => "new",
        None => "?",
        Some(observed) if observed.is_being_deleted() => "deleting",
        Some(_) => "exists",
    };
    html! {
        td class={ "observed" @if !row.is_observed { " none" } } {
            span class="there" { (word) }
            (dot(ready))
        }
    }
}

fn step_cell(line: &Line, place: usize, row: &Row<'_>, name: &str, cell: &Cell) -> Markup {
    let has_failed = line
        .steps
        .get(place)
        .is_some_and(|step| step.status.is_failure());
    let before = place
        .checked_sub(1)
        .and_then(|before| row.cells.get(before));
    let was_there = before
        .is_some_and(|before| matches!(before.mark, Mark::Added | Mark::Changed | Mark::Untouched));
    let track = match cell.mark {
        Mark::Added => " from",
        Mark::Changed | Mark::Untouched => " through",
        Mark::Dropped => " to",
        Mark::Unknown if was_there => " lost",
        Mark::Absent | Mark::Unknown => "",
    };
    let is_last = place + 1 == row.cells.len();
    let in_the_end = is_last.then(|| readiness_in_the_end(row, cell)).flatten();
    let ready = cell.ready.or(in_the_end);
    let failed = if has_failed { " failed" } else { "" };
    let news = if cell.is_ready_news { " news" } else { "" };
    let step = line.steps.get(place).map(step_name).unwrap_or_default();
    html! {
        td class={ "c " (cell.mark.as_str()) (track) (failed) (news) } {
            @if cell.mark == Mark::Absent {
                span class="sr" { "absent" }
            } @else {
                a class="cell" href={ (address::change(&line.trace_id, place, row.name)) "#did" }
                    title=(tell(cell, name, &step)) {
                    span class="node" {
                        span aria-hidden="true" { (sign_of(cell.mark)) @if cell.fields > 0 { (cell.fields) } }
                        span class="sr" {
                            (cell.mark.as_str())
                            @if cell.fields > 0 { ", " (several(cell.fields, "field")) }
                        }
                    }
                    (dot(ready))
                }
            }
        }
    }
}

fn tell(cell: &Cell, name: &str, step: &str) -> String {
    let fields = match cell.fields {
        0 => String::new(),
        fields => format!(", {}", several(fields, "field")),
    };
    let ready = match (cell.ready, cell.is_ready_news) {
        (Some(true), true) => ", made ready here",
        (Some(true), false) => ", ready",
        (Some(false), _) => ", not ready",
        (None, _) => "",
    };
    format!("{name} in {step}: {}{fields}{ready}", cell.mark.as_str())
}

/// What is said of readiness.
pub(in crate::viewer) fn dot(ready: Option<bool>) -> Markup {
    html! {
        @match ready {
            Some(true) => span class="dot ready" { span class="sr" { ", ready" } },
            Some(false) => span class="dot" { span class="sr" { ", not ready" } },
            None => {},
        }
    }
}

fn pages(selection: &Selection<'_>, params: &Params, path: &str) -> Markup {
    let end = selection.from + selection.entries.len();
    let page = |from: usize| {
        format!(
            "{}#matrix-title",
            params.with(path, "from", &from.to_string())
        )
    };
    html! {
        @if end < selection.total || selection.from > 0 {
            nav class="pages" aria-label="Pages of the matrix" {
                @if selection.from > 0 {
                    a class="button quiet" href=(page(selection.from.saturating_sub(selection.most))) { "← Before" }
                }
                span { "Rows " (count(selection.from + 1)) " to " (count(end)) " of " (count(selection.total)) }
                @if end < selection.total {
                    a class="button quiet" href=(page(end)) { "After →" }
                }
            }
        }
    }
}

fn legend() -> Markup {
    let marks = [
        (Mark::Added, "added"),
        (Mark::Changed, "changed, with how many fields"),
        (Mark::Untouched, "untouched"),
        (Mark::Dropped, "dropped"),
        (Mark::Unknown, "unknown: the step failed"),
    ];
    html! {
        ul class="legend" aria-label="Legend" {
            @for (mark, word) in marks {
                li {
                    span class={ "c " (mark.as_str()) } {
                        span class="node" aria-hidden="true" { (sign_of(mark)) }
                    }
                    (word)
                }
            }
            li { span class="dot ready" {} "ready" }
            li { span class="dot" {} "not ready" }
        }
    }
}
