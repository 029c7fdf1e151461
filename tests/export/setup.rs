//! An exporter on its way to a collector, and batches to send.

use std::time::Duration;

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    trace::v1::{ResourceSpans, ScopeSpans, Span},
};
use spanplane::{
    backoff::Backoff,
    export::{Delivery, ExportSetupError, Exporter, OtlpSettings, OwnMetrics, Signal},
    metrics::Metrics,
};
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

pub(crate) struct Sender {
    pub(crate) exporter: Exporter,
    metrics: Metrics,
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
    let settings = OtlpSettings::from_variables(&lookup, signal).unwrap();
    settings.unwrap()
}

pub(crate) fn own_metrics(server: &OtlpServer, variables: Variables<'_>) -> OwnMetrics {
    let settings = settings(Signal::Metrics, server, variables);
    OwnMetrics::new(settings, Handle::current()).unwrap()
}

impl Sender {
    pub(crate) fn new(server: &OtlpServer) -> Self {
        Self::with(server, &[], QUICK).unwrap()
    }

    pub(crate) fn with(
        server: &OtlpServer,
        variables: Variables<'_>,
        backoff: Backoff,
    ) -> Result<Self, ExportSetupError> {
        let metrics = Metrics::new().unwrap();
        let settings = settings(Signal::Traces, server, variables);
        let exporter = Exporter::new(&settings, metrics.clone(), backoff)?;
        Ok(Self { exporter, metrics })
    }

    pub(crate) async fn deliver(&self, names: &[&str]) -> Delivery {
        let delivery = self.exporter.deliver(EncodedSpans::of(&batch(names)));
        tokio::time::timeout(PATIENCE, delivery).await.unwrap()
    }

    pub(crate) fn counted(&self, name: &str) -> u64 {
        counted(&self.metrics, name)
    }

    /// Tries that failed.
    pub(crate) fn failures(&self) -> u64 {
        self.counted("spanplane_export_failures_total")
    }

    pub(crate) fn refused(&self) -> u64 {
        self.counted("spanplane_spans_lost_total{reason=\"refused\"}")
    }

    pub(crate) fn rejected(&self) -> u64 {
        self.counted("spanplane_spans_lost_total{reason=\"rejected\"}")
    }

    pub(crate) fn exported(&self) -> u64 {
        self.counted("spanplane_spans_exported_total")
    }
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
        dropped: 0,
    }
}
