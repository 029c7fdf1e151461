//! The objects and index batches of a store on local disk, a few at a time, by the minute in which they were stored.
//!
//! Invariant: memory grows with the depth of the folders, not with what is in them.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::time::Timestamp;

/// Files looked at in a step.
const FILES_A_STEP: usize = 64;

/// A minute since the Unix epoch.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Minute(i64);

impl Minute {
    pub(super) fn of(at: Timestamp) -> Self {
        Self(at.as_nanos().div_euclid(60_000_000_000))
    }

    /// Its last moment.
    pub(super) fn end(self) -> Timestamp {
        Timestamp::from_nanos(
            self.0
                .saturating_add(1)
                .saturating_mul(60_000_000_000)
                .saturating_sub(1),
        )
    }

    /// In which a file was written; `None` if nobody can tell.
    fn of_file(metadata: &fs::Metadata) -> Option<Self> {
        Timestamp::from_parts(metadata.mtime(), 0).map(Self::of)
    }
}

/// All files below some folders, a few at a time.
#[derive(Debug)]
pub(super) struct Walk {
    open: Vec<fs::ReadDir>,
    unopened: Vec<PathBuf>,
}

impl Walk {
    pub(super) fn new(folders: &[PathBuf]) -> Self {
        Self {
            open: Vec::new(),
            unopened: folders.to_vec(),
        }
    }

    /// Visits some objects, with their minute and size; tells whether these were the last. What
    /// can't be read is passed over.
    pub(super) fn advance(&mut self, mut visit: impl FnMut(&Path, Minute, u64)) -> bool {
        for _ in 0..FILES_A_STEP {
            if let Some(folder) = self.unopened.pop() {
                self.open.extend(fs::read_dir(folder).ok());
                continue;
            }
            let Some(folder) = self.open.last_mut() else {
                return true;
            };
            let Some(entry) = folder.next() else {
                self.open.pop();
                continue;
            };
            let Ok(entry) = entry else { continue };
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => self.unopened.push(entry.path()),
                Ok(metadata) => {
                    let path = entry.path();
                    if let Some(minute) = Minute::of_file(&metadata)
                        && is_object(&path)
                    {
                        visit(&path, minute, metadata.len());
                    }
                }
                Err(_) => {}
            }
        }
        false
    }
}

/// Staged files and strangers are none.
fn is_object(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| {
        [".json", ".json.zst", ".json.gz", ".jsonl.zst", ".ids.txt"]
            .iter()
            .any(|end| name.ends_with(end))
    })
}
