//! Publishing: a closed reconcile becomes its line and, if it is new, a parcel for the store.
//!
//! Invariant: what was published once gives the same line and the same bytes when it is published
//! again after a crash. A reconcile that is the same again is neither parsed nor stored.

use std::{io, sync::Arc, time::Duration};

use super::{
    Desk,
    committing::Published,
    paced::PacedWriter,
    payloads::LoggedPayloads,
    settling::{Awaiting, UPLOAD_PATIENCE, Waits},
};
use crate::{
    archive::{Key, ObjectWriter, is_stored_elsewhere},
    fingerprint::Fingerprint,
    history::{Last, LastObject, Ticket},
    line::{FlappingField, Line, ObjectRef, PayloadState},
    metrics::ObjectLoss,
    outbox::{Label, ParcelId},
    publish::{Before, Context, DocumentReport, coverage_of, line_again, line_of, write_document},
    reconcile::{ClosedReconcile, Closing, Subject, SubjectIdentity},
    summarise::{FieldHistory, Summariser, Summary},
};

/// After something could not be published.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Reconciles whose spans may wait for an upload: some 10 KB each.
const MAX_AWAITING: usize = 256;
/// What their lines may take in memory: some are a hundred times as large.
const MAX_AWAITING_BYTES: usize = 8 * 1024 * 1024;
/// Reconciles whose records may wait behind one of these: some 200 bytes each.
const MAX_PUBLISHED: usize = 4096;

/// A closed reconcile in line.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) reconcile: ClosedReconcile,
    subject: SubjectIdentity,
    fingerprint: Fingerprint,
    /// A part of it was in quarantine, and others may have been published since.
    is_late: bool,
}

impl Job {
    /// What belongs to nobody in particular, or is not all there, can't be compared.
    fn is_comparable(&self) -> bool {
        !self.is_out_of_turn() && self.reconcile.subject != Subject::default()
    }

    /// Those that began later may be published already.
    fn is_out_of_turn(&self) -> bool {
        self.is_late || self.reconcile.is_fragment()
    }

    fn trace_id(&self) -> &str {
        &self.reconcile.trace_id.0
    }
}

/// What came of reading a reconcile's payloads.
struct Reading {
    summary: Summary,
    report: DocumentReport,
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
            let was_open = self.late.len();
            if was_open > 0 {
                for record in &reconcile.records {
                    self.late.remove(record);
                }
            }
            self.waiting.push(Job {
                subject: reconcile.subject.identity(),
                fingerprint: reconcile.fingerprint(),
                reconcile,
                is_late: self.late.len() < was_open,
            });
        }
    }

    /// Publishes the first in line; tells whether there was one.
    pub(super) fn publish(&mut self) -> bool {
        let awaiting_bytes: usize = self.awaiting.iter().map(|it| it.line_bytes).sum();
        let is_full = self.awaiting.len() >= MAX_AWAITING
            || awaiting_bytes >= MAX_AWAITING_BYTES
            || self.published.len() >= MAX_PUBLISHED;
        if is_full || self.is_outbox_full() || self.is_commit_overdue() {
            return false;
        }
        if self
            .publish_after
            .is_some_and(|after| self.instant() < after)
        {
            return false;
        }
        let Some(job) = self.waiting.take() else {
            return false;
        };
        let mut records = job.reconcile.records.iter();
        if records.any(|record| self.behind.poison.is_suspect(*record)) {
            self.commit_now();
        }
        let ticket = self.behind.history.begin();
        self.published.push_back(Published {
            ticket,
            records: job.reconcile.records.clone(),
            is_settled: false,
        });
        self.behind.poison.blame(&job.reconcile.records);
        let published = self.publish_one(&job, ticket);
        self.behind.poison.end();
        match published {
            Ok(()) => true,
            Err(error) => {
                self.published.pop_back();
                tracing::warn!(trace_id = job.trace_id(), %error, "cannot publish a reconcile yet");
                // First in line again: a subject's reconciles keep their order.
                self.waiting.put_back(job);
                // Not at once: whatever is wrong takes a while to pass.
                self.publish_after = Some(self.instant() + RETRY_AFTER);
                false
            }
        }
    }

    fn publish_one(&mut self, job: &Job, ticket: Ticket) -> io::Result<()> {
        if job.is_comparable()
            && let Some(last) = self.behind.history.last(&job.subject).cloned()
        {
            let known = self.behind.history.line(&job.subject);
            let is_same = last.fingerprint == job.fingerprint;
            // Done again after a crash.
            if let Some(line) = &known
                && is_same
                && *last.trace_id == *line.trace_id
                && line.trace_id == job.trace_id()
            {
                let parcel = self.behind.parcels.find(job.trace_id(), job.fingerprint);
                let mut line = line.clone();
                let noted = self.behind.index.find(&line.trace_id, 0, line.coverage());
                line.object.state = match (&last.object, noted) {
                    (Some(object), _) if object.stored_at.is_some() => PayloadState::Stored,
                    (_, Some(noted)) => noted.state,
                    (_, None) => PayloadState::Queued,
                };
                self.settle_or_await(parcel, line, ticket);
                return Ok(());
            }
            let started_at = job.reconcile.started_at();
            if let Some(object) = last.object_for(job.fingerprint, started_at).cloned()
                && !self.has_other_part(job)
            {
                return self.publish_again(job, ticket, &last, &object, known);
            }
        }
        self.publish_new(job, ticket)
    }

    /// The same as the one before: nothing is stored, and nothing parsed unless it is forgotten
    /// what the one before said.
    fn publish_again(
        &mut self,
        job: &Job,
        ticket: Ticket,
        last: &Last,
        object: &LastObject,
        known: Option<Line>,
    ) -> io::Result<()> {
        let object = ObjectRef {
            key: object.key.to_string(),
            state: match object.stored_at {
                Some(_) => PayloadState::Unchanged,
                None => PayloadState::Queued,
            },
            bytes: object.bytes,
            redaction: Some(self.redaction.clone()),
        };
        let mut context = Context {
            previous_trace_id: last.before(job.trace_id()).map(|id| id.to_string()),
            ..Context::default()
        };
        let mut found_out = None;
        let mut line = if let Some(known) = known {
            context.parent_trace_id = self.parent_trace(known.subject.facts.parent_uid.as_deref());
            context.before = Some(Before::new(&known, last.ended_at));
            line_again(known, &job.reconcile, object, context)
        } else {
            let (reading, _) = self.read_payloads(job, io::sink())?;
            context.parent_trace_id =
                self.parent_trace(reading.summary.subject.parent_uid.as_deref());
            let payloads = reading.report.steps;
            let line = line_of(&job.reconcile, reading.summary, payloads, object, context);
            found_out = Some(line.clone());
            line
        };
        let (trace_id, ended_at) = (Arc::clone(&job.reconcile.trace_id.0), line.ended_at);
        if let Some(parcel) = self.awaited_for(&line.object.key) {
            self.wait_for(parcel, line, ticket, Waits::ForAnother);
        } else {
            self.note_in_index(&mut line)?;
            self.settle(&line, ticket);
        }
        self.behind.metrics.reconcile_unchanged();
        let history = &mut self.behind.history;
        if let Some(line) = found_out {
            let fields = history.fields(&job.subject).to_vec();
            history.note(&job.subject, last.clone(), &line, fields);
        }
        history.note_again(&job.subject, trace_id, ended_at);
        Ok(())
    }

    /// Writes the object of a reconcile that differs from the one before.
    fn publish_new(&mut self, job: &Job, ticket: Ticket) -> io::Result<()> {
        // Sealed by a process that died before it could note that.
        if let Some(parcel) = self.behind.parcels.find(job.trace_id(), job.fingerprint) {
            let label = self.behind.parcels.read(parcel)?.label;
            // For what the next one is compared with.
            let (reading, _) = self.read_payloads(job, io::sink())?;
            let (fields, ..) = self.advance_fields(job, &reading.summary);
            let is_whole = reading.report.unreadable == 0;
            self.note_last(job, &label.line, fields, is_whole);
            self.settle_or_await(Some(parcel), label.line, ticket);
            return Ok(());
        }
        if self.publish_noted(job, ticket)? {
            return Ok(());
        }
        let compression = self.behind.uploads.archive().compression();
        let ClosedReconcile {
            subject, trace_id, ..
        } = &job.reconcile;
        let started_at = job.reconcile.started_at();
        let key = Key::of_reconcile(subject, trace_id, started_at, compression);

        let parcel = self.behind.parcels.begin()?;
        let object = ObjectWriter::new(compression, job.reconcile.payload_bytes(), parcel)?;
        let (reading, object) = self.read_payloads(job, object)?;
        let parcel = object.finish()?;
        let Reading { summary, report } = reading;
        self.count(&report);
        let is_damaged = report.unreadable > 0;

        let object = ObjectRef {
            key: key.to_string(),
            state: PayloadState::Queued,
            bytes: parcel.body_bytes(),
            redaction: Some(self.redaction.clone()),
        };
        let (context, fields) = self.context_of(job, &summary);
        let mut line = line_of(&job.reconcile, summary, report.steps, object, context);
        let beginning = self.unstored_beginning(job).map(Box::new);
        if let Some(beginning) = &beginning {
            line.revision = beginning.revision.saturating_add(1);
        }
        let coverage = coverage_of(&job.reconcile);
        let index = &self.behind.index;
        if index.find(job.trace_id(), 0, coverage).is_some() {
            // An earlier object of it was lost.
            line.revision = line.revision.max(index.next_revision(job.trace_id()));
        }
        let label = Label {
            subject: job.reconcile.subject.clone(),
            is_fragment: job.reconcile.is_fragment(),
            fingerprint: job.fingerprint,
            line,
            beginning,
        };
        let parcel = self
            .behind
            .parcels
            .seal(parcel, &label, self.behind.clock.now())?;
        self.note_last(job, &label.line, fields, !is_damaged);
        self.settle_or_await(Some(parcel), label.line, ticket);
        Ok(())
    }

    /// The line of the beginning of a reconcile, if that has no object of its own since the
    /// previous reconcile was the same.
    fn unstored_beginning(&self, job: &Job) -> Option<Line> {
        if !job.reconcile.is_fragment() {
            return None;
        }
        let mut awaiting = self.awaiting.iter().map(|awaiting| &awaiting.line);
        let awaited = awaiting
            .find(|line| line.trace_id == job.trace_id())
            .cloned();
        let noted = || self.behind.index.line_of(job.trace_id());
        awaited.or_else(noted).filter(is_stored_elsewhere)
    }

    /// Whether an earlier process published less of this reconcile, because it had to stop: then
    /// it has an object of its own.
    fn has_other_part(&self, job: &Job) -> bool {
        let coverage = coverage_of(&job.reconcile);
        let index = &self.behind.index;
        let is_noted = index.next_revision(job.trace_id()) > 0
            && index.find(job.trace_id(), 0, coverage).is_none();
        is_noted || self.behind.parcels.has_left_of(job.trace_id())
    }

    /// Settles a reconcile that an earlier process stored and noted in the index, without noting
    /// that its records are done; tells whether it is one.
    fn publish_noted(&mut self, job: &Job, ticket: Ticket) -> io::Result<bool> {
        let reconcile = &job.reconcile;
        let coverage = coverage_of(reconcile);
        let noted = self.behind.index.find(job.trace_id(), 0, coverage);
        // What can't be read back, perhaps since the power failed, is made again.
        let noted = noted.filter(|object| object.state != PayloadState::Dropped);
        let Some(object) = noted.cloned() else {
            return Ok(false);
        };
        // For the spans, and for what the next one is compared with.
        let (Reading { summary, report }, _) = self.read_payloads(job, io::sink())?;
        let (context, fields) = self.context_of(job, &summary);
        let line = line_of(reconcile, summary, report.steps, object, context);
        self.note_last(job, &line, fields, report.unreadable == 0);
        if line.object.state == PayloadState::Stored && job.is_comparable() {
            let stored = LastObject {
                key: line.object.key.as_str().into(),
                started_at: line.started_at,
                stored_at: Some(self.behind.clock.now()),
                bytes: line.object.bytes,
            };
            let history = &mut self.behind.history;
            history.object_stored(&job.subject, job.fingerprint, stored);
        }
        self.settle(&line, ticket);
        Ok(true)
    }

    /// What lies around a reconcile, and what to compare the fields of the next one with.
    fn context_of(&mut self, job: &Job, summary: &Summary) -> (Context, Vec<u8>) {
        let mut last = self.behind.history.last(&job.subject).cloned();
        if job.is_out_of_turn() {
            // A part of another reconcile may come after those that began later.
            last = last.filter(|last| *last.trace_id == *job.trace_id());
            if let Some(last) = &last {
                // What was published before was not all of it: nothing is equal to that.
                let history = &mut self.behind.history;
                history.object_lost(&job.subject, last.fingerprint);
            }
        }
        let before = self.behind.history.line(&job.subject);
        let (fields, flapping, flapping_count) = self.advance_fields(job, summary);
        let context = Context {
            previous_trace_id: last
                .as_ref()
                .and_then(|last| last.before(job.trace_id()))
                .map(|id| id.to_string()),
            parent_trace_id: self.parent_trace(summary.subject.parent_uid.as_deref()),
            changed: last
                .as_ref()
                .is_none_or(|last| last.fingerprint != job.fingerprint),
            before: before
                .zip(last)
                .map(|(line, last)| Before::new(&line, last.ended_at)),
            flapping,
            flapping_count,
        };
        (context, fields)
    }

    /// Reads the payloads, writes the document to `out`, and sums up.
    fn read_payloads<W: io::Write>(&mut self, job: &Job, mut out: W) -> io::Result<(Reading, W)> {
        let mut summariser = Summariser::new();
        let mut source = LoggedPayloads {
            follower: &mut self.behind.follower,
            memory: &self.behind.memory,
            withheld: None,
            poison: &mut self.behind.poison,
        };
        let report = write_document(
            &job.reconcile,
            &mut source,
            &self.behind.redactor,
            &mut |step, kind, json| summariser.read(step, kind, json),
            &mut PacedWriter(&mut out),
        )?;
        let summary = summariser.finish(&job.reconcile);
        // Not done before it is noted what became of the reconcile.
        self.behind.poison.blame(&job.reconcile.records);
        Ok((Reading { summary, report }, out))
    }

    /// What flaps, if the pipeline ran to its end, and what to compare the next one with.
    fn advance_fields(
        &mut self,
        job: &Job,
        summary: &Summary,
    ) -> (Vec<u8>, Vec<FlappingField>, u64) {
        let known = self.behind.history.fields(&job.subject);
        // What can't be read is as good as unknown.
        let mut fields = FieldHistory::from_bytes(known).unwrap_or_default();
        if !job.is_comparable() || summary.status.is_failure() {
            return (known.to_vec(), Vec::new(), 0);
        }
        let (flapping, count) = fields.advance(&summary.fields);
        (fields.to_bytes(), flapping, count)
    }

    fn note_last(&mut self, job: &Job, line: &Line, fields: Vec<u8>, is_whole: bool) {
        if !job.is_comparable() {
            return;
        }
        let history = &mut self.behind.history;
        let previous = history
            .last(&job.subject)
            .and_then(|last| last.before(job.trace_id()));
        let last = Last {
            trace_id: Arc::clone(&job.reconcile.trace_id.0),
            previous,
            ended_at: line.ended_at,
            fingerprint: job.fingerprint,
            // What lost a payload, or was redacted by other rules, is not what the next can be linked to.
            object: (is_whole && line.object.redaction.as_ref() == Some(&self.redaction)).then(
                || LastObject {
                    key: line.object.key.as_str().into(),
                    started_at: line.started_at,
                    stored_at: None,
                    bytes: line.object.bytes,
                },
            ),
        };
        history.note(&job.subject, last, line, fields);
    }

    /// The last reconcile of the XR that composed this one.
    fn parent_trace(&mut self, parent_uid: Option<&str>) -> Option<String> {
        let parent = SubjectIdentity(parent_uid?.into());
        let last = self.behind.history.last(&parent)?;
        Some(last.trace_id.to_string())
    }

    /// Lets the spans wait a while for the upload, so that they can say how it ended.
    fn settle_or_await(&mut self, parcel: Option<ParcelId>, line: Line, ticket: Ticket) {
        match parcel {
            Some(parcel) => self.wait_for(parcel, line, ticket, Waits::ForItsOwn),
            // It is known already how that ended.
            None => self.settle(&line, ticket),
        }
    }

    fn wait_for(&mut self, parcel: ParcelId, line: Line, ticket: Ticket, waits: Waits) {
        // There is no point in waiting for a store that is away.
        let patience = if self.retries.is_away() {
            Duration::ZERO
        } else {
            UPLOAD_PATIENCE
        };
        self.awaiting.push(Awaiting {
            parcel,
            waits,
            line_bytes: line.memory_bytes(),
            line,
            ticket,
            until: self.instant() + patience,
        });
    }

    fn count(&self, report: &DocumentReport) {
        let metrics = &self.behind.metrics;
        metrics.values_redacted(report.redacted_values);
        for _ in 0..report.not_json {
            metrics.message_odd("not_json");
        }
        for _ in 0..report.unreadable {
            metrics.object_lost(ObjectLoss::Unreadable);
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
