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
mod writer;

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use tokio::sync::oneshot;

pub use self::{
    disk::{Disk, LocalDisk, SegmentFile},
    follower::{Follower, ReadError},
    writer::AppendError,
};
use self::{
    frame::MAX_BODY_BYTES,
    ledger::Ledger,
    segment::{done_id, done_path, segment_id},
    writer::{Append, Unsynced, Writer},
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
/// Appends that may wait for the writer. More than core keeps in flight.
const WAITING_RECORDS: usize = 1024;
/// Bytes that may wait for the writer, in memory: half of what the sidecar may use.
const WAITING_BYTES: u64 = 64 * 1024 * 1024;

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

/// The log's writing end. Appending ends when the last clone of the [`Appender`] is gone.
#[derive(Debug)]
pub struct Spool {
    appender: Appender,
    synced: mpsc::Receiver<bool>,
    sync_now: SyncNow,
    ledger: Arc<Ledger>,
    _lock: File,
}

/// Makes what was written durable.
#[derive(Clone, Debug)]
struct SyncNow {
    unsynced: Arc<Unsynced>,
    disk: Arc<dyn Disk>,
    folder: PathBuf,
}

impl SyncNow {
    fn sync(&self) -> io::Result<()> {
        self.unsynced.sync(&*self.disk, &self.folder)
    }
}

/// Appends to the log.
#[derive(Clone, Debug)]
pub struct Appender {
    queue: mpsc::SyncSender<Append>,
    waiting_bytes: Arc<AtomicU64>,
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

        let (queue, waiting) = mpsc::sync_channel(WAITING_RECORDS);
        let waiting_bytes = Arc::new(AtomicU64::new(0));
        let unsynced = Arc::new(Unsynced::default());
        let mut writer = Writer {
            folder: folder.clone(),
            disk: Arc::clone(&disk),
            ledger: Arc::clone(&ledger),
            unsynced: Arc::clone(&unsynced),
            waiting_bytes: Arc::clone(&waiting_bytes),
            appended,
            max_bytes: settings.max_bytes,
            segment_bytes: SEGMENT_BYTES.min(settings.max_bytes / 8),
            kept_free: settings.max_bytes / KEPT_FREE,
            sync: settings.sync,
            next_segment,
            active: None,
            failing: false,
        };
        writer.active = Some(writer.begin_segment().map_err(OpenError::Write)?);

        let (written, all_written) = mpsc::channel::<()>();
        spawn("spool-write", move || {
            writer.run(&waiting);
            drop(written);
        })?;
        let sync = settings.sync;
        let syncing_metrics = metrics.clone();
        let sync_now = SyncNow {
            unsynced,
            disk,
            folder: folder.clone(),
        };
        let syncing = sync_now.clone();
        let (all_synced, synced) = mpsc::channel();
        spawn("spool-sync", move || {
            let synced = keep_syncing(sync, &all_written, &syncing_metrics, &syncing);
            // Nobody need be waiting for it.
            all_synced.send(synced).ok();
        })?;
        let follower = Follower::new(folder, Arc::clone(&ledger), metrics.clone());
        let appends = Appender {
            queue,
            waiting_bytes,
        };
        Ok((
            Self {
                appender: appends,
                synced,
                sync_now,
                ledger,
                _lock: lock,
            },
            follower,
        ))
    }

    pub fn appender(&self) -> Appender {
        self.appender.clone()
    }

    pub fn gauge(&self) -> SpoolGauge {
        SpoolGauge(Arc::clone(&self.ledger))
    }

    /// Makes everything appended durable, and tells whether it is. Whoever still holds an
    /// [`Appender`] is waited for up to `limit`.
    pub fn close(self, limit: Duration) -> bool {
        drop(self.appender);
        let written = self.synced.recv_timeout(limit);
        written.unwrap_or_else(|_| self.sync_now.sync().is_ok())
    }
}

impl Appender {
    /// Returns once the record is written. Giving up waiting does not take it back.
    pub async fn append(&self, record: Record) -> Result<(), AppendError> {
        let bytes = record.message.len() as u64;
        if record.message.len() > MAX_BODY_BYTES {
            return Err(AppendError::Full {
                used: 0,
                limit: MAX_BODY_BYTES as u64,
            });
        }
        let waiting = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        // The first may always go: a record larger than the limit must not be refused for ever.
        let refused = if waiting > 0 && waiting + bytes > WAITING_BYTES {
            Some(AppendError::Busy { waiting })
        } else {
            let (answer, answered) = oneshot::channel();
            match self.queue.try_send(Append { record, answer }) {
                Ok(()) => return answered.await.unwrap_or(Err(AppendError::Closed)),
                Err(mpsc::TrySendError::Full(_)) => Some(AppendError::Busy { waiting }),
                Err(mpsc::TrySendError::Disconnected(_)) => Some(AppendError::Closed),
            }
        };
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Err(refused.unwrap_or(AppendError::Closed))
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

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), OpenError> {
    let builder = thread::Builder::new().name(name.to_owned());
    builder.spawn(run).map(drop).map_err(OpenError::Thread)
}

/// Syncs until all is written; tells whether it all worked.
fn keep_syncing(
    interval: Duration,
    all_written: &mpsc::Receiver<()>,
    metrics: &Metrics,
    all: &SyncNow,
) -> bool {
    // The writer syncs by itself where the interval is zero; nothing is urgent here then.
    let interval = if interval.is_zero() {
        Duration::from_secs(1)
    } else {
        interval
    };
    let mut synced = true;
    loop {
        let ended = all_written.recv_timeout(interval);
        if let Err(error) = all.sync() {
            synced = false;
            metrics.spool_sync_failed();
            tracing::warn!(%error, "cannot sync the spool");
        }
        if ended == Err(mpsc::RecvTimeoutError::Disconnected) {
            return synced;
        }
    }
}
