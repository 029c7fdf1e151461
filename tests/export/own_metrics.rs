//! The sidecar's own metrics, by OTLP beside Prometheus.

use std::{cell::RefCell, io, sync::Once, time::Duration};

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::any_value,
    metrics::v1::{metric::Data, number_data_point::Value},
};
use opentelemetry_sdk::metrics::{data::ResourceMetrics, exporter::PushMetricExporter as _};
use spanplane::{
    export::{resource_from_variables, sdk_resource},
    metrics::Metrics,
};
use tokio::time::timeout;

use crate::{
    otlp::{Fault, OtlpServer, Reply},
    setup::{PATIENCE, Variables, collectors, counted, own_metrics},
};

const OFTEN: (&str, &str) = ("OTEL_METRIC_EXPORT_INTERVAL", "100");

fn pushing(server: &OtlpServer, variables: Variables<'_>) -> Metrics {
    let exporter = own_metrics(server, variables);
    let interval = exporter.interval();
    let lookup = |name: &str| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let resource = resource_from_variables(&lookup, &mut Vec::new());
    Metrics::pushing(exporter, interval, sdk_resource(&resource)).unwrap()
}

/// The value of a counter without labels.
fn value_of(request: &ExportMetricsServiceRequest, name: &str) -> Option<i64> {
    let scopes = request
        .resource_metrics
        .iter()
        .flat_map(|it| &it.scope_metrics);
    let mut metrics = scopes.flat_map(|scope| &scope.metrics);
    let metric = metrics.find(|metric| metric.name == name)?;
    let Some(Data::Sum(sum)) = &metric.data else {
        panic!("{metric:?}");
    };
    match sum.data_points.first()?.value? {
        Value::AsInt(value) => Some(value),
        Value::AsDouble(value) => panic!("{value}"),
    }
}

/// Whose the metrics are, sorted.
fn resource_of(request: &ExportMetricsServiceRequest) -> Vec<(String, String)> {
    let resource = request.resource_metrics[0].resource.as_ref().unwrap();
    let pair = |pair: &opentelemetry_proto::tonic::common::v1::KeyValue| {
        let value = pair.value.clone().unwrap().value.unwrap();
        let any_value::Value::StringValue(value) = value else {
            panic!("{value:?}");
        };
        (pair.key.clone(), value)
    };
    let mut pairs: Vec<_> = resource.attributes.iter().map(pair).collect();
    pairs.sort();
    pairs
}

#[tokio::test]
async fn the_last_counts_arrive_on_shutdown() {
    for server in collectors().await {
        let variables = [
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "x-token=a%20b"),
            ("OTEL_SERVICE_NAME", "mine"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=b"),
        ];
        let metrics = pushing(&server, &variables);
        metrics.spans_exported(3);
        metrics.shutdown(PATIENCE).await;
        let came = timeout(PATIENCE, server.metrics()).await.unwrap();
        assert_eq!(came.len(), 1);
        assert_eq!(value_of(&came[0], "spanplane_spans_exported"), Some(3));
        let expected = [
            ("a", "b"),
            ("service.name", "mine"),
            ("service.version", env!("CARGO_PKG_VERSION")),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(resource_of(&came[0]), expected);
        let headers = &server.tries()[0];
        assert_eq!(headers["x-token"], "a b");
        let agent = headers["user-agent"].to_str().unwrap();
        assert!(agent.starts_with("spanplane/"), "{agent}");
        // Whoever asks for them still gets them.
        assert_eq!(counted(&metrics, "spanplane_spans_exported_total"), 3);
    }
}

#[tokio::test]
async fn what_is_served_is_the_same_whether_they_are_sent_or_not() {
    let served = Metrics::new().unwrap().text().unwrap();
    for server in collectors().await {
        let variables = [("OTEL_SERVICE_NAME", "mine")];
        assert_eq!(pushing(&server, &variables).text().unwrap(), served);
    }
}

#[tokio::test]
async fn they_are_compressed_only_if_that_is_asked_for() {
    for server in collectors().await {
        let encoding = if server.is_grpc() {
            "grpc-encoding"
        } else {
            "content-encoding"
        };
        for (compression, expected) in [("gzip", Some("gzip")), ("none", None)] {
            let variables = [("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", compression)];
            let metrics = pushing(&server, &variables);
            metrics.spans_exported(3);
            metrics.shutdown(PATIENCE).await;
            let came = timeout(PATIENCE, server.metrics()).await.unwrap();
            let last = came.last().unwrap();
            assert_eq!(value_of(last, "spanplane_spans_exported"), Some(3));
            let tries = server.tries();
            let found = tries.last().unwrap().get(encoding);
            assert_eq!(found.map(|it| it.to_str().unwrap()), expected);
        }
    }
}

#[tokio::test]
async fn counts_arrive_every_so_often() {
    for server in collectors().await {
        server.script([Fault::Unavailable, Fault::OddDetails].map(Reply::Fail));
        let metrics = pushing(&server, &[OFTEN]);
        metrics.spans_exported(3);
        let came = timeout(PATIENCE, server.metrics()).await.unwrap();
        assert_eq!(value_of(&came[0], "spanplane_spans_exported"), Some(3));
        assert!(server.tries().len() >= 3);
        // The library panics over details that are none.
        let panicked = u64::from(server.is_grpc());
        let name = "spanplane_panics_total{task=\"metrics\"}";
        assert_eq!(counted(&metrics, name), panicked);
    }
}

#[tokio::test]
async fn after_a_call_without_an_answer_there_is_a_new_connection() {
    for server in collectors().await {
        server.script([Reply::Hang]);
        let short = ("OTEL_EXPORTER_OTLP_TIMEOUT", "200");
        let metrics = pushing(&server, &[OFTEN, short]);
        metrics.spans_exported(3);
        let came = timeout(PATIENCE, server.metrics()).await.unwrap();
        assert_eq!(value_of(&came[0], "spanplane_spans_exported"), Some(3));
        assert!(server.connections() >= 2);
    }
}

#[tokio::test]
async fn a_collector_that_does_not_answer_holds_nothing_up() {
    for server in collectors().await {
        server.script([Reply::Hang]);
        let patient = [("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")];
        let metrics = pushing(&server, &patient);
        metrics.spans_exported(3);
        let limit = Duration::from_millis(50);
        timeout(PATIENCE, metrics.shutdown(limit)).await.unwrap();
        assert_eq!(counted(&metrics, "spanplane_spans_exported_total"), 3);
    }
}

thread_local! {
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Each thread has a log of its own.
struct ThreadLog;

impl io::Write for ThreadLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// From now on what is logged is kept.
///
/// NOTE: for all threads. A line that is first reached on a thread that keeps no log would be off
/// for every other.
fn keep_log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(|| ThreadLog);
        tracing::subscriber::set_global_default(subscriber.finish()).unwrap();
        tracing::callsite::rebuild_interest_cache();
    });
}

/// What was logged on this thread since the last time.
fn logged() -> Vec<String> {
    let text = String::from_utf8(LOG.take()).unwrap();
    text.lines().map(ToOwned::to_owned).collect()
}

#[tokio::test]
async fn the_log_says_when_it_begins_to_fail_and_when_it_works_again() {
    keep_log();
    for server in collectors().await {
        let fail = Reply::Fail(Fault::Unavailable);
        let accept = Reply::Accept;
        server.script([accept, fail, fail, accept, accept, fail]);
        let exporter = own_metrics(&server, &[]);
        for is_taken in [true, false, false, true, true, false] {
            let outcome = exporter.export(&ResourceMetrics::default()).await;
            assert_eq!(outcome.is_ok(), is_taken, "{outcome:?}");
        }
        // Once each: nothing is tried again behind our back.
        assert_eq!(server.tries().len(), 6);
        let lines = logged();
        let [first, again, second] = lines.as_slice() else {
            panic!("{lines:?}");
        };
        let reason = if server.is_grpc() {
            "gRPC code: Unavailable"
        } else {
            "503 Service Unavailable: what is wrong"
        };
        for line in [first, second] {
            assert!(line.contains("WARN") && line.contains(reason), "{line}");
        }
        assert!(again.contains("INFO"), "{again}");
    }
}

#[tokio::test]
async fn the_log_says_why_there_is_no_connection() {
    keep_log();
    for server in collectors().await {
        let exporter = own_metrics(&server, &[]);
        drop(server);
        let outcome = exporter.export(&ResourceMetrics::default()).await;
        outcome.unwrap_err();
        let lines = logged();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("Connection refused"), "{lines:?}");
    }
}
