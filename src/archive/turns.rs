//! Who may go on, where two uploads of one process must not meet.
//!
//! Invariant: no two parts of one reconcile are sent at once, and no two documents are joined at
//! once: that takes memory.

use std::array;

use tokio::sync::{Mutex, MutexGuard};
use twox_hash::XxHash3_64;

use crate::reconcile::TraceId;

/// Many more than uploads at once: two traces rarely share one, and then one waits for the other.
const LANES: usize = 64;

/// A turn; it ends when this is dropped.
pub(super) type Turn<'t> = MutexGuard<'t, ()>;

#[derive(Debug)]
pub(super) struct Turns {
    lanes: [Mutex<()>; LANES],
    joining: Mutex<()>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            lanes: array::from_fn(|_| Mutex::default()),
            joining: Mutex::default(),
        }
    }
}

impl Turns {
    pub(super) async fn of(&self, trace_id: &TraceId) -> Turn<'_> {
        let hash = XxHash3_64::oneshot(trace_id.0.as_bytes());
        let lane = usize::try_from(hash % LANES as u64).unwrap_or_default();
        let [first, ..] = &self.lanes;
        self.lanes.get(lane).unwrap_or(first).lock().await
    }

    pub(super) async fn joining(&self) -> Turn<'_> {
        self.joining.lock().await
    }
}
