//! The work behind the answer: one thread that follows the log, puts reconciles together
//! (`following`), makes objects and lines of them (`publishing`), hears what becomes of these
//! (`settling`), makes everything last (`committing`) and sends it off (`dispatching`), again if need
//! be (`retrying`). What the store refuses is kept aside (`quarantining`) until a person wants it sent
//! again (`taking_back`), and a store on local disk is kept within its limits (`pruning`).
//!
//! Invariant: whatever is in memory here can be thrown away at any moment; the log or the outbox
//! still has it. How much that is depends neither on how much waits in the log nor on how much
//! waits for the store or the collector.

mod backlog;
mod committing;
mod dispatching;
mod following;
mod in_progress;
mod paced;
mod payloads;
mod poison;
mod pruning;
mod publishing;
mod quarantining;
mod retrying;
mod settling;
#[cfg(test)]
mod simulation;
mod taking_back;
mod waiting;

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use opentelemetry_proto::tonic::resource::v1::Resource;

use self::{
    backlog::Backlog,
    committing::{Published, Unsettled},
    dispatching::{OnTheWay, PATIENCE, SharedLine, StoredIndexes, Upload},
    pruning::PruneTurns,
    quarantining::QuarantineWatch,
    retrying::StoreCondition,
    settling::{Awaiting, Unresolved},
    waiting::Waiting,
};
pub(super) use self::{in_progress::InProgress, poison::PoisonGuard};
use crate::{
    archive::{Event, IndexJournal, Pruner, Uploads},
    assemble::Assembler,
    backoff::Backoff,
    bell::Bell,
    disk::Reserve,
    export::Sampler,
    history::History,
    metrics::Metrics,
    outbox::{ParcelId, Parcels, Quarantine, TraceBatches},
    pace::{hurry_this_thread, pace_this_thread},
    print::PrintFormat,
    receive::MessageMemory,
    record::Position,
    redact::Redactor,
    retries::Retries,
    spans::Links,
    spool::{Appender, Follower, SpoolGauge},
    time::{SharedClock, Timestamp},
};

/// Longest time without a look around.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// After a wake-up the log is left to grow for this long: nothing here is urgent, and a wake-up a
/// message would cost more than the message.
const SETTLE: Duration = Duration::from_millis(20);
/// A message is in the log this long after its arrival, or core has given up on it.
const IN_FLIGHT: Duration = Duration::from_millis(100);

/// How the thread is told to end.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// Nothing more is appended: finish what is there.
    pub(super) draining: AtomicBool,
    /// Stop where you are.
    pub(super) abandoning: AtomicBool,
}

/// What the thread works with.
#[derive(Debug)]
pub(super) struct Behind {
    pub(super) follower: Follower,
    /// For messages that were in quarantine.
    pub(super) appender: Appender,
    pub(super) memory: MessageMemory,
    pub(super) poison: PoisonGuard,
    pub(super) assembler: Assembler,
    pub(super) history: History,
    pub(super) parcels: Parcels,
    pub(super) index: IndexJournal,
    /// Space for what has to be written even if the disk is full.
    pub(super) reserve: Reserve,
    /// What may wait for the store before nothing more is published.
    pub(super) outbox_max_bytes: u64,
    /// Told what the outbox takes.
    pub(super) gauge: SpoolGauge,
    /// Where spans go, if they go anywhere.
    pub(super) tracing: Option<Tracing>,
    pub(super) uploads: Uploads,
    pub(super) events: mpsc::Receiver<Event>,
    /// Between two tries of an upload.
    pub(super) backoff: Backoff,
    /// For what the store or the collector refuses.
    pub(super) quarantine: Arc<Quarantine>,
    /// For a store on local disk.
    pub(super) pruner: Option<Pruner>,
    pub(super) redactor: Redactor,
    pub(super) print: Option<PrintFormat>,
    pub(super) metrics: Metrics,
    pub(super) clock: SharedClock,
    pub(super) bell: Arc<Bell>,
    pub(super) ending: Arc<Ending>,
}

/// How spans are made, and where they wait for the collector.
#[derive(Debug)]
pub(super) struct Tracing {
    pub(super) batches: Arc<TraceBatches>,
    /// Otherwise they wait for a start that knows the collector.
    pub(super) is_sending: bool,
    pub(super) links: Links,
    pub(super) resource: Resource,
    pub(super) sampler: Sampler,
}

impl Behind {
    /// Works until told to end.
    pub(super) fn run(self) {
        pace_this_thread();
        Desk::new(self).run();
    }
}

impl Desk {
    fn new(behind: Behind) -> Self {
        let is_there = |parcel| behind.parcels.bytes_of(parcel).is_some();
        behind.poison.keep_parcels(is_there);
        Self {
            redaction: behind.redactor.rules_id(),
            waiting: Waiting::default(),
            late: BTreeSet::new(),
            published: VecDeque::new(),
            awaiting: Vec::new(),
            unsettled: Unsettled::new(behind.clock.instant()),
            unresolved: Vec::new(),
            joined: HashSet::new(),
            sending: HashMap::new(),
            sending_index: HashSet::new(),
            stored_index: StoredIndexes::default(),
            shared_lines: Vec::new(),
            backlog: Backlog::before(behind.follower.first_own()),
            next_parcel: ParcelId::default(),
            retries: Retries::new(behind.backoff, PATIENCE),
            store: StoreCondition::default(),
            watch: QuarantineWatch::default(),
            index_closed_at: behind.clock.instant(),
            prune_turns: PruneTurns::default(),
            publish_after: None,
            last_record: None,
            behind,
        }
    }
}

/// What came of a turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Turn {
    Worked,
    /// There is nothing to do at the moment.
    Idle,
    /// There is nothing to do any more.
    Finished,
}

/// What lies on the table while working.
#[derive(Debug)]
struct Desk {
    behind: Behind,
    /// Names the rules of redaction.
    redaction: String,
    waiting: Waiting,
    /// Records of open reconciles that were in quarantine.
    late: BTreeSet<Position>,
    /// In the order in which they were published.
    published: VecDeque<Published>,
    awaiting: Vec<Awaiting>,
    unsettled: Unsettled,
    unresolved: Vec<Unresolved>,
    /// Parcels that are stored in an object with other parts, and not resolved yet.
    joined: HashSet<ParcelId>,
    /// Parcels on their way to the store.
    sending: HashMap<ParcelId, OnTheWay>,
    sending_index: HashSet<PathBuf>,
    /// Batches of the index that are in the store or refused there, and still on disk.
    stored_index: StoredIndexes,
    shared_lines: Vec<SharedLine>,
    backlog: Backlog,
    /// Parcels before this one were sent off at least once.
    next_parcel: ParcelId,
    /// Uploads that failed.
    retries: Retries<Upload>,
    store: StoreCondition,
    watch: QuarantineWatch,
    index_closed_at: Instant,
    prune_turns: PruneTurns,
    /// Publishing failed; it is not tried before.
    publish_after: Option<Instant>,
    /// Arrival of the last record followed, and when it was followed.
    last_record: Option<(Timestamp, Instant)>,
}

impl Desk {
    fn run(&mut self) {
        while !self.behind.ending.abandoning.load(Ordering::Relaxed) {
            // NOTE: looked at before following, so that what was appended before is followed.
            let draining = self.behind.ending.draining.load(Ordering::Relaxed);
            if draining {
                // No answer needs the CPU any more, and there is a deadline.
                hurry_this_thread();
                self.behind.uploads.hurry();
            }
            match self.take_turn(draining) {
                Turn::Worked => {}
                Turn::Finished => return,
                Turn::Idle => {
                    self.behind.bell.wait(self.patience());
                    if !draining {
                        std::thread::sleep(SETTLE);
                    }
                }
            }
        }
    }

    /// Does a little of everything that there is to do, without waiting for anything.
    fn take_turn(&mut self, draining: bool) -> Turn {
        let now = self.now();
        let settled = self.settle_up(draining);
        let (followed, caught_up) = self.follow();
        let published = self.publish();
        if caught_up {
            self.let_time_pass(now, draining);
        }
        self.note_backlog();
        self.show_oldest(caught_up);
        self.show_outbox();
        let is_busy = settled || followed || published;
        let pruned = !draining && self.prune_if_due(is_busy);
        if is_busy || pruned {
            return Turn::Worked;
        }
        if let Err(error) = self.behind.follower.remove_unneeded() {
            tracing::warn!(%error, "cannot remove segments that are done yet");
        }
        if draining && caught_up && self.waiting.is_empty() && self.is_settled() {
            return Turn::Finished;
        }
        Turn::Idle
    }

    fn instant(&self) -> Instant {
        self.behind.clock.instant()
    }

    fn since(&self, earlier: Instant) -> Duration {
        self.instant().saturating_duration_since(earlier)
    }

    /// How long nothing can happen without a ring.
    fn patience(&self) -> Duration {
        let deadline = self.behind.assembler.next_deadline();
        let due = deadline.map(|deadline| (deadline + IN_FLIGHT).since(self.now()));
        let due = [due, self.next_settling()].into_iter().flatten().min();
        due.unwrap_or(LONGEST_WAIT)
            .clamp(Duration::from_millis(1), LONGEST_WAIT)
    }

    /// The log's time: it goes on where the last record left it, even if the clock steps back.
    fn now(&self) -> Timestamp {
        let wall = self.behind.clock.now();
        self.last_record
            .map_or(wall, |(arrival, read)| wall.max(arrival + self.since(read)))
    }

    /// Everything that arrived before `now` has been followed, but for what is still on its way
    /// into the log.
    fn let_time_pass(&mut self, now: Timestamp, draining: bool) {
        let mut closed = Vec::new();
        if draining {
            self.behind.assembler.close_all(&mut closed);
        } else if self.last_record.is_some() {
            self.behind.assembler.advance(now - IN_FLIGHT, &mut closed);
        }
        self.enqueue(closed);
    }

    fn show_oldest(&self, caught_up: bool) {
        let closed = self.waiting.reconciles();
        let closed = closed.map(|reconcile| reconcile.first_received_at).min();
        let open = self.behind.assembler.oldest_arrival();
        let unread = self
            .last_record
            .map(|(arrival, _)| arrival)
            .filter(|_| !caught_up);
        let sealed = self.behind.parcels.oldest();
        let oldest = [closed, open, unread, sealed].into_iter().flatten().min();
        self.behind.metrics.oldest_waiting(oldest);
    }
}
