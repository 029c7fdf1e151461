//! What was refused can be listed, sent again and deleted.

use std::{path::Path, process::Output, sync::Arc};

use spanplane::{
    disk::LocalDisk,
    outbox::{Note, Quarantinable, Quarantine},
    time::{Clock as _, SystemClock},
};
use tempfile::{TempDir, tempdir};

use crate::setup::{code_of, program, text_of};

/// A data directory with two files in quarantine.
fn data_dir() -> TempDir {
    let folder = tempdir().unwrap();
    let quarantine = Quarantine::open(
        Arc::new(LocalDisk),
        folder.path().join("quarantine"),
        1 << 20,
    )
    .unwrap();
    let put = |what, name: &str, about: &str, reason: &str| {
        let note = Note {
            what: about.to_owned(),
            reason: reason.to_owned(),
            since: SystemClock.now(),
        };
        quarantine.put(what, name, &[0; 2048], &note).unwrap();
    };
    let key = "v1/reconciles/Network/_/prod/t.json.zst";
    put(Quarantinable::Object, "7.parcel", key, "too large");
    let name = "8-3.otlp.zst";
    put(Quarantinable::Spans, name, "reconcile \u{1b}[2J", "400: no");
    folder
}

fn ask(data_dir: &Path, arguments: &[&str]) -> Output {
    let data_dir = data_dir.display().to_string();
    let arguments = [&["quarantine"], arguments, &["--data-dir", &data_dir]].concat();
    program(&arguments).output().unwrap()
}

fn listed(data_dir: &Path) -> Vec<(u64, bool)> {
    let listed = Quarantine::list(&LocalDisk, &data_dir.join("quarantine")).unwrap();
    let listed = listed.iter().map(|file| (file.id, file.is_retried));
    listed.collect()
}

#[test]
fn what_was_refused_is_listed_with_the_reason() {
    let folder = data_dir();
    let output = ask(folder.path(), &["ls"]);
    assert_eq!(code_of(&output), 0);
    let text = text_of(&output.stdout);
    let rows: Vec<_> = text.lines().collect();
    assert_eq!(rows.len(), 3, "{text}");
    let key = "v1/reconciles/Network/_/prod/t.json.zst";
    let row = format!("1   objects  2.0 KiB  0s   {key}  too large");
    assert_eq!(rows[1], row);
    // Nothing in it acts on a terminal.
    assert!(rows[2].contains("\\u001b[2J"), "{text}");

    let output = ask(folder.path(), &["ls", "-o", "json"]);
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown[1]["kind"], "traces");
    assert_eq!(shown[0]["reason"], "too large");
    assert_eq!(shown[0]["is_retried"], false);
}

#[test]
fn one_or_all_are_sent_again() {
    let folder = data_dir();
    assert_eq!(code_of(&ask(folder.path(), &["retry", "2"])), 0);
    assert_eq!(listed(folder.path()), [(1, false), (2, true)]);
    let text = text_of(&ask(folder.path(), &["ls"]).stdout);
    assert!(text.lines().nth(2).unwrap().ends_with("to be sent again"));
    // Again changes nothing.
    let output = ask(folder.path(), &["retry"]);
    assert_eq!(code_of(&output), 0);
    assert!(text_of(&output.stderr).starts_with("2 to be sent again"));
    assert_eq!(listed(folder.path()), [(1, true), (2, true)]);
}

#[test]
fn a_message_is_sent_again_unless_an_earlier_version_kept_it() {
    let folder = data_dir();
    let quarantine = folder.path().join("quarantine");
    for name in [
        "3-00000000000000000001-8-request-1794803806133007001.message",
        "4-00000000000000000001-64.message",
    ] {
        std::fs::write(quarantine.join(name), "a message").unwrap();
    }
    let output = ask(folder.path(), &["retry", "3", "4"]);
    assert_eq!(code_of(&output), 3);
    let told = text_of(&output.stderr);
    assert!(told.contains("cannot send 4 again: an earlier version"));
    assert!(
        listed(folder.path())
            .iter()
            .all(|(_, is_retried)| !is_retried)
    );
    assert_eq!(code_of(&ask(folder.path(), &["retry", "3"])), 0);
    assert!(listed(folder.path()).contains(&(3, true)));
    let output = ask(folder.path(), &["retry"]);
    assert_eq!(code_of(&output), 3);
    let told = text_of(&output.stderr);
    assert!(told.starts_with("3 to be sent again"), "{told}");
    assert!(told.contains("cannot send 4 again"), "{told}");
    assert!(listed(folder.path()).contains(&(4, false)));
}

#[test]
fn files_are_deleted_by_id() {
    let folder = data_dir();
    assert_eq!(code_of(&ask(folder.path(), &["rm"])), 2);
    assert_eq!(code_of(&ask(folder.path(), &["rm", "1", "2"])), 0);
    assert_eq!(listed(folder.path()), []);
    let names = std::fs::read_dir(folder.path().join("quarantine")).unwrap();
    assert_eq!(names.count(), 1, "only the folder for retries is left");
}

#[test]
fn what_is_not_there_is_reported() {
    let folder = data_dir();
    for action in ["retry", "rm"] {
        let output = ask(folder.path(), &[action, "1", "9"]);
        assert_eq!(code_of(&output), 1);
        assert!(text_of(&output.stderr).contains("has the id 9"));
    }
    assert_eq!(listed(folder.path()), [(1, false), (2, false)]);
    let empty = tempdir().unwrap();
    for action in ["ls", "retry"] {
        let output = ask(empty.path(), &[action]);
        assert_eq!(code_of(&output), 0);
        let said = [output.stdout, output.stderr].concat();
        assert_eq!(text_of(&said), "nothing is in quarantine\n");
    }
    let output = ask(&empty.path().join("missing"), &["ls"]);
    assert_eq!(code_of(&output), 1);
}

#[test]
fn health_lists_what_is_in_quarantine() {
    let folder = data_dir();
    let data_dir = folder.path().display().to_string();
    let question = ["health", "--store=memory:///", "--data-dir", &data_dir];
    let output = program(&question).output().unwrap();
    assert_eq!(code_of(&output), 1);
    let table = text_of(&output.stdout);
    assert!(
        table.contains("v1/reconciles/Network/_/prod/t.json.zst"),
        "{table}"
    );
    assert!(table.contains("too large"), "{table}");
    assert!(!table.contains('\u{1b}'), "{table}");
}
