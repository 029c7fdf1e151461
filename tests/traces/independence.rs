//! Store and collector fail independently: neither holds the other up.

use std::{collections::BTreeSet, fs, path::Path};

use futures_util::TryStreamExt as _;
use spanplane::{
    archive::Query,
    record::{Record, RecordKind},
    serve::Sidecar,
};

use crate::{
    setup::{fill_spool, free_address, payload_states, roots, sending_to, spans, traces_of, until},
    support::{
        Home, capture, counted, message,
        otlp::OtlpServer,
        s3::{Mood, S3Server},
        stop,
    },
};

/// Reconciles of one step each, which end as soon as they are answered.
fn small_reconciles(count: usize) -> Vec<Record> {
    let fatal = r#"{"results":[{"severity":"SEVERITY_FATAL","message":"no"}]}"#;
    let reconcile = |number| {
        let trace = format!("t{number}");
        [
            message(&trace, 0, RecordKind::Request, r#"{"a":1}"#),
            message(&trace, 0, RecordKind::Response, fatal),
        ]
    };
    (0..count).flat_map(reconcile).collect()
}

/// The traces in the index, in order, each as often as it stands there.
async fn index_of(home: &Home) -> Vec<String> {
    let lines = home.archive().read_index(Query::default());
    let lines = lines.map_ok(|line| line.trace_id);
    let mut traces: Vec<_> = lines.try_collect().await.unwrap();
    traces.sort_unstable();
    traces
}

/// How many files in a folder end so.
fn files(folder: &Path, ending: &str) -> usize {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(ending)).count()
}

#[tokio::test]
async fn spans_arrive_while_the_store_is_away() {
    let server = S3Server::start().await;
    server.set(Mood::Unavailable);
    let home = Home::with_s3(&server);
    let records = capture("dropper");
    fill_spool(&home.data_dir(), &records).await;
    let collector = OtlpServer::start_grpc().await;
    let settings = sending_to(collector.url(), "always_on", home.settings(&[]));
    let sidecar = Sidecar::start(settings).await.unwrap();
    let traces = traces_of(&records);
    until("every trace has its root", || {
        roots(&spans(&collector)) == traces
    })
    .await;
    let states: BTreeSet<_> = payload_states(&spans(&collector)).into_iter().collect();
    assert_eq!(states, BTreeSet::from(["queued".to_owned()]));
    assert_eq!(server.writes(), 0);

    server.set(Mood::Works);
    stop(sidecar).await;
    assert_eq!(home.documents().await.len(), traces.len());
    assert_eq!(index_of(&home).await.len(), traces.len());
}

#[tokio::test]
async fn hundreds_of_reconciles_wait_for_the_store_without_holding_up_their_spans() {
    /// More than wait in memory for their uploads. The test's store lists by reading all its
    /// files, so many more would take minutes.
    const COUNT: usize = 600;

    let server = S3Server::start().await;
    server.set(Mood::Unavailable);
    let home = Home::with_s3(&server);
    let records = small_reconciles(COUNT);
    fill_spool(&home.data_dir(), &records).await;
    let collector = OtlpServer::start_grpc().await;
    let settings = sending_to(collector.url(), "always_on", home.settings(&[]));
    let sidecar = Sidecar::start(settings).await.unwrap();
    until("every span arrived", || {
        collector.names().len() == 2 * COUNT
    })
    .await;
    assert_eq!(roots(&spans(&collector)), traces_of(&records));
    assert_eq!(server.writes(), 0);

    server.set(Mood::Works);
    let metrics = stop(sidecar).await;
    assert_eq!(
        counted(&metrics, "spanplane_objects_stored_total"),
        COUNT as u64
    );
    // Each object once, and a batch of the index or more.
    assert!(server.writes() > COUNT);
    let traces = (0..COUNT).map(|number| format!("t{number}"));
    let traces: BTreeSet<_> = traces.collect();
    assert!(index_of(&home).await.into_iter().eq(traces));
}

#[tokio::test]
async fn objects_and_index_arrive_while_the_collector_is_away() {
    let address = free_address().await;
    let home = Home::new();
    let records = capture("dropper");
    fill_spool(&home.data_dir(), &records).await;
    let url = format!("http://{address}");
    let settings = sending_to(&url, "always_on", home.settings(&[]));
    let sidecar = Sidecar::start(settings).await.unwrap();
    let traces = traces_of(&records);

    // Stopping closes the index, and then waits for the collector.
    let checking = async {
        let data = home.data_dir();
        until("the log is empty", || {
            files(&data.join("spool"), ".seg") == 1
        })
        .await;
        until("the index left", || {
            files(&data.join("outbox/index"), "") == 0
        })
        .await;
        assert_eq!(files(&data.join("outbox/objects"), ""), 0);
        assert!(files(&data.join("outbox/traces"), ".otlp.zst") > 0);
        assert_eq!(home.documents().await.len(), traces.len());
        assert_eq!(index_of(&home).await.len(), traces.len());
        OtlpServer::start_at(true, &address).await
    };
    let (_, collector) = tokio::join!(stop(sidecar), checking);
    assert_eq!(roots(&spans(&collector)), traces);
    assert_eq!(files(&home.data_dir().join("outbox/traces"), ""), 0);
}
