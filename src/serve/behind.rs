//! The work behind the answer: one thread that follows the log, puts reconciles together, writes
//! their documents and hands them to the store.
//!
//! Invariant: whatever is in memory here can be thrown away at any moment; the log still has it.
//! How much that is does not depend on how much waits in the log: once enough reconciles wait for
//! the store, the log is not followed any further. Reconciles of one subject are stored one after
//! the other, so that each can tell whether it differs from the one before.

use std::{
    cell::Cell,
    collections::{HashMap, HashSet, VecDeque},
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::paced::PacedWriter;
use crate::{
    archive::{
        Body, Event, Existing, JobId, Key, ObjectWriter, PART_BYTES, Place, Remembered,
        SubjectMemory, Uploads,
    },
    assemble::{Arrival, Assembler},
    bell::Bell,
    decode::{StepMessage, decode_step},
    metrics::{Metrics, ObjectLoss},
    pace::Pacer,
    print::{PrintFormat, PrintedMessage},
    publish::{EarlierDocument, PayloadSource, write_document},
    reconcile::{ClosedReconcile, Closing, Half, PayloadHash, Subject, SubjectIdentity},
    record::{Position, Record, RecordKind},
    redact::Redactor,
    spool::Follower,
    time::{SharedClock, Timestamp},
};

/// Records followed before anything else gets a turn.
const RECORDS_A_TURN: usize = 64;
/// Closed reconciles that may wait for the store: some 2 KB each.
const WAITING_RECONCILES: usize = 1024;
/// Calls to the store under way at once.
const CALLS_AT_ONCE: usize = 8;
/// Bytes of objects on their way to the store.
const BYTES_ON_THE_WAY: usize = 16 * 1024 * 1024;
/// Longest time without a look around.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// After a wake-up the log is left to grow for this long: nothing here is urgent, and a wake-up a
/// message would cost more than the message.
const SETTLE: Duration = Duration::from_millis(20);
/// Stands in every FATAL result that a function can return.
const FATAL: &[u8] = b"SEVERITY_FATAL";

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
    pub(super) pruned: mpsc::Receiver<HashSet<Key>>,
    pub(super) redactor: Redactor,
    pub(super) print: Option<PrintFormat>,
    pub(super) metrics: Metrics,
    pub(super) clock: SharedClock,
    pub(super) bell: Arc<Bell>,
    pub(super) ending: Arc<Ending>,
}

/// A closed reconcile on its way to the store.
#[derive(Debug)]
struct Job {
    id: JobId,
    reconcile: ClosedReconcile,
    subject: SubjectIdentity,
    fingerprint: PayloadHash,
    /// What was stored of it before; `None` while that is not known.
    earlier: Option<Earlier>,
    /// Where it goes, once it is on its way.
    key: Option<Key>,
    /// What it takes in memory while it is on its way.
    bytes: usize,
    /// It is handed over in parts.
    is_streaming: bool,
}

#[derive(Debug)]
enum Earlier {
    Nothing,
    Stored(Existing),
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
            let heard = self.hear_events();
            let (followed, caught_up) = self.follow();
            let published = self.publish();
            if caught_up {
                self.let_time_pass(draining);
            }
            self.show_oldest(caught_up);
            if heard || followed || published {
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

    /// How long nothing can happen without a ring.
    fn patience(&self) -> Duration {
        let due = self
            .behind
            .assembler
            .next_deadline()
            .map(|deadline| deadline.since(self.now()));
        due.unwrap_or(LONGEST_WAIT)
            .clamp(Duration::from_millis(1), LONGEST_WAIT)
    }

    /// The log's time: it goes on where the last record left it, even if the clock steps back.
    fn now(&self) -> Timestamp {
        let wall = self.behind.clock.now();
        self.last_record
            .map_or(wall, |(arrival, read)| wall.max(arrival + read.elapsed()))
    }

    fn let_time_pass(&mut self, draining: bool) {
        let mut closed = Vec::new();
        if draining {
            self.behind.assembler.close_all(&mut closed);
        } else if self.last_record.is_some() {
            let now = self.now();
            self.behind.assembler.advance(now, &mut closed);
        }
        self.enqueue(closed);
    }

    /// Follows the log for a turn; tells whether there was something, and whether that was all.
    fn follow(&mut self) -> (bool, bool) {
        let mut closed = Vec::new();
        let mut followed = false;
        for _ in 0..RECORDS_A_TURN {
            if self.waiting.len() + closed.len() >= WAITING_RECONCILES {
                break;
            }
            let (position, record) = match self.behind.follower.next_record() {
                Ok(Some(next)) => next,
                Ok(None) => {
                    self.enqueue(closed);
                    return (followed, true);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot read the spool");
                    break;
                }
            };
            followed = true;
            self.last_record = Some((record.received_at, Instant::now()));
            let arrival = self.look_at(position, &record);
            self.behind.assembler.accept(arrival, &mut closed);
            self.pacer.breathe();
        }
        self.enqueue(closed);
        (followed, false)
    }

    /// Takes from a record what is needed to put reconciles together, and prints it if asked.
    fn look_at(&mut self, position: Position, record: &Record) -> Arrival {
        let step = decode_step(record.kind, &record.message);
        for oddity in &step.oddities {
            self.behind.metrics.message_odd(oddity.as_str());
            tracing::warn!(
                oddity = oddity.as_str(),
                "a message is odd; it is kept as it is"
            );
        }
        self.print(&step);
        let maybe_fatal = step.kind == RecordKind::Response
            && memchr::memmem::find(&step.payload, FATAL).is_some();
        let half = Half {
            position,
            hash: PayloadHash::of(&step.payload),
            size: step.payload.len(),
            received_at: record.received_at,
        };
        Arrival {
            kind: step.kind,
            meta: step.meta,
            error: step.error,
            half,
            maybe_fatal,
        }
    }

    fn print(&mut self, step: &StepMessage) {
        let Some(format) = self.behind.print else {
            return;
        };
        let redacted = self.behind.redactor.redact(&step.payload);
        let message = PrintedMessage {
            kind: step.kind,
            meta: &step.meta,
            payload: &redacted.payload,
            error: &step.error,
        };
        if let Err(error) = format.print(message, &mut io::stdout().lock()) {
            tracing::warn!(%error, "cannot print to stdout; printing ends");
            self.behind.print = None;
        }
    }

    fn enqueue(&mut self, closed: Vec<ClosedReconcile>) {
        for reconcile in closed {
            let outcome = match () {
                () if !reconcile.is_complete() => "incomplete",
                () if reconcile.has_error() => "error",
                () => "ok",
            };
            self.behind
                .metrics
                .reconcile_closed(outcome, name_of(reconcile.closing));
            tracing::debug!(trace_id = %reconcile.trace_id, outcome, "reconcile closed");
            // NOTE: what is sent in parts can't be kept from replacing what stands there.
            let must_look = reconcile.is_fragment() || reconcile.payload_bytes() > PART_BYTES;
            let earlier = if must_look {
                None
            } else {
                Some(Earlier::Nothing)
            };
            self.waiting.push_back(Job {
                id: JobId(self.next_job),
                subject: reconcile.subject.identity(),
                fingerprint: reconcile.fingerprint(),
                reconcile,
                earlier,
                key: None,
                bytes: 0,
                is_streaming: false,
            });
            self.next_job += 1;
        }
    }

    /// Takes up the first job that can be; tells whether there was one.
    fn publish(&mut self) -> bool {
        if self.under_way.len() >= CALLS_AT_ONCE || self.bytes_on_the_way >= BYTES_ON_THE_WAY {
            return false;
        }
        let ready = self
            .waiting
            .iter()
            .position(|job| !self.busy.contains(&job.subject));
        let Some(mut job) = ready.and_then(|index| self.waiting.remove(index)) else {
            return false;
        };
        if self.is_unchanged(&job) {
            self.behind.metrics.reconcile_unchanged();
            self.behind.follower.finish(&job.reconcile.records);
            return true;
        }
        if job.earlier.is_none() {
            let ClosedReconcile {
                subject, trace_id, ..
            } = &job.reconcile;
            let around = job.reconcile.started_at();
            self.behind
                .uploads
                .find(job.id, subject.clone(), trace_id.clone(), around);
        } else if let Err(error) = self.write(&mut job)
            // A stream that broke off sends an event of its own.
            && !job.is_streaming
        {
            tracing::error!(trace_id = %job.reconcile.trace_id, %error, "an object is lost");
            self.behind.metrics.object_lost(ObjectLoss::Refused);
            self.behind.follower.finish(&job.reconcile.records);
            return true;
        }
        self.bytes_on_the_way += job.bytes;
        self.busy.insert(job.subject.clone());
        self.under_way.insert(job.id, job);
        true
    }

    fn is_unchanged(&mut self, job: &Job) -> bool {
        // What belongs to nobody in particular can't be compared with what came before it.
        if job.reconcile.is_fragment() || job.reconcile.subject == Subject::default() {
            return false;
        }
        let started_at = job.reconcile.started_at();
        self.behind
            .memory
            .find_unchanged(&job.subject, job.fingerprint, started_at)
            .is_some()
    }

    /// Writes a reconcile's object and hands it to the store.
    fn write(&mut self, job: &mut Job) -> io::Result<()> {
        let Job {
            id,
            reconcile,
            fingerprint,
            earlier,
            ..
        } = &*job;
        let compression = self.behind.uploads.archive().compression();
        let own_key = Key::of_reconcile(
            &reconcile.subject,
            &reconcile.trace_id,
            reconcile.started_at(),
            compression,
        );
        let is_alone = matches!(earlier, Some(Earlier::Nothing) | None);
        let place = if is_alone {
            Place::IfFree
        } else {
            Place::Replacing
        };
        let (key, document) = match earlier {
            Some(Earlier::Stored(Existing::Document { key, document })) => {
                match EarlierDocument::parse(document) {
                    Some(document) => (key.clone(), Some(document)),
                    None => (own_key.of_part(*fingerprint), None),
                }
            }
            Some(Earlier::Stored(Existing::Unjoinable { key })) => {
                (key.of_part(*fingerprint), None)
            }
            Some(Earlier::Nothing) | None => (own_key, None),
        };

        let uploads = self.behind.uploads.clone();
        let is_streaming = Cell::new(false);
        let begin_stream = || {
            is_streaming.set(true);
            uploads.stream(*id, key.clone(), reconcile.trace_id.clone())
        };
        let mut object = ObjectWriter::new(compression, reconcile.payload_bytes(), begin_stream)?;
        let mut source = LoggedPayloads {
            follower: &mut self.behind.follower,
        };
        let written = write_document(
            reconcile,
            document.as_ref(),
            &mut source,
            &self.behind.redactor,
            &mut PacedWriter {
                out: &mut object,
                pacer: &mut self.pacer,
            },
        )
        .and_then(|report| Ok((report, object.finish()?)));
        job.is_streaming = is_streaming.get();
        job.key = Some(key.clone());
        let (report, body) = written?;

        self.behind.metrics.values_redacted(report.redacted_values);
        for _ in 0..report.not_json {
            self.behind.metrics.message_odd("not_json");
        }
        for _ in 0..report.unreadable {
            self.behind.metrics.object_lost(ObjectLoss::Unreadable);
        }
        if let Body::Whole(body) = body {
            job.bytes = body.len();
            self.behind
                .uploads
                .store(job.id, key, job.reconcile.trace_id.clone(), body, place);
        }
        Ok(())
    }

    /// Hears how calls to the store ended; tells whether any did.
    fn hear_events(&mut self) -> bool {
        while let Ok(keys) = self.behind.pruned.try_recv() {
            self.behind.memory.forget(&keys);
        }
        let mut heard = false;
        while let Ok(event) = self.behind.events.try_recv() {
            heard = true;
            self.hear(event);
        }
        heard
    }

    fn hear(&mut self, event: Event) {
        let (Event::Stored { job: id, .. }
        | Event::Refused { job: id }
        | Event::Occupied { job: id }
        | Event::BrokeOff { job: id }
        | Event::Found { job: id, .. }) = event;
        let Some(mut job) = self.under_way.remove(&id) else {
            return;
        };
        self.bytes_on_the_way -= job.bytes;
        self.busy.remove(&job.subject);
        match event {
            Event::Stored { bytes, .. } => {
                self.behind.metrics.object_stored(bytes);
                self.remember(&job);
                self.behind.follower.finish(&job.reconcile.records);
            }
            Event::Refused { .. } => {
                self.behind.metrics.object_lost(ObjectLoss::Refused);
                self.behind.follower.finish(&job.reconcile.records);
            }
            Event::Occupied { .. } => {
                // A part of it was stored before: by a process that died, or before a straggler.
                job.earlier = None;
                self.put_back(job);
            }
            Event::BrokeOff { .. } => self.put_back(job),
            Event::Found { existing, .. } => {
                job.earlier = Some(existing.map_or(Earlier::Nothing, Earlier::Stored));
                self.put_back(job);
            }
        }
    }

    /// First in line again: a subject's reconciles keep their order.
    fn put_back(&mut self, mut job: Job) {
        job.bytes = 0;
        self.waiting.push_front(job);
    }

    fn remember(&mut self, job: &Job) {
        // A part is not what the next reconcile can be compared with.
        if let Some(key) = &job.key
            && !job.reconcile.is_fragment()
        {
            let remembered = Remembered {
                fingerprint: job.fingerprint,
                key: key.clone(),
                started_at: job.reconcile.started_at(),
            };
            self.behind.memory.remember(&job.subject, remembered);
        }
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

const fn name_of(closing: Closing) -> &'static str {
    match closing {
        Closing::Idle => "idle",
        Closing::Succeeded => "succeeded",
        Closing::Ended => "ended",
        Closing::Overdue => "overdue",
        Closing::Flooded => "flooded",
        Closing::ShuttingDown => "shutting_down",
    }
}

/// Payloads, read back from the log.
struct LoggedPayloads<'l> {
    follower: &'l mut Follower,
}

impl PayloadSource for LoggedPayloads<'_> {
    fn read_payload(&mut self, kind: RecordKind, half: &Half) -> Option<Bytes> {
        match self.follower.read(half.position) {
            Ok(record) => Some(decode_step(kind, &record.message).payload),
            Err(error) => {
                tracing::error!(%error, "a payload is lost: it can't be read back from the spool");
                None
            }
        }
    }
}
