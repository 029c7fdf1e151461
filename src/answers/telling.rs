//! The story of a resource in words, the same wherever it is told. Pure.
//!
//! Invariant: every sentence says no more than what it is made from. Names and messages stand in
//! them as they came; who shows them makes them harmless.

use super::{
    fate::{Fate, Sequel},
    history::asked_for_by,
    matrix::Mark,
    pipeline::Pipeline,
    state::Resource,
    story::{Moment, Reason, Story},
};
use crate::{
    json::Json,
    line::{Line, LineStep, Status},
};

/// What a resource says of itself that tells how it fares.
pub const TOLD_CONDITIONS: [&str; 2] = ["Synced", "Ready"];

/// Whether the resource exists, and what it says of itself.
pub fn tell_existence(pipeline: &Pipeline<'_>, story: &Story<'_>) -> String {
    let Some(resource) = story.observed else {
        return match pipeline.observed {
            Some(_) => "It does not exist.".to_owned(),
            None if pipeline.is_operation => {
                "Whether it exists an Operation is not told.".to_owned()
            }
            None => "Whether it exists is not known: no request tells.".to_owned(),
        };
    };
    let mut told = match resource.name() {
        "" => "It exists".to_owned(),
        name => format!("It exists as {name}"),
    };
    if resource.is_being_deleted() {
        told.push_str(", and is being deleted");
    }
    for condition in TOLD_CONDITIONS {
        if let Some(said) = tell_condition(resource, condition) {
            told.push_str(", ");
            told.push_str(&said);
        }
    }
    told + "."
}

/// `Ready is False (Creating: waiting for the network)`
fn tell_condition(resource: &Resource<'_>, name: &str) -> Option<String> {
    let condition = resource.condition(name)?;
    let member = |name| condition.member(name).and_then(Json::text);
    let status = member("status")?;
    let why: Vec<_> = [member("reason"), member("message")]
        .into_iter()
        .flatten()
        .filter(|text| !text.is_empty())
        .collect();
    Some(if why.is_empty() {
        format!("{name} is {status}")
    } else {
        format!("{name} is {status} ({})", why.join(": "))
    })
}

/// What a step did to it, behind the step's name: `drops it`.
pub fn tell_moment(moment: &Moment<'_>, step: &LineStep) -> String {
    let cell = moment.cell;
    let deed = match cell.mark {
        Mark::Absent => "does not ask for it",
        Mark::Added => "asks for it",
        Mark::Changed if cell.fields == 1 => "changes 1 field",
        Mark::Changed => "",
        Mark::Untouched => "leaves it as it is",
        Mark::Dropped => "drops it",
        Mark::Unknown if step.status == Status::Incomplete => "never answers",
        Mark::Unknown if step.status.is_failure() => "fails, so that nothing it says counts",
        Mark::Unknown => "is not known: its payloads are missing",
    };
    let mut told = match deed {
        "" => format!("changes {} fields", cell.fields),
        deed => deed.to_owned(),
    };
    if cell.is_ready_news {
        told.push_str(match cell.ready {
            Some(true) => ", and says that it is ready",
            _ => ", and says that it is not ready",
        });
    }
    told
}

/// What functions say of its readiness in the end.
pub fn tell_readiness(story: &Story<'_>) -> Option<&'static str> {
    let desired = story.desired?;
    Some(match desired.ready {
        Some(true) => "In the end it counts as ready.",
        Some(false) => "In the end it counts as not ready.",
        None => "No step says whether it is ready.",
    })
}

/// What will become of it, and why.
pub fn tell_fate(story: &Story<'_>, line: &Line) -> String {
    let step = |place: usize| line.steps.get(place).map_or("?", called);
    match (&story.reason, story.fate) {
        (Reason::AskedFor { by }, Fate::Apply) => {
            format!("It will be applied: step {} asks for it.", step(*by))
        }
        (Reason::AskedFor { by }, _) => format!(
            "It will be created: step {} asks for it, and it does not exist.",
            step(*by)
        ),
        (Reason::Lacks { fields, by }, _) => {
            let count = count_of(fields.len(), "field");
            let by = by.map(|by| format!("; step {} touched it last", step(by)));
            let by = by.unwrap_or_default();
            format!("It will be updated: {count} of what is desired is not observed{by}.")
        }
        (Reason::AsDesired { .. }, _) => {
            "It will stay as it is: all that is desired of it is observed.".to_owned()
        }
        (Reason::BeingDeleted, _) => "It is being deleted, though it is desired: once it is gone, \
                                      it will be created again."
            .to_owned(),
        (Reason::Dropped { by }, Fate::Delete) => format!(
            "It will be deleted: step {} drops it from the desired state, and Crossplane deletes \
             what is not desired in the end.",
            step(*by)
        ),
        (Reason::Dropped { by }, _) => format!(
            "It will not be created: step {} drops it from the desired state.",
            step(*by)
        ),
        (Reason::NotAskedFor, _) => {
            "It will be deleted: it exists, and no step asks for it.".to_owned()
        }
        (Reason::Failed { at }, _) if never_answered(line, *at) => format!(
            "Nothing happens to it: no answer of step {} is known, so that nothing is applied.",
            step(*at)
        ),
        (Reason::Failed { at }, _) => {
            let message = line.steps.get(*at).map(failure_of).unwrap_or_default();
            format!(
                "Nothing happens to it: the pipeline ended at step {}{message}, so that nothing is \
                 applied.",
                step(*at)
            )
        }
        (Reason::Unheard, _) => "No step asks for it, and it does not exist.".to_owned(),
        (Reason::Untold, _) => {
            "What becomes of it can't be told: payloads that would tell are missing.".to_owned()
        }
    }
}

/// Who asked for it last, in the line where that was.
pub fn tell_asked_last(line: &Line, resource: &str) -> Option<String> {
    let step = line.steps.get(asked_for_by(line, resource)?)?;
    let (step, at) = (called(step), line.started_at.rfc3339_millis());
    Some(format!(
        "Step {step} asked for it last, in {} ({at}).",
        line.trace_id
    ))
}

/// Whether that came true, by the observed state of the next reconcile.
pub fn tell_sequel(fate: Fate, sequel: &Sequel<'_>, next: Option<&Line>) -> String {
    let Some(next) = next else {
        return "Not confirmed yet: no later reconcile is known.".to_owned();
    };
    let next = format!("the next reconcile ({})", next.trace_id);
    match (sequel, fate) {
        (Sequel::NotSeen, _) => format!("Not confirmed: what {next} observed is not known."),
        (Sequel::Nothing, _) => format!("There is nothing to confirm in {next}."),
        (Sequel::Confirmed, Fate::Create) => format!("Confirmed: {next} observes it."),
        (Sequel::Confirmed, Fate::Delete) => {
            format!("Confirmed: {next} does not observe it any more.")
        }
        (Sequel::Confirmed, Fate::Recreate) => {
            format!("Confirmed: {next} does not observe the one that was being deleted any more.")
        }
        (Sequel::Confirmed, Fate::Never) => format!("Confirmed: {next} does not observe it."),
        (Sequel::Confirmed, _) => format!("Confirmed: {next} observes all that is desired of it."),
        (Sequel::BeingDeleted, Fate::Recreate) => {
            format!("Not yet: {next} observes that it is still being deleted.")
        }
        (Sequel::BeingDeleted, _) => {
            format!("On its way: {next} observes that it is being deleted.")
        }
        (Sequel::Refuted, Fate::Never) => format!("Refuted: {next} observes it."),
        (Sequel::Refuted, Fate::Delete | Fate::Recreate) => {
            format!("Refuted: {next} still observes it.")
        }
        (Sequel::Refuted, _) => format!("Refuted: {next} does not observe it."),
        (Sequel::StillLacking(fields), _) => {
            let count = count_of(fields.len(), "field");
            format!("Not yet: in {next} {count} still differs from what was desired.")
        }
    }
}

fn never_answered(line: &Line, place: usize) -> bool {
    let step = line.steps.get(place);
    step.is_some_and(|step| step.status == Status::Incomplete)
}

/// A step's name or, in layouts without one, that of its function.
fn called(step: &LineStep) -> &str {
    if step.name.is_empty() {
        &step.function
    } else {
        &step.name
    }
}

/// ` (the function panicked)`
fn failure_of(step: &LineStep) -> String {
    let result = || step.facts.results.first().map(|result| &result.message);
    let message = step.error.as_ref().or_else(result);
    message.map_or_else(String::new, |message| format!(" ({message})"))
}

fn count_of(count: usize, what: &str) -> String {
    let many = if count == 1 { "" } else { "s" };
    format!("{count} {what}{many}")
}
