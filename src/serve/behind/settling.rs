//! Settling: it becomes known what became of a reconcile's object, and its line and its spans say
//! so.
//!
//! Invariant: spans wait a while for their upload; nothing else waits for anything that is not on
//! this machine. A line is noted in the index once it is known how its upload ended.

use std::{
    io,
    time::{Duration, Instant},
};

use super::Desk;
use crate::{
    archive::Event,
    history::{LastObject, Ticket},
    line::{Line, ObjectRef, PayloadState},
    metrics::ObjectLoss,
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
    pub(super) fn note_in_index(&mut self, line: &Line) -> io::Result<()> {
        if self.behind.index.has(line) {
            return Ok(());
        }
        match self.behind.index.append(line, self.behind.clock.now()) {
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
        let sent = self.send_parcels();
        self.close_index(draining);
        let sent_index = self.send_index();
        self.remove_stored_index();
        heard || overdue || committed || sent || sent_index
    }

    /// When something here is due.
    pub(super) fn next_settling(&self) -> Option<Duration> {
        let commit = self.next_commit();
        let patience = self.awaiting.iter().map(|awaiting| awaiting.until).min();
        let due = [commit, patience].into_iter().flatten().min();
        let due = due.map(|due| due.saturating_duration_since(Instant::now()));
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
                    label,
                    bytes,
                } => {
                    self.behind.metrics.object_stored(bytes);
                    if let Some(pruner) = &mut self.behind.pruner {
                        pruner.add(bytes);
                    }
                    self.resolve(parcel, *label, PayloadState::Stored);
                }
                Event::Lost { parcel } => {
                    self.behind.metrics.object_lost(ObjectLoss::Refused);
                    if let Ok(reader) = self.behind.parcels.read(parcel) {
                        self.resolve(parcel, reader.label, PayloadState::Dropped);
                    } else {
                        // Not even its label can be read.
                        self.sending.remove(&parcel);
                        self.behind.parcels.finish(parcel);
                    }
                }
                Event::IndexDone { batch, stored } => {
                    self.sending_index.remove(&batch.path);
                    self.stored_index.push((Instant::now(), batch.clone()));
                    if stored {
                        self.behind.metrics.index_stored();
                        if let Some(pruner) = &mut self.behind.pruner {
                            pruner.add(batch.bytes);
                        }
                    } else {
                        self.behind.metrics.object_lost(ObjectLoss::Refused);
                    }
                }
            }
        }
        heard
    }

    /// Tries again what could not be noted in the index.
    fn resolve_again(&mut self, draining: bool) {
        let is_due =
            |unresolved: &mut Unresolved| draining || unresolved.since.elapsed() >= RETRY_EVERY;
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
    fn resolve(&mut self, parcel: ParcelId, mut label: Label, state: PayloadState) {
        label.line.object.state = state;
        if let Err(error) = self.note_in_index(&label.line) {
            tracing::warn!(%error, "cannot write to the index yet");
            if error.kind() == io::ErrorKind::StorageFull {
                // It is where it belongs, and the room that it takes is what the line needs.
                self.behind.parcels.finish(parcel);
                self.behind.parcels.remove_finished();
            }
            self.unresolved.push(Unresolved {
                parcel,
                label,
                state,
                since: Instant::now(),
            });
            return;
        }
        if self.behind.parcels.is_left(parcel) {
            // Its records may be in the log still.
            self.behind.index.remember(&label.line);
        }
        self.sending.remove(&parcel);
        self.behind.parcels.finish(parcel);
        let subject = label.subject.identity();
        let history = &mut self.behind.history;
        if state == PayloadState::Stored && !label.is_fragment {
            let object = LastObject {
                key: label.line.object.key.as_str().into(),
                started_at: label.line.started_at,
                stored_at: Some(self.behind.clock.now()),
                bytes: label.line.object.bytes,
            };
            history.object_stored(&subject, label.fingerprint, object);
        } else if state == PayloadState::Dropped {
            history.object_lost(&subject, label.fingerprint);
        }
        let is_resolved = |awaiting: &mut Awaiting| awaiting.parcel == parcel;
        let resolved: Vec<_> = self.awaiting.extract_if(.., is_resolved).collect();
        for awaiting in resolved {
            match awaiting.waits {
                Waits::ForItsOwn => self.settle(&label.line, awaiting.ticket),
                Waits::ForAnother => self.settle_again(awaiting, &label.line.object),
            }
        }
    }

    /// It is known, or was waited for in vain, what became of the object that this links to.
    fn settle_again(&mut self, awaiting: Awaiting, object: &ObjectRef) {
        let mut line = awaiting.line;
        line.object = object.clone();
        if object.state == PayloadState::Stored {
            line.object.state = PayloadState::Unchanged;
        }
        // NOTE: of the records kept in the log nothing is lost; a later commit tries again.
        if let Err(error) = self.note_in_index(&line) {
            tracing::warn!(%error, "cannot write to the index yet");
            self.awaiting.push(Awaiting {
                line,
                until: Instant::now() + UPLOAD_PATIENCE,
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
        let now = Instant::now();
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
