//! The work behind the answer: one thread that follows the log, puts reconciles together
//! (`following`), writes their documents and hands them to the store (`publishing`).
//!
//! Invariant: whatever is in memory here can be thrown away at any moment; the log still has it.
//! How much that is does not depend on how much waits in the log: once enough reconciles wait for
//! the store, the log is not followed any further.

mod following;
mod paced;
mod publishing;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use self::publishing::Job;
use crate::{
    archive::{Event, JobId, PruneStep, Pruner, SubjectMemory, Uploads},
    assemble::Assembler,
    bell::Bell,
    metrics::Metrics,
    pace::Pacer,
    print::PrintFormat,
    reconcile::SubjectIdentity,
    redact::Redactor,
    spool::Follower,
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
    pub(super) assembler: Assembler,
    pub(super) memory: SubjectMemory,
    pub(super) uploads: Uploads,
    pub(super) events: mpsc::Receiver<Event>,
    /// For a store on local disk.
    pub(super) pruner: Option<Pruner>,
    pub(super) redactor: Redactor,
    pub(super) print: Option<PrintFormat>,
    pub(super) metrics: Metrics,
    pub(super) clock: SharedClock,
    pub(super) bell: Arc<Bell>,
    pub(super) ending: Arc<Ending>,
}

impl Behind {
    /// Works until told to end.
    pub(super) fn run(self) {
        let mut desk = Desk {
            pacer: Pacer::for_this_thread(),
            waiting: VecDeque::new(),
            under_way: HashMap::new(),
            busy: HashSet::new(),
            bytes_on_the_way: 0,
            next_job: 0,
            last_record: None,
            behind: self,
        };
        desk.run();
    }
}

/// What lies on the table while working.
#[derive(Debug)]
struct Desk {
    behind: Behind,
    pacer: Pacer,
    waiting: VecDeque<Job>,
    under_way: HashMap<JobId, Job>,
    /// Subjects of the jobs under way.
    busy: HashSet<SubjectIdentity>,
    bytes_on_the_way: usize,
    next_job: u64,
    /// Arrival of the last record followed, and when it was followed.
    last_record: Option<(Timestamp, Instant)>,
}

impl Desk {
    fn run(&mut self) {
        loop {
            if self.behind.ending.abandoning.load(Ordering::Relaxed) {
                return;
            }
            // NOTE: looked at before following, so that what was appended before is followed.
            let draining = self.behind.ending.draining.load(Ordering::Relaxed);
            if draining {
                // No answer needs the CPU any more, and there is a deadline.
                self.pacer.hurry();
            }
            let now = self.now();
            let heard = self.hear_events();
            let (followed, caught_up) = self.follow();
            let published = self.publish();
            if caught_up {
                self.let_time_pass(now, draining);
            }
            self.show_oldest(caught_up);
            if heard || followed || published {
                continue;
            }
            if !draining && self.prune() {
                continue;
            }
            self.behind.follower.remove_unneeded();
            if draining && caught_up && self.waiting.is_empty() && self.under_way.is_empty() {
                return;
            }
            self.behind.bell.wait(self.patience());
            if !draining {
                std::thread::sleep(SETTLE);
            }
        }
    }

    /// Looks after a store on local disk; tells whether there was something to do.
    fn prune(&mut self) -> bool {
        let now = self.behind.clock.now();
        let Some(pruner) = &mut self.behind.pruner else {
            return false;
        };
        match pruner.step(now, &mut self.behind.memory) {
            PruneStep::Rested => return false,
            PruneStep::Worked => {}
            PruneStep::Removed(objects) => {
                self.behind.metrics.objects_pruned(objects);
                tracing::info!(objects, "removed what was too old or too much");
            }
        }
        self.pacer.breathe();
        true
    }

    /// How long nothing can happen without a ring.
    fn patience(&self) -> Duration {
        let deadline = self.behind.assembler.next_deadline();
        let due = deadline.map(|deadline| (deadline + IN_FLIGHT).since(self.now()));
        due.unwrap_or(LONGEST_WAIT)
            .clamp(Duration::from_millis(1), LONGEST_WAIT)
    }

    /// The log's time: it goes on where the last record left it, even if the clock steps back.
    fn now(&self) -> Timestamp {
        let wall = self.behind.clock.now();
        self.last_record
            .map_or(wall, |(arrival, read)| wall.max(arrival + read.elapsed()))
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
        let jobs = self.waiting.iter().chain(self.under_way.values());
        let closed = jobs.map(|job| job.reconcile.first_received_at).min();
        let open = self.behind.assembler.oldest_arrival();
        let unread = self
            .last_record
            .map(|(arrival, _)| arrival)
            .filter(|_| !caught_up);
        let oldest = [closed, open, unread].into_iter().flatten().min();
        self.behind.metrics.oldest_waiting(oldest);
    }
}
