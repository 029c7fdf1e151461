//! What there is to find, one row a subject. Pure.
//!
//! Invariant: nothing that stood in a payload can act on the terminal.

use std::collections::BTreeMap;

use spanplane::{line::Line, text::is_showable};

/// The subjects of these reconciles, each with what to look for.
pub(super) fn rows_of(lines: &[Line]) -> Vec<String> {
    let mut subjects: BTreeMap<String, Vec<&Line>> = BTreeMap::new();
    for line in lines {
        subjects.entry(title_of(line)).or_default().push(line);
    }
    let rows = subjects.iter();
    let rows = rows.map(|(title, lines)| {
        let row = format!(
            "  {title:<30} {:>2} reconciles  {}",
            lines.len(),
            hints(lines)
        );
        row.trim_end().to_owned()
    });
    rows.collect()
}

fn title_of(line: &Line) -> String {
    let subject = &line.subject;
    let namespace = match subject.namespace.as_str() {
        "" => String::new(),
        namespace => format!("{namespace}/"),
    };
    printable(&format!("{} {namespace}{}", subject.kind, subject.name))
}

fn hints(lines: &[&Line]) -> String {
    let failing = lines.iter().rev().find(|line| line.status.is_failure());
    let failing = failing.and_then(|line| line.steps.iter().find(|step| step.status.is_failure()));
    let dropped = lines.iter().find_map(|line| line.dropped.first());
    let flapping = lines.iter().find_map(|line| line.flapping.first());
    let hints = [
        failing.map(|step| format!("a failure in {} ({})", step.name, step.status.as_str())),
        dropped.map(|dropped| format!("a drop of {}", dropped.resource)),
        flapping.map(|flap| format!("a flap of {} {}", flap.resource, flap.field)),
        lines
            .iter()
            .skip(1)
            .all(|line| !line.changed)
            .then(|| "all the same".to_owned()),
    ];
    let hints: Vec<_> = hints.into_iter().flatten().collect();
    printable(hints.join(", ").trim_end())
}

/// Without what a terminal would act on.
fn printable(text: &str) -> String {
    let show = |character: char| {
        if is_showable(character) {
            character
        } else {
            '\u{fffd}'
        }
    };
    text.chars().map(show).collect()
}
