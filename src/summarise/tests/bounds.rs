//! Payloads that are too large to be looked at, and names that come up over and over.

use super::*;
use crate::{
    line::{MAX_LIST_BYTES, ObjectRef, PayloadState, SUMMARY_SKIPPED},
    publish::{Context, line_of},
    summarise::allowance::MAX_VALUES,
};

/// A desired state of one resource with this many fields.
fn wide_state(fields: usize) -> String {
    let fields: Vec<_> = (0..fields).map(|index| format!(r#""{index}":1"#)).collect();
    let fields = fields.join(",");
    format!(r#"{{"resources":{{"wide":{{"resource":{{"spec":{{{fields}}}}}}}}}}}"#)
}

const RESULTS: &str =
    r#""results":[{"severity":"SEVERITY_WARNING","message":"mind the gap"}],"meta":{"tag":"t"}"#;

#[test]
fn a_response_with_too_many_values_is_unknown_and_says_so() {
    let response = format!(r#"{{"desired":{},{RESULTS}}}"#, wide_state(MAX_VALUES));
    let summary = summarise(&[
        step(&request(&[("wide", 1)], &[]), &response),
        step("{}", "{}").without_request(),
    ]);
    let facts = &summary.steps[0].facts;
    assert_eq!(facts.summary.as_deref(), Some(SUMMARY_SKIPPED));
    assert_eq!(facts.desired, None);
    // What stands beside the state is known.
    assert_eq!(facts.results[0].message, "mind the gap");
    assert_eq!(facts.tag.as_deref(), Some("t"));
    assert_eq!(summary.steps[0].status, Status::Warning);
    assert_eq!(summary.steps[1].facts.summary, None);
}

#[test]
fn nothing_is_predicted_from_a_state_that_is_too_large() {
    let large = wide_state(MAX_VALUES);
    let observed = format!(r#"{{"observed":{large},"desired":{{}}}}"#);
    let summary = summarise(&[step(&observed, &response(&[("new", 1)]))]);
    assert_eq!(summary.outcome, Outcome::default());
    assert_eq!(
        summary.steps[0].facts.summary.as_deref(),
        Some(SUMMARY_SKIPPED)
    );
    // What is known is told all the same.
    assert_eq!(summary.steps[0].facts.desired.as_ref().unwrap().total, 1);

    let returned = format!(r#"{{"desired":{large}}}"#);
    let summary = summarise(&[step(&request(&[("old", 1)], &[]), &returned)]);
    assert_eq!(summary.outcome, Outcome::default());
    assert_eq!(summary.dropped, []);
}

#[test]
fn many_values_are_summarised_as_long_as_they_are_not_too_many() {
    let response = format!(r#"{{"desired":{}}}"#, wide_state(MAX_VALUES / 2));
    let summary = summarise(&[step(&request(&[], &[]), &response)]);
    assert_eq!(summary.steps[0].facts.summary, None);
    assert_eq!(summary.outcome.create, ["wide"]);
}

#[test]
fn what_is_too_large_and_no_json_is_told_apart_still() {
    let mut summariser = Summariser::new();
    let response = format!(r#"{{"desired":{}"#, wide_state(MAX_VALUES));
    assert!(!summariser.read(0, RecordKind::Response, response.as_bytes()));
    let long = format!(r#"{{"a":"\n{}""#, "x".repeat(5 << 20));
    assert!(!summariser.read(0, RecordKind::Response, long.as_bytes()));
    assert!(summariser.read(0, RecordKind::Response, format!("{long}}}").as_bytes()));
    let list = format!("[{}]", long.get(5..).unwrap());
    assert!(!summariser.read(0, RecordKind::Response, list.as_bytes()));
}

#[test]
fn a_string_that_is_too_long_costs_the_summary_but_no_failure() {
    let long = "x".repeat(5 << 20);
    let fatal = format!(
        r#"{{"results":[{{"severity":"SEVERITY_FATAL","message":"\n{long}"}}],"desired":{{}}}}"#
    );
    let fine = format!(r#"{{"context":{{"a":"\n{long}"}}}}"#);
    let summary = summarise(&[step("{}", &fine), step("{}", &fatal)]);
    for step in &summary.steps {
        assert_eq!(step.facts.summary.as_deref(), Some(SUMMARY_SKIPPED));
    }
    assert_eq!(summary.steps[0].status, Status::Ok);
    assert_eq!(summary.steps[1].status, Status::Fatal);
    assert!(
        summary.steps[1].facts.results[0]
            .message
            .contains("too large")
    );
    assert_eq!(summary.fields, DesiredFields::unknown());
}

/// A response that asks for these resources and talks as much as it can.
fn loud_response(names: &[String]) -> String {
    let message = "\\u0001".repeat(2 * MAX_TEXT_BYTES);
    let result =
        format!(r#"{{"severity":"SEVERITY_WARNING","reason":"{message}","message":"{message}"}}"#);
    let condition = format!(r#"{{"type":"{message}","reason":"{message}","message":"{message}"}}"#);
    let resources: Vec<_> = names
        .iter()
        .map(|name| format!(r#""{name}":{{"resource":{{}}}}"#))
        .collect();
    format!(
        r#"{{"meta":{{"tag":"{message}"}},"results":[{}],"conditions":[{}],"desired":{{"resources":{{{}}}}}}}"#,
        vec![result; 2].join(","),
        vec![condition; 2].join(","),
        resources.join(","),
    )
}

/// As much as the history keeps of a line, and half of what the index reads.
const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;

#[test]
fn a_line_is_bounded_whatever_the_steps_say() {
    // Names that come and go with every other step, in as many steps as a reconcile may have.
    let names = |salt: &str| -> Vec<_> {
        let name = |index: usize| format!("{salt}{index}-{}", "\\u0002".repeat(MAX_TEXT_BYTES));
        (0..8).map(name).collect()
    };
    let responses = ["a", "b"].map(|salt| loud_response(&names(salt)));
    let calls: Vec<_> = (0..1024)
        .zip(responses.iter().cycle())
        .map(|(_, response)| step("{}", response).without_request())
        .collect();
    let mut summariser = Summariser::new();
    for (place, call) in calls.iter().enumerate() {
        let response = call.response.as_ref().unwrap();
        assert!(summariser.read(place, RecordKind::Response, response));
    }
    let mut reconcile = reconcile(Subject::default(), &calls);
    let long = "\u{3}".repeat(2 * MAX_TEXT_BYTES);
    for step in &mut reconcile.steps {
        for text in [&mut step.name, &mut step.function, &mut step.error] {
            long.clone_into(text);
        }
    }
    let summary = summariser.finish(&reconcile);
    let object = ObjectRef {
        key: String::new(),
        state: PayloadState::Queued,
        bytes: 0,
        redaction: None,
    };
    let line = line_of(&reconcile, summary, Vec::new(), object, Context::default());
    assert_eq!(line.steps.len(), 1024);
    let json = serde_json::to_vec(&line).unwrap();
    assert!(json.len() < MAX_LINE_BYTES, "{}", json.len());
    assert!(
        line.memory_bytes() < MAX_LINE_BYTES,
        "{}",
        line.memory_bytes()
    );
    // What is left out is counted.
    let last = &line.steps[1023].facts;
    assert_eq!((last.results.len(), last.result_counts.warning), (0, 2));
    let desired = last.desired.as_ref().unwrap();
    assert_eq!((desired.added.len(), desired.added_count), (0, 8));
    assert!(
        !line.steps[1]
            .facts
            .desired
            .as_ref()
            .unwrap()
            .added
            .is_empty()
    );
}

#[test]
fn no_list_of_a_summary_grows_with_the_length_of_names() {
    let long = "x".repeat(MAX_TEXT_BYTES);
    let names: Vec<_> = (0..MAX_NAMES)
        .map(|index| format!("{index}{long}"))
        .collect();
    let resources: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let first = step(&request(&[], &[]), &response(&resources));
    let second = step(&request(&[], &resources), &response(&[]));
    let added = summarise(std::slice::from_ref(&first));
    let removed = summarise(&[first, second]);
    let facts = |summary: &Summary, step: usize| summary.steps[step].facts.desired.clone().unwrap();
    let dropped: Vec<_> = removed
        .dropped
        .iter()
        .map(|it| it.resource.clone())
        .collect();
    for list in [
        &facts(&added, 0).added,
        &facts(&removed, 1).removed,
        &added.outcome.create,
        &added.outcome.touched_by[0].1,
        &dropped,
    ] {
        let bytes: usize = list.iter().map(String::len).sum();
        assert!((1..=MAX_LIST_BYTES).contains(&bytes), "{bytes}");
    }
    let count = MAX_NAMES as u64;
    assert_eq!(facts(&added, 0).added_count, count);
    assert_eq!(
        (added.outcome.create_count, removed.dropped_count),
        (count, count)
    );
}
