//! Reconciles as small trees for a terminal. Pure.
//!
//! Invariant: nothing that stood in a payload can act on the terminal.

use spanplane::{
    line::{Dropped, Line, LineStep, ObjectRef, Status},
    text::cut_text,
};

const MESSAGE_BYTES: usize = 110;

/// What a reconcile is of.
pub(super) fn title_of(line: &Line) -> String {
    let subject = &line.subject;
    let namespace = match subject.namespace.as_str() {
        "" => String::new(),
        namespace => format!("{namespace}/"),
    };
    printable(&format!("{} {namespace}{}", subject.kind, subject.name))
}

/// A reconcile in one line.
pub(super) fn show_line(line: &Line) -> String {
    format!(
        "  {}  {:<10}  {:<32}  {}",
        time_of(line),
        line.status.as_str(),
        title_of(line),
        line.otel_trace_id
    )
}

/// The reconciles of one subject, in order of time, row by row. Those that are the same again take
/// one row together.
pub(super) fn show_story(lines: &[&Line]) -> Vec<String> {
    let mut rows = Vec::new();
    let mut rest = lines;
    while let Some((line, behind)) = rest.split_first() {
        let same = rest.iter().take_while(|line| !line.changed).count();
        if same > 1 {
            let (time, status) = (time_of(line), line.status.as_str());
            rows.push(format!("  {time}  {status:<10}  {same} times the same"));
            rest = rest.get(same..).unwrap_or_default();
        } else {
            rows.extend(show_tree(line));
            rest = behind;
        }
    }
    rows
}

fn show_tree(line: &Line) -> Vec<String> {
    let root = format!(
        "  {}  {:<10} {:>9}  {}",
        time_of(line),
        line.status.as_str(),
        millis(Some(line.duration_ms)),
        outcome_of(line)
    );
    let mut rows = vec![root.trim_end().to_owned()];
    if !line.changed {
        return rows;
    }
    for (place, step) in line.steps.iter().enumerate() {
        let row = format!(
            "  ├─ {:<14} {:<24} {:>9}  {:<10} {}",
            printable(&step.name),
            printable(&step.function),
            millis(step.duration_ms),
            step.status.as_str(),
            desired_of(step)
        );
        rows.push(row.trim_end().to_owned());
        for message in messages_of(line, place, step) {
            let message = printable(&cut_text(&message, MESSAGE_BYTES));
            rows.push(format!("  │    {message}"));
        }
    }
    let ObjectRef { key, state, .. } = &line.object;
    rows.push(format!("  └─ {key} ({})", state.as_str()));
    rows
}

fn time_of(line: &Line) -> String {
    let time = line.started_at.rfc3339_millis();
    let (_, time) = time.split_once('T').unwrap_or(("", &time));
    time.trim_end_matches('Z').to_owned()
}

fn millis(millis: Option<f64>) -> String {
    millis.map_or_else(|| "-".to_owned(), |millis| format!("{millis:.1} ms"))
}

fn outcome_of(line: &Line) -> String {
    if !line.changed {
        return "the same".to_owned();
    }
    let outcome = &line.resources;
    let counts = [
        ("creates", outcome.create_count),
        ("updates", outcome.update_count),
        ("deletes", outcome.delete_count),
        ("leaves as it is", outcome.unchanged),
        ("flapping fields:", line.flapping_count),
    ];
    let told = counts.into_iter().filter(|(_, count)| *count > 0);
    let told: Vec<_> = told
        .map(|(what, count)| format!("{what} {count}"))
        .collect();
    told.join(", ")
}

/// What a step did to the desired state.
fn desired_of(step: &LineStep) -> String {
    let Some(desired) = &step.facts.desired else {
        return String::new();
    };
    let changes = [
        ('+', desired.added_count),
        ('~', desired.changed_count),
        ('-', desired.removed_count),
    ];
    let changes = changes.into_iter().filter(|(_, count)| *count > 0);
    let mut told = vec![format!(
        "{} desired, {} ready",
        desired.total, desired.ready
    )];
    told.extend(changes.map(|(sign, count)| format!("{sign}{count}")));
    told.join("  ")
}

/// What is wrong with a step.
fn messages_of(line: &Line, place: usize, step: &LineStep) -> Vec<String> {
    let mut messages = Vec::new();
    let is_here = |dropped: &&Dropped| dropped.step.is_some_and(|step| step as usize == place);
    for dropped in line.dropped.iter().filter(is_here) {
        let fate = if dropped.observed {
            ", which exists and will be deleted"
        } else {
            ""
        };
        messages.push(format!("drops {}{fate}", dropped.resource));
    }
    if step.status == Status::Incomplete {
        messages.push("no response".to_owned());
    }
    messages.extend(step.error.clone());
    if step.status == Status::Fatal {
        let results = step.facts.results.iter().take(1);
        messages.extend(results.map(|result| result.message.clone()));
    }
    messages
}

/// Without what a terminal would act on.
fn printable(text: &str) -> String {
    let show = |character: char| {
        if character.is_control() {
            '\u{fffd}'
        } else {
            character
        }
    };
    text.chars().map(show).collect()
}
