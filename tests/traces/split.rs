//! A reconcile that is split, by a stop, by a kill or over two sidecars, is one object, one row and
//! one trace.

use futures_util::TryStreamExt as _;
use opentelemetry_proto::tonic::{common::v1::any_value::Value, trace::v1::Span};
use spanplane::{
    archive::{Archive, Query},
    capture::{Replay, step_of},
    ids::OtelSpanId,
    line::{Line, PayloadState, Status},
    record::Record,
    time::{Clock as _, SystemClock},
};

use crate::{
    program::Program,
    setup::{is_root, sending_to, spans, text, until, value},
    support::{
        Home, assert_all_payloads_stored, capture, documents, folder_archive, otlp::OtlpServer,
        stop,
    },
};

const STEPS: usize = 4;

/// The messages of a reconcile of four steps, as what happens now.
fn reconcile(run: &str) -> Vec<Record> {
    let records = capture("network");
    let trace = step_of(&records[0]).meta.trace_id;
    let of_trace = records
        .into_iter()
        .filter(|it| step_of(it).meta.trace_id == trace);
    let mut replay = Replay::new(run.to_owned());
    let replayed = of_trace.map(|record| {
        let (_, message) = replay.next(&record, SystemClock.now());
        Record { message, ..record }
    });
    let replayed: Vec<_> = replayed.collect();
    assert_eq!(replayed.len(), 2 * STEPS);
    replayed
}

/// The only row that a reader gives, which holds everything.
async fn only_row(archive: &Archive) -> Line {
    let rows: Vec<_> = archive
        .read_index(Query::default())
        .try_collect()
        .await
        .unwrap();
    let [row] = &rows[..] else {
        panic!("{rows:?}");
    };
    assert_eq!((row.steps.len(), row.status), (STEPS, Status::Ok));
    assert_eq!(row.object.state, PayloadState::Stored);
    for step in &row.steps {
        assert!(
            step.request.is_some() && step.response.is_some(),
            "{step:?}"
        );
    }
    row.clone()
}

async fn assert_one(archive: &Archive, records: &[Record]) -> Line {
    let stored = documents(archive).await;
    assert_eq!(stored.len(), 1, "{:?}", stored.keys());
    assert_all_payloads_stored(records, &stored);
    let row = only_row(archive).await;
    assert_eq!(stored.keys().next(), Some(&row.object.key));
    row
}

/// The last root that came says what the whole is, and no step has two ids.
fn assert_trace(spans: &[Span], row: &Line) {
    let root = spans.iter().rfind(|span| is_root(span)).unwrap();
    assert_eq!(
        value(&root.attributes, "crossplane.reconcile.steps"),
        Some(&Value::IntValue(4))
    );
    assert_eq!(text(&root.attributes, "crossplane.reconcile.status"), "ok");
    assert_eq!(text(&root.attributes, "crossplane.object.state"), "stored");
    assert_eq!(
        text(&root.attributes, "crossplane.object.key"),
        row.object.key
    );
    let mut ids: Vec<_> = spans
        .iter()
        .filter(|span| !is_root(span))
        .map(|span| span.span_id.clone())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let mut expected: Vec<_> = row
        .steps
        .iter()
        .map(|step| OtelSpanId::of(&step.span_id).0.to_vec())
        .collect();
    expected.sort_unstable();
    assert_eq!(ids, expected);
    assert!(spans.iter().all(|span| span.trace_id == root.trace_id));
}

#[tokio::test]
async fn split_by_a_stop() {
    let home = Home::new();
    let collector = OtlpServer::start_grpc().await;
    let records = reconcile("stop");
    // Between two steps, and within one.
    let (first, rest) = records.split_at(5);
    for part in [first, rest] {
        let program = Program::start(&home, collector.url()).await;
        home.emit_all(part).await;
        program.terminate().await;
    }
    let row = assert_one(&home.archive(), &records).await;
    assert_eq!(row.revision, 1);
    assert_trace(&spans(&collector), &row);
}

#[tokio::test]
async fn split_by_kills() {
    let home = Home::new();
    let collector = OtlpServer::start_grpc().await;
    let records = reconcile("kill");
    for part in records.chunks(3) {
        let program = Program::start(&home, collector.url()).await;
        home.emit_all(part).await;
        program.kill().await;
    }
    Program::start(&home, collector.url())
        .await
        .terminate()
        .await;
    let row = assert_one(&home.archive(), &records).await;
    assert_trace(&spans(&collector), &row);
}

#[tokio::test]
async fn split_over_two_sidecars_that_share_a_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("--store=file://{}", folder.path().display());
    let collector = OtlpServer::start_grpc().await;
    let records = reconcile("two");
    let (first, rest) = records.split_at(4);
    let homes = [Home::new(), Home::new()];
    let mut sidecars = Vec::new();
    for (home, part) in homes.iter().zip([first, rest]) {
        let settings = sending_to(collector.url(), "always_on", home.settings(&[&store]));
        sidecars.push(spanplane::serve::Sidecar::start(settings).await.unwrap());
        home.emit_all(part).await;
    }
    // Nobody is in a hurry: the rest waits for its beginning.
    let archive = folder_archive(folder.path());
    until("the whole is stored", || {
        let collected = spans(&collector);
        let roots = collected.iter().filter(|span| is_root(span));
        let mut steps = roots.map(|root| value(&root.attributes, "crossplane.reconcile.steps"));
        steps.next_back().flatten() == Some(&Value::IntValue(4))
    })
    .await;
    for sidecar in sidecars {
        stop(sidecar).await;
    }
    let row = assert_one(&archive, &records).await;
    assert_trace(&spans(&collector), &row);
}

#[tokio::test]
async fn split_over_two_sidecars_that_stop_at_once() {
    for run in ["a", "b", "c"] {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("--store=file://{}", folder.path().display());
        let records = reconcile(run);
        let (first, rest) = records.split_at(4);
        let homes = [Home::new(), Home::new()];
        let [one, other] = &homes;
        let (early, late) = (one.start(&[&store]).await, other.start(&[&store]).await);
        one.emit_all(first).await;
        other.emit_all(rest).await;
        tokio::join!(stop(early), stop(late));
        assert_one(&folder_archive(folder.path()), &records).await;
    }
}
