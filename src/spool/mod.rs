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
//! <data-dir>/spool/done.log                    which records are done with
//! <data-dir>/spool/00000000000000000005.spare  a segment that was emptied, to be used again
//! ```
//!
//! A segment begins with the 8 bytes `SPSPOOL1` (name and version), followed by frames (`frame`)
//! without gaps. The last byte of the name is the version: a segment of another version is left
//! alone. Another version's frames do not check out as frames of this one, so that a damaged
//! byte is not taken for a version. What is done is in one log for all segments (`done`).
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
//! - a record that the done log names is skipped; losing that log means that work is done again,
//!   with the same result.
//!
//! A segment is removed when it is sealed, followed to its end, and all of its records are done
//! (`ledger`), whatever stands before it.

mod done;
mod follower;
mod frame;
mod ledger;
#[cfg(test)]
mod model;
mod read_failures;
mod recycling;
mod segment;
mod syncing;
mod writer;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::Duration,
};

use self::{
    done::DoneLog,
    frame::MAX_BODY_BYTES,
    ledger::Ledger,
    recycling::{PIECE_BYTES, SegmentFiles},
    segment::{done_id, is_spare, segment_id, segment_path},
    syncing::Unsynced,
    writer::Writer,
};
pub use self::{
    follower::{Follower, ReadError},
    writer::AppendError,
};
use crate::{
    bell::Bell,
    disk::{Disk, DiskFile, DiskLock, SharedDisk},
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
    /// Whether a thread syncs at that interval; else [`Spool::sync`] has to be called.
    pub syncs_itself: bool,
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
    _lock: Box<dyn DiskLock>,
}

/// Appends to the log.
#[derive(Clone, Debug)]
pub struct Appender {
    writer: Arc<Mutex<Writer>>,
    unsynced: Arc<Unsynced>,
    /// Nothing is answered before it is on the platter.
    must_sync: bool,
}

/// A record that was appended and may be in memory of the operating system only.
#[derive(Debug)]
pub struct Appended {
    disk: SharedDisk,
    folder: PathBuf,
    file: Option<Arc<dyn DiskFile>>,
}

impl Appended {
    /// Makes it survive a power failure.
    pub fn sync(&self) -> io::Result<()> {
        // NOTE: not by way of what is known to be unsynced: whoever is syncing that has taken it.
        if let Some(file) = &self.file {
            file.sync()?;
        }
        self.disk.sync_folder(&self.folder)
    }
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
        disk: SharedDisk,
        metrics: &Metrics,
        appended: Arc<Bell>,
    ) -> Result<(Self, Follower), OpenError> {
        let folder = settings.data_dir.join("spool");
        let create = disk.create_folder(&folder);
        create.map_err(|source| OpenError::Create {
            path: folder.clone(),
            source,
        })?;
        let lock = lock_directory(disk.as_ref(), &settings.data_dir)?;
        let ledger = Arc::new(Ledger::default());
        let segments = list_segments(disk.as_ref(), &folder, &ledger);
        let segments = segments.map_err(|source| OpenError::List {
            path: folder.clone(),
            source,
        })?;
        let done = DoneLog::open(Arc::clone(&disk), folder.clone(), &segments.adopted);
        let last_segment = segments.last.max(done.last_segment());
        let next_segment = last_segment.map_or(1, |last| last.0.saturating_add(1));
        let segment_bytes = SEGMENT_BYTES.min(settings.max_bytes / 8);
        let files = Arc::new(SegmentFiles::new(
            Arc::clone(&disk),
            PIECE_BYTES.min(segment_bytes / 4),
        ));

        let unsynced = Arc::new(Unsynced::new(Arc::clone(&disk), folder.clone()));
        let earlier = segments.adopted.iter();
        unsynced.note_earlier(earlier.map(|id| segment_path(&folder, *id)));
        let mut writer = Writer {
            folder: folder.clone(),
            disk: Arc::clone(&disk),
            files: Arc::clone(&files),
            ledger: Arc::clone(&ledger),
            unsynced: Arc::clone(&unsynced),
            appended,
            max_bytes: settings.max_bytes,
            segment_bytes,
            kept_free: settings.max_bytes / KEPT_FREE,
            known_free: 0,
            next_segment: SegmentId(next_segment),
            active: None,
            failing: false,
            is_closed: false,
        };
        writer.active = match writer.begin_segment() {
            // What is there has to be processed, which makes room.
            Err(error) if error.is_disk_full() => None,
            begun => Some(begun.map_err(OpenError::Write)?),
        };

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
        if settings.syncs_itself {
            thread::Builder::new()
                .name("spool-sync".to_owned())
                .spawn(work)
                .map_err(OpenError::Thread)?;
        }
        let follower = Follower::new(
            folder,
            disk,
            files,
            done,
            SegmentId(next_segment),
            Arc::clone(&ledger),
            metrics.clone(),
        );
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

    /// Makes everything that was appended survive a power failure.
    pub fn sync(&self) -> Result<(), Arc<io::Error>> {
        self.appender.unsynced.sync()
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
        check_size(&record)?;
        self.lock().append(&record, false)?;
        if !self.must_sync {
            return Ok(());
        }
        // A record that can't be synced is refused and stays: at worst it is kept without an answer.
        let synced = self.unsynced.synced().await;
        synced.map_err(|source| AppendError::Sync { source })
    }

    /// Appends a record that came before others in the log. Whoever follows the log does not take
    /// its arrival for the time that it is.
    pub fn append_late(&self, record: &Record) -> Result<Appended, AppendError> {
        check_size(record)?;
        let mut writer = self.lock();
        Ok(Appended {
            file: writer.append_late(record)?,
            disk: Arc::clone(&writer.disk),
            folder: writer.folder.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_size(record: &Record) -> Result<(), AppendError> {
    if record.message.len() > MAX_BODY_BYTES {
        return Err(AppendError::Full {
            used: 0,
            limit: MAX_BODY_BYTES as u64,
        });
    }
    Ok(())
}

fn lock_directory(disk: &dyn Disk, data_dir: &Path) -> Result<Box<dyn DiskLock>, OpenError> {
    let path = data_dir.join("lock");
    match disk.lock(&path) {
        Ok(Some(lock)) => Ok(lock),
        Ok(None) => Err(OpenError::InUse {
            path: data_dir.to_owned(),
        }),
        Err(source) => Err(OpenError::Lock { path, source }),
    }
}

/// The segments of earlier processes.
struct Segments {
    adopted: Vec<SegmentId>,
    /// The highest number in use, be it by a file that is none of ours.
    last: Option<SegmentId>,
}

/// Enters the segments of earlier processes, and removes what they left behind.
fn list_segments(disk: &dyn Disk, folder: &Path, ledger: &Ledger) -> io::Result<Segments> {
    let mut segments = Segments {
        adopted: Vec::new(),
        last: None,
    };
    let mut old_done_files = Vec::new();
    for entry in disk.list(folder)? {
        let path = folder.join(&entry.name);
        if is_spare(&path) {
            // Nobody knows it any more. If it stays, it is in nobody's way.
            drop(disk.remove(&path));
            continue;
        }
        let Some(id) = segment_id(&path).or_else(|| done_id(&path)) else {
            continue;
        };
        // NOTE: a done file counts too: it would make a new segment of its number look done.
        segments.last = segments.last.max(Some(id));
        if done_id(&path).is_some() {
            old_done_files.push((id, path));
        } else if !entry.is_folder {
            ledger.adopt(id, entry.bytes);
            segments.adopted.push(id);
        }
    }
    for (id, path) in old_done_files {
        if ledger.extent(id).is_none() {
            // Left by a process that died while it removed the segment; in nobody's way.
            drop(disk.remove(&path));
        }
    }
    Ok(segments)
}
