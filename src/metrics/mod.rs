//! What the program counts about itself, named once.
//!
//! Recorded through OpenTelemetry, shown as Prometheus text. Invariant: names are
//! `spanplane_<noun>_<unit>`, labels come from small fixed sets, and what can be refused or lost
//! shows up as zero from the start, so that an alert on its rate works the first time.

mod pipelines;
mod push;
mod reasons;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Histogram, Meter, MeterProvider as _},
};
use opentelemetry_sdk::{
    Resource,
    metrics::{MeterProviderBuilder, SdkMeterProvider, exporter::PushMetricExporter},
};
use prometheus::{Registry, TextEncoder};

pub use self::reasons::{ObjectLoss, Refusal, SpanLoss};
use self::{pipelines::Pipelines, push::Push};
use crate::{
    line::Line,
    record::RecordKind,
    time::{SharedClock, Timestamp},
};

/// Up to core's deadline of 100 ms; finest where the answers should be.
const ACK_SECONDS: [f64; 10] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
];

/// The counters, and the registry they are read from.
#[derive(Clone)]
pub struct Metrics(Arc<Instruments>);

struct Instruments {
    registry: Registry,
    // NOTE: goes before the provider, which would wait for what is being sent.
    push: Option<Push>,
    provider: SdkMeterProvider,
    meter: Meter,
    received: Counter<u64>,
    acknowledged: Counter<u64>,
    refused: Counter<u64>,
    odd: Counter<u64>,
    ack_duration: Histogram<f64>,
    spool_damaged: Counter<u64>,
    spool_torn: Counter<u64>,
    spool_sync_failures: Counter<u64>,
    reconciles: Counter<u64>,
    unchanged: Counter<u64>,
    objects_stored: Counter<u64>,
    objects_stored_bytes: Counter<u64>,
    objects_lost: Counter<u64>,
    objects_pruned: Counter<u64>,
    store_failures: Counter<u64>,
    redacted_values: Counter<u64>,
    spans_exported: Counter<u64>,
    spans_lost: Counter<u64>,
    export_failures: Counter<u64>,
    index_stored: Counter<u64>,
    pipelines: Pipelines,
    /// Bytes of objects, index lines and spans that wait.
    outbox: [AtomicU64; 3],
    /// Arrival of the oldest of what waits, or [`NOTHING_WAITS`].
    oldest_waiting: AtomicI64,
}

const NOTHING_WAITS: i64 = i64::MAX;

impl fmt::Debug for Metrics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Metrics")
    }
}

/// The registry of metrics can't be set up.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up metrics")]
pub struct SetupError(#[source] Box<dyn std::error::Error + Send + Sync>);

impl Metrics {
    pub fn new() -> Result<Self, SetupError> {
        Self::build(|builder| (builder, None))
    }

    /// The counters are also handed to an exporter, every so often, on a thread of its own.
    /// `resource` says whose they are; what is served does not.
    pub fn pushing(
        exporter: impl PushMetricExporter,
        interval: Duration,
        resource: Resource,
    ) -> Result<Self, SetupError> {
        Self::build(|builder| {
            let (reader, push) = Push::new(exporter, interval);
            let builder = builder.with_resource(resource).with_reader(reader);
            (builder, Some(push))
        })
    }

    fn build(
        add_push: impl FnOnce(MeterProviderBuilder) -> (MeterProviderBuilder, Option<Push>),
    ) -> Result<Self, SetupError> {
        let registry = Registry::new();
        let exporter = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .without_target_info()
            .build()
            .map_err(|error| SetupError(error.into()))?;
        let (builder, push) = add_push(SdkMeterProvider::builder().with_reader(exporter));
        let provider = builder.build();
        let metrics = Self(Arc::new(Instruments::new(registry, push, provider)));
        metrics.show_zeros();
        Ok(metrics)
    }

    fn show_zeros(&self) {
        let all = &self.0;
        for reason in Refusal::ALL {
            all.refused
                .add(0, &[KeyValue::new("reason", reason.as_str())]);
        }
        for reason in ObjectLoss::ALL {
            all.objects_lost
                .add(0, &[KeyValue::new("reason", reason.as_str())]);
        }
        for reason in SpanLoss::ALL {
            self.spans_lost(reason, 0);
        }
        for kind in [RecordKind::Request, RecordKind::Response] {
            all.received.add(0, &[KeyValue::new("rpc", kind.as_str())]);
            all.acknowledged
                .add(0, &[KeyValue::new("rpc", kind.as_str())]);
        }
        for counter in [
            &all.spool_damaged,
            &all.spool_torn,
            &all.spool_sync_failures,
            &all.unchanged,
            &all.objects_stored,
            &all.objects_stored_bytes,
            &all.objects_pruned,
            &all.store_failures,
            &all.redacted_values,
            &all.spans_exported,
            &all.export_failures,
            &all.index_stored,
        ] {
            counter.add(0, &[]);
        }
    }

    /// All of them, in Prometheus' text format.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.0.registry.gather())
    }

    /// Shows how full the spool is whenever somebody asks.
    pub fn observe_spool(
        &self,
        limit: u64,
        used: impl Fn() -> u64 + Send + Sync + 'static,
        clock: SharedClock,
    ) {
        let meter = &self.0.meter;
        meter
            .u64_observable_gauge("spanplane_spool")
            .with_description("Bytes that the spool takes on disk.")
            .with_unit("By")
            .with_callback(move |gauge| gauge.observe(used(), &[]))
            .build();
        meter
            .u64_observable_gauge("spanplane_spool_limit")
            .with_description("Bytes that the spool may take on disk.")
            .with_unit("By")
            .with_callback(move |gauge| gauge.observe(limit, &[]))
            .build();
        // NOTE: the callback lives in the provider, which the instruments hold: no cycle, please.
        let instruments = Arc::downgrade(&self.0);
        meter
            .u64_observable_gauge("spanplane_outbox")
            .with_description("Bytes that wait for the store or the collector, by what they are.")
            .with_unit("By")
            .with_callback(move |gauge| {
                let Some(instruments) = instruments.upgrade() else {
                    return;
                };
                for (kind, bytes) in ["objects", "index", "traces"]
                    .iter()
                    .zip(&instruments.outbox)
                {
                    let kind = KeyValue::new("kind", *kind);
                    gauge.observe(bytes.load(Ordering::Relaxed), &[kind]);
                }
            })
            .build();
        let instruments = Arc::downgrade(&self.0);
        meter
            .f64_observable_gauge("spanplane_spool_oldest_record_age")
            .with_description(
                "Age of the oldest of what waits in the spool or for the store; 0 if nothing does.",
            )
            .with_unit("s")
            .with_callback(move |gauge| {
                let Some(instruments) = instruments.upgrade() else {
                    return;
                };
                let oldest = instruments.oldest_waiting.load(Ordering::Relaxed);
                let age = clock.now().since(Timestamp::from_nanos(oldest));
                gauge.observe(age.as_secs_f64(), &[]);
            })
            .build();
    }

    pub fn message_received(&self, kind: RecordKind) {
        self.0
            .received
            .add(1, &[KeyValue::new("rpc", kind.as_str())]);
    }

    pub fn message_acknowledged(&self, kind: RecordKind, after: Duration) {
        self.0
            .acknowledged
            .add(1, &[KeyValue::new("rpc", kind.as_str())]);
        self.0.ack_duration.record(after.as_secs_f64(), &[]);
    }

    pub fn message_refused(&self, reason: Refusal) {
        self.0
            .refused
            .add(1, &[KeyValue::new("reason", reason.as_str())]);
    }

    pub fn message_odd(&self, oddity: &'static str) {
        self.0.odd.add(1, &[KeyValue::new("oddity", oddity)]);
    }

    pub fn spool_damaged(&self) {
        self.0.spool_damaged.add(1, &[]);
    }

    pub fn spool_torn(&self) {
        self.0.spool_torn.add(1, &[]);
    }

    pub fn spool_sync_failed(&self) {
        self.0.spool_sync_failures.add(1, &[]);
    }

    /// What waits: objects, index lines, spans, in bytes.
    pub fn outbox_holds(&self, kinds: [u64; 3]) {
        for (shown, bytes) in self.0.outbox.iter().zip(kinds) {
            shown.store(bytes, Ordering::Relaxed);
        }
    }

    pub fn oldest_waiting(&self, oldest: Option<Timestamp>) {
        let nanos = oldest.map_or(NOTHING_WAITS, Timestamp::as_nanos);
        self.0.oldest_waiting.store(nanos, Ordering::Relaxed);
    }

    pub fn reconcile_closed(&self, outcome: &'static str, closing: &'static str) {
        let labels = [
            KeyValue::new("outcome", outcome),
            KeyValue::new("closing", closing),
        ];
        self.0.reconciles.add(1, &labels);
    }

    pub fn reconcile_unchanged(&self) {
        self.0.unchanged.add(1, &[]);
    }

    pub fn object_stored(&self, bytes: u64) {
        self.0.objects_stored.add(1, &[]);
        self.0.objects_stored_bytes.add(bytes, &[]);
    }

    pub fn object_lost(&self, reason: ObjectLoss) {
        self.0
            .objects_lost
            .add(1, &[KeyValue::new("reason", reason.as_str())]);
    }

    pub fn objects_pruned(&self, count: u64) {
        self.0.objects_pruned.add(count, &[]);
    }

    pub fn store_failed(&self) {
        self.0.store_failures.add(1, &[]);
    }

    pub fn values_redacted(&self, count: u64) {
        self.0.redacted_values.add(count, &[]);
    }

    pub fn spans_exported(&self, count: u64) {
        self.0.spans_exported.add(count, &[]);
    }

    pub fn spans_lost(&self, reason: SpanLoss, count: u64) {
        self.0
            .spans_lost
            .add(count, &[KeyValue::new("reason", reason.as_str())]);
    }

    /// A batch of the index was stored.
    pub fn index_stored(&self) {
        self.0.index_stored.add(1, &[]);
    }

    /// A reconcile was read, or recognised.
    pub fn reconcile_published(&self, line: &Line) {
        self.0.pipelines.count(line);
    }

    pub fn export_failed(&self) {
        self.0.export_failures.add(1, &[]);
    }

    /// Hands the last counts to whom they are pushed, and then no more, whether they are taken in
    /// time or not.
    pub async fn shutdown(&self, limit: Duration) {
        if let Some(push) = &self.0.push {
            push.finish(self.0.provider.clone(), limit).await;
        }
    }
}

impl Instruments {
    fn new(registry: Registry, push: Option<Push>, provider: SdkMeterProvider) -> Self {
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
                "Calls to the store that failed; they are tried again.",
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
            pipelines: Pipelines::new(&meter),
            outbox: Default::default(),
            oldest_waiting: AtomicI64::new(NOTHING_WAITS),
            registry,
            push,
            provider,
            meter,
        }
    }
}
