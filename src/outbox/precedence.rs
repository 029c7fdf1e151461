//! Which parcels wait for which.
//!
//! Invariant: a parcel that has to be joined with what is in the store waits for the whole of its
//! trace and for every earlier part, and for no other. After a crash, the whole may have been sealed
//! again after its part. As long as it isn't known which trace another one belongs to, a part waits
//! for that one too.

use std::collections::{BTreeMap, BTreeSet};

use twox_hash::XxHash3_64;

use super::ParcelId;

/// Stands for a trace id.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct TraceHash(u64);

impl TraceHash {
    pub(super) fn of(trace_id: &str) -> Self {
        Self(XxHash3_64::oneshot(trace_id.as_bytes()))
    }
}

/// The parcels that wait.
#[derive(Debug, Default)]
pub(super) struct Precedence {
    /// Parts: those that are joined with others. One whose label can't be read has no trace.
    followers: BTreeMap<ParcelId, Option<TraceHash>>,
    /// Wholes, then parts, of each trace.
    by_trace: BTreeSet<(TraceHash, bool, ParcelId)>,
    /// Those of an earlier process whose label has not been read yet.
    unread: BTreeSet<ParcelId>,
}

impl Precedence {
    /// A parcel waits; its label is read later.
    pub(super) fn add(&mut self, id: ParcelId, is_follower: bool) {
        self.unread.insert(id);
        if is_follower {
            self.followers.insert(id, None);
        }
    }

    /// The label of a parcel was read, or can't be.
    pub(super) fn note_trace(&mut self, id: ParcelId, trace: Option<TraceHash>) {
        self.unread.remove(&id);
        let follower = self.followers.get_mut(&id);
        let is_follower = follower.is_some();
        if let Some(follower) = follower {
            *follower = trace;
        }
        let entry = trace.map(|trace| (trace, is_follower, id));
        self.by_trace.extend(entry);
    }

    /// A parcel waits no more.
    pub(super) fn remove(&mut self, id: ParcelId, trace: Option<TraceHash>) {
        self.unread.remove(&id);
        let is_follower = self.followers.remove(&id).is_some();
        if let Some(trace) = trace {
            self.by_trace.remove(&(trace, is_follower, id));
        }
    }

    /// Whether it has to wait for another.
    pub(super) fn has_to_wait(&self, id: ParcelId) -> bool {
        let Some(Some(trace)) = self.followers.get(&id) else {
            return false;
        };
        let first = (*trace, false, ParcelId::default());
        let mut before = self.by_trace.range(first..(*trace, true, id));
        before.next().is_some() || !self.unread.is_empty()
    }

    pub(super) fn is_follower(&self, id: ParcelId) -> bool {
        self.followers.contains_key(&id)
    }

    /// The first that may have to wait for others.
    pub(super) fn first_follower(&self) -> Option<ParcelId> {
        self.followers.keys().next().copied()
    }

    /// All that may have to wait for others.
    pub(super) fn followers(&self) -> Vec<ParcelId> {
        self.followers.keys().copied().collect()
    }

    /// A parcel whose label another one waits for.
    pub(super) fn wanted_label(&self) -> Option<ParcelId> {
        let is_wanted = !self.followers.is_empty();
        self.unread.first().copied().filter(|_| is_wanted)
    }
}
