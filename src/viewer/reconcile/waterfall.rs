//! The steps of a reconcile by time, with what each did and said.

use maud::{Markup, html};

use crate::{
    line::{Condition, Line, LineStep, StepResult},
    text::cut,
    viewer::{
        address,
        words::{Badge, lasted, plain, step_name},
    },
};

/// Of a message.
const MESSAGE_BYTES: usize = 400;
/// So that a step of no time still shows, in percent.
const THINNEST: f64 = 0.6;

pub(super) fn render(line: &Line) -> Markup {
    html! {
        section aria-labelledby="steps-title" {
            h2 id="steps-title" { "Steps" }
            table class="waterfall" {
                caption class="sr" { "The steps of the pipeline by time" }
                thead {
                    tr {
                        th scope="col" { "Step" }
                        th scope="col" class="time" { span class="sr" { "Time" } }
                        th scope="col" class="number" { "Took" }
                        th scope="col" { "Status" }
                        th scope="col" { "Desired" }
                        th scope="col" { "Said" }
                    }
                }
                tbody {
                    @for (place, step) in line.steps.iter().enumerate() { (row(line, place, step)) }
                }
            }
        }
    }
}

fn row(line: &Line, place: usize, step: &LineStep) -> Markup {
    html! {
        tr {
            th scope="row" {
                a href=(address::step(&line.trace_id, place)) { (step_name(step)) }
                span class="function" { (plain(&step.function)) }
                @if step.iteration > 0 { span class="function" { "iteration " (step.iteration) } }
            }
            td class="time" { (bar(line, step)) }
            td class="number" {
                (lasted(step.duration_ms))
                @if step.cached { span class="function" { "cached" } }
            }
            td { (Badge::of_status(step.status)) }
            td class="did" { (did(step)) }
            td class="said" { (said(step)) }
        }
    }
}

/// NOTE: drawn with attributes, since the policy of these pages allows no style in them.
fn bar(line: &Line, step: &LineStep) -> Markup {
    let start = step.started_at.since(line.started_at).as_secs_f64() * 1_000.0;
    let (left, width) = stretch(line.duration_ms, start, step.duration_ms);
    html! {
        svg class="bar" width="100%" height="12" aria-hidden="true" focusable="false" {
            rect class="rail" x="0" y="5.5" width="100%" height="1" {}
            rect class=(step.status.as_str()) x={ (format!("{left:.2}")) "%" } y="1"
                width={ (format!("{width:.2}")) "%" } height="10" rx="2.5" {}
        }
    }
}

/// Where a bar begins and how wide it is, in percent of the whole. Times are milliseconds.
fn stretch(whole: f64, start: f64, lasted: Option<f64>) -> (f64, f64) {
    let whole = whole.max(0.001);
    let left = (start / whole * 100.0).clamp(0.0, 100.0 - THINNEST);
    let lasted = lasted.unwrap_or(whole - start);
    // NOTE: what is left of 100 may come out a hair below the thinnest, so this can't be a clamp.
    let width = (lasted / whole * 100.0).min(100.0 - left).max(THINNEST);
    (left, width)
}

/// What a step did to the desired state.
pub(in crate::viewer) fn did(step: &LineStep) -> Markup {
    let summary = html! {
        @if let Some(why) = &step.facts.summary {
            span class="function" { "unknown, summary " (plain(why)) }
        }
    };
    let Some(desired) = &step.facts.desired else {
        return summary;
    };
    let counts = [
        ("+", "good", "added", desired.added_count),
        ("~", "warn", "changed", desired.changed_count),
        ("−", "bad", "dropped", desired.removed_count),
    ];
    html! {
        @for (sign, class, word, count) in counts {
            @if count > 0 {
                span class={ "delta " (class) } title=(word) { (sign) (count) span class="sr" { " " (word) } } " "
            }
        }
        span class="function" { (desired.total) " desired, " (desired.ready) " ready" }
        (summary)
    }
}

/// Results, conditions, requirements, errors.
pub(in crate::viewer) fn said(step: &LineStep) -> Markup {
    let facts = &step.facts;
    let counts = &facts.result_counts;
    let all = counts.normal + counts.warning + counts.fatal;
    let untold = all.saturating_sub(facts.results.len() as u64);
    html! {
        @if let Some(error) = &step.error {
            p class="message bad" { (plain(&cut(error, MESSAGE_BYTES))) }
        }
        @for result in &facts.results { (result_of(result)) }
        @if untold > 0 { p class="function" { "and " (untold) " more results" } }
        @for condition in &facts.conditions { (condition_of(condition)) }
        @for required in &facts.requirements {
            p class="message" {
                span class="label" { "needs" } " "
                (plain(&required.kind)) " " code { (plain(&required.name)) }
                @match required.found {
                    Some(0) => { " — " strong { "none found" } }
                    Some(found) => { " — " (found) " found" }
                    None => {}
                }
            }
        }
    }
}

fn result_of(result: &StepResult) -> Markup {
    html! {
        p class="message" {
            (Badge::of_severity(result.severity)) " "
            @if let Some(reason) = &result.reason { span class="label" { (plain(reason)) } " " }
            (plain(&cut(&result.message, MESSAGE_BYTES)))
        }
    }
}

fn condition_of(condition: &Condition) -> Markup {
    html! {
        p class="message" {
            span class="condition" {
                (plain(&condition.condition_type)) "=" (plain(&condition.status))
            }
            " " span class="label" { (plain(&condition.reason)) }
            @if let Some(message) = &condition.message { " " (plain(&cut(message, MESSAGE_BYTES))) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_stays_within_the_whole_and_is_never_invisible() {
        for (whole, start, lasted) in [
            (140_000.0, 140_000.0, Some(0.0)),
            (140_000.0, 150_000.0, None),
            (0.0, 0.0, Some(0.0)),
            (0.0, 5.0, None),
            (100.0, 0.0, Some(1_000.0)),
            (100.0, -5.0, Some(-5.0)),
        ] {
            let (left, width) = stretch(whole, start, lasted);
            assert!(left >= 0.0 && width >= THINNEST, "{left} {width}");
            assert!(left + width <= 100.0 + 1e-9, "{left} {width}");
        }
        assert_eq!(stretch(200.0, 50.0, Some(100.0)), (25.0, 50.0));
    }
}
