//! What the history of many subjects really takes in memory, as the kernel counts it.

#![cfg(test)]

use std::{
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::Path,
    sync::Arc,
};

use spanplane::{
    fingerprint::Fingerprint,
    history::{Basis, History, Last, LastObject},
    line::Line,
    reconcile::SubjectIdentity,
    time::Timestamp,
};

/// The limit of 16 MiB is for what the entries take from the allocator. The gaps between them come on
/// top: 27 MiB were measured after noting all, 35 MiB if an equal history was loaded and dropped before.
const MAX_GROWTH_KIB: u64 = 40 * 1024;

const SUBJECTS: u64 = 100_000;
const STORE: &str = "s3://bucket/";
const AT: &str = "2026-11-16T04:36:46Z";

const LINE: &str = r#"{"v":1,"trace_id":"t","otel_trace_id":"","root_span_id":"","previous_trace_id":null,
    "started_at":"2026-11-16T04:36:46Z","ended_at":"2026-11-16T04:36:46Z","duration_ms":1.0,"subject":
    {"type":"composite","api_version":"","kind":"","namespace":"","name":"","uid":"","composition":"",
    "composition_revision":null,"generation":1,"resource_version":null},"status":"ok","changed":true,
    "steps":[],"object":{"key":"k","state":"stored","bytes":1},"resources":{"create":[],"update":[],
    "delete":[],"unchanged":0}}"#;

/// What this process has in memory.
fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.unwrap().split_whitespace().next().unwrap();
    number.parse().unwrap()
}

fn name(index: u64) -> String {
    format!("{index:036}")
}

fn note(history: &mut History, index: u64, line: &Line) {
    let at = Timestamp::from_nanos(1_000_000_000);
    let name = name(index);
    let last = Last {
        trace_id: name.as_str().into(),
        previous: Some(Arc::from(name.as_str())),
        ended_at: at,
        fingerprint: Fingerprint::of(name.as_bytes()),
        object: Some(LastObject {
            key: format!("v1/reconciles/Kind.example.org/default/{name}/{name}.json.zst").into(),
            started_at: at,
            stored_at: Some(at),
            bytes: 1,
        }),
    };
    let mut fields = vec![0; 2_000];
    fastrand::Rng::with_seed(index).fill(&mut fields);
    history.note(&SubjectIdentity(name.as_str().into()), last, line, fields);
}

/// A journal as an earlier process left it.
fn write_journal(path: &Path) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    writeln!(file, r#"{{"v":2,"store":"{STORE}"}}"#).unwrap();
    let fingerprint = "00".repeat(32);
    let details = "QUJD".repeat(700);
    for index in 0..SUBJECTS {
        let name = name(index);
        let object = format!(
            r#"{{"key":"v1/reconciles/Kind.example.org/default/{name}/{name}.json.zst","started_at":"{AT}","stored_at":"{AT}","bytes":1}}"#
        );
        writeln!(
            file,
            r#"{{"subject":"{name}","trace_id":"{name}","previous":null,"ended_at":"{AT}","fingerprint":"{fingerprint}","object":{object},"line":"{details}","fields":""}}"#
        )
        .unwrap();
    }
}

#[test]
fn a_hundred_thousand_subjects_fit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    write_journal(&path);
    let before = resident_kib();
    let mut history = History::on_disk(
        &(std::sync::Arc::new(spanplane::disk::LocalDisk) as spanplane::disk::SharedDisk),
        &path,
        Basis {
            store: STORE.to_owned(),
            redaction: String::new(),
        },
    )
    .unwrap();
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < MAX_GROWTH_KIB, "{grown} KiB after a start");
    let newest = SubjectIdentity(name(SUBJECTS - 1).as_str().into());
    assert!(history.last(&newest).is_some());
    drop(history);

    let mut history = History::in_process();
    let line: Line = serde_json::from_str(LINE).unwrap();
    for index in 0..SUBJECTS {
        note(&mut history, index, &line);
    }
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < MAX_GROWTH_KIB, "{grown} KiB after noting all");
    assert!(history.last(&newest).is_some());
}
