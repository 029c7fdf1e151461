//! A disk that is full, read-only or slow: the append is answered so, and nothing else is harmed.

use std::{
    io,
    pin::pin,
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
fn records_written_together_are_refused_together_and_leave_nothing() {
    let home = Home::new(ROOMY);
    let disk = TestDisk::with_room(FIRST_OFFSET as u64 + 3 * FRAME + 50);
    let mut log = home.open_on(&disk);
    let appender = log.appender.clone();
    disk.hold();
    let mut context = Context::from_waker(Waker::noop());
    let mut first = pin!(appender.append(record(1)));
    assert!(first.as_mut().poll(&mut context).is_pending());
    disk.wait_until_held();
    // These wait for the first, so the writer takes them all at once.
    let mut second = pin!(appender.append(record(2)));
    let mut third = pin!(appender.append(record(3)));
    let mut fourth = pin!(appender.append(record(4)));
    for append in [&mut second, &mut third, &mut fourth] {
        assert!(append.as_mut().poll(&mut context).is_pending());
    }
    disk.release();
    log.wait_for(first).unwrap();
    for append in [second, third, fourth] {
        assert_kind(log.wait_for(append), io::ErrorKind::StorageFull);
    }
    assert_eq!(home.crashed_copy().open().records(), [record(1)]);
    let refused = log.append(&sized(5, 3 * LENGTH));
    assert_kind(refused, io::ErrorKind::StorageFull);
    log.append(&record(6)).unwrap();
    assert_eq!(log.records(), [record(1), record(6)]);
}

#[test]
fn a_disk_that_hangs_makes_appends_be_refused_instead_of_waiting_in_memory() {
    let home = Home::new(ROOMY);
    let disk = TestDisk::default();
    let mut log = home.open_on(&disk);
    disk.hold();
    let appender = log.appender.clone();
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting = vec![Box::pin(appender.append(numbered(0)))];
    assert!(waiting[0].as_mut().poll(&mut context).is_pending());
    disk.wait_until_held();
    let refused = loop {
        let number = u32::try_from(waiting.len()).unwrap();
        assert!(number < 10_000, "nothing bounds the queue");
        let mut append = Box::pin(appender.append(numbered(number)));
        match append.as_mut().poll(&mut context) {
            std::task::Poll::Pending => waiting.push(append),
            std::task::Poll::Ready(outcome) => break outcome,
        }
    };
    assert!(matches!(refused, Err(AppendError::Busy { .. })));
    disk.release();
    let count = u32::try_from(waiting.len()).unwrap();
    for append in waiting {
        log.wait_for(append).unwrap();
    }
    let all: Vec<_> = (0..count).map(numbered).collect();
    assert_eq!(log.records(), all);
}

#[test]
fn an_append_nobody_waits_for_any_more_is_kept_all_the_same() {
    let home = Home::new(ROOMY);
    let disk = TestDisk::default();
    let mut log = home.open_on(&disk);
    disk.hold();
    let mut given_up = Box::pin(log.appender.append(numbered(1)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(given_up.as_mut().poll(&mut context).is_pending());
    drop(given_up);
    disk.release();
    log.append(&numbered(2)).unwrap();
    assert_eq!(log.records(), [numbered(1), numbered(2)]);
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
fn a_disk_too_full_for_a_new_segment_does_not_open_and_keeps_what_is_there() {
    let home = Home::new(ROOMY);
    home.open().append(&numbered(1)).unwrap();
    for room in 0..FIRST_OFFSET as u64 {
        let refused = home.try_open(&TestDisk::with_room(room));
        assert!(matches!(
            refused,
            Err(OpenError::Write(AppendError::Write { .. }))
        ));
        assert_eq!(home.files("seg"), [home.segment(1)]);
    }
    assert_eq!(home.open().records(), [numbered(1)]);
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
            assert!(
                calls[created..written].contains(&Call::SyncFolder),
                "{calls:?}"
            );
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
fn a_record_that_cannot_be_synced_is_refused_and_taken_back() {
    let mut home = Home::new(ROOMY);
    home.sync = Duration::ZERO;
    let disk = TestDisk::default();
    let mut log = home.open_on(&disk);
    log.append(&record(1)).unwrap();
    disk.fail(&[Call::Sync]);
    assert_kind(log.append(&record(2)), io::ErrorKind::ReadOnlyFilesystem);
    disk.fail(&[]);
    log.append(&record(3)).unwrap();
    assert_eq!(log.records(), [record(1), record(3)]);
    drop(log);
    assert_eq!(home.open().records(), [record(1), record(3)]);
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
    // What it leaves is a part of its limit.
    disk.set_free(ROOMY / 128);
    assert_kind(log.append(&record(2)), io::ErrorKind::StorageFull);
    // What is there can be done with, and goes, so that there is room again.
    log.finish_all();
    assert!(home.files("seg").is_empty());
    disk.set_free(ROOMY / 128 + FRAME);
    log.append(&record(3)).unwrap();
    assert_eq!(log.records(), [record(3)]);
}
