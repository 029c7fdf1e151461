//! What is missing or odd in reconciles, from index lines alone.
//!
//! Invariant: memory takes some 40 bytes for each request that differs from all others, and a few
//! examples of each oddity, however many lines are looked at.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::line::{INTERRUPTED, Line, LineStep, PayloadState, Status};

/// Of each oddity.
const EXAMPLES: usize = 3;
/// What gRPC takes unless it is told otherwise, and so do many functions.
const LARGE_BYTES: u64 = 4 * 1024 * 1024;

/// What can be odd.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Oddity {
    /// A request without its response.
    NoResponse,
    /// The sidecar stopped before the response came.
    Interrupted,
    /// A response without its request.
    NoRequest,
    /// A number between two steps that no step has.
    StepGap,
    /// Payloads that the store refused.
    Lost,
    /// Payloads that were on their way when the line was written.
    OnTheirWay,
    /// A payload over gRPC's usual limit.
    Large,
    /// The same function answered the same request in different ways.
    Fickle,
}

impl Oddity {
    pub const ALL: [Self; 8] = [
        Self::NoResponse,
        Self::Interrupted,
        Self::NoRequest,
        Self::StepGap,
        Self::Lost,
        Self::OnTheirWay,
        Self::Large,
        Self::Fickle,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoResponse => "requests without a response",
            Self::Interrupted => "responses not waited for, since the sidecar stopped",
            Self::NoRequest => "responses without a request",
            Self::StepGap => "gaps in step numbers",
            Self::Lost => "payloads that the store refused",
            Self::OnTheirWay => "payloads that have not arrived",
            Self::Large => "payloads over 4 MiB",
            Self::Fickle => "different answers to the same request",
        }
    }
}

/// How often something was seen, and where.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Finding {
    pub count: u64,
    pub examples: Vec<Example>,
}

/// Where it was seen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Example {
    pub trace_id: String,
    /// The step, if it is about one.
    pub step: Option<String>,
    pub function: Option<String>,
}

/// What was odd in all lines that were looked at.
#[derive(Clone, Debug, Default)]
pub struct Health {
    pub reconciles: u64,
    pub findings: BTreeMap<Oddity, Finding>,
    /// Hashes of function and request → hash of the answer.
    answers: HashMap<u64, u64>,
}

impl Health {
    /// Looks at one more line.
    pub fn look_at(&mut self, line: &Line) {
        self.reconciles += 1;
        for step in &line.steps {
            for oddity in oddities_of(step) {
                self.note(oddity, line, Some(step));
            }
            if self.is_fickle(step) {
                self.note(Oddity::Fickle, line, Some(step));
            }
        }
        if has_gap(line) {
            self.note(Oddity::StepGap, line, None);
        }
        match line.object.state {
            PayloadState::Dropped => self.note(Oddity::Lost, line, None),
            PayloadState::Queued => self.note(Oddity::OnTheirWay, line, None),
            PayloadState::Stored | PayloadState::Unchanged => {}
        }
    }

    /// What was on its way has arrived.
    pub fn take_back(&mut self, oddity: Oddity) {
        self.findings.remove(&oddity);
    }

    fn note(&mut self, oddity: Oddity, line: &Line, step: Option<&LineStep>) {
        let finding = self.findings.entry(oddity).or_default();
        finding.count += 1;
        if finding.examples.len() < EXAMPLES {
            finding.examples.push(Example {
                trace_id: line.trace_id.clone(),
                step: step.map(|step| step.name.clone()),
                function: step.map(|step| step.function.clone()),
            });
        }
    }

    /// Whether the function answered the same request otherwise before. A request's tag is a hash
    /// of it, before anything was redacted.
    fn is_fickle(&mut self, step: &LineStep) -> bool {
        let (Some(tag), Some(response)) = (&step.facts.tag, &step.response) else {
            return false;
        };
        if tag.is_empty() || step.status.is_failure() {
            return false;
        }
        let hash = |text: &str| twox_hash::XxHash3_64::oneshot(text.as_bytes());
        let asked = hash(&format!("{}\0{tag}", step.function));
        let answered = hash(&response.sha256);
        *self.answers.entry(asked).or_insert(answered) != answered
    }
}

fn oddities_of(step: &LineStep) -> Vec<Oddity> {
    let mut oddities = Vec::new();
    if step.status == Status::Incomplete {
        oddities.push(match step.error_type.as_deref() {
            Some(INTERRUPTED) => Oddity::Interrupted,
            _ => Oddity::NoResponse,
        });
    }
    if step.request.is_none() {
        oddities.push(Oddity::NoRequest);
    }
    let payloads = [&step.request, &step.response].into_iter().flatten();
    let large = payloads.filter(|payload| payload.size > LARGE_BYTES);
    oddities.extend(large.map(|_| Oddity::Large));
    oddities
}

/// Steps are numbered from 0; one that is called again has the same number.
fn has_gap(line: &Line) -> bool {
    let numbers: BTreeSet<i32> = line.steps.iter().map(|step| step.index).collect();
    numbers
        .into_iter()
        .zip(0..)
        .any(|(number, place)| number != place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{
        PayloadRef,
        samples::{at, line, step},
    };

    fn payload(sha256: &str, size: u64) -> PayloadRef {
        PayloadRef {
            pointer: String::new(),
            sha256: sha256.to_owned(),
            size,
            redacted: 0,
        }
    }

    /// A step that asked and was answered.
    fn answered(index: i32, tag: &str, answer: &str) -> LineStep {
        let mut step = step("function-a", at(0));
        step.index = index;
        step.request = Some(payload("request", 1));
        step.response = Some(payload(answer, 1));
        step.facts.tag = Some(tag.to_owned());
        step
    }

    fn odd(lines: &[Vec<LineStep>]) -> Vec<(Oddity, u64)> {
        let mut health = Health::default();
        for (place, steps) in lines.iter().enumerate() {
            let mut line = line(&format!("trace-{place}"), at(0));
            line.steps.clone_from(steps);
            health.look_at(&line);
        }
        assert_eq!(health.reconciles, lines.len() as u64);
        let findings = health.findings.iter();
        findings
            .map(|(oddity, found)| (*oddity, found.count))
            .collect()
    }

    #[test]
    fn what_is_as_it_should_be_is_not_told() {
        let steps = vec![
            answered(0, "a", "x"),
            answered(1, "b", "y"),
            // Called again, with what it had asked for.
            answered(1, "c", "z"),
            answered(2, "d", "z"),
        ];
        assert_eq!(odd(&[steps.clone(), steps]), []);
    }

    #[test]
    fn what_is_missing_is_told() {
        let mut no_response = answered(1, "b", "y");
        no_response.response = None;
        no_response.status = Status::Incomplete;
        let mut interrupted = no_response.clone();
        interrupted.error_type = Some(INTERRUPTED.to_owned());
        let mut no_request = answered(3, "c", "z");
        no_request.request = None;
        no_request.response = Some(payload("z", LARGE_BYTES + 1));
        assert_eq!(
            odd(&[
                vec![answered(0, "a", "x"), no_response],
                vec![answered(0, "a", "x"), interrupted, no_request]
            ]),
            [
                (Oddity::NoResponse, 1),
                (Oddity::Interrupted, 1),
                (Oddity::NoRequest, 1),
                (Oddity::StepGap, 1),
                (Oddity::Large, 1),
            ]
        );
    }

    #[test]
    fn a_function_that_answers_the_same_in_different_ways_is_told() {
        let other = |mut step: LineStep| {
            step.function = "function-b".to_owned();
            step
        };
        assert_eq!(
            odd(&[
                vec![answered(0, "same", "one")],
                vec![answered(0, "same", "two")],
                vec![other(answered(0, "same", "three"))],
                vec![answered(0, "", "one"), answered(0, "", "two")],
            ]),
            [(Oddity::Fickle, 1)]
        );
    }

    #[test]
    fn objects_that_are_not_there_are_told() {
        let mut health = Health::default();
        for state in [PayloadState::Dropped, PayloadState::Queued] {
            let mut line = line("trace", at(0));
            line.steps = vec![answered(0, "a", "x")];
            line.object.state = state;
            health.look_at(&line);
        }
        let found: Vec<_> = health.findings.keys().copied().collect();
        assert_eq!(found, [Oddity::Lost, Oddity::OnTheirWay]);
        health.take_back(Oddity::OnTheirWay);
        assert_eq!(health.findings.len(), 1);
    }
}
