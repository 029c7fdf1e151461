//! What a reconcile was about, in a few words: from its line alone.

use maud::{Markup, Render, html};

use super::words::{plain, several, step_name};
use crate::{
    line::{Line, LineStep, Status},
    text::cut,
};

/// Bytes of a message in a list.
const MESSAGE_BYTES: usize = 160;
/// Names that are told before the rest is counted.
const NAMES: usize = 3;

/// One thing to know.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Point {
    symbol: &'static str,
    class: &'static str,
    pub(super) text: String,
}

impl Render for Point {
    fn render(&self) -> Markup {
        html! {
            span class={ "point " (self.class) } {
                span class="sign" aria-hidden="true" { (self.symbol) }
                (self.text)
            }
        }
    }
}

/// The step at which the pipeline ended, if it did not end well.
pub(super) fn failing_step(line: &Line) -> Option<(usize, &LineStep)> {
    let mut steps = line.steps.iter().enumerate();
    steps.find(|(_, step)| step.status.is_failure())
}

/// Why a step failed, in its own words.
pub(super) fn failure_of(step: &LineStep) -> String {
    let fatal = step.facts.results.iter();
    let fatal = fatal.max_by_key(|result| result.severity);
    match (step.status, &step.error, fatal) {
        (_, Some(error), _) => error.clone(),
        (Status::Fatal, None, Some(result)) => result.message.clone(),
        _ => "no response came".to_owned(),
    }
}

/// What is wrong or will be lost, the worst first.
pub(super) fn alarms(line: &Line) -> Vec<Point> {
    let mut points = Vec::new();
    if let Some((_, step)) = failing_step(line) {
        let why = failure_of(step);
        points.push(Point {
            symbol: "✕",
            class: "bad",
            text: format!("{} failed: {}", step_name(step), plain(&why)),
        });
    }
    for dropped in &line.dropped {
        let by = dropped
            .step
            .and_then(|place| line.steps.get(place as usize));
        let name = plain(&dropped.resource);
        let text = match (by, dropped.observed) {
            (Some(step), true) => {
                format!(
                    "{} drops {name}, which exists and will be deleted",
                    step_name(step)
                )
            }
            (Some(step), false) => format!("{} drops {name}", step_name(step)),
            (None, _) => format!("{name} exists, and no step asks for it: it will be deleted"),
        };
        points.push(Point {
            symbol: "−",
            class: "bad",
            text,
        });
    }
    for flap in &line.flapping {
        let resource = match flap.resource.as_str() {
            "" => "the composite",
            name => name,
        };
        let text = match flap.field.as_str() {
            "" => format!("{} went and came back", plain(resource)),
            field => format!(
                "{} of {} went back to an earlier value",
                plain(field),
                plain(resource)
            ),
        };
        points.push(Point {
            symbol: "↺",
            class: "warn",
            text,
        });
    }
    points
}

/// What will become of the composed resources.
pub(super) fn outcome(line: &Line) -> Vec<Point> {
    if line.is_outcome_unknown() {
        return vec![Point {
            symbol: "?",
            class: "warn",
            text: "outcome unknown: a payload is too large to be summarised".to_owned(),
        }];
    }
    let outcome = &line.resources;
    let told = [
        (
            "+",
            "good",
            "creates",
            &outcome.create,
            outcome.create_count,
        ),
        (
            "~",
            "warn",
            "updates",
            &outcome.update,
            outcome.update_count,
        ),
        ("−", "bad", "deletes", &outcome.delete, outcome.delete_count),
    ];
    let told = told.into_iter().filter(|(.., count)| *count > 0);
    let mut points: Vec<_> = told
        .map(|(symbol, class, verb, names, count)| Point {
            symbol,
            class,
            text: format!("{verb} {}", listed(names, count)),
        })
        .collect();
    if outcome.unchanged > 0 {
        points.push(Point {
            symbol: "=",
            class: "quiet",
            text: format!("keeps {}", outcome.unchanged),
        });
    }
    points
}

/// In one row of a list.
pub(super) fn in_short(line: &Line) -> Vec<Point> {
    let mut points = alarms(line);
    let more = points.len().saturating_sub(2);
    points.truncate(2);
    for point in &mut points {
        point.text = cut(&point.text, MESSAGE_BYTES).into_owned();
    }
    if more > 0 {
        points.push(Point {
            symbol: "…",
            class: "quiet",
            text: format!("and {more} more"),
        });
    }
    if line.changed {
        let is_told = |point: &Point| !(line.status.is_failure() && point.class == "quiet");
        points.extend(outcome(line).into_iter().filter(is_told));
    }
    points
}

fn listed(names: &[String], count: u64) -> String {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > NAMES || names.len() < count {
        return several(count, "resource");
    }
    let names: Vec<_> = names.iter().map(|name| plain(name)).collect();
    names.join(", ")
}
