//! Requests and responses find each other, in any order and number.

use super::*;

#[test]
fn a_request_and_its_response_make_one_step() {
    let reconcile = assemble_one([request("t", 0).at(0), response("t", 0).at(40)]);
    assert_eq!(steps_of(&reconcile), [(Some(0), Some(1))]);
    assert_eq!(records_of(&reconcile), [0, 1]);
    assert_eq!(reconcile.subject, xr("t"));
    assert_eq!(reconcile.first_received_at, at(0));
    assert!(reconcile.is_complete() && !reconcile.is_fragment());
}

#[test]
fn a_response_before_its_request_still_makes_one_step() {
    let reconcile = assemble_one([response("t", 0).at(0), request("t", 0).at(1)]);
    assert_eq!(steps_of(&reconcile), [(Some(1), Some(0))]);
    assert!(reconcile.is_complete() && !reconcile.is_fragment());
}

#[test]
fn a_failed_response_before_its_request_waits_for_it() {
    let mut log = Following::new();
    log.accept(response("t", 0).error("unavailable").at(0));
    assert_eq!(log.closings(), []);
    log.accept(request("t", 0).at(1));
    let reconcile = log.only_closed();
    assert_eq!(steps_of(&reconcile), [(Some(1), Some(0))]);
    assert_eq!(reconcile.closing, Closing::Ended);
    assert_eq!(reconcile.steps[0].error, "unavailable");
}

#[test]
fn steps_come_out_in_the_order_of_the_pipeline() {
    let reconcile = assemble_one([
        request("t", 2),
        response("t", 1),
        request("t", 0),
        response("t", 2),
        request("t", 1),
        response("t", 0),
    ]);
    assert_eq!(
        steps_of(&reconcile),
        [(Some(2), Some(5)), (Some(4), Some(1)), (Some(0), Some(3))]
    );
    let names = reconcile.steps.iter().map(|step| step.name.as_str());
    assert!(names.eq(["step-0", "step-1", "step-2"]));
}

#[test]
fn the_same_payload_twice_is_one_step_and_both_records_belong_to_it() {
    let reconcile = assemble_one([
        request("t", 0),
        request("t", 0),
        response("t", 0),
        response("t", 0),
        request("t", 0),
    ]);
    assert_eq!(steps_of(&reconcile), [(Some(0), Some(2))]);
    assert_eq!(records_of(&reconcile), [0, 1, 2, 3, 4]);
}

#[test]
fn the_same_failure_twice_is_one_step() {
    let failed = |error| response("t", 0).error(error);
    let mut log = Following::new();
    // Without its request a failure doesn't close, so that the second one finds the first.
    log.accept_all([failed("unavailable"), failed("unavailable")]);
    log.accept(request("t", 0));
    let reconcile = log.only_closed();
    assert_eq!(steps_of(&reconcile), [(Some(2), Some(0))]);
    assert_eq!(records_of(&reconcile), [0, 1, 2]);
}

#[test]
fn another_payload_for_the_same_place_is_kept_as_a_step_of_its_own() {
    let reconcile = assemble_one([
        request("t", 0).payload("first"),
        response("t", 0).payload("answer to the first"),
        request("t", 0).payload("second"),
        response("t", 0).payload("answer to the second"),
    ]);
    assert_eq!(
        steps_of(&reconcile),
        [(Some(0), Some(1)), (Some(2), Some(3))]
    );
    assert!(reconcile.is_complete());
}

#[test]
fn another_error_with_the_same_payload_is_kept_as_a_step_of_its_own() {
    let reconcile = assemble_one([
        response("t", 0).error("unavailable"),
        response("t", 0).error("deadline exceeded"),
    ]);
    let errors = reconcile.steps.iter().map(|step| step.error.as_str());
    assert!(errors.eq(["unavailable", "deadline exceeded"]));
    assert_eq!(records_of(&reconcile), [0, 1]);
}

#[test]
fn a_late_response_finds_its_request() {
    let reconcile = assemble_one([request("t", 0).at(0), response("t", 0).at(119_000)]);
    assert_eq!(steps_of(&reconcile), [(Some(0), Some(1))]);
}

#[test]
fn a_response_that_never_comes_leaves_its_step_without() {
    let reconcile = assemble_one([request("t", 0), response("t", 0), request("t", 1)]);
    assert_eq!(steps_of(&reconcile), [(Some(0), Some(1)), (Some(2), None)]);
    assert!(!reconcile.is_complete());
}

#[test]
fn a_request_that_never_comes_leaves_its_step_without() {
    let reconcile = assemble_one([response("t", 0)]);
    assert_eq!(steps_of(&reconcile), [(None, Some(0))]);
    assert!(reconcile.is_complete() && reconcile.is_fragment());
}

#[test]
fn iterations_of_a_step_are_steps_in_order() {
    let pair = |iteration| {
        [
            request("t", 0).iteration(iteration),
            response("t", 0).iteration(iteration),
        ]
    };
    let reconcile = assemble_one([pair(0), pair(2), pair(1)].into_iter().flatten());
    let iterations = reconcile.steps.iter().map(|step| step.iteration);
    assert!(iterations.eq([0, 1, 2]));
    assert_eq!(
        steps_of(&reconcile),
        [(Some(0), Some(1)), (Some(4), Some(5)), (Some(2), Some(3))]
    );
}

#[test]
fn operations_pair_and_close_like_composites() {
    let mut log = Following::new();
    log.accept_all([
        request("a", 0).of_operation("backup").at(0),
        response("a", 0).of_operation("backup").at(5),
        request("b", 0).of_operation("backup").at(10),
    ]);
    let reconcile = log.only_closed();
    assert_eq!(reconcile.closing, Closing::Succeeded);
    assert_eq!(steps_of(&reconcile), [(Some(0), Some(1))]);
    let backup = Subject::operation("backup".to_owned(), "uid-of-backup".to_owned());
    assert_eq!(reconcile.subject, backup);
}

#[test]
fn without_a_trace_id_records_pair_by_span() {
    let reconciles = assemble([
        request("", 0).span("s").at(0),
        request("", 0).span("other").at(1),
        response("", 0).span("s").at(2),
    ]);
    let mut found: Vec<_> = reconciles.iter().map(steps_of).collect();
    found.sort();
    assert_eq!(found, [[(Some(0), Some(2))], [(Some(1), None)]]);
}

#[test]
fn without_trace_id_and_span_id_each_record_stands_alone() {
    let reconciles = assemble([
        request("", 0).span("").at(0),
        response("", 0).span("").at(1),
        request("", 0).span("").at(2),
    ]);
    assert_eq!(reconciles.len(), 3);
    let mut records: Vec<_> = reconciles.iter().map(records_of).collect();
    records.sort();
    assert_eq!(records, [[0], [1], [2]]);
}

#[test]
fn a_subject_that_only_a_later_record_names_is_the_reconciles() {
    let reconcile = assemble_one([response("t", 0).of_nobody(), request("t", 0)]);
    assert_eq!(reconcile.subject, xr("t"));
}

#[test]
fn the_same_questions_and_answers_have_the_same_fingerprint() {
    let pipeline = |trace: &str, answer: &str| {
        assemble_one([
            request(trace, 0).payload("question"),
            response(trace, 0).payload(answer),
        ])
    };
    let before = pipeline("a", "answer");
    assert_eq!(before.fingerprint(), pipeline("b", "answer").fingerprint());
    assert_ne!(before.fingerprint(), pipeline("c", "other").fingerprint());
}
