//! What waits in a data directory is told, and what waits for too long is odd.

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, SystemTime},
};

use tempfile::tempdir;

use crate::setup::{code_of, program, text_of};

fn put(path: &Path, age: Duration) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let file = File::create(path).unwrap();
    file.set_len(2048).unwrap();
    #[expect(
        clippy::disallowed_methods,
        reason = "a file has the time of the system"
    )]
    let then = SystemTime::now() - age;
    file.set_modified(then).unwrap();
}

#[test]
fn what_waits_for_too_long_is_odd() {
    let folder = tempdir().unwrap();
    let (long, short) = (Duration::from_hours(1), Duration::ZERO);
    fs::create_dir_all(folder.path().join("store")).unwrap();
    let data_dir = folder.path().display().to_string();
    let ask = || {
        let output = program(&["health", "--data-dir", &data_dir])
            .output()
            .unwrap();
        // That nothing was reconciled is odd as well.
        assert_eq!(code_of(&output), 1);
        text_of(&output.stdout)
    };
    put(&folder.path().join("spool/1.seg"), long);
    put(&folder.path().join("outbox/index/1.jsonl"), short);
    let told = ask();
    assert_eq!(told.matches('✗').count(), 1, "{told}");
    assert!(
        told.contains("2.0 KiB in 1 file, the oldest 1h0m old"),
        "{told}"
    );

    put(&folder.path().join("outbox/objects/1.parcel"), long);
    let told = ask();
    assert!(told.contains("✗  objects for the store"), "{told}");

    fs::remove_dir_all(folder.path().join("outbox")).unwrap();
    put(&folder.path().join("spool/2.seg"), short);
    let told = ask();
    assert!(told.contains("✗  messages in the spool"), "{told}");

    // What was refused waits for a person.
    put(&folder.path().join("quarantine/1-0.parcel"), short);
    put(&folder.path().join("quarantine/1.note"), short);
    let told = ask();
    let refused = "✗  refused, in quarantine          2.0 KiB in 1 file";
    assert!(told.contains(refused), "{told}");
    assert!(told.contains("✓  messages that kill the process  nothing"));
    put(
        &folder
            .path()
            .join("quarantine/2-00000000000000000001-8.message"),
        short,
    );
    let told = ask();
    assert!(told.contains("✗  messages that kill the process"), "{told}");
}
