//! Clocks that step and times that can't be.

use super::*;

const HOUR: i64 = 3_600_000;

#[test]
fn a_small_step_back_stands_still() {
    let mut log = Following::new();
    log.accept(request("t", 0).at(1_000));
    log.accept(response("t", 0).at(500));
    log.advance(2_999);
    assert_eq!(log.closings(), []);
    log.advance(3_000);
    let reconcile = log.only_closed();
    assert_eq!(reconcile.closing, Closing::Idle);
    assert_eq!(reconcile.first_received_at, at(500));
}

#[test]
fn a_step_back_closes_nothing_early() {
    let mut log = Following::new();
    log.accept(request("waits", 0).at(HOUR));
    log.accept_all([request("t", 0).at(0), response("t", 0).at(1)]);
    log.accept_all([request("t", 1).at(1_900), response("t", 1).at(1_901)]);
    log.advance(3_900);
    assert_eq!(log.closings(), []);
    log.accept(response("waits", 0).at(3_900));
    log.close_all();
    let parts = log.closed().len();
    assert_eq!(parts, 2);
}

#[test]
fn after_a_step_back_reconciles_close_on_time() {
    let mut log = Following::new();
    log.accept(request("before", 0).at(HOUR));
    log.accept_all([request("t", 0).at(0), response("t", 0).at(10)]);
    assert_eq!(log.assembler.next_deadline(), Some(at(2_010)));
    log.advance(2_009);
    assert_eq!(log.closings(), []);
    log.advance(2_010);
    assert_eq!(log.closings(), [closing("t", Closing::Idle)]);
    log.advance(140_000);
    assert_eq!(log.closings(), [closing("before", Closing::Overdue)]);
}

#[test]
fn a_clock_that_steps_back_again_and_again_is_followed() {
    let mut log = Following::new();
    for hour in (0..24).rev() {
        let trace = format!("t{hour}");
        let start = hour * HOUR;
        log.accept_all([request(&trace, 0).at(start), response(&trace, 0).at(start)]);
        log.advance(start + 1_999);
        assert_eq!(log.closings(), []);
        log.advance(start + 2_000);
        assert_eq!(log.closings(), [closing(&trace, Closing::Idle)]);
    }
}

#[test]
fn a_jump_forward_closes_what_waits_and_loses_nothing() {
    let mut log = Following::new();
    log.accept(request("t", 0).at(0));
    log.accept(response("t", 0).at(1_000 * HOUR));
    assert_eq!(log.closings(), [closing("t", Closing::Overdue)]);
    log.advance(1_000 * HOUR + 2_000);
    let straggler = log.only_closed();
    assert_eq!(records_of(&straggler), [1]);
    assert!(straggler.is_fragment());
}

#[test]
fn a_jump_forward_and_back_does_not_stop_the_clock() {
    let mut log = Following::new();
    log.accept(request("a", 0).at(0));
    log.advance(1_000 * HOUR);
    assert_eq!(log.closings(), [closing("a", Closing::Overdue)]);
    log.accept_all([request("b", 0).at(100), response("b", 0).at(101)]);
    log.advance(2_101);
    assert_eq!(log.closings(), [closing("b", Closing::Idle)]);
}

#[test]
fn a_record_that_comes_late_moves_no_time() {
    let mut log = Following::new();
    log.accept(request("waits", 0).at(HOUR));
    let late = response("late", 0).at(0).into_arrival(nth(9));
    log.assembler.accept_late(late, &mut log.closed);
    log.accept(response("waits", 0).at(HOUR + 1));
    assert_eq!(log.closings(), []);
    log.advance(HOUR + 2_000);
    let late = log.only_closed();
    assert_eq!(late.first_received_at, at(0));
    log.advance(HOUR + 2_001);
    assert_eq!(log.closings(), [closing("waits", Closing::Idle)]);
}

#[test]
fn times_at_either_end_do_not_panic() {
    let ends = [i64::MIN, i64::MAX, 0, i64::MIN, -1, i64::MAX, 1];
    let mut log = Following::new();
    for (index, nanos) in ends.into_iter().enumerate() {
        for mut message in [request(&format!("t{index}"), 0), response("t", 0)] {
            message.arrival = Timestamp::from_nanos(nanos);
            log.accept(message);
        }
        let now = Timestamp::from_nanos(nanos);
        log.assembler.advance(now, &mut log.closed);
    }
    log.close_all();
    let mut records: Vec<_> = log.closed().iter().flat_map(records_of).collect();
    records.sort_unstable();
    assert!(records.into_iter().eq(0..14));
}

#[test]
fn the_oldest_arrival_is_that_of_an_open_reconcile() {
    let mut log = Following::new();
    assert_eq!(log.assembler.oldest_arrival(), None);
    log.accept(request("a", 0).at(5));
    log.accept(request("b", 0).at(7));
    log.accept(response("a", 0).at(8));
    assert_eq!(log.assembler.oldest_arrival(), Some(at(5)));
    log.advance(2_008);
    assert_eq!(log.assembler.oldest_arrival(), Some(at(7)));
}
