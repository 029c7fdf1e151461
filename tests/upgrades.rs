//! Data directories and buckets that earlier versions wrote.

#![cfg(test)]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use futures_util::TryStreamExt as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use spanplane::{
    archive::{Archive, Query},
    capture::step_of,
    disk::LocalDisk,
    line::Line,
    outbox::{Quarantinable, Quarantine},
    reconcile::PayloadHash,
    record::{Record, RecordKind},
    time::Timestamp,
};
use support::{Home, capture, folder_archive, s3::S3Server, stop};

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

#[tokio::test]
async fn a_data_directory_of_version_0_1_is_finished() {
    let server = S3Server::start().await;
    let home = Home::with_s3(&server);
    copy(&fixture("v0.1", "data"), &home.data_dir());
    let metrics = stop(home.start(&[]).await).await;
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
    let metrics = stop(home.start(&[]).await).await;
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
