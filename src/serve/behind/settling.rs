//! Settling: it becomes known what became of a reconcile's object, and its line and its spans say
//! so.
//!
//! Invariant: spans wait a while for their upload; nothing else waits for anything that is not on
//! this machine. A line is noted in the index once it is known how its upload ended.

use std::{
    io,
    time::{Duration, Instant},
};

use super::{
    Desk,
    committing::is_disk_full,
    dispatching::{StoredIndex, Upload},
};
use crate::{
    archive::Event,
    history::{LastObject, Ticket},
    line::{Line, ObjectRef, PayloadState},
    outbox::{Label, ParcelId},
};

/// How long spans wait for their upload, to say `stored` where they would say `queued`.
pub(super) const UPLOAD_PATIENCE: Duration = Duration::from_secs(2);

/// How often it is tried to write to the index.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// A reconcile whose spans wait for an upload.
#[derive(Debug)]
pub(super) struct Awaiting {
    pub(super) parcel: ParcelId,
    pub(super) waits: Waits,
    pub(super) line: Line,
    pub(super) ticket: Ticket,
    pub(super) until: Instant,
}

/// Whose upload is waited for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Waits {
    /// Its own; its line waits in the parcel.
    ForItsOwn,
    /// That of the reconcile before, which it is equal to.
    ForAnother,
}

/// It is known what became of a parcel, and could not be noted. There are no more of these than
/// uploads at once: the parcel counts as under way.
#[derive(Debug)]
pub(super) struct Unresolved {
    parcel: ParcelId,
    label: Label,
    state: PayloadState,
    since: Instant,
}

impl Desk {
    /// Appends a line to the index, unless an earlier process did.
    pub(super) fn note_in_index(&mut self, line: &mut Line) -> io::Result<()> {
        if self.behind.index.has(line) {
            return Ok(());
        }
        // NOTE: an earlier process may have noted the same reconcile differently, if it closed it
        // early because it had to stop, and died before it could note that its records are done.
        let revision = self.behind.index.next_revision(&line.trace_id);
        line.revision = line.revision.max(revision);
        let now = self.behind.clock.now();
        let mut appended = self.behind.index.append(line, now);
        if is_disk_full(&appended) && self.behind.reserve.release() {
            appended = self.behind.index.append(line, now);
        }
        match appended {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                tracing::error!(
                    key = line.object.key,
                    "a line of the index is lost: it is too long to be read back"
                );
                Ok(())
            }
            appended => appended,
        }
    }

    /// Sends off what waits, hears how it went, and commits; tells whether there was something.
    pub(super) fn settle_up(&mut self, draining: bool) -> bool {
        let heard = self.hear_events();
        self.resolve_again(draining);
        let overdue = self.give_up_waiting(draining);
        let committed = self.commit_if_due(draining);
        self.close_index(draining);
        let sent = self.send_waiting(draining);
        self.look_after_quarantine();
        heard || overdue || committed || sent
    }

    /// When something here is due.
    pub(super) fn next_settling(&self) -> Option<Duration> {
        let commit = self.next_commit();
        let patience = self.awaiting.iter().map(|awaiting| awaiting.until).min();
        let retry = self.retries.next_change(self.instant());
        let due = [commit, patience, retry].into_iter().flatten().min();
        let due = due.map(|due| due.saturating_duration_since(self.instant()));
        let index = self.behind.index.next_deadline();
        let index = index.map(|deadline| deadline.since(self.behind.clock.now()));
        [due, index].into_iter().flatten().min()
    }

    fn hear_events(&mut self) -> bool {
        let mut heard = false;
        while let Ok(event) = self.behind.events.try_recv() {
            heard = true;
            match event {
                Event::Stored {
                    parcel,
                    mut label,
                    bytes,
                    is_joined,
                } => {
                    self.note_success(&Upload::Object(parcel));
                    self.behind.metrics.object_stored(bytes);
                    if let Some(pruner) = &mut self.behind.pruner {
                        pruner.add(bytes);
                    }
                    if self.behind.parcels.is_retried(parcel) {
                        // It was noted when it went into quarantine.
                        label.line.revision = label.line.revision.saturating_add(1);
                    }
                    if is_joined {
                        self.joined.insert(parcel);
                    }
                    self.resolve(parcel, *label, PayloadState::Stored);
                }
                Event::Failed { parcel, failure } => self.parcel_failed(parcel, &failure),
                Event::IndexStored { batch } => {
                    self.note_success(&Upload::Index(batch.path.clone()));
                    self.sending_index.remove(&batch.path);
                    self.stored_index.push(StoredIndex {
                        batch: batch.clone(),
                        ticket: self.behind.history.ticket(),
                        refusal: None,
                    });
                    self.behind.metrics.index_stored();
                    if let Some(pruner) = &mut self.behind.pruner {
                        pruner.add(batch.bytes);
                    }
                }
                Event::IndexFailed { batch, failure } => self.index_failed(batch, &failure),
            }
        }
        heard
    }

    /// Tries again what could not be noted in the index.
    fn resolve_again(&mut self, draining: bool) {
        let now = self.instant();
        let is_due = |unresolved: &mut Unresolved| {
            draining || now.saturating_duration_since(unresolved.since) >= RETRY_EVERY
        };
        let due: Vec<_> = self.unresolved.extract_if(.., is_due).collect();
        for Unresolved {
            parcel,
            label,
            state,
            ..
        } in due
        {
            self.resolve(parcel, label, state);
        }
    }

    /// It is known what became of a parcel: its line and its spans can say so.
    pub(super) fn resolve(&mut self, parcel: ParcelId, mut label: Label, state: PayloadState) {
        label.line.object.state = state;
        let retries = u32::from(self.behind.parcels.is_retried(parcel));
        // What was merged with something else is not what the next reconcile is compared with.
        let is_merged = label.line.revision > retries;
        if let Err(error) = self.note_in_index(&mut label.line) {
            // NOTE: the parcel stays. It is the only durable copy of the line.
            tracing::warn!(%error, "cannot write to the index yet");
            self.unresolved.push(Unresolved {
                parcel,
                label,
                state,
                since: self.instant(),
            });
            return;
        }
        if self.joined.remove(&parcel) || retries > 0 || self.behind.parcels.has_left() {
            // Its records may be in the log still, or another parcel of it in the outbox, which
            // leads to the same line or, where the object knows nothing of a try before, to one of
            // the same revision.
            self.behind.index.remember(&label.line);
        }
        self.sending.remove(&parcel);
        self.behind.parcels.finish(parcel);
        let subject = label.subject.identity();
        let history = &mut self.behind.history;
        if state == PayloadState::Stored && !label.is_fragment && !is_merged {
            let object = LastObject {
                key: label.line.object.key.as_str().into(),
                started_at: label.line.started_at,
                stored_at: Some(self.behind.clock.now()),
                bytes: label.line.object.bytes,
            };
            history.object_stored(&subject, label.fingerprint, object);
        } else if !label.is_fragment {
            history.object_lost(&subject, label.fingerprint);
        }
        self.settle_awaiting(parcel, &label);
    }

    /// It is known, or was waited for in vain, what became of the object that this links to.
    pub(super) fn settle_again(&mut self, awaiting: Awaiting, object: &ObjectRef) {
        let mut line = awaiting.line;
        line.object = object.clone();
        if object.state == PayloadState::Stored {
            line.object.state = PayloadState::Unchanged;
        }
        // NOTE: of the records kept in the log nothing is lost; a later commit tries again.
        if let Err(error) = self.note_in_index(&mut line) {
            tracing::warn!(%error, "cannot write to the index yet");
            self.awaiting.push(Awaiting {
                line,
                until: self.instant() + UPLOAD_PATIENCE,
                ..awaiting
            });
            return;
        }
        self.settle(&line, awaiting.ticket);
    }

    /// The parcel that is waited for and goes to this key.
    pub(super) fn awaited_for(&self, key: &str) -> Option<ParcelId> {
        let mut awaiting = self.awaiting.iter();
        let awaited = awaiting.find(|awaiting| awaiting.line.object.key == key)?;
        Some(awaited.parcel)
    }

    /// Spans that waited long enough for their upload go without it.
    fn give_up_waiting(&mut self, draining: bool) -> bool {
        let now = self.instant();
        let is_over = |awaiting: &Awaiting| {
            let patience = if draining {
                UPLOAD_PATIENCE / 2
            } else {
                Duration::ZERO
            };
            awaiting.until <= now + patience
        };
        let overdue: Vec<_> = self
            .awaiting
            .extract_if(.., |awaiting| is_over(awaiting))
            .collect();
        let gave_up = !overdue.is_empty();
        for awaiting in overdue {
            match awaiting.waits {
                Waits::ForItsOwn => self.settle(&awaiting.line, awaiting.ticket),
                Waits::ForAnother => {
                    let object = awaiting.line.object.clone();
                    self.settle_again(awaiting, &object);
                }
            }
        }
        gave_up
    }
}
