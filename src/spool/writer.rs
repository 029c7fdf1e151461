//! Appending: one thread takes what waits, writes it with one system call, and answers.
//!
//! Invariant: an append is answered only after its frame is written whole, and is readable from
//! then on. What a failed write left behind is cut off, or its segment is never written to again.
//! A failure is answered and forgotten: the next append tries anew, so that room on the disk is
//! all that it takes to recover.

use std::{
    io::{self, IoSlice},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    disk::{Disk, SegmentFile},
    frame::{FrameHeader, HEADER_BYTES},
    ledger::Ledger,
    segment::{FIRST_OFFSET, SEGMENT_MAGIC, segment_path},
};
use crate::{
    bell::Bell,
    record::{Record, SegmentId},
};

/// Records written with one call; two slices each, far below the system's limit of 1,024.
const GROUP_RECORDS: usize = 64;
/// A group takes no more records once it holds this much, so that its first need not wait long.
const GROUP_BYTES: u64 = 1024 * 1024;

/// Why a record was not appended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    #[error("spool is full: {used} of {limit} bytes used")]
    Full { used: u64, limit: u64 },
    #[error("spool is busy: {waiting} bytes wait to be written")]
    Busy { waiting: u64 },
    #[error("cannot write {path:?}")]
    Write {
        path: PathBuf,
        source: Arc<io::Error>,
    },
    #[error("spool is closed")]
    Closed,
}

/// A record on its way to the disk.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) record: Record,
    pub(super) answer: oneshot::Sender<Result<(), AppendError>>,
}

/// What was written and is not known to be on the platter.
#[derive(Debug, Default)]
pub(super) struct Unsynced(Mutex<UnsyncedFiles>);

#[derive(Debug, Default)]
struct UnsyncedFiles {
    files: Vec<Arc<dyn SegmentFile>>,
    folder: bool,
}

impl Unsynced {
    fn note_written(&self, file: &Arc<dyn SegmentFile>) {
        let mut unsynced = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !unsynced.files.iter().any(|known| Arc::ptr_eq(known, file)) {
            unsynced.files.push(Arc::clone(file));
        }
    }

    fn note_created(&self, file: &Arc<dyn SegmentFile>) {
        self.note_written(file);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).folder = true;
    }

    /// Syncs what was written since the last time, without holding up the writer. One file that
    /// fails does not keep the others from it.
    pub(super) fn sync(&self, disk: &dyn Disk, folder: &Path) -> io::Result<()> {
        let unsynced = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut synced = Ok(());
        for file in &unsynced.files {
            synced = synced.and(file.sync());
        }
        if unsynced.folder {
            synced = synced.and(disk.sync_folder(folder));
        }
        synced
    }
}

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) folder: PathBuf,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) unsynced: Arc<Unsynced>,
    pub(super) waiting_bytes: Arc<AtomicU64>,
    pub(super) appended: Arc<Bell>,
    pub(super) max_bytes: u64,
    pub(super) segment_bytes: u64,
    /// What the log leaves of the disk.
    pub(super) kept_free: u64,
    pub(super) sync: Duration,
    pub(super) next_segment: SegmentId,
    pub(super) active: Option<ActiveSegment>,
    pub(super) failing: bool,
}

#[derive(Debug)]
pub(super) struct ActiveSegment {
    id: SegmentId,
    file: Arc<dyn SegmentFile>,
    offset: u32,
}

impl Writer {
    /// Writes until nobody can append any more.
    pub(super) fn run(mut self, appends: &mpsc::Receiver<Append>) {
        let mut group = Vec::with_capacity(GROUP_RECORDS);
        while let Ok(first) = appends.recv() {
            let mut bytes = first.record.message.len() as u64;
            group.push(first);
            while group.len() < GROUP_RECORDS && bytes < GROUP_BYTES {
                let Ok(next) = appends.try_recv() else { break };
                bytes += next.record.message.len() as u64;
                group.push(next);
            }
            self.write_group(&mut group);
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.appended.ring();
        }
        self.seal_active();
    }

    fn write_group(&mut self, group: &mut Vec<Append>) {
        if self
            .active
            .as_ref()
            .is_some_and(|active| u64::from(active.offset) >= self.segment_bytes)
        {
            self.seal_active();
        }
        let used = self.ledger.used();
        let mut planned = 0;
        let mut accepted = Vec::with_capacity(group.len());
        for append in group.drain(..) {
            let frame_bytes = (HEADER_BYTES + append.record.message.len()) as u64;
            if used + planned + frame_bytes > self.max_bytes {
                // Sealed, the segment can go once its records are done, and make room.
                self.seal_active();
                answer(
                    append,
                    Err(AppendError::Full {
                        used,
                        limit: self.max_bytes,
                    }),
                );
            } else {
                planned += frame_bytes;
                accepted.push(append);
            }
        }
        if accepted.is_empty() {
            return;
        }
        let outcome = self
            .check_room(planned)
            .and_then(|()| self.write(&accepted));
        self.report(outcome.as_ref().err());
        for append in accepted {
            answer(append, outcome.clone());
        }
    }

    /// Leaves some of the disk for what is made of the log: else nothing could be, and nothing in
    /// the log could go.
    fn check_room(&mut self, bytes: u64) -> Result<(), AppendError> {
        // Whoever can't tell how much is left finds out by writing.
        let free = self.disk.free_bytes(&self.folder).unwrap_or(u64::MAX);
        if free >= self.kept_free.saturating_add(bytes) {
            return Ok(());
        }
        // Sealed, the segment can go once its records are done, and make room.
        self.seal_active();
        Err(AppendError::Write {
            path: self.folder.clone(),
            source: Arc::new(io::ErrorKind::StorageFull.into()),
        })
    }

    fn write(&mut self, appends: &[Append]) -> Result<(), AppendError> {
        let mut active = match self.active.take() {
            Some(active) => active,
            None => self.begin_segment()?,
        };
        let (id, start) = (active.id, active.offset);
        let (headers, end) = frame_headers(&active, appends);
        let mut parts = Vec::with_capacity(appends.len() * 2);
        for (header, append) in headers.iter().zip(appends) {
            parts.push(IoSlice::new(header));
            parts.push(IoSlice::new(&append.record.message));
        }
        let synced = |file: &dyn SegmentFile| {
            if self.sync.is_zero() {
                file.sync()
            } else {
                Ok(())
            }
        };
        match active
            .file
            .append(&mut parts)
            .and_then(|()| synced(&*active.file))
        {
            Ok(()) => {
                active.offset = end;
                self.unsynced.note_written(&active.file);
                self.ledger.extend(id, u64::from(end));
                self.active = Some(active);
                Ok(())
            }
            Err(source) => {
                // NOTE: if the cut fails too, the segment ends here: what is behind is a torn tail.
                // Where the disk is full, a sealed segment can go once its records are done.
                let must_go = source.kind() == io::ErrorKind::StorageFull && start > FIRST_OFFSET;
                match active.file.truncate(u64::from(start)) {
                    Ok(()) if !must_go => self.active = Some(active),
                    _ => self.ledger.seal(id),
                }
                Err(self.write_error(id, source))
            }
        }
    }

    /// Opens the next segment, so that a disk that can't be written to is noticed at once.
    pub(super) fn begin_segment(&mut self) -> Result<ActiveSegment, AppendError> {
        let id = self.next_segment;
        let path = segment_path(&self.folder, id);
        let file = self
            .disk
            .create(&path)
            .map_err(|source| self.write_error(id, source))?;
        // NOTE: the number is spent even if the next line fails, since the file exists now.
        self.next_segment = SegmentId(id.0 + 1);
        let begun = file
            .append(&mut [IoSlice::new(&SEGMENT_MAGIC)])
            .and_then(|()| {
                // NOTE: a synced record in a file that the folder may lose is not safe.
                if self.sync.is_zero() {
                    self.disk.sync_folder(&self.folder)
                } else {
                    Ok(())
                }
            });
        if let Err(source) = begun {
            // Nothing but an empty file is left if this fails; the next start clears it away.
            drop(std::fs::remove_file(&path));
            return Err(self.write_error(id, source));
        }
        self.ledger.begin(id, u64::from(FIRST_OFFSET));
        self.unsynced.note_created(&file);
        Ok(ActiveSegment {
            id,
            file,
            offset: FIRST_OFFSET,
        })
    }

    fn seal_active(&mut self) {
        if let Some(active) = self.active.take() {
            self.ledger.seal(active.id);
        }
    }

    fn write_error(&self, id: SegmentId, source: io::Error) -> AppendError {
        AppendError::Write {
            path: segment_path(&self.folder, id),
            source: Arc::new(source),
        }
    }

    /// Says once that writing fails, and once that it works again.
    fn report(&mut self, error: Option<&AppendError>) {
        match (error, self.failing) {
            (Some(AppendError::Write { path, source }), false) => {
                tracing::error!(
                    path = %path.display(), error = %source,
                    "cannot write to the spool; messages are refused until it can be written again"
                );
            }
            (None, true) => tracing::info!("the spool can be written again"),
            _ => {}
        }
        self.failing = error.is_some();
    }
}

/// The encoded header of each record, and where the last frame ends.
fn frame_headers(active: &ActiveSegment, appends: &[Append]) -> (Vec<[u8; HEADER_BYTES]>, u32) {
    let mut offset = active.offset;
    let headers = appends.iter().map(|append| {
        let header = FrameHeader::of(&append.record, offset);
        // NOTE: a segment is at most its target size, a group and one record long: under 4 GiB.
        offset = offset.saturating_add(u32::try_from(header.frame_bytes()).unwrap_or(u32::MAX));
        header.encode(active.id)
    });
    (headers.collect(), offset)
}

fn answer(append: Append, outcome: Result<(), AppendError>) {
    // The caller may have given up waiting: the record is kept all the same.
    drop(append.answer.send(outcome));
}
