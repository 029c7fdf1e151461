//! Which lines are given.

use super::*;
use crate::line::{Dropped, Status};

/// What each of these asks for, of three lines.
async fn asked(query: Query) -> Vec<String> {
    let archive = in_memory();
    let mut a = line("0f0a1b2c-3d4e-4f50-8172-93a4b5c6d7e8", at(3));
    a.status = Status::Fatal;
    a.subject.kind = "XCluster".to_owned();
    a.dropped_count = 1;
    let mut b = line("trace-789", at(2));
    b.status = Status::Warning;
    b.changed = true;
    b.subject.namespace = String::new();
    b.subject.name = "quote\"d".to_owned();
    b.subject.uid = "uid-2".to_owned();
    b.steps.push(step("function-b", at(2)));
    let mut c = line("c", at(1));
    c.subject.api_version = "v1".to_owned();
    c.dropped.push(Dropped {
        resource: "bucket".to_owned(),
        step: None,
        observed: true,
    });
    put(&archive, &key(at(0), 1, 1), batch([&a, &b, &c])).await;
    let short = |trace: String| trace.chars().take(1).collect();
    let traces = traces(&archive, query).await;
    traces.into_iter().map(short).collect()
}

async fn asked_of(subject: SubjectFilter) -> Vec<String> {
    let query = Query {
        subject,
        ..Query::default()
    };
    asked(query).await
}

#[tokio::test]
async fn subjects_are_asked_for_by_any_of_their_names() {
    let filter = SubjectFilter::default;
    let some = |text: &str| Some(text.to_owned());
    #[rustfmt::skip]
    let cases = [
        (filter(), vec!["0", "t", "c"]),
        (SubjectFilter { kind: some("xcluster"), ..filter() }, vec!["0"]),
        (SubjectFilter { kind: some("NETWORK"), ..filter() }, vec!["t", "c"]),
        (SubjectFilter { kind: some("net"), ..filter() }, vec![]),
        (SubjectFilter { group: some("platform.example.org"), ..filter() }, vec!["0", "t"]),
        (SubjectFilter { group: some(""), ..filter() }, vec!["c"]),
        (SubjectFilter { namespace: some(""), ..filter() }, vec!["t"]),
        (SubjectFilter { namespace: some("Default"), ..filter() }, vec![]),
        (SubjectFilter { name: some("quote\"d"), ..filter() }, vec!["t"]),
        (SubjectFilter { uid: some("uid-1"), ..filter() }, vec!["0", "c"]),
        (SubjectFilter { uid: some("uid-1"), kind: some("network"), ..filter() }, vec!["c"]),
    ];
    for (subject, expected) in cases {
        assert_eq!(asked_of(subject.clone()).await, expected, "{subject:?}");
    }
}

#[tokio::test]
async fn reconciles_are_asked_for_by_what_became_of_them() {
    let query = Query::default;
    let some = |text: &str| Some(text.to_owned());
    #[rustfmt::skip]
    let cases = [
        (Query { statuses: vec![Status::Fatal], ..query() }, vec!["0"]),
        (Query { statuses: vec![Status::Ok, Status::Warning], ..query() }, vec!["t", "c"]),
        (Query { changed: Some(true), ..query() }, vec!["t"]),
        (Query { changed: Some(false), ..query() }, vec!["0", "c"]),
        (Query { dropped: true, ..query() }, vec!["0", "c"]),
        (Query { function: some("function-b"), ..query() }, vec!["t"]),
        (Query { function: some("function"), ..query() }, vec![]),
        (Query { trace_id: some("0f0a1b2c3d"), ..query() }, vec!["0"]),
        (Query { trace_id: some("0f0a1b2c-3d4e"), ..query() }, vec!["0"]),
        (Query { trace_id: some("trace7"), ..query() }, vec!["t"]),
        (Query { trace_id: some(&line("c", at(0)).otel_trace_id), ..query() }, vec!["c"]),
        (Query { trace_id: some("f0a1"), ..query() }, vec![]),
        (Query { trace_id: some("cc"), ..query() }, vec![]),
        (Query { since: Some(at(2)), ..query() }, vec!["0", "t"]),
        (Query { until: Some(at(2)), ..query() }, vec!["c"]),
        (Query { since: Some(at(2)), until: Some(at(3)), ..query() }, vec!["t"]),
    ];
    for (query, expected) in cases {
        assert_eq!(asked(query.clone()).await, expected, "{query:?}");
    }
}

#[tokio::test]
async fn hours_outside_the_time_asked_for_are_not_read() {
    let archive = in_memory();
    // NOTE: whoever reads these says so.
    for hour in [-25, -24, -1, 1, 20, 30] {
        let broken = b"no zstd".to_vec();
        put(&archive, &key(at(hour * 3600), 1, 1), broken).await;
    }
    put(&archive, &key(at(0), 1, 1), batch([&line("a", at(10))])).await;
    let query = Query {
        since: Some(at(10)),
        until: Some(at(3599)),
        ..Query::default()
    };
    assert_eq!(traces(&archive, query).await, ["a"]);
}

#[tokio::test]
async fn an_empty_store_holds_no_lines() {
    let folder = tempfile::tempdir().unwrap();
    for archive in [in_memory(), on_disk(folder.path())] {
        assert_eq!(read(&archive, Query::default()).await.len(), 0);
    }
}
