//! The spool: an append-only log on local disk, the only place where payloads wait.
//!
//! # Promises
//!
//! - An append that was answered survives `kill -9` at any moment after; it survives the loss of
//!   power once the sync interval has passed (at once, if that interval is zero).
//! - Bounded in bytes: when it is full an append is refused at once, and so is one that would take
//!   the last of the disk, which is for what is made of the log.
//! - Memory does not grow with what waits in it.
//! - One process a data directory, held by a lock that dies with the process.
//!
//! # On disk
//!
//! ```text
//! <data-dir>/lock                              locked while a process uses the directory
//! <data-dir>/spool/00000000000000000007.seg    records, framed; only the newest one grows
//! <data-dir>/spool/00000000000000000007.done   which of its records are done with
//! <data-dir>/spool/00000000000000000005.spare  a segment that was emptied, to be used again
//! ```
//!
//! A segment begins with the 8 bytes `SPSPOOL1` (name and version), followed by frames (`frame`)
//! without gaps. The last byte of the name is the version: a segment of another version is left
//! alone. Another version's frames do not check out as frames of this one, so that a damaged
//! byte is not taken for a version. A done file is a list of checked offsets (`done`).
//!
//! # Recovery
//!
//! There is no repair step. A start lists the segments, begins a new one after them and never
//! writes to an old one again; so it takes as long for a full log as for an empty one. The
//! follower then reads the old ones as it does any other:
//!
//! - a frame cut off at the end of a segment was never answered, and is stepped over;
//! - a frame whose body is damaged costs that record;
//! - a frame whose header is damaged costs what lies up to the next header that checks out;
//! - a record that the done file names is stepped over; losing that file makes work be done
//!   again, with the same result.
//!
//! A segment is removed when it is sealed, followed to its end, and all of its records are done
//! (`ledger`), whatever stands before it.

mod disk;
mod done;
mod follower;
mod frame;
mod ledger;
mod segment;
mod syncing;
mod writer;

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::Duration,
};

pub use self::{
    disk::{Disk, LocalDisk, SegmentFile},
    follower::{Follower, ReadError},
    writer::AppendError,
};
use self::{
    frame::MAX_BODY_BYTES,
    ledger::Ledger,
    segment::{done_id, done_path, is_spare, segment_id},
    syncing::Unsynced,
    writer::Writer,
};
use crate::{
    bell::Bell,
    metrics::Metrics,
    record::{Record, SegmentId},
};

/// A segment is full at this size. Smaller ones give disk back sooner, larger ones mean fewer
/// files: a full log of 1 GiB has 128.
const SEGMENT_BYTES: u64 = 8 * 1024 * 1024;
/// The part of its limit that the log leaves free on the disk, for what is made of it.
const KEPT_FREE: u64 = 128;
/// How often is synced what nobody waits for, where everybody waits.
const UNASKED_SYNC: Duration = Duration::from_secs(1);

/// How the log is to be kept.
#[derive(Clone, Debug)]
pub struct SpoolSettings {
    pub data_dir: PathBuf,
    pub max_bytes: u64,
    /// Longest time a record may be in memory of the operating system only; zero: none at all.
    pub sync: Duration,
}

/// Why the log can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot create {path:?}")]
    Create { path: PathBuf, source: io::Error },
    #[error("cannot use {path:?}: another process holds its lock")]
    InUse { path: PathBuf },
    #[error("cannot lock {path:?}")]
    Lock { path: PathBuf, source: io::Error },
    #[error("cannot list {path:?}")]
    List { path: PathBuf, source: io::Error },
    #[error("cannot write to the spool")]
    Write(#[source] AppendError),
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// The log's writing end.
#[derive(Debug)]
pub struct Spool {
    appender: Appender,
    synced: mpsc::Receiver<bool>,
    ledger: Arc<Ledger>,
    _lock: File,
}

/// Appends to the log.
#[derive(Clone, Debug)]
pub struct Appender {
    writer: Arc<Mutex<Writer>>,
    unsynced: Arc<Unsynced>,
    /// Nothing is answered before it is on the platter.
    must_sync: bool,
}

/// Tells how full the log is.
#[derive(Clone, Debug)]
pub struct SpoolGauge(Arc<Ledger>);

impl SpoolGauge {
    /// What is used of the limit, by the log and beside it.
    pub fn used_bytes(&self) -> u64 {
        self.0.used()
    }

    /// What was made of records and waits beside the log shares its limit.
    pub fn set_beside(&self, bytes: u64) {
        self.0.set_beside(bytes);
    }
}

impl Spool {
    /// Takes the data directory and begins a segment. `appended` is rung after every append.
    pub fn open(
        settings: &SpoolSettings,
        disk: Arc<dyn Disk>,
        metrics: &Metrics,
        appended: Arc<Bell>,
    ) -> Result<(Self, Follower), OpenError> {
        let folder = settings.data_dir.join("spool");
        fs::create_dir_all(&folder).map_err(|source| OpenError::Create {
            path: folder.clone(),
            source,
        })?;
        let lock = lock_directory(&settings.data_dir)?;
        let ledger = Arc::new(Ledger::default());
        let next_segment = adopt_segments(&folder, &ledger).map_err(|source| OpenError::List {
            path: folder.clone(),
            source,
        })?;

        let unsynced = Arc::new(Unsynced::new(Arc::clone(&disk), folder.clone()));
        let mut writer = Writer {
            folder: folder.clone(),
            disk: Arc::clone(&disk),
            ledger: Arc::clone(&ledger),
            unsynced: Arc::clone(&unsynced),
            appended,
            max_bytes: settings.max_bytes,
            segment_bytes: SEGMENT_BYTES.min(settings.max_bytes / 8),
            kept_free: settings.max_bytes / KEPT_FREE,
            known_free: 0,
            next_segment,
            active: None,
            failing: false,
            is_closed: false,
        };
        writer.active = Some(writer.begin_segment().map_err(OpenError::Write)?);

        let must_sync = settings.sync.is_zero();
        // Whoever waits for each sync asks for it; nothing is urgent beside that.
        let interval = if must_sync {
            UNASKED_SYNC
        } else {
            settings.sync
        };
        let (syncing, syncing_metrics) = (Arc::clone(&unsynced), metrics.clone());
        let (all_synced, synced) = mpsc::channel();
        let work = move || {
            // Nobody need be waiting for it.
            all_synced
                .send(syncing.keep_syncing(interval, &syncing_metrics))
                .ok();
        };
        thread::Builder::new()
            .name("spool-sync".to_owned())
            .spawn(work)
            .map_err(OpenError::Thread)?;
        let follower = Follower::new(folder, disk, Arc::clone(&ledger), metrics.clone());
        let spool = Self {
            appender: Appender {
                writer: Arc::new(Mutex::new(writer)),
                unsynced,
                must_sync,
            },
            synced,
            ledger,
            _lock: lock,
        };
        Ok((spool, follower))
    }

    pub fn appender(&self) -> Appender {
        self.appender.clone()
    }

    pub fn gauge(&self) -> SpoolGauge {
        SpoolGauge(Arc::clone(&self.ledger))
    }

    /// Ends appending, makes everything appended durable, and tells whether it is.
    pub fn close(self, limit: Duration) -> bool {
        let appender = self.appender.clone();
        // NOTE: on a disk that hangs an append holds the lock for as long.
        let closing = thread::Builder::new().spawn(move || {
            appender.lock().close();
            appender.unsynced.end();
        });
        closing.is_ok() && self.synced.recv_timeout(limit).unwrap_or(false)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.appender.unsynced.end();
    }
}

impl Appender {
    /// Returns once the record is written, or synced, if the log is to sync at once. It waits for
    /// the disk where it is called. Giving up waiting for the sync does not take it back.
    pub async fn append(&self, record: Record) -> Result<(), AppendError> {
        if record.message.len() > MAX_BODY_BYTES {
            return Err(AppendError::Full {
                used: 0,
                limit: MAX_BODY_BYTES as u64,
            });
        }
        self.lock().append(&record)?;
        if !self.must_sync {
            return Ok(());
        }
        // A record that can't be synced is refused and stays: at worst it is kept without an answer.
        let synced = self.unsynced.synced().await;
        synced.map_err(|source| AppendError::Sync { source })
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock_directory(data_dir: &Path) -> Result<File, OpenError> {
    let path = data_dir.join("lock");
    let opened = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path);
    let file = opened.map_err(|source| OpenError::Create {
        path: path.clone(),
        source,
    })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
            path: data_dir.to_owned(),
        }),
        Err(TryLockError::Error(source)) => Err(OpenError::Lock { path, source }),
    }
}

/// Enters the segments of earlier processes and returns the number of the next.
fn adopt_segments(folder: &Path, ledger: &Ledger) -> io::Result<SegmentId> {
    let mut next = SegmentId(1);
    let mut done_files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if is_spare(&path) {
            // Nobody knows it any more. If it stays, it is in nobody's way.
            drop(fs::remove_file(&path));
            continue;
        }
        let Some(id) = segment_id(&path).or_else(|| done_id(&path)) else {
            continue;
        };
        // NOTE: a done file counts too: it would make a new segment of its number look done.
        next = next.max(SegmentId(id.0.saturating_add(1)));
        let metadata = entry.metadata()?;
        if done_id(&path).is_some() {
            done_files.push(id);
        } else if !metadata.is_dir() {
            ledger.adopt(id, metadata.len());
        }
    }
    for id in done_files {
        if ledger.extent(id).is_none() {
            // Left by a process that died while it removed the segment; in nobody's way.
            drop(fs::remove_file(done_path(folder, id)));
        }
    }
    Ok(next)
}
