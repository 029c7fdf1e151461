//! What the program writes to its log at the most verbose level: no payload and no credential.

#![cfg(test)]

mod support;

use std::fs::{self, File};

use rustix::process::{Pid, Signal, kill_process};
use spanplane::record::RecordKind;
use support::{
    message,
    otlp::OtlpServer,
    program::Place,
    s3::{Mood, S3Server},
    until,
};

/// In payloads, in places that are redacted and in places that are not.
const PAYLOADS: [&str; 3] = ["canary-in-a-spec", "canary-in-a-secret", "canary-in-text"];
const CREDENTIALS: [&str; 4] = [
    "inspector-secret",
    "canary-in-a-header",
    "canary-in-a-viewer-token",
    "canary-in-a-session-token",
];

#[tokio::test]
async fn no_payload_and_no_credential_is_logged_even_at_trace_level() {
    let server = S3Server::start().await;
    let collector = OtlpServer::start_http().await;
    let place = Place::new();
    // Nobody could read a pipe as fast as that.
    let path = place.path().join("log");
    let mut command = place.command();
    command
        .arg("--shutdown-timeout=60s")
        .stderr(File::create(&path).unwrap())
        .env("RUST_LOG", "trace")
        .env("SPANPLANE_STORE", S3Server::url("prefix"))
        .env("AWS_ENDPOINT_URL", server.endpoint())
        .env("AWS_ACCESS_KEY_ID", "inspector")
        .env("AWS_SECRET_ACCESS_KEY", "inspector-secret")
        .env("AWS_REGION", "us-east-1")
        .env("SPANPLANE_VIEWER_ADDRESS", "127.0.0.1:0")
        .env("SPANPLANE_VIEWER_TOKEN", "canary-in-a-viewer-token")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
        .env(
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization=Bearer canary-in-a-header",
        );
    let mut child = command.spawn().unwrap();
    let log = || fs::read_to_string(&path).unwrap();
    until("it listens", || log().contains("\"listening\"")).await;
    let mut client = place.client();
    let secret = r#"{"apiVersion":"v1","kind":"Secret","data":{"a":"canary-in-a-secret"}}"#;
    let messages = [
        message(
            "a",
            0,
            RecordKind::Request,
            r#"{"observed":{"spec":"canary-in-a-spec"}}"#,
        ),
        message("b", 0, RecordKind::Request, secret),
        message("c", 0, RecordKind::Request, "canary-in-text"),
    ];
    for mood in [Mood::Works, Mood::Denies, Mood::Unavailable, Mood::Works] {
        server.set(mood);
        for record in &messages {
            let sent = client.emit(record.kind, record.message.clone()).await;
            sent.unwrap();
        }
    }
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    assert!(child.wait().await.unwrap().success());
    assert!(server.writes() > 3 && !collector.received().is_empty());
    let logged = log();
    assert!(logged.contains("\"TRACE\""), "{logged}");
    for canary in PAYLOADS.iter().chain(&CREDENTIALS) {
        let mut lines = logged.lines();
        let leaking = lines.find(|line| line.contains(canary));
        assert_eq!(leaking, None, "{canary}");
    }
}
