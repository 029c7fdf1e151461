//! Replays the kept corpus of the fuzz targets: whatever fuzzing found, holds from then on.

#![cfg(test)]

use std::{fs, path::Path};

#[path = "../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "it is the library of the fuzz targets, too")]
mod fuzzing;

/// Every file in a folder has to pass.
fn replay(name: &str) {
    let (_, check) = fuzzing::TARGETS
        .into_iter()
        .find(|(target, _)| *target == name)
        .unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut count = 0;
    for entry in fs::read_dir(folder.join(name)).unwrap() {
        let path = entry.unwrap().path();
        // Only shown if it fails.
        println!("{}", path.display());
        check(&fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count > 10, "{name} has a corpus of {count}");
}

#[test]
fn messages() {
    replay("wire");
}

#[test]
fn spools() {
    replay("spool");
}

#[test]
fn payloads_to_redact() {
    replay("redactor");
}

#[test]
fn payloads_to_summarise() {
    replay("summariser");
}

#[test]
fn index_entries() {
    replay("index");
}

#[test]
fn keys() {
    replay("keys");
}

#[test]
fn requests_to_the_viewer() {
    replay("viewer");
}

#[test]
fn every_target_is_replayed() {
    let mut names: Vec<_> = fuzzing::TARGETS.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "index",
            "keys",
            "redactor",
            "spool",
            "summariser",
            "viewer",
            "wire"
        ]
    );
}
