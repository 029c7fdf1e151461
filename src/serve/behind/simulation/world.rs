//! What outlives a process: the disk, the store, the collector, the time, and the ledger.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path as FilePath,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    load::{Load, Sent},
    store::SimulatedStore,
};
use crate::{
    disk::{
        Disk as _,
        simulated::{Death, SimulatedDisk},
    },
    outbox::{Quarantinable, Quarantine, Quarantined},
    reconcile::PayloadHash,
    record::{Position, RecordKind, SegmentId},
    serve::behind::in_progress::accuse,
    time::{Clock, Timestamp},
};

/// Segments of 32 KiB.
pub(super) const SPOOL_BYTES: u64 = 256 * 1024;
/// Where the clock stands at first, in seconds after the earliest time that it can be set to.
pub(super) const MOST_BEHIND: u64 = 600;

/// In one of so many worlds, messages are thought to kill processes.
const WORLDS: u64 = 8;
const ACCUSING: u64 = 5;

const QUARANTINE: &str = "data/quarantine";

/// A payload that was acknowledged.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Acknowledged {
    pub(super) trace_id: String,
    pub(super) span_id: String,
    pub(super) is_response: bool,
    pub(super) sha256: String,
}

impl Acknowledged {
    pub(super) fn new(sent: &Sent) -> Self {
        Self {
            trace_id: sent.trace_id.clone(),
            span_id: sent.span_id.clone(),
            is_response: sent.kind == RecordKind::Response,
            sha256: PayloadHash::of(&sent.payload).to_string(),
        }
    }
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) random: fastrand::Rng,
    pub(super) disk: SimulatedDisk,
    pub(super) spool_bytes: u64,
    pub(super) store: Arc<SimulatedStore>,
    pub(super) clock: Arc<SimulatedClock>,
    pub(super) load: Load,
    /// What has to arrive.
    pub(super) ledger: BTreeSet<Acknowledged>,
    /// Acknowledged since the spool was last synced: a power failure may take it.
    pub(super) unsynced: Vec<Acknowledged>,
    /// The collector is away.
    pub(super) is_collector_away: bool,
    /// Spans that reached the collector, by trace and span id in hex.
    pub(super) spans: BTreeSet<(String, String)>,
    /// Keys that the store refused for a while.
    pub(super) refused: BTreeSet<String>,
    /// What happened, for messages of failing tests.
    pub(super) events: BTreeMap<&'static str, u64>,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let disk = SimulatedDisk::with_seed(seed);
        Self {
            seed,
            random: fastrand::Rng::with_seed(seed ^ 0x5eed),
            store: Arc::new(SimulatedStore::new(disk.clone(), seed)),
            clock: Arc::new(SimulatedClock::new()),
            load: Load::new(seed),
            spool_bytes: SPOOL_BYTES,
            disk,
            ledger: BTreeSet::new(),
            unsynced: Vec::new(),
            is_collector_away: false,
            spans: BTreeSet::new(),
            refused: BTreeSet::new(),
            events: BTreeMap::new(),
        }
    }

    pub(super) fn count(&mut self, event: &'static str) {
        self.count_many(event, 1);
    }

    pub(super) fn count_many(&mut self, event: &'static str, times: u64) {
        *self.events.entry(event).or_default() += times;
    }

    pub(super) fn has_lost_power(&self) -> bool {
        self.events.contains_key("power failure")
    }

    pub(super) fn advance(&self, time: Duration) {
        self.clock.advance(time);
        self.disk.set_time(self.clock.now());
    }

    pub(super) fn acknowledge(&mut self, payload: Acknowledged) {
        self.unsynced.push(payload.clone());
        self.ledger.insert(payload);
    }

    /// The process is gone.
    pub(super) fn die(&mut self, death: Death) {
        self.disk.restart(death);
        if death == Death::PowerFailure {
            self.count("power failure");
            for lost in self.unsynced.drain(..) {
                self.ledger.remove(&lost);
            }
        }
        if self.seed % WORLDS == ACCUSING {
            self.accuse();
        }
    }

    /// As far as the next process can tell, two have died at the first record of some segment.
    fn accuse(&mut self) {
        let folder = FilePath::new("data/spool");
        let entries = self.disk.list(folder).unwrap_or_default();
        let names = entries
            .iter()
            .filter_map(|entry| entry.name.strip_suffix(".seg"));
        let segments: Vec<u64> = names.filter_map(|name| name.parse().ok()).collect();
        // NOTE: not the world's: what happens in it does not depend on this.
        let mut random = fastrand::Rng::with_seed(self.seed ^ self.disk.operations());
        if let Some(segment) = random.choice(&segments) {
            let first = Position {
                segment: SegmentId(*segment),
                offset: 8,
            };
            let disk = Arc::new(self.disk.clone());
            accuse(disk, folder.join("in-progress"), first, 1);
        }
    }

    pub(super) fn quarantined(&self) -> Vec<Quarantined> {
        Quarantine::list(&self.disk, FilePath::new(QUARANTINE)).unwrap()
    }

    /// No more faults; a person has sent again what was refused.
    pub(super) fn heal(&mut self) {
        self.disk.set_capacity(None);
        self.disk.set_failing_reads(0);
        self.disk.fail_next(&[]);
        self.store.set_failing(0);
        self.store.set_refusing(0);
        self.is_collector_away = false;
        for file in &self.quarantined() {
            if file.what == Quarantinable::Message {
                self.count("message in quarantine");
            } else {
                self.count("refused");
                let note = file.note(&self.disk);
                self.refused.extend(note.map(|note| note.what));
            }
            Quarantine::retry(&self.disk, file).unwrap();
        }
    }
}

/// Time that passes when a test says so, and a clock that may be set.
#[derive(Debug)]
pub(super) struct SimulatedClock {
    began: Instant,
    passed: Mutex<Duration>,
    /// By how much it is ahead, in seconds.
    ahead: AtomicU64,
}

impl SimulatedClock {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            passed: Mutex::default(),
            ahead: AtomicU64::new(MOST_BEHIND),
        }
    }

    /// Sets it to so much after its earliest time.
    pub(super) fn set(&self, seconds: u64) {
        self.ahead.store(seconds, Ordering::Relaxed);
    }

    fn advance(&self, time: Duration) {
        *self.passed.lock().unwrap() += time;
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        let began = Timestamp::from_parts(1_794_803_806, 0).unwrap();
        let ahead = Duration::from_secs(self.ahead.load(Ordering::Relaxed));
        began + ahead + *self.passed.lock().unwrap()
    }

    fn instant(&self) -> Instant {
        self.began + *self.passed.lock().unwrap()
    }
}
