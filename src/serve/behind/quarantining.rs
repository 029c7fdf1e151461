//! Quarantining: what the store will not have is moved out of the way. It comes back on command
//! (`taking_back`).
//!
//! Invariant: the index entry of an object is durable before the object moves, and says `queued`: the
//! object is not in the store, and not lost. When it is stored after all, or lost, an entry of the
//! next revision says so. A message at which the process died twice is skipped only once it is here; an
//! object is moved here before it would be joined again.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::{Duration, Instant},
};

use super::{
    Desk,
    committing::is_disk_full,
    dispatching::{Refusal, StoredIndex},
    settling::{Awaiting, Waits},
};
use crate::{
    archive::UploadError,
    line::{Line, PayloadState},
    metrics::{ObjectLoss, SpanLoss},
    outbox::{Label, MessageName, Note, ParcelId, Quarantinable, Quarantined, TraceBatches},
    record::{Position, Record},
    spool::Appended,
};

/// How often it is looked for what a person did to the quarantine.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// And whether something was removed from it by hand.
const COUNT_EVERY: Duration = Duration::from_secs(10);

/// What is known of the quarantine.
#[derive(Debug, Default)]
pub(super) struct QuarantineWatch {
    looked_at: Option<Instant>,
    counted_at: Option<Instant>,
    /// Files that somebody wants to be sent again and that could not be taken when it was last
    /// tried.
    pub(super) untakeable: BTreeSet<u64>,
    /// Messages that are in the log again, and still here.
    pub(super) appended: BTreeMap<u64, Appended>,
    /// The log says that what does not fit can't be given up.
    told_of_excess: bool,
}

impl Desk {
    pub(super) fn note(&self, what: &str, failure: &UploadError) -> Note {
        let reason = match failure.detail() {
            detail if detail.is_empty() => failure.to_string(),
            detail => format!("{failure}: {detail}"),
        };
        Note {
            what: what.to_owned(),
            reason,
            since: self.behind.clock.now(),
        }
    }

    /// Its index entry and its spans say `queued`: it is not in the store, and not lost. One that is
    /// damaged is, unless its messages are in the log still and it is made again.
    pub(super) fn quarantine_parcel(
        &mut self,
        parcel: ParcelId,
        mut label: Label,
        failure: &UploadError,
    ) -> io::Result<()> {
        label.line.object.state = match failure {
            UploadError::Damaged(_) => PayloadState::Dropped,
            _ => PayloadState::Queued,
        };
        let is_noted = self.behind.parcels.is_retried(parcel);
        if !is_noted {
            // NOTE: before it is noted. What is noted is not sealed again.
            self.behind.parcels.sync_one(parcel)?;
            // NOTE: before the parcel moves. What is in quarantine is not noted again.
            self.note_for_good(&mut label.line)?;
        }
        let note = self.note(&label.line.object.key, failure);
        let quarantine = &self.behind.quarantine;
        self.behind.parcels.set_aside(parcel, |path| {
            quarantine.take(Quarantinable::Object, path, &note)
        })?;
        // The number may be that of another one after a restart.
        let parcels = &self.behind.parcels;
        let is_there = |parcel| parcels.bytes_of(parcel).is_some();
        self.behind.poison.keep_parcels(is_there);
        self.announce(Quarantinable::Object, &note);
        if !matches!(failure, UploadError::Store(_)) {
            // It may never be stored: the next one that is the same is.
            let subject = label.subject.identity();
            self.behind.history.object_lost(&subject, label.fingerprint);
        }
        self.settle_awaiting(parcel, &label);
        self.note_added();
        Ok(())
    }

    /// Sets a record aside at which the process died twice.
    pub(super) fn quarantine_record(&mut self, position: Position, record: &Record) {
        let kept = self.keep_record(position, record);
        self.behind.poison.hold(position, kept.is_ok());
        if let Err(error) = kept {
            tracing::warn!(
                segment = position.segment.0,
                offset = position.offset,
                %error,
                "cannot quarantine a message yet at which the process died; it is skipped"
            );
            return;
        }
        if let Err(error) = self.behind.follower.finish(&[position]) {
            tracing::warn!(%error, "cannot note yet that a quarantined message is done");
        }
        self.release_poison(position);
    }

    fn keep_record(&mut self, position: Position, record: &Record) -> io::Result<()> {
        let Position { segment, offset } = position;
        let name = MessageName {
            position,
            kind: record.kind,
            received_at: record.received_at,
        };
        let quarantine = &self.behind.quarantine;
        // A process that died before it could note that the record is done.
        if quarantine.has_message(&name) {
            return Ok(());
        }
        let name = name.to_string();
        let (kind, deaths) = (record.kind.as_str(), self.behind.poison.deaths_at(position));
        let note = Note {
            what: format!("{kind} at offset {offset} of segment {}", segment.0),
            reason: format!("the process died {deaths} times while processing it"),
            since: self.behind.clock.now(),
        };
        let what = Quarantinable::Message;
        let mut kept = quarantine.put(what, &name, &record.message, &note);
        if is_disk_full(&kept) && self.behind.reserve.release() {
            kept = quarantine.put(what, &name, &record.message, &note);
        }
        kept?;
        self.behind.metrics.record_quarantined();
        self.behind.metrics.quarantined(what.kind());
        tracing::error!(
            segment = segment.0,
            offset,
            deaths,
            "the process died each time it processed this message; it is quarantined and skipped"
        );
        self.note_added();
        Ok(())
    }

    /// Tries again what could not be quarantined, or noted as done.
    fn look_after_poison(&mut self) {
        for (position, is_kept) in self.behind.poison.held() {
            if is_kept {
                self.release_poison(position);
                continue;
            }
            match self.behind.follower.read(position) {
                Ok(record) => self.quarantine_record(position, &record),
                Err(error) => {
                    tracing::warn!(%error, "cannot read a message that has to be quarantined");
                }
            }
        }
    }

    /// Forgets a record once it would not come back.
    fn release_poison(&mut self, position: Position) {
        if !self.behind.follower.is_unlogged(position) {
            self.behind.poison.release(position);
        }
    }

    fn announce(&self, what: Quarantinable, note: &Note) {
        self.behind.metrics.quarantined(what.kind());
        tracing::warn!(
            key = note.what,
            reason = note.reason,
            "an upload can't be stored; it is kept in the quarantine (spanplane quarantine ls)"
        );
    }

    /// Moves a refused batch of the index to the quarantine.
    pub(super) fn quarantine_index(&mut self, refused: StoredIndex, refusal: &Refusal) {
        let quarantine = &self.behind.quarantine;
        let note = &refusal.note;
        if !refusal.is_certain && !quarantine.has_room_for(&refused.batch.path) {
            // NOTE: forgotten here, it is sent again.
            return;
        }
        let moved = self.behind.index.set_aside(&refused.batch, |path| {
            quarantine.take(Quarantinable::Index, path, note)
        });
        match moved {
            Ok(()) => {
                self.announce(Quarantinable::Index, note);
                self.note_added();
            }
            Err(error) => {
                tracing::warn!(%error, "cannot move a refused batch to the quarantine yet");
                self.stored_index.push(refused);
            }
        }
    }

    /// Keeps the quarantine within its limit, and takes back what is to be sent again.
    pub(super) fn look_after_quarantine(&mut self) {
        let now = self.instant();
        let is_due = |last: Option<Instant>, every| {
            last.is_none_or(|last| now.saturating_duration_since(last) >= every)
        };
        if is_due(self.watch.looked_at, LOOK_EVERY) {
            self.watch.looked_at = Some(now);
            self.look_after_poison();
            self.take_back_retried();
            self.give_up_excess();
        }
        if !self.behind.quarantine.is_empty() && is_due(self.watch.counted_at, COUNT_EVERY) {
            self.count_quarantined();
        }
        let quarantine = &self.behind.quarantine;
        self.behind.metrics.quarantine_holds(quarantine.bytes());
    }

    /// Sees what somebody removed, or wants to be sent again.
    fn count_quarantined(&mut self) {
        self.watch.counted_at = Some(self.instant());
        if let Err(error) = self.behind.quarantine.look_again() {
            tracing::warn!(%error, "cannot look into the quarantine");
        }
    }

    /// Something was added. If that is too much, what is to be sent again leaves first, and then the
    /// oldest is given up, before this turn or the next is over.
    fn note_added(&mut self) {
        if self.behind.quarantine.is_full() {
            self.watch.looked_at = None;
        }
    }

    fn give_up_excess(&mut self) {
        if !self.behind.quarantine.is_full() {
            return;
        }
        // What somebody wants to be sent again by now stays.
        self.count_quarantined();
        while let Some(file) = self.behind.quarantine.excess(&self.watch.untakeable) {
            let what = self.behind.quarantine.note(&file).map(|note| note.what);
            match file.what {
                Quarantinable::Object => {
                    if let Err(error) = self.note_lost(&file) {
                        // NOTE: it stays for as long: the index would say forever that it comes.
                        if !std::mem::replace(&mut self.watch.told_of_excess, true) {
                            tracing::warn!(
                                id = file.id, %error,
                                "the quarantine is full, and it can't be noted in the index what \
                                 is given up; it stays until it can"
                            );
                        }
                        return;
                    }
                    self.watch.told_of_excess = false;
                    self.behind.metrics.object_lost(ObjectLoss::Refused);
                }
                Quarantinable::Index | Quarantinable::Message => {
                    self.behind.metrics.object_lost(ObjectLoss::Refused);
                }
                Quarantinable::Spans => {
                    let spans = TraceBatches::spans_of(&file.name);
                    self.behind.metrics.spans_lost(SpanLoss::Refused, spans);
                }
            }
            self.behind.quarantine.give_up(&file);
            tracing::error!(
                id = file.id,
                kind = file.what.kind(),
                what,
                bytes = file.bytes,
                "data is lost: the quarantine is full, and this was the oldest in it"
            );
        }
    }

    /// An object will never be in the store: the index and the next reconcile have to know.
    /// Returns once the index does for certain.
    fn note_lost(&mut self, file: &Quarantined) -> io::Result<()> {
        let Some(mut label) = self.behind.quarantine.label(file) else {
            return Ok(());
        };
        let history = &mut self.behind.history;
        history.object_lost(&label.subject.identity(), label.fingerprint);
        label.line.object.state = PayloadState::Dropped;
        label.line.revision = label.line.revision.saturating_add(1);
        // NOTE: before the object goes.
        self.note_for_good(&mut label.line)
    }

    /// Notes a line so that a crash does not lose it. What fails on the way may be done again, and so
    /// may the reconcile, whose records may be in the log still.
    fn note_for_good(&mut self, line: &mut Line) -> io::Result<()> {
        self.note_in_index(line)?;
        self.behind.index.remember(line);
        self.behind.index.sync()
    }

    /// Whoever waited for this upload waits no more.
    pub(super) fn settle_awaiting(&mut self, parcel: ParcelId, label: &Label) {
        let is_resolved = |awaiting: &mut Awaiting| awaiting.parcel == parcel;
        let resolved: Vec<_> = self.awaiting.extract_if(.., is_resolved).collect();
        for awaiting in resolved {
            match awaiting.waits {
                Waits::ForItsOwn => {
                    self.settle_joined(&awaiting.line, &label.line, awaiting.ticket);
                }
                Waits::ForAnother => self.settle_again(awaiting, &label.line.object),
            }
        }
    }
}
