//! What a real Crossplane sent.

use std::collections::BTreeMap;

use super::*;
use crate::{
    assemble::tests::captures::{capture, follow},
    capture::{read_capture, step_of},
    decode::StepMessage,
    line::{FlappingField, Severity},
    redact::Redactor,
};

/// A reconcile and what is said about it.
struct Told {
    reconcile: ClosedReconcile,
    summary: Summary,
}

impl Told {
    fn subject(&self) -> &str {
        &self.reconcile.subject.name
    }

    /// What the last step came to.
    fn last(&self) -> (&str, Status, Option<&str>) {
        let step = self.summary.steps.last().unwrap();
        let name = &self.reconcile.steps.last().unwrap().name;
        (name, step.status, step.error_type.as_deref())
    }

    fn desired(&self, step: &str) -> &crate::line::Desired {
        let place = self.reconcile.steps.iter().position(|at| at.name == step);
        let facts = &self.summary.steps[place.unwrap()].facts;
        facts.desired.as_ref().unwrap()
    }
}

/// All reconciles of a capture, in the order in which they began to arrive.
fn tell(capture: &[u8]) -> Vec<Told> {
    let records = read_capture(capture).unwrap();
    let messages: Vec<StepMessage> = records.iter().map(step_of).collect();
    let mut closed = follow(capture);
    closed.sort_by_key(|reconcile| reconcile.records.iter().min().copied());
    let told = closed.into_iter().map(|reconcile| {
        let summary = summarise_recorded(&reconcile, &messages);
        Told { reconcile, summary }
    });
    told.collect()
}

fn summarise_recorded(reconcile: &ClosedReconcile, messages: &[StepMessage]) -> Summary {
    let redactor = Redactor::new::<&str>(&[], &[]).unwrap();
    let mut summariser = Summariser::new();
    for (place, step) in reconcile.steps.iter().enumerate() {
        let halves = [
            (RecordKind::Request, &step.request),
            (RecordKind::Response, &step.response),
        ];
        for (kind, half) in halves {
            if let Some(half) = half {
                let offset = usize::try_from(half.position.offset).unwrap();
                let clean = redactor.redact(&messages[offset].payload).payload;
                summariser.read(place, kind, clean.as_bytes());
            }
        }
    }
    summariser.finish(reconcile)
}

#[test]
fn the_step_that_tidies_drops_a_bucket() {
    let told = tell(capture!("dropper"));
    let drops: Vec<_> = told
        .iter()
        .map(|told| {
            let dropped = told.summary.dropped.iter();
            let dropped = dropped.map(|drop| (&*drop.resource, drop.step, drop.observed));
            dropped.collect::<Vec<_>>()
        })
        .collect();
    let gone = vec![("bucket-b", Some(1), false)];
    let mut expected = vec![vec![]; 12];
    expected[4] = vec![("bucket-b", Some(1), true)];
    expected[5..9].fill(gone);
    assert_eq!(drops, expected);

    let at_drop = &told[4];
    assert_eq!(at_drop.reconcile.steps[1].name, "tidy");
    assert_eq!(at_drop.desired("tidy").removed, ["bucket-b"]);
    assert_eq!(at_drop.desired("tidy").total, 2);
    assert_eq!(at_drop.summary.outcome.delete, ["bucket-b"]);
    assert_eq!(at_drop.summary.status, Status::Ok);
    // It comes back.
    assert_eq!(told[9].summary.outcome.create, ["bucket-b"]);
}

#[test]
fn the_step_that_labels_touches_the_buckets_last() {
    let first = &tell(capture!("dropper"))[0];
    let buckets = ["bucket-a", "bucket-b", "bucket-c"];
    assert_eq!(first.desired("create").added, buckets);
    assert_eq!(first.desired("label").changed, buckets);
    assert_eq!(first.desired("auto-ready").changed_count, 0);
    let [(2, touched)] = &first.summary.outcome.touched_by[..] else {
        panic!("{:?}", first.summary.outcome.touched_by);
    };
    assert_eq!(touched, &buckets);
    assert_eq!(first.summary.outcome.create, buckets);
}

#[test]
fn a_bucket_that_leaves_and_comes_back_is_flapping() {
    let mut history = FieldHistory::default();
    let flapping: Vec<_> = tell(capture!("dropper"))
        .iter()
        .map(|told| history.advance(&told.summary.fields))
        .collect();
    let counts: Vec<_> = flapping.iter().map(|(_, count)| *count).collect();
    let (fields, count) = &flapping[9];
    let bucket = FlappingField {
        resource: "bucket-b".to_owned(),
        field: String::new(),
    };
    assert_eq!((fields, *count), (&vec![bucket], 1));
    assert!(
        counts[..9]
            .iter()
            .chain(&counts[10..])
            .all(|count| *count == 0)
    );
}

#[test]
fn the_network_loses_a_subnet() {
    let told = tell(capture!("network"));
    let lost = &told[45].summary;
    assert_eq!(lost.outcome.delete, ["subnet-public-b"]);
    let [drop] = &lost.dropped[..] else {
        panic!("{:?}", lost.dropped);
    };
    assert_eq!(
        (&*drop.resource, drop.step, drop.observed),
        ("subnet-public-b", None, true)
    );
    for (place, told) in told.iter().enumerate() {
        assert_eq!(
            told.summary.dropped_count,
            u64::from(place == 45),
            "{place}"
        );
    }

    assert_eq!(told[0].summary.outcome.create, ["vpc"]);
    assert_eq!(told[4].summary.outcome.create_count, 11);
    assert_eq!(
        told[36].summary.outcome.create,
        ["subnet-data-a", "subnet-data-b"]
    );
    assert_eq!(told[36].summary.status, Status::Warning);
    let routing = &told[36].summary.steps[2];
    assert_eq!(routing.status, Status::Warning);
    assert_eq!(routing.facts.results[0].severity, Severity::Warning);
    assert_eq!(
        routing.facts.results[0].message,
        "more than 7 subnets in one VPC"
    );
}

#[test]
fn desired_states_grow_as_the_network_does() {
    let told = tell(capture!("network"));
    let totals = |told: &Told| {
        let facts = told.summary.steps.iter().map(|step| &step.facts);
        let totals = facts.map(|facts| facts.desired.as_ref().unwrap().total);
        totals.collect::<Vec<_>>()
    };
    assert_eq!(totals(&told[0]), [1, 1, 1, 1]);
    assert_eq!(totals(&told[4]), [3, 9, 12, 12]);
    assert_eq!(totals(&told[36]), [3, 11, 14, 14]);
    assert_eq!(totals(&told[45]), [3, 10, 13, 13]);
    for told in &told {
        let facts = &told.summary.steps[0].facts;
        assert_eq!(facts.ttl_s, Some(60.0));
        assert_eq!(facts.tag.as_ref().unwrap().len(), 64);
        assert!(told.summary.subject.generation.is_some());
        assert!(told.summary.subject.resource_version.is_some());
        let revision = told.summary.subject.composition_revision.as_ref();
        assert!(revision.unwrap().starts_with("network-aws-"));
        assert_eq!(told.summary.subject.parent_uid, None);
    }
}

#[test]
fn nothing_is_to_be_done_for_who_is_idle() {
    for told in tell(capture!("steady-idle")) {
        let Summary {
            status, outcome, ..
        } = told.summary;
        let count = if told.reconcile.subject.name == "calm-1" {
            4
        } else {
            2
        };
        assert_eq!((status, outcome.unchanged), (Status::Ok, count));
        assert_eq!(
            (
                outcome.create_count,
                outcome.update_count,
                outcome.delete_count
            ),
            (0, 0, 0)
        );
    }
}

#[test]
fn what_is_created_is_observed_the_next_time() {
    for capture in [
        &capture!("network")[..],
        capture!("dropper"),
        capture!("requirements"),
        capture!("secrets"),
        capture!("steady-start"),
    ] {
        let mut created: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for told in tell(capture) {
            let Outcome { create, .. } = &told.summary.outcome;
            let subject = told.subject().to_owned();
            let before = created.insert(subject, create.clone()).unwrap_or_default();
            for name in before {
                assert!(
                    !create.contains(&name),
                    "{name} of {}",
                    told.reconcile.trace_id
                );
            }
        }
    }
}

#[test]
fn what_breaks_is_told_apart() {
    let told = tell(capture!("broken"));
    let mut seen: BTreeMap<&str, (&str, Status, Option<&str>)> = BTreeMap::new();
    for told in &told {
        let last = told.last();
        assert_eq!(*seen.entry(told.subject()).or_insert(last), last);
        assert_eq!(told.summary.status, last.1);
        assert_eq!(told.summary.dropped, [], "{}", told.subject());
        let is_empty = told.summary.outcome == Outcome::default();
        assert_eq!(is_empty, last.1.is_failure(), "{}", told.subject());
    }
    let error = |step, word| (step, Status::Error, Some(word));
    let fine = ("auto-ready", Status::Ok, None);
    let expected = BTreeMap::from([
        ("fatal-ok", fine),
        ("fatal-bad", ("validate", Status::Fatal, Some("fatal"))),
        ("raiser", ("explode", Status::Fatal, Some("fatal"))),
        ("grpc-abort", error("abort", "invalid_argument")),
        ("grpc-unhandled", error("abort", "unknown")),
        ("grpc-deadline", error("abort", "deadline_exceeded")),
        ("grpc-toolarge", error("abort", "resource_exhausted")),
        ("grpc-unavailable", error("abort", "unavailable")),
        ("grpc-unstable", error("abort", "requirements_unstable")),
        ("grpc-badrequirement", error("abort", "required_resources")),
        ("missing", error("call-missing", "no_connection")),
        (
            "unreachable",
            ("call-dead", Status::Incomplete, Some("no_response")),
        ),
        ("hanger", ("sleep", Status::Incomplete, Some("no_response"))),
        ("slow", fine),
        ("grpc-invalid", fine),
    ]);
    assert_eq!(seen, expected);
}

#[test]
fn a_fatal_result_keeps_its_message_and_the_warning_beside_it() {
    let told = tell(capture!("broken"));
    let bad = told.iter().find(|told| told.subject() == "fatal-bad");
    let facts = &bad.unwrap().summary.steps[1].facts;
    let results: Vec<_> = facts
        .results
        .iter()
        .map(|result| (result.severity, &*result.message))
        .collect();
    assert_eq!(
        results,
        [
            (
                Severity::Fatal,
                r#"mode "forbidden" is not allowed by policy net-17"#
            ),
            (Severity::Warning, "mode looks odd"),
        ]
    );
    assert_eq!(
        (facts.result_counts.fatal, facts.result_counts.warning),
        (1, 1)
    );
}

#[test]
fn requirements_are_named_in_the_old_way_and_the_new() {
    for told in tell(capture!("requirements")) {
        let names: Vec<Vec<_>> = told
            .summary
            .steps
            .iter()
            .map(|step| {
                let requirements = step.facts.requirements.iter();
                let names = requirements.map(|requirement| {
                    assert_eq!(&*requirement.api_version, "v1");
                    assert_eq!(&*requirement.kind, "ConfigMap");
                    // Requests are captured before the resources are fetched.
                    assert_eq!(requirement.found, None);
                    &*requirement.name
                });
                names.collect()
            })
            .collect();
        assert_eq!(
            names,
            [
                vec!["by-labels", "by-name", "not-there"],
                vec!["none", "one"],
                vec![],
                vec![],
            ]
        );
        assert_eq!(told.desired("auto-ready").total, 3);
        let conditions = &told.summary.steps[1].facts.conditions;
        assert_eq!(
            (&*conditions[0].condition_type, &*conditions[0].status),
            ("ResourcesComposed", "true")
        );
    }
}

#[test]
fn operations_have_results_but_no_outcome() {
    let told = tell(capture!("operation"));
    let seen: Vec<_> = told
        .iter()
        .map(|told| {
            assert_eq!(told.summary.outcome, Outcome::default());
            assert_eq!(told.summary.subject, SubjectFacts::default());
            assert_eq!(told.summary.dropped, []);
            let (_, status, error_type) = told.last();
            (told.subject(), status, error_type)
        })
        .collect();
    let fails = ("fails", Status::Fatal, Some("fatal"));
    let errors = ("errors", Status::Error, Some("permission_denied"));
    assert_eq!(
        seen,
        [
            ("rotate-keys", Status::Ok, None),
            fails,
            errors,
            ("on-config-c4fb1c7", Status::Ok, None),
            fails,
            errors,
            ("on-config-20a7605", Status::Ok, None),
            ("nightly-1794803880", Status::Ok, None),
        ]
    );
    assert_eq!(told[0].desired("rotate").added, ["rotated"]);
    assert_eq!(told[0].desired("report").added_count, 0);
    assert_eq!(
        told[0].summary.steps[0].facts.results[0].message,
        "rotated 2 keys"
    );
}
