//! An exporter on its way to a collector, and batches to send.

use std::{path::PathBuf, sync::Arc, time::Duration};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    trace::v1::{ResourceSpans, ScopeSpans, Span},
};
use spanplane::{
    backoff::Backoff,
    disk::LocalDisk,
    export::{Destination, Exporter, OtlpSettings, OwnMetrics, Signal, SpanSender},
    metrics::Metrics,
    outbox::{BatchId, Quarantine, Quarantined, TraceBatches, WaitingBatch},
};
use tempfile::TempDir;
use tokio::runtime::Handle;

use spanplane::spans::EncodedSpans;

use crate::otlp::OtlpServer;

/// Longest time for what takes no time at all, unless a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) const QUICK: Backoff = Backoff {
    first: Duration::from_millis(1),
    longest: Duration::from_millis(4),
};

/// One that waits too long for a test to pass, if it waits.
pub(crate) const GLACIAL: Backoff = Backoff {
    first: Duration::from_hours(1),
    longest: Duration::from_hours(1),
};

pub(crate) type Variables<'a> = &'a [(&'a str, &'a str)];

/// What waits on disk for a collector, and who sends it there.
pub(crate) struct Sender {
    #[expect(clippy::struct_field_names, reason = "the type has the same name")]
    sender: SpanSender,
    pub(crate) batches: Arc<TraceBatches>,
    pub(crate) metrics: Metrics,
    folder: TempDir,
}

/// What became of spans that were sent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Delivery {
    /// The collector took them.
    pub(crate) accepted: u64,
    /// The collector took a batch of which it rejected them.
    pub(crate) rejected: u64,
    /// They are in quarantine.
    pub(crate) quarantined: u64,
}

/// Both kinds of collectors.
pub(crate) async fn collectors() -> [OtlpServer; 2] {
    [
        OtlpServer::start_grpc().await,
        OtlpServer::start_http().await,
    ]
}

fn settings(signal: Signal, server: &OtlpServer, variables: Variables<'_>) -> OtlpSettings {
    let protocol = if server.is_grpc() {
        "grpc"
    } else {
        "http/protobuf"
    };
    let own = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", server.url()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
        ("OTEL_METRICS_EXPORTER", "otlp"),
    ];
    let lookup = |name: &str| {
        let found = variables.iter().chain(&own).find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let mut ignored = Vec::new();
    let destination = Destination::from_variables(&lookup, signal, &mut ignored);
    assert_eq!(ignored, []);
    destination.collector().unwrap().clone()
}

pub(crate) fn own_metrics(server: &OtlpServer, variables: Variables<'_>) -> OwnMetrics {
    let settings = settings(Signal::Metrics, server, variables);
    OwnMetrics::new(settings, Handle::current())
}

impl Sender {
    pub(crate) fn new(server: &OtlpServer) -> Self {
        Self::with(server, &[], QUICK)
    }

    pub(crate) fn with(server: &OtlpServer, variables: Variables<'_>, backoff: Backoff) -> Self {
        Self::with_bytes(server, variables, backoff, 1 << 20)
    }

    /// The same, with room for so much.
    pub(crate) fn with_bytes(
        server: &OtlpServer,
        variables: Variables<'_>,
        backoff: Backoff,
        max_bytes: u64,
    ) -> Self {
        let metrics = Metrics::new().unwrap();
        let settings = settings(Signal::Traces, server, variables);
        let exporter = Exporter::new(&settings, metrics.clone());
        let folder = tempfile::tempdir().unwrap();
        let batches =
            TraceBatches::open(Arc::new(LocalDisk), folder.path().join("traces"), max_bytes)
                .unwrap();
        let batches = Arc::new(batches);
        let quarantine = Quarantine::open(
            Arc::new(LocalDisk),
            folder.path().join("quarantine"),
            max_bytes,
        )
        .unwrap();
        let sender = SpanSender::new(
            exporter,
            Arc::clone(&batches),
            Arc::new(quarantine),
            metrics.clone(),
            backoff,
            Arc::default(),
        );
        Self {
            sender,
            batches,
            metrics,
            folder,
        }
    }

    /// Another process takes over.
    pub(crate) fn restart(self, server: &OtlpServer) -> Self {
        let mut next = Self::new(server);
        drop((self.sender, self.batches));
        let parts = ["traces", "quarantine"].map(|name| self.folder.path().join(name));
        let [traces, quarantine] = parts;
        next.batches = Arc::new(TraceBatches::open(Arc::new(LocalDisk), traces, 1 << 20).unwrap());
        let settings = settings(Signal::Traces, server, &[]);
        next.sender = SpanSender::new(
            Exporter::new(&settings, next.metrics.clone()),
            Arc::clone(&next.batches),
            Arc::new(Quarantine::open(Arc::new(LocalDisk), quarantine, 1 << 20).unwrap()),
            next.metrics.clone(),
            QUICK,
            Arc::default(),
        );
        next.folder = self.folder;
        next
    }

    /// Puts a batch in line.
    pub(crate) fn add(&self, names: &[&str]) -> u64 {
        let spans = EncodedSpans::of(&batch(names));
        self.batches.add(&spans).unwrap()
    }

    /// Sends until something is so.
    pub(crate) async fn send_until(&mut self, what: &str, is_so: impl Fn(&TraceBatches) -> bool) {
        let batches = Arc::clone(&self.batches);
        let waiting = async {
            while !is_so(&batches) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            () = self.sender.run() => panic!("it ended"),
            waited = tokio::time::timeout(PATIENCE, waiting) => {
                assert!(waited.is_ok(), "waited in vain until {what}");
            }
        }
    }

    /// The same, while other batches come and pass.
    pub(crate) async fn send_among_others(&mut self, what: &str, is_so: impl Fn() -> bool) {
        let others = EncodedSpans::of(&batch(&["other"]));
        let is_so = |batches: &TraceBatches| {
            batches.add(&others).unwrap();
            is_so()
        };
        self.send_until(what, is_so).await;
    }

    /// Sends until nothing waits any more.
    pub(crate) async fn deliver(&mut self, names: &[&str]) -> Delivery {
        let before = self.delivered();
        self.add(names);
        self.send_until("nothing waits", TraceBatches::is_empty)
            .await;
        let after = self.delivered();
        Delivery {
            accepted: after.accepted - before.accepted,
            rejected: after.rejected - before.rejected,
            quarantined: after.quarantined - before.quarantined,
        }
    }

    fn delivered(&self) -> Delivery {
        let held = self.quarantined();
        let held = held.iter().map(|file| TraceBatches::spans_of(&file.name));
        Delivery {
            accepted: self.exported(),
            rejected: self.rejected(),
            quarantined: held.sum(),
        }
    }

    pub(crate) fn quarantine(&self) -> PathBuf {
        self.folder.path().join("quarantine")
    }

    pub(crate) fn quarantined(&self) -> Vec<Quarantined> {
        Quarantine::list(&LocalDisk, &self.quarantine()).unwrap()
    }

    pub(crate) fn counted(&self, name: &str) -> u64 {
        counted(&self.metrics, name)
    }

    /// Tries that failed.
    pub(crate) fn failures(&self) -> u64 {
        self.counted("spanplane_export_failures_total")
    }

    /// Spans that are lost, other than those that the collector rejected.
    pub(crate) fn lost(&self) -> u64 {
        let reasons = ["refused", "outbox_full", "unreadable"];
        let lost = reasons.map(|reason| {
            let name = format!("spanplane_spans_lost_total{{reason=\"{reason}\"}}");
            self.counted(&name)
        });
        lost.iter().sum()
    }

    pub(crate) fn rejected(&self) -> u64 {
        self.counted("spanplane_spans_lost_total{reason=\"rejected\"}")
    }

    pub(crate) fn exported(&self) -> u64 {
        self.counted("spanplane_spans_exported_total")
    }
}

/// How many spans each of the batches holds that wait.
pub(crate) fn waiting(batches: &TraceBatches) -> Vec<u64> {
    let first = batches.first_from(BatchId::default());
    let next = |batch: &WaitingBatch| batches.first_from(batch.id.next());
    let waiting = std::iter::successors(first, next);
    waiting.map(|batch| batch.spans).collect()
}

pub(crate) fn counted(metrics: &Metrics, name: &str) -> u64 {
    let text = metrics.text().unwrap();
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value
        .unwrap_or_else(|| panic!("{name} in {text}"))
        .parse()
        .unwrap()
}

pub(crate) fn batch(names: &[&str]) -> ExportTraceServiceRequest {
    let span = |name: &&str| Span {
        trace_id: vec![1; 16],
        span_id: vec![2; 8],
        name: (*name).to_owned(),
        ..Span::default()
    };
    let scope = ScopeSpans {
        spans: names.iter().map(span).collect(),
        ..ScopeSpans::default()
    };
    let resource = ResourceSpans {
        scope_spans: vec![scope],
        ..ResourceSpans::default()
    };
    ExportTraceServiceRequest {
        resource_spans: vec![resource],
    }
}

pub(crate) fn all(count: u64) -> Delivery {
    Delivery {
        accepted: count,
        ..Delivery::default()
    }
}
