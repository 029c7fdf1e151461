//! Settings that a sidecar may be restarted with.
//!
//! Invariant: none of them allows the sidecar to lose anything, and none removes anything from
//! the store.

use std::{fmt, time::Duration};

use fastrand::Rng;

use crate::{dice::pick, wording::seconds};

/// The pointer that some lives of a sidecar redact besides: where [`crate::payload`] puts a note.
pub(crate) const NOTE_POINTER: &str = "/input/note";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Settings {
    compression: &'static str,
    spool_mib: u32,
    pub(crate) shutdown_timeout: Duration,
    sync: &'static str,
    redacts_note: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            compression: "zstd",
            spool_mib: 256,
            shutdown_timeout: Duration::from_secs(5),
            sync: "1s",
            redacts_note: false,
        }
    }
}

impl Settings {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        Self {
            compression: pick(rng, ["zstd", "zstd", "gzip", "none"]),
            spool_mib: pick(rng, [64, 128, 256]),
            shutdown_timeout: Duration::from_millis(pick(rng, [300, 2000, 5000, 20_000])),
            sync: pick(rng, ["0s", "1s", "5s"]),
            redacts_note: rng.bool(),
        }
    }

    /// The same, with a spool of this size.
    pub(crate) fn with_spool(self, spool_mib: u32) -> Self {
        Self { spool_mib, ..self }
    }

    /// The same, with time to finish everything.
    pub(crate) fn patient(self) -> Self {
        Self {
            shutdown_timeout: Duration::from_mins(2),
            ..self
        }
    }

    pub(crate) fn flags(self) -> Vec<String> {
        let mut flags = vec![
            format!("--compression={}", self.compression),
            format!("--spool-max-bytes={}MiB", self.spool_mib),
            format!("--shutdown-timeout={}ms", self.shutdown_timeout.as_millis()),
            format!("--spool-sync={}", self.sync),
            // The checks expect everything that was ever stored.
            "--retention=0".to_owned(),
            "--retention-bytes=0".to_owned(),
        ];
        if self.redacts_note {
            flags.push(format!("--redact={NOTE_POINTER}"));
        }
        flags
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            compression,
            spool_mib,
            shutdown_timeout,
            sync,
            redacts_note,
        } = self;
        write!(
            out,
            "compression {compression}, spool {spool_mib} MiB, {} s to stop, sync {sync}",
            seconds(*shutdown_timeout)
        )?;
        if *redacts_note {
            write!(out, ", {NOTE_POINTER} redacted")?;
        }
        Ok(())
    }
}
