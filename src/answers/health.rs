//! What is missing or odd in reconciles, from index lines alone.
//!
//! Invariant: memory takes some 40 bytes for each request that differs from all others, a few
//! examples of each oddity and a bounded number of keys, however many lines are looked at. An object
//! that was on its way counts as not arrived until somebody has found it in the store.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::line::{INTERRUPTED, Line, LineStep, PayloadState, Status};

/// Of each oddity.
const EXAMPLES: usize = 3;
/// Objects that were on their way and can be found to have arrived: some 400 bytes each.
const MAX_UNDER_WAY: usize = 4096;
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

impl Example {
    fn of(line: &Line, step: Option<&LineStep>) -> Self {
        Self {
            trace_id: line.trace_id.clone(),
            step: step.map(|step| step.name.clone()),
            function: step.map(|step| step.function.clone()),
        }
    }
}

/// What was odd in all lines that were looked at.
#[derive(Clone, Debug, Default)]
pub struct Health {
    pub reconciles: u64,
    /// Without what is under way.
    noted: BTreeMap<Oddity, Finding>,
    /// Objects that were on their way, by their keys.
    under_way: HashMap<String, UnderWay>,
    /// Hashes of function and request → hash of the answer.
    answers: HashMap<u64, u64>,
}

/// Lines whose object was on its way.
#[derive(Clone, Debug)]
struct UnderWay {
    lines: u64,
    /// Which of all lines was the first of them.
    first: u64,
    example: Example,
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
            PayloadState::Queued => self.note_under_way(line),
            PayloadState::Stored | PayloadState::Unchanged => {}
        }
    }

    /// The keys of objects that were on their way and may have arrived since.
    pub fn under_way(&self) -> impl Iterator<Item = &str> {
        self.under_way.keys().map(String::as_str)
    }

    /// The object with this key is in the store.
    pub fn has_arrived(&mut self, key: &str) {
        self.under_way.remove(key);
    }

    /// What was found.
    pub fn findings(&self) -> BTreeMap<Oddity, Finding> {
        let mut findings = self.noted.clone();
        if self.under_way.is_empty() {
            return findings;
        }
        let mut under_way: Vec<_> = self.under_way.values().collect();
        under_way.sort_unstable_by_key(|object| object.first);
        let finding = findings.entry(Oddity::OnTheirWay).or_default();
        finding.count += under_way.iter().map(|object| object.lines).sum::<u64>();
        let examples = under_way.iter().map(|object| object.example.clone());
        // Those that could not be kept in mind came later.
        let later = std::mem::take(&mut finding.examples);
        finding.examples = examples.chain(later).take(EXAMPLES).collect();
        findings
    }

    fn note(&mut self, oddity: Oddity, line: &Line, step: Option<&LineStep>) {
        let finding = self.noted.entry(oddity).or_default();
        finding.count += 1;
        if finding.examples.len() < EXAMPLES {
            finding.examples.push(Example::of(line, step));
        }
    }

    fn note_under_way(&mut self, line: &Line) {
        let key = &line.object.key;
        if let Some(object) = self.under_way.get_mut(key) {
            object.lines += 1;
        } else if self.under_way.len() < MAX_UNDER_WAY {
            let object = UnderWay {
                lines: 1,
                first: self.reconciles,
                example: Example::of(line, None),
            };
            self.under_way.insert(key.clone(), object);
        } else {
            self.note(Oddity::OnTheirWay, line, None);
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
        let findings = health.findings().into_iter();
        findings
            .map(|(oddity, found)| (oddity, found.count))
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
        let found: Vec<_> = health.findings().into_keys().collect();
        assert_eq!(found, [Oddity::Lost, Oddity::OnTheirWay]);
    }

    /// A reconcile whose object was on its way.
    fn queued(trace: &str, key: &str) -> Line {
        let mut line = line(trace, at(0));
        line.object.state = PayloadState::Queued;
        key.clone_into(&mut line.object.key);
        line
    }

    /// How many payloads have not arrived, and which for example.
    fn missing(health: &Health) -> (u64, Vec<String>) {
        let finding = health.findings().remove(&Oddity::OnTheirWay);
        let Finding { count, examples } = finding.unwrap_or_default();
        let traces = examples.into_iter().map(|example| example.trace_id);
        (count, traces.collect())
    }

    #[test]
    fn what_has_arrived_is_taken_back_and_nothing_else() {
        let mut health = Health::default();
        for (trace, key) in [("a", "1"), ("b", "1"), ("c", "2"), ("d", "3"), ("e", "1")] {
            health.look_at(&queued(trace, key));
        }
        let owned = |traces: &[&str]| traces.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(missing(&health), (5, owned(&["a", "c", "d"])));
        health.has_arrived("1");
        assert_eq!(missing(&health), (2, owned(&["c", "d"])));
        health.has_arrived("unheard of");
        health.has_arrived("3");
        assert_eq!(missing(&health), (1, owned(&["c"])));
        health.has_arrived("2");
        assert!(!health.findings().contains_key(&Oddity::OnTheirWay));
    }

    #[test]
    fn what_could_not_be_kept_in_mind_counts_as_not_arrived() {
        let mut health = Health::default();
        for number in 0..MAX_UNDER_WAY + 2 {
            health.look_at(&queued(&format!("trace-{number}"), &number.to_string()));
        }
        let keys: Vec<_> = health.under_way().map(str::to_owned).collect();
        assert_eq!(keys.len(), MAX_UNDER_WAY);
        for key in keys {
            health.has_arrived(&key);
        }
        let last = [0, 1].map(|number| format!("trace-{}", MAX_UNDER_WAY + number));
        assert_eq!(missing(&health), (2, last.to_vec()));
    }
}
