//! A log that holds as much as it may.

use spanplane::spool::AppendError;

use crate::home::{HEADER_BYTES, Home, Log, sized};

const TOO_LONG: usize = 64 * 1024;
const MAX_BYTES: u64 = TOO_LONG as u64;
const LENGTH: usize = 2000;

/// Appends until it is full; how many went in.
fn fill(log: &Log) -> u32 {
    for number in 0.. {
        match log.append(&sized(number, LENGTH)) {
            Ok(()) => {}
            Err(AppendError::Full { used, limit }) => {
                assert_eq!(limit, MAX_BYTES);
                assert!(used <= limit);
                assert!(used + (HEADER_BYTES + LENGTH) as u64 > limit);
                return number;
            }
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("it is full before numbers run out")
}

#[test]
fn a_full_log_refuses_and_keeps_what_it_has() {
    let home = Home::new(MAX_BYTES);
    let mut log = home.open();
    let count = fill(&log);
    let refused = log.append(&sized(1000, LENGTH));
    assert!(matches!(refused, Err(AppendError::Full { .. })));
    let expected: Vec<_> = (0..count).map(|number| sized(number, LENGTH)).collect();
    assert_eq!(log.records(), expected);
    drop(log);
    // It is as full after a restart, and still has everything.
    let mut log = home.open();
    let refused = log.append(&sized(1000, LENGTH));
    assert!(matches!(refused, Err(AppendError::Full { .. })));
    assert_eq!(log.records(), expected);
}

#[test]
fn what_still_fits_is_taken_by_a_log_that_refused_more() {
    let home = Home::new(MAX_BYTES);
    let mut log = home.open();
    let count = fill(&log);
    let too_large = log.append(&sized(1000, TOO_LONG));
    assert!(matches!(too_large, Err(AppendError::Full { .. })));
    log.append(&sized(1001, 10)).unwrap();
    assert_eq!(log.records().len(), count as usize + 1);
}

#[test]
fn finishing_records_makes_room_by_itself() {
    let home = Home::new(MAX_BYTES);
    let mut log = home.open();
    for _ in 0..3 {
        let count = fill(&log);
        assert!(count > 25);
        log.finish_all();
        assert_eq!(log.spool.gauge().used_bytes(), 0);
        assert!(home.files("seg").is_empty());
        assert!(home.files("done").is_empty());
    }
    log.append(&sized(5, LENGTH)).unwrap();
    assert_eq!(log.records(), [sized(5, LENGTH)]);
}

#[test]
fn a_log_whose_records_were_all_followed_before_it_was_full_makes_room_too() {
    let home = Home::new(MAX_BYTES);
    let mut log = home.open();
    let mut positions = Vec::new();
    let mut number = 0;
    while log.append(&sized(number, LENGTH)).is_ok() {
        number += 1;
        positions.extend(log.follow().into_iter().map(|(position, _)| position));
    }
    log.follower.finish(&positions).unwrap();
    assert_eq!(log.records(), []);
    log.follower.remove_unneeded().unwrap();
    assert_eq!(log.spool.gauge().used_bytes(), 0);
    assert!(fill(&log) > 25);
}

#[test]
fn a_record_that_could_never_fit_is_refused_and_the_next_is_taken() {
    let home = Home::new(MAX_BYTES);
    let mut log = home.open();
    let refused = log.append(&sized(1, TOO_LONG));
    assert!(matches!(refused, Err(AppendError::Full { .. })));
    log.append(&sized(2, LENGTH)).unwrap();
    assert_eq!(log.records(), [sized(2, LENGTH)]);
}
