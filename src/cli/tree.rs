//! A reconcile as a small tree: its steps, what each did to the desired state, and what is said
//! about it. Pure.

use std::{collections::BTreeSet, iter};

use spanplane::{
    line::{Condition, Desired, Dropped, Line, LineStep, Outcome, Requirement, Status, StepResult},
    reconcile::SubjectType,
};

use super::{
    ls::style_of,
    moment::show_millis,
    row::{Row, Style},
    step::label_of,
};

/// Names in a row.
const NAMES: usize = 8;

/// What a reconcile is of: `Network default/prod-net`.
pub(crate) fn title_of(line: &Line) -> String {
    let subject = &line.subject;
    match subject.namespace.as_str() {
        "" => format!("{} {}", subject.kind, subject.name),
        namespace => format!("{} {namespace}/{}", subject.kind, subject.name),
    }
}

/// The steps, each with what there is to say about it.
pub(crate) fn step_rows(line: &Line) -> Vec<Row> {
    let columns = |text: &dyn Fn(&LineStep) -> String| {
        let texts = line.steps.iter().map(|step| text(step).chars().count());
        texts.max().unwrap_or_default()
    };
    let widths = (columns(&label_of), columns(&|step| step.function.clone()));
    let mut rows = Vec::new();
    for (place, step) in line.steps.iter().enumerate() {
        rows.push(step_row(step, widths));
        let lead = || Row::new().with(Style::Faint, "  │    ");
        let facts = facts_of(line, place, step).into_iter();
        rows.extend(facts.map(|row| lead().joined(row)));
    }
    rows
}

fn step_row(step: &LineStep, (label, function): (usize, usize)) -> Row {
    let duration = step.duration_ms.map_or_else(|| "-".to_owned(), show_millis);
    let row = Row::new()
        .with(Style::Faint, "  ├─ ")
        .with(Style::Strong, format!("{:<label$}", label_of(step)))
        .plain(format!("  {:<function$}  {duration:>9}  ", step.function));
    let (status, desired) = (step.status.as_str(), desired_of(step));
    if desired.is_empty() {
        row.with(style_of(step.status), status)
    } else {
        row.with(style_of(step.status), format!("{status:<10}"))
            .plain(format!("  {desired}"))
    }
}

/// What the reconcile will do, by name.
pub(crate) fn outcome_rows(line: &Line) -> Vec<Row> {
    let Outcome {
        create,
        update,
        delete,
        unchanged,
        ..
    } = &line.resources;
    let told = [
        (Style::Good, "creates", create, line.resources.create_count),
        (
            Style::Warning,
            "updates",
            update,
            line.resources.update_count,
        ),
        (Style::Bad, "deletes", delete, line.resources.delete_count),
    ];
    let told = told
        .into_iter()
        .filter(|(_, _, names, _)| !names.is_empty());
    let mut rows: Vec<_> = told
        .map(|(style, what, names, count)| {
            Row::new()
                .with(style, format!("{what} "))
                .plain(names_of(names, count))
        })
        .collect();
    if *unchanged > 0 {
        rows.push(Row::new().plain(format!("leaves as it is {unchanged}")));
    }
    let lost = line.dropped.iter().filter(|dropped| dropped.step.is_none());
    rows.extend(lost.map(|dropped| {
        Row::new().with(Style::Bad, "drops ").plain(format!(
            "{}, which exists and which no step asked for",
            dropped.resource
        ))
    }));
    rows.extend(line.flapping.iter().map(|flap| {
        let resource = match flap.resource.as_str() {
            "" => "the composite",
            name => name,
        };
        let field = if flap.field.is_empty() {
            "as a whole"
        } else {
            &flap.field
        };
        Row::new()
            .with(Style::Warning, "flaps ")
            .plain(format!("{resource}: {field}"))
    }));
    rows.extend(applied_row(line));
    if line.is_outcome_unknown() {
        rows.push(
            Row::new()
                .with(Style::Warning, "outcome unknown: ")
                .plain("a payload is too large to be summarised; see it with spanplane diff"),
        );
    }
    if rows.is_empty() {
        rows.push(Row::new().plain("nothing is applied"));
    }
    rows
}

/// What an Operation applies.
fn applied_row(line: &Line) -> Option<Row> {
    if line.subject.kind_of_subject != SubjectType::Operation || line.status.is_failure() {
        return None;
    }
    let mut names = BTreeSet::new();
    let steps = line.steps.iter();
    for desired in steps.filter_map(|step| step.facts.desired.as_ref()) {
        names.extend(desired.added.iter().cloned());
        names.retain(|name| !desired.removed.contains(name));
    }
    let total = line.steps.last()?.facts.desired.as_ref()?.total;
    let names: Vec<_> = names.into_iter().collect();
    (total > 0).then(|| {
        Row::new().with(Style::Good, "applies ").plain(format!(
            "{total}: {} (an Operation is not told what exists)",
            names_of(&names, total)
        ))
    })
}

/// Some names, and how many more there are.
pub(crate) fn names_of(names: &[String], count: u64) -> String {
    let shown: Vec<_> = names.iter().take(NAMES).map(String::as_str).collect();
    let more = (count.max(names.len() as u64)).saturating_sub(shown.len() as u64);
    let names = shown.join(", ");
    if more == 0 {
        names
    } else {
        format!("{names} and {more} more")
    }
}

/// What a step did to the desired state, in numbers.
fn desired_of(step: &LineStep) -> String {
    let Some(desired) = &step.facts.desired else {
        let is_unknown = step.facts.summary.is_some();
        return if is_unknown { "desired unknown" } else { "" }.to_owned();
    };
    let changes = [
        ('+', desired.added_count),
        ('~', desired.changed_count),
        ('-', desired.removed_count),
    ];
    let changes = changes.into_iter().filter(|(_, count)| *count > 0);
    let told = format!("{} desired, {} ready", desired.total, desired.ready);
    let changes = changes.map(|(sign, count)| format!("{sign}{count}"));
    iter::once(told)
        .chain(changes)
        .collect::<Vec<_>>()
        .join("  ")
}

fn drop_rows(line: &Line, place: usize) -> Vec<Row> {
    let is_here = |dropped: &&Dropped| dropped.step.is_some_and(|step| step as usize == place);
    let here = line.dropped.iter().filter(is_here);
    here.map(|dropped| {
        let fate = if dropped.observed {
            ", which exists and will be deleted"
        } else {
            ""
        };
        Row::new()
            .with(Style::Bad, "drops ")
            .plain(format!("{}{fate}", dropped.resource))
    })
    .collect()
}

/// Everything that is known about a step.
pub(crate) fn facts_of(line: &Line, place: usize, step: &LineStep) -> Vec<Row> {
    let facts = &step.facts;
    let mut rows = Vec::new();
    rows.extend(facts.desired.iter().flat_map(change_rows));
    rows.extend(drop_rows(line, place));
    rows.extend(facts.summary.as_ref().map(|why| {
        Row::new()
            .with(Style::Warning, "summary ")
            .plain(why.as_str())
    }));
    if step.status == Status::Incomplete {
        rows.push(Row::new().with(Style::Bad, "no response"));
    }
    rows.extend(step.error.as_ref().map(|error| {
        let kind = step.error_type.as_deref().unwrap_or("error");
        Row::new()
            .with(Style::Bad, format!("{kind}: "))
            .plain(error)
    }));
    rows.extend(facts.results.iter().map(result_row));
    rows.extend(facts.conditions.iter().map(condition_row));
    rows.extend(facts.requirements.iter().map(requirement_row));
    if step.cached {
        rows.push(Row::new().with(Style::Faint, "probably answered from Crossplane's cache"));
    }
    rows
}

fn change_rows(desired: &Desired) -> Vec<Row> {
    let lists = [
        (Style::Good, "+ ", &desired.added, desired.added_count),
        (
            Style::Warning,
            "~ ",
            &desired.changed,
            desired.changed_count,
        ),
        (Style::Bad, "- ", &desired.removed, desired.removed_count),
    ];
    let lists = lists
        .into_iter()
        .filter(|(_, _, names, _)| !names.is_empty());
    lists
        .map(|(style, sign, names, count)| {
            Row::new().with(style, sign).plain(names_of(names, count))
        })
        .collect()
}

fn result_row(result: &StepResult) -> Row {
    let style = match result.severity {
        spanplane::line::Severity::Normal => Style::Plain,
        spanplane::line::Severity::Warning => Style::Warning,
        spanplane::line::Severity::Fatal => Style::Bad,
    };
    let reason = result.reason.as_deref().unwrap_or_default();
    let gap = if reason.is_empty() { "" } else { " " };
    Row::new()
        .with(style, result.severity.as_str())
        .plain(format!("{gap}{reason}: {}", result.message))
}

fn condition_row(condition: &Condition) -> Row {
    let Condition {
        condition_type,
        status,
        reason,
        message,
    } = condition;
    let message = message.as_ref().map(|message| format!(": {message}"));
    Row::new().with(Style::Name, "condition ").plain(format!(
        "{condition_type}={status} ({reason}){}",
        message.unwrap_or_default()
    ))
}

fn requirement_row(requirement: &Requirement) -> Row {
    let Requirement {
        name,
        api_version,
        kind,
        found,
    } = requirement;
    let found = found.map(|found| format!(": {found} found"));
    Row::new().with(Style::Name, "requires ").plain(format!(
        "{name}, {kind} of {api_version}{}",
        found.unwrap_or_default()
    ))
}
