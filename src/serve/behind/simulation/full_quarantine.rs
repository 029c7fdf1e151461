//! A quarantine that is full while something in it is to be sent again.

use std::{path::Path, sync::Arc};

use super::{
    process::Process,
    world::{SPOOL_BYTES, World},
};
use crate::{
    outbox::{Note, Quarantinable, Quarantine},
    record::{Position, SegmentId},
    time::Timestamp,
};

/// As large as the whole quarantine may be.
const ALL: u64 = SPOOL_BYTES;
const SPANS: &str = "00000000000000000001-3.otlp.zst";

fn note(what: &str) -> Note {
    Note {
        what: what.to_owned(),
        reason: "refused".to_owned(),
        since: Timestamp::default(),
    }
}

/// A process whose quarantine is full of one file, which a person wants to be sent again.
fn full_of(what: Quarantinable, name: &str) -> (World, Process) {
    let world = World::new(1);
    let folder = Path::new("data/quarantine");
    let quarantine = Quarantine::open(Arc::new(world.disk.clone()), folder.to_owned(), ALL);
    let content = vec![7; usize::try_from(ALL).unwrap()];
    let put = quarantine.unwrap().put(what, name, &content, &note("old"));
    put.unwrap();
    Quarantine::retry(&world.disk, &world.quarantined()[0]).unwrap();
    let process = Process::start(&world).unwrap();
    (world, process)
}

/// Something is refused; returns what the quarantine holds once that was looked after.
fn refuse(world: &World, process: &mut Process) -> Vec<String> {
    let quarantine = Arc::clone(&process.desk.behind.quarantine);
    let put = quarantine.put(Quarantinable::Object, "9.parcel", b"refused", &note("new"));
    put.unwrap();
    process.pass(world, 2_000);
    process.desk.take_turn(false);
    let held = world.quarantined().into_iter();
    held.map(|file| file.name).collect()
}

#[test]
fn a_damaged_file_that_is_to_be_sent_again_makes_room_for_what_is_refused() {
    let (world, mut process) = full_of(Quarantinable::Object, "1.parcel");
    process.desk.take_turn(false);
    assert_eq!(world.quarantined().len(), 1, "it stays while there is room");
    assert_eq!(refuse(&world, &mut process), ["9.parcel"]);
    let metrics = process.desk.behind.metrics.text().unwrap();
    let lost = "spanplane_objects_dropped_total{reason=\"refused\"} 1";
    assert!(metrics.contains(lost), "{metrics}");
}

#[test]
fn without_tracing_spans_that_are_to_be_sent_again_make_room_for_what_is_refused() {
    let (world, mut process) = full_of(Quarantinable::Spans, SPANS);
    process.desk.behind.tracing = None;
    process.desk.take_turn(false);
    assert_eq!(world.quarantined().len(), 1, "it stays while there is room");
    assert_eq!(refuse(&world, &mut process), ["9.parcel"]);
}

#[test]
fn what_can_be_sent_again_leaves_before_anything_is_given_up() {
    let (mut world, mut process) = full_of(Quarantinable::Spans, SPANS);
    // Before anybody looks for what is to be sent again.
    let sent = world.load.next(Timestamp::default());
    let position = Position {
        segment: SegmentId(1),
        offset: 8,
    };
    process.desk.quarantine_record(position, &sent.record);
    process.desk.take_turn(false);
    let held = world.quarantined();
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].what, Quarantinable::Message);
    let tracing = process.desk.behind.tracing.as_ref().unwrap();
    assert!(!tracing.batches.is_empty());
}
