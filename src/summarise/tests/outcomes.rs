//! What a pipeline does to resources.

use super::*;

fn desired_of(summary: &Summary, step: usize) -> (u64, [Vec<String>; 3]) {
    let desired = summary.steps[step].facts.desired.clone().unwrap();
    let lists = [desired.added, desired.changed, desired.removed];
    (desired.total, lists)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn drop_of(resource: &str, step: Option<u32>, observed: bool) -> Dropped {
    Dropped {
        resource: resource.to_owned(),
        step,
        observed,
    }
}

const FATAL: &str = r#""results":[{"severity":"SEVERITY_FATAL"}]"#;

#[test]
fn a_step_is_held_against_what_it_was_given() {
    let summary = summarise(&[
        step(&request(&[], &[]), &response(&[("b", 1), ("a", 1)])),
        step(
            &request(&[], &[("a", 1), ("b", 1)]),
            &response(&[("b", 2), ("c", 1)]),
        ),
    ]);
    assert_eq!(
        desired_of(&summary, 0),
        (2, [names(&["a", "b"]), vec![], vec![]])
    );
    assert_eq!(
        desired_of(&summary, 1),
        (2, [names(&["c"]), names(&["b"]), names(&["a"])])
    );
}

#[test]
fn where_the_request_is_missing_the_step_before_counts() {
    let first = step(&request(&[], &[]), &response(&[("a", 1)]));
    let second = step("{}", &response(&[("a", 2)])).without_request();
    let summary = summarise(&[first.clone(), second.clone()]);
    assert_eq!(
        desired_of(&summary, 1),
        (1, [vec![], names(&["a"]), vec![]])
    );

    // Nothing is known of what this one was given.
    let summary = summarise(&[first.without_response(), second]);
    assert_eq!(desired_of(&summary, 1), (1, [vec![], vec![], vec![]]));
}

#[test]
fn becoming_ready_is_no_change() {
    let given = state(&[("a", 1)]);
    let ready = given.replace(r#""resource""#, r#""ready":"READY_TRUE","resource""#);
    let summary = summarise(&[step(
        &format!(r#"{{"observed":{given},"desired":{given}}}"#),
        &format!(r#"{{"desired":{ready}}}"#),
    )]);
    let desired = summary.steps[0].facts.desired.as_ref().unwrap();
    assert_eq!((desired.ready, desired.changed_count), (1, 0));
    assert_eq!(summary.outcome.touched_by, []);
    assert_eq!(summary.outcome.unchanged, 1);
}

#[test]
fn connection_details_are_part_of_a_resource() {
    let given = state(&[("a", 1)]);
    let more = given.replace(
        r#""resource""#,
        r#""connectionDetails":{"k":"djE="},"resource""#,
    );
    let summary = summarise(&[step(
        &format!(r#"{{"desired":{given}}}"#),
        &format!(r#"{{"desired":{more}}}"#),
    )]);
    assert_eq!(desired_of(&summary, 0).1[1], ["a"]);
}

#[test]
fn the_outcome_is_what_differs_from_what_is_there() {
    let observed = [("gone", 1), ("other", 1), ("same", 1)];
    let desired = [("new", 1), ("other", 2), ("same", 1)];
    let summary = summarise(&[
        step(&request(&observed, &[]), &response(&desired[..2])),
        step(&request(&observed, &desired[..2]), &response(&desired)),
    ]);
    let outcome = summary.outcome;
    assert_eq!(outcome.create, ["new"]);
    assert_eq!(outcome.update, ["other"]);
    assert_eq!(outcome.delete, ["gone"]);
    assert_eq!(outcome.unchanged, 1);
    assert_eq!(
        (
            outcome.create_count,
            outcome.update_count,
            outcome.delete_count
        ),
        (1, 1, 1)
    );
    assert_eq!(
        outcome.touched_by,
        [(0, names(&["new", "other"])), (1, names(&["same"]))]
    );
    assert_eq!(summary.dropped, [drop_of("gone", None, true)]);
}

#[test]
fn what_kubernetes_added_is_no_update() {
    let update = |observed: &str, desired: &str| {
        let state = |body: &str| format!(r#"{{"resources":{{"a":{{"resource":{body}}}}}}}"#);
        let summary = summarise(&[step(
            &format!(r#"{{"observed":{}}}"#, state(observed)),
            &format!(r#"{{"desired":{}}}"#, state(desired)),
        )]);
        summary.outcome.update_count == 1
    };
    let observed = r#"{"metadata":{"uid":"u","managedFields":[{"manager":"m"}],"labels":{"l":"1"}},
        "spec":{"list":["x","y"],"on":true,"size":3.0},"status":{"up":true}}"#;
    for same in [
        r#"{"spec":{"size":3}}"#,
        r#"{"metadata":{"labels":{"l":"1"},"annotations":{}},"spec":{"list":["x"],"none":null}}"#,
        r#"{"stringData":{"never":{"read":"back"}},"status":{"up":true}}"#,
        "{}",
    ] {
        assert!(!update(observed, same), "{same}");
    }
    for other in [
        r#"{"spec":{"size":"3"}}"#,
        r#"{"spec":{"list":["y"]}}"#,
        r#"{"spec":{"list":["x","y","z"]}}"#,
        r#"{"metadata":{"labels":{"new":"1"}}}"#,
        r#"{"size":3}"#,
        r#"{"stringData":{"a":"b"},"size":3}"#,
        r#"{"spec":{"stringData":{"a":"b"}}}"#,
    ] {
        assert!(update(observed, other), "{other}");
    }
}

#[test]
fn a_leaf_of_another_resource_does_not_count() {
    let summary = summarise(&[step(
        &request(&[("a", 1), ("b", 2)], &[]),
        &response(&[("a", 2), ("b", 2)]),
    )]);
    assert_eq!(summary.outcome.update, ["a"]);
}

#[test]
fn observed_is_taken_from_the_first_request_that_can_be_read() {
    let mut unreadable = step("", &response(&[("a", 1)]));
    unreadable.request = Some(Bytes::from_static(b"?"));
    let summary = summarise(&[
        unreadable,
        step(
            &request(&[("a", 1)], &[("a", 1)]),
            &response(&[("a", 1), ("b", 1)]),
        ),
        step(
            &request(&[("b", 1)], &[("a", 1), ("b", 1)]),
            &response(&[("a", 1), ("b", 1)]),
        ),
    ]);
    assert_eq!(summary.outcome.create, ["b"]);
    assert_eq!(summary.outcome.unchanged, 1);
}

#[test]
fn a_step_that_removes_a_resource_drops_it() {
    let observed = [("a", 1), ("b", 1)];
    let all = [("a", 1), ("b", 1), ("c", 1)];
    let summary = summarise(&[
        step(&request(&observed, &[]), &response(&all)),
        step(&request(&observed, &all), &response(&all[..1])),
    ]);
    assert_eq!(
        summary.dropped,
        [drop_of("b", Some(1), true), drop_of("c", Some(1), false)]
    );
    assert_eq!(summary.dropped_count, 2);
    assert_eq!(summary.outcome.delete, ["b"]);
}

#[test]
fn what_a_later_step_adds_again_is_not_dropped() {
    let summary = summarise(&[
        step(&request(&[], &[]), &response(&[("a", 1)])),
        step(&request(&[], &[("a", 1)]), &response(&[])),
        step(&request(&[], &[]), &response(&[("a", 1)])),
    ]);
    assert_eq!(summary.dropped, []);
    assert_eq!(summary.outcome.touched_by, [(2, names(&["a"]))]);
}

#[test]
fn a_step_that_fails_drops_nothing_and_predicts_nothing() {
    let observed = [("a", 1), ("b", 1)];
    let first = step(&request(&observed, &[]), &response(&observed));
    let given = request(&observed, &observed);
    for failed in [
        step(&given, &format!("{{{FATAL}}}")),
        step(&given, "{}").error("boom"),
        step(&given, "{}").without_response(),
    ] {
        let summary = summarise(&[first.clone(), failed]);
        assert!(summary.status.is_failure());
        assert_eq!(summary.outcome, Outcome::default());
        assert_eq!(summary.dropped, []);
    }
}

#[test]
fn what_was_dropped_before_a_failure_is_told() {
    let observed = [("a", 1), ("b", 1)];
    let summary = summarise(&[
        step(&request(&observed, &observed), &response(&observed[..1])),
        step(&request(&observed, &observed[..1]), &format!("{{{FATAL}}}")),
    ]);
    assert_eq!(summary.dropped, [drop_of("b", Some(0), true)]);
}

#[test]
fn a_fragment_predicts_nothing() {
    let call = step(&request(&[("a", 1)], &[]), &response(&[("b", 1)]));
    let summary = summarise(&[call.clone(), call.without_request()]);
    assert_eq!(summary.status, Status::Ok);
    assert_eq!(summary.outcome, Outcome::default());
    assert_eq!(summary.dropped, []);
}

#[test]
fn an_operation_predicts_nothing() {
    let operation = Subject::operation("o".to_owned(), "u".to_owned());
    let summary = summarise_of(
        operation,
        &[
            step("{}", &response(&[("a", 1), ("b", 1)])),
            step(&request(&[], &[("a", 1), ("b", 1)]), &response(&[("a", 1)])),
        ],
    );
    assert_eq!(summary.outcome, Outcome::default());
    assert_eq!(summary.dropped, [drop_of("b", Some(1), false)]);
}

#[test]
fn lists_are_cut_and_counted() {
    let names: Vec<_> = (0..=MAX_NAMES)
        .map(|index| format!("r{index:04}"))
        .collect();
    let all: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let created = summarise(&[step(&request(&[], &[]), &response(&all))]);
    let count = all.len() as u64;
    let desired = created.steps[0].facts.desired.as_ref().unwrap();
    assert_eq!(
        (desired.added.len(), desired.added_count),
        (MAX_NAMES, count)
    );
    assert_eq!(
        (created.outcome.create.len(), created.outcome.create_count),
        (MAX_NAMES, count)
    );
    assert_eq!(created.outcome.touched_by[0].1.len(), MAX_NAMES);

    let emptied = summarise(&[step(&request(&all, &all), &response(&[]))]);
    assert_eq!(
        (emptied.dropped.len(), emptied.dropped_count),
        (MAX_NAMES, count)
    );
    assert_eq!(
        (emptied.outcome.delete.len(), emptied.outcome.delete_count),
        (MAX_NAMES, count)
    );
}

#[test]
fn resources_past_all_limits_are_counted() {
    let names: Vec<_> = (0..20_000).map(|index| format!("r{index}")).collect();
    let all: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let summary = summarise(&[
        step(&request(&all, &[]), &response(&all)),
        step(&request(&all, &all), &response(&all)),
    ]);
    let [first, second] = [0, 1].map(|step| desired_of(&summary, step));
    assert_eq!((first.0, second.0), (20_000, 20_000));
    // What has no number has none in any state, so that nothing seems to come or go.
    assert!(second.1.iter().all(Vec::is_empty));
    assert_eq!(summary.outcome.delete_count, 0);
}

#[test]
fn past_the_limit_of_leaves_nothing_is_said_to_be_updated() {
    let elements = vec!["1"; 210_000].join(",");
    let body = |size| {
        format!(
            r#"{{"resources":{{"a":{{"resource":{{"list":[{elements}]}}}},
            "b":{{"resource":{{"size":{size}}}}}}}}}"#
        )
    };
    let summary = summarise(&[step(
        &format!(r#"{{"observed":{}}}"#, body(1)),
        &format!(r#"{{"desired":{}}}"#, body(2)),
    )]);
    assert_eq!(
        (summary.outcome.unchanged, summary.outcome.update_count),
        (2, 0)
    );
}
