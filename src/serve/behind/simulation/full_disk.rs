//! The disk is full when an object has been stored and its index entry is to be written, and then
//! the process dies: the pending upload is the last durable copy of the entry.

use std::collections::BTreeSet;

use super::{check::check, process::Process, world::World};
use crate::disk::simulated::Death;

const MESSAGES: usize = 12;
/// Longer than a failed upload rests.
const LONG_MILLIS: u64 = 400_000;

/// Objects wait for the store, and nothing else is left to do: the log has let go of their records.
fn with_pending_uploads() -> (World, Process) {
    let mut world = World::new(1);
    let mut process = Process::start(&world).unwrap();
    world.store.set_failing(255);
    for _ in 0..MESSAGES {
        process.send(&mut world);
    }
    process.sync(&mut world);
    // Reconciles go quiet, responses are waited for, spans go without their uploads.
    for millis in [100, 3_000, 150_000, 3_000, 3_000] {
        process.pass(&world, millis);
        process.work(&mut world);
    }
    assert!(process.desk.published.is_empty());
    assert!(!process.desk.behind.parcels.is_empty());
    world.store.set_failing(0);
    (world, process)
}

/// Uploads succeed, and events are heard, for as long as the process lives.
fn upload(world: &World, process: &mut Process) {
    for _ in 0..10 {
        if world.disk.is_crashed() {
            return;
        }
        process.desk.take_turn(false);
        process.pass(world, LONG_MILLIS);
    }
}

/// The objects whose upload is pending, as they are on disk.
fn pending(world: &World) -> BTreeSet<String> {
    let names = world.disk.file_names().into_iter();
    names
        .filter(|name| name.starts_with("data/outbox/objects/"))
        .collect()
}

/// Dies at this operation after the disk became full; returns how many there were while it was, and
/// how many with those after.
fn die_at(crash_at: Option<u64>, death: Death) -> (u64, u64) {
    let (mut world, mut process) = with_pending_uploads();
    let waiting = pending(&world);
    let traces: BTreeSet<_> = world.ledger.iter().map(|it| it.trace_id.clone()).collect();
    assert_eq!(waiting.len(), traces.len());

    let first = world.disk.operations();
    if let Some(crash_at) = crash_at {
        world.disk.crash_at(first + crash_at);
    }
    world.disk.set_capacity(Some(0));
    upload(&world, &mut process);
    let while_full = world.disk.operations() - first;
    let is_full = world.disk.is_crashed() || crash_at.is_none();
    if is_full {
        // Not one of them was removed, nor could anything else be written.
        assert_eq!(pending(&world), waiting);
    }
    if crash_at.is_none() {
        // Those that were stored count as under way, so that the others wait for a turn.
        assert!(process.desk.unresolved.len() > 1);
    }
    world.disk.set_capacity(None);
    if crash_at.is_some() {
        upload(&world, &mut process);
    }
    let in_all = world.disk.operations() - first;

    drop(process);
    world.die(death);
    let mut process = Process::start(&world).unwrap();
    if is_full {
        let parcels = &process.desk.behind.parcels;
        for trace in &traces {
            assert!(parcels.has_left_of(trace), "{trace}");
        }
    }
    process.finish(&mut world);
    drop(process);
    let checked = check(&world);
    assert_eq!(checked.payloads, MESSAGES as u64);
    (while_full, in_all)
}

#[test]
fn a_pending_upload_outlives_a_crash_while_the_disk_takes_no_index_entry() {
    for death in [Death::Killed, Death::PowerFailure] {
        die_at(None, death);
    }
}

#[test]
fn wherever_the_process_dies_the_entry_arrives_once_the_disk_takes_it() {
    let (while_full, in_all) = die_at(Some(u64::MAX / 2), Death::Killed);
    assert!(
        0 < while_full && while_full < in_all,
        "{while_full} {in_all}"
    );
    for crash_at in 1..=in_all {
        for death in [Death::Killed, Death::PowerFailure] {
            die_at(Some(crash_at), death);
        }
    }
}
