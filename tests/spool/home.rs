//! A data directory of its own, the log in it, and messages to put there.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use spanplane::{
    bell::Bell,
    metrics::Metrics,
    record::{Position, Record, RecordKind},
    spool::{AppendError, Appender, Follower, OpenError, Spool, SpoolSettings},
    time::{Clock, Timestamp},
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::disk::TestDisk;

/// Enough for every test that is not about being full.
pub(crate) const ROOMY: u64 = 64 * 1024 * 1024;
/// Bytes that a frame adds to its message.
pub(crate) const HEADER_BYTES: usize = 32;
/// Where the first frame of a segment stands.
pub(crate) const FIRST_OFFSET: usize = 8;
/// Longest time for what takes no time at all, unless a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A data directory, gone with the test.
#[derive(Debug)]
pub(crate) struct Home {
    folder: TempDir,
    pub(crate) max_bytes: u64,
    pub(crate) sync: Duration,
}

impl Home {
    pub(crate) fn new(max_bytes: u64) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            max_bytes,
            sync: PATIENCE,
        }
    }

    /// A directory that holds what is in this one now, as `kill -9` would leave it.
    pub(crate) fn crashed_copy(&self) -> Self {
        let copy = Self::new(self.max_bytes);
        copy.take_files_of(&self.spool());
        copy
    }

    /// Puts copies of all files in a folder into the spool.
    pub(crate) fn take_files_of(&self, folder: &Path) {
        fs::create_dir_all(self.spool()).unwrap();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, self.spool().join(path.file_name().unwrap())).unwrap();
        }
    }

    pub(crate) fn data_dir(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn spool(&self) -> PathBuf {
        self.folder.path().join("spool")
    }

    pub(crate) fn segment(&self, id: u64) -> PathBuf {
        self.spool().join(format!("{id:020}.seg"))
    }

    pub(crate) fn done_log(&self) -> PathBuf {
        self.spool().join("done.log")
    }

    /// Where older versions noted which records of a segment are done.
    pub(crate) fn old_done_file(&self, id: u64) -> PathBuf {
        self.spool().join(format!("{id:020}.done"))
    }

    /// Names of the files in the spool with this ending, in order.
    pub(crate) fn files(&self, ending: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.spool()).unwrap();
        let mut files: Vec<_> = entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|found| found == ending))
            .collect();
        files.sort();
        files
    }

    pub(crate) fn open(&self) -> Log {
        self.try_open(&TestDisk::default()).unwrap()
    }

    pub(crate) fn open_on(&self, disk: &TestDisk) -> Log {
        self.try_open(disk).unwrap()
    }

    pub(crate) fn try_open(&self, disk: &TestDisk) -> Result<Log, OpenError> {
        open_at(self.data_dir(), self.max_bytes, self.sync, disk)
    }
}

pub(crate) fn open_at(
    data_dir: &Path,
    max_bytes: u64,
    sync: Duration,
    disk: &TestDisk,
) -> Result<Log, OpenError> {
    let metrics = Metrics::new().unwrap();
    let bell = Arc::new(Bell::default());
    let settings = SpoolSettings {
        data_dir: data_dir.to_owned(),
        max_bytes,
        sync,
        syncs_itself: true,
    };
    let disk = Arc::new(disk.clone());
    let (spool, follower) = Spool::open(&settings, disk, &metrics, Arc::clone(&bell))?;
    let clock = Arc::new(HeldClock(Mutex::new(Instant::now())));
    Ok(Log {
        appender: spool.appender(),
        spool,
        follower: follower.with_clock(Arc::clone(&clock) as _),
        clock,
        metrics,
        bell,
        runtime: tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap(),
    })
}

/// Time that passes when a test says so.
#[derive(Debug)]
pub(crate) struct HeldClock(Mutex<Instant>);

impl HeldClock {
    pub(crate) fn advance(&self, time: Duration) {
        *self.0.lock().unwrap() += time;
    }
}

impl Clock for HeldClock {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    fn instant(&self) -> Instant {
        *self.0.lock().unwrap()
    }
}

/// A log in use. Dropping it frees the directory, with no more ado than the end of a process.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) spool: Spool,
    pub(crate) appender: Appender,
    pub(crate) follower: Follower,
    pub(crate) bell: Arc<Bell>,
    pub(crate) clock: Arc<HeldClock>,
    metrics: Metrics,
    runtime: Runtime,
}

impl Log {
    pub(crate) fn append(&self, record: &Record) -> Result<(), AppendError> {
        self.wait_for(self.appender.append(record.clone()))
    }

    pub(crate) fn append_all(&self, records: &[Record]) {
        for record in records {
            self.append(record).unwrap();
        }
    }

    pub(crate) fn wait_for<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// What the follower has to hand out now, and where it lies.
    pub(crate) fn follow(&mut self) -> Vec<(Position, Record)> {
        std::iter::from_fn(|| self.follower.next_record().unwrap()).collect()
    }

    /// What the follower has to hand out now.
    pub(crate) fn records(&mut self) -> Vec<Record> {
        self.follow()
            .into_iter()
            .map(|(_, record)| record)
            .collect()
    }

    /// Follows to the end and finishes everything, then lets go of what nobody needs.
    pub(crate) fn finish_all(&mut self) {
        let positions: Vec<_> = self.follow().into_iter().map(|(at, _)| at).collect();
        self.follower.finish(&positions).unwrap();
    }

    pub(crate) fn damaged(&self) -> u64 {
        self.counted("spanplane_spool_damaged_total")
    }

    pub(crate) fn torn(&self) -> u64 {
        self.counted("spanplane_spool_torn_total")
    }

    pub(crate) fn counted(&self, name: &str) -> u64 {
        let text = self.metrics.text().unwrap();
        let values = text.lines().filter_map(|line| line.split_once(' '));
        let mut values = values.filter(|(found, _)| *found == name);
        values.next().unwrap().1.parse().unwrap()
    }

    /// Ends writing in order; the follower and the metrics go on.
    pub(crate) fn close(self) -> (bool, Follower) {
        drop(self.appender);
        (self.spool.close(PATIENCE), self.follower)
    }
}

/// A message that says its number, of either kind.
pub(crate) fn numbered(number: u32) -> Record {
    record_of(number, format!("{{\"number\":{number}}}").as_bytes())
}

/// A message of a certain length.
pub(crate) fn sized(number: u32, length: usize) -> Record {
    let mut message = vec![0; length];
    fastrand::Rng::with_seed(number.into()).fill(&mut message);
    record_of(number, &message)
}

pub(crate) fn record_of(number: u32, message: &[u8]) -> Record {
    Record {
        kind: if number.is_multiple_of(2) {
            RecordKind::Request
        } else {
            RecordKind::Response
        },
        received_at: Timestamp::from_nanos(1_794_803_806_133_007_001 + i64::from(number)),
        message: message.to_vec().into(),
    }
}

/// Where each of these frames begins and the last one ends, in a segment of their own.
pub(crate) fn frame_bounds(records: &[Record]) -> Vec<usize> {
    let mut bounds = vec![FIRST_OFFSET];
    for record in records {
        bounds.push(bounds[bounds.len() - 1] + HEADER_BYTES + record.message.len());
    }
    bounds
}
