//! What a sampler leaves out, and what goes out all the same.

use std::collections::BTreeSet;

use futures_util::TryStreamExt as _;
use spanplane::{archive::Query, ids::OtelTraceId, line::Line, serve::Sidecar};

use crate::{
    setup::{fill_spool, roots, sending_to, spans},
    support::{Home, capture, otlp::OtlpServer, stop},
};

/// Sends what a ratio of 0 leaves of a capture; returns how many of how many reconciles that is.
async fn kept_of(name: &str) -> (usize, usize) {
    let home = Home::new();
    fill_spool(&home.data_dir(), &capture(name)).await;
    let collector = OtlpServer::start_grpc().await;
    let settings = sending_to(
        collector.url(),
        "parentbased_traceidratio=0",
        home.settings(&[]),
    );
    stop(Sidecar::start(settings).await.unwrap()).await;

    let lines = home.archive().read_index(Query::default());
    let lines: Vec<Line> = lines.try_collect().await.unwrap();
    let is_kept = |line: &&Line| line.changed || line.status.is_failure() || line.dropped_count > 0;
    let kept = lines.iter().filter(is_kept);
    let kept: BTreeSet<_> = kept
        .map(|line| OtelTraceId::of(&line.trace_id).0.to_vec())
        .collect();
    let sent = spans(&collector);
    assert_eq!(roots(&sent), kept);
    let steps = lines.iter().filter(is_kept).map(|line| line.steps.len());
    assert_eq!(sent.len(), kept.len() + steps.sum::<usize>());
    (kept.len(), lines.len())
}

#[tokio::test]
async fn only_what_changed_is_sent_of_an_idle_platform() {
    assert_eq!(kept_of("steady-idle").await, (2, 22));
}

#[tokio::test]
async fn what_fails_again_is_sent_again() {
    assert_eq!(kept_of("operation").await, (8, 8));
}

#[tokio::test]
async fn off_means_that_nothing_is_sent_whatever_happened() {
    for sampler in ["always_off", "parentbased_always_off"] {
        let home = Home::new();
        fill_spool(&home.data_dir(), &capture("operation")).await;
        let collector = OtlpServer::start_grpc().await;
        let settings = sending_to(collector.url(), sampler, home.settings(&[]));
        stop(Sidecar::start(settings).await.unwrap()).await;

        let lines = home.archive().read_index(Query::default());
        let lines: Vec<Line> = lines.try_collect().await.unwrap();
        assert_eq!(lines.len(), 8, "everything else is done");
        assert!(collector.tries().is_empty(), "{sampler}");
        let waiting = std::fs::read_dir(home.data_dir().join("outbox/traces")).unwrap();
        assert_eq!(waiting.count(), 0);
    }
}
