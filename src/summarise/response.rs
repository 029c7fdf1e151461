//! What a step answered.
//!
//! Invariant: what is kept is bounded, and a FATAL result is never among what is cut.

use serde::de::MapAccess;

use super::{
    allowance::Allowance,
    desired::{DesiredReader, State},
    fields::DesiredFields,
    json::{As, Each, Object, Scalar, cut, fill, look, one_of, parse, text},
    names::Names,
    observed::Observed,
};
use crate::line::{
    Condition, MAX_ENTRIES, MAX_TEXT_BYTES, Requirement, Severity, SeverityCounts, StepResult,
};

/// The facts of a response.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) tag: Option<String>,
    pub(super) ttl_s: Option<f64>,
    /// The FATAL ones first.
    pub(super) results: Vec<StepResult>,
    pub(super) result_counts: SeverityCounts,
    pub(super) conditions: Vec<Condition>,
    /// By name; how much was found does not stand here.
    pub(super) requirements: Vec<Requirement>,
    /// `None` if something else stands in its place, or if it is too large.
    pub(super) desired: Option<(State, DesiredFields)>,
}

/// The response in this JSON, its desired state held against the observed one; `None` if it can't
/// be read.
pub(super) fn read_response(
    json: &[u8],
    names: &mut Names,
    allowance: &Allowance,
    observed: Option<&Observed>,
) -> Option<Response> {
    let mut reader = ResponseReader {
        names,
        allowance,
        observed,
        meta: Meta::default(),
        results: Results::default(),
        conditions: Vec::new(),
        requirements: Requirements::default(),
        desired: Some(Default::default()),
    };
    parse(json, &mut reader).ok()?;
    let Results { fatal, others, .. } = reader.results;
    let mut requirements = reader.requirements.0;
    requirements.sort_by(|one, other| one.name.cmp(&other.name));
    Some(Response {
        tag: reader.meta.tag,
        ttl_s: reader.meta.ttl_s,
        results: fatal.into_iter().chain(others).take(MAX_ENTRIES).collect(),
        result_counts: reader.results.counts,
        conditions: reader.conditions,
        requirements,
        desired: reader.desired,
    })
}

struct ResponseReader<'r> {
    names: &'r mut Names,
    allowance: &'r Allowance,
    observed: Option<&'r Observed>,
    meta: Meta,
    results: Results,
    conditions: Vec<Condition>,
    requirements: Requirements,
    desired: Option<(State, DesiredFields)>,
}

impl Object for ResponseReader<'_> {
    type Member = &'static str;

    fn member(&mut self, name: &str) -> Option<&'static str> {
        let names = ["meta", "desired", "results", "conditions", "requirements"];
        one_of(&names, name)
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        member: &'static str,
        members: &mut A,
    ) -> Result<(), A::Error> {
        match member {
            "meta" => {
                self.meta = Meta::default();
                fill(members, &mut self.meta)?;
            }
            "desired" => {
                let mut desired =
                    DesiredReader::of_response(self.names, self.allowance, self.observed);
                let found = fill(members, &mut desired)?;
                self.desired = desired.finish(found);
            }
            "results" => {
                self.results = Results::default();
                let take = |result| self.results.push(result);
                let blank = StepResultReader::default;
                members.next_value_seed(As(Each { blank, take }))?;
            }
            "conditions" => {
                self.conditions.clear();
                let take = |condition: ConditionReader| {
                    if self.conditions.len() < MAX_ENTRIES {
                        self.conditions.push(condition.0);
                    }
                };
                let blank = ConditionReader::blank;
                members.next_value_seed(As(Each { blank, take }))?;
            }
            _ => {
                self.requirements = Requirements::default();
                fill(members, &mut self.requirements)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Meta {
    tag: Option<String>,
    ttl_s: Option<f64>,
}

impl Object for Meta {
    type Member = &'static str;

    fn member(&mut self, name: &str) -> Option<&'static str> {
        one_of(&["tag", "ttl"], name)
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        member: &'static str,
        members: &mut A,
    ) -> Result<(), A::Error> {
        let value = text(members)?;
        match member {
            "tag" => self.tag = value,
            _ => self.ttl_s = value.as_deref().and_then(seconds),
        }
        Ok(())
    }
}

/// A duration as protojson writes it, such as `1.5s`.
fn seconds(duration: &str) -> Option<f64> {
    let number = duration.strip_suffix('s')?;
    // NOTE: Rust reads `inf`, `nan` and exponents too.
    let is_plain = |byte| matches!(byte, b'0'..=b'9' | b'.' | b'-');
    let is_number = number.bytes().all(is_plain);
    let seconds: f64 = number.parse().ok().filter(|_| is_number)?;
    seconds.is_finite().then_some(seconds)
}

/// Results as they come.
#[derive(Debug, Default)]
struct Results {
    fatal: Vec<StepResult>,
    others: Vec<StepResult>,
    counts: SeverityCounts,
}

impl Results {
    fn push(&mut self, result: StepResultReader) {
        let severity = result.severity.unwrap_or(Severity::Normal);
        let (count, list) = match severity {
            Severity::Fatal => (&mut self.counts.fatal, &mut self.fatal),
            Severity::Warning => (&mut self.counts.warning, &mut self.others),
            Severity::Normal => (&mut self.counts.normal, &mut self.others),
        };
        *count += 1;
        if list.len() < MAX_ENTRIES {
            list.push(StepResult {
                severity,
                reason: result.reason,
                message: result.message.unwrap_or_default(),
            });
        }
    }
}

#[derive(Debug, Default)]
struct StepResultReader {
    severity: Option<Severity>,
    reason: Option<String>,
    message: Option<String>,
}

impl Object for StepResultReader {
    type Member = &'static str;

    fn member(&mut self, name: &str) -> Option<&'static str> {
        one_of(&["severity", "reason", "message"], name)
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        member: &'static str,
        members: &mut A,
    ) -> Result<(), A::Error> {
        match member {
            "severity" => {
                self.severity = look(members, |severity| match severity {
                    Scalar::Text("SEVERITY_FATAL") => Some(Severity::Fatal),
                    Scalar::Text("SEVERITY_WARNING") => Some(Severity::Warning),
                    _ => None,
                })?;
            }
            "reason" => self.reason = text(members)?,
            _ => self.message = text(members)?,
        }
        Ok(())
    }
}

struct ConditionReader(Condition);

impl ConditionReader {
    fn blank() -> Self {
        Self(Condition {
            condition_type: String::new(),
            status: "unknown".to_owned(),
            reason: String::new(),
            message: None,
        })
    }
}

impl Object for ConditionReader {
    type Member = &'static str;

    fn member(&mut self, name: &str) -> Option<&'static str> {
        one_of(&["type", "status", "reason", "message"], name)
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        member: &'static str,
        members: &mut A,
    ) -> Result<(), A::Error> {
        let condition = &mut self.0;
        match member {
            "type" => condition.condition_type = text(members)?.unwrap_or_default(),
            "status" => {
                let status = look(members, |status| match status {
                    Scalar::Text("STATUS_CONDITION_TRUE") => "true",
                    Scalar::Text("STATUS_CONDITION_FALSE") => "false",
                    _ => "unknown",
                })?;
                status.clone_into(&mut condition.status);
            }
            "reason" => condition.reason = text(members)?.unwrap_or_default(),
            _ => condition.message = text(members)?,
        }
        Ok(())
    }
}

/// What a step asked for besides, by either name of it.
#[derive(Debug, Default)]
struct Requirements(Vec<Requirement>);

impl Object for Requirements {
    type Member = ();

    fn member(&mut self, name: &str) -> Option<()> {
        matches!(name, "resources" | "extraResources").then_some(())
    }

    fn read<'de, A: MapAccess<'de>>(&mut self, (): (), members: &mut A) -> Result<(), A::Error> {
        fill(members, &mut Selectors(&mut self.0)).map(drop)
    }
}

/// Requirements by name.
struct Selectors<'r>(&'r mut Vec<Requirement>);

impl Object for Selectors<'_> {
    type Member = Requirement;

    fn member(&mut self, name: &str) -> Option<Requirement> {
        (self.0.len() < MAX_ENTRIES).then(|| Requirement {
            name: cut(name, MAX_TEXT_BYTES).to_owned(),
            api_version: String::new(),
            kind: String::new(),
            found: None,
        })
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        requirement: Requirement,
        members: &mut A,
    ) -> Result<(), A::Error> {
        let mut selector = Selector(requirement);
        fill(members, &mut selector)?;
        self.0.push(selector.0);
        Ok(())
    }
}

struct Selector(Requirement);

impl Object for Selector {
    type Member = &'static str;

    fn member(&mut self, name: &str) -> Option<&'static str> {
        one_of(&["apiVersion", "kind"], name)
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        member: &'static str,
        members: &mut A,
    ) -> Result<(), A::Error> {
        let value = text(members)?.unwrap_or_default();
        match member {
            "kind" => self.0.kind = value,
            _ => self.0.api_version = value,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_protojson() {
        assert_eq!(seconds("60s"), Some(60.0));
        assert_eq!(seconds("1.5s"), Some(1.5));
        assert_eq!(seconds("-0.250s"), Some(-0.25));
        for odd in ["", "s", "60", "infs", "nans", "1e9s", "1m0s", "é", "--1s"] {
            assert_eq!(seconds(odd), None, "{odd}");
        }
    }
}
