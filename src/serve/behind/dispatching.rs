//! Dispatching: what waits in the outbox for the store is sent off, so many at a time.
//!
//! Invariant: what is on its way is bounded in number and in bytes. What failed before takes no more
//! than half of either, so that what was never tried always gets its turn.

use std::{
    collections::{BTreeMap, btree_map},
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::Desk;
use crate::{
    archive::{IndexKey, MAX_UPLOAD_MEMORY, ReadyBatch, Shipment},
    disk::disk_use,
    history::Ticket,
    outbox::{Note, ParcelId},
};

/// Uploads under way at once.
const UPLOADS_AT_ONCE: usize = 8;
/// Bytes of parcels on their way to the store, in memory.
const BYTES_ON_THE_WAY: u64 = 16 * 1024 * 1024;
/// While stopping, between two batches of the index.
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// Batches of the index under way at once.
const INDEX_UPLOADS_AT_ONCE: usize = 2;

/// As many different uploads that fail in a row mean that the store is away.
pub(super) const PATIENCE: u32 = 8;

/// Something that is sent to the store.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Upload {
    Object(ParcelId),
    Index(PathBuf),
}

/// Memory that parcels on their way take.
#[derive(Clone, Copy, Debug)]
pub(super) struct OnTheWay {
    bytes: u64,
    /// It failed before.
    is_retry: bool,
}

/// A line of the index that another parcel, which an earlier process left, leads to as well. After a
/// crash that parcel has to find the line in its batch.
#[derive(Debug)]
pub(super) struct SharedLine {
    pub(super) trace_id: String,
    pub(super) batch: IndexKey,
}

/// A batch of the index that is in the store, or to be moved to the quarantine.
#[derive(Debug)]
pub(super) struct StoredIndex {
    pub(super) batch: ReadyBatch,
    /// Of the last reconcile that was published before the batch was stored: none of its lines is
    /// of a later one.
    pub(super) ticket: Ticket,
    /// The store refuses it.
    pub(super) refusal: Option<Refusal>,
}

/// Why something is to be moved to the quarantine.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) note: Note,
    /// The answer can't be about anything else, so that others may have to make room.
    pub(super) is_certain: bool,
}

/// All of these, by their paths.
#[derive(Debug, Default)]
pub(super) struct StoredIndexes {
    batches: BTreeMap<PathBuf, StoredIndex>,
    bytes: u64,
}

impl StoredIndexes {
    pub(super) fn push(&mut self, stored: StoredIndex) {
        self.bytes += disk_use(stored.batch.bytes);
        let before = self.batches.insert(stored.batch.path.clone(), stored);
        self.bytes -= before.map_or(0, |before| disk_use(before.batch.bytes));
    }

    /// What of all that the index takes on disk still waits for the store.
    fn unstored_of(&self, index_bytes: u64) -> u64 {
        index_bytes.saturating_sub(self.bytes)
    }

    fn contains(&self, batch: &ReadyBatch) -> bool {
        self.batches.contains_key(&batch.path)
    }

    fn iter(&self) -> btree_map::Values<'_, PathBuf, StoredIndex> {
        self.batches.values()
    }

    /// Lines that were noted until now are in these batches, for all that is known.
    fn raise_tickets(&mut self, ticket: Ticket) {
        for stored in self.batches.values_mut() {
            stored.ticket = ticket;
        }
    }

    fn take(&mut self) -> impl Iterator<Item = StoredIndex> + use<> {
        std::mem::take(self).batches.into_values()
    }
}

impl Desk {
    /// So much waits for the store that nothing more is taken out of the log.
    pub(super) fn is_outbox_full(&self) -> bool {
        // NOTE: batches that are stored may have to stay until the backlog is published: if they
        // counted, they could keep it from being published.
        let index = self.behind.index.waiting_bytes();
        self.behind.parcels.bytes() + self.stored_index.unstored_of(index)
            >= self.behind.outbox_max_bytes
    }

    /// Sends off what may be; tells whether there was something.
    pub(super) fn send_waiting(&mut self, draining: bool) -> bool {
        let now = self.instant();
        if draining {
            self.retries.hurry(now);
        }
        self.behind.parcels.read_labels();
        // During an outage the next try tells whether it is over. One that is new tells more than
        // one that may be stuck.
        if self.retries.is_outage(now) {
            self.send_index(now) || self.send_new_parcels(now) || self.send_again(now)
        } else {
            let again = self.send_again(now);
            let new = self.send_new_parcels(now);
            self.send_index(now) || new || again
        }
    }

    /// Uploads that the store has not answered yet.
    fn under_way(&self) -> usize {
        // NOTE: those that are unresolved wait for the disk.
        (self.sending.len() + self.sending_index.len()).saturating_sub(self.unresolved.len())
    }

    /// Sends what failed before and has rested.
    fn send_again(&mut self, now: Instant) -> bool {
        let mut sent = false;
        // Those that there is no room for hold up no others.
        let objects_fit = self.has_room(0, true);
        let index_fits = self.has_room_for_index(true);
        let due = self.retries.due(self.under_way(), now);
        let due = due.filter(|upload| match upload {
            Upload::Object(_) => objects_fit,
            Upload::Index(_) => index_fits,
        });
        let due: Vec<_> = due.take(UPLOADS_AT_ONCE).cloned().collect();
        for upload in due {
            let began = match &upload {
                Upload::Object(parcel) => self.send_parcel_again(*parcel),
                Upload::Index(path) => self.send_index_again(path),
            };
            match began {
                Some(true) => self.retries.begin(&upload),
                Some(false) => {}
                None => self.retries.forget(&upload),
            }
            sent |= began == Some(true);
        }
        sent
    }

    /// Tells whether there is room for it; `None` if it is not there any more.
    fn send_parcel_again(&mut self, parcel: ParcelId) -> Option<bool> {
        let bytes = self.behind.parcels.bytes_of(parcel)?;
        let has_room = self.has_room(bytes, true);
        if has_room {
            self.send_parcel(parcel, bytes, true);
        }
        Some(has_room)
    }

    fn send_index_again(&mut self, path: &Path) -> Option<bool> {
        let mut ready = self.behind.index.ready();
        let batch = ready.find(|batch| batch.path == path).cloned()?;
        let has_room = self.has_room_for_index(true);
        if has_room {
            self.sending_index.insert(batch.path.clone());
            self.behind.uploads.send_index(batch);
        }
        Some(has_room)
    }

    /// Sends parcels that were never tried.
    fn send_new_parcels(&mut self, now: Instant) -> bool {
        let mut sent = false;
        while self.retries.may_try(self.under_way(), now) {
            // NOTE: what a part that an earlier process left belongs to may be in the log still.
            // But if there is no room, nothing more comes out of the log.
            let may_send_left = self.backlog.is_published() || self.is_outbox_full();
            let parcels = &self.behind.parcels;
            let is_new = |parcel: &ParcelId| {
                let is_left_part = parcels.is_part(*parcel) && parcels.is_left(*parcel);
                let is_retry = self.retries.has_failed(&Upload::Object(*parcel));
                (may_send_left || !is_left_part) && !is_retry && !self.sending.contains_key(parcel)
            };
            let mut sendable = self.behind.parcels.sendable(self.next_parcel);
            let Some((parcel, bytes)) = sendable.find(|(parcel, _)| is_new(parcel)) else {
                return sent;
            };
            drop(sendable);
            // One that has to wait for another is not passed by.
            let follower = self.behind.parcels.first_follower();
            self.next_parcel = follower.map_or(parcel, |follower| follower.min(parcel));
            if !self.has_room(bytes, false) {
                return sent;
            }
            self.send_parcel(parcel, bytes, false);
            sent = true;
        }
        sent
    }

    fn has_room(&self, bytes: u64, is_retry: bool) -> bool {
        let counted = |on_the_way: &&OnTheWay| !is_retry || on_the_way.is_retry;
        let (mut count, mut taken) = (0, 0);
        for on_the_way in self.sending.values().filter(counted) {
            count += 1;
            taken += on_the_way.bytes;
        }
        let (most, room) = if is_retry {
            (UPLOADS_AT_ONCE / 2, BYTES_ON_THE_WAY / 2)
        } else {
            (UPLOADS_AT_ONCE, BYTES_ON_THE_WAY)
        };
        // The first may always go, however large.
        count == 0 || (count < most && taken + memory_of(bytes) <= room)
    }

    fn has_room_for_index(&self, is_retry: bool) -> bool {
        let most = if is_retry {
            INDEX_UPLOADS_AT_ONCE / 2
        } else {
            INDEX_UPLOADS_AT_ONCE
        };
        self.sending_index.len() < most
    }

    fn send_parcel(&mut self, parcel: ParcelId, bytes: u64, is_retry: bool) {
        let on_the_way = OnTheWay {
            bytes: memory_of(bytes),
            is_retry,
        };
        self.sending.insert(parcel, on_the_way);
        let upload = Upload::Object(parcel);
        let failing_since = self.retries.failing_since(&upload);
        self.behind.uploads.send(Shipment {
            parcel,
            path: self.behind.parcels.path_of(parcel),
            is_retried: self.behind.parcels.is_retried(parcel),
            tries: self.retries.tries(&upload),
            failing_for: failing_since.map_or(Duration::ZERO, |since| self.since(since)),
        });
    }

    pub(super) fn close_index(&mut self, draining: bool) {
        // The lines of what is not stored yet come later, but there is a deadline.
        let is_last = draining
            && self.awaiting.is_empty()
            && (self.behind.parcels.is_empty() || self.since(self.index_closed_at) >= LAST_PAUSE);
        if is_last {
            self.index_closed_at = self.instant();
        }
        if let Err(error) = self
            .behind
            .index
            .close_due(self.behind.clock.now(), is_last)
        {
            tracing::warn!(%error, "cannot close a batch of the index yet");
        }
    }

    /// A batch of the index that is stored, or refused, stays on disk until the records behind all of its lines
    /// are done, and what an earlier process left in the log too: after a crash, what is published
    /// again must be found noted.
    pub(super) fn remove_stored_index(&mut self) -> io::Result<()> {
        if !self.has_removable_index() {
            return Ok(());
        }
        self.behind.follower.sync_done()?;
        let parcels = &self.behind.parcels;
        self.shared_lines
            .retain(|line| parcels.has_left_of(&line.trace_id));
        for stored in self.stored_index.take() {
            if !self.is_removable(&stored) {
                self.stored_index.push(stored);
                continue;
            }
            match stored.refusal.clone() {
                None => self.behind.index.remove(&stored.batch),
                Some(refusal) => self.quarantine_index(stored, &refusal),
            }
        }
        Ok(())
    }

    pub(super) fn has_removable_index(&self) -> bool {
        let mut stored = self.stored_index.iter();
        self.backlog.is_published() && stored.any(|stored| self.is_removable(stored))
    }

    fn is_removable(&self, stored: &StoredIndex) -> bool {
        let first_undone = self.published.front().map(|published| published.ticket);
        // NOTE: a batch of an earlier process may have the lines of parcels that it left behind, and
        // of those that were made of what it left in the log.
        let has_backlog = self.behind.parcels.has_before(self.backlog.first_after());
        let is_needed = has_backlog && !self.behind.index.is_own(&stored.batch);
        let is_shared = |line: &SharedLine| {
            line.batch == stored.batch.key && self.behind.parcels.has_left_of(&line.trace_id)
        };
        let is_needed = is_needed || self.shared_lines.iter().any(is_shared);
        !is_needed && first_undone.is_none_or(|first| first > stored.ticket)
    }

    /// Takes note once everything that an earlier process left in the log is published.
    pub(super) fn note_backlog(&mut self) {
        let behind = &mut self.behind;
        let waiting = self.waiting.reconciles();
        let waiting = waiting.filter_map(|reconcile| reconcile.records.first().copied());
        let is_published_now = self.backlog.note_unpublished(
            behind.follower.next_segment(),
            waiting.chain(behind.assembler.oldest_position()),
            behind.parcels.next(),
        );
        if is_published_now {
            behind.poison.relax();
            // Lines that were noted until now may be those of the backlog.
            self.stored_index.raise_tickets(behind.history.ticket());
        }
    }

    /// Sends batches of the index that were never tried.
    fn send_index(&mut self, now: Instant) -> bool {
        let mut sent = false;
        while self.has_room_for_index(false) && self.retries.may_try(self.under_way(), now) {
            let is_new = |batch: &&ReadyBatch| {
                let is_done = self.stored_index.contains(batch);
                let is_retry = || {
                    let upload = Upload::Index(batch.path.clone());
                    self.retries.has_failed(&upload)
                };
                !is_done && !self.sending_index.contains(&batch.path) && !is_retry()
            };
            let Some(batch) = self.behind.index.ready().find(is_new).cloned() else {
                return sent;
            };
            self.sending_index.insert(batch.path.clone());
            self.behind.uploads.send_index(batch);
            sent = true;
        }
        sent
    }
}

/// What sending so many bytes takes: large ones go in parts.
fn memory_of(bytes: u64) -> u64 {
    bytes.min(MAX_UPLOAD_MEMORY)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        archive::{IndexJournal, InstanceName},
        disk::simulated::SimulatedDisk,
        line::samples,
        time::Timestamp,
    };

    #[test]
    fn batches_that_are_stored_take_no_room_of_those_that_are_not() {
        let disk = Arc::new(SimulatedDisk::default());
        let instance = InstanceName::new("host", Timestamp::default());
        let mut journal = IndexJournal::open(disk, "index".into(), instance).unwrap();
        let mut stored = StoredIndexes::default();
        for trace in ["a", "b", "c"] {
            let line = samples::line(trace, Timestamp::default());
            journal.append(&line, Timestamp::default()).unwrap();
            journal.close_due(Timestamp::default(), true).unwrap();
        }
        let ready: Vec<_> = journal.ready().cloned().collect();
        let [first, second, third] = ready.as_slice() else {
            panic!("{ready:?}");
        };
        // An upload that was answered twice counts once.
        for batch in [first, second, first] {
            stored.push(StoredIndex {
                batch: batch.clone(),
                ticket: Ticket::default(),
                refusal: None,
            });
        }
        assert!(stored.contains(first) && !stored.contains(third));
        assert_eq!(
            stored.unstored_of(journal.waiting_bytes()),
            disk_use(third.bytes)
        );
        assert_eq!(stored.take().count(), 2);
        assert_eq!(
            stored.unstored_of(journal.waiting_bytes()),
            journal.waiting_bytes()
        );
    }
}
