//! Following the log: each record is taken apart, printed if asked for, and added to its reconcile.
//!
//! Invariant: of a payload only its fingerprint and its size stay.

use std::io;

use super::Desk;
use crate::{
    assemble::Arrival,
    decode::{StepMessage, decode_step},
    fingerprint::{Fingerprint, Fingerprinter},
    pace::{breathe, in_slices},
    print::PrintedMessage,
    reconcile::Half,
    record::{Position, Record, RecordKind},
};

/// Records followed before anything else gets a turn.
const RECORDS_A_TURN: usize = 64;
/// Closed reconciles that may wait to be published: some 2 KB each.
const WAITING_RECONCILES: usize = 1024;
/// Stands in every FATAL result that a function can return.
const FATAL: &[u8] = b"SEVERITY_FATAL";

impl Desk {
    /// Follows the log for a turn; tells whether there was something, and whether that was all.
    pub(super) fn follow(&mut self) -> (bool, bool) {
        let mut closed = Vec::new();
        let mut followed = false;
        for _ in 0..RECORDS_A_TURN {
            if self.waiting.len() + closed.len() >= WAITING_RECONCILES {
                break;
            }
            let (position, record) = match self.behind.follower.next_record() {
                Ok(Some(next)) => next,
                Ok(None) => {
                    self.enqueue(closed);
                    return (followed, true);
                }
                Err(error) => {
                    // The follower warns of it, once a second.
                    tracing::debug!(%error, "cannot read the spool");
                    break;
                }
            };
            followed = true;
            self.last_record = Some((record.received_at, self.instant()));
            if self.behind.poison.is_poison(position) {
                self.quarantine_record(position, &record);
                continue;
            }
            if self.behind.poison.is_suspect(position) {
                self.commit_now();
            }
            self.behind.poison.begin(position, record.message.len());
            let arrival = self.look_at(position, &record);
            self.behind.assembler.accept(arrival, &mut closed);
            self.behind.poison.end();
            breathe();
        }
        self.enqueue(closed);
        (followed, false)
    }

    /// Takes from a record what is needed to put reconciles together, and prints it if asked.
    fn look_at(&mut self, position: Position, record: &Record) -> Arrival {
        let step = decode_step(record.kind, &record.message);
        for oddity in &step.oddities {
            self.behind.metrics.message_odd(oddity.as_str());
            tracing::warn!(
                oddity = oddity.as_str(),
                "a message is odd; it is kept as it is"
            );
        }
        self.print(&step);
        let maybe_fatal = step.kind == RecordKind::Response
            && memchr::memmem::find(&step.payload, FATAL).is_some();
        let half = Half {
            position,
            fingerprint: fingerprint_of(&step.payload),
            size: step.payload.len(),
            received_at: record.received_at,
        };
        Arrival {
            kind: step.kind,
            meta: step.meta,
            error: step.error,
            half,
            maybe_fatal,
        }
    }

    fn print(&mut self, step: &StepMessage) {
        let Some(format) = self.behind.print else {
            return;
        };
        let redacted = self.behind.redactor.redact(&step.payload);
        let message = PrintedMessage {
            kind: step.kind,
            meta: &step.meta,
            payload: &redacted.payload,
            error: &step.error,
        };
        if let Err(error) = format.print(message, &mut io::stdout().lock()) {
            tracing::warn!(%error, "cannot print to stdout; printing ends");
            self.behind.print = None;
        }
    }
}

fn fingerprint_of(payload: &[u8]) -> Fingerprint {
    let mut hasher = Fingerprinter::default();
    in_slices(payload, |slice| hasher.update(slice));
    hasher.finish()
}
