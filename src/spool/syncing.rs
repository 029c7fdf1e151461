//! Making what was written survive the loss of power: by one thread, so that no append waits for
//! the platter unless it is to.
//!
//! Invariant: whoever waits is answered after everything written before they began to wait is
//! synced, or with the reason why it is not. Many who wait share one sync.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{
    bell::Bell,
    disk::{DiskFile, SharedDisk},
    metrics::Metrics,
    panics::Task,
};

/// What was written and is not known to be on the platter.
#[derive(Debug)]
pub(super) struct Unsynced {
    disk: SharedDisk,
    folder: PathBuf,
    written: Mutex<Written>,
    wanted: Bell,
    is_ending: AtomicBool,
}

#[derive(Debug, Default)]
struct Written {
    files: Vec<Arc<dyn DiskFile>>,
    /// Segments of a process that may have been killed before it could sync them.
    earlier: Vec<PathBuf>,
    folder: bool,
    waiting: Vec<oneshot::Sender<Result<(), Arc<io::Error>>>>,
}

impl Unsynced {
    pub(super) fn new(disk: SharedDisk, folder: PathBuf) -> Self {
        Self {
            disk,
            folder,
            written: Mutex::default(),
            wanted: Bell::default(),
            is_ending: AtomicBool::new(false),
        }
    }

    pub(super) fn note_written(&self, file: &Arc<dyn DiskFile>) {
        self.change(|written| {
            if !written.files.iter().any(|known| Arc::ptr_eq(known, file)) {
                written.files.push(Arc::clone(file));
            }
        });
    }

    /// What an earlier process wrote may be nowhere but in memory.
    pub(super) fn note_earlier(&self, segments: impl Iterator<Item = PathBuf>) {
        self.change(|written| {
            written.earlier.extend(segments);
            written.folder = true;
        });
    }

    pub(super) fn note_created(&self, file: &Arc<dyn DiskFile>) {
        self.note_written(file);
        self.change(|written| written.folder = true);
    }

    /// Returns once everything written until now is synced.
    pub(super) async fn synced(&self) -> Result<(), Arc<io::Error>> {
        let (answer, answered) = oneshot::channel();
        self.change(|written| written.waiting.push(answer));
        self.wanted.ring();
        let ended = || Arc::new(io::Error::other("the spool is closed"));
        answered.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Syncs at least this often, and whenever somebody waits for it, until told to end; tells
    /// whether it all worked.
    pub(super) fn keep_syncing(&self, interval: Duration, metrics: &Metrics) -> bool {
        let mut worked = true;
        loop {
            self.wanted.wait(interval);
            let is_ending = self.is_ending.load(Ordering::Acquire);
            // NOTE: nobody else syncs, and those who wait for it would wait for ever.
            let synced = metrics.panics().catch(Task::Sync, || self.sync());
            match synced {
                Ok(Ok(())) => metrics.panics().works(Task::Sync),
                Ok(Err(error)) => {
                    worked = false;
                    metrics.spool_sync_failed();
                    tracing::warn!(%error, "cannot sync the spool");
                }
                Err(_) => {
                    worked = false;
                    metrics.spool_sync_failed();
                }
            }
            if is_ending {
                return worked;
            }
        }
    }

    /// Ends syncing, after one last time.
    pub(super) fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.wanted.ring();
    }

    /// Syncs what was written since the last time, without holding up the writer. One file that
    /// fails does not keep the others from it; what failed is synced again the next time.
    pub(super) fn sync(&self) -> Result<(), Arc<io::Error>> {
        // NOTE: put back when it is dropped, also by a panic, but for what was synced.
        let mut taken = Taken {
            written: self.change(std::mem::take),
            unsynced: self,
        };
        let written = &mut taken.written;
        let mut synced = Ok(());
        let mut note = |done: io::Result<()>| {
            let failed = done.is_err();
            if synced.is_ok() {
                synced = done;
            }
            failed
        };
        // The first is synced and only then taken off the list.
        let mut failed = Vec::new();
        while let Some(file) = written.files.first() {
            let has_failed = note(file.sync());
            let file = written.files.swap_remove(0);
            if has_failed {
                failed.push(file);
            }
        }
        written.files = failed;
        let mut failed = Vec::new();
        while let Some(path) = written.earlier.first() {
            let has_failed = note(match self.disk.open(path) {
                Ok(file) => file.sync(),
                // Done with, meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
            });
            let path = written.earlier.swap_remove(0);
            if has_failed {
                failed.push(path);
            }
        }
        written.earlier = failed;
        if written.folder {
            written.folder = note(self.disk.sync_folder(&self.folder));
        }
        let synced = synced.map_err(Arc::new);
        for waiting in written.waiting.drain(..) {
            // They may have given up: it is synced all the same.
            drop(waiting.send(synced.clone()));
        }
        synced
    }

    fn change<T>(&self, change: impl FnOnce(&mut Written) -> T) -> T {
        change(&mut self.written.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What is being synced.
struct Taken<'u> {
    written: Written,
    unsynced: &'u Unsynced,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let Written {
            files,
            earlier,
            folder,
            // Nobody waits any more: who was not answered hears that it failed.
            waiting: _,
        } = std::mem::take(&mut self.written);
        for file in &files {
            self.unsynced.note_written(file);
        }
        self.unsynced.change(|written| {
            written.earlier.extend(earlier);
            written.folder |= folder;
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{io::IoSlice, path::Path};

    use super::*;
    use crate::disk::{
        Disk as _,
        simulated::{Death, Fault, SimulatedDisk},
    };

    #[test]
    fn what_could_not_be_synced_is_synced_the_next_time() {
        let disk = SimulatedDisk::default();
        let folder = Path::new("spool");
        let earlier = disk.create(&folder.join("1.seg")).unwrap();
        earlier.append(&mut [IoSlice::new(b"earlier")]).unwrap();
        let unsynced = Unsynced::new(Arc::new(disk.clone()), folder.to_owned());
        unsynced.note_earlier(std::iter::once(folder.join("1.seg")));
        let file = disk.create(&folder.join("2.seg")).unwrap();
        file.append(&mut [IoSlice::new(b"answered")]).unwrap();
        unsynced.note_created(&file);
        disk.fail_next(&[Fault::Sync; 3]);
        unsynced.sync().unwrap_err();
        unsynced.sync().unwrap();
        disk.restart(Death::PowerFailure);
        for (name, content) in [("1.seg", "earlier"), ("2.seg", "answered")] {
            let left = crate::disk::read_file(&disk, &folder.join(name)).unwrap();
            assert_eq!(left.as_deref(), Some(content.as_bytes()), "{name}");
        }
    }
}
