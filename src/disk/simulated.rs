//! A disk in memory that crashes where a test wants it to.
//!
//! Every call that changes something counts as an operation, and if a test wants it every call that
//! reads, too. At the chosen one the process dies: an append is torn at a random byte, any other
//! call happens or doesn't, and from then on every call fails, until [`SimulatedDisk::restart`].
//! A killed process leaves everything that it wrote.
//! A power failure also takes what was not synced: of a file a random part of what was appended,
//! be it at its end or sectors in its middle, of the names in a folder the last of the changes, in
//! order, as journaling file systems do. Calls can also fail and leave everything as it was.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, IoSlice},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use super::{DirEntry, Disk, DiskFile, DiskLock};
use crate::time::Timestamp;

/// How a process ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Death {
    Killed,
    PowerFailure,
}

/// Calls that can fail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// Reading, opening, asking for a length, listing.
    Read,
    Sync,
    Rename,
    Truncate,
}

/// What is written to a platter at a time.
const SECTOR_BYTES: usize = 512;

/// A handle to the disk; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimulatedDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    names: BTreeMap<PathBuf, FileId>,
    /// As of the last sync of their folder.
    durable_names: BTreeMap<PathBuf, FileId>,
    /// Changes of names since then.
    unsynced_names: Vec<NameChange>,
    files: BTreeMap<FileId, Content>,
    folders: BTreeSet<PathBuf>,
    next_file: u64,
    capacity: Option<u64>,
    /// How often something was refused for want of space.
    times_full: u64,
    operations: u64,
    crash_at: Option<u64>,
    is_crashed: bool,
    counts_reads: bool,
    /// The next calls of these kinds fail.
    failing: Vec<Fault>,
    /// Of 256 calls that read, as many fail.
    failing_reads: u8,
    /// What lies in this file from here on can't be read.
    unreadable: Option<(FileId, u64)>,
    /// Handles of an earlier process are dead.
    process: u64,
    now: Timestamp,
    random: fastrand::Rng,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct FileId(u64);

#[derive(Clone, Debug)]
enum NameChange {
    Set(PathBuf, FileId),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    /// As of the last sync.
    durable: Vec<u8>,
    modified_at: Timestamp,
}

impl SimulatedDisk {
    pub(crate) fn with_seed(seed: u64) -> Self {
        let disk = Self::default();
        disk.state().random = fastrand::Rng::with_seed(seed);
        disk
    }

    /// All files together take at most this much.
    pub(crate) fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// How often something was refused for want of space.
    pub(crate) fn times_full(&self) -> u64 {
        self.state().times_full
    }

    pub(crate) fn set_time(&self, now: Timestamp) {
        self.state().now = now;
    }

    /// Changes made so far.
    pub(crate) fn operations(&self) -> u64 {
        self.state().operations
    }

    /// From now on a process can die where it reads, too.
    pub(crate) fn count_reads(&self) {
        self.state().counts_reads = true;
    }

    /// The next calls of these kinds fail.
    pub(crate) fn fail_next(&self, faults: &[Fault]) {
        self.state().failing = faults.to_vec();
    }

    /// Of 256 calls that read, as many fail.
    pub(crate) fn set_failing_reads(&self, of_256: u8) {
        self.state().failing_reads = of_256;
    }

    /// What lies in this file from here on can't be read, until the next process.
    pub(crate) fn fail_reads_from(&self, path: &Path, offset: u64) {
        let mut state = self.state();
        state.unreadable = state.names.get(path).map(|file| (*file, offset));
    }

    /// The process dies at the change with this number.
    pub(crate) fn crash_at(&self, operation: u64) {
        self.state().crash_at = Some(operation);
    }

    pub(crate) fn is_crashed(&self) -> bool {
        self.state().is_crashed
    }

    /// Ends the process, unless it died already, and lets the next one begin.
    pub(crate) fn restart(&self, death: Death) {
        let mut state = self.state();
        if death == Death::PowerFailure {
            state.lose_power();
        }
        state.process += 1;
        state.is_crashed = false;
        state.crash_at = None;
        state.failing.clear();
        state.failing_reads = 0;
        state.unreadable = None;
    }

    /// The names of all files, for messages of failing tests.
    pub(crate) fn file_names(&self) -> Vec<String> {
        let state = self.state();
        let shown = state.names.iter().map(|(path, file)| {
            let bytes = state.files.get(file).map_or(0, |file| file.bytes.len());
            format!("{} ({bytes})", path.display())
        });
        shown.collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn handle(&self, file: FileId, process: u64) -> Arc<dyn DiskFile> {
        Arc::new(Handle {
            disk: self.clone(),
            file,
            process,
        })
    }
}

/// EIO
fn cannot_read() -> io::Error {
    io::Error::from_raw_os_error(5)
}

fn dead() -> io::Error {
    io::Error::other("the process is dead")
}

impl State {
    /// Counts a change; tells whether it happens, and fails if it can't.
    fn change(&mut self) -> io::Result<Happens> {
        if self.is_crashed {
            return Err(dead());
        }
        self.operations += 1;
        if self.crash_at == Some(self.operations) {
            self.is_crashed = true;
            return Ok(Happens::ThenCrash);
        }
        Ok(Happens::Whole)
    }

    /// Fails if the disk is to fail at calls of this kind.
    fn check(&mut self, fault: Fault) -> io::Result<()> {
        let next = self.failing.iter().position(|failing| *failing == fault);
        let fails = next.map(|next| self.failing.swap_remove(next)).is_some()
            || fault == Fault::Read && self.failing_reads > 0 && {
                let limit = self.failing_reads;
                self.random.u8(..) < limit
            };
        if fails {
            return Err(cannot_read());
        }
        Ok(())
    }

    /// Something is read.
    fn read(&mut self) -> io::Result<()> {
        if self.counts_reads && self.change()? == Happens::ThenCrash || self.is_crashed {
            return Err(dead());
        }
        self.check(Fault::Read)
    }

    /// Does a change of names, or half of the time not, if the process dies at it.
    fn change_name(&mut self, change: NameChange) -> io::Result<()> {
        let happens = self.change()?;
        if happens == Happens::Whole || self.random.bool() {
            apply(&mut self.names, &change);
            self.unsynced_names.push(change);
        }
        if happens == Happens::ThenCrash {
            return Err(dead());
        }
        Ok(())
    }

    fn used(&self) -> u64 {
        let named = self.names.values();
        let files = named.filter_map(|file| self.files.get(file));
        files.map(|file| file.bytes.len() as u64).sum()
    }

    fn free(&self) -> u64 {
        let Some(capacity) = self.capacity else {
            return 1 << 40;
        };
        capacity.saturating_sub(self.used())
    }

    fn lose_power(&mut self) {
        let kept = self.random.usize(..=self.unsynced_names.len());
        let mut names = std::mem::take(&mut self.durable_names);
        for change in self.unsynced_names.drain(..).take(kept) {
            apply(&mut names, &change);
        }
        self.durable_names = names.clone();
        self.names = names;
        for file in self.files.values_mut() {
            if file.bytes.starts_with(&file.durable) {
                let kept = self.random.usize(file.durable.len()..=file.bytes.len());
                file.bytes.truncate(kept);
                // The file had grown before its bytes were written.
                let zeroed = self.random.usize(file.durable.len()..=kept);
                match self.random.u8(..) {
                    0..64 => file.bytes[zeroed..].fill(0),
                    // Later sectors were written before earlier ones.
                    64..128 => {
                        let until = self.random.usize(zeroed..=kept);
                        let sector = |at: usize| at.next_multiple_of(SECTOR_BYTES).min(kept);
                        file.bytes[sector(zeroed)..sector(until)].fill(0);
                    }
                    _ => {}
                }
            } else if self.random.bool() {
                file.bytes.clone_from(&file.durable);
            }
            file.durable.clone_from(&file.bytes);
        }
    }

    fn named(&self, path: &Path) -> io::Result<FileId> {
        if self.is_crashed {
            return Err(dead());
        }
        let named = self.names.get(path).copied();
        named.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Happens {
    Whole,
    ThenCrash,
}

fn apply(names: &mut BTreeMap<PathBuf, FileId>, change: &NameChange) {
    match change {
        NameChange::Set(path, file) => {
            names.insert(path.clone(), *file);
        }
        NameChange::Remove(path) => {
            names.remove(path);
        }
        NameChange::Rename(from, to) => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
    }
}

impl Disk for SimulatedDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        if state.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if state.free() == 0 {
            state.times_full += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = FileId(state.next_file);
        state.next_file += 1;
        let content = Content {
            modified_at: state.now,
            ..Content::default()
        };
        state.files.insert(file, content);
        state.change_name(NameChange::Set(path.to_owned(), file))?;
        Ok(self.handle(file, state.process))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        let file = state.named(path)?;
        state.read()?;
        Ok(self.handle(file, state.process))
    }

    fn open_to_append(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.named(from)?;
        state.check(Fault::Rename)?;
        state.change_name(NameChange::Rename(from.to_owned(), to.to_owned()))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.state().names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.named(path)?;
        state.change_name(NameChange::Remove(path.to_owned()))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<DirEntry>> {
        let mut state = self.state();
        state.read()?;
        let state = state;
        let inside = state.names.iter().filter_map(|(path, file)| {
            let name = path.strip_prefix(folder).ok()?;
            (name.components().count() == 1).then_some((name, file))
        });
        let files = inside.map(|(name, file)| DirEntry {
            name: name.to_str().unwrap().to_owned(),
            bytes: state.files[file].bytes.len() as u64,
            modified_at: state.files[file].modified_at,
            is_folder: false,
        });
        Ok(files.collect())
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.is_crashed {
            return Err(dead());
        }
        state.folders.insert(folder.to_owned());
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.check(Fault::Sync)?;
        if state.change()? == Happens::ThenCrash {
            return Err(dead());
        }
        // Everything up to the last change in this folder: the journal is written in order.
        let is_here = |change: &NameChange| match change {
            NameChange::Set(path, _) | NameChange::Remove(path) | NameChange::Rename(_, path) => {
                path.parent() == Some(folder)
            }
        };
        let last = state.unsynced_names.iter().rposition(is_here);
        let synced = last.map_or(0, |last| last + 1);
        let mut durable = std::mem::take(&mut state.durable_names);
        for change in state.unsynced_names.drain(..synced) {
            apply(&mut durable, &change);
        }
        state.durable_names = durable;
        Ok(())
    }

    fn free_bytes(&self, _folder: &Path) -> io::Result<u64> {
        Ok(self.state().free())
    }

    fn lock(&self, _path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        Ok(Some(Box::new(Lock)))
    }
}

#[derive(Debug)]
struct Lock;

impl DiskLock for Lock {}

#[derive(Debug)]
struct Handle {
    disk: SimulatedDisk,
    file: FileId,
    process: u64,
}

impl Handle {
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.state();
        if state.process != self.process || state.is_crashed {
            return Err(dead());
        }
        Ok(state)
    }
}

impl DiskFile for Handle {
    fn append(&self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut state = self.state()?;
        let mut bytes = Vec::new();
        for part in parts.iter() {
            bytes.extend_from_slice(part);
        }
        let happens = state.change()?;
        let room = usize::try_from(state.free()).unwrap_or(usize::MAX);
        let fits = bytes.len().min(room);
        let taken = match happens {
            Happens::Whole => fits,
            Happens::ThenCrash => state.random.usize(..=fits),
        };
        let now = state.now;
        let file = state.files.get_mut(&self.file).unwrap();
        file.bytes.extend_from_slice(&bytes[..taken]);
        file.modified_at = now;
        match happens {
            Happens::ThenCrash => Err(dead()),
            Happens::Whole if fits < bytes.len() => {
                state.times_full += 1;
                Err(io::ErrorKind::StorageFull.into())
            }
            Happens::Whole => Ok(()),
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.state()?;
        state.read()?;
        let end = offset.saturating_add(buffer.len() as u64);
        if state
            .unreadable
            .is_some_and(|(file, from)| file == self.file && end > from)
        {
            return Err(cannot_read());
        }
        let bytes = &state.files[&self.file].bytes;
        let start = usize::try_from(offset).unwrap().min(bytes.len());
        let read = buffer.len().min(bytes.len() - start);
        buffer[..read].copy_from_slice(&bytes[start..start + read]);
        Ok(read)
    }

    fn length(&self) -> io::Result<u64> {
        let mut state = self.state()?;
        state.read()?;
        Ok(state.files[&self.file].bytes.len() as u64)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.state()?;
        state.check(Fault::Truncate)?;
        let happens = state.change()?;
        if happens == Happens::Whole || state.random.bool() {
            let length = usize::try_from(bytes).unwrap();
            let file = state.files.get_mut(&self.file).unwrap();
            file.bytes.resize(length, 0);
        }
        if happens == Happens::ThenCrash {
            return Err(dead());
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state()?;
        state.check(Fault::Sync)?;
        if state.change()? == Happens::ThenCrash {
            return Err(dead());
        }
        let Content { bytes, durable, .. } = state.files.get_mut(&self.file).unwrap();
        if bytes.starts_with(durable) {
            let from = durable.len();
            durable.extend_from_slice(&bytes[from..]);
        } else {
            durable.clone_from(bytes);
        }
        Ok(())
    }
}
