//! Payloads, read back from the log. Invariant: what the disk fails to read now it may read later;
//! a payload is given up only after that was tried often enough.

use std::{cell::Cell, io};

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

/// How often a payload is read before it is given up.
const READ_TRIES: u32 = 10;

/// Payloads, read back from the log.
pub(super) struct LoggedPayloads<'l> {
    pub(super) follower: &'l mut Follower,
    pub(super) memory: &'l MessageMemory,
    /// For the payload that was read last.
    pub(super) withheld: Option<Withheld>,
    pub(super) poison: &'l mut PoisonGuard,
    /// How often one could not be read.
    pub(super) failed_reads: &'l Cell<u32>,
}

impl PayloadSource for LoggedPayloads<'_> {
    fn read_payload(&mut self, kind: RecordKind, half: &Half) -> io::Result<Option<Bytes>> {
        self.poison.begin(half.position, half.size);
        // Nobody has the last one any more.
        self.withheld = None;
        self.withheld = self.memory.wait_to_process(half.size);
        match self.follower.read(half.position) {
            Ok(record) => Ok(Some(decode_step(kind, &record.message).payload)),
            Err(ReadError::Read { source, .. }) if self.failed_reads.get() < READ_TRIES => {
                self.failed_reads.update(|tries| tries + 1);
                Err(source)
            }
            Err(error) => {
                tracing::error!(%error, "a payload is lost: it can't be read back from the spool");
                Ok(None)
            }
        }
    }
}
