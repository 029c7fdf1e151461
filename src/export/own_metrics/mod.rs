//! The sidecar's own metrics, by OTLP.
//!
//! What is sent is the library's part; over which connection, as whom and for how long is ours.
//! Invariant: one try an interval, within its timeout, and no line in the log but when it begins
//! to fail and when it works again. What is not taken is in the next try: the counts are
//! cumulative.

mod http_client;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use opentelemetry_otlp::{
    Compression, ExporterBuildError, MetricExporter, Protocol, RetryPolicy, WithExportConfig as _,
    WithHttpConfig, WithTonicConfig,
};
use opentelemetry_sdk::{
    error::{OTelSdkError, OTelSdkResult},
    metrics::{Temporality, data::ResourceMetrics, exporter::PushMetricExporter},
};
use tokio::runtime::Handle;
use tokio_util::context::TokioContext;
use tonic::metadata::MetadataMap;

use self::http_client::{Complaint, HttpClient};
use super::{
    OtlpSettings,
    failure::one_line,
    transport::{Client, Transport},
};

const ADVICE: &str = "check OTEL_EXPORTER_OTLP_ENDPOINT, _PROTOCOL, _HEADERS and _CERTIFICATE, \
                      and the collector's log";

/// Sends metrics that are handed to it on a thread of their own.
#[derive(Debug)]
pub struct OwnMetrics {
    settings: OtlpSettings,
    transport: Transport,
    /// Connections live here: that thread has no runtime.
    runtime: Handle,
    is_failing: AtomicBool,
}

impl OwnMetrics {
    /// Asks nothing of the collector yet, but reads the files that the settings name.
    pub fn new(settings: OtlpSettings, runtime: Handle) -> Self {
        Self {
            transport: Transport::new(&settings),
            settings,
            runtime,
            is_failing: AtomicBool::new(false),
        }
    }

    /// How often they are to be sent.
    pub fn interval(&self) -> Duration {
        self.settings.interval
    }

    async fn send(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let failed = |detail| Err(OTelSdkError::InternalFailure(detail));
        let client = match self.transport.client() {
            Ok(client) => client,
            Err(failure) => return failed(failure.detail),
        };
        let complaint = Complaint::default();
        let exporter = match self.exporter(&client, complaint.clone()) {
            Ok(exporter) => exporter,
            Err(error) => return failed(one_line(&error.to_string())),
        };
        let timeout = self.settings.timeout;
        // NOTE: the library's own timeout does not end a call that is under way.
        let outcome = match tokio::time::timeout(timeout, exporter.export(metrics)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => complaint
                .take()
                .map_or(Err(error), |failure| failed(failure.detail)),
            Err(_) => {
                self.transport.hang_up();
                Err(OTelSdkError::Timeout(timeout))
            }
        };
        self.transport.take_new_certificates();
        outcome
    }

    /// One for each try: that costs next to nothing, and the connection may be another.
    ///
    /// NOTE: the library reads the environment, too, and what stands there is stronger than the
    /// headers that it is given. So it is given none: ours are put on what it makes.
    fn exporter(
        &self,
        client: &Client,
        complaint: Complaint,
    ) -> Result<MetricExporter, ExporterBuildError> {
        let builder = MetricExporter::builder().with_temporality(Temporality::Cumulative);
        match client {
            Client::Grpc(grpc) => {
                let metadata = MetadataMap::from_headers(self.settings.headers.clone());
                let mut builder = builder
                    .with_tonic()
                    .with_channel(grpc.channel())
                    .with_interceptor(move |mut request: tonic::Request<()>| {
                        *request.metadata_mut() = metadata.clone();
                        Ok(request)
                    })
                    .with_timeout(self.settings.timeout);
                builder = WithTonicConfig::with_retry_policy(builder, RetryPolicy::disabled());
                if self.settings.gzip {
                    builder = WithTonicConfig::with_compression(builder, Compression::Gzip);
                }
                builder.build()
            }
            Client::Http(http) => {
                let client = HttpClient {
                    http: Arc::clone(http),
                    runtime: self.runtime.clone(),
                    complaint,
                };
                let mut builder = builder
                    .with_http()
                    .with_http_client(client)
                    .with_protocol(Protocol::HttpBinary)
                    // Without its query: it would be shown in an error.
                    .with_endpoint(self.settings.endpoint())
                    .with_timeout(self.settings.timeout);
                builder = WithHttpConfig::with_retry_policy(builder, RetryPolicy::disabled());
                if self.settings.gzip {
                    builder = WithHttpConfig::with_compression(builder, Compression::Gzip);
                }
                builder.build()
            }
        }
    }

    fn note(&self, outcome: &OTelSdkResult) {
        let was_failing = self.is_failing.swap(outcome.is_err(), Ordering::Relaxed);
        match outcome {
            Ok(()) if was_failing => tracing::info!("the collector takes metrics again"),
            Err(error) if !was_failing => tracing::warn!(
                %error, advice = ADVICE,
                "cannot send metrics; they are served all the same"
            ),
            _ => {}
        }
    }
}

impl PushMetricExporter for OwnMetrics {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let sending = TokioContext::new(self.send(metrics), self.runtime.clone());
        // A panic is caught and counted where this is called from (`metrics/push.rs`).
        let outcome = sending.await;
        self.note(&outcome);
        outcome
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        Temporality::Cumulative
    }
}
