//! Committing: once a second everything published since is made to last; then its records may go.
//!
//! Invariant: a record leaves the log only once everything that was made of it would survive the
//! loss of power: the parcel or the line in the index, and the spans. A parcel leaves the outbox
//! only once its line in the index would. Records go in the order in which their reconciles were
//! published: after a crash all that came later is published again, on the same history.

use std::{
    io,
    time::{Duration, Instant},
};

use super::{Desk, Tracing};
use crate::{
    disk::is_full,
    history::Ticket,
    ids::OtelTraceId,
    line::Line,
    metrics::SpanLoss,
    record::Position,
    spans::{SpanBatch, spans_of},
};

/// How often what was published is made to last.
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// A batch of spans is full at this size: far less than the 4 MiB that a collector takes.
const BATCH_BYTES: usize = 1024 * 1024;
/// Where the disk takes no more spans, nothing more is made of the log either.
const MAX_UNCOMMITTED_BYTES: usize = 4 * BATCH_BYTES;

/// A reconcile whose records are not done with.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) ticket: Ticket,
    pub(super) records: Vec<Position>,
    pub(super) is_settled: bool,
}

/// What is published and not yet made to last.
#[derive(Debug)]
pub(super) struct Unsettled {
    spans: SpanBatch,
    /// The last one whose records are done with, and those of all before it.
    done_until: Ticket,
    committed_at: Instant,
    /// The last commit failed: the next one is not tried at once.
    is_failing: bool,
}

impl Unsettled {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            spans: SpanBatch::default(),
            done_until: Ticket::default(),
            committed_at: now,
            is_failing: false,
        }
    }
}

impl Desk {
    /// Counts a reconcile, makes its spans, and lets its records go at the next commit.
    pub(super) fn settle(&mut self, line: &Line, ticket: Ticket) {
        self.settle_joined(line, line, ticket);
    }

    /// The same for a part that may have been joined with others: it is counted as what it was, and
    /// its spans say what the whole is.
    pub(super) fn settle_joined(&mut self, part: &Line, line: &Line, ticket: Ticket) {
        let place = self.published.binary_search_by_key(&ticket, |it| it.ticket);
        let published = place.ok().and_then(|place| self.published.get_mut(place));
        let is_blameless = self.behind.poison.blames_nobody();
        if is_blameless && let Some(published) = &published {
            self.behind.poison.blame(&published.records);
        }
        self.behind.metrics.reconcile_published(part);
        if let Some(tracing) = &self.behind.tracing
            && tracing.keeps(line)
        {
            self.unsettled.spans.extend(&spans_of(line, &tracing.links));
        }
        if is_blameless {
            self.behind.poison.end();
        }
        if let Some(published) = published {
            published.is_settled = true;
        }
    }

    pub(super) fn commit_if_due(&mut self, draining: bool) -> bool {
        let is_full =
            self.unsettled.spans.bytes() >= BATCH_BYTES || self.behind.parcels.is_sync_due();
        let is_due = self.since(self.unsettled.committed_at) >= COMMIT_EVERY
            || (is_full && !self.unsettled.is_failing);
        if !self.has_uncommitted() || !(is_due || draining) {
            return false;
        }
        self.unsettled.committed_at = self.instant();
        let committed = self.commit();
        self.unsettled.is_failing = committed.is_err();
        match committed {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "cannot write to the outbox yet; records stay in the spool");
                false
            }
        }
    }

    /// Commits what can be, since what comes next may kill the process.
    pub(super) fn commit_now(&mut self) {
        if let Err(error) = self.commit() {
            tracing::warn!(%error, "cannot write to the outbox yet; records stay in the spool");
        }
    }

    /// Commits, if necessary with the space that is reserved for a full disk.
    fn commit(&mut self) -> io::Result<()> {
        let mut committed = self.try_commit();
        if is_disk_full(&committed) && self.behind.reserve.release() {
            committed = self.try_commit();
        }
        if committed.is_ok() {
            self.behind.reserve.restore();
        }
        committed
    }

    fn try_commit(&mut self) -> io::Result<()> {
        let behind = &mut self.behind;
        behind.parcels.sync()?;
        behind.index.sync()?;
        // Before anything else is written: it may be the room that that needs.
        behind.parcels.remove_finished();
        if let Some(tracing) = &behind.tracing
            && !self.unsettled.spans.is_empty()
        {
            let request = self.unsettled.spans.request(&tracing.resource);
            let given_up = tracing.batches.add(&request)?;
            behind.metrics.spans_lost(SpanLoss::OutboxFull, given_up);
        }
        self.unsettled.spans.clear();
        let mut records = Vec::new();
        while let Some(done) = self.published.pop_front_if(|first| first.is_settled) {
            records.extend(done.records);
            self.unsettled.done_until = done.ticket;
        }
        // NOTE: in this order. A crash in between forgets what came before; the other way round,
        // what is published again would come after itself.
        behind.follower.finish(&records)?;
        behind.history.save(self.unsettled.done_until);
        self.remove_stored_index()
    }

    /// So much could not be made to last that nothing more is published.
    pub(super) fn is_commit_overdue(&self) -> bool {
        self.unsettled.spans.bytes() >= MAX_UNCOMMITTED_BYTES
    }

    /// When the next commit is due.
    pub(super) fn next_commit(&self) -> Option<Instant> {
        self.has_uncommitted()
            .then(|| self.unsettled.committed_at + COMMIT_EVERY)
    }

    fn has_uncommitted(&self) -> bool {
        let first = self.published.front();
        !self.unsettled.spans.is_empty()
            || first.is_some_and(|published| published.is_settled)
            || self.behind.history.has_unsaved(self.unsettled.done_until)
            || self.behind.parcels.has_finished()
            || self.behind.follower.has_unlogged()
            || self.has_removable_index()
    }

    /// Nothing is left to do for what was received.
    pub(super) fn is_settled(&self) -> bool {
        let traces = self.behind.tracing.as_ref();
        self.published.is_empty()
            && !self.has_uncommitted()
            && self.behind.parcels.is_empty()
            && self.behind.index.is_empty()
            && traces.is_none_or(|tracing| !tracing.is_sending || tracing.batches.is_empty())
    }

    /// Tells what waits in the outbox: it shares the spool's limit, and so do the quarantine and the
    /// history.
    pub(super) fn show_outbox(&self) {
        let behind = &self.behind;
        let traces = behind.tracing.as_ref();
        let waiting = [
            behind.parcels.bytes(),
            behind.index.waiting_bytes(),
            traces.map_or(0, |tracing| tracing.batches.bytes()),
        ];
        behind.metrics.outbox_holds(waiting);
        let quarantined = behind.quarantine.bytes();
        let history = behind.history.bytes_on_disk();
        let history = history_share(history, behind.outbox_max_bytes);
        let beside: u64 = waiting.iter().chain(&quarantined).sum();
        behind.gauge.set_beside(beside + history);
    }
}

/// What the history takes of the spool's limit, of which a half may wait for the store. Refusing
/// messages makes no history shorter, so under a small limit the rest of it is in the part that is
/// left free.
fn history_share(bytes: u64, outbox_max_bytes: u64) -> u64 {
    bytes.min(outbox_max_bytes / 4)
}

/// Whether something failed for want of space.
pub(super) fn is_disk_full<T>(outcome: &io::Result<T>) -> bool {
    outcome.as_ref().is_err_and(is_full)
}

impl Tracing {
    /// Whether the spans of this reconcile go out: always if something happened, else as sampled.
    fn keeps(&self, line: &Line) -> bool {
        let is_interesting = line.changed || line.status.is_failure() || line.dropped_count > 0;
        is_interesting || self.sampler.keeps(OtelTraceId::of(&line.trace_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_counts_but_never_fills_the_spool() {
        const MIB: u64 = 1024 * 1024;
        assert_eq!(history_share(50 * MIB, 512 * MIB), 50 * MIB);
        assert_eq!(history_share(50 * MIB, 8 * MIB), 2 * MIB);
    }
}
