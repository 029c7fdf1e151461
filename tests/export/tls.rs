//! Whom the exporter trusts, and who it says it is.

use std::{fs, path::PathBuf};

use opentelemetry_sdk::metrics::{data::ResourceMetrics, exporter::PushMetricExporter as _};
use spanplane::export::{ExportSetupError, TlsFileError};
use tempfile::TempDir;

use spanplane::spans::EncodedSpans;

use crate::{
    authority::{Authority, Issued, ServerTls},
    otlp::OtlpServer,
    setup::{PATIENCE, QUICK, Sender, Variables, all, batch, own_metrics},
};

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file, and returns where.
    fn write(&self, name: &str, content: &str) -> String {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

async fn collectors(tls: &ServerTls) -> [OtlpServer; 2] {
    [
        OtlpServer::start_grpc_tls(tls).await,
        OtlpServer::start_http_tls(tls).await,
    ]
}

/// Returns once it is clear that the collector is not spoken to.
async fn fails(sender: &Sender, server: &OtlpServer) {
    let delivery = sender.exporter.deliver(EncodedSpans::of(&batch(&["a"])));
    let connected = server.connected(3);
    tokio::select! {
        delivery = delivery => panic!("{delivery:?}"),
        connected = tokio::time::timeout(PATIENCE, connected) => connected.unwrap(),
    }
    assert!(sender.failures() > 0);
    assert!(server.received().is_empty());
}

#[tokio::test]
async fn the_given_authority_is_trusted() {
    let (authority, files) = (Authority::new(), Files::new());
    let ca = files.write("ca.pem", &authority.pem());
    for server in collectors(&authority.server()).await {
        let variables = [("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.as_str())];
        let sender = Sender::with(&server, &variables, QUICK).unwrap();
        assert_eq!(sender.deliver(&["a"]).await, all(1));
        assert_eq!(sender.failures(), 0);
    }
}

#[tokio::test]
async fn nobody_else_is() {
    let (authority, other, files) = (Authority::new(), Authority::new(), Files::new());
    let ca = files.write("other.pem", &other.pem());
    for server in collectors(&authority.server()).await {
        let variables = [("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.as_str())];
        let sender = Sender::with(&server, &variables, QUICK).unwrap();
        fails(&sender, &server).await;
    }
}

#[tokio::test]
async fn a_collector_of_another_name_is_not_trusted() {
    let (authority, files) = (Authority::new(), Files::new());
    let ca = files.write("ca.pem", &authority.pem());
    let mut tls = authority.server();
    tls.shown = authority.issue("elsewhere.example");
    for server in collectors(&tls).await {
        let variables = [("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.as_str())];
        let sender = Sender::with(&server, &variables, QUICK).unwrap();
        fails(&sender, &server).await;
    }
}

#[tokio::test]
async fn a_client_shows_the_certificate_that_is_asked_for() {
    let (authority, files) = (Authority::new(), Files::new());
    let ca = files.write("ca.pem", &authority.pem());
    let Issued { certificate, key } = authority.issue("spanplane");
    let certificate = files.write("client.pem", &certificate);
    let key = files.write("client.key", &key);
    let mut tls = authority.server();
    tls.clients = Some(authority.pem());
    for server in collectors(&tls).await {
        let anonymous = [("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.as_str())];
        let sender = Sender::with(&server, &anonymous, QUICK).unwrap();
        fails(&sender, &server).await;

        let known = [
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.as_str()),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &certificate),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", &key),
        ];
        let sender = Sender::with(&server, &known, QUICK).unwrap();
        assert_eq!(sender.deliver(&["a"]).await, all(1));
    }
}

#[tokio::test]
async fn the_same_holds_for_metrics() {
    let (authority, files) = (Authority::new(), Files::new());
    let ca = files.write("ca.pem", &authority.pem());
    let other = files.write("other.pem", &Authority::new().pem());
    let Issued { certificate, key } = authority.issue("spanplane");
    let certificate = files.write("client.pem", &certificate);
    let key = files.write("client.key", &key);
    let mut tls = authority.server();
    tls.clients = Some(authority.pem());
    let client = [
        (
            "OTEL_EXPORTER_OTLP_METRICS_CLIENT_CERTIFICATE",
            &*certificate,
        ),
        ("OTEL_EXPORTER_OTLP_METRICS_CLIENT_KEY", &key),
    ];
    let trusting = |ca| ("OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", ca);
    for server in collectors(&tls).await {
        let is_taken = async |variables: Variables<'_>| {
            let exporter = own_metrics(&server, variables);
            let outcome = exporter.export(&ResourceMetrics::default()).await;
            outcome.is_ok()
        };
        assert!(!is_taken(&[trusting(&*ca)]).await);
        assert!(!is_taken(&[trusting(&*other), client[0], client[1]]).await);
        assert!(server.tries().is_empty());
        assert!(is_taken(&[trusting(&*ca), client[0], client[1]]).await);
    }
}

#[tokio::test]
async fn a_bad_file_is_an_error_at_the_start() {
    let (authority, files) = (Authority::new(), Files::new());
    let text = files.write("text.pem", "no certificate");
    for server in collectors(&authority.server()).await {
        let variables = [("OTEL_EXPORTER_OTLP_CERTIFICATE", text.as_str())];
        let error = Sender::with(&server, &variables, QUICK).err().unwrap();
        let ExportSetupError::TlsFile(TlsFileError::NoCertificate { path }) = error else {
            panic!("{error:?}");
        };
        assert_eq!(path, files.path("text.pem"));
    }
}
