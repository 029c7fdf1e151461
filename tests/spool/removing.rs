//! Segments go from the disk when their records are done, whatever stands around them.

use std::collections::BTreeSet;

use spanplane::record::{Position, SegmentId};

use crate::home::{Home, numbered, sized};

/// Segments of 32 KiB.
const MAX_BYTES: u64 = 256 * 1024;
const LENGTH: usize = 4096;

fn segments_of(positions: &[Position]) -> BTreeSet<SegmentId> {
    positions.iter().map(|position| position.segment).collect()
}

#[test]
fn a_hanging_record_keeps_its_own_segment_and_no_other() {
    let home = Home::new(MAX_BYTES);
    let mut log = home.open();
    for number in 0..40 {
        log.append(&sized(number, LENGTH)).unwrap();
    }
    let positions: Vec<_> = log
        .follow()
        .into_iter()
        .map(|(position, _)| position)
        .collect();
    assert!(segments_of(&positions).len() >= 5);
    assert_eq!(home.files("seg").len(), segments_of(&positions).len());

    let hanging = positions[20];
    let newest = positions[39].segment;
    let before: Vec<_> = positions
        .iter()
        .filter(|at| at.segment < hanging.segment)
        .copied()
        .collect();
    log.follower.finish(&before).unwrap();
    for id in segments_of(&before) {
        assert!(!home.segment(id.0).try_exists().unwrap());
    }
    let others = positions
        .iter()
        .filter(|at| at.segment >= hanging.segment && **at != hanging);
    let others: Vec<_> = others.copied().collect();
    log.follower.finish(&others).unwrap();
    let left = [home.segment(hanging.segment.0), home.segment(newest.0)];
    assert_eq!(home.files("seg"), left);
    assert_eq!(log.follower.read(hanging).unwrap(), sized(20, LENGTH));

    // After a restart it is all that is left.
    let copy = home.crashed_copy();
    assert_eq!(copy.open().follow(), [(hanging, sized(20, LENGTH))]);

    log.follower.finish(&[hanging]).unwrap();
    assert_eq!(home.files("seg"), [home.segment(newest.0)]);
}

#[test]
fn records_are_read_again_in_any_order_from_more_segments_than_are_kept_open() {
    let home = Home::new(MAX_BYTES);
    let mut log = home.open();
    // Twelve segments: each restart begins one.
    for number in 0..12 {
        log = {
            drop(log);
            home.open()
        };
        log.append(&sized(number, 100)).unwrap();
    }
    let followed = log.follow();
    assert_eq!(followed.len(), 12);
    for (position, record) in followed.iter().chain(followed.iter().rev()) {
        assert_eq!(log.follower.read(*position).unwrap(), *record);
    }
}

#[test]
fn a_segment_that_is_still_written_to_stays_although_all_in_it_is_done() {
    let home = Home::new(MAX_BYTES);
    let mut log = home.open();
    log.append(&numbered(1)).unwrap();
    log.finish_all();
    assert_eq!(home.files("seg"), [home.segment(1)]);
    log.append(&numbered(2)).unwrap();
    assert_eq!(log.records(), [numbered(2)]);
    let (synced, mut follower) = log.close();
    assert!(synced);
    assert_eq!(follower.next_record().unwrap(), None);
    follower.remove_unneeded().unwrap();
    assert_eq!(home.files("seg"), [home.segment(1)]);
    assert_eq!(home.open().records(), [numbered(2)]);
}

#[test]
fn restarts_that_append_nothing_leave_no_files_behind() {
    let home = Home::new(MAX_BYTES);
    for _ in 0..5 {
        let mut log = home.open();
        log.finish_all();
        assert_eq!(home.files("seg").len(), 1);
    }
}
