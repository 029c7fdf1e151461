//! Payloads, read back from the log. Invariant: what the disk fails to read now it may read later;
//! a payload is given up only if it is damaged, or once reading it has failed for minutes.

use std::io;

use bytes::Bytes;

use super::poison::PoisonGuard;
use crate::{
    decode::decode_step,
    publish::PayloadSource,
    receive::{MessageMemory, Withheld},
    reconcile::Half,
    record::RecordKind,
    spool::{Follower, ReadError},
};

/// Payloads, read back from the log.
pub(super) struct LoggedPayloads<'l> {
    pub(super) follower: &'l mut Follower,
    pub(super) memory: &'l MessageMemory,
    /// For the payload that was read last.
    pub(super) withheld: Option<Withheld>,
    pub(super) poison: &'l mut PoisonGuard,
}

impl PayloadSource for LoggedPayloads<'_> {
    fn read_payload(&mut self, kind: RecordKind, half: &Half) -> io::Result<Option<Bytes>> {
        self.poison.begin(half.position, half.size);
        // Nobody has the last one any more.
        self.withheld = None;
        self.withheld = self.memory.wait_to_process(half.size);
        match self.follower.read(half.position) {
            Ok(record) => Ok(Some(decode_step(kind, &record.message).payload)),
            Err(ReadError::Read { source, .. }) => Err(source),
            Err(error @ (ReadError::GivenUp { .. } | ReadError::Damaged(_))) => {
                tracing::error!(%error, "a payload is lost: it can't be read back from the spool");
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use futures_util::FutureExt as _;

    use super::*;
    use crate::{
        bell::Bell,
        disk::simulated::SimulatedDisk,
        fingerprint::Fingerprint,
        metrics::Metrics,
        record::Record,
        spool::{Spool, SpoolSettings},
        time::{Timestamp, held::HeldClock},
    };

    #[test]
    fn a_payload_that_cannot_be_read_is_given_up_after_minutes_and_not_before() {
        let disk = SimulatedDisk::default();
        let settings = SpoolSettings {
            data_dir: "data".into(),
            max_bytes: 1024 * 1024,
            sync: Duration::from_secs(1),
            syncs_itself: false,
        };
        let bell = Arc::new(Bell::default());
        let metrics = Metrics::new().unwrap();
        let shared = Arc::new(disk.clone());
        let (spool, follower) =
            Spool::open(&settings, Arc::clone(&shared) as _, &metrics, bell).unwrap();
        let clock = Arc::new(HeldClock::default());
        let mut follower = follower.with_clock(Arc::clone(&clock) as _);
        let record = Record {
            kind: RecordKind::Request,
            received_at: Timestamp::default(),
            message: vec![7; 100].into(),
        };
        let appended = spool.appender().append(record.clone()).now_or_never();
        appended.unwrap().unwrap();
        let (position, _) = follower.next_record().unwrap().unwrap();
        let half = Half {
            position,
            fingerprint: Fingerprint::of(&record.message),
            size: record.message.len(),
            received_at: record.received_at,
        };
        let memory = MessageMemory::new(1024 * 1024, usize::MAX);
        let mut poison = PoisonGuard::open(shared, "data/in-progress".into());
        let mut read = || {
            clock.advance(Duration::from_secs(1));
            let mut payloads = LoggedPayloads {
                follower: &mut follower,
                memory: &memory,
                withheld: None,
                poison: &mut poison,
            };
            payloads.read_payload(RecordKind::Request, &half)
        };
        // NOTE: the segment is open already when reading it begins to fail.
        assert!(read().unwrap().is_some());
        disk.fail_reads_from("data/spool/00000000000000000001.seg".as_ref(), 0);
        assert!((0..60).all(|_| read().is_err()));
        disk.fail_reads_from("nothing".as_ref(), 0);
        assert!(read().unwrap().is_some());
        disk.fail_reads_from("data/spool/00000000000000000001.seg".as_ref(), 0);
        assert!((0..299).all(|_| read().is_err()));
        assert!(read().unwrap().is_none());
    }
}
