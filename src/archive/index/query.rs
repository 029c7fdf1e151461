//! Which lines are asked for, decided on the few fields that it takes. Pure.
//!
//! Invariant: nothing is copied out of a line that is not asked for.

use std::borrow::Cow;

use serde::{Deserialize, de::IgnoredAny};

use crate::{line::Status, time::Timestamp};

/// Which lines to read; by default all of them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Query {
    /// Began then or later.
    pub since: Option<Timestamp>,
    /// Began before.
    pub until: Option<Timestamp>,
    pub subject: SubjectFilter,
    /// Any of these; all, if empty.
    pub statuses: Vec<Status>,
    /// The beginning of either id; dashes don't count.
    pub trace_id: Option<String>,
    pub changed: Option<bool>,
    /// Only those that dropped something.
    pub dropped: bool,
    /// A step called it.
    pub function: Option<String>,
}

/// Which subjects; whatever is `None` may be anything.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SubjectFilter {
    /// In upper or lower case, as one or as many: `Network`, `networks`.
    pub kind: Option<String>,
    /// Empty for the core group.
    pub group: Option<String>,
    /// Empty for what has none.
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub uid: Option<String>,
}

/// What a query looks at.
#[derive(Debug, Deserialize)]
pub(super) struct Glimpse<'l> {
    pub(super) v: u32,
    #[serde(borrow)]
    pub(super) trace_id: Cow<'l, str>,
    #[serde(borrow)]
    otel_trace_id: Cow<'l, str>,
    pub(super) started_at: Timestamp,
    #[serde(borrow)]
    subject: GlimpsedSubject<'l>,
    status: Status,
    changed: bool,
    #[serde(borrow)]
    pub(super) steps: Vec<GlimpsedStep<'l>>,
    #[serde(default)]
    dropped: Vec<IgnoredAny>,
    #[serde(default)]
    dropped_count: u64,
}

#[derive(Debug, Deserialize)]
struct GlimpsedSubject<'l> {
    #[serde(borrow)]
    api_version: Cow<'l, str>,
    #[serde(borrow)]
    kind: Cow<'l, str>,
    #[serde(borrow)]
    namespace: Cow<'l, str>,
    #[serde(borrow)]
    name: Cow<'l, str>,
    #[serde(borrow)]
    uid: Cow<'l, str>,
}

#[derive(Debug, Deserialize)]
pub(super) struct GlimpsedStep<'l> {
    #[serde(borrow)]
    function: Cow<'l, str>,
}

impl Query {
    pub(super) fn asks_for(&self, line: &Glimpse<'_>) -> bool {
        let id_matches = |prefix: &str| {
            begins_with(&line.trace_id, prefix) || begins_with(&line.otel_trace_id, prefix)
        };
        let calls = |function: &str| line.steps.iter().any(|step| step.function == function);
        self.since.is_none_or(|since| line.started_at >= since)
            && self.until.is_none_or(|until| line.started_at < until)
            && self.subject.asks_for(&line.subject)
            && (self.statuses.is_empty() || self.statuses.contains(&line.status))
            && self.changed.is_none_or(|changed| changed == line.changed)
            && (!self.dropped || line.dropped_count > 0 || !line.dropped.is_empty())
            && self.trace_id.as_deref().is_none_or(id_matches)
            && self.function.as_deref().is_none_or(calls)
    }
}

impl SubjectFilter {
    fn asks_for(&self, subject: &GlimpsedSubject<'_>) -> bool {
        let group = subject.api_version.split_once('/');
        let group = group.map_or("", |(group, _)| group);
        let may_be = |asked: &Option<String>, is: &str| asked.as_deref().is_none_or(|a| a == is);
        let is_kind = |asked: &str| is_kind(asked, &subject.kind);
        self.kind.as_deref().is_none_or(is_kind)
            && may_be(&self.group, group)
            && may_be(&self.namespace, &subject.namespace)
            && may_be(&self.name, &subject.name)
            && may_be(&self.uid, &subject.uid)
    }
}

fn begins_with(id: &str, prefix: &str) -> bool {
    let [mut id, prefix] = [id, prefix].map(|text| text.chars().filter(|c| *c != '-'));
    prefix
        .into_iter()
        .all(|character| id.next() == Some(character))
}

/// Whether somebody who asks for `asked` means this kind. What a kind is called as many only its
/// definition says; nearly all follow the rules of English, as their generators do.
fn is_kind(asked: &str, kind: &str) -> bool {
    const ENDS: [(&str, &str); 8] = [
        ("", ""),
        ("", "s"),
        ("y", "ies"),
        ("s", "ses"),
        ("x", "xes"),
        ("z", "zes"),
        ("ch", "ches"),
        ("sh", "shes"),
    ];
    ENDS.iter().any(|(one, many)| {
        let stems = without_end(kind, one).zip(without_end(asked, many));
        stems.is_some_and(|(kind, asked)| kind.eq_ignore_ascii_case(asked))
    })
}

fn without_end<'t>(text: &'t str, end: &str) -> Option<&'t str> {
    let (stem, found) = text.split_at_checked(text.len().checked_sub(end.len())?)?;
    found.eq_ignore_ascii_case(end).then_some(stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_asked_for_as_people_type_them() {
        for (asked, kind) in [
            ("Network", "Network"),
            ("network", "Network"),
            ("networks", "Network"),
            ("NETWORKS", "Network"),
            ("policies", "Policy"),
            ("gateways", "Gateway"),
            ("buses", "Bus"),
            ("meshes", "Mesh"),
            ("prefixes", "Prefix"),
            ("databases", "Database"),
        ] {
            assert!(is_kind(asked, kind), "{asked}");
        }
        for (asked, kind) in [
            ("", "Network"),
            ("net", "Network"),
            ("networkss", "Network"),
            ("networkes", "Network"),
            ("network", "Networks"),
            ("é", "s"),
        ] {
            assert!(!is_kind(asked, kind), "{asked}");
        }
    }
}
