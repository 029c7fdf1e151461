//! Done files that were changed, cut off, lost or left over: work may be done again, never left out.

use std::fs;

use spanplane::record::Record;

use crate::home::{Home, ROOMY, numbered};

const RECORDS: u32 = 5;
/// Finished in this order.
const FINISHED: [usize; 3] = [3, 0, 2];
const ENTRY_BYTES: usize = 8;

/// A log with five records in its first segment, three of which are done; and its done file.
fn half_finished() -> (Home, Vec<u8>) {
    let home = Home::new(ROOMY);
    let mut log = home.open();
    for number in 0..RECORDS {
        log.append(&numbered(number)).unwrap();
    }
    let followed = log.follow();
    log.follower
        .finish(&FINISHED.map(|index| followed[index].0));
    let done = fs::read(home.done(1)).unwrap();
    assert_eq!(done.len(), FINISHED.len() * ENTRY_BYTES);
    (home, done)
}

/// The records that are left, if only these entries of the done file hold.
fn left_with(holding: impl Fn(usize) -> bool) -> Vec<Record> {
    let is_done = |number: &u32| {
        let entry = FINISHED.iter().position(|index| *index == *number as usize);
        entry.is_some_and(&holding)
    };
    (0..RECORDS)
        .filter(|number| !is_done(number))
        .map(numbered)
        .collect()
}

fn records_with_done_file(home: &Home, done: &[u8]) -> Vec<Record> {
    let copy = home.crashed_copy();
    fs::write(copy.done(1), done).unwrap();
    let mut log = copy.open();
    let records = log.records();
    assert_eq!(log.damaged(), 0);
    // Nothing shifts what is noted from now on.
    log.append(&numbered(99)).unwrap();
    log.finish_all();
    records
}

#[test]
fn finished_records_stay_finished() {
    let (home, done) = half_finished();
    assert_eq!(records_with_done_file(&home, &done), left_with(|_| true));
}

#[test]
fn a_changed_byte_in_a_done_file_makes_one_record_be_done_again() {
    let (home, done) = half_finished();
    for at in 0..done.len() {
        for change in [0x01, 0x80, 0xFF] {
            let mut done = done.clone();
            done[at] ^= change;
            let expected = left_with(|entry| entry != at / ENTRY_BYTES);
            assert_eq!(records_with_done_file(&home, &done), expected, "byte {at}");
        }
    }
}

#[test]
fn a_done_file_cut_off_anywhere_holds_up_to_the_cut() {
    let (home, done) = half_finished();
    for cut in 0..done.len() {
        let expected = left_with(|entry| (entry + 1) * ENTRY_BYTES <= cut);
        assert_eq!(
            records_with_done_file(&home, &done[..cut]),
            expected,
            "cut at {cut}"
        );
    }
}

#[test]
fn a_zeroed_done_file_says_nothing() {
    let (home, done) = half_finished();
    for from in 0..done.len() {
        let mut zeroed = done.clone();
        zeroed[from..].fill(0);
        // Zeros over zeros change nothing.
        let expected = left_with(|entry| {
            let bytes = entry * ENTRY_BYTES..(entry + 1) * ENTRY_BYTES;
            zeroed[bytes.clone()] == done[bytes]
        });
        assert_eq!(
            records_with_done_file(&home, &zeroed),
            expected,
            "zeros from {from}"
        );
    }
    assert_eq!(
        records_with_done_file(&home, &[0; 4096]),
        left_with(|_| false)
    );
}

#[test]
fn a_done_file_of_another_segment_says_nothing() {
    let (home, done) = half_finished();
    let log = home.open();
    for number in 0..RECORDS {
        log.append(&numbered(number)).unwrap();
    }
    drop(log);
    fs::write(home.done(2), done).unwrap();
    let expected = [left_with(|_| true), left_with(|_| false)].concat();
    assert_eq!(home.open().records(), expected);
}

#[test]
fn what_is_finished_behind_a_torn_entry_stays_finished() {
    let (home, done) = half_finished();
    fs::write(home.done(1), &done[..13]).unwrap();
    let mut log = home.open();
    let followed = log.follow();
    log.follower.finish(&[followed[0].0]);
    drop(log);
    let left: Vec<_> = followed[1..]
        .iter()
        .map(|(_, record)| record.clone())
        .collect();
    assert_eq!(home.open().records(), left);
}

#[test]
fn a_done_file_that_cannot_be_read_makes_its_segment_be_done_again() {
    let (home, _) = half_finished();
    fs::remove_file(home.done(1)).unwrap();
    fs::create_dir(home.done(1)).unwrap();
    let mut log = home.open();
    assert_eq!(log.records(), left_with(|_| false));
}

#[test]
fn a_done_file_left_behind_by_its_segment_does_not_hide_new_records() {
    let home = Home::new(ROOMY);
    let (_, done) = half_finished();
    fs::create_dir(home.spool()).unwrap();
    // As a process leaves it that dies while it removes its only segment.
    fs::write(home.done(1), &done).unwrap();
    let mut log = home.open();
    for number in 0..RECORDS {
        log.append(&numbered(number)).unwrap();
    }
    assert_eq!(log.records(), left_with(|_| false));
    assert!(!home.done(1).try_exists().unwrap());
    drop(log);
    assert_eq!(home.open().records(), left_with(|_| false));
}
