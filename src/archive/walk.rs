//! The files of a store on local disk, a few at a time, by the minute in which they were stored.
//!
//! Invariant: memory grows with the depth of the folders, not with what is in them. No symbolic link
//! below the store's folder is followed.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::{local::within::open_folder, staging::is_staged};
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

/// What a file is to the store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Object,
    /// Being written, or left by a process that died.
    Staged,
    Folder,
}

/// A file or a folder that was come across.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) kind: Kind,
    /// In which it was last written to.
    pub(super) minute: Minute,
    pub(super) disk_bytes: u64,
}

/// All files below some folders, a few at a time.
#[derive(Debug)]
pub(super) struct Walk {
    open: Vec<fs::ReadDir>,
    unopened: Vec<PathBuf>,
}

impl Walk {
    /// Of these folders of the store, each a path below the store's own.
    pub(super) fn new(store: &Path, folders: &[&str]) -> Self {
        let are_there = folders.iter().map(Path::new);
        // Finds links on the way. Swapping a folder for a link behind it gets names, and nothing else.
        let are_there = are_there.filter(|folder| open_folder(store, folder).is_ok());
        Self {
            open: Vec::new(),
            unopened: are_there.map(|folder| store.join(folder)).collect(),
        }
    }

    /// Visits some files and folders; tells whether these were the last. What can't be read is passed
    /// over, and so is what is not the store's.
    pub(super) fn advance(&mut self, mut visit: impl FnMut(&Path, Found)) -> bool {
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
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            let path = entry.path();
            let (kind, minute) = (kind_of(&path, &metadata), Minute::of_file(&metadata));
            if let (Some(kind), Some(minute)) = (kind, minute) {
                let disk_bytes = disk_bytes(&metadata);
                visit(
                    &path,
                    Found {
                        kind,
                        minute,
                        disk_bytes,
                    },
                );
            }
            if metadata.is_dir() {
                self.unopened.push(path);
            }
        }
        false
    }
}

/// What a file takes on disk, as `du` counts it.
fn disk_bytes(metadata: &fs::Metadata) -> u64 {
    match metadata.blocks() {
        // Some file systems don't tell.
        0 => metadata.len(),
        blocks => blocks.saturating_mul(512),
    }
}

/// Strangers are none of these.
fn kind_of(path: &Path, metadata: &fs::Metadata) -> Option<Kind> {
    if metadata.is_dir() {
        return Some(Kind::Folder);
    }
    let name = path.file_name()?.to_str()?;
    if is_staged(name) {
        return Some(Kind::Staged);
    }
    let endings = [
        ".json",
        ".json.zst",
        ".json.gz",
        ".jsonl.zst",
        ".contents.txt",
    ];
    let is_object = endings.iter().any(|end| name.ends_with(end));
    is_object.then_some(Kind::Object)
}
