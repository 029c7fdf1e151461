//! A reconcile that was split by a restart reads like one that was not.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde_json::Value;
use spanplane::{capture::step_of, record::Record};
use tempfile::TempDir;

use crate::{
    setup::{ask_store, fill_from},
    support::{Home, capture},
};

struct Store {
    folder: TempDir,
}

impl Store {
    /// What a sidecar stores that is started anew for each of these.
    async fn of(lives: &[&[Record]]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Self { folder };
        let home = Home::new();
        for records in lives {
            fill_from(&home, &store.path(), records).await;
        }
        store
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn told(&self, arguments: &[&str]) -> String {
        let output = ask_store(&self.path(), arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(
            error.is_empty() && !told.is_empty(),
            "{arguments:?}: {error}"
        );
        told
    }

    /// Rows as programs get them, without what differs if something was joined.
    fn rows(&self) -> Vec<Value> {
        let rows = self.told(&["ls", "--limit", "0", "-o", "json"]);
        let mut rows: Vec<Value> = rows
            .lines()
            .map(|row| serde_json::from_str(row).unwrap())
            .collect();
        for row in &mut rows {
            row["revision"] = Value::Null;
            row["object"]["bytes"] = Value::Null;
        }
        rows
    }

    /// The names of all objects, in order.
    fn objects(&self) -> BTreeSet<String> {
        fn collect(folder: &Path, names: &mut BTreeSet<String>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    collect(&entry.path(), names);
                } else {
                    names.insert(entry.file_name().into_string().unwrap());
                }
            }
        }
        let mut names = BTreeSet::new();
        collect(&self.path().join("v1/reconciles"), &mut names);
        names
    }
}

#[tokio::test]
async fn a_split_reconcile_reads_like_a_whole_one() {
    let mut records = capture("network");
    records.truncate(80);
    let trace = step_of(&records[0]).meta.trace_id;
    let of_trace: Vec<_> = (0..records.len())
        .filter(|place| step_of(&records[*place]).meta.trace_id == trace)
        .collect();
    assert_eq!(of_trace.len(), 8, "four steps");
    // Steps 0 and 1, and everything around them, before the restart.
    let (before, after) = records.split_at(of_trace[4]);
    let whole = Store::of(&[&records]).await;
    let split = Store::of(&[before, after]).await;

    assert_eq!(split.objects(), whole.objects());
    let (rows, expected) = (split.rows(), whole.rows());
    assert_eq!(rows.len(), expected.len());
    for (row, expected) in rows.iter().zip(&expected) {
        assert_eq!(row, expected);
    }
    for arguments in [
        &["show", &trace][..],
        &["diff", &trace],
        &["why", "network/prod-net", "vpc", "--trace", &trace],
        &["history", "network/prod-net"],
    ] {
        assert_eq!(split.told(arguments), whole.told(arguments));
    }
}
