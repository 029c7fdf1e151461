//! The log against a list in memory: any order of appending, following, finishing and dying, inside
//! of any call to the disk.
//!
//! Invariant of the model: what was answered is handed out, in order and where it lay before, until
//! it is finished; what was finished, and the process lived on, never is again, after a kill; and
//! what was finished together comes back together, if at all.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::FutureExt as _;

use super::{AppendError, Follower, Spool, SpoolSettings};
use crate::{
    bell::Bell,
    disk::simulated::{Death, Fault, SimulatedDisk},
    metrics::Metrics,
    record::{Position, Record, RecordKind},
    time::Timestamp,
};

/// Segments of 2 KiB, emptied in pieces of 512 B.
const MAX_BYTES: u64 = 16 * 1024;
const SEEDS: u64 = 60;
const ACTIONS: usize = 60;

/// A record that was answered.
#[derive(Debug)]
struct Kept {
    number: u64,
    record: Record,
    /// Once it was handed out by any process.
    position: Option<Position>,
    is_handed_out: bool,
    /// Finished by a call during which the process died: with which others.
    maybe_finished: Option<u64>,
}

struct Log {
    spool: Spool,
    follower: Follower,
}

/// The log, and what must be in it.
struct Model {
    seed: u64,
    random: fastrand::Rng,
    disk: SimulatedDisk,
    metrics: Metrics,
    log: Option<Log>,
    kept: Vec<Kept>,
    /// Not answered, since the process died: it may be there.
    unanswered: BTreeSet<u64>,
    appended: u64,
    finishes: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let disk = SimulatedDisk::with_seed(seed);
        disk.count_reads();
        let mut model = Self {
            seed,
            random: fastrand::Rng::with_seed(seed),
            disk,
            metrics: Metrics::new().unwrap(),
            log: None,
            kept: Vec::new(),
            unanswered: BTreeSet::new(),
            appended: 0,
            finishes: 0,
        };
        model.start();
        model
    }

    fn start(&mut self) {
        let settings = SpoolSettings {
            data_dir: "data".into(),
            max_bytes: MAX_BYTES,
            sync: Duration::from_secs(1),
            syncs_itself: false,
        };
        let disk = Arc::new(self.disk.clone());
        let opened = Spool::open(&settings, disk, &self.metrics, Arc::new(Bell::default()));
        self.log = opened.ok().map(|(spool, follower)| Log { spool, follower });
        assert!(self.log.is_some() || self.disk.is_crashed());
    }

    /// What happens; the process may die at it.
    fn act(&mut self) {
        match self.random.u8(..10) {
            0..5 => self.append(),
            5..7 => self.follow(),
            7..9 => self.finish(),
            _ => self.disk.fail_next(&[Fault::Rename]),
        }
        if self.disk.is_crashed() || self.random.u8(..) < 12 {
            self.restart();
        }
    }

    fn restart(&mut self) {
        self.log = None;
        self.disk.restart(Death::Killed);
        for kept in &mut self.kept {
            kept.is_handed_out = false;
        }
        self.start();
        if self.disk.is_crashed() {
            self.restart();
        }
    }

    fn append(&mut self) {
        let number = self.appended;
        self.appended += 1;
        let mut message = vec![0; self.random.usize(8..600)];
        self.random.fill(&mut message);
        message[..8].copy_from_slice(&number.to_le_bytes());
        let record = Record {
            kind: RecordKind::Request,
            received_at: Timestamp::default(),
            message: message.into(),
        };
        let Some(log) = &self.log else { return };
        let appended = log.spool.appender().append(record.clone()).now_or_never();
        match appended.unwrap() {
            Ok(()) => self.kept.push(Kept {
                number,
                record,
                position: None,
                is_handed_out: false,
                maybe_finished: None,
            }),
            Err(AppendError::Full { .. }) => {}
            Err(_) => {
                self.unanswered.insert(number);
            }
        }
    }

    /// What is handed out is what waits, in order, and lies where it lay before.
    fn follow(&mut self) {
        let seed = self.seed;
        loop {
            let Some(log) = &mut self.log else { return };
            let Ok(next) = log.follower.next_record() else {
                // The process died.
                return;
            };
            let waiting = self.kept.iter().position(|kept| !kept.is_handed_out);
            let Some((position, record)) = next else {
                let missing = self.kept.iter().filter(|kept| !kept.is_handed_out);
                let missing: Vec<_> = missing
                    .filter(|kept| kept.maybe_finished.is_none())
                    .map(|kept| kept.number)
                    .collect();
                assert!(missing.is_empty(), "{missing:?} lost, seed {seed}");
                self.check_together();
                break;
            };
            let number = u64::from_le_bytes(*record.message.first_chunk().unwrap());
            if self.unanswered.remove(&number) {
                // It was written, and is kept from now on.
                let at = self.kept.iter().position(|kept| kept.number > number);
                let kept = Kept {
                    number,
                    record,
                    position: Some(position),
                    is_handed_out: true,
                    maybe_finished: None,
                };
                self.kept.insert(at.unwrap_or(self.kept.len()), kept);
                continue;
            }
            let at = self.kept.iter().position(|kept| kept.number == number);
            let at = at.unwrap_or_else(|| panic!("{number} was finished, seed {seed}"));
            for skipped in &self.kept[waiting.unwrap()..at] {
                let is_done = skipped.is_handed_out || skipped.maybe_finished.is_some();
                assert!(is_done, "{} is lost, seed {seed}", skipped.number);
            }
            let kept = &mut self.kept[at];
            assert!(!kept.is_handed_out, "{number} comes twice, seed {seed}");
            assert!(kept.record == record, "{number} is damaged, seed {seed}");
            assert_eq!(*kept.position.get_or_insert(position), position);
            kept.is_handed_out = true;
        }
        if let Some(log) = &mut self.log {
            // If the process dies at it the next one tries again.
            drop(log.follower.remove_unneeded());
        }
    }

    /// Of records that were finished by one call all come back, or none does.
    fn check_together(&mut self) {
        let calls: BTreeSet<_> = self
            .kept
            .iter()
            .filter_map(|it| it.maybe_finished)
            .collect();
        for call in calls {
            let of_call = |kept: &&mut Kept| kept.maybe_finished == Some(call);
            let found: BTreeSet<bool> = self
                .kept
                .iter_mut()
                .filter(of_call)
                .map(|kept| kept.is_handed_out)
                .collect();
            assert_eq!(found.len(), 1, "a part came back, seed {}", self.seed);
        }
        self.kept
            .retain(|kept| kept.maybe_finished.is_none() || kept.is_handed_out);
        for kept in &mut self.kept {
            kept.maybe_finished = None;
        }
    }

    fn finish(&mut self) {
        self.follow();
        if self.disk.is_crashed() {
            return;
        }
        let call = self.finishes;
        self.finishes += 1;
        let mut positions = Vec::new();
        for kept in &mut self.kept {
            if kept.is_handed_out && self.random.u8(..) < 140 {
                kept.maybe_finished = Some(call);
                positions.push(kept.position.unwrap());
            }
        }
        let Some(log) = &mut self.log else { return };
        // What could not be noted is noted with the next ones.
        if log.follower.finish(&positions).is_err() && !self.disk.is_crashed() {
            drop(log.follower.finish(&[]));
        }
        if !self.disk.is_crashed() {
            assert!(!log.follower.has_unlogged());
            self.kept.retain(|kept| kept.maybe_finished != Some(call));
        }
    }

    /// Once all is finished there is room again.
    fn check_end(mut self) {
        self.disk.restart(Death::Killed);
        self.restart();
        self.follow();
        let all: Vec<_> = self
            .kept
            .drain(..)
            .filter_map(|kept| kept.position)
            .collect();
        let log = self.log.as_mut().unwrap();
        log.follower.finish(&all).unwrap();
        assert!(self.kept.is_empty());
        self.restart();
        self.follow();
        let before = self.kept.len();
        self.append();
        assert_eq!(self.kept.len(), before + 1, "seed {}", self.seed);
    }
}

/// Runs a seed; returns how many calls to the disk it made.
fn run(seed: u64, crash_at: Option<u64>) -> u64 {
    let mut model = Model::new(seed);
    if let Some(crash_at) = crash_at {
        model.disk.crash_at(crash_at);
    }
    for _ in 0..ACTIONS {
        model.act();
    }
    let operations = model.disk.operations();
    model.check_end();
    operations
}

#[test]
fn what_was_answered_is_handed_out_until_it_is_finished_wherever_the_process_dies() {
    for seed in 0..SEEDS {
        let operations = run(seed, None);
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..12 {
            run(seed, Some(random.u64(1..=operations)));
        }
    }
}

#[test]
fn a_few_runs_are_killed_at_every_call_to_the_disk() {
    for seed in 0..3 {
        for crash_at in 1..=run(seed, None) {
            run(seed, Some(crash_at));
        }
    }
}
