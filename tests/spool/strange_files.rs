//! Files in the folder that this program did not write, or not this version of it.

use std::fs;

use crate::home::{FIRST_OFFSET, Home, ROOMY, numbered};

#[test]
fn a_segment_of_random_bytes_is_stepped_over() {
    let home = Home::new(ROOMY);
    home.open().append(&numbered(1)).unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    for length in [1, 7, 8, 9, 40, 70_000, 200_000] {
        let mut garbage = vec![0; length];
        random.fill(&mut garbage);
        fs::write(home.segment(100 + length as u64), garbage).unwrap();
    }
    let mut log = home.open();
    log.append(&numbered(2)).unwrap();
    assert_eq!(log.records(), [numbered(1), numbered(2)]);
    // The three that are too short for a frame are no damage; nine bytes may be a torn frame.
    assert_eq!((log.damaged(), log.torn()), (3, 1));
}

#[test]
fn a_segment_full_of_markers_is_stepped_over() {
    let home = Home::new(ROOMY);
    fs::create_dir(home.spool()).unwrap();
    fs::write(home.segment(1), b"\xF5SPR".repeat(50_000)).unwrap();
    let mut log = home.open();
    log.append(&numbered(2)).unwrap();
    assert_eq!(log.records(), [numbered(2)]);
    assert_eq!(log.damaged(), 1);
}

#[test]
fn an_empty_or_hardly_begun_segment_is_cleared_away() {
    let home = Home::new(ROOMY);
    fs::create_dir(home.spool()).unwrap();
    fs::write(home.segment(3), b"").unwrap();
    fs::write(home.segment(4), b"SPS").unwrap();
    fs::write(home.segment(5), b"SPSPOOL1").unwrap();
    let mut log = home.open();
    log.append(&numbered(1)).unwrap();
    assert_eq!(log.records(), [numbered(1)]);
    log.follower.remove_unneeded().unwrap();
    assert_eq!(home.files("seg"), [home.segment(6)]);
    assert_eq!((log.damaged(), log.torn()), (0, 0));
}

#[test]
fn other_files_in_the_folder_are_left_alone() {
    let home = Home::new(ROOMY);
    home.open().append(&numbered(1)).unwrap();
    let strangers = [
        "README",
        "7.seg",
        "+0000000000000000007.seg",
        "00000000000000000007.seg.bak",
        "000000000000000000007.seg",
        "99999999999999999999.seg",
        "x.seg",
        ".seg",
        "x.done",
        "7.done",
        "x.spare",
        "7.spare",
    ];
    for name in strangers {
        fs::write(
            home.spool().join(name),
            b"SPSPOOL1 and more that is no frame at all",
        )
        .unwrap();
    }
    fs::create_dir(home.spool().join("folder")).unwrap();
    fs::create_dir(home.segment(9)).unwrap();
    let mut log = home.open();
    log.append(&numbered(2)).unwrap();
    assert_eq!(log.records(), [numbered(1), numbered(2)]);
    log.finish_all();
    assert_eq!(log.damaged(), 0);
    assert!(
        strangers
            .iter()
            .all(|name| home.spool().join(name).is_file())
    );
    assert!(home.segment(9).is_dir());
    assert!(home.segment(10).is_file());
}

#[test]
fn what_an_earlier_process_would_have_used_again_goes_at_the_start() {
    let home = Home::new(ROOMY);
    home.open().append(&numbered(1)).unwrap();
    // A crash may leave it with what it held.
    let spare = home.segment(7).with_extension("spare");
    fs::copy(home.segment(1), &spare).unwrap();
    assert_eq!(home.open().records(), [numbered(1)]);
    assert!(!spare.try_exists().unwrap());
}

#[test]
fn a_segment_of_a_later_version_is_left_alone() {
    let home = Home::new(ROOMY);
    home.open().append(&numbered(1)).unwrap();
    let first = fs::read(home.segment(1)).unwrap();
    // Its frames are not ours: another marker, with whatever check they will have.
    let mut later = first.clone();
    later[..FIRST_OFFSET].copy_from_slice(b"SPSPOOL2");
    later[FIRST_OFFSET] = 0xF6;
    fs::write(home.segment(5), &later).unwrap();
    fs::write(home.segment(6), b"SPSPOOL2").unwrap();
    for _ in 0..2 {
        let mut log = home.open();
        log.append(&numbered(2)).unwrap();
        log.finish_all();
        log.finish_all();
        assert_eq!(log.damaged(), 0);
        assert_eq!(fs::read(home.segment(5)).unwrap(), later);
        assert_eq!(fs::read(home.segment(6)).unwrap(), b"SPSPOOL2");
    }
}

#[test]
fn a_file_with_the_highest_of_numbers_does_not_use_them_up() {
    let home = Home::new(ROOMY);
    home.open().append(&numbered(1)).unwrap();
    fs::write(home.segment(u64::MAX), b"SPSPOOL1").unwrap();
    fs::write(home.old_done_file(u64::MAX), b"").unwrap();
    // An entry of the done log: one record, of that segment.
    let mut record = u64::MAX.to_le_bytes().to_vec();
    record.extend(8_u32.to_le_bytes());
    let mut log = b"SPDONE01DONE\x01\0\0\0".to_vec();
    log.extend(crc32fast::hash(&record).to_le_bytes());
    log.extend(record);
    fs::write(home.done_log(), log).unwrap();
    home.open().append(&numbered(2)).unwrap();
    let mut log = home.open();
    assert_eq!(log.records(), [numbered(1), numbered(2)]);
    assert!(home.segment(u64::MAX).try_exists().unwrap());
}
