//! A wall clock for the sidecars that can be set while they run, by libfaketime.
//!
//! Invariant: only the wall clock is set. Clocks that measure how long something takes, and the
//! times of files, are the machine's.

use std::{fs, io, path::PathBuf};

/// Where Debian and others install it.
const FOLDERS: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu/faketime",
    "/usr/lib/aarch64-linux-gnu/faketime",
    "/usr/lib64/faketime",
    "/usr/lib/faketime",
];

#[derive(Clone, Debug)]
pub(crate) struct Clock {
    library: PathBuf,
    /// Holds the offset; read at every look at the clock.
    offset: PathBuf,
}

impl Clock {
    /// `None` if libfaketime is not installed.
    pub(crate) fn find(offset: PathBuf) -> io::Result<Option<Self>> {
        let libraries = FOLDERS.map(|folder| PathBuf::from(folder).join("libfaketimeMT.so.1"));
        let Some(library) = libraries.into_iter().find(|library| library.is_file()) else {
            return Ok(None);
        };
        let clock = Self { library, offset };
        clock.set(0)?;
        Ok(Some(clock))
    }

    /// Sets the clock of every process that uses it, so many seconds off.
    pub(crate) fn set(&self, seconds: i64) -> io::Result<()> {
        let fresh = self.offset.with_extension("new");
        fs::write(&fresh, format!("{seconds:+}\n"))?;
        fs::rename(fresh, &self.offset)
    }

    /// What makes a process use it.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        vec![
            ("LD_PRELOAD", text(&self.library)),
            ("FAKETIME_TIMESTAMP_FILE", text(&self.offset)),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("NO_FAKE_STAT", "1".to_owned()),
            // Shared memory of a process that was killed would stay behind.
            ("FAKETIME_DISABLE_SHM", "1".to_owned()),
        ]
    }
}
