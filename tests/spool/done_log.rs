//! A log of what is done that was changed, cut off, lost or left over: work may be done again, never
//! skipped.

use std::fs;

use spanplane::record::Record;

use crate::home::{Home, ROOMY, numbered};

const RECORDS: u32 = 5;
/// Finished in this order, one commit each.
const FINISHED: [usize; 3] = [3, 0, 2];
/// The name of the format and an empty entry.
const FIRST_ENTRY: usize = 8 + 12;
const ENTRY_BYTES: usize = 12 + 12;

/// A log with five records in its first segment, three of which are done; and the log of these.
fn half_finished() -> (Home, Vec<u8>) {
    let home = Home::new(ROOMY);
    let mut log = home.open();
    for number in 0..RECORDS {
        log.append(&numbered(number)).unwrap();
    }
    let followed = log.follow();
    for index in FINISHED {
        log.follower.finish(&[followed[index].0]).unwrap();
    }
    let done = fs::read(home.done_log()).unwrap();
    assert_eq!(done.len(), FIRST_ENTRY + FINISHED.len() * ENTRY_BYTES);
    (home, done)
}

/// The records that are left if only this many entries count.
fn left_with(entries: usize) -> Vec<Record> {
    let done = &FINISHED[..entries];
    (0..RECORDS)
        .filter(|number| !done.contains(&(*number as usize)))
        .map(numbered)
        .collect()
}

fn records_with_log(home: &Home, done: &[u8]) -> Vec<Record> {
    let copy = home.crashed_copy();
    fs::write(copy.done_log(), done).unwrap();
    let mut log = copy.open();
    let records = log.records();
    assert_eq!(log.damaged(), 0);
    // What is finished from now on counts, whatever was wrong before.
    log.append(&numbered(99)).unwrap();
    let (position, _) = log.follow()[0];
    log.follower.finish(&[position]).unwrap();
    drop(log);
    assert_eq!(copy.open().records(), records);
    records
}

#[test]
fn finished_records_stay_finished() {
    let (home, done) = half_finished();
    assert_eq!(records_with_log(&home, &done), left_with(3));
}

#[test]
fn a_changed_byte_makes_the_entry_and_those_behind_it_be_done_again() {
    let (home, done) = half_finished();
    for at in 0..done.len() {
        for change in [0x01, 0x80, 0xFF] {
            let mut done = done.clone();
            done[at] ^= change;
            let holding = at.saturating_sub(FIRST_ENTRY) / ENTRY_BYTES;
            assert_eq!(
                records_with_log(&home, &done),
                left_with(holding),
                "byte {at}"
            );
        }
    }
}

#[test]
fn a_log_cut_off_anywhere_holds_up_to_the_cut() {
    let (home, done) = half_finished();
    for cut in 0..done.len() {
        let holding = cut.saturating_sub(FIRST_ENTRY) / ENTRY_BYTES;
        assert_eq!(
            records_with_log(&home, &done[..cut]),
            left_with(holding),
            "cut at {cut}"
        );
    }
}

#[test]
fn a_log_that_cannot_be_read_makes_everything_be_done_again() {
    let (home, _) = half_finished();
    fs::remove_file(home.done_log()).unwrap();
    fs::create_dir(home.done_log()).unwrap();
    let mut log = home.open();
    assert_eq!(log.records(), left_with(0));
}

#[test]
fn a_log_left_behind_by_its_segments_does_not_hide_new_records() {
    let home = Home::new(ROOMY);
    let (_, done) = half_finished();
    fs::create_dir(home.spool()).unwrap();
    fs::write(home.done_log(), &done).unwrap();
    let mut log = home.open();
    for number in 0..RECORDS {
        log.append(&numbered(number)).unwrap();
    }
    assert_eq!(log.records(), left_with(0));
    drop(log);
    assert_eq!(home.open().records(), left_with(0));
}

#[test]
fn a_record_that_spans_no_segment_that_is_left_is_forgotten_in_time() {
    // Segments of 32 KiB.
    let home = Home::new(256 * 1024);
    let mut log = home.open();
    for number in 0..60_000 {
        log.append(&numbered(number)).unwrap();
        if number % 100 == 99 {
            log.finish_all();
        }
    }
    // 60,000 records are 720 KB.
    let bytes = fs::metadata(home.done_log()).unwrap().len();
    assert!(bytes < 400 * 1024, "{bytes}");
}

/// As the version before wrote them: an offset and a CRC-32 of the segment's number and the offset.
fn old_entry(segment: u64, offset: u32) -> Vec<u8> {
    let mut checked = segment.to_le_bytes().to_vec();
    checked.extend(offset.to_le_bytes());
    [
        offset.to_le_bytes(),
        crc32fast::hash(&checked).to_le_bytes(),
    ]
    .concat()
}

#[test]
fn what_an_older_version_noted_beside_each_segment_counts() {
    let home = Home::new(ROOMY);
    let mut log = home.open();
    for number in 0..RECORDS {
        log.append(&numbered(number)).unwrap();
    }
    let followed = log.follow();
    drop(log);
    let mut old = Vec::new();
    for index in FINISHED {
        old.extend(old_entry(1, followed[index].0.offset));
    }
    // A torn entry at its end.
    old.extend([1, 2, 3]);
    fs::write(home.old_done_file(1), &old).unwrap();
    for _ in 0..2 {
        assert_eq!(home.open().records(), left_with(3));
        assert!(!home.old_done_file(1).try_exists().unwrap());
    }
}

#[test]
fn an_old_file_left_behind_by_its_segment_does_not_hide_new_records() {
    let home = Home::new(ROOMY);
    fs::create_dir(home.spool()).unwrap();
    fs::write(home.old_done_file(1), old_entry(1, 8)).unwrap();
    let mut log = home.open();
    log.append(&numbered(1)).unwrap();
    assert_eq!(log.records(), [numbered(1)]);
    assert!(!home.old_done_file(1).try_exists().unwrap());
}
