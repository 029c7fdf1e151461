//! A part at which the process dies whenever it is joined with what is stored of its reconcile.

use std::sync::Arc;

use super::{
    check::check,
    load::Sent,
    process::Process,
    world::{Acknowledged, World},
};
use crate::{
    disk::simulated::Death,
    outbox::Quarantinable,
    record::Record,
    serve::behind::{InProgress, Turn},
    time::Clock as _,
};

/// More than a life takes until its first join is over.
const OPERATIONS: u64 = 200;
const TURNS: usize = 50;

/// The messages of a reconcile with several steps.
fn reconcile(world: &mut World) -> Vec<Sent> {
    let now = world.clock.now();
    let sent: Vec<_> = (0..40).map(|_| world.load.next(now)).collect();
    let of = |trace_id: &str| -> Vec<Sent> {
        let of_trace = sent.iter().filter(|sent| sent.trace_id == trace_id);
        of_trace.cloned().collect()
    };
    let reconciles = sent.iter().map(|sent| of(&sent.trace_id));
    reconciles.max_by_key(Vec::len).unwrap()
}

fn receive(world: &mut World, process: &Process, messages: &[Sent]) {
    for sent in messages {
        process.append(Record {
            received_at: world.clock.now(),
            ..sent.record.clone()
        });
        world.acknowledge(Acknowledged::new(sent));
    }
}

/// The beginning of a reconcile is stored, and the rest waits in the outbox.
fn waiting_part() -> World {
    let mut world = World::new(1);
    let messages = reconcile(&mut world);
    let (first, rest) = messages.split_at(messages.len() / 2);
    let mut process = Process::start(&world).unwrap();
    receive(&mut world, &process, first);
    process.finish(&mut world);
    drop(process);
    let mut process = Process::start(&world).unwrap();
    world.store.set_failing(255);
    receive(&mut world, &process, rest);
    for _ in 0..TURNS {
        process.desk.take_turn(true);
        process.pass(&world, 20);
    }
    drop(process);
    world.store.set_failing(0);
    assert_eq!(waiting(&world), 1, "{:?}", world.disk.file_names());
    world
}

fn waiting(world: &World) -> usize {
    let names = world.disk.file_names();
    let in_outbox = |name: &&String| name.starts_with("data/outbox/objects/");
    names.iter().filter(in_outbox).count()
}

/// A process that lives for so many operations on the disk.
fn live(world: &mut World, operations: u64) {
    world.disk.crash_at(world.disk.operations() + operations);
    if let Some(mut process) = Process::start(world) {
        for _ in 0..TURNS {
            if process.desk.take_turn(false) == Turn::Finished || world.disk.is_crashed() {
                break;
            }
            // What the log still holds of the part is published again before it is sent.
            process.pass(world, 5_000);
        }
    }
    world.disk.restart(Death::Killed);
}

/// How often processes died at a part, as the next one finds it.
fn deaths(world: &World) -> Vec<u32> {
    let disk = Arc::new(world.disk.clone());
    let (note, _) = InProgress::open(disk, "data/spool/in-progress".into());
    note.deaths_at_parcels()
}

fn after(lives: &[u64]) -> World {
    let mut world = waiting_part();
    for operations in lives {
        live(&mut world, *operations);
    }
    world
}

#[test]
fn a_part_at_which_the_process_died_twice_is_quarantined_and_the_next_one_goes_on() {
    let mut lives = Vec::new();
    for death in 1..=2 {
        let dies_joining = |operations: &u64| {
            let lives: Vec<_> = lives.iter().copied().chain([*operations]).collect();
            deaths(&after(&lives)) == [death]
        };
        let operations = (1..OPERATIONS).find(dies_joining);
        lives.push(operations.expect("the part is joined"));
    }
    let mut world = after(&lives);
    assert_eq!(waiting(&world), 1);
    let mut process = Process::start(&world).unwrap();
    process.finish(&mut world);
    drop(process);
    let quarantined = world.quarantined();
    let [part] = &quarantined[..] else {
        panic!("{quarantined:?}")
    };
    assert_eq!((part.what, waiting(&world)), (Quarantinable::Object, 0));
    let note = part.note(&world.disk).unwrap();
    assert!(note.reason.contains("died 2 times"), "{}", note.reason);
    assert!(deaths(&world).is_empty());
    // Once a person has it sent again, it is joined.
    world.heal();
    let mut process = Process::start(&world).unwrap();
    process.finish(&mut world);
    drop(process);
    assert!(world.quarantined().is_empty());
    assert_eq!(check(&world).joined, 1);
}
