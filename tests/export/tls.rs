//! Whom the exporter trusts, and who it says it is.

use std::{fs, path::PathBuf, time::Duration};

use opentelemetry_sdk::metrics::{data::ResourceMetrics, exporter::PushMetricExporter as _};
use tempfile::TempDir;

use crate::{
    authority::{Authority, Issued, ServerTls},
    otlp::OtlpServer,
    setup::{PATIENCE, QUICK, Sender, Variables, all, counted, own_metrics},
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
async fn fails(sender: &mut Sender, server: &OtlpServer) {
    sender.add(&["a"]);
    tokio::select! {
        () = sender.send_until("never", |_| false) => {}
        () = server.connected(3) => {}
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
        let mut sender = Sender::with(&server, &variables, QUICK);
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
        let mut sender = Sender::with(&server, &variables, QUICK);
        fails(&mut sender, &server).await;
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
        let mut sender = Sender::with(&server, &variables, QUICK);
        fails(&mut sender, &server).await;
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
        let mut sender = Sender::with(&server, &anonymous, QUICK);
        fails(&mut sender, &server).await;

        let known = [
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.as_str()),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &certificate),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", &key),
        ];
        let mut sender = Sender::with(&server, &known, QUICK);
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

/// Delivers a span; once that failed for a while, `mend` puts things right, and it arrives.
async fn arrives_after(sender: &mut Sender, mend: impl FnOnce()) {
    let metrics = sender.metrics.clone();
    let delivery = sender.deliver(&["a"]);
    let mended = async {
        until(|| counted(&metrics, "spanplane_export_failures_total") >= 3).await;
        mend();
    };
    let (delivery, ()) = tokio::join!(delivery, mended);
    assert_eq!(delivery, all(1));
}

async fn until(is_so: impl Fn() -> bool) {
    let looking = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap();
}

#[tokio::test]
async fn an_authority_that_is_replaced_on_disk_is_trusted_from_then_on() {
    let (authority, files) = (Authority::new(), Files::new());
    for server in collectors(&authority.server()).await {
        let ca = files.write("ca.pem", &Authority::new().pem());
        let variables = [("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.as_str())];
        let mut sender = Sender::with(&server, &variables, QUICK);
        let replace = || drop(files.write("ca.pem", &authority.pem()));
        arrives_after(&mut sender, replace).await;
    }
}

#[tokio::test]
async fn a_client_certificate_that_is_replaced_on_disk_is_shown_from_then_on() {
    let (authority, files) = (Authority::new(), Files::new());
    let ca = files.write("ca.pem", &authority.pem());
    let mut tls = authority.server();
    tls.clients = Some(authority.pem());
    for server in collectors(&tls).await {
        let write = |issued: Issued| {
            let certificate = files.write("client.pem", &issued.certificate);
            [certificate, files.write("client.key", &issued.key)]
        };
        let [certificate, key] = write(Authority::new().issue("spanplane"));
        let variables = [
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.as_str()),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &certificate),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", &key),
        ];
        let mut sender = Sender::with(&server, &variables, QUICK);
        let replace = || drop(write(authority.issue("spanplane")));
        arrives_after(&mut sender, replace).await;
    }
}

#[tokio::test]
async fn a_file_that_is_not_there_or_not_usable_is_waited_for() {
    let (authority, files) = (Authority::new(), Files::new());
    for server in collectors(&authority.server()).await {
        for unusable in [None, Some("not a certificate")] {
            let ca = match unusable {
                None => files.path("missing.pem").to_str().unwrap().to_owned(),
                Some(text) => files.write("ca.pem", text),
            };
            let variables = [("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.as_str())];
            let mut sender = Sender::with(&server, &variables, QUICK);
            let mend = || fs::write(&ca, authority.pem()).unwrap();
            arrives_after(&mut sender, mend).await;
            fs::remove_file(&ca).unwrap();
        }
    }
}

#[tokio::test]
async fn metrics_follow_certificates_that_are_replaced_too() {
    let (authority, files) = (Authority::new(), Files::new());
    for server in collectors(&authority.server()).await {
        let ca = files.path("ca.pem").to_str().unwrap().to_owned();
        let variables = [("OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", ca.as_str())];
        let exporter = own_metrics(&server, &variables);
        let metrics = ResourceMetrics::default();
        for content in [None, Some(Authority::new().pem()), Some(authority.pem())] {
            if let Some(content) = content {
                files.write("ca.pem", &content);
            }
            // The one that fails finds them, the next one has them.
            exporter.export(&metrics).await.unwrap_err();
        }
        exporter.export(&metrics).await.unwrap();
        fs::remove_file(&ca).unwrap();
    }
}
