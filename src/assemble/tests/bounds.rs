//! However much comes, what is held stays within the limits.

use super::*;

fn at_most(open_reconciles: usize, records_each: usize) -> Limits {
    Limits {
        open_reconciles,
        records_each,
        ..Limits::default()
    }
}

#[test]
fn a_flood_of_requests_closes_the_oldest_first() {
    let mut log = Following::with(at_most(3, 1024));
    for index in 0..10 {
        log.accept(request(&format!("t{index}"), 0).at(index));
        assert!(log.open_count() <= 3);
    }
    let closed = log.closed();
    let flooded = |reconcile: &ClosedReconcile| {
        reconcile.closing == Closing::Flooded && !reconcile.is_complete()
    };
    assert!(closed.iter().all(flooded));
    let records = closed.iter().flat_map(records_of);
    assert!(records.eq(0..7));
}

#[test]
fn the_oldest_is_the_first_in_the_log_whatever_its_clock_said() {
    for times in [[0, 0, 0, 0], [30, 20, 10, 0], [0, 20, 10, 30]] {
        let mut log = Following::with(at_most(2, 1024));
        for (trace, millis) in ["a", "b", "c", "d"].into_iter().zip(times) {
            log.accept(request(trace, 0).at(millis));
        }
        let expected = ["a", "b"].map(|trace| closing(trace, Closing::Flooded));
        assert_eq!(log.closings(), expected, "{times:?}");
    }
}

/// What a function says that always fails, or a client that makes things up.
fn long_error(index: i32) -> String {
    format!("{index} {}", "x".repeat(64 * 1024))
}

/// What is held of all open reconciles, counted anew.
fn held_bytes(log: &Following) -> usize {
    let open = log.assembler.open.iter();
    open.map(|(trace_id, open)| bytes_of(trace_id, open)).sum()
}

#[test]
fn long_errors_close_the_oldest_first() {
    let limits = Limits::default();
    let mut log = Following::with(limits);
    for index in 0..300 {
        // Without its request, which may come yet, a response ends nothing.
        let error = long_error(index);
        log.accept(response(&format!("t{index}"), 0).error(&error));
        assert!(held_bytes(&log) <= limits.bytes);
        assert_eq!(log.assembler.bytes, held_bytes(&log));
    }
    let closed = log.closed();
    assert!(closed.len() > 150, "{}", closed.len());
    assert!(closed.iter().all(|it| it.closing == Closing::Flooded));
    let records = closed.iter().flat_map(records_of);
    assert!(records.eq(0..closed.len()));
}

#[test]
fn long_names_close_the_oldest_first() {
    let limits = Limits::default();
    let mut log = Following::with(limits);
    for index in 0..1000 {
        let mut message = request(&format!("t{index}"), 0);
        message.meta.step_name = "x".repeat(16 * 1024);
        log.accept(message);
        assert!(held_bytes(&log) <= limits.bytes);
    }
    assert!(!log.closed().is_empty());
}

#[test]
fn many_records_of_many_reconciles_close_the_oldest_first() {
    let limits = Limits {
        bytes: 256 * 1024,
        ..Limits::default()
    };
    let mut log = Following::with(limits);
    for step in 0..100 {
        for trace in 0..20 {
            log.accept(request(&format!("t{trace}"), step));
            assert!(held_bytes(&log) <= limits.bytes);
            assert_eq!(log.assembler.bytes, held_bytes(&log));
        }
    }
    assert!(!log.closed().is_empty());
}

#[test]
fn an_endless_trace_of_long_errors_is_closed_part_by_part() {
    let limits = Limits::default();
    let mut log = Following::with(limits);
    for step in 0..100 {
        log.accept(response("t", step).error(&long_error(step)));
        assert!(held_bytes(&log) < limits.bytes_each);
    }
    for part in log.closed() {
        assert_eq!(part.closing, Closing::Flooded);
        // The last one may go over the limit.
        assert!(part.memory_bytes() < limits.bytes_each + 128 * 1024);
    }
}

#[test]
fn nothing_is_counted_of_reconciles_that_are_closed() {
    let mut log = Following::new();
    for index in 0..100 {
        let trace = format!("t{index}");
        log.accept_all([response(&trace, 0).error("late"), request(&trace, 0)]);
        log.accept_all([request(&trace, 1), request(&trace, 1), response(&trace, 1)]);
        assert_eq!(log.assembler.bytes, held_bytes(&log));
    }
    log.close_all();
    assert_eq!(log.assembler.bytes, 0);
}

#[test]
fn what_belongs_to_an_open_reconcile_closes_no_other() {
    let mut log = Following::with(at_most(2, 1024));
    log.accept_all([request("a", 0), request("b", 0)]);
    log.accept_all([response("b", 0), response("a", 0), request("a", 1)]);
    assert_eq!(log.closings(), []);
}

#[test]
fn a_reconcile_that_is_succeeded_makes_room_for_the_next() {
    let mut log = Following::with(at_most(2, 1024));
    log.accept(request("other", 0));
    log.accept_all([request("a", 0).of("xr"), response("a", 0).of("xr")]);
    log.accept(request("b", 0).of("xr").at(1));
    assert_eq!(log.closings(), [closing("a", Closing::Succeeded)]);
}

#[test]
fn an_endless_trace_is_closed_part_by_part() {
    let mut log = Following::with(at_most(10, 4));
    for step in 0..5 {
        log.accept(request("t", step).at(step.into()));
        log.accept(response("t", step).at(step.into()));
    }
    let closed = log.closed();
    let flooded = |reconcile: &ClosedReconcile| reconcile.closing == Closing::Flooded;
    assert!(closed.iter().all(flooded));
    let parts = closed.iter().map(records_of);
    assert!(parts.eq([[0, 1, 2, 3], [4, 5, 6, 7]]));
    assert_eq!(log.open_count(), 1);
}

#[test]
fn duplicates_count_towards_the_length_of_a_trace() {
    let mut log = Following::with(at_most(10, 3));
    log.accept_all(vec![request("t", 0); 3]);
    let reconcile = log.only_closed();
    assert_eq!(reconcile.steps.len(), 1);
    assert_eq!(reconcile.records.len(), 3);
}

#[test]
fn nothing_is_remembered_of_subjects_whose_reconciles_are_closed() {
    let mut log = Following::new();
    for index in 0..100 {
        let trace = format!("t{index}");
        let messages = match index % 4 {
            0 => vec![request(&trace, 0), response(&trace, 0)],
            1 => vec![response(&trace, 0).of_nobody(), request(&trace, 0)],
            2 => vec![request(&trace, 0).of_nobody(), response(&trace, 0)],
            _ => vec![request(&trace, 0), request(&trace, 0).of("another")],
        };
        log.accept_all(messages);
    }
    log.advance(140_000);
    assert_eq!(log.closed().len(), 100);
    assert!(log.assembler.newest_of.is_empty());
    assert!(log.assembler.deadlines.is_empty());
    assert!(log.assembler.oldest.is_empty());
    assert!(log.assembler.arrivals.is_empty());
}

/// So many pipelines whose functions all hang, and then all answer.
#[test]
fn of_many_half_open_pipelines_every_half_comes_out_once() {
    const PIPELINES: usize = 10_000;
    let mut log = Following::new();
    for half in [request, response] as [fn(&str, i32) -> Message; 2] {
        for index in 0..PIPELINES {
            log.accept(half(&format!("t{index}"), 0));
            assert!(log.open_count() <= Limits::default().open_reconciles);
        }
    }
    log.advance(140_000);
    let closed = log.closed();
    let mut records: Vec<_> = closed.iter().flat_map(records_of).collect();
    records.sort_unstable();
    assert!(records.into_iter().eq(0..2 * PIPELINES));
    assert!(log.assembler.oldest.is_empty());
}
