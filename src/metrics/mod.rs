//! What the program counts about itself, named once.
//!
//! Recorded through OpenTelemetry, shown as Prometheus text. Invariant: names are
//! `spanplane_<noun>_<unit>`, labels come from small fixed sets, and what can be refused or lost
//! shows up as zero from the start, so that an alert on its rate works the first time.

mod instruments;
mod observing;
mod pipelines;
mod push;
mod reasons;

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use opentelemetry::KeyValue;
use opentelemetry_sdk::{
    Resource,
    metrics::{MeterProviderBuilder, SdkMeterProvider, exporter::PushMetricExporter},
};
use prometheus::{Registry, TextEncoder};

pub use self::reasons::{ObjectLoss, Refusal, SpanLoss};
use self::{
    instruments::{Instruments, NOTHING_WAITS},
    push::Push,
};
use crate::{
    line::Line,
    panics::{Panics, Task},
    record::RecordKind,
    time::{SharedClock, Timestamp},
};

/// What waits for the store or the collector.
const KINDS: [&str; 3] = ["objects", "index", "traces"];
/// What is in quarantine.
const QUARANTINED_KINDS: [&str; 4] = ["objects", "index", "traces", "messages"];

/// The counters, and the registry they are read from.
#[derive(Clone)]
pub struct Metrics(Arc<Instruments>);

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
        Self::build(|builder, _| (builder, None))
    }

    /// The counters are also handed to an exporter, every so often, on a thread of its own.
    /// `resource` says whose they are; what is served does not.
    pub fn pushing(
        exporter: impl PushMetricExporter,
        interval: Duration,
        resource: Resource,
    ) -> Result<Self, SetupError> {
        Self::build(|builder, panics| {
            let (reader, push) = Push::new(exporter, interval, panics.clone());
            let builder = builder.with_resource(resource).with_reader(reader);
            (builder, Some(push))
        })
    }

    fn build(
        add_push: impl FnOnce(MeterProviderBuilder, &Panics) -> (MeterProviderBuilder, Option<Push>),
    ) -> Result<Self, SetupError> {
        let registry = Registry::new();
        let exporter = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .without_target_info()
            .build()
            .map_err(|error| SetupError(error.into()))?;
        let panics = Panics::default();
        let builder = SdkMeterProvider::builder().with_reader(exporter);
        let (builder, push) = add_push(builder, &panics);
        let instruments = Instruments::new(registry, push, builder.build(), panics);
        let metrics = Self(Arc::new(instruments));
        metrics.show_zeros();
        metrics.observe_panics();
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
        for kind in QUARANTINED_KINDS {
            all.quarantined.add(0, &[KeyValue::new("kind", kind)]);
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
            &all.records_quarantined,
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

    /// Where panics are counted.
    pub fn panics(&self) -> &Panics {
        &self.0.panics
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
                for (kind, bytes) in KINDS.iter().zip(&instruments.outbox) {
                    let kind = KeyValue::new("kind", *kind);
                    gauge.observe(bytes.load(Ordering::Relaxed), &[kind]);
                }
            })
            .build();
        let instruments = Arc::downgrade(&self.0);
        meter
            .u64_observable_gauge("spanplane_quarantine")
            .with_description(
                "Bytes in quarantine: what the store or the collector refuses, and messages and parts of reconciles at which the process died, by what they are.",
            )
            .with_unit("By")
            .with_callback(move |gauge| {
                let Some(instruments) = instruments.upgrade() else {
                    return;
                };
                for (kind, bytes) in QUARANTINED_KINDS.iter().zip(&instruments.quarantine) {
                    let kind = KeyValue::new("kind", *kind);
                    gauge.observe(bytes.load(Ordering::Relaxed), &[kind]);
                }
            })
            .build();
        let instruments = Arc::downgrade(&self.0);
        let panics = self.panics().clone();
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
                // NOTE: the library would never collect anything again.
                let now = panics.catch(Task::Metrics, || clock.now());
                if let Ok(now) = now {
                    let age = now.since(Timestamp::from_nanos(oldest));
                    gauge.observe(age.as_secs_f64(), &[]);
                    panics.works(Task::Metrics);
                }
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

    pub fn record_quarantined(&self) {
        self.0.records_quarantined.add(1, &[]);
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

    /// What is in quarantine: objects, index lines, spans, messages, in bytes.
    pub fn quarantine_holds(&self, kinds: [u64; 4]) {
        for (shown, bytes) in self.0.quarantine.iter().zip(kinds) {
            shown.store(bytes, Ordering::Relaxed);
        }
    }

    /// A file was moved to the quarantine.
    pub fn quarantined(&self, kind: &'static str) {
        self.0.quarantined.add(1, &[KeyValue::new("kind", kind)]);
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
