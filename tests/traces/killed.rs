//! Killed under load while the collector is away: what was acknowledged arrives once it is back.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use futures_util::TryStreamExt as _;
use opentelemetry_proto::tonic::trace::v1::Span;
use spanplane::{
    archive::Query,
    capture::step_of,
    ids::{OtelSpanId, OtelTraceId},
    record::Record,
};
use tokio::task::JoinSet;

use crate::{
    program::Program,
    setup::{SpanKey, assert_told_once, free_address, is_root, spans, until, without_state},
    support::{Home, capture, otlp::OtlpServer},
};

/// Captures that are sent side by side; no two share a subject.
const SIDE_BY_SIDE: [&str; 4] = ["network", "dropper", "broken", "steady-start"];
const LIVES: usize = 4;

/// What came of sending.
#[derive(Default)]
struct Sent {
    acknowledged: Vec<Record>,
    /// Nobody knows whether they were taken.
    unanswered: Vec<Record>,
}

/// Sends messages until the program dies; returns what is left to send, without what belongs to
/// reconciles that began before: core does not go on with these either.
async fn send_until_killed(home: &Home, records: Vec<Record>, sent: &Mutex<Sent>) -> Vec<Record> {
    let mut client = home.client();
    let mut begun = BTreeSet::new();
    let mut left = records.into_iter();
    for record in left.by_ref() {
        begun.insert(step_of(&record).meta.trace_id);
        let taken = client.emit(record.kind, record.message.clone()).await;
        let mut sent = sent.lock().unwrap();
        if taken.is_err() {
            sent.unanswered.push(record);
            break;
        }
        sent.acknowledged.push(record);
    }
    left.filter(|record| !begun.contains(&step_of(record).meta.trace_id))
        .collect()
}

fn key_of(record: &Record) -> SpanKey {
    let meta = step_of(record).meta;
    let trace_id = OtelTraceId::of(&meta.trace_id).0.to_vec();
    (trace_id, OtelSpanId::of(&meta.span_id).0.to_vec())
}

/// Sends captures to a program that is killed again and again; returns what came of that.
async fn send_to_the_killed(home: &Arc<Home>, collector: &str) -> Sent {
    let sent = Arc::new(Mutex::new(Sent::default()));
    let mut left: Vec<_> = SIDE_BY_SIDE.into_iter().map(capture).collect();
    let total: usize = left.iter().map(Vec::len).sum();
    for life in 1..=LIVES {
        let program = Program::start(home, collector).await;
        let mut clients = JoinSet::new();
        for records in std::mem::take(&mut left) {
            let (home, sent) = (Arc::clone(home), Arc::clone(&sent));
            clients.spawn(async move { send_until_killed(&home, records, &sent).await });
        }
        let enough = total * life / (LIVES + 2);
        until("enough is acknowledged", || {
            sent.lock().unwrap().acknowledged.len() >= enough
        })
        .await;
        program.kill().await;
        left = clients.join_all().await;
    }
    let mut sent = sent.lock().unwrap();
    std::mem::take(&mut *sent)
}

#[tokio::test]
async fn killed_without_a_collector_it_loses_no_span_that_it_acknowledged() {
    let address = free_address().await;
    let url = format!("http://{address}");
    let home = Arc::new(Home::new());
    let sent = send_to_the_killed(&home, &url).await;
    let acknowledged: BTreeSet<_> = sent.acknowledged.iter().map(key_of).collect();
    let unanswered: BTreeSet<_> = sent.unanswered.iter().map(key_of).collect();
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());

    let program = Program::start(&home, &url).await;
    let collector = OtlpServer::start_at(true, &address).await;
    // What lost its response to a kill is not waited for any more when the program stops.
    program.terminate().await;

    let path = home.path().to_str().unwrap();
    let spans = spans(&collector).into_iter();
    let spans: Vec<_> = spans.map(|span| without_state(span, path)).collect();
    let told = assert_told_once(&spans);
    let (roots, steps): (BTreeMap<_, _>, BTreeMap<SpanKey, Span>) =
        told.into_iter().partition(|(_, span)| is_root(span));
    let arrived: BTreeSet<_> = steps.into_keys().collect();
    assert!(arrived.is_superset(&acknowledged));
    let more: BTreeSet<_> = arrived.difference(&acknowledged).cloned().collect();
    assert!(more.is_subset(&unanswered), "{more:?}");
    let traces: BTreeSet<_> = arrived.into_iter().map(|(trace, _)| trace).collect();
    assert!(roots.into_keys().map(|(trace, _)| trace).eq(traces.clone()));

    let lines = home.archive().read_index(Query::default());
    let lines = lines.map_ok(|line| OtelTraceId::of(&line.trace_id).0.to_vec());
    let mut lines: Vec<_> = lines.try_collect().await.unwrap();
    lines.sort_unstable();
    assert!(lines.into_iter().eq(traces));
}
