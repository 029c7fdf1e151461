//! The instruments, each with its name and what it tells.
//!
//! Invariant: a name stands here, or in `pipelines`, and nowhere else.

use std::sync::atomic::{AtomicI64, AtomicU64};

use opentelemetry::metrics::{Counter, Histogram, Meter, MeterProvider as _};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::Registry;

use super::{pipelines::Pipelines, push::Push};
use crate::panics::Panics;

/// Up to core's deadline of 100 ms; finest where the answers should be.
const ACK_SECONDS: [f64; 10] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
];

/// No record arrived at this time.
pub(super) const NOTHING_WAITS: i64 = i64::MAX;

pub(super) struct Instruments {
    pub(super) registry: Registry,
    // NOTE: goes before the provider, which would wait for what is being sent.
    pub(super) push: Option<Push>,
    pub(super) provider: SdkMeterProvider,
    pub(super) meter: Meter,
    pub(super) received: Counter<u64>,
    pub(super) acknowledged: Counter<u64>,
    pub(super) refused: Counter<u64>,
    pub(super) odd: Counter<u64>,
    pub(super) ack_duration: Histogram<f64>,
    pub(super) spool_damaged: Counter<u64>,
    pub(super) spool_torn: Counter<u64>,
    pub(super) spool_sync_failures: Counter<u64>,
    pub(super) records_quarantined: Counter<u64>,
    pub(super) reconciles: Counter<u64>,
    pub(super) unchanged: Counter<u64>,
    pub(super) objects_stored: Counter<u64>,
    pub(super) objects_stored_bytes: Counter<u64>,
    pub(super) objects_lost: Counter<u64>,
    pub(super) objects_pruned: Counter<u64>,
    pub(super) store_failures: Counter<u64>,
    pub(super) redacted_values: Counter<u64>,
    pub(super) spans_exported: Counter<u64>,
    pub(super) spans_lost: Counter<u64>,
    pub(super) export_failures: Counter<u64>,
    pub(super) index_stored: Counter<u64>,
    pub(super) quarantined: Counter<u64>,
    pub(super) pipelines: Pipelines,
    pub(super) panics: Panics,
    /// Bytes of objects, index lines and spans that wait.
    pub(super) outbox: [AtomicU64; 3],
    /// The same for what is in quarantine.
    pub(super) quarantine: [AtomicU64; 4],
    /// Arrival of the oldest of what waits, or [`NOTHING_WAITS`].
    pub(super) oldest_waiting: AtomicI64,
}

impl Instruments {
    pub(super) fn new(
        registry: Registry,
        push: Option<Push>,
        provider: SdkMeterProvider,
        panics: Panics,
    ) -> Self {
        let meter = provider.meter("spanplane");
        let count = |name: &'static str, help: &'static str| {
            meter.u64_counter(name).with_description(help).build()
        };
        Self {
            received: count(
                "spanplane_messages_received",
                "Messages that Crossplane sent.",
            ),
            acknowledged: count(
                "spanplane_messages_acknowledged",
                "Messages that are safe in the spool.",
            ),
            refused: count(
                "spanplane_messages_refused",
                "Messages that were not taken, by reason.",
            ),
            odd: count(
                "spanplane_messages_odd",
                "Messages that were kept although something is wrong with them.",
            ),
            ack_duration: meter
                .f64_histogram("spanplane_ack_duration")
                .with_description("Time from a message's arrival to its answer.")
                .with_unit("s")
                .with_boundaries(ACK_SECONDS.to_vec())
                .build(),
            spool_damaged: count(
                "spanplane_spool_damaged",
                "Places in the spool that could not be read back.",
            ),
            spool_torn: count(
                "spanplane_spool_torn",
                "Records that were being written when an earlier process died.",
            ),
            records_quarantined: count(
                "spanplane_records_quarantined",
                "Messages that were set aside because the process died while processing them.",
            ),
            spool_sync_failures: count(
                "spanplane_spool_sync_failures",
                "Times that the spool could not be synced to disk.",
            ),
            reconciles: count(
                "spanplane_reconciles",
                "Reconciles put together, by outcome and by what closed them.",
            ),
            unchanged: count(
                "spanplane_reconciles_unchanged",
                "Reconciles equal to the one before, which need no object of their own.",
            ),
            objects_stored: count("spanplane_objects_stored", "Objects written to the store."),
            objects_stored_bytes: meter
                .u64_counter("spanplane_objects_stored_size")
                .with_description("Bytes written to the store, compressed.")
                .with_unit("By")
                .build(),
            objects_lost: count(
                "spanplane_objects_dropped",
                "Objects that will never be in the store, by reason.",
            ),
            objects_pruned: count(
                "spanplane_objects_pruned",
                "Objects removed because of age or size, in a store on local disk.",
            ),
            store_failures: count(
                "spanplane_store_failures",
                "Calls to the store, and joins of parts, that failed; they are tried again.",
            ),
            redacted_values: count(
                "spanplane_redacted_values",
                "Secret values removed from payloads.",
            ),
            spans_exported: count("spanplane_spans_exported", "Spans that the collector took."),
            spans_lost: count(
                "spanplane_spans_lost",
                "Spans that will never be at the collector, by reason.",
            ),
            export_failures: count(
                "spanplane_export_failures",
                "Calls to the collector that failed; most are tried again.",
            ),
            index_stored: count(
                "spanplane_index_batches_stored",
                "Batches of index lines written to the store.",
            ),
            quarantined: count(
                "spanplane_quarantined",
                "Files moved to the quarantine, since the store or the collector refuses them or the process died over them.",
            ),
            pipelines: Pipelines::new(&meter),
            panics,
            outbox: Default::default(),
            quarantine: Default::default(),
            oldest_waiting: AtomicI64::new(NOTHING_WAITS),
            registry,
            push,
            provider,
            meter,
        }
    }
}
