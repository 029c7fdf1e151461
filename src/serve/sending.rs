//! Takes batches of spans from the outbox to the collector, one after the other.
//!
//! Invariant: a batch stays in the outbox until the collector took it, or will never take it.

use std::{sync::Arc, time::Duration};

use crate::{
    bell::Bell,
    export::Exporter,
    metrics::{Metrics, SpanLoss},
    outbox::TraceBatches,
};

/// How often a batch is read before it is given up.
const READ_TRIES: u32 = 10;
const READ_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Sends for as long as it is polled. `sent` is rung after every batch.
pub(super) async fn send_traces(
    exporter: Exporter,
    batches: Arc<TraceBatches>,
    metrics: Metrics,
    sent: Arc<Bell>,
) {
    let mut failed_reads = 0;
    loop {
        let batch = batches.oldest().await;
        match batches.read(&batch) {
            Ok(Some(request)) => drop(exporter.deliver(request).await),
            // Given up meanwhile.
            Ok(None) => {}
            // What the disk fails to read now it may read later.
            Err(error) if failed_reads < READ_TRIES => {
                tracing::warn!(%error, "cannot read a batch of spans yet");
                failed_reads += 1;
                tokio::time::sleep(READ_AGAIN_AFTER).await;
                continue;
            }
            Err(error) => {
                tracing::error!(
                    %error, spans = batch.spans,
                    "a batch of spans is lost: it can't be read back"
                );
                metrics.spans_lost(SpanLoss::Unreadable, batch.spans);
            }
        }
        failed_reads = 0;
        batches.remove(&batch);
        sent.ring();
    }
}
