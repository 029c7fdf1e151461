//! A disk that is full, read-only or slow: the append is answered so, and nothing else is harmed.

use std::{
    io,
    task::{Context, Waker},
    time::Duration,
};

use spanplane::{
    record::Record,
    spool::{AppendError, OpenError},
};

use crate::{
    disk::{Call, TestDisk},
    home::{FIRST_OFFSET, HEADER_BYTES, Home, ROOMY, numbered, sized},
};

const LENGTH: usize = 100;
const FRAME: u64 = (HEADER_BYTES + LENGTH) as u64;

fn record(number: u32) -> Record {
    sized(number, LENGTH)
}

fn assert_kind<T>(outcome: Result<T, AppendError>, kind: io::ErrorKind) {
    match outcome {
        Err(AppendError::Write { source, .. }) => assert_eq!(source.kind(), kind),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("was taken"),
    }
}

#[test]
fn a_disk_that_fills_up_anywhere_in_a_frame_loses_nothing_that_was_answered() {
    for part in 0..FRAME {
        let home = Home::new(ROOMY);
        let disk = TestDisk::with_room(FIRST_OFFSET as u64 + 2 * FRAME + part);
        let mut log = home.open_on(&disk);
        log.append(&record(1)).unwrap();
        log.append(&record(2)).unwrap();
        for _ in 0..2 {
            assert_kind(log.append(&record(3)), io::ErrorKind::StorageFull);
        }
        assert_eq!(log.records(), [record(1), record(2)], "{part} bytes fit");
        let copy = home.crashed_copy();
        let mut crashed = copy.open();
        assert_eq!(
            crashed.records(),
            [record(1), record(2)],
            "{part} bytes fit"
        );
        assert_eq!((crashed.torn(), crashed.damaged()), (0, 0));

        disk.set_room(None);
        log.append(&record(4)).unwrap();
        assert_eq!(log.records(), [record(4)], "{part} bytes fit");
        drop(log);
        let all = [record(1), record(2), record(4)];
        assert_eq!(home.open().records(), all, "{part} bytes fit");
    }
}

#[test]
fn a_record_that_fits_on_a_disk_that_refused_a_larger_one_is_taken() {
    let home = Home::new(ROOMY);
    let disk = TestDisk::with_room(FIRST_OFFSET as u64 + FRAME);
    let mut log = home.open_on(&disk);
    assert_kind(
        log.append(&sized(1, LENGTH + 1)),
        io::ErrorKind::StorageFull,
    );
    log.append(&record(2)).unwrap();
    assert_eq!(log.records(), [record(2)]);
}

#[test]
fn a_segment_that_cannot_be_cut_back_is_given_up_with_nothing_lost() {
    for part in 0..FRAME {
        let home = Home::new(ROOMY);
        let disk = TestDisk::with_room(FIRST_OFFSET as u64 + FRAME + part);
        let mut log = home.open_on(&disk);
        log.append(&record(1)).unwrap();
        disk.fail(&[Call::Truncate]);
        assert_kind(log.append(&record(2)), io::ErrorKind::StorageFull);
        // Not even a new segment can be begun, and none is left behind.
        assert_kind(log.append(&record(3)), io::ErrorKind::StorageFull);
        assert_eq!(home.files("seg"), [home.segment(1)]);
        disk.set_room(None);
        log.append(&record(4)).unwrap();
        assert_eq!(home.files("seg").len(), 2);

        let copy = home.crashed_copy();
        let mut crashed = copy.open();
        assert_eq!(
            crashed.records(),
            [record(1), record(4)],
            "{part} bytes fit"
        );
        assert_eq!(
            (crashed.torn(), crashed.damaged()),
            (u64::from(part > 0), 0)
        );

        assert_eq!(log.records(), [record(1), record(4)], "{part} bytes fit");
        assert_eq!((log.torn(), log.damaged()), (0, 0));
        // It goes like any other once its records are done.
        drop(log);
        let mut log = home.open();
        log.finish_all();
        assert_eq!(home.files("seg").len(), 1);
    }
}

#[test]
fn an_append_nobody_waits_for_any_more_is_kept_all_the_same() {
    let mut home = Home::new(ROOMY);
    home.sync = Duration::ZERO;
    let disk = TestDisk::default();
    let mut log = home.open_on(&disk);
    disk.hold(Call::Sync);
    let mut given_up = Box::pin(log.appender.append(numbered(1)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(given_up.as_mut().poll(&mut context).is_pending());
    drop(given_up);
    disk.release();
    log.append(&numbered(2)).unwrap();
    assert_eq!(log.records(), [numbered(1), numbered(2)]);
}

#[test]
fn those_who_wait_for_the_platter_share_a_sync() {
    let mut home = Home::new(ROOMY);
    home.sync = Duration::ZERO;
    let disk = TestDisk::default();
    let mut log = home.open_on(&disk);
    let syncs = |disk: &TestDisk| {
        disk.calls()
            .iter()
            .filter(|call| **call == Call::Sync)
            .count()
    };
    disk.hold(Call::Sync);
    let appender = log.appender.clone();
    let mut context = Context::from_waker(Waker::noop());
    let mut first = Box::pin(appender.append(numbered(0)));
    assert!(first.as_mut().poll(&mut context).is_pending());
    disk.wait_until_held();
    let before = syncs(&disk);
    let mut others: Vec<_> = (1..10)
        .map(|number| Box::pin(appender.append(numbered(number))))
        .collect();
    for other in &mut others {
        assert!(other.as_mut().poll(&mut context).is_pending());
    }
    disk.release();
    log.wait_for(first).unwrap();
    for other in others {
        log.wait_for(other).unwrap();
    }
    assert_eq!(syncs(&disk), before + 1);
    assert_eq!(log.records(), (0..10).map(numbered).collect::<Vec<_>>());
}

#[test]
fn a_disk_that_hangs_does_not_keep_the_log_from_closing() {
    let home = Home::new(ROOMY);
    let disk = TestDisk::default();
    let log = home.open_on(&disk);
    disk.hold(Call::Append);
    let appender = log.appender.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let hanging = std::thread::spawn(move || runtime.block_on(appender.append(numbered(1))));
    disk.wait_until_held();
    assert!(!log.spool.close(Duration::from_millis(10)));
    disk.release();
    hanging.join().unwrap().unwrap();
}

#[test]
fn nothing_is_appended_to_a_closed_log() {
    let home = Home::new(ROOMY);
    let log = home.open();
    let appender = log.appender.clone();
    let (synced, _follower) = log.close();
    assert!(synced);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let refused = runtime.block_on(appender.append(numbered(1)));
    assert!(matches!(refused, Err(AppendError::Closed)));
}

#[test]
fn a_disk_that_takes_no_new_file_does_not_open() {
    let home = Home::new(ROOMY);
    let disk = TestDisk::default();
    disk.fail(&[Call::Create]);
    let refused = home.try_open(&disk);
    assert!(matches!(
        refused,
        Err(OpenError::Write(AppendError::Write { .. }))
    ));
    // What was locked is free again.
    disk.fail(&[]);
    home.open_on(&disk).append(&numbered(1)).unwrap();
    assert_eq!(home.open().records(), [numbered(1)]);
}

#[test]
fn a_disk_too_full_for_a_new_segment_opens_so_that_what_is_there_can_make_room() {
    let home = Home::new(ROOMY);
    home.open().append(&numbered(1)).unwrap();
    for room in 0..FIRST_OFFSET as u64 {
        let disk = TestDisk::with_room(room);
        let mut log = home.open_on(&disk);
        assert_eq!(home.files("seg"), [home.segment(1)]);
        assert_kind(log.append(&numbered(2)), io::ErrorKind::StorageFull);
        assert_eq!(log.records(), [numbered(1)]);
    }
    let disk = TestDisk::with_room(0);
    let mut log = home.open_on(&disk);
    log.finish_all();
    assert!(home.files("seg").is_empty());
    disk.set_room(None);
    log.append(&numbered(3)).unwrap();
    assert_eq!(log.records(), [numbered(3)]);
}

#[test]
fn a_quota_that_is_used_up_is_treated_as_a_full_disk() {
    let home = Home::new(ROOMY);
    let disk = TestDisk::with_quota(FIRST_OFFSET as u64 + FRAME);
    let mut log = home.open_on(&disk);
    log.append(&record(1)).unwrap();
    assert_kind(log.append(&record(2)), io::ErrorKind::QuotaExceeded);
    // The segment ends there, so that it can go and make room.
    log.finish_all();
    assert!(home.files("seg").is_empty());
    drop(log);

    home.open().append(&record(3)).unwrap();
    let mut log = home.open_on(&TestDisk::with_quota(0));
    assert_eq!(log.records(), [record(3)]);
}

#[test]
fn an_append_that_needs_a_new_segment_tries_again_once_one_can_be_created() {
    let home = Home::new(8 * 1024);
    let disk = TestDisk::default();
    let mut log = home.open_on(&disk);
    log.append(&sized(1, 1024)).unwrap();
    disk.fail(&[Call::Create]);
    for _ in 0..3 {
        assert_kind(log.append(&record(2)), io::ErrorKind::ReadOnlyFilesystem);
    }
    disk.fail(&[]);
    log.append(&record(3)).unwrap();
    assert_eq!(log.records(), [sized(1, 1024), record(3)]);
}

#[test]
fn without_a_sync_interval_every_append_is_synced_before_it_is_answered() {
    let mut home = Home::new(8 * 1024);
    home.sync = Duration::ZERO;
    let disk = TestDisk::default();
    let mut log = home.open_on(&disk);
    for number in 0..10 {
        let before = disk.calls().len();
        log.append(&sized(number, 500)).unwrap();
        let calls = disk.calls().split_off(before);
        let written = calls
            .iter()
            .rposition(|call| *call == Call::Append)
            .unwrap();
        assert!(calls[written..].contains(&Call::Sync), "{calls:?}");
        // So is the folder that a new file stands in.
        if let Some(created) = calls.iter().position(|call| *call == Call::Create) {
            assert!(calls[created..].contains(&Call::SyncFolder), "{calls:?}");
        }
    }
    assert!(
        disk.calls()
            .iter()
            .filter(|call| **call == Call::Create)
            .count()
            > 3
    );
    assert_eq!(log.records().len(), 10);
}

#[test]
fn a_record_that_cannot_be_synced_is_refused_and_may_be_kept() {
    let mut home = Home::new(ROOMY);
    home.sync = Duration::ZERO;
    let disk = TestDisk::default();
    let mut log = home.open_on(&disk);
    log.append(&record(1)).unwrap();
    disk.fail(&[Call::Sync]);
    let refused = log.append(&record(2));
    assert!(matches!(refused, Err(AppendError::Sync { .. })));
    disk.fail(&[]);
    log.append(&record(3)).unwrap();
    let all = [record(1), record(2), record(3)];
    assert_eq!(log.records(), all);
    drop(log);
    assert_eq!(home.open().records(), all);
}

#[test]
fn with_a_sync_interval_appends_do_not_wait_and_closing_syncs_what_was_written() {
    let home = Home::new(ROOMY);
    let disk = TestDisk::default();
    let log = home.open_on(&disk);
    log.append_all(&[record(1), record(2)]);
    assert!(!disk.calls().contains(&Call::Sync));
    let (synced, _follower) = log.close();
    assert!(synced);
    let calls = disk.calls();
    assert!(calls.contains(&Call::Sync));
    assert!(calls.contains(&Call::SyncFolder));
}

#[test]
fn closing_tells_when_something_could_not_be_synced() {
    for failing in [Call::Sync, Call::SyncFolder] {
        let home = Home::new(ROOMY);
        let disk = TestDisk::default();
        let log = home.open_on(&disk);
        log.append(&record(1)).unwrap();
        disk.fail(&[failing]);
        let (synced, _follower) = log.close();
        assert!(!synced, "{failing:?}");
        // The one did not keep the other from being tried.
        assert!(disk.calls().contains(&Call::Sync));
        assert!(disk.calls().contains(&Call::SyncFolder));
    }
}

#[test]
fn the_last_of_the_disk_is_left_for_what_is_made_of_the_log() {
    let home = Home::new(ROOMY);
    let disk = TestDisk::default();
    let mut log = home.open_on(&disk);
    log.append(&record(1)).unwrap();
    // What it leaves is a part of its limit, and it looks whenever a part of that was written.
    disk.set_free(ROOMY / 128);
    let taken = (2..).map_while(|number| log.append(&record(number)).ok());
    assert!(taken.count() as u64 * FRAME <= ROOMY / 128 / 16);
    assert_kind(log.append(&record(2)), io::ErrorKind::StorageFull);
    // What is there can be done with, and goes, so that there is room again.
    log.finish_all();
    assert!(home.files("seg").is_empty());
    disk.set_free(ROOMY / 128 + FRAME);
    log.append(&record(3)).unwrap();
    assert_eq!(log.records(), [record(3)]);
}
