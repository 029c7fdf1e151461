//! When spans begin and end.

use super::*;

fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.as_nanos()).unwrap()
}

fn extent(span: &Span) -> (u64, u64) {
    (span.start_time_unix_nano, span.end_time_unix_nano)
}

#[test]
fn the_root_lasts_from_the_first_start_to_the_last_response() {
    let spans = spans_of(&line(vec![step(0), step(1)]), &links());
    assert_eq!(extent(&spans[0]), (nanos(at(0)), nanos(at(45))));
    assert_eq!(extent(&spans[1]), (nanos(at(0)), nanos(at(20))));
    assert_eq!(extent(&spans[2]), (nanos(at(25)), nanos(at(45))));
    let times: Vec<_> = spans[2]
        .events
        .iter()
        .map(|event| event.time_unix_nano)
        .collect();
    assert_eq!(times, [nanos(at(25)), nanos(at(45))]);
}

#[test]
fn a_step_without_a_response_ends_with_its_reconcile() {
    let mut line = line(vec![step(0), step(1)]);
    line.status = LineStatus::Incomplete;
    line.ended_at = at(140_000);
    line.steps[1].ended_at = None;
    line.steps[1].response = None;
    let spans = spans_of(&line, &links());
    assert_eq!(extent(&spans[2]), (nanos(at(25)), nanos(at(140_000))));
    assert_eq!(spans[2].says("error.type"), "no_response");
    assert_eq!(spans[2].says("crossplane.step.status"), "incomplete");
    let status = spans[2].status.as_ref().unwrap();
    assert_eq!(
        (status.code(), status.message.as_str()),
        (StatusCode::Error, "no response came")
    );
    assert_eq!(spans[0].says("error.type"), "no_response");
    assert_eq!(spans[0].says("crossplane.failed.step"), "step-1");
}

#[test]
fn a_clock_that_steps_back_leaves_a_step_of_no_length() {
    let mut line = line(vec![step(0), step(1)]);
    line.steps[1].ended_at = Some(at(10));
    line.ended_at = at(-5);
    let spans = spans_of(&line, &links());
    assert_eq!(extent(&spans[2]), (nanos(at(25)), nanos(at(25))));
    assert_eq!(spans[2].says("crossplane.clock_skew_ms"), "15");
    assert_eq!(spans[1].says("crossplane.clock_skew_ms"), "");
    assert_eq!(extent(&spans[0]), (nanos(at(0)), nanos(at(25))));
    assert!(
        spans[2]
            .events
            .iter()
            .all(|event| event.time_unix_nano == nanos(at(25)))
    );
}

#[test]
fn the_root_begins_no_later_than_any_step() {
    let mut line = line(vec![step(0), step(1)]);
    line.started_at = at(30);
    line.steps[1].started_at = at(-7);
    assert_eq!(
        extent(&spans_of(&line, &links())[0]),
        (nanos(at(-7)), nanos(at(45)))
    );
}

#[test]
fn what_is_before_1970_begins_in_1970() {
    let mut line = line(vec![step(0)]);
    line.steps[0].started_at = Timestamp::from_nanos(i64::MIN);
    line.steps[0].ended_at = Some(Timestamp::from_nanos(-1));
    line.started_at = Timestamp::from_nanos(i64::MIN);
    line.ended_at = Timestamp::from_nanos(-1);
    for span in spans_of(&line, &links()) {
        assert_eq!(extent(&span), (0, 0));
    }
}
