//! Dispatching: what waits in the outbox for the store is sent off, so many at a time.
//!
//! Invariant: what is on its way is bounded in number and in bytes.

use std::time::{Duration, Instant};

use super::Desk;
use crate::archive::ReadyBatch;

/// Uploads under way at once.
const UPLOADS_AT_ONCE: usize = 8;
/// Bytes of parcels on their way to the store, in memory.
const BYTES_ON_THE_WAY: u64 = 16 * 1024 * 1024;
/// While stopping, between two batches of the index.
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// Longer than records stay in the log after their line was written.
const KNOWN_FOR: Duration = Duration::from_secs(10);
/// Batches of the index under way at once.
const INDEX_UPLOADS_AT_ONCE: usize = 2;

impl Desk {
    /// So much waits for the store that nothing more is taken out of the log.
    pub(super) fn is_outbox_full(&self) -> bool {
        self.behind.parcels.bytes() + self.behind.index.waiting_bytes()
            >= self.behind.outbox_max_bytes
    }

    pub(super) fn send_parcels(&mut self) -> bool {
        let on_the_way: u64 = self.sending.values().sum();
        let mut room = BYTES_ON_THE_WAY.saturating_sub(on_the_way);
        let mut sent = false;
        for (parcel, bytes) in self.behind.parcels.sendable() {
            // The first may always go, however large.
            if self.sending.len() >= UPLOADS_AT_ONCE || (room < bytes && !self.sending.is_empty()) {
                break;
            }
            if self.sending.contains_key(&parcel) {
                continue;
            }
            room = room.saturating_sub(bytes);
            self.sending.insert(parcel, bytes);
            let path = self.behind.parcels.path_of(parcel);
            self.behind.uploads.send(parcel, path);
            sent = true;
        }
        sent
    }

    pub(super) fn close_index(&mut self, draining: bool) {
        // The lines of what is not stored yet come later, but there is a deadline.
        let is_last = draining
            && self.awaiting.is_empty()
            && (self.behind.parcels.is_empty() || self.index_closed_at.elapsed() >= LAST_PAUSE);
        if is_last {
            self.index_closed_at = Instant::now();
        }
        if let Err(error) = self
            .behind
            .index
            .close_due(self.behind.clock.now(), is_last)
        {
            tracing::warn!(%error, "cannot close a batch of the index yet");
        }
    }

    /// Batches of the index stay for a while after they were stored: whoever starts after a crash
    /// has to know which lines were written.
    pub(super) fn remove_stored_index(&mut self) {
        let is_over = |stored: &mut (Instant, ReadyBatch)| {
            self.published.is_empty() || stored.0.elapsed() >= KNOWN_FOR
        };
        for (_, batch) in self.stored_index.extract_if(.., is_over) {
            self.behind.index.remove(&batch);
        }
    }

    pub(super) fn send_index(&mut self) -> bool {
        let mut sent = false;
        for batch in self.behind.index.ready() {
            if self.sending_index.len() >= INDEX_UPLOADS_AT_ONCE {
                break;
            }
            let is_stored = self.stored_index.iter().any(|(_, stored)| stored == batch);
            if !is_stored && self.sending_index.insert(batch.path.clone()) {
                self.behind.uploads.send_index(batch.clone());
                sent = true;
            }
        }
        sent
    }
}
