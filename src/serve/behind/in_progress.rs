//! The file that says which records are processed, for the next process to find if this one dies.
//!
//! ```text
//! <data-dir>/spool/in-progress    there while a process runs; entries without gaps
//!   entry                         segment (8 bytes), offset (4), deaths (4), CRC-32 of these (4)
//! ```
//!
//! Two threads may write it: the one that processes records, and the one that ends the process.
//! Invariant: an entry that doesn't check out accuses nobody, and neither does one behind it. Once
//! the process ends in order, or has noted at what it panicked, the file does not change any more.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    disk::{DiskFile, FileReader, SharedDisk, remove_if_there},
    record::{Position, SegmentId},
};

const CHECKED_BYTES: usize = 16;
const ENTRY_BYTES: usize = CHECKED_BYTES + 4;

/// How often processes died at each of some records.
pub(super) type Deaths = BTreeMap<Position, u32>;

/// A handle to the file; clones share it.
#[derive(Clone, Debug)]
pub(in crate::serve) struct InProgress(Arc<Mutex<Note>>);

#[derive(Debug)]
struct Note {
    disk: SharedDisk,
    path: PathBuf,
    file: Option<Arc<dyn DiskFile>>,
    /// Whatever is processed, the next process has to know of these.
    held: Deaths,
    is_closed: bool,
}

impl InProgress {
    /// Opens the file, and returns what a process noted that did not end in order, if there was one.
    pub(super) fn open(disk: SharedDisk, path: PathBuf) -> (Self, Option<Deaths>) {
        let mut note = Note {
            file: disk.open_to_append(&path).ok(),
            disk,
            path,
            held: Deaths::new(),
            is_closed: false,
        };
        // What can't be read accuses nobody.
        let found = note.file.as_ref().map(read_deaths);
        let found = found.map(io::Result::unwrap_or_default);
        if found.is_none()
            && let Err(error) = note.file()
        {
            tracing::debug!(%error, "cannot note that the process runs");
        }
        (Self(Arc::new(Mutex::new(note))), found)
    }

    /// Replaces what is noted.
    pub(super) fn write(&self, current: Deaths, held: Deaths) -> io::Result<()> {
        let mut note = self.lock();
        if note.is_closed {
            return Ok(());
        }
        note.held.clone_from(&held);
        note.write(current.into_iter().chain(held).collect())
    }

    /// What is noted stays.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
    }

    /// The process ends in order, and not because of what is processed.
    pub(in crate::serve) fn end_in_order(&self) {
        let mut note = self.lock();
        if std::mem::replace(&mut note.is_closed, true) {
            return;
        }
        let ended = if note.held.is_empty() {
            remove_if_there(note.disk.as_ref(), &note.path)
        } else {
            let held = note.held.clone();
            note.write(held)
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "cannot note that the process ends in order");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Note> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Note {
    fn write(&mut self, deaths: Deaths) -> io::Result<()> {
        let entries: Vec<u8> = deaths.into_iter().flat_map(encode).collect();
        let file = self.file()?;
        file.truncate(0)?;
        if entries.is_empty() {
            return Ok(());
        }
        file.append(&mut [IoSlice::new(&entries)])
    }

    fn file(&mut self) -> io::Result<&dyn DiskFile> {
        let file = if let Some(file) = self.file.take() {
            file
        } else {
            remove_if_there(self.disk.as_ref(), &self.path)?;
            self.disk.create(&self.path)?
        };
        Ok(&**self.file.insert(file))
    }
}

/// Leaves the file of a process that died at this record, as others had before.
#[cfg(test)]
pub(super) fn accuse(disk: SharedDisk, path: PathBuf, position: Position, before: u32) {
    let (note, _) = InProgress::open(disk, path);
    let current = Deaths::from([(position, before)]);
    // On a disk that is full, it did not.
    drop(note.write(current, Deaths::new()));
}

fn encode((position, deaths): (Position, u32)) -> Vec<u8> {
    let mut entry = Vec::with_capacity(ENTRY_BYTES);
    entry.extend(position.segment.0.to_le_bytes());
    entry.extend(position.offset.to_le_bytes());
    entry.extend(deaths.to_le_bytes());
    let crc = crc32fast::hash(&entry);
    entry.extend(crc.to_le_bytes());
    entry
}

fn read_deaths(file: &Arc<dyn DiskFile>) -> io::Result<Deaths> {
    let mut entries = Vec::new();
    io::Read::read_to_end(&mut FileReader::new(Arc::clone(file)), &mut entries)?;
    let (entries, _torn) = entries.as_chunks::<ENTRY_BYTES>();
    Ok(entries.iter().map_while(parse).collect())
}

fn parse(entry: &[u8; ENTRY_BYTES]) -> Option<(Position, u32)> {
    let (checked, crc) = entry.split_first_chunk::<CHECKED_BYTES>()?;
    if crc != crc32fast::hash(checked).to_le_bytes() {
        return None;
    }
    let (segment, rest) = checked.split_first_chunk::<8>()?;
    let (offset, deaths) = rest.split_first_chunk::<4>()?;
    let position = Position {
        segment: SegmentId(u64::from_le_bytes(*segment)),
        offset: u32::from_le_bytes(*offset),
    };
    Some((position, u32::from_le_bytes(*deaths.first_chunk()?)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::disk::{Disk as _, simulated::SimulatedDisk};

    #[test]
    fn half_a_note_accuses_nobody() {
        let position = Position {
            segment: SegmentId(7),
            offset: 8,
        };
        let whole = encode((position, 5));
        let parsed = |entry: &[u8]| entry.as_array().and_then(parse);
        assert!(parsed(&whole).is_some());
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert_eq!(parsed(&changed), None);
        }
        let disk = SimulatedDisk::default();
        for length in 0..whole.len() {
            let path = Path::new("spool/in-progress");
            remove_if_there(&disk, path).unwrap();
            let file = disk.create(path).unwrap();
            file.append(&mut [IoSlice::new(&whole[..length])]).unwrap();
            let (_, found) = InProgress::open(Arc::new(disk.clone()), path.to_owned());
            assert_eq!(found, Some(Deaths::new()));
        }
    }
}
