//! When a reconcile is closed, and what becomes of what comes after.

use super::*;

fn pair(trace: &str, step: i32, millis: i64) -> [Message; 2] {
    [
        request(trace, step).at(millis),
        response(trace, step).at(millis),
    ]
}

#[test]
fn idle_for_two_seconds_after_the_last_response_closes() {
    let mut log = Following::new();
    log.accept_all(pair("t", 0, 500));
    log.advance(2_499);
    assert_eq!(log.closings(), []);
    assert_eq!(log.assembler.next_deadline(), Some(at(2_500)));
    log.advance(2_500);
    assert_eq!(log.closings(), [closing("t", Closing::Idle)]);
    assert_eq!(log.assembler.next_deadline(), None);
}

#[test]
fn every_record_puts_idleness_off() {
    let mut log = Following::new();
    log.accept_all(pair("t", 0, 0));
    log.accept_all(pair("t", 1, 1_999));
    log.accept(response("t", 1).at(3_998));
    log.advance(5_997);
    assert_eq!(log.closings(), []);
    log.advance(5_998);
    assert_eq!(log.only_closed().records.len(), 5);
}

#[test]
fn an_arrival_lets_time_pass_for_all_others() {
    let mut log = Following::new();
    log.accept_all(pair("t", 0, 0));
    log.accept(request("other", 0).at(2_000));
    assert_eq!(log.closings(), [closing("t", Closing::Idle)]);
}

#[test]
fn the_next_reconcile_of_the_subject_closes_the_one_before_at_once() {
    let mut log = Following::new();
    log.accept_all(pair("a", 0, 0).map(|message| message.of("xr")));
    log.accept(request("of-another", 0).at(1));
    assert_eq!(log.closings(), []);
    log.accept(request("b", 0).of("xr").at(1));
    assert_eq!(log.closings(), [closing("a", Closing::Succeeded)]);
}

#[test]
fn only_the_first_request_of_a_pipeline_is_a_next_reconcile() {
    let not_the_first = [
        request("b", 1),
        response("b", 0),
        request("b", 0).iteration(1),
    ];
    for message in not_the_first {
        let mut log = Following::new();
        log.accept_all(pair("a", 0, 0).map(|message| message.of("xr")));
        log.accept(message.clone().of("xr").at(1));
        assert_eq!(log.closings(), [], "{message:?}");
    }
}

#[test]
fn with_a_response_outstanding_the_next_reconcile_closes_it_after_two_seconds_of_silence() {
    let mut log = Following::new();
    log.accept(request("a", 0).of("xr").at(0));
    log.accept(request("b", 0).of("xr").at(10_000));
    log.advance(11_999);
    assert_eq!(log.closings(), []);
    log.advance(12_000);
    let reconcile = log.only_closed();
    assert_eq!(reconcile.trace_id.to_string(), "a");
    assert!(!reconcile.is_complete());
    assert_eq!(log.open_count(), 1);
}

#[test]
fn a_response_within_those_two_seconds_is_taken_and_waited_on_again() {
    let mut log = Following::new();
    log.accept(request("a", 0).of("xr").at(0));
    log.accept(request("b", 0).of("xr").at(10_000));
    log.accept(response("a", 0).of("xr").at(11_900));
    log.advance(13_899);
    assert_eq!(log.closings(), []);
    log.advance(13_900);
    let reconcile = log.only_closed();
    assert_eq!(steps_of(&reconcile), [(Some(0), Some(2))]);
    assert_eq!(reconcile.closing, Closing::Idle);
}

#[test]
fn subjects_that_nobody_names_do_not_succeed_each_other() {
    let nameless = |message: Message| {
        let mut message = message.of_nobody();
        // The draft layout always has a subject, be it an empty one.
        message.meta.subject = Some(Subject::default());
        message
    };
    for unnamed in [nameless, Message::of_nobody] {
        let mut log = Following::new();
        log.accept_all(pair("a", 0, 0).map(unnamed));
        log.accept(unnamed(request("b", 0).at(1)));
        assert_eq!(log.closings(), []);
    }
}

#[test]
fn a_failed_step_closes_at_once() {
    let mut log = Following::new();
    log.accept_all(pair("t", 0, 0));
    log.accept(request("t", 1).at(1));
    log.accept(response("t", 1).error("cannot run Function").at(2));
    let reconcile = log.only_closed();
    assert_eq!(reconcile.closing, Closing::Ended);
    assert!(reconcile.has_error() && reconcile.is_complete());
    assert_eq!(log.open_count(), 0);
}

#[test]
fn a_fatal_result_closes_at_once() {
    let mut log = Following::new();
    log.accept(request("t", 0).at(0));
    log.accept(response("t", 0).fatal().at(1));
    let reconcile = log.only_closed();
    assert_eq!(reconcile.closing, Closing::Ended);
    assert!(!reconcile.has_error() && reconcile.is_complete());
}

#[test]
fn the_word_fatal_in_a_request_closes_nothing() {
    let mut log = Following::new();
    log.accept(request("t", 0).fatal().at(0));
    log.accept(response("t", 0).at(1));
    assert_eq!(log.closings(), []);
}

#[test]
fn a_pipeline_that_goes_on_after_a_false_alarm_loses_nothing() {
    let mut log = Following::new();
    log.accept_all([request("t", 0), response("t", 0).fatal()]);
    log.accept_all(pair("t", 1, 1));
    log.close_all();
    let [first, rest] = <[_; 2]>::try_from(log.closed()).unwrap();
    assert_eq!(
        (records_of(&first), records_of(&rest)),
        (vec![0, 1], vec![2, 3])
    );
    assert_eq!(first.trace_id, rest.trace_id);
    assert!(!first.is_fragment() && rest.is_fragment());
}

#[test]
fn a_response_overdue_for_140_seconds_closes_incomplete() {
    let mut log = Following::new();
    log.accept_all(pair("t", 0, 0));
    log.accept(request("t", 1).at(1_000));
    log.advance(140_999);
    assert_eq!(log.closings(), []);
    log.advance(141_000);
    let reconcile = log.only_closed();
    assert_eq!(reconcile.closing, Closing::Overdue);
    assert!(!reconcile.is_complete());
}

#[test]
fn a_response_lost_in_the_middle_does_not_keep_it_open() {
    let mut log = Following::new();
    log.accept(request("t", 0).at(0));
    log.accept_all(pair("t", 1, 100));
    log.advance(2_100);
    let reconcile = log.only_closed();
    assert_eq!(reconcile.closing, Closing::Idle);
    assert_eq!(steps_of(&reconcile), [(Some(0), None), (Some(1), Some(2))]);
    assert!(!reconcile.is_complete());
}

#[test]
fn a_response_lost_before_a_failed_step_does_not_keep_it_open() {
    let mut log = Following::new();
    log.accept_all([request("t", 0), request("t", 1)]);
    log.accept(response("t", 1).error("unavailable"));
    assert_eq!(log.closings(), [closing("t", Closing::Ended)]);
}

#[test]
fn pipelines_of_one_subject_side_by_side_come_out_in_two_parts_each_at_most() {
    // Whatever the shift between the two, in half milliseconds of a step.
    for shift in 0..40 {
        let pipeline = |trace: &'static str, start: i64| {
            (0..8).flat_map(move |step| {
                let begun = start + i64::from(step) * 4;
                [
                    request(trace, step).of("xr").at(begun),
                    response(trace, step).of("xr").at(begun + 3),
                ]
            })
        };
        let mut messages: Vec<_> = pipeline("a", 0).chain(pipeline("b", shift)).collect();
        messages.sort_by_key(|message| message.arrival);
        let count = messages.len();
        let reconciles = assemble(messages);

        let mut records: Vec<_> = reconciles.iter().flat_map(records_of).collect();
        records.sort_unstable();
        assert!(records.into_iter().eq(0..count), "shift {shift}");
        for trace in ["a", "b"] {
            let parts = reconciles
                .iter()
                .filter(|reconcile| &*reconcile.trace_id.0 == trace);
            assert!(parts.count() <= 2, "shift {shift}");
        }
    }
}

#[test]
fn slow_pipelines_of_one_subject_side_by_side_do_not_thrash() {
    let mut log = Following::new();
    log.accept(request("a", 0).of("xr").at(0));
    log.accept(request("b", 0).of("xr").at(1_000));
    // Silent for longer than two seconds: given up, since its successor has begun.
    log.accept(response("a", 0).of("xr").at(5_000));
    for step in 1..6 {
        let begun = 5_000 * i64::from(step);
        log.accept(request("a", step).of("xr").at(begun));
        log.accept(response("a", step).of("xr").at(begun + 4_990));
    }
    log.close_all();
    let parts = log.closed();
    let parts = parts.iter().filter(|part| &*part.trace_id.0 == "a");
    assert!(parts.map(records_of).eq([vec![0], (2..13).collect()]));
}

#[test]
fn a_straggler_comes_out_as_a_fragment_and_leaves_the_current_reconcile_alone() {
    let mut log = Following::new();
    log.accept(request("a", 0).of("xr").at(0));
    log.accept(request("b", 0).of("xr").at(140_000));
    assert_eq!(log.only_closed().trace_id.to_string(), "a");
    log.accept(response("b", 0).of("xr").at(140_001));
    log.accept(response("a", 0).of("xr").at(140_002));
    assert_eq!(log.closings(), []);

    log.advance(142_002);
    let [current, straggler] = <[_; 2]>::try_from(log.closed()).unwrap();
    assert_eq!(records_of(&current), [1, 2]);
    assert_eq!(records_of(&straggler), [3]);
    assert_eq!(straggler.trace_id.to_string(), "a");
    assert_eq!(straggler.subject, xr("xr"));
    assert!(straggler.is_fragment());
}

#[test]
fn a_first_request_that_comes_again_late_leaves_the_current_reconcile_alone() {
    let first = request("a", 0).of("xr").began(0);
    let mut log = Following::new();
    log.accept(first.clone().at(1));
    log.accept(response("a", 0).of("xr").began(0).at(2));
    log.accept(request("b", 0).of("xr").began(3).at(4));
    assert_eq!(log.closings(), [closing("a", Closing::Succeeded)]);
    log.accept(response("b", 0).of("xr").began(3).at(5));
    log.accept(first.at(6));
    assert_eq!(log.closings(), []);
    // And what succeeds the current one still does.
    log.accept(request("c", 0).of("xr").began(7).at(8));
    assert_eq!(log.closings(), [closing("b", Closing::Succeeded)]);
}

#[test]
fn a_first_request_that_comes_again_does_not_make_its_reconcile_the_newest() {
    let first = request("a", 0).of("xr").began(0);
    let mut log = Following::new();
    log.accept(first.clone().at(1));
    log.accept(request("b", 0).of("xr").began(2).at(2));
    log.accept(first.at(3));
    log.accept(response("b", 0).of("xr").began(2).at(4));
    log.accept(request("c", 0).of("xr").began(5).at(5));
    assert_eq!(log.closings(), [closing("b", Closing::Succeeded)]);
}

#[test]
fn a_reconcile_that_began_with_its_response_is_succeeded_too() {
    let mut log = Following::new();
    log.accept_all([response("a", 0).of_nobody(), request("a", 0).of("xr")]);
    log.accept(request("b", 0).of("xr").at(1));
    assert_eq!(log.closings(), [closing("a", Closing::Succeeded)]);
}

#[test]
fn closing_all_closes_whatever_is_outstanding() {
    let mut log = Following::new();
    log.accept_all(pair("complete", 0, 0));
    log.accept(request("outstanding", 0).at(1));
    log.accept(response("fragment", 3).at(2));
    log.accept(request("", 0).span("").at(3));
    log.close_all();
    let closed = log.closed();
    assert_eq!(closed.len(), 4);
    let mut closings = closed.iter().map(|reconcile| reconcile.closing);
    assert!(closings.all(|closing| closing == Closing::ShuttingDown));
    assert_eq!((log.open_count(), log.assembler.next_deadline()), (0, None));

    log.close_all();
    assert_eq!(log.closings(), []);
}
