//! Payloads that are too large to be looked at, and names that come up over and over.

use super::*;
use crate::{line::SUMMARY_SKIPPED, summarise::allowance::MAX_VALUES};

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
