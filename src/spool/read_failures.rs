//! Reads that fail: what the disk can't read now, it may read in a minute.
//!
//! Invariant: nothing is given up before reading it has failed for minutes, however often it was
//! tried meanwhile, and however the clock on the wall is set.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::record::{Position, SegmentId};

/// Tries within this time of one that counted don't count.
const COUNTED_EVERY: Duration = Duration::from_secs(1);
/// Five minutes: a volume that moves to another node, or loses one of its paths, is back by then.
const TRIES: u32 = 5 * 60;

/// Failed tries to read the same thing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadFailures {
    tries: u32,
    counted_at: Option<Instant>,
}

impl ReadFailures {
    /// A try failed; returns whether it counts.
    pub(super) fn note(&mut self, now: Instant) -> bool {
        let passed = |last| now.saturating_duration_since(last);
        if self
            .counted_at
            .is_some_and(|last| passed(last) < COUNTED_EVERY)
        {
            return false;
        }
        self.counted_at = Some(now);
        self.tries = self.tries.saturating_add(1);
        true
    }

    /// It was tried for long enough.
    pub(super) fn are_enough(self) -> bool {
        self.tries >= TRIES
    }
}

/// Segments with records that can't be read again. When one record of a segment is given up, the
/// others that fail are too: a region of the disk is as large as that, and to wait for each of
/// its records would hold up everything else for hours.
#[derive(Debug, Default)]
pub(super) struct FailingSegments(BTreeMap<SegmentId, FailingSegment>);

#[derive(Debug)]
struct FailingSegment {
    /// The record that failed last.
    position: Position,
    failures: ReadFailures,
}

impl FailingSegments {
    /// A record could not be read again; returns whether it is given up.
    pub(super) fn note_failure(&mut self, position: Position, now: Instant) -> bool {
        let segment = self.0.entry(position.segment).or_insert(FailingSegment {
            position,
            failures: ReadFailures::default(),
        });
        segment.position = position;
        segment.failures.note(now);
        segment.failures.are_enough()
    }

    /// A record was read again.
    pub(super) fn note_success(&mut self, position: Position) {
        let failing = self.0.get(&position.segment);
        // NOTE: other records can be read all the time.
        if failing.is_some_and(|failing| failing.position == position) {
            self.0.remove(&position.segment);
        }
    }

    /// The segment is removed.
    pub(super) fn forget(&mut self, id: SegmentId) {
        self.0.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::{
        bell::Bell,
        disk::{
            Disk as _,
            simulated::{Death, Fault, SimulatedDisk},
        },
        metrics::Metrics,
        record::{Record, RecordKind},
        spool::{Follower, ReadError, Spool, SpoolSettings, segment::segment_path},
        time::{Timestamp, held::HeldClock},
    };

    const MOMENT: Duration = Duration::from_millis(20);

    /// A log with segments of 2 KiB.
    fn open(disk: &SimulatedDisk, clock: &Arc<HeldClock>) -> (Spool, Follower) {
        let settings = SpoolSettings {
            data_dir: "data".into(),
            max_bytes: 16 * 1024,
            sync: Duration::from_secs(1),
            syncs_itself: false,
        };
        let metrics = Metrics::new().unwrap();
        let bell = Arc::new(Bell::default());
        let opened = Spool::open(&settings, Arc::new(disk.clone()), &metrics, bell);
        let (spool, follower) = opened.unwrap();
        (spool, follower.with_clock(Arc::clone(clock) as _))
    }

    fn append(spool: &Spool, number: u8) {
        let record = Record {
            kind: RecordKind::Request,
            received_at: Timestamp::default(),
            message: vec![number; 100].into(),
        };
        let appended = spool.appender().append(record).now_or_never();
        appended.unwrap().unwrap();
    }

    /// Follows the log for as long as that does not fail.
    fn follow(follower: &mut Follower, found: &mut Vec<(Position, u8)>) {
        while let Ok(Some((position, record))) = follower.next_record() {
            found.push((position, record.message[0]));
        }
    }

    fn numbers(found: &[(Position, u8)]) -> Vec<u8> {
        found.iter().map(|(_, number)| *number).collect()
    }

    #[test]
    fn a_disk_that_fails_to_read_for_seconds_under_load_loses_nothing() {
        let (disk, clock) = (SimulatedDisk::with_seed(1), Arc::new(HeldClock::default()));
        let (spool, mut follower) = open(&disk, &clock);
        let mut found = Vec::new();
        append(&spool, 0);
        follow(&mut follower, &mut found);
        disk.set_failing_reads(u8::MAX);
        // Each message wakes the follower up; there are five seconds of them.
        for number in 1..=50 {
            append(&spool, number);
            for _ in 0..5 {
                follow(&mut follower, &mut found);
                clock.advance(MOMENT);
            }
        }
        disk.set_failing_reads(0);
        follow(&mut follower, &mut found);
        assert_eq!(numbers(&found), (0..=50).collect::<Vec<_>>());
        let all: Vec<_> = found.into_iter().map(|(position, _)| position).collect();
        follower.finish(&all).unwrap();
        // Nothing keeps the segments that are full.
        let segments = disk.file_names();
        let segments = segments.iter().filter(|name| name.contains(".seg"));
        assert_eq!(segments.count(), 1, "{:?}", disk.file_names());
    }

    #[test]
    fn a_segment_that_could_not_be_read_for_minutes_is_left_for_the_next_process() {
        // At the beginning of the segment, a header, a body, and the second header.
        for unreadable_from in [0, 8, 40, 140] {
            let (disk, clock) = (SimulatedDisk::with_seed(1), Arc::new(HeldClock::default()));
            let (earlier, _) = open(&disk, &clock);
            append(&earlier, 1);
            append(&earlier, 2);
            drop(earlier);
            disk.restart(Death::Killed);
            let (spool, mut follower) = open(&disk, &clock);
            append(&spool, 3);
            let left = segment_path("data/spool".as_ref(), SegmentId(1));
            disk.fail_reads_from(&left, unreadable_from);
            let (mut found, mut tries) = (Vec::new(), 0);
            follow(&mut follower, &mut found);
            while !numbers(&found).contains(&3) {
                clock.advance(Duration::from_secs(1));
                tries += 1;
                assert!(tries < 1_000, "following stops");
                follow(&mut follower, &mut found);
            }
            assert!(tries >= 299, "{unreadable_from}: {tries}");
            let all: Vec<_> = found.iter().map(|(position, _)| *position).collect();
            follower.finish(&all).unwrap();
            drop(disk.open(&left).unwrap());

            drop((spool, follower));
            disk.restart(Death::Killed);
            let (_spool, mut follower) = open(&disk, &clock);
            follow(&mut follower, &mut found);
            let mut numbers = numbers(&found);
            numbers.sort_unstable();
            assert_eq!(numbers, [1, 2, 3], "{unreadable_from}");
        }
    }

    #[test]
    fn a_record_is_read_again_until_that_has_failed_for_minutes() {
        let (disk, clock) = (SimulatedDisk::with_seed(1), Arc::new(HeldClock::default()));
        let (spool, mut follower) = open(&disk, &clock);
        append(&spool, 1);
        append(&spool, 2);
        let mut found = Vec::new();
        follow(&mut follower, &mut found);
        let [(first, _), (second, _)] = found[..] else {
            panic!("{found:?}");
        };
        let mut fail = |position, tries: u32| {
            let given_up = (0..tries).filter(|_| {
                clock.advance(Duration::from_secs(1));
                disk.fail_next(&[Fault::Read]);
                let failed = follower.read(position).unwrap_err();
                assert!(!matches!(failed, ReadError::Damaged(_)));
                matches!(failed, ReadError::GivenUp { .. })
            });
            let given_up = given_up.count();
            disk.fail_next(&[]);
            given_up
        };
        assert_eq!(fail(first, 299), 0);
        // A record that can be read says nothing about the other one.
        assert_eq!(fail(first, 1), 1);
        assert_eq!(fail(second, 1), 1, "of the same segment");
        assert_eq!(follower.read(second).unwrap().message[0], 2);
        assert_eq!(follower.read(first).unwrap().message[0], 1);
    }

    #[test]
    fn tries_in_quick_succession_count_once() {
        let now = Instant::now();
        let mut failures = ReadFailures::default();
        for millis in 0..60_000 {
            let counts = failures.note(now + Duration::from_millis(millis));
            assert_eq!(counts, millis.is_multiple_of(1000));
        }
        assert!(!failures.are_enough());
    }
}
