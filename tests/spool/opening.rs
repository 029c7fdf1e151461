//! Who may open a data directory, and which.

use std::{fs, path::Path, time::Instant};

use spanplane::spool::{AppendError, OpenError};

use crate::{
    disk::TestDisk,
    home::{Home, Log, PATIENCE, ROOMY, numbered, open_at},
};

fn open_dir(data_dir: &Path) -> Result<Log, OpenError> {
    open_at(data_dir, ROOMY, PATIENCE, &TestDisk::default())
}

#[test]
fn a_directory_in_use_is_refused_until_its_user_is_gone() {
    let home = Home::new(ROOMY);
    let first = home.open();
    first.append(&numbered(1)).unwrap();
    for _ in 0..2 {
        let second = home.try_open(&TestDisk::default());
        assert!(matches!(second, Err(OpenError::InUse { path }) if path == home.data_dir()));
    }
    // Being refused disturbed nothing.
    first.append(&numbered(2)).unwrap();
    assert_eq!(home.files("seg"), [home.segment(1)]);
    drop(first);
    assert_eq!(home.open().records(), [numbered(1), numbered(2)]);
}

#[test]
fn a_record_that_came_late_says_so_also_after_a_restart() {
    let home = Home::new(ROOMY);
    let first = home.open();
    first.append(&numbered(2)).unwrap();
    first
        .appender
        .append_late(&numbered(1))
        .unwrap()
        .sync()
        .unwrap();
    first.append(&numbered(3)).unwrap();
    drop(first);
    let mut log = home.open();
    for (record, is_late) in [(2, false), (1, true), (3, false)] {
        let next = log.follower.next_record().unwrap();
        assert_eq!(next.map(|(_, record)| record), Some(numbered(record)));
        assert_eq!(log.follower.is_late(), is_late);
    }
}

#[test]
fn a_closed_log_frees_its_directory() {
    let home = Home::new(ROOMY);
    let first = home.open();
    first.append(&numbered(1)).unwrap();
    let (synced, _follower) = first.close();
    assert!(synced);
    assert_eq!(home.open().records(), [numbered(1)]);
}

#[test]
fn a_directory_that_does_not_exist_is_created_with_its_parents() {
    let home = Home::new(ROOMY);
    let data_dir = home.data_dir().join("var/lib/spanplane");
    let mut log = open_dir(&data_dir).unwrap();
    log.append(&numbered(1)).unwrap();
    assert_eq!(log.records(), [numbered(1)]);
}

#[test]
fn a_directory_that_is_a_file_or_below_one_is_refused() {
    let home = Home::new(ROOMY);
    let file = home.data_dir().join("file");
    fs::write(&file, b"mine").unwrap();
    for data_dir in [file.clone(), file.join("below")] {
        assert!(matches!(open_dir(&data_dir), Err(OpenError::Create { .. })));
    }
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

#[test]
fn a_lock_that_cannot_be_a_file_is_refused() {
    let home = Home::new(ROOMY);
    fs::create_dir(home.data_dir().join("lock")).unwrap();
    assert!(matches!(
        home.try_open(&TestDisk::default()),
        Err(OpenError::Lock { .. })
    ));
}

#[test]
fn an_append_rings_the_bell() {
    let home = Home::new(ROOMY);
    let log = home.open();
    log.append(&numbered(1)).unwrap();
    let start = Instant::now();
    log.bell.wait(PATIENCE);
    assert!(start.elapsed() < PATIENCE);
}

#[test]
fn a_record_longer_than_any_frame_is_refused_before_it_is_queued() {
    let home = Home::new(u64::MAX);
    let log = home.open();
    let mut record = numbered(1);
    record.message = vec![0; (1 << 30) + 1].into();
    assert!(matches!(log.append(&record), Err(AppendError::Full { .. })));
}
