//! Spool, pipeline and outbox on a simulated disk, clock, store and collector, with a crash at any
//! disk operation.
//!
//! A seed decides what Crossplane sends, when the process gets a turn, which calls to the store, the
//! collector and the disk fail (before or after they took effect), when the clock is set, and at
//! which operation on the disk, be it a change or a read, the process dies, by a kill or by a power
//! failure. At the end all faults stop, what was refused is sent again, a last process finishes the
//! work, and the ledger of what was acknowledged is held against what the store and the collector
//! have.
//!
//! What is not real here: the loop that sends spans ([`crate::export::SpanSender`]) needs a network;
//! in its place the test takes batches out of the real outbox as that loop does. Invariant: everything
//! follows from the seed, so that what one run found the next one finds.
//!
//! `SPANPLANE_SIMULATION_SEEDS=5000 cargo test --lib simulation` runs more seeds,
//! `SPANPLANE_SIMULATION_SEED=17` that one alone. With `SPANPLANE_SIMULATION_EVERY=1` the short lives
//! end at each of their operations in turn.

mod check;
mod deadly;
mod flood;
mod full_disk;
mod full_quarantine;
mod load;
mod process;
mod store;
mod world;

use std::{
    collections::BTreeMap,
    env,
    num::NonZero,
    panic::{self, AssertUnwindSafe},
    sync::Mutex,
    thread,
};

use self::{check::check, process::Process, world::World};
use crate::disk::simulated::Death;

/// Runs of each kind in `cargo test`.
const SEEDS: u64 = 300;
/// Seeds that found something once.
const REGRESSIONS: &[u64] = &[84, 278, 684, 1527, 1585, 1795, 2040, 2150, 2874, 3852, 3999];
/// What happens in one life of a process, at most.
const EVENTS: usize = 120;
/// In a life that is ended at many of its operations, one after the other.
const FEW_EVENTS: usize = 12;
/// How many of them, unless it is to be all.
const CRASHES: u64 = 12;

/// What has to happen in a hundred runs, or they prove nothing: about half of what does.
const EXPECTED: &[(&str, u64)] = &[
    ("crash", 70),
    ("stop", 40),
    ("clock set", 9),
    ("refused", 25),
    ("message in quarantine", 5),
    ("not acknowledged", 400),
    ("disk full", 60),
    ("joined", 300),
    ("unchanged", 250),
];

/// One run: several lives of the sidecar, then the check.
fn simulate(seed: u64, deaths: &[Death]) -> World {
    let mut world = begin(seed);
    let lives = world.random.usize(1..6);
    for _ in 0..lives {
        if world.random.u8(..) < 160 {
            let after = world.random.u64(1..800);
            world.disk.crash_at(world.disk.operations() + after);
        }
        live(&mut world, EVENTS);
        let death = deaths[world.random.usize(..deaths.len())];
        world.die(death);
    }
    end(&mut world);
    world
}

/// One short life, ended at this operation; returns how many there were.
fn simulate_short(seed: u64, crash_at: Option<u64>, death: Death) -> u64 {
    let mut world = begin(seed);
    if let Some(crash_at) = crash_at {
        world.disk.crash_at(crash_at);
    }
    live(&mut world, FEW_EVENTS);
    let operations = world.disk.operations();
    world.die(death);
    end(&mut world);
    operations
}

fn begin(seed: u64) -> World {
    // Pauses between tries are random.
    fastrand::seed(seed);
    let mut world = World::new(seed);
    world.count("run");
    world.disk.count_reads();
    world
}

fn end(world: &mut World) {
    loop {
        world.heal();
        let mut process = Process::start(world).unwrap();
        process.finish(world);
        drop(process);
        // Messages get there when a process starts, and then somebody sends them again.
        if world.quarantined().is_empty() {
            break;
        }
    }
    world.count_many("disk full", world.disk.times_full());
    let checked = check(world);
    world.count_many("acknowledged", checked.payloads);
    world.count_many("joined", checked.joined);
    world.count_many("unchanged", checked.unchanged);
}

/// A process until it dies or is told to stop.
fn live(world: &mut World, events: usize) {
    let Some(mut process) = Process::start(world) else {
        return;
    };
    let events = world.random.usize(1..events);
    for _ in 0..events {
        if world.disk.is_crashed() {
            world.count("crash");
            return;
        }
        process.live_a_little(world);
    }
    if world.random.bool() {
        process.stop(world);
    }
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// What happened in all runs together; empty if only one seed was asked for.
type Events = BTreeMap<&'static str, u64>;

fn simulate_all(seeds: u64, simulate: impl Fn(u64) -> Events + Sync) -> Events {
    if let Some(seed) = number("SPANPLANE_SIMULATION_SEED") {
        simulate(seed);
        return Events::new();
    }
    let seeds = number("SPANPLANE_SIMULATION_SEEDS").unwrap_or(seeds);
    let seeds = REGRESSIONS.iter().copied().chain(0..seeds);
    let seeds = Mutex::new(seeds);
    let total = Mutex::new(Events::new());
    let next = || seeds.lock().unwrap().next();
    let work = || {
        while let Some(seed) = next() {
            let simulated = panic::catch_unwind(AssertUnwindSafe(|| simulate(seed)));
            match simulated {
                Ok(events) => {
                    let mut total = total.lock().unwrap();
                    for (event, count) in events {
                        *total.entry(event).or_default() += count;
                    }
                }
                Err(failure) => {
                    eprintln!("the simulation with SPANPLANE_SIMULATION_SEED={seed} failed");
                    panic::resume_unwind(failure);
                }
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    total.into_inner().unwrap()
}

/// Each of these happened at least as often per hundred runs.
fn assert_happened(total: &Events, expected: &[(&str, u64)]) {
    if total.is_empty() {
        return;
    }
    let runs = total["run"];
    for (event, per_hundred) in expected {
        let count = total.get(event).copied().unwrap_or_default();
        assert!(count * 100 >= per_hundred * runs, "{event}: {total:?}");
    }
}

#[test]
fn what_was_acknowledged_arrives_once_wherever_the_process_is_killed() {
    let total = simulate_all(SEEDS, |seed| simulate(seed, &[Death::Killed]).events);
    assert_happened(&total, EXPECTED);
    assert_happened(&total, &[("acknowledged", 8_000)]);
}

#[test]
fn what_was_synced_arrives_wherever_the_power_fails() {
    let total = simulate_all(SEEDS, |seed| {
        simulate(seed, &[Death::Killed, Death::PowerFailure]).events
    });
    assert_happened(&total, EXPECTED);
    assert_happened(&total, &[("acknowledged", 5_000), ("power failure", 80)]);
}

#[test]
fn everything_follows_from_the_seed() {
    let run = |seed| {
        let world = simulate(seed, &[Death::Killed, Death::PowerFailure]);
        let operations = world.disk.operations();
        (
            operations,
            world.disk.file_names(),
            world.events,
            world.spans,
        )
    };
    for seed in 0..5 {
        assert_eq!(run(seed), run(seed));
    }
}

#[test]
fn a_short_life_can_end_at_any_of_its_operations() {
    let is_every = env::var_os("SPANPLANE_SIMULATION_EVERY").is_some();
    simulate_all(20, |seed| {
        let operations = simulate_short(seed, None, Death::Killed);
        let stride = if is_every { 1 } else { operations / CRASHES };
        let first = 1 + seed % stride.max(1);
        let mut crashes = first..=operations;
        while let Some(crash_at) = crashes.next() {
            simulate_short(seed, Some(crash_at), Death::Killed);
            simulate_short(seed, Some(crash_at), Death::PowerFailure);
            if stride > 1 {
                crashes.nth(usize::try_from(stride).unwrap() - 2);
            }
        }
        Events::new()
    });
}
