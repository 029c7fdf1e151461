//! `health` says of what was on its way whether it has arrived, however much of it there is.

use std::{collections::BTreeMap, fs, path::Path};

use spanplane::record::RecordKind;
use tempfile::tempdir;

use crate::{
    setup::{ask_store, code_of, copy, program, store, text_of},
    support::{
        Home, message,
        s3::{Mood, S3Server},
    },
};

const WHAT: &str = "payloads that have not arrived";

/// Has every line in a store say that its object is on its way; returns the lines' traces by the
/// keys of their objects, in the order in which they began.
fn queue_all(folder: &Path) -> BTreeMap<String, Vec<String>> {
    let mut traces: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for day in fs::read_dir(folder.join("v1/index")).unwrap() {
        for hour in fs::read_dir(day.unwrap().path()).unwrap() {
            for file in fs::read_dir(hour.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                if path.extension().is_none_or(|ending| ending != "zst") {
                    continue;
                }
                let lines = zstd::decode_all(&fs::read(&path).unwrap()[..]).unwrap();
                let mut queued = String::new();
                for line in text_of(&lines).lines() {
                    let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
                    let object = &mut line["object"];
                    object["state"] = "queued".into();
                    let key = object["key"].as_str().unwrap().to_owned();
                    let trace = line["trace_id"].as_str().unwrap().to_owned();
                    traces.entry(key).or_default().push(trace);
                    queued.push_str(&line.to_string());
                    queued.push('\n');
                }
                fs::write(path, zstd::encode_all(queued.as_bytes(), 0).unwrap()).unwrap();
            }
        }
    }
    traces
}

/// The row about them, and the exit code.
fn row_of(told: &str) -> &str {
    told.lines().find(|line| line.contains(WHAT)).unwrap()
}

#[test]
fn one_object_that_never_arrived_is_found_among_many_newer_ones_that_did() {
    let folder = tempdir().unwrap();
    copy(store(), folder.path());
    let traces = queue_all(folder.path());
    assert!(traces.len() > 40, "{}", traces.len());
    let question = ["health", "--since", "2026-11-16", "-o", "wide"];
    let ask = || text_of(&ask_store(folder.path(), &question).stdout);
    let told = ask();
    assert!(row_of(&told).starts_with("✓"), "{told}");

    // The oldest: a key ends in the time at which its reconcile began.
    let time_of = |key: &str| {
        key.rsplit('/')
            .take(2)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let oldest = traces.keys().min_by_key(|key| {
        let mut time = time_of(key);
        time.reverse();
        time
    });
    let oldest = oldest.unwrap();
    fs::remove_file(folder.path().join(oldest)).unwrap();
    let told = ask();
    let row = row_of(&told);
    let count = traces[oldest].len();
    assert!(row.starts_with(&format!("✗  {WHAT}")), "{told}");
    assert!(row.contains(&format!("  {count}  ")), "{count}: {told}");
    let is_named = |trace: &String| row.contains(trace.get(..8).unwrap());
    assert!(traces[oldest].iter().any(is_named), "{told}");
}

#[tokio::test]
async fn what_the_store_gives_no_answer_about_does_not_count_as_arrived() {
    let server = S3Server::start().await;
    server.set(Mood::Refuses("xr-of-t/"));
    let home = Home::with_s3(&server);
    let records = ["other", "t"].map(|trace| {
        [RecordKind::Request, RecordKind::Response]
            .map(|kind| message(trace, 0, kind, r#"{"a":1}"#))
    });
    home.play(&[], &records.concat()).await;
    let store = S3Server::url("some/prefix");
    let ask = async || {
        let mut command = program(&["health", "--since", "2026-11-16", "--store", &store]);
        command
            .env("AWS_ENDPOINT_URL", server.endpoint())
            .env("AWS_ACCESS_KEY_ID", "inspector")
            .env("AWS_SECRET_ACCESS_KEY", "inspector-secret")
            .env("AWS_REGION", "us-east-1")
            .env(
                "PIPELINE_INSPECTOR_SOCKET",
                home.path().join("elsewhere/socket"),
            );
        let output = tokio::process::Command::from(command)
            .output()
            .await
            .unwrap();
        (code_of(&output), text_of(&output.stdout))
    };
    let (code, told) = ask().await;
    assert_eq!(code, 1, "{told}");
    assert!(row_of(&told).starts_with("✗"), "{told}");

    server.set(Mood::DeniesReading("xr-of-t/"));
    let (code, told) = ask().await;
    assert_eq!(code, 3, "{told}");
    assert!(row_of(&told).starts_with("✗"), "{told}");
    assert!(told.contains("✗  an answer of the store"), "{told}");
}
