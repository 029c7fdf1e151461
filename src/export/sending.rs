//! Takes batches of spans from the outbox to the collector.
//!
//! Invariant: a batch stays on disk until the collector took it. One that is not taken rests, and
//! the others pass. One that the collector fails at while it takes others is split, so that in the
//! end only the spans it fails at are left; they stay, and are tried again. Where it fails at every
//! batch, a single span tells now and then whether it takes any. What it refuses for good
//! while it takes others goes to the quarantine. Sending spans twice changes nothing: they have the
//! same ids.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Exporter, Offer,
    failure::{Course, Failure, one_line},
    halving::halves,
};
use crate::{
    backoff::Backoff,
    bell::Bell,
    metrics::{Metrics, SpanLoss},
    outbox::{BatchId, Note, Quarantinable, Quarantine, TraceBatches, WaitingBatch},
    pack::pack,
    panics::Task,
    retries::Retries,
    spans::{EncodedSpans, spans_in},
    time::{Clock as _, SystemClock},
};

/// As many different batches that fail in a row mean that the collector is away.
const PATIENCE: u32 = 3;
/// A collector that took something this long before a batch was first refused takes spans.
const LATELY: Duration = Duration::from_mins(5);
/// A batch that failed this often while others passed is split.
const SPLIT_AFTER: u32 = 3;
/// Whatever the answer was: a span may also be what a collector is unavailable or too busy for.
/// Under a limit on the rate, batches fail a few times while others pass.
const SPLIT_ANYWAY_AFTER: u32 = 6;
/// One that failed this often is split even if none passed: it may be too large for something in
/// between.
const SPLIT_LARGE_AFTER: u32 = 10;
/// But not down to single spans.
const LARGE_BYTES: usize = 64 * 1024;
/// Of the batches that a collector fails at while it seems to be away, the first and every third
/// after it is sifted: there may be a span in each that it fails at. If it is away indeed, that is one
/// more call, with a single span.
const SIFT_EVERY: u32 = 3;
/// A collector that lately took some spans of such a batch is asked about so many others.
const SINGLES: u32 = 3;
/// No batch is split while so many fail, which bounds the number of files and of calls.
const MOST_FAILING: usize = 512;
/// Batches that were never tried go first, but not more than this many in a row while others are to
/// be tried again.
const NEW_IN_A_ROW: u32 = 16;
/// The log names a batch that failed this often.
const NAMED_AFTER: u32 = 10;

/// Sends what waits for the collector.
#[derive(Debug)]
pub struct SpanSender {
    exporter: Exporter,
    batches: Arc<TraceBatches>,
    quarantine: Arc<Quarantine>,
    metrics: Metrics,
    /// Rung after every try.
    sent: Arc<Bell>,
    backoff: Backoff,
    retries: Retries<BatchId>,
    /// Batches before this one were tried at least once.
    next: BatchId,
    /// How many of those that were sent last were never tried before.
    new_in_a_row: u32,
    /// The batch that is being sent.
    sending: Option<BatchId>,
    /// When the collector last took something.
    taken_at: Option<Instant>,
    /// When it last took some spans of a batch and failed at the others.
    sifted_at: Option<Instant>,
    /// Batches that it failed at since it seems to be away, other than single spans.
    failed_while_away: u32,
}

impl SpanSender {
    pub fn new(
        exporter: Exporter,
        batches: Arc<TraceBatches>,
        quarantine: Arc<Quarantine>,
        metrics: Metrics,
        backoff: Backoff,
        sent: Arc<Bell>,
    ) -> Self {
        Self {
            exporter,
            batches,
            quarantine,
            metrics,
            sent,
            backoff,
            retries: Retries::new(backoff, PATIENCE),
            next: BatchId::default(),
            new_in_a_row: 0,
            sending: None,
            taken_at: None,
            sifted_at: None,
            failed_while_away: 0,
        }
    }

    /// The same, despite panics: the batch at which one came rests, and the others pass.
    pub async fn keep_running(&mut self) {
        let (panics, backoff) = (self.metrics.panics().clone(), self.backoff);
        let mut tries = 0;
        while panics.catch_in(Task::Export, self.run()).await.is_err() {
            tokio::time::sleep(backoff.pause(tries)).await;
            tries = tries.saturating_add(1);
        }
    }

    /// Sends for as long as it is polled. Dropping the future loses nothing.
    pub async fn run(&mut self) {
        // The future was dropped before.
        if let Some(interrupted) = self.sending.take() {
            self.retries.postpone(&interrupted, now());
        }
        loop {
            let batch = self.next_batch().await;
            self.sending = Some(batch.id);
            self.send(batch).await;
            self.sending = None;
            self.metrics.panics().works(Task::Export);
            self.sent.ring();
        }
    }

    /// The batch to be sent next, once there is one.
    async fn next_batch(&mut self) -> WaitingBatch {
        loop {
            let now = now();
            let due = self.retries.due(0, now).next().copied();
            let is_due = due.is_some() && self.new_in_a_row >= NEW_IN_A_ROW;
            if !is_due && let Some(batch) = self.next_new(now) {
                self.new_in_a_row += 1;
                return batch;
            }
            if let Some(id) = due {
                let Some(batch) = self.batches.find(id) else {
                    // Given up meanwhile.
                    self.retries.forget(&id);
                    continue;
                };
                self.new_in_a_row = 0;
                self.retries.begin(&id);
                return batch;
            }
            let change = self.retries.next_change(now);
            let added = self.batches.added();
            match change {
                Some(moment) => drop(tokio::time::timeout_at(moment.into(), added).await),
                None => added.await,
            }
        }
    }

    /// The first batch that was never tried, if it may be.
    fn next_new(&mut self, now: Instant) -> Option<WaitingBatch> {
        if !self.retries.may_try(0, now) {
            return None;
        }
        loop {
            let batch = self.batches.first_from(self.next)?;
            self.next = batch.id.next();
            if !self.retries.has_failed(&batch.id) {
                return Some(batch);
            }
        }
    }

    async fn send(&mut self, batch: WaitingBatch) {
        let spans = match self.batches.read(&batch) {
            Ok(Some(spans)) => spans,
            // Given up meanwhile.
            Ok(None) => return self.done(&batch),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::error!(
                    %error, spans = batch.spans,
                    "a batch of spans is lost: it can't be read back"
                );
                self.metrics.spans_lost(SpanLoss::Unreadable, batch.spans);
                return self.done(&batch);
            }
            // What the disk fails to read now it may read later.
            Err(error) => {
                tracing::warn!(%error, "cannot read a batch of spans yet");
                return self.retries.postpone(&batch.id, now());
            }
        };
        let mut offer = self.exporter.offer(&spans, self.takes_spans(&batch)).await;
        let took_nothing = offer.taken == 0 && offer.refused.is_empty();
        if let Some(failure) = &offer.failure
            && took_nothing
            && spans.count > 1
            && let singles @ 1.. = self.singles_to_offer(failure)
            && let Some(sifted) = Box::pin(self.exporter.sift(&spans, singles)).await
        {
            if sifted.taken > 0
                && let Some(failure) = &sifted.failure
            {
                self.note_sifted(failure);
            }
            offer = sifted;
        }
        if offer.taken > 0 {
            self.taken_at = Some(now());
            self.failed_while_away = 0;
        }
        let settled = match &offer.failure {
            None => self.settle(&batch, &offer),
            Some(failure) => self.settle_failed(&batch, &offer, failure),
        };
        if let Err(error) = settled {
            tracing::warn!(%error, "cannot write to the outbox; a batch of spans is sent again");
            self.retries.postpone(&batch.id, now());
        }
    }

    /// Whether the collector took anything else around the time at which this batch first failed.
    fn takes_spans(&self, batch: &WaitingBatch) -> bool {
        let since = self.retries.failing_since(&batch.id).unwrap_or_else(now);
        self.taken_at
            .is_some_and(|taken_at| taken_at + LATELY > since)
    }

    /// How many single spans of a batch that the collector failed at may be offered, to see whether
    /// it takes any: some if it lately did, and one now and then while it seems to be away.
    fn singles_to_offer(&mut self, failure: &Failure) -> u32 {
        let now = now();
        if !failure.may_be_about_spans() {
            return 0;
        }
        if self.sifted_lately(now) {
            return SINGLES;
        }
        if !self.retries.is_outage(now) {
            return 0;
        }
        let before = self.failed_while_away;
        self.failed_while_away = before.wrapping_add(1);
        u32::from(before.is_multiple_of(SIFT_EVERY))
    }

    fn sifted_lately(&self, now: Instant) -> bool {
        self.sifted_at.is_some_and(|at| now < at + LATELY)
    }

    /// The collector took some spans of a batch and failed at the others.
    fn note_sifted(&mut self, failure: &Failure) {
        let now = now();
        if !self.sifted_lately(now) {
            tracing::warn!(
                reason = %failure,
                "the collector fails at some spans of a batch and takes the others; those that it \
                 fails at stay in the outbox and are tried again"
            );
        }
        self.sifted_at = Some(now);
    }

    /// Every span was taken or refused.
    fn settle(&mut self, batch: &WaitingBatch, offer: &Offer) -> io::Result<()> {
        self.set_aside(batch, offer)?;
        self.succeeded(batch);
        self.batches.remove(batch);
        Ok(())
    }

    /// Some spans were neither taken nor refused.
    fn settle_failed(
        &mut self,
        batch: &WaitingBatch,
        offer: &Offer,
        failure: &Failure,
    ) -> io::Result<()> {
        if offer.taken == 0 && offer.refused.is_empty() {
            return self.failed(batch, &offer.left, failure);
        }
        // What is left goes on as a batch of its own.
        self.set_aside(batch, offer)?;
        let left = EncodedSpans::joined(&offer.left);
        let left = self.batches.replace(batch, &[left])?;
        for id in &left {
            self.retries.inherit(*id, &batch.id, now());
        }
        if offer.taken > 0 {
            self.retries.succeeded(&batch.id, now());
        }
        self.retries.forget(&batch.id);
        for id in &left {
            self.retries.failed(id, now(), failure.after);
            if offer.is_sifted {
                self.retries.rest_long(id, now());
            }
        }
        Ok(())
    }

    /// None of the spans was taken.
    fn failed(
        &mut self,
        batch: &WaitingBatch,
        left: &[EncodedSpans],
        failure: &Failure,
    ) -> io::Result<()> {
        let now = now();
        let since = self.retries.failing_since(&batch.id);
        let tries = self.retries.failed(&batch.id, now, failure.after);
        if tries == NAMED_AFTER {
            tracing::warn!(
                spans = batch.spans, reason = %failure, tries,
                "a batch of spans keeps failing; it stays in the outbox and is tried again"
            );
        }
        let [spans] = left else { return Ok(()) };
        let others_pass = self
            .taken_at
            .zip(since)
            .is_some_and(|(at, since)| at > since);
        let may_be_about_spans = failure.trouble.course() == Course::TryForAWhile;
        let is_due = match (others_pass, may_be_about_spans) {
            (true, true) => tries >= SPLIT_AFTER,
            (true, false) => tries >= SPLIT_ANYWAY_AFTER,
            (false, true) => tries >= SPLIT_LARGE_AFTER && spans.body.len() > LARGE_BYTES,
            (false, false) => false,
        };
        let may_split = is_due && self.retries.len() < MOST_FAILING;
        let Some(halves) = may_split.then(|| halves(spans)).flatten() else {
            return Ok(());
        };
        for id in self.batches.replace(batch, &halves)? {
            self.retries.inherit(id, &batch.id, now);
        }
        self.retries.forget(&batch.id);
        Ok(())
    }

    /// Moves what was refused for good to the quarantine.
    fn set_aside(&mut self, batch: &WaitingBatch, offer: &Offer) -> io::Result<()> {
        let (Some(reason), Some(first)) = (&offer.refusal, offer.refused.first()) else {
            return Ok(());
        };
        let refused = EncodedSpans::joined(&offer.refused);
        let request = first.decode().unwrap_or_default();
        let name = spans_in(&request).next().map(|span| one_line(&span.name));
        let note = Note {
            what: name.unwrap_or_default(),
            reason: format!("the collector refuses it: {reason}"),
            since: SystemClock.now(),
        };
        let file_name = TraceBatches::name_of(batch.id, refused.count);
        let content = pack(&refused.body)?;
        self.quarantine
            .put(Quarantinable::Spans, &file_name, &content, &note)?;
        self.metrics.quarantined(Quarantinable::Spans.kind());
        tracing::warn!(
            spans = refused.count, first = note.what, reason = %reason,
            "the collector refuses these spans; they are kept in the quarantine \
             (spanplane quarantine ls)"
        );
        Ok(())
    }

    fn succeeded(&mut self, batch: &WaitingBatch) {
        self.retries.succeeded(&batch.id, now());
        if self.retries.is_empty() {
            self.exporter.all_is_well();
        }
    }

    /// Nothing is left to be done about it.
    fn done(&mut self, batch: &WaitingBatch) {
        self.retries.forget(&batch.id);
        self.batches.remove(batch);
    }
}

/// On the clock that a test can stop.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
