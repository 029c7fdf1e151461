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

use super::disk::{Disk, SegmentFile};
use crate::{bell::Bell, metrics::Metrics};

/// What was written and is not known to be on the platter.
#[derive(Debug)]
pub(super) struct Unsynced {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    written: Mutex<Written>,
    wanted: Bell,
    is_ending: AtomicBool,
}

#[derive(Debug, Default)]
struct Written {
    files: Vec<Arc<dyn SegmentFile>>,
    folder: bool,
    waiting: Vec<oneshot::Sender<Result<(), Arc<io::Error>>>>,
}

impl Unsynced {
    pub(super) fn new(disk: Arc<dyn Disk>, folder: PathBuf) -> Self {
        Self {
            disk,
            folder,
            written: Mutex::default(),
            wanted: Bell::default(),
            is_ending: AtomicBool::new(false),
        }
    }

    pub(super) fn note_written(&self, file: &Arc<dyn SegmentFile>) {
        self.change(|written| {
            if !written.files.iter().any(|known| Arc::ptr_eq(known, file)) {
                written.files.push(Arc::clone(file));
            }
        });
    }

    pub(super) fn note_created(&self, file: &Arc<dyn SegmentFile>) {
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
            if let Err(error) = self.sync() {
                worked = false;
                metrics.spool_sync_failed();
                tracing::warn!(%error, "cannot sync the spool");
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
    /// fails does not keep the others from it.
    fn sync(&self) -> Result<(), Arc<io::Error>> {
        let written = self.change(std::mem::take);
        let mut synced = Ok(());
        for file in &written.files {
            synced = synced.and(file.sync());
        }
        if written.folder {
            synced = synced.and(self.disk.sync_folder(&self.folder));
        }
        let synced = synced.map_err(Arc::new);
        for waiting in written.waiting {
            // They may have given up: it is synced all the same.
            drop(waiting.send(synced.clone()));
        }
        synced
    }

    fn change<T>(&self, change: impl FnOnce(&mut Written) -> T) -> T {
        change(&mut self.written.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
