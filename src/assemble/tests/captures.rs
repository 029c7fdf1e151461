//! What a real Crossplane sent, put together as it came.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{LazyLock, Mutex},
};

use super::*;
use crate::{
    capture::{read_capture, step_of},
    record::Record,
};

/// A capture by its name.
macro_rules! capture {
    ($name:literal) => {
        include_bytes!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/fixtures/captures/",
            $name,
            ".jsonl.zst"
        ))
    };
}
pub(crate) use capture;

/// The messages of a capture, which is decompressed once.
pub(crate) fn messages(capture: &[u8]) -> Vec<Record> {
    static READ: LazyLock<Mutex<HashMap<Fingerprint, Vec<Record>>>> = LazyLock::new(Mutex::default);
    let mut read = READ.lock().unwrap();
    let records = read
        .entry(Fingerprint::of(capture))
        .or_insert_with(|| read_capture(capture).unwrap());
    records.clone()
}

/// As the stage that follows the log looks at a record.
fn look_at(position: Position, record: &Record) -> Arrival {
    let step = step_of(record);
    let says_fatal = memchr::memmem::find(&step.payload, b"SEVERITY_FATAL").is_some();
    Arrival {
        kind: step.kind,
        meta: step.meta,
        error: step.error,
        half: Half {
            position,
            fingerprint: Fingerprint::of(&step.payload),
            size: step.payload.len(),
            received_at: record.received_at,
        },
        maybe_fatal: step.kind == RecordKind::Response && says_fatal,
    }
}

/// The reconciles of a capture. The offset of a position is the record's place in it.
pub(crate) fn follow(capture: &[u8]) -> Vec<ClosedReconcile> {
    let records = read_capture(capture).unwrap();
    let mut assembler = Assembler::new(Limits::default());
    let mut closed = Vec::new();
    for (index, record) in records.iter().enumerate() {
        assembler.accept(look_at(nth(index), record), &mut closed);
    }
    let end = records.last().unwrap().received_at;
    assembler.advance(end + Limits::default().overdue, &mut closed);
    assert!(assembler.open.is_empty());

    let mut positions: Vec<_> = closed.iter().flat_map(records_of).collect();
    positions.sort_unstable();
    assert!(positions.into_iter().eq(0..records.len()));
    closed
}

/// The one reconcile that these records of a capture make, if nothing else comes for it.
pub(crate) fn follow_whole(capture: &[u8], places: &[usize]) -> ClosedReconcile {
    follow_some(capture, places, |assembler, closed| {
        let end = assembler.now + Limits::default().overdue;
        assembler.advance(end, closed);
    })
}

/// The same, if the program stops there.
pub(crate) fn follow_part(capture: &[u8], places: &[usize]) -> ClosedReconcile {
    follow_some(capture, places, Assembler::close_all)
}

fn follow_some(
    capture: &[u8],
    places: &[usize],
    end: impl FnOnce(&mut Assembler, &mut Vec<ClosedReconcile>),
) -> ClosedReconcile {
    let records = messages(capture);
    let mut assembler = Assembler::new(Limits::default());
    let mut closed = Vec::new();
    for place in places {
        assembler.accept(look_at(nth(*place), &records[*place]), &mut closed);
    }
    end(&mut assembler, &mut closed);
    assert_eq!(closed.len(), 1);
    closed.remove(0)
}

/// Traces, parts they came out in, steps, and steps without a response.
fn count(capture: &[u8]) -> (usize, usize, usize, usize) {
    let closed = follow(capture);
    let traces: HashSet<_> = closed.iter().map(|part| &part.trace_id).collect();
    let steps = || closed.iter().flat_map(|part| &part.steps);
    let unanswered = steps().filter(|step| step.awaits_response()).count();
    (traces.len(), closed.len(), steps().count(), unanswered)
}

#[test]
fn every_trace_comes_out_whole() {
    assert_eq!(count(capture!("network")), (48, 48, 192, 0));
    assert_eq!(count(capture!("operation")), (8, 8, 9, 0));
    for (capture, traces) in [
        (&capture!("dropper")[..], 12),
        (capture!("requirements"), 5),
        (capture!("secrets"), 5),
    ] {
        let (found, parts, _, unanswered) = count(capture);
        assert_eq!((found, parts, unanswered), (traces, traces, 0));
    }
    for capture in [&capture!("steady-start")[..], capture!("steady-idle")] {
        let (traces, parts, _, unanswered) = count(capture);
        assert_eq!((parts, unanswered), (traces, 0));
    }
}

#[test]
fn functions_that_never_answer_leave_four_steps_without_a_response() {
    assert_eq!(count(capture!("broken")), (58, 58, 130, 4));
}

#[test]
fn every_whole_reconcile_begins_at_its_beginning() {
    for capture in [
        &capture!("network")[..],
        capture!("dropper"),
        capture!("broken"),
        capture!("operation"),
        capture!("requirements"),
        capture!("secrets"),
    ] {
        for reconcile in follow(capture) {
            assert!(!reconcile.is_fragment(), "{reconcile:?}");
            let indices = reconcile.steps.iter().map(|step| step.index);
            assert!(indices.eq((0..).take(reconcile.steps.len())));
        }
    }
}

#[test]
fn an_idle_subjects_reconciles_have_the_fingerprint_of_the_one_before() {
    let mut last: BTreeMap<SubjectIdentity, Fingerprint> = BTreeMap::new();
    let mut compared = 0;
    for reconcile in follow(capture!("steady-idle")) {
        let fingerprint = reconcile.fingerprint();
        if let Some(before) = last.insert(reconcile.subject.identity(), fingerprint) {
            assert_eq!(fingerprint, before, "{}", reconcile.trace_id);
            compared += 1;
        }
    }
    assert!(compared > last.len());
}

#[test]
fn letting_time_pass_every_millisecond_changes_nothing() {
    let records = read_capture(capture!("broken")).unwrap();
    let mut assembler = Assembler::new(Limits::default());
    let mut closed = Vec::new();
    let mut now = records[0].received_at;
    for (index, record) in records.iter().enumerate() {
        while now < record.received_at {
            assembler.advance(now, &mut closed);
            now = now + Duration::from_millis(1);
        }
        assembler.accept(look_at(nth(index), record), &mut closed);
    }
    assembler.advance(now + Limits::default().overdue, &mut closed);
    assert_eq!(closed, follow(capture!("broken")));
}
