//! Data directories and buckets that earlier versions wrote.

#![cfg(test)]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use futures_util::TryStreamExt as _;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use spanplane::{
    archive::{Archive, Query},
    capture::step_of,
    config::Telemetry,
    disk::LocalDisk,
    line::Line,
    outbox::{Quarantinable, Quarantine},
    reconcile::PayloadHash,
    record::{Record, RecordKind},
    serve::Sidecar,
    time::Timestamp,
};
use support::{Home, capture, folder_archive, otlp::OtlpServer, s3::S3Server, stop};

fn fixture(version: &str, name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fixtures.join(version).join(name)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The hashes of all payloads, and how many traces there are.
fn contents(captures: &[&str]) -> (BTreeSet<String>, usize) {
    let records: Vec<Record> = captures.iter().flat_map(|name| capture(name)).collect();
    let steps: Vec<_> = records.iter().map(step_of).collect();
    let traces: BTreeSet<_> = steps.iter().map(|step| &step.meta.trace_id).collect();
    let payloads = steps.iter().map(|step| &step.payload);
    let payloads = payloads.filter(|payload| !payload.is_empty());
    let hashes = payloads.map(|payload| PayloadHash::of(payload).to_string());
    (hashes.collect(), traces.len())
}

/// As much of a document as a pointer leads through.
#[derive(Deserialize)]
struct Document<'d> {
    #[serde(borrow)]
    steps: Vec<BTreeMap<&'d str, &'d RawValue>>,
}

impl Document<'_> {
    /// The bytes at a pointer such as `/steps/0/request`.
    fn at(&self, pointer: &str) -> &str {
        let (step, which) = pointer
            .strip_prefix("/steps/")
            .and_then(|rest| rest.split_once('/'))
            .unwrap();
        self.steps[step.parse::<usize>().unwrap()][which].get()
    }
}

/// Checks that the bucket has one line for each trace, and that every payload is where its line
/// says, byte for byte; returns the hashes of all payloads.
async fn check(archive: &Archive, traces: usize) -> BTreeSet<String> {
    let lines: Vec<Line> = archive
        .read_index(Query::default())
        .try_collect()
        .await
        .unwrap();
    let ids: BTreeSet<_> = lines.iter().map(|line| &line.trace_id).collect();
    assert_eq!((ids.len(), lines.len()), (traces, traces));
    let documents = support::documents(archive).await;
    let parsed: BTreeMap<&str, Document<'_>> = documents
        .iter()
        .map(|(key, document)| (key.as_str(), serde_json::from_str(document).unwrap()))
        .collect();
    let mut hashes = BTreeSet::new();
    for line in &lines {
        let document = &parsed[line.object.key.as_str()];
        for step in &line.steps {
            for payload in [&step.request, &step.response].into_iter().flatten() {
                let stored = document.at(&payload.pointer);
                let hash = PayloadHash::of(stored.as_bytes()).to_string();
                assert_eq!(hash, payload.sha256, "{payload:?}");
                hashes.insert(hash);
            }
        }
    }
    hashes
}

/// The ids of spans and of their traces.
fn span_ids(requests: &[ExportTraceServiceRequest]) -> BTreeSet<(Vec<u8>, Vec<u8>)> {
    let resources = requests.iter().flat_map(|request| &request.resource_spans);
    let scopes = resources.flat_map(|resource| &resource.scope_spans);
    let spans = scopes.flat_map(|scope| &scope.spans);
    spans
        .map(|span| (span.trace_id.clone(), span.span_id.clone()))
        .collect()
}

/// The ids of the spans that wait in a data directory, or in its quarantine to be sent again.
fn waiting_spans(data_dir: &Path) -> BTreeSet<(Vec<u8>, Vec<u8>)> {
    let folders = ["outbox/traces", "quarantine/retry"];
    let folders = folders.map(|folder| fs::read_dir(data_dir.join(folder)));
    let batches = folders.into_iter().flatten().flatten();
    let batches = batches.map(|batch| batch.unwrap().path());
    let batches = batches.filter(|path| path.to_str().unwrap().ends_with(".otlp.zst"));
    let batches = batches.map(|path| {
        let packed = fs::read(path).unwrap();
        let request = zstd::decode_all(&packed[..]).unwrap();
        ExportTraceServiceRequest::decode(&request[..]).unwrap()
    });
    span_ids(&batches.collect::<Vec<_>>())
}

/// Runs a sidecar on the data directory of a home until nothing is left to be done, and checks that
/// the collector got every span that waited there; returns what the sidecar counted.
async fn finish(home: &Home) -> String {
    let waiting = waiting_spans(&home.data_dir());
    assert!(waiting.len() > 10, "{}", waiting.len());
    let collector = OtlpServer::start_grpc().await;
    let mut settings = home.settings(&[]);
    settings.telemetry = Telemetry::from_variables(&|name: &str| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(collector.url().to_owned()),
        "OTEL_EXPORTER_OTLP_PROTOCOL" => Some("grpc".to_owned()),
        _ => None,
    });
    let metrics = stop(Sidecar::start(settings).await.unwrap()).await;
    let missing = &waiting - &span_ids(&collector.received());
    assert!(missing.is_empty(), "{missing:?}");
    metrics
}

#[tokio::test]
async fn a_data_directory_of_version_0_1_is_finished() {
    let server = S3Server::start().await;
    let home = Home::with_s3(&server);
    copy(&fixture("v0.1", "data"), &home.data_dir());
    let metrics = finish(&home).await;
    let (payloads, traces) = contents(&["requirements", "operation"]);
    let stored = check(&home.archive(), traces).await;
    assert_eq!(stored, payloads, "{metrics}");
}

#[tokio::test]
async fn a_bucket_of_version_0_1_is_read() {
    let (payloads, traces) = contents(&["dropper", "requirements", "operation"]);
    let stored = check(&folder_archive(&fixture("v0.1", "bucket")), traces).await;
    assert_eq!(stored, payloads);
}

#[tokio::test]
async fn a_data_directory_of_version_0_2_dev_is_finished() {
    let server = S3Server::start().await;
    let home = Home::with_s3(&server);
    copy(&fixture("v0.2-dev", "data"), &home.data_dir());
    let metrics = finish(&home).await;
    let (mut payloads, traces) = contents(&["requirements", "operation"]);
    // What is in quarantine stays there.
    let quarantine = home.data_dir().join("quarantine");
    let kept = Quarantine::list(&LocalDisk, &quarantine).unwrap();
    let [kept] = &kept[..] else {
        panic!("{kept:?}")
    };
    assert_eq!(kept.what, Quarantinable::Message);
    assert!(kept.note(&LocalDisk).is_some());
    let quarantined = step_of(&Record {
        kind: RecordKind::Request,
        received_at: Timestamp::default(),
        message: fs::read(&kept.path).unwrap().into(),
    });
    let (_, received_twice) = contents(&["requirements"]);
    let stored = check(&home.archive(), traces + received_twice).await;
    let missing = PayloadHash::of(&quarantined.payload).to_string();
    if !stored.contains(&missing) {
        assert!(payloads.remove(&missing));
    }
    assert_eq!(stored, payloads, "{metrics}");
}

#[tokio::test]
async fn a_bucket_of_version_0_2_dev_is_read() {
    let (payloads, traces) = contents(&["dropper", "operation"]);
    let archive = folder_archive(&fixture("v0.2-dev", "bucket"));
    let stored = check(&archive, traces).await;
    assert_eq!(stored, payloads);
    let lines = archive.read_index(Query::default());
    let lines: Vec<Line> = lines.try_collect().await.unwrap();
    assert!(lines.iter().any(|line| line.revision > 0), "a merged one");
}

#[tokio::test]
async fn a_data_directory_of_version_0_3_dev_is_finished() {
    let server = S3Server::start().await;
    let home = Home::with_s3(&server);
    copy(&fixture("v0.3-dev", "bucket"), &server.file("some/prefix"));
    copy(&fixture("v0.3-dev", "data"), &home.data_dir());
    let quarantine = home.data_dir().join("quarantine");
    fs::create_dir_all(quarantine.join("retry")).unwrap();
    let mut kinds = BTreeSet::new();
    for file in Quarantine::list(&LocalDisk, &quarantine).unwrap() {
        assert!(file.note(&LocalDisk).is_some(), "{file:?}");
        kinds.insert(file.what.kind());
        Quarantine::retry(&LocalDisk, &file).unwrap();
    }
    assert_eq!(kinds, BTreeSet::from(["index", "objects", "traces"]));
    let metrics = finish(&home).await;
    assert_eq!(Quarantine::list(&LocalDisk, &quarantine).unwrap(), []);
    let (payloads, once) = contents(&["requirements", "operation"]);
    let (_, requirements) = contents(&["requirements"]);
    let traces = 2 * once + requirements;
    let stored = check(&home.archive(), traces).await;
    assert_eq!(stored, payloads, "{metrics}");
}
