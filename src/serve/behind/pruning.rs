//! Pruning: a store on local disk is kept within its limits, a small step at a time.
//!
//! Invariant: however much other work there is, every few turns have a step. A store grows only by
//! what turns publish, so it is pruned in proportion to its growth.

use super::Desk;
use crate::{
    archive::{Forget, PruneStep},
    pace::breathe,
};

/// Turns with other work for each step. A store is walked through twice before enough is removed,
/// 64 files a step, and grows by an object a turn at most: so by an eighth of its files meanwhile.
const BUSY_TURNS: u32 = 4;

/// Which turns have a step.
#[derive(Debug, Default)]
pub(super) struct PruneTurns {
    /// Without a step, and with other work.
    busy: u32,
}

impl PruneTurns {
    /// Whether this turn has one: each without other work, and every so many of the others.
    fn is_due(&mut self, is_busy: bool) -> bool {
        self.busy = if is_busy { self.busy + 1 } else { BUSY_TURNS };
        let is_due = self.busy >= BUSY_TURNS;
        if is_due {
            self.busy = 0;
        }
        is_due
    }
}

impl Desk {
    /// Looks after a store on local disk if it is time to; tells whether there was something to do.
    pub(super) fn prune_if_due(&mut self, is_busy: bool) -> bool {
        self.prune_turns.is_due(is_busy) && self.prune()
    }

    fn prune(&mut self) -> bool {
        let (now, at) = (self.behind.clock.now(), self.instant());
        let Some(pruner) = &mut self.behind.pruner else {
            return false;
        };
        let history = &mut self.behind.history;
        let mut forget = |forget| match forget {
            Forget::StoredUntil(until) => history.forget_stored_until(until),
            Forget::StoredAfter(now) => history.forget_stored_after(now),
        };
        match pruner.step(now, at, &mut forget) {
            PruneStep::Rested => return false,
            PruneStep::Worked => {}
            PruneStep::Removed(objects) => {
                self.behind.metrics.objects_pruned(objects);
                tracing::info!(objects, "removed what was too old or too much");
            }
        }
        breathe();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_pruned_while_every_turn_has_other_work() {
        let mut turns = PruneTurns::default();
        let steps = (0..100).filter(|_| turns.is_due(true)).count();
        assert_eq!(steps, 25);
    }

    #[test]
    fn every_turn_without_other_work_has_a_step() {
        let mut turns = PruneTurns::default();
        for is_busy in [false, true, false, false, true, true] {
            assert_eq!(turns.is_due(is_busy), !is_busy);
        }
        assert!(turns.is_due(false));
    }
}
