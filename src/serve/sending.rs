//! Takes batches of spans from the outbox to the collector, one after the other.
//!
//! Invariant: a batch stays in the outbox until the collector took it, or will never take it.

use std::sync::Arc;

use crate::{
    bell::Bell,
    export::Exporter,
    metrics::{Metrics, SpanLoss},
    outbox::TraceBatches,
};

/// Sends for as long as it is polled. `sent` is rung after every batch.
pub(super) async fn send_traces(
    exporter: Exporter,
    batches: Arc<TraceBatches>,
    metrics: Metrics,
    sent: Arc<Bell>,
) {
    loop {
        let batch = batches.oldest().await;
        match batches.read(&batch) {
            Ok(Some(request)) => drop(exporter.deliver(request).await),
            // Given up meanwhile.
            Ok(None) => {}
            Err(error) => {
                tracing::error!(
                    %error, spans = batch.spans,
                    "a batch of spans is lost: it can't be read back"
                );
                metrics.spans_lost(SpanLoss::Unreadable, batch.spans);
            }
        }
        batches.remove(&batch);
        sent.ring();
    }
}
