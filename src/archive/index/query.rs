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

/// What a query looks at; without what comes last, of the beginning of a line.
#[derive(Debug, Deserialize)]
pub(super) struct Glimpse<'l> {
    pub(super) v: u32,
    #[serde(borrow)]
    pub(super) trace_id: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) otel_trace_id: Cow<'l, str>,
    pub(super) started_at: Timestamp,
    #[serde(borrow)]
    subject: GlimpsedSubject<'l>,
    status: Status,
    changed: bool,
    #[serde(default)]
    pub(super) revision: u32,
    #[serde(borrow)]
    pub(super) steps: Option<Vec<GlimpsedStep<'l>>>,
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
    index: i32,
    iteration: i32,
    #[serde(borrow)]
    function: Cow<'l, str>,
}

impl GlimpsedStep<'_> {
    /// Whether the pipeline began with it.
    pub(super) fn is_first(&self) -> bool {
        (self.index, self.iteration) == (0, 0)
    }
}

impl Glimpse<'_> {
    /// The subject's.
    pub(super) fn name(&self) -> &str {
        &self.subject.name
    }
}

impl Query {
    pub(super) fn asks_for(&self, line: &Glimpse<'_>) -> bool {
        let mut steps = line.steps.iter().flatten();
        self.asks_for_beginning(line)
            && (!self.dropped || line.dropped_count > 0 || !line.dropped.is_empty())
            && self
                .function
                .as_deref()
                .is_none_or(|function| steps.any(|step| step.function == function))
    }

    /// Whether a line that begins like this may be asked for.
    pub(super) fn asks_for_beginning(&self, line: &Glimpse<'_>) -> bool {
        self.since.is_none_or(|since| line.started_at >= since)
            && self.until.is_none_or(|until| line.started_at < until)
            && (self.statuses.is_empty() || self.statuses.contains(&line.status))
            && self.changed.is_none_or(|changed| changed == line.changed)
            && self.asks_for_trace(line)
    }

    /// Whether any line of this trace may be asked for.
    pub(super) fn asks_for_trace(&self, line: &Glimpse<'_>) -> bool {
        let ids = [&line.trace_id, &line.otel_trace_id];
        ids.iter().any(|id| self.asks_for_id(id)) && self.subject.asks_for(&line.subject)
    }

    /// Whether a trace may be asked for one of whose ids this is.
    pub(super) fn asks_for_id(&self, id: &str) -> bool {
        self.trace_id.as_deref().is_none_or(|prefix| {
            let mut id = digits(id);
            digits(prefix).all(|digit| id.next() == Some(digit))
        })
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

/// An id without its dashes.
pub(super) fn digits(id: &str) -> impl Iterator<Item = u8> {
    id.bytes().filter(|byte| *byte != b'-')
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
