//! A collector that is away, overloaded or set up wrongly is waited for, and nothing is lost.

use std::time::Duration;

use crate::{
    otlp::{Fault, OtlpServer, Reply},
    setup::{GLACIAL, QUICK, Sender, all, batch, collectors},
};

/// Longest time for one call, where a collector does not answer.
const SHORT: (&str, &str) = ("OTEL_EXPORTER_OTLP_TIMEOUT", "200");

#[tokio::test]
async fn whatever_passes_is_waited_for() {
    for server in collectors().await {
        let faults = [
            Fault::Unavailable,
            Fault::Exhausted,
            Fault::Internal,
            Fault::Unauthenticated,
            Fault::Denied,
            Fault::NoSuchService,
        ];
        server.script(faults.map(Reply::Fail));
        let mut sender = Sender::new(&server);
        assert_eq!(sender.deliver(&["a", "b"]).await, all(2));
        assert_eq!(server.received(), [batch(&["a", "b"])]);
        assert_eq!((sender.failures(), sender.exported()), (6, 2));
        assert_eq!(sender.lost(), 0);
    }
}

#[tokio::test]
async fn no_number_of_failures_is_too_much_when_it_is_not_about_the_spans() {
    for server in collectors().await {
        for fault in [Fault::Unavailable, Fault::Exhausted, Fault::Denied] {
            server.script([Reply::Fail(fault); 40]);
        }
        let mut sender = Sender::new(&server);
        assert_eq!(sender.deliver(&["a", "b"]).await, all(2));
        assert_eq!(server.received(), [batch(&["a", "b"])]);
        assert_eq!(sender.failures(), 120);
    }
}

#[tokio::test]
async fn a_collector_that_says_how_long_is_asked_again_then() {
    for server in collectors().await {
        // HTTP counts in seconds.
        let after = if server.is_grpc() { 20 } else { 1_000 };
        server.script([Reply::Throttle(Duration::from_millis(after))]);
        let mut backoff = GLACIAL;
        backoff.first = Duration::from_millis(1);
        let mut sender = Sender::with(&server, &[], backoff);
        let began = tokio::time::Instant::now();
        assert_eq!(sender.deliver(&["a"]).await, all(1));
        assert!(began.elapsed() >= Duration::from_millis(after));
        assert_eq!(server.tries().len(), 2);
    }
}

#[tokio::test]
async fn a_retry_after_of_nothing_is_no_reason_to_hurry() {
    let server = OtlpServer::start_http().await;
    server.script([Reply::Throttle(Duration::ZERO)]);
    let mut sender = Sender::with(&server, &[], GLACIAL);
    sender.add(&["a"]);
    tokio::select! {
        () = sender.send_until("never", |_| false) => {}
        () = async {
            server.tried(1).await;
            // Another try would come at once.
            let again = tokio::time::timeout(Duration::from_millis(100), server.tried(2));
            again.await.unwrap_err();
        } => {}
    }
}

#[tokio::test]
async fn a_call_without_an_answer_ends_and_the_next_takes_another_connection() {
    for server in collectors().await {
        server.script([Reply::Hang]);
        let mut sender = Sender::with(&server, &[SHORT], QUICK);
        assert_eq!(sender.deliver(&["a"]).await, all(1));
        assert_eq!(server.tries().len(), 2);
        assert_eq!(server.connections(), 2);
        assert_eq!(sender.failures(), 1);
    }
}

#[tokio::test]
async fn a_connection_that_is_cut_is_made_anew() {
    for server in collectors().await {
        let mut sender = Sender::new(&server);
        assert_eq!(sender.deliver(&["a"]).await, all(1));
        server.script([Reply::Reset, Reply::Reset]);
        assert_eq!(sender.deliver(&["b"]).await, all(1));
        assert_eq!(server.names(), ["a", "b"]);
        assert_eq!(server.tries().len(), 4);
    }
}

#[tokio::test]
async fn a_batch_that_was_abandoned_can_be_delivered_again() {
    for is_grpc in [true, false] {
        let gone = OtlpServer::start_at(is_grpc, "127.0.0.1:0").await;
        let address = gone.url().strip_prefix("http://").unwrap().to_owned();
        let mut sender = Sender::with(&gone, &[SHORT], QUICK);
        drop(gone);
        sender.add(&["a"]);
        let in_vain = sender.send_until("never", |_| false);
        let limit = Duration::from_millis(100);
        tokio::time::timeout(limit, in_vain).await.unwrap_err();
        assert!(sender.failures() > 0);

        let server = OtlpServer::start_at(is_grpc, &address).await;
        assert_eq!(sender.deliver(&[]).await, all(1));
        assert_eq!(server.received(), [batch(&["a"])]);
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_a_web_page_is_no_answer() {
    let server = OtlpServer::start_http().await;
    let elsewhere = &[("location", "http://127.0.0.1:1/v1/traces")];
    let page = &[("content-type", "text/html; charset=utf-8")];
    server.script([
        Reply::Http(307, elsewhere, ""),
        Reply::Http(200, page, "<h1>please log in</h1>"),
        Reply::Http(400, &[], "Client sent an HTTP request to an HTTPS server."),
        Reply::Http(415, &[], "no gzip, please"),
    ]);
    let mut sender = Sender::new(&server);
    assert_eq!(sender.deliver(&["a", "b"]).await, all(2));
    assert_eq!(server.received(), [batch(&["a", "b"])]);
    assert_eq!(server.tries().len(), 5);
}

#[tokio::test]
async fn a_status_that_is_none_does_no_harm() {
    let server = OtlpServer::start_grpc().await;
    server.script([Reply::Fail(Fault::OddDetails)]);
    let mut sender = Sender::new(&server);
    assert_eq!(sender.deliver(&["a"]).await, all(1));
    assert_eq!(sender.failures(), 1);
    let panics = sender.counted("spanplane_panics_total{task=\"export\"}");
    assert_eq!(panics, 1, "the library panics over it");
}

#[tokio::test]
async fn an_endless_answer_is_not_read_to_its_end() {
    let server = OtlpServer::start_http().await;
    let words: &'static str = "x".repeat(8 << 20).leak();
    server.script([Reply::Http(503, &[], words), Reply::Http(200, &[], words)]);
    let mut sender = Sender::new(&server);
    assert_eq!(sender.deliver(&["a"]).await, all(1));
}
