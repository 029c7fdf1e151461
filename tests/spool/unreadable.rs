//! A disk that can't read what it holds, and files that change under a running process.

use std::{fs, time::Duration};

use spanplane::{record::Record, spool::ReadError};

use crate::home::{FIRST_OFFSET, HEADER_BYTES, Home, Log, ROOMY, numbered};

/// Follows to the end, through errors that are a second apart, and finishes what comes; returns that,
/// and how many errors there were.
fn follow_through(log: &mut Log) -> (Vec<Record>, u32) {
    let (mut records, mut errors) = (Vec::new(), 0);
    loop {
        assert!(errors < 1_000, "following stops at what can't be read");
        match log.follower.next_record() {
            Ok(Some((position, record))) => {
                log.follower.finish(&[position]).unwrap();
                records.push(record);
            }
            Ok(None) => return (records, errors),
            Err(ReadError::Read { .. }) => {
                errors += 1;
                log.clock.advance(Duration::from_secs(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// A log with two records in each of two old segments, and the bytes of the first.
fn two_old_segments() -> (Home, Vec<u8>) {
    let home = Home::new(ROOMY);
    home.open().append_all(&[numbered(1), numbered(2)]);
    home.open().append_all(&[numbered(3), numbered(4)]);
    let bytes = fs::read(home.segment(1)).unwrap();
    (home, bytes)
}

#[test]
fn a_read_that_failed_once_loses_nothing() {
    let (home, bytes) = two_old_segments();
    // In the first frame's header, in its body, and in the second frame's.
    for cut in [
        FIRST_OFFSET + 5,
        FIRST_OFFSET + HEADER_BYTES + 3,
        bytes.len() - 1,
    ] {
        let mut log = home.open();
        fs::write(home.segment(1), &bytes[..cut]).unwrap();
        let mut found = Vec::new();
        let failed = loop {
            match log.follower.next_record() {
                Ok(Some((_, record))) => found.push(record),
                Ok(None) => panic!("nothing failed"),
                Err(error) => break error,
            }
        };
        assert!(matches!(failed, ReadError::Read { .. }));
        fs::write(home.segment(1), &bytes).unwrap();
        found.extend(log.records());
        assert_eq!(found, [1, 2, 3, 4].map(numbered), "cut at {cut}");
        assert_eq!(log.damaged(), 0);
    }
}

#[test]
fn what_can_never_be_read_is_passed_by_counted_and_left_for_the_next_process() {
    let (home, bytes) = two_old_segments();
    let mut log = home.open();
    fs::write(home.segment(1), &bytes[..bytes.len() - 1]).unwrap();
    let (records, errors) = follow_through(&mut log);
    assert_eq!(records, [1, 3, 4].map(numbered));
    assert!(errors > 1);
    assert_eq!(log.damaged(), 1);
    drop(log);
    fs::write(home.segment(1), &bytes).unwrap();
    assert_eq!(home.open().records(), [numbered(2)]);
}

#[test]
fn a_segment_that_is_gone_does_not_stop_the_ones_behind_it() {
    let (home, _) = two_old_segments();
    let mut log = home.open();
    log.append(&numbered(5)).unwrap();
    fs::remove_file(home.segment(1)).unwrap();
    let (records, errors) = follow_through(&mut log);
    assert_eq!(records, [3, 4, 5].map(numbered));
    assert!(errors > 1);
    assert_eq!(log.damaged(), 1);
}

#[test]
fn damage_in_the_segment_being_written_does_not_hide_what_is_appended_behind_it() {
    for damage in [b"\xFF".repeat(HEADER_BYTES), vec![0; HEADER_BYTES]] {
        let home = Home::new(ROOMY);
        let mut log = home.open();
        log.append_all(&[numbered(1), numbered(2)]);
        let mut bytes = fs::read(home.segment(1)).unwrap();
        let second = FIRST_OFFSET + HEADER_BYTES + numbered(1).message.len();
        bytes[second..second + HEADER_BYTES].copy_from_slice(&damage);
        fs::write(home.segment(1), &bytes).unwrap();
        assert_eq!(log.records(), [numbered(1)]);
        assert_eq!(log.damaged(), 1);
        log.append(&numbered(3)).unwrap();
        assert_eq!(log.records(), [numbered(3)]);
        assert_eq!(log.damaged(), 1);
    }
}

#[test]
fn reading_again_what_is_damaged_or_gone_is_an_error() {
    let (home, mut bytes) = two_old_segments();
    let mut log = home.open();
    let followed = log.follow();
    bytes[FIRST_OFFSET + HEADER_BYTES] ^= 1;
    fs::write(home.segment(1), &bytes).unwrap();
    fs::remove_file(home.segment(2)).unwrap();
    let damaged = log.follower.read(followed[0].0);
    assert!(matches!(damaged, Err(ReadError::Damaged(position)) if position == followed[0].0));
    assert_eq!(log.follower.read(followed[1].0).unwrap(), numbered(2));
    let gone = log.follower.read(followed[2].0);
    assert!(matches!(gone, Err(ReadError::Read { segment, .. }) if segment.0 == 2));
}
