//! Nothing was found: what that was, and what to try.

use std::collections::BTreeSet;

use futures_util::StreamExt as _;
use spanplane::{answers::SubjectName, archive::Query, line::Line, time::Timestamp};

use super::session::Session;

/// Newest reconciles among which similar names are looked for.
const LOOKED_AT: usize = 5000;
/// Similar names that are told.
const TOLD: usize = 5;
/// Names less alike than this are not meant.
const ALIKE: f64 = 0.8;

/// There is no such thing.
#[derive(Debug, thiserror::Error)]
#[error("{what}\ntry: {advice}")]
pub(crate) struct Nothing {
    what: String,
    advice: String,
}

impl Nothing {
    pub(crate) const LIST: &str =
        "spanplane ls (a running sidecar stores its index within a minute)";

    pub(crate) fn new(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            advice: advice.into(),
        }
    }

    /// No reconcile of this subject is known; perhaps of one that is called alike.
    pub(crate) async fn no_subject(session: &Session, name: &SubjectName) -> Self {
        let mut lines = Box::pin(session.answers.lines(Query::default()).take(LOOKED_AT));
        let mut known = BTreeSet::new();
        while let Some(line) = lines.next().await {
            known.extend(line.ok().map(|line| match &name.name {
                Some(_) => title_of(&line),
                None => line.subject.kind,
            }));
        }
        let what = format!("no reconcile of {name} is known in {}", session.store);
        let alike = alike(&name.to_string(), known.iter().map(String::as_str));
        if alike.is_empty() {
            Self::new(what, Self::LIST)
        } else {
            Self::new(what, alike.join(", "))
        }
    }
}

/// What there is, as far back as is looked.
#[derive(Debug, Default)]
pub(crate) struct Known {
    functions: BTreeSet<String>,
    began: Option<(Timestamp, Timestamp)>,
}

impl Known {
    pub(crate) async fn look(session: &Session) -> Self {
        let mut lines = Box::pin(session.answers.lines(Query::default()).take(LOOKED_AT));
        let mut known = Self::default();
        while let Some(line) = lines.next().await {
            let Ok(line) = line else { continue };
            let (_, last) = known.began.unwrap_or((line.started_at, line.started_at));
            known.began = Some((line.started_at, last));
            let functions = line.steps.into_iter().map(|step| step.function);
            known.functions.extend(functions);
        }
        known
    }

    /// What to ask for instead: a function that is called alike, else when there was anything.
    pub(crate) fn advice(&self, function: Option<&str>) -> String {
        let functions = || self.functions.iter().map(String::as_str);
        let missing = function.filter(|name| !self.functions.contains(*name));
        let Some((first, last)) = self.began else {
            return Nothing::LIST.to_owned();
        };
        if let Some(name) = missing {
            let alike = alike(name, functions());
            let names = if alike.is_empty() {
                functions().take(TOLD).map(str::to_owned).collect()
            } else {
                alike
            };
            return format!("--function {}", names.join(", "));
        }
        let [first, last] = [first, last].map(Timestamp::rfc3339_millis);
        format!("less of that; the newest reconciles began between {first} and {last}")
    }
}

/// `Network/prod-net`
pub(crate) fn title_of(line: &Line) -> String {
    format!("{}/{}", line.subject.kind, line.subject.name)
}

/// The names that are most like this one, the most alike first.
pub(crate) fn alike<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Vec<String> {
    let lower = name.to_lowercase();
    let mut found: Vec<_> = known
        .map(|other| {
            let lower_other = other.to_lowercase();
            let contains = lower_other.contains(&lower) || lower.contains(&lower_other);
            let alike = strsim::jaro_winkler(&lower, &lower_other);
            (if contains { 1.0 } else { alike }, other)
        })
        .filter(|(alike, _)| *alike >= ALIKE)
        .collect();
    found.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let found = found.into_iter().take(TOLD);
    found.map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_found() {
        let known = ["bucket-a", "bucket-b", "vpc", "subnet-1"];
        let alike = |name| alike(name, known.into_iter());
        assert_eq!(alike("bucket-c"), ["bucket-a", "bucket-b"]);
        assert_eq!(alike("bukcet-b"), ["bucket-b", "bucket-a"]);
        assert_eq!(alike("Subnet"), ["subnet-1"]);
        assert_eq!(alike("subnet-9"), ["subnet-1"]);
        assert_eq!(alike("nothing"), [""; 0]);
    }
}
