//! Which reconciles the list shows: a form that reads as an address.

use std::time::Duration;

use maud::{Markup, html};

use super::{address::Params, failure::Failure};
use crate::{
    archive::{Query, SubjectFilter},
    line::Status,
    time::Timestamp,
};

const STATUSES: [Status; 5] = [
    Status::Ok,
    Status::Warning,
    Status::Incomplete,
    Status::Fatal,
    Status::Error,
];
/// All that did not do what they should.
const FAILED: &str = "failed";

const SPANS: [(&str, &str, Duration); 5] = [
    ("15m", "15 minutes", Duration::from_mins(15)),
    ("1h", "hour", Duration::from_hours(1)),
    ("6h", "6 hours", Duration::from_hours(6)),
    ("1d", "day", Duration::from_hours(24)),
    ("7d", "7 days", Duration::from_hours(24 * 7)),
];

/// The names of all filters; paging is none.
pub(super) const NAMES: [&str; 8] = [
    "kind",
    "name",
    "namespace",
    "function",
    "status",
    "changed",
    "dropped",
    "since",
];

/// What a query asks for.
pub(super) fn query_of(params: &Params, now: Timestamp) -> Result<Query, Failure> {
    let kind = params.text("kind").map(|kind| match kind.split_once('.') {
        Some((kind, group)) => (kind.to_owned(), Some(group.to_owned())),
        None => (kind.to_owned(), None),
    });
    let owned = |name| params.text(name).map(str::to_owned);
    Ok(Query {
        since: params
            .text("since")
            .map(|text| moment(text, now))
            .transpose()?,
        until: params
            .text("until")
            .map(|text| moment(text, now))
            .transpose()?,
        subject: SubjectFilter {
            group: kind.as_ref().and_then(|(_, group)| group.clone()),
            kind: kind.map(|(kind, _)| kind),
            namespace: owned("namespace"),
            name: owned("name"),
            uid: None,
        },
        statuses: statuses(params)?,
        changed: match params.text("changed") {
            None => None,
            Some("yes") => Some(true),
            Some("no") => Some(false),
            Some(other) => return Err(odd("changed", other)),
        },
        dropped: params.text("dropped").is_some(),
        function: owned("function"),
        trace_id: None,
    })
}

/// All that are asked for, in their own order.
fn statuses(params: &Params) -> Result<Vec<Status>, Failure> {
    let is_meant = |status: &Status, word: &str| match word {
        FAILED => status.is_failure(),
        other => status.as_str() == other,
    };
    let is_odd = |word: &&str| !STATUSES.iter().any(|status| is_meant(status, word));
    if let Some(word) = params.several("status").find(is_odd) {
        return Err(odd("status", word));
    }
    let is_asked = |status: &Status| params.several("status").any(|word| is_meant(status, word));
    Ok(STATUSES.into_iter().filter(is_asked).collect())
}

/// A point in time: RFC 3339, or so long ago.
fn moment(text: &str, now: Timestamp) -> Result<Timestamp, Failure> {
    let span = SPANS.iter().find(|(name, ..)| *name == text);
    span.map(|(.., span)| now - *span)
        .or_else(|| Timestamp::parse_rfc3339(text))
        .ok_or_else(|| odd("time", text))
}

fn odd(what: &str, text: &str) -> Failure {
    Failure::Odd(format!("{text:?} is no {what} to look for."))
}

pub(super) fn form(params: &Params) -> Markup {
    let field = |name: &'static str, label: &'static str, example: &'static str| {
        html! {
            label class="field" {
                span { (label) }
                input name=(name) value=(params.raw(name).unwrap_or_default()) placeholder=(example)
                    autocomplete="off" autocapitalize="off" spellcheck="false";
            }
        }
    };
    let choice = |name: &'static str, label: &'static str, options: &[(&str, &str)]| {
        let chosen = params.several(name).collect::<Vec<_>>().join(",");
        html! {
            label class="field" {
                span { (label) }
                select name=(name) {
                    @for (value, word) in options {
                        option value=(value) selected[chosen == *value] { (word) }
                    }
                }
            }
        }
    };
    let words: Vec<_> = params.several("status").collect();
    let together = (words.len() > 1).then(|| (words.join(","), words.join(" or ")));
    let together = together.as_ref();
    let statuses = together
        .map(|(value, word)| (value.as_str(), word.as_str()))
        .into_iter()
        .chain([("", "any"), (FAILED, "any failure")])
        .chain(STATUSES.map(|s| (s.as_str(), s.as_str())));
    let spans = [("", "any time")]
        .into_iter()
        .chain(SPANS.map(|(name, word, _)| (name, word)));
    html! {
        form class="filters" method="get" action="/" role="search" aria-label="Filter reconciles" {
            (field("kind", "Kind", "Network"))
            (field("name", "Name", "prod-net"))
            (field("namespace", "Namespace", "default"))
            (field("function", "Function", "function-auto-ready"))
            (choice("status", "Status", &statuses.collect::<Vec<_>>()))
            (choice("changed", "Changed", &[("", "any"), ("yes", "changed"), ("no", "the same")]))
            (choice("since", "In the last", &spans.collect::<Vec<_>>()))
            (field("id", "Trace id", "78984527"))
            label class="field check" {
                input type="checkbox" name="dropped" value="yes" checked[params.text("dropped").is_some()];
                span { "Drops something" }
            }
            div class="actions" {
                button type="submit" { "Filter" }
                @if NAMES.iter().any(|name| params.text(name).is_some()) {
                    a class="button quiet" href="/" { "Clear" }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Result<Query, Failure> {
        query_of(
            &Params::parse(Some(text)),
            Timestamp::from_nanos(0) + Duration::from_hours(2),
        )
    }

    #[test]
    fn a_form_is_a_query() {
        let asked =
            query("kind=network.x.org&name=+a+&status=failed&changed=yes&dropped=yes&since=1h");
        let asked = asked.unwrap();
        assert_eq!(asked.subject.kind.as_deref(), Some("network"));
        assert_eq!(asked.subject.group.as_deref(), Some("x.org"));
        assert_eq!(asked.subject.name.as_deref(), Some("a"));
        assert_eq!(
            asked.statuses,
            [Status::Incomplete, Status::Fatal, Status::Error]
        );
        assert_eq!((asked.changed, asked.dropped), (Some(true), true));
        assert_eq!(
            asked.since,
            Some(Timestamp::from_nanos(0) + Duration::from_hours(1))
        );
        assert_eq!(query("kind=&status=").unwrap(), Query::default());
        for several in ["status=error&status=fatal", "status=error,fatal,error"] {
            let asked = query(several).unwrap();
            assert_eq!(asked.statuses, [Status::Fatal, Status::Error], "{several}");
        }
    }

    #[test]
    fn what_can_not_be_is_told() {
        for odd in [
            "status=great",
            "status=error,great",
            "changed=maybe",
            "since=yesterday",
            "until=x",
        ] {
            assert!(matches!(query(odd), Err(Failure::Odd(_))), "{odd}");
        }
    }
}
