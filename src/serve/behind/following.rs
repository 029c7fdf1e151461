//! Following the log: each record is taken apart, printed if asked for, and added to its reconcile.
//!
//! Invariant: of a payload only its fingerprint and its size stay.

use std::io;

use super::{Desk, IN_FLIGHT};
use crate::{
    assemble::Arrival,
    decode::{StepMessage, decode_step},
    fingerprint::{Fingerprint, Fingerprinter},
    pace::{breathe, in_slices},
    print::{PrintedMessage, PrintedPayload},
    reconcile::{ClosedReconcile, Half},
    record::{Position, Record, RecordKind},
};

/// Records followed before anything else gets a turn.
const RECORDS_A_TURN: usize = 64;
/// Stands in every FATAL result that a function can return.
const FATAL: &[u8] = b"SEVERITY_FATAL";

impl Desk {
    /// Follows the log for a turn; tells whether there was something, and whether that was all.
    pub(super) fn follow(&mut self) -> (bool, bool) {
        let mut closed = Vec::new();
        let mut followed = false;
        for _ in 0..RECORDS_A_TURN {
            if self.waiting.is_full_with(&closed) {
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
            let is_late = self.behind.follower.is_late();
            self.note_time(&record, is_late, &mut closed);
            if self.behind.poison.is_poison(position) {
                self.quarantine_record(position, &record);
                continue;
            }
            if self.behind.poison.is_suspect(position) {
                self.commit_now();
            }
            self.behind.poison.begin(position, record.message.len());
            let arrival = self.look_at(position, &record);
            if is_late {
                self.late.insert(position);
                self.behind.assembler.accept_late(arrival, &mut closed);
            } else {
                self.behind.assembler.accept(arrival, &mut closed);
            }
            self.behind.poison.end();
            breathe();
        }
        self.enqueue(closed);
        (followed, false)
    }

    /// The log's time is that of the last record, unless that came late.
    fn note_time(&mut self, record: &Record, is_late: bool, closed: &mut Vec<ClosedReconcile>) {
        if !is_late {
            self.last_record = Some((record.received_at, self.instant()));
        } else if self.last_record.is_none() {
            // Nothing else says what time it is.
            let now = self.behind.clock.now();
            self.last_record = Some((now, self.instant()));
            self.behind.assembler.advance(now - IN_FLIGHT, closed);
        }
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
        let redactor = &self.behind.redactor;
        let payload = PrintedPayload::of(&step.payload, |it| redactor.redact(it).payload);
        let message = PrintedMessage {
            kind: step.kind,
            meta: &step.meta,
            payload: &payload,
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
