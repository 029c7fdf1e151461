//! An XR's life: what was new in each reconcile against the one before, from index lines alone.
//!
//! Invariant: what is told stands in one of the two lines. That payloads differ they tell; in what,
//! only as far as it is told here.

use std::collections::{BTreeMap, BTreeSet};

use crate::line::{Dropped, FlappingField, Line, Status};

/// What is new in a reconcile.
#[derive(Clone, Debug, PartialEq)]
pub enum News<'l> {
    /// No reconcile before it is known.
    First,
    Status {
        before: Status,
        after: Status,
    },
    /// Its spec was written, by a person or by Crossplane.
    Generation {
        before: i64,
        after: i64,
    },
    Revision {
        before: &'l str,
        after: &'l str,
    },
    /// Other steps, or in another order.
    Steps {
        before: usize,
        after: usize,
    },
    /// Resources that functions desire in the end, and those of them that are ready.
    Desired {
        before: (u64, u64),
        after: (u64, u64),
    },
    Creates(&'l [String], u64),
    Updates(&'l [String], u64),
    Deletes(&'l [String], u64),
    Drops(&'l [Dropped], u64),
    Flaps(&'l [FlappingField], u64),
    /// A condition that functions set, and its status; `None` where it was not set.
    Condition {
        name: &'l str,
        before: Option<&'l str>,
        after: Option<&'l str>,
    },
    /// Not all of it is known: a payload is too large to be summarised.
    Unsummarised,
    /// Something in the payloads that no line tells, such as the status of an observed resource.
    Payloads,
}

/// What is new in a reconcile against the one before.
pub fn news<'l>(before: Option<&'l Line>, line: &'l Line) -> Vec<News<'l>> {
    let mut news = Vec::new();
    match before {
        None => news.push(News::First),
        Some(before) => news.extend(differences(before, line)),
    }
    let outcome = &line.resources;
    let told = [
        News::Creates(&outcome.create, outcome.create_count),
        News::Updates(&outcome.update, outcome.update_count),
        News::Deletes(&outcome.delete, outcome.delete_count),
        News::Drops(&line.dropped, line.dropped_count),
        News::Flaps(&line.flapping, line.flapping_count),
    ];
    news.extend(told.into_iter().filter(|told| !told.is_empty()));
    if line.is_summary_partial() {
        news.push(News::Unsummarised);
    }
    if news.is_empty() {
        news.push(News::Payloads);
    }
    news
}

impl News<'_> {
    fn is_empty(&self) -> bool {
        match self {
            Self::Creates(names, _) | Self::Updates(names, _) | Self::Deletes(names, _) => {
                names.is_empty()
            }
            Self::Drops(drops, _) => drops.is_empty(),
            Self::Flaps(fields, _) => fields.is_empty(),
            _ => false,
        }
    }
}

fn differences<'l>(before: &'l Line, line: &'l Line) -> Vec<News<'l>> {
    let mut news = Vec::new();
    if before.status != line.status {
        news.push(News::Status {
            before: before.status,
            after: line.status,
        });
    }
    let [old, new] = [before, line].map(|line| &line.subject.facts);
    if let (Some(before), Some(after)) = (old.generation, new.generation)
        && before != after
    {
        news.push(News::Generation { before, after });
    }
    if let (Some(before), Some(after)) = (&old.composition_revision, &new.composition_revision)
        && before != after
    {
        news.push(News::Revision { before, after });
    }
    let names = |line: &'l Line| line.steps.iter().map(|step| (step.index, &step.name));
    // A pipeline that ended early has fewer steps, which its status tells.
    let both_ended = !before.status.is_failure() && !line.status.is_failure();
    if both_ended && !names(before).eq(names(line)) {
        news.push(News::Steps {
            before: before.steps.len(),
            after: line.steps.len(),
        });
    }
    if let (Some(before), Some(after)) = (desired_of(before), desired_of(line))
        && before != after
    {
        news.push(News::Desired { before, after });
    }
    let [old, new] = [before, line].map(conditions_of);
    let names: BTreeSet<_> = old.keys().chain(new.keys()).copied().collect();
    let both = names.into_iter().map(|name| News::Condition {
        name,
        before: old.get(name).copied(),
        after: new.get(name).copied(),
    });
    // One that a failed pipeline did not come to is not taken back.
    let differs = |told: &News<'_>| match told {
        News::Condition { before, after, .. } => before != after && (both_ended || after.is_some()),
        _ => true,
    };
    news.extend(both.filter(differs));
    news
}

/// How many resources are desired in the end, and how many of them are ready.
fn desired_of(line: &Line) -> Option<(u64, u64)> {
    if line.status.is_failure() {
        return None;
    }
    let desired = line.steps.last()?.facts.desired.as_ref()?;
    Some((desired.total, desired.ready))
}

/// The conditions that functions set, as the last of them left them.
fn conditions_of(line: &Line) -> BTreeMap<&str, &str> {
    let steps = line.steps.iter();
    let conditions = steps.flat_map(|step| &step.facts.conditions);
    conditions
        .map(|condition| (condition.condition_type.as_str(), condition.status.as_str()))
        .collect()
}

/// The place of the step that asked for a resource, the last of them if there are several.
pub fn asked_for_by(line: &Line, resource: &str) -> Option<usize> {
    let names_it = |names: &[String]| names.iter().any(|name| name == resource);
    let in_the_end = line.resources.touched_by.iter();
    let in_the_end = in_the_end.filter(|(_, names)| names_it(names));
    let in_the_end = in_the_end.map(|(place, _)| *place as usize).max();
    in_the_end.or_else(|| {
        line.steps.iter().rposition(|step| {
            let desired = step.facts.desired.as_ref();
            desired.is_some_and(|desired| names_it(&desired.added) || names_it(&desired.changed))
        })
    })
}

/// The composed resources that a line names: what steps touched and what will become of it.
pub fn resources_named(line: &Line) -> BTreeSet<&str> {
    let outcome = &line.resources;
    let touched = outcome.touched_by.iter().flat_map(|(_, names)| names);
    let steps = line
        .steps
        .iter()
        .filter_map(|step| step.facts.desired.as_ref());
    let steps = steps.flat_map(|desired| [&desired.added, &desired.changed, &desired.removed]);
    let names = [&outcome.create, &outcome.update, &outcome.delete]
        .into_iter()
        .chain(steps)
        .flatten()
        .chain(touched)
        .chain(line.dropped.iter().map(|dropped| &dropped.resource));
    names.map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{
        Condition, Desired, Outcome, SUMMARY_SKIPPED,
        samples::{at, line},
    };

    fn desiring(total: u64, ready: u64) -> Line {
        let mut line = line("trace", at(0));
        line.steps[0].facts.desired = Some(Desired {
            total,
            ready,
            ..Desired::default()
        });
        line
    }

    fn saying(status: &str) -> Line {
        let mut line = desiring(1, 1);
        line.steps[0].facts.conditions = vec![Condition {
            condition_type: "Healthy".to_owned(),
            status: status.to_owned(),
            reason: String::new(),
            message: None,
        }];
        line
    }

    #[test]
    fn what_is_new_is_told_and_nothing_else() {
        let before = desiring(3, 1);
        assert_eq!(news(None, &before), [News::First]);
        assert_eq!(news(Some(&before), &before), [News::Payloads]);
        let mut after = desiring(3, 2);
        after.subject.facts.generation = Some(2);
        after.resources.delete = vec!["vpc".to_owned()];
        after.resources.delete_count = 1;
        assert_eq!(
            news(Some(&before), &after),
            [
                News::Desired {
                    before: (3, 1),
                    after: (3, 2)
                },
                News::Deletes(&["vpc".to_owned()], 1),
            ]
        );
    }

    #[test]
    fn a_payload_without_a_summary_is_no_news_of_nothing() {
        let before = line("before", at(0));
        let mut line = line("after", at(1));
        line.steps[0].facts.summary = Some(SUMMARY_SKIPPED.to_owned());
        assert!(line.is_outcome_unknown());
        assert!(news(Some(&before), &line).contains(&News::Unsummarised));
        line.resources.unchanged = 1;
        assert!(!line.is_outcome_unknown());
        line.resources = Outcome::default();
        line.status = Status::Error;
        assert!(!line.is_outcome_unknown(), "what failed has no outcome");
    }

    #[test]
    fn a_pipeline_that_failed_takes_nothing_back() {
        let before = saying("true");
        let mut failed = desiring(0, 0);
        failed.status = Status::Fatal;
        failed.steps.clear();
        let status = News::Status {
            before: Status::Ok,
            after: Status::Fatal,
        };
        assert_eq!(news(Some(&before), &failed), [status]);
        let told = News::Condition {
            name: "Healthy",
            before: Some("true"),
            after: Some("false"),
        };
        assert_eq!(news(Some(&before), &saying("false")), [told]);
    }

    #[test]
    fn who_asked_for_a_resource_is_known_by_the_last_who_touched_it() {
        let mut line = desiring(1, 0);
        line.steps = vec![line.steps[0].clone(), line.steps[0].clone()];
        let desired = line.steps[0].facts.desired.as_mut().unwrap();
        desired.added = vec!["vpc".to_owned(), "gone".to_owned()];
        line.resources.touched_by = vec![(1, vec!["vpc".to_owned()])];
        assert_eq!(asked_for_by(&line, "vpc"), Some(1));
        assert_eq!(asked_for_by(&line, "gone"), Some(0));
        assert_eq!(asked_for_by(&line, "other"), None);
        let named: Vec<_> = resources_named(&line).into_iter().collect();
        assert_eq!(named, ["gone", "vpc"]);
    }
}
