//! Segments that were cut off or changed on disk: what is damaged is lost, and nothing else.

use std::fs;

use proptest::prelude::*;
use spanplane::record::{Position, Record};

use crate::home::{
    FIRST_OFFSET, HEADER_BYTES, Home, Log, ROOMY, frame_bounds, numbered, record_of, sized,
};

/// An only segment with these records, and its bytes.
fn written(records: &[Record]) -> (Home, Vec<u8>) {
    let home = Home::new(ROOMY);
    home.open().append_all(records);
    let bytes = fs::read(home.segment(1)).unwrap();
    assert_eq!(bytes.len(), frame_bounds(records)[records.len()]);
    (home, bytes)
}

/// Opens a log that an earlier process left with these bytes in its only segment.
fn opened_with(bytes: &[u8]) -> (Home, Log) {
    let home = Home::new(ROOMY);
    fs::create_dir(home.spool()).unwrap();
    fs::write(home.segment(1), bytes).unwrap();
    let log = home.open();
    (home, log)
}

/// Appending goes on, and the damaged segment goes once its records are done.
fn assert_goes_on(home: &Home, log: &mut Log, handed_out: &[(Position, Record)]) {
    log.append(&numbered(1000)).unwrap();
    assert_eq!(log.records(), [numbered(1000)]);
    let positions: Vec<_> = handed_out.iter().map(|(position, _)| *position).collect();
    log.follower.finish(&positions).unwrap();
    assert_eq!(home.files("seg"), [home.segment(2)]);
}

fn small_records() -> Vec<Record> {
    let lengths = [0, 1, 40, 7, 33];
    (0..)
        .zip(lengths)
        .map(|(number, length)| sized(number, length))
        .collect()
}

#[test]
fn a_segment_cut_off_anywhere_keeps_every_record_before_the_cut() {
    let records = small_records();
    let (_home, bytes) = written(&records);
    let bounds = frame_bounds(&records);
    for cut in 0..=bytes.len() {
        let (home, mut log) = opened_with(&bytes[..cut]);
        let whole = bounds[1..].iter().filter(|end| **end <= cut).count();
        let followed = log.follow();
        let found: Vec<_> = followed.iter().map(|(_, record)| record.clone()).collect();
        assert_eq!(found, records[..whole], "cut at {cut}");
        let is_torn = cut > FIRST_OFFSET && !bounds.contains(&cut);
        assert_eq!(log.torn(), u64::from(is_torn), "cut at {cut}");
        assert_eq!(log.damaged(), 0, "cut at {cut}");
        assert_goes_on(&home, &mut log, &followed);
    }
}

#[test]
fn a_changed_byte_costs_the_record_it_is_in_and_is_counted() {
    let records = small_records();
    let (_home, bytes) = written(&records);
    let bounds = frame_bounds(&records);
    for at in FIRST_OFFSET..bytes.len() {
        for change in [0x01, 0x80, 0xFF] {
            let mut damaged = bytes.clone();
            damaged[at] ^= change;
            let (home, mut log) = opened_with(&damaged);
            let lost = bounds[1..].iter().filter(|end| **end <= at).count();
            let mut expected = records.clone();
            expected.remove(lost);
            let followed = log.follow();
            let found: Vec<_> = followed.iter().map(|(_, record)| record.clone()).collect();
            assert_eq!(found, expected, "byte {at} ^ {change:#x}");
            assert_eq!(log.damaged(), 1, "byte {at} ^ {change:#x}");
            assert_eq!(log.torn(), 0, "byte {at} ^ {change:#x}");
            assert_goes_on(&home, &mut log, &followed);
        }
    }
}

#[test]
fn a_changed_byte_in_the_name_of_the_format_costs_nothing() {
    let records = small_records();
    let (_home, bytes) = written(&records);
    let version = FIRST_OFFSET - 1;
    let changes = (0..version)
        .flat_map(|at| [1, 0x20, 0x80, 0xFF].map(|change| (at, change)))
        .chain((1..=255).map(|change| (version, change)));
    for (at, change) in changes {
        let mut damaged = bytes.clone();
        damaged[at] ^= change;
        let (home, mut log) = opened_with(&damaged);
        let followed = log.follow();
        let found: Vec<_> = followed.iter().map(|(_, record)| record.clone()).collect();
        assert_eq!(found, records, "byte {at} ^ {change:#x}");
        assert_eq!(log.damaged(), 0, "byte {at} ^ {change:#x}");
        assert_goes_on(&home, &mut log, &followed);
    }
}

#[test]
fn a_machine_that_died_before_the_last_bytes_were_on_disk_left_a_torn_record() {
    let records = small_records();
    let (_home, mut bytes) = written(&records);
    bytes[frame_bounds(&records)[4]..].fill(0);
    let (home, mut log) = opened_with(&bytes);
    let followed = log.follow();
    assert_eq!(followed.len(), 4);
    assert_eq!((log.torn(), log.damaged()), (1, 0));
    assert_goes_on(&home, &mut log, &followed);
}

#[test]
fn the_next_header_is_found_wherever_it_lies_behind_a_damaged_one() {
    // Looking goes on in steps of 64 KiB from the byte behind the damaged header's first.
    let seam = FIRST_OFFSET + 1 + 64 * 1024;
    for next in seam - HEADER_BYTES - 4..seam + 4 {
        let records = [
            sized(1, next - FIRST_OFFSET - HEADER_BYTES),
            numbered(2),
            numbered(3),
        ];
        let (_home, mut bytes) = written(&records);
        bytes[FIRST_OFFSET] ^= 1;
        let (_home, mut log) = opened_with(&bytes);
        assert_eq!(log.records(), records[1..], "next header at {next}");
        assert_eq!(log.damaged(), 1);
    }
}

#[test]
fn a_copy_of_a_frame_in_a_payload_is_never_taken_for_a_record() {
    let (_home, bytes) = written(&[numbered(1)]);
    let copies = [&bytes[FIRST_OFFSET..], b"text", &bytes[FIRST_OFFSET..]].concat();
    let records = [numbered(1), record_of(2, &copies), numbered(3)];
    let (_home, bytes) = written(&records);
    let header = frame_bounds(&records)[1];
    for at in header..header + HEADER_BYTES {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let (_home, mut log) = opened_with(&damaged);
        assert_eq!(log.records(), [numbered(1), numbered(3)], "byte {at}");
        assert_eq!(log.damaged(), 1, "byte {at}");
    }
}

#[test]
fn a_frame_of_another_segment_is_no_record_even_at_its_own_offset() {
    let home = Home::new(ROOMY);
    home.open().append(&numbered(0)).unwrap();
    home.open().append_all(&small_records());
    let other = fs::read(home.segment(2)).unwrap();
    // Behind the header of a first record, its payload stands where it stood in the other.
    let records = [
        record_of(1, &other[FIRST_OFFSET + HEADER_BYTES..]),
        numbered(2),
    ];
    let (_home, mut bytes) = written(&records);
    assert!(
        bytes[FIRST_OFFSET + HEADER_BYTES..].starts_with(&other[FIRST_OFFSET + HEADER_BYTES..])
    );
    bytes[FIRST_OFFSET] ^= 1;
    let (_home, mut log) = opened_with(&bytes);
    assert_eq!(log.records(), [numbered(2)]);
    assert_eq!(log.damaged(), 1);
}

/// What overwrites a part of a file.
fn burst() -> impl Strategy<Value = Vec<u8>> {
    let random = prop::collection::vec(any::<u8>(), 1..200);
    prop_oneof![random, (1..200_usize).prop_map(|length| vec![0; length])]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn overwritten_bytes_cost_only_the_records_they_touch(
        lengths in prop::collection::vec(0..120_usize, 1..10),
        burst in burst(),
        place in any::<prop::sample::Index>(),
    ) {
        let records: Vec<_> =
            (0..).zip(lengths).map(|(number, length)| sized(number, length)).collect();
        let (_home, bytes) = written(&records);
        let from = FIRST_OFFSET + place.index(bytes.len() - FIRST_OFFSET);
        let until = bytes.len().min(from + burst.len());
        let mut damaged = bytes.clone();
        damaged[from..until].copy_from_slice(&burst[..until - from]);
        let frames = frame_bounds(&records);
        let whole: Vec<_> = records
            .iter()
            .zip(frames.windows(2))
            .filter(|(_, frame)| bytes[frame[0]..frame[1]] == damaged[frame[0]..frame[1]])
            .map(|(record, _)| record.clone())
            .collect();
        let (home, mut log) = opened_with(&damaged);
        let followed = log.follow();
        let found: Vec<_> = followed.iter().map(|(_, record)| record.clone()).collect();
        prop_assert_eq!(&found, &whole);
        prop_assert_eq!(log.damaged() + log.torn() > 0, whole.len() < records.len());
        assert_goes_on(&home, &mut log, &followed);
    }
}
