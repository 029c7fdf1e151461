//! Publishing: what is new about a reconcile is written as one object and handed to the store.
//!
//! Invariant: a record is done with only once its reconcile's object is in the store, or is equal
//! to one that is, or can never be there. Reconciles of one subject are stored one after the
//! other, so that each can tell whether it differs from the one before.

use std::{cell::Cell, io};

use bytes::Bytes;

use super::{Desk, paced::PacedWriter};
use crate::{
    archive::{
        Body, Compression, Event, Existing, JobId, Key, ObjectWriter, PART_BYTES, Place,
        Remembered, Tries,
    },
    decode::decode_step,
    metrics::ObjectLoss,
    publish::{DocumentReport, EarlierDocument, PayloadSource, write_document},
    reconcile::{ClosedReconcile, Closing, Half, PayloadHash, Subject, SubjectIdentity},
    record::RecordKind,
    spool::{Follower, ReadError},
};

/// Calls to the store under way at once.
const CALLS_AT_ONCE: usize = 8;
/// How often an object is written anew before what can't be read of it is given up.
const WRITE_TRIES: u32 = 10;
/// Bytes of objects on their way to the store.
const BYTES_ON_THE_WAY: usize = 16 * 1024 * 1024;

/// A closed reconcile on its way to the store.
#[derive(Debug)]
pub(super) struct Job {
    id: JobId,
    pub(super) reconcile: ClosedReconcile,
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
    /// How often it was handed over in vain.
    tries: Tries,
    /// How often it could not be written.
    failed_writes: u32,
    /// A payload of it is lost.
    is_damaged: bool,
}

#[derive(Debug)]
enum Earlier {
    Nothing,
    Stored(Existing),
    /// The store does not let us look.
    Unknown,
}

impl Desk {
    /// Puts closed reconciles in line.
    pub(super) fn enqueue(&mut self, closed: Vec<ClosedReconcile>) {
        for reconcile in closed {
            let outcome = match () {
                () if !reconcile.is_complete() => "incomplete",
                () if reconcile.has_error() => "error",
                () if reconcile.maybe_fatal => "fatal",
                () => "ok",
            };
            self.behind
                .metrics
                .reconcile_closed(outcome, name_of(reconcile.closing));
            tracing::debug!(trace_id = %reconcile.trace_id, outcome, "reconcile closed");
            // NOTE: what is sent in parts can't be kept from replacing what stands there.
            let is_large = reconcile.payload_bytes() > PART_BYTES;
            let can_create = self.behind.uploads.archive().can_create();
            let must_look = reconcile.is_fragment() || is_large || !can_create;
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
                tries: self.behind.uploads.first_try(),
                failed_writes: 0,
                is_damaged: false,
            });
            self.next_job += 1;
        }
    }

    /// Takes up the first job that can be; tells whether there was one.
    pub(super) fn publish(&mut self) -> bool {
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
        } else if let Err(error) = self.write(&mut job) {
            // A broken pipe is the store's doing, not the disk's.
            job.failed_writes += u32::from(error.kind() != io::ErrorKind::BrokenPipe);
            // A stream that broke off sends an event of its own.
            if !job.is_streaming {
                tracing::warn!(trace_id = %job.reconcile.trace_id, %error, "cannot write an object yet");
                self.put_back(job);
                // Not at once: whatever is wrong takes a while to pass.
                return false;
            }
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
            tries,
            failed_writes,
            ..
        } = &*job;
        let own_key = Key::of_reconcile(
            &reconcile.subject,
            &reconcile.trace_id,
            reconcile.started_at(),
            self.behind.uploads.archive().compression(),
        );
        let (key, document, place) = match earlier {
            Some(Earlier::Stored(Existing::Document { key, document })) => {
                let document = EarlierDocument::parse(document);
                let is_joinable = document.is_some();
                let key = if is_joinable {
                    key.clone()
                } else {
                    key.of_part(*fingerprint)
                };
                (key, document, Place::Replacing)
            }
            Some(Earlier::Stored(Existing::Unjoinable { key })) => {
                (key.of_part(*fingerprint), None, Place::Replacing)
            }
            Some(Earlier::Unknown) => (own_key.of_part(*fingerprint), None, Place::Replacing),
            Some(Earlier::Nothing) | None => (own_key, None, Place::IfFree),
        };
        let compression = Compression::of_key(key.as_str());

        let uploads = self.behind.uploads.clone();
        let is_streaming = Cell::new(false);
        let begin_stream = || {
            is_streaming.set(true);
            uploads.stream(*id, key.clone(), reconcile.trace_id.clone(), *tries)
        };
        let mut object = ObjectWriter::new(compression, reconcile.payload_bytes(), begin_stream)?;
        let mut source = LoggedPayloads {
            follower: &mut self.behind.follower,
            may_try_again: *failed_writes < WRITE_TRIES,
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
        job.is_damaged = report.unreadable > 0;

        self.count(report);
        job.bytes = 2 * PART_BYTES;
        if let Body::Whole(body) = body {
            job.bytes = body.len();
            self.behind
                .uploads
                .store(job.id, key, job.reconcile.trace_id.clone(), body, place);
        }
        Ok(())
    }

    fn count(&self, report: DocumentReport) {
        let metrics = &self.behind.metrics;
        metrics.values_redacted(report.redacted_values);
        for _ in 0..report.not_json {
            metrics.message_odd("not_json");
        }
        for _ in 0..report.unreadable {
            metrics.object_lost(ObjectLoss::Unreadable);
        }
    }

    /// Hears how calls to the store ended; tells whether any did.
    pub(super) fn hear_events(&mut self) -> bool {
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
        | Event::CouldNotLook { job: id }
        | Event::Found { job: id, .. }) = event;
        let Some(mut job) = self.under_way.remove(&id) else {
            return;
        };
        self.bytes_on_the_way = self.bytes_on_the_way.saturating_sub(job.bytes);
        self.busy.remove(&job.subject);
        match event {
            Event::Stored { bytes, .. } => {
                self.behind.metrics.object_stored(bytes);
                if let Some(pruner) = &mut self.behind.pruner {
                    pruner.add(bytes);
                }
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
            Event::BrokeOff { .. } => {
                job.tries.count += 1;
                self.put_back(job);
            }
            Event::CouldNotLook { .. } => {
                job.earlier = Some(Earlier::Unknown);
                self.put_back(job);
            }
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
        // Neither a part nor what lost a payload is what the next can be compared with.
        if let Some(key) = &job.key
            && !job.reconcile.is_fragment()
            && !job.is_damaged
        {
            let remembered = Remembered {
                fingerprint: job.fingerprint,
                key: key.clone(),
                started_at: job.reconcile.started_at(),
                stored_at: self.behind.clock.now(),
            };
            self.behind.memory.remember(&job.subject, remembered);
        }
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
    /// What the disk fails to read now it may read later.
    may_try_again: bool,
}

impl PayloadSource for LoggedPayloads<'_> {
    fn read_payload(&mut self, kind: RecordKind, half: &Half) -> io::Result<Option<Bytes>> {
        match self.follower.read(half.position) {
            Ok(record) => Ok(Some(decode_step(kind, &record.message).payload)),
            Err(ReadError::Read { source, .. }) if self.may_try_again => Err(source),
            Err(error) => {
                tracing::error!(%error, "a payload is lost: it can't be read back from the spool");
                Ok(None)
            }
        }
    }
}
