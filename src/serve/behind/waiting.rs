//! Closed reconciles that wait to be published.
//!
//! Invariant: bounded by number and by bytes, since an error in one takes up to 64 KiB: while it is
//! full no more of the log is followed. A subject's reconciles keep their order.

use std::collections::VecDeque;

use super::publishing::Job;
use crate::reconcile::ClosedReconcile;

/// Some 3 KB each.
const MAX_RECONCILES: usize = 1024;
/// What is open when this is reached may be closed on top of it.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// What waits.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    jobs: VecDeque<Job>,
    /// In memory.
    bytes: usize,
}

impl Waiting {
    pub(super) fn push(&mut self, job: Job) {
        self.bytes += job.reconcile.memory_bytes();
        self.jobs.push_back(job);
    }

    /// Puts the one back that was taken last.
    pub(super) fn put_back(&mut self, job: Job) {
        self.bytes += job.reconcile.memory_bytes();
        self.jobs.push_front(job);
    }

    /// The first in line.
    pub(super) fn take(&mut self) -> Option<Job> {
        let job = self.jobs.pop_front()?;
        self.bytes = self.bytes.saturating_sub(job.reconcile.memory_bytes());
        Some(job)
    }

    /// Whether there is as much as may wait, with what was closed just now.
    pub(super) fn is_full_with(&self, closed: &[ClosedReconcile]) -> bool {
        if self.jobs.len() + closed.len() >= MAX_RECONCILES {
            return true;
        }
        let closed = closed.iter().map(ClosedReconcile::memory_bytes);
        self.bytes + closed.sum::<usize>() >= MAX_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(super) fn reconciles(&self) -> impl Iterator<Item = &ClosedReconcile> {
        self.jobs.iter().map(|job| &job.reconcile)
    }
}
