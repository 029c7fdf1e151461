//! What the program writes to its log at the most verbose level: no payload and no credential.

#![cfg(test)]

mod support;

use std::fs::{self, File};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use spanplane::record::RecordKind;
use support::{
    message,
    otlp::OtlpServer,
    program::Place,
    s3::{Mood, S3Server},
    until,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// In payloads, in places that are redacted and in places that are not.
const PAYLOADS: [(RecordKind, &str); 6] = [
    (
        RecordKind::Request,
        r#"{"observed":{"spec":"canary-in-a-spec"}}"#,
    ),
    (
        RecordKind::Request,
        r#"{"apiVersion":"v1","kind":"Secret","data":{"a":"canary-in-a-secret"}}"#,
    ),
    (RecordKind::Request, "canary-in-text"),
    (
        RecordKind::Response,
        r#"{"desired":{"resources":{"a":{"resource":{"kind":"X","spec":{"a":"canary-in-a-response"}}}}},
            "results":[{"severity":"SEVERITY_WARNING","message":"canary-in-a-result"}]}"#,
    ),
    (
        RecordKind::Response,
        r#"{"desired":{"composite":{"connectionDetails":{"a":"canary-in-a-detail"}}}}"#,
    ),
    (
        RecordKind::Response,
        r#"{"results":["canary-in-no-response"#,
    ),
];
const SECRET_KEY: &str = "inspector-secret";
const HEADER: &str = "canary-in-a-header";
const TOKEN: &str = "canary-in-a-viewer-token";
const WRONG_TOKEN: &str = "canary-in-a-wrong-token";
const SESSION_TOKEN: &str = "canary-in-a-session-token";

#[tokio::test]
async fn no_payload_and_no_credential_is_logged_even_at_trace_level() {
    assert_nothing_is_logged(OtlpServer::start_http().await).await;
}

#[tokio::test]
async fn nor_is_one_if_spans_are_sent_by_grpc() {
    assert_nothing_is_logged(OtlpServer::start_grpc().await).await;
}

async fn assert_nothing_is_logged(collector: OtlpServer) {
    let protocol = if collector.is_grpc() {
        "grpc"
    } else {
        "http/protobuf"
    };
    let server = S3Server::start().await;
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
        .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        .env("AWS_SESSION_TOKEN", SESSION_TOKEN)
        .env("AWS_REGION", "us-east-1")
        .env("SPANPLANE_VIEWER_ADDRESS", "127.0.0.1:0")
        .env("SPANPLANE_VIEWER_TOKEN", TOKEN)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        .env(
            "OTEL_EXPORTER_OTLP_HEADERS",
            format!("authorization=Bearer {HEADER}"),
        );
    let mut child = command.spawn().unwrap();
    let log = || fs::read_to_string(&path).unwrap();
    until("it listens", || viewer_of(&log()).is_some()).await;
    let mut client = place.client();
    for mood in [Mood::Works, Mood::Denies, Mood::Unavailable, Mood::Works] {
        server.set(mood);
        for (number, (kind, payload)) in PAYLOADS.iter().enumerate() {
            // A trace has a request and a response.
            let record = message(&format!("trace-{}", number % 3), 0, *kind, payload);
            client.emit(*kind, record.message).await.unwrap();
        }
    }
    ask_viewer(&viewer_of(&log()).unwrap()).await;

    let pid = i32::try_from(child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    assert!(child.wait().await.unwrap().success());
    // NOTE: what was never used can't have been logged. The server checks what was signed.
    assert!(server.writes() > 3 && !collector.received().is_empty());
    assert!(server.has_seen_session_token(SESSION_TOKEN));
    let bearer = format!("Bearer {HEADER}");
    let is_ours = |tried: &axum::http::HeaderMap| {
        tried
            .get("authorization")
            .is_some_and(|header| *header == bearer)
    };
    assert!(collector.tries().iter().any(is_ours));

    let logged = log();
    assert!(logged.contains("\"TRACE\""), "{logged}");
    let canaries = PAYLOADS
        .iter()
        .flat_map(|(_, payload)| canaries_of(payload));
    let canaries: Vec<_> = canaries
        .chain([SECRET_KEY, HEADER, TOKEN, WRONG_TOKEN, SESSION_TOKEN])
        .collect();
    assert_eq!(canaries.len(), 7 + 5);
    for canary in canaries {
        let mut lines = logged.lines();
        let leaking = lines.find(|line| line.contains(canary));
        assert_eq!(leaking, None, "{canary}");
    }
}

fn canaries_of(payload: &str) -> impl Iterator<Item = &str> {
    let words =
        payload.split(|character: char| !(character.is_ascii_lowercase() || character == '-'));
    words.filter(|word| word.starts_with("canary-"))
}

/// Where the viewer is served, once the log says so.
fn viewer_of(log: &str) -> Option<String> {
    let line = log.lines().find(|line| line.contains("\"listening\""))?;
    let line: Value = serde_json::from_str(line).ok()?;
    line["viewer"].as_str().map(ToOwned::to_owned)
}

/// Asks for a page with the right token and with a wrong one, in every way in which one is brought.
async fn ask_viewer(address: &str) {
    let asks = [
        (format!("/?token={TOKEN}"), String::new(), "303"),
        (format!("/?token={WRONG_TOKEN}"), String::new(), "401"),
        (
            "/".to_owned(),
            format!("Authorization: Bearer {TOKEN}\r\n"),
            "200",
        ),
        (
            "/".to_owned(),
            format!("Authorization: Bearer {WRONG_TOKEN}\r\n"),
            "401",
        ),
        (
            "/".to_owned(),
            format!("Cookie: spanplane={WRONG_TOKEN}\r\n"),
            "401",
        ),
    ];
    for (path, header, status) in asks {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let expected = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&expected), "{path} {header}: {answer}");
    }
}
