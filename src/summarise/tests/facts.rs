//! What one payload says, however odd.

use super::*;
use crate::line::{Severity, SeverityCounts};

fn facts_of(request: &str, response: &str) -> StepFacts {
    summarise(&[step(request, response)]).steps.remove(0).facts
}

#[test]
fn a_request_says_what_the_step_was_given() {
    let request = r#"{"meta":{"tag":"abc"},
        "input":{"apiVersion":"pt.fn.crossplane.io/v1beta1","kind":"Resources"},
        "requiredResources":{"two":{"items":[{},{"resource":{}}]},"none":{}},
        "extraResources":{"one":{"items":[{}]}}}"#;
    let response = r#"{"meta":{"tag":"other","ttl":"1.5s"},"requirements":{
        "resources":{"two":{"apiVersion":"v1","kind":"ConfigMap"},"none":{"kind":"Secret"}},
        "extraResources":{"one":{},"unseen":{"kind":"Pod"}}}}"#;
    let facts = facts_of(request, response);
    assert_eq!(facts.tag.as_deref(), Some("abc"));
    assert_eq!(facts.ttl_s, Some(1.5));
    assert_eq!(
        facts.input_kind.as_deref(),
        Some("Resources.pt.fn.crossplane.io")
    );
    let found: Vec<_> = facts
        .requirements
        .iter()
        .map(|requirement| {
            (
                &*requirement.name,
                &*requirement.api_version,
                &*requirement.kind,
                requirement.found,
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("none", "", "Secret", Some(0)),
            ("one", "", "", Some(1)),
            ("two", "v1", "ConfigMap", Some(2)),
            ("unseen", "", "Pod", None),
        ]
    );
}

#[test]
fn a_kind_of_the_core_group_stands_alone() {
    let input = |input: &str| facts_of(&format!(r#"{{"input":{input}}}"#), "{}").input_kind;
    assert_eq!(
        input(r#"{"apiVersion":"v1","kind":"ConfigMap"}"#).as_deref(),
        Some("ConfigMap")
    );
    assert_eq!(input(r#"{"kind":"X"}"#).as_deref(), Some("X"));
    assert_eq!(input(r#"{"apiVersion":"a/v1"}"#), None);
    assert_eq!(input("7"), None);
}

#[test]
fn the_tag_of_the_response_counts_where_the_request_has_none() {
    assert_eq!(
        facts_of("{}", r#"{"meta":{"tag":"late"}}"#).tag.as_deref(),
        Some("late")
    );
}

#[test]
fn the_subject_is_read_off_the_observed_composite() {
    let subject = |resource: &str| {
        let request = format!(r#"{{"observed":{{"composite":{{"resource":{resource}}}}}}}"#);
        summarise(&[step(&request, "{}")]).subject
    };
    let v2 = subject(
        r#"{"metadata":{"generation":7,"resourceVersion":"42","ownerReferences":[
            {"uid":"a","controller":false},{"uid":"b","controller":true},5,{"uid":"c"}]},
            "spec":{"compositionRevisionRef":{"name":"old"},
                    "crossplane":{"compositionRevisionRef":{"name":"new"}}}}"#,
    );
    assert_eq!(
        v2,
        SubjectFacts {
            composition_revision: Some("new".to_owned()),
            generation: Some(7),
            resource_version: Some("42".to_owned()),
            parent_uid: Some("b".to_owned()),
        }
    );
    let v1 = subject(r#"{"spec":{"compositionRevisionRef":{"name":"old"}}}"#);
    assert_eq!(v1.composition_revision.as_deref(), Some("old"));
    assert_eq!(v1.parent_uid, None);
    assert_eq!(
        subject(r#"{"metadata":{"generation":"x","resourceVersion":9,"ownerReferences":{}}}"#),
        SubjectFacts::default()
    );
}

#[test]
fn a_fatal_result_is_never_cut() {
    let normal = r#"{"message":"fine"}"#;
    let warning = r#"{"severity":"SEVERITY_WARNING","message":"hm"}"#;
    let fatal = r#"{"severity":"SEVERITY_FATAL","message":"no","reason":"Because"}"#;
    let mut results = vec![normal; 30];
    results.extend([warning, fatal]);
    let response = format!(r#"{{"results":[{}]}}"#, results.join(","));
    let summary = summarise(&[step("{}", &response)]);
    let facts = &summary.steps[0].facts;
    assert_eq!(facts.results.len(), MAX_ENTRIES);
    assert_eq!(facts.results[0].severity, Severity::Fatal);
    assert_eq!(facts.results[0].reason.as_deref(), Some("Because"));
    assert_eq!(
        facts.result_counts,
        SeverityCounts {
            normal: 30,
            warning: 1,
            fatal: 1
        }
    );
    assert_eq!(summary.status, Status::Fatal);
    assert_eq!(summary.steps[0].error_type.as_deref(), Some("fatal"));
}

#[test]
fn an_unknown_severity_is_normal() {
    let response = r#"{"results":[{"severity":"SEVERITY_NEW"},{"severity":1},{},7,null]}"#;
    let facts = facts_of("{}", response);
    assert_eq!(facts.result_counts.normal, 3);
    assert_eq!(facts.results.len(), 3);
}

#[test]
fn texts_are_cut_between_characters() {
    let message = "é".repeat(MAX_TEXT_BYTES);
    let response = format!(r#"{{"results":[{{"message":"x{message}"}}]}}"#);
    let facts = facts_of("{}", &response);
    assert_eq!(facts.results[0].message.len(), MAX_TEXT_BYTES - 1);
}

#[test]
fn conditions_are_those_of_kubernetes() {
    let response = r#"{"conditions":[
        {"type":"Ready","status":"STATUS_CONDITION_TRUE","reason":"Up","message":"yes"},
        {"type":"Synced","status":"STATUS_CONDITION_FALSE","reason":"Down"},{"status":3}]}"#;
    let conditions = facts_of("{}", response).conditions;
    let seen: Vec<_> = conditions
        .iter()
        .map(|condition| {
            (
                &*condition.condition_type,
                &*condition.status,
                &*condition.reason,
                condition.message.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("Ready", "true", "Up", Some("yes")),
            ("Synced", "false", "Down", None),
            ("", "unknown", "", None),
        ]
    );
}

#[test]
fn a_member_of_the_wrong_type_costs_only_itself() {
    let odd = [
        "3",
        "null",
        "\"x\"",
        "[[1]]",
        "true",
        "-1.5e300",
        "{\"a\":{}}",
    ];
    for odd in odd {
        let response = format!(
            r#"{{"meta":{odd},"results":{odd},"conditions":{odd},"requirements":{odd},
            "desired":{}}}"#,
            state(&[("a", 1)])
        );
        let desired = facts_of(&request(&[], &[]), &response).desired.unwrap();
        assert_eq!(
            (desired.total, &desired.added[..]),
            (1, &["a".to_owned()][..])
        );

        let request = format!(
            r#"{{"meta":{odd},"input":{odd},"requiredResources":{odd},"observed":{odd},
            "desired":{}}}"#,
            state(&[("b", 1)])
        );
        let desired = facts_of(&request, &response).desired.unwrap();
        assert_eq!(desired.removed, ["b"]);
    }
}

#[test]
fn a_state_of_the_wrong_type_is_unknown_and_a_missing_one_empty() {
    let desired = |response: &str| facts_of(&request(&[], &[("a", 1)]), response).desired;
    for odd in ["3", "[]", "\"x\"", r#"{"resources":3}"#] {
        assert_eq!(desired(&format!(r#"{{"desired":{odd}}}"#)), None, "{odd}");
    }
    for empty in [
        "{}",
        r#"{"desired":null}"#,
        r#"{"desired":{}}"#,
        r#"{"desired":{"resources":null}}"#,
    ] {
        assert_eq!(desired(empty).unwrap().removed, ["a"], "{empty}");
    }
}

#[test]
fn of_two_members_of_one_name_the_last_counts() {
    let response = r#"{"meta":{"ttl":"1s"},"meta":{"ttl":"2s","ttl":"3s"},"desired":{"resources":{
        "a":{"resource":{"x":1}},"a":{"resource":{"x":2}}}},"results":[{}],"results":[]}"#;
    let given = r#"{"desired":{"resources":{"a":{"resource":{"x":2}}}}}"#;
    let facts = facts_of(given, response);
    assert_eq!(facts.ttl_s, Some(3.0));
    assert_eq!(facts.result_counts, SeverityCounts::default());
    let desired = facts.desired.unwrap();
    assert_eq!((desired.total, desired.changed_count), (1, 0));
    let twice = |request: &str| {
        let response =
            r#"{"meta":{"ttl":"1s","tag":"b"},"meta":{},"requirements":{"resources":{"r":{}}}}"#;
        let facts = facts_of(request, response);
        let found = facts.requirements.first().and_then(|one| one.found);
        (facts.tag, facts.ttl_s, found)
    };
    let request = r#"{"meta":{"tag":"a"},"meta":1,"requiredResources":{"r":{"items":[{}]}},
        "requiredResources":{},"extraResources":{"r":{"items":[]}}}"#;
    assert_eq!(twice(request), (None, None, Some(0)));
}

#[test]
fn what_can_not_be_read_still_makes_a_summary() {
    let deep = format!(r#"{{"desired":{}1{}}}"#, "[".repeat(500), "]".repeat(500));
    let unreadable = [
        Bytes::new(),
        Bytes::from_static(b"no JSON"),
        Bytes::from_static(b"\xff\xfe"),
        json("7"),
        json("[]"),
        json("null"),
        json("{"),
        json("{}{}"),
        json(&deep),
        Bytes::from_static(b"\"\xff\""),
    ];
    for payload in unreadable {
        let call = Call {
            request: Some(payload.clone()),
            response: Some(payload.clone()),
            error: String::new(),
        };
        let after = step(&request(&[("b", 1)], &[("a", 1)]), &response(&[("c", 1)]));
        let summary = summarise(&[call.clone(), after, call]);
        assert_eq!(summary.status, Status::Ok, "{payload:?}");
        assert_eq!(summary.steps[0].facts, StepFacts::default(), "{payload:?}");
        let desired = summary.steps[1].facts.desired.as_ref().unwrap();
        assert_eq!((&*desired.added[0], &*desired.removed[0]), ("c", "a"));
        // The final desired state is not known, so nothing is predicted.
        assert_eq!(summary.outcome, Outcome::default(), "{payload:?}");
        assert_eq!(summary.dropped_count, 1, "{payload:?}");
    }
}

#[test]
fn the_worst_step_counts() {
    let fine = step("{}", "{}");
    let warning = step("{}", r#"{"results":[{"severity":"SEVERITY_WARNING"}]}"#);
    let missing = fine.clone().without_response();
    let failed = missing.clone().error("boom");
    let status = |calls: &[Call]| {
        let summary = summarise(calls);
        let last = summary.steps.last().unwrap().clone();
        (summary.status, last.status, last.error_type)
    };
    assert_eq!(
        status(std::slice::from_ref(&fine)),
        (Status::Ok, Status::Ok, None)
    );
    assert_eq!(
        status(&[warning.clone(), fine]),
        (Status::Warning, Status::Ok, None)
    );
    assert_eq!(
        status(&[warning, missing]),
        (
            Status::Incomplete,
            Status::Incomplete,
            Some("no_response".to_owned())
        )
    );
    assert_eq!(
        status(&[failed]),
        (Status::Error, Status::Error, Some("other".to_owned()))
    );
}
