//! The backlog: what an earlier process left in the log, until all of it is published.
//!
//! Where a record lies decides whose it is, and not when it arrived: clocks are set, and a process
//! under load may never catch up with the log. Invariant: once the backlog is published, it stays so.

use crate::{
    outbox::ParcelId,
    record::{Position, SegmentId},
};

/// What an earlier process left in the log.
#[derive(Debug)]
pub(super) struct Backlog {
    /// Records from here on came to this process.
    first_own: SegmentId,
    is_published: bool,
    first_after: ParcelId,
}

impl Backlog {
    pub(super) fn before(first_own: SegmentId) -> Self {
        Self {
            first_own,
            is_published: false,
            first_after: ParcelId::default(),
        }
    }

    /// All of it is published.
    pub(super) fn is_published(&self) -> bool {
        self.is_published
    }

    /// Parcels before this one may be of reconciles that an earlier process noted.
    pub(super) fn first_after(&self) -> ParcelId {
        self.first_after
    }

    /// Takes note of what is still to be published: the segment that is followed next, and the
    /// first record of each reconcile that is open or waiting. Returns whether this shows that the
    /// backlog is published now; `next` is the parcel that comes after it.
    pub(super) fn note_unpublished(
        &mut self,
        unread: Option<SegmentId>,
        mut closed_or_open: impl Iterator<Item = Position>,
        next: ParcelId,
    ) -> bool {
        let is_left = |segment: SegmentId| segment < self.first_own;
        if self.is_published
            || unread.is_some_and(is_left)
            || closed_or_open.any(|first| is_left(first.segment))
        {
            return false;
        }
        self.is_published = true;
        self.first_after = next;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use futures_util::FutureExt as _;

    use super::*;
    use crate::{
        assemble::{Arrival, Assembler, Limits},
        bell::Bell,
        decode::StepMeta,
        disk::simulated::{Death, SimulatedDisk},
        fingerprint::Fingerprint,
        metrics::Metrics,
        reconcile::{ClosedReconcile, Half},
        record::{Record, RecordKind},
        spool::{Follower, Spool, SpoolSettings},
        time::Timestamp,
    };

    const MONTH: Duration = Duration::from_hours(30 * 24);

    fn at(second: u64) -> Timestamp {
        Timestamp::from_parts(1_794_803_806, 0).unwrap() + Duration::from_secs(second)
    }

    /// A log and the reconciles in it, as far as the backlog depends on them.
    struct Process {
        spool: Spool,
        follower: Follower,
        assembler: Assembler,
        waiting: Vec<ClosedReconcile>,
        backlog: Backlog,
    }

    impl Process {
        fn start(disk: &SimulatedDisk) -> Self {
            let settings = SpoolSettings {
                data_dir: "data".into(),
                max_bytes: 1024 * 1024,
                sync: Duration::from_secs(1),
                syncs_itself: false,
            };
            let metrics = Metrics::new().unwrap();
            let bell = Arc::new(Bell::default());
            let opened = Spool::open(&settings, Arc::new(disk.clone()), &metrics, bell);
            let (spool, follower) = opened.unwrap();
            Self {
                backlog: Backlog::before(follower.first_own()),
                spool,
                follower,
                assembler: Assembler::new(Limits::default()),
                waiting: Vec::new(),
            }
        }

        /// The request that begins a reconcile arrives.
        fn receive(&self, trace_id: &'static str, received_at: Timestamp) {
            let record = Record {
                kind: RecordKind::Request,
                received_at,
                message: trace_id.as_bytes().into(),
            };
            let appended = self.spool.appender().append(record).now_or_never();
            appended.unwrap().unwrap();
        }

        /// Follows one record.
        fn follow(&mut self) {
            let (position, record) = self.follower.next_record().unwrap().unwrap();
            let arrival = Arrival {
                kind: record.kind,
                meta: StepMeta {
                    trace_id: String::from_utf8(record.message.to_vec()).unwrap(),
                    ..StepMeta::default()
                },
                error: String::new(),
                half: Half {
                    position,
                    fingerprint: Fingerprint::of(&record.message),
                    size: record.message.len(),
                    received_at: record.received_at,
                },
                maybe_fatal: false,
            };
            self.assembler.accept(arrival, &mut self.waiting);
        }

        fn pass_time(&mut self, now: Timestamp) {
            self.assembler.advance(now, &mut self.waiting);
        }

        fn note(&mut self) -> bool {
            let waiting = self.waiting.iter();
            let waiting = waiting.filter_map(|reconcile| reconcile.records.first().copied());
            self.backlog.note_unpublished(
                self.follower.next_segment(),
                waiting.chain(self.assembler.oldest_position()),
                ParcelId::default().next(),
            )
        }
    }

    fn with_backlog(traces: &[&'static str], received_at: Timestamp) -> Process {
        let disk = SimulatedDisk::default();
        let earlier = Process::start(&disk);
        for trace in traces {
            earlier.receive(trace, received_at);
        }
        drop(earlier);
        disk.restart(Death::Killed);
        Process::start(&disk)
    }

    #[test]
    fn a_log_without_a_backlog_has_it_published_at_once() {
        let mut process = Process::start(&SimulatedDisk::default());
        process.receive("own", at(0));
        assert!(process.note());
        assert!(process.backlog.is_published());
        assert!(!process.note());
    }

    #[test]
    fn what_is_unread_open_or_waiting_keeps_the_backlog_from_being_published() {
        let mut process = with_backlog(&["one", "two"], at(0));
        assert!(!process.note(), "unread");
        process.follow();
        process.pass_time(at(300));
        process.waiting.clear();
        assert!(!process.note(), "one is published, the other unread");
        process.follow();
        process.receive("own", at(300));
        process.follow();
        assert!(!process.note(), "open");
        process.pass_time(at(600));
        assert!(!process.note(), "waiting");
        process.waiting.clear();
        assert!(process.note());
    }

    #[test]
    fn the_backlog_is_published_although_the_clock_was_ahead_when_the_process_started() {
        let mut process = with_backlog(&["left"], at(0) + MONTH);
        process.follow();
        // The clock is put right, and from then on some reconcile is always open.
        let mut now = at(10);
        for own in ["a", "b", "c", "d"] {
            process.receive(own, now);
            process.follow();
            now = now + Duration::from_secs(200);
            process.receive("open", now);
            process.follow();
            process.pass_time(now);
        }
        assert!(process.assembler.oldest_arrival().unwrap() < at(0) + MONTH);
        process.waiting.clear();
        assert!(process.note());
    }

    #[test]
    fn the_backlog_is_published_although_the_log_is_never_read_to_its_end() {
        let mut process = with_backlog(&["left"], at(0));
        for own in ["a", "b", "c", "d"] {
            process.receive(own, at(1));
        }
        process.follow();
        // What is behind it comes faster than it is published, so that something always waits.
        process.follow();
        process.pass_time(at(300));
        assert_eq!(process.waiting.len(), 2);
        process.waiting.remove(0);
        assert!(process.note());
        assert!(process.follower.next_record().unwrap().is_some());
    }
}
