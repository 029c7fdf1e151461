//! What is known of each segment: how far it is written, whether it is still written to, and how
//! many of its records are still needed.
//!
//! Invariant: a segment is given up exactly when nothing more is written to it, all of it has been
//! followed, and none of its records is needed, whatever stands before it. Memory grows with the
//! number of segments, not with the records in them.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::record::SegmentId;

#[derive(Clone, Copy, Debug, Default)]
struct SegmentState {
    /// Readable up to here.
    bytes: u64,
    /// Nothing more is written to it.
    sealed: bool,
    /// Everything in it has been handed out.
    followed: bool,
    /// Records handed out and not finished.
    live: u64,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    segments: Mutex<BTreeMap<SegmentId, SegmentState>>,
    /// What else counts.
    beside: AtomicU64,
}

impl Ledger {
    /// A segment that an earlier process left.
    pub(super) fn adopt(&self, id: SegmentId, bytes: u64) {
        let state = SegmentState {
            bytes,
            sealed: true,
            ..SegmentState::default()
        };
        self.lock().insert(id, state);
    }

    /// A segment that is written to from now on.
    pub(super) fn begin(&self, id: SegmentId, bytes: u64) {
        self.lock().insert(
            id,
            SegmentState {
                bytes,
                ..SegmentState::default()
            },
        );
    }

    /// The segment is written up to here.
    pub(super) fn extend(&self, id: SegmentId, bytes: u64) {
        self.change(id, |state| state.bytes = bytes);
    }

    pub(super) fn seal(&self, id: SegmentId) {
        self.change(id, |state| state.sealed = true);
    }

    /// How far a segment can be read, and whether that is all it will ever hold.
    pub(super) fn extent(&self, id: SegmentId) -> Option<(u64, bool)> {
        self.lock()
            .get(&id)
            .map(|state| (state.bytes, state.sealed))
    }

    /// The segment that follows, or the first.
    pub(super) fn next_after(&self, id: Option<SegmentId>) -> Option<SegmentId> {
        let segments = self.lock();
        match id {
            Some(id) => segments.range(SegmentId(id.0.saturating_add(1))..).next(),
            None => segments.iter().next(),
        }
        .map(|(id, _)| *id)
    }

    pub(super) fn mark_handed_out(&self, id: SegmentId) {
        self.change(id, |state| state.live = state.live.saturating_add(1));
    }

    pub(super) fn mark_finished(&self, id: SegmentId, records: u64) {
        self.change(id, |state| state.live = state.live.saturating_sub(records));
    }

    pub(super) fn mark_followed(&self, id: SegmentId) {
        self.change(id, |state| state.followed = true);
    }

    /// Segments that nobody needs. The caller removes their files and [forgets](Self::forget) them.
    pub(super) fn unneeded(&self) -> Vec<SegmentId> {
        let segments = self.lock();
        segments
            .iter()
            .filter(|(_, state)| state.sealed && state.followed && state.live == 0)
            .map(|(id, _)| *id)
            .collect()
    }

    /// A segment's file is removed.
    pub(super) fn forget(&self, id: SegmentId) {
        self.lock().remove(&id);
    }

    /// Bytes in all segments, and beside them.
    pub(super) fn used(&self) -> u64 {
        let segments: u64 = self.lock().values().map(|state| state.bytes).sum();
        segments.saturating_add(self.beside.load(Ordering::Relaxed))
    }

    pub(super) fn set_beside(&self, bytes: u64) {
        self.beside.store(bytes, Ordering::Relaxed);
    }

    fn change(&self, id: SegmentId, change: impl FnOnce(&mut SegmentState)) {
        if let Some(state) = self.lock().get_mut(&id) {
            change(state);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SegmentId, SegmentState>> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
