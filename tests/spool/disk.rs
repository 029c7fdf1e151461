//! A disk that can be full, read-only or slow, over the real one. It does not sync: nothing that
//! runs here could tell.

use std::{
    io::{self, IoSlice},
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard},
};

use spanplane::disk::{DirEntry, Disk, DiskFile, DiskLock, LocalDisk};

use crate::home::PATIENCE;

/// What the disk was asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Call {
    Create,
    Append,
    Truncate,
    Sync,
    SyncFolder,
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<Call>,
    /// Asked for these, the disk fails.
    failing: Vec<Call>,
    /// Bytes that still fit; `None`: as many as you like.
    room: Option<u64>,
    /// What does not fit exceeds a quota, not the disk.
    has_quota: bool,
    /// Bytes that it says are free, if it is asked; `None`: more than anybody needs.
    free: Option<u64>,
    /// Asked for this, the disk hangs.
    held: Option<Call>,
    /// Somebody waits for the end of that.
    waiting: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A handle: the log has one, the test another.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestDisk(Arc<Shared>);

impl TestDisk {
    pub(crate) fn with_room(bytes: u64) -> Self {
        let disk = Self::default();
        disk.set_room(Some(bytes));
        disk
    }

    pub(crate) fn with_quota(bytes: u64) -> Self {
        let disk = Self::with_room(bytes);
        disk.state().has_quota = true;
        disk
    }

    pub(crate) fn set_room(&self, bytes: Option<u64>) {
        self.state().room = bytes;
    }

    pub(crate) fn set_free(&self, bytes: u64) {
        self.state().free = Some(bytes);
    }

    pub(crate) fn fail(&self, calls: &[Call]) {
        self.state().failing = calls.to_vec();
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// Makes calls like this wait until [`Self::release`].
    pub(crate) fn hold(&self, call: Call) {
        self.state().held = Some(call);
    }

    /// Returns once a call waits.
    pub(crate) fn wait_until_held(&self) {
        let (_state, waited) = self
            .0
            .changed
            .wait_timeout_while(self.state(), PATIENCE, |state| !state.waiting)
            .unwrap();
        assert!(!waited.timed_out());
    }

    pub(crate) fn release(&self) {
        self.state().held = None;
        self.0.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    fn ask(&self, call: Call) -> io::Result<()> {
        let mut state = self.state();
        state.calls.push(call);
        while state.held == Some(call) {
            state.waiting = true;
            self.0.changed.notify_all();
            state = self.0.changed.wait(state).unwrap();
        }
        state.waiting = false;
        if state.failing.contains(&call) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        Ok(())
    }

    /// Takes as many of these bytes as there is room for.
    fn take_room(&self, bytes: usize) -> usize {
        let mut state = self.state();
        let Some(room) = &mut state.room else {
            return bytes;
        };
        let taken = bytes.min(usize::try_from(*room).unwrap());
        *room -= taken as u64;
        taken
    }
}

impl Disk for TestDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.ask(Call::Create)?;
        Ok(self.wrap(path, LocalDisk.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        LocalDisk.open(path)
    }

    fn open_to_append(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(path, LocalDisk.open_to_append(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        LocalDisk.rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        LocalDisk.rename_new(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        LocalDisk.remove(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<DirEntry>> {
        LocalDisk.list(folder)
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        LocalDisk.create_folder(folder)
    }

    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        self.ask(Call::SyncFolder)
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(self.state().free.unwrap_or(u64::MAX))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        LocalDisk.lock(path)
    }
}

impl TestDisk {
    /// Room is for segments: the log of what is done takes next to none.
    fn wrap(&self, path: &Path, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        if path.extension().is_none_or(|ending| ending != "seg") {
            return file;
        }
        Arc::new(TestFile {
            disk: self.clone(),
            bytes: Mutex::new(0),
            file,
        })
    }
}

#[derive(Debug)]
struct TestFile {
    disk: TestDisk,
    bytes: Mutex<u64>,
    file: Arc<dyn DiskFile>,
}

impl DiskFile for TestFile {
    fn append(&self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        self.disk.ask(Call::Append)?;
        let all: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
        let fits = self.disk.take_room(all.len());
        *self.bytes.lock().unwrap() += fits as u64;
        self.file.append(&mut [IoSlice::new(&all[..fits])])?;
        if fits < all.len() {
            let has_quota = self.disk.state().has_quota;
            return Err(if has_quota {
                io::ErrorKind::QuotaExceeded.into()
            } else {
                io::ErrorKind::StorageFull.into()
            });
        }
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.disk.ask(Call::Truncate)?;
        self.file.truncate(bytes)?;
        let before = std::mem::replace(&mut *self.bytes.lock().unwrap(), bytes);
        if let Some(room) = &mut self.disk.state().room {
            *room += before - bytes;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.ask(Call::Sync)
    }
}
