//! Appending: whoever has a record writes it, with one system call, into the page cache.
//!
//! There is no thread in between: handing a record over and waking up for the answer costs more
//! than the write. Invariant: an append returns only after its frame is written whole, and it is
//! readable from then on. What a failed write left behind is cut off, or its segment is never
//! written to again. A failure is answered and forgotten: the next append tries anew, so that room
//! on the disk is all that it takes to recover.

use std::{
    io::{self, IoSlice},
    path::PathBuf,
    sync::Arc,
};

use super::{
    frame::{FrameHeader, HEADER_BYTES},
    ledger::Ledger,
    recycling::SegmentFiles,
    segment::{FIRST_OFFSET, MAX_SEGMENT, SEGMENT_MAGIC, segment_path},
    syncing::Unsynced,
};
use crate::{
    bell::Bell,
    disk::{DiskFile, SharedDisk, is_full},
    record::{Record, SegmentId},
};

/// The disk is asked how much is left of it after this part of what is kept free was written.
const ASKED_AFTER: u64 = 16;

/// Why a record was not appended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    #[error("spool is full: {used} of {limit} bytes used")]
    Full { used: u64, limit: u64 },
    #[error("cannot write {path:?}")]
    Write {
        path: PathBuf,
        source: Arc<io::Error>,
    },
    #[error("cannot sync the spool")]
    Sync { source: Arc<io::Error> },
    #[error("spool is closed")]
    Closed,
}

impl AppendError {
    pub(super) fn is_disk_full(&self) -> bool {
        matches!(self, Self::Write { source, .. } if is_full(source))
    }
}

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) folder: PathBuf,
    pub(super) disk: SharedDisk,
    pub(super) files: Arc<SegmentFiles>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) unsynced: Arc<Unsynced>,
    pub(super) appended: Arc<Bell>,
    pub(super) max_bytes: u64,
    pub(super) segment_bytes: u64,
    /// What the log leaves of the disk.
    pub(super) kept_free: u64,
    /// What may be written before the disk is asked again how much is left of it.
    pub(super) known_free: u64,
    pub(super) next_segment: SegmentId,
    pub(super) active: Option<ActiveSegment>,
    pub(super) failing: bool,
    pub(super) is_closed: bool,
}

#[derive(Debug)]
pub(super) struct ActiveSegment {
    id: SegmentId,
    file: Arc<dyn DiskFile>,
    offset: u32,
}

impl Writer {
    /// Writes a record that came before others in the log; returns the file that it is in.
    pub(super) fn append_late(
        &mut self,
        record: &Record,
    ) -> Result<Option<Arc<dyn DiskFile>>, AppendError> {
        self.append(record, true)?;
        Ok(self.active.as_ref().map(|active| Arc::clone(&active.file)))
    }

    /// Writes a record at the end of the log, with one system call.
    pub(super) fn append(&mut self, record: &Record, is_late: bool) -> Result<(), AppendError> {
        if self.is_closed {
            return Err(AppendError::Closed);
        }
        let is_full = |active: &ActiveSegment| u64::from(active.offset) >= self.segment_bytes;
        if self.active.as_ref().is_some_and(is_full) {
            self.seal_active();
        }
        let frame_bytes = (HEADER_BYTES + record.message.len()) as u64;
        let (used, limit) = (self.ledger.used(), self.max_bytes);
        if used + frame_bytes > limit {
            // Sealed, the segment can go once its records are done, and make room.
            self.seal_active();
            return Err(AppendError::Full { used, limit });
        }
        let written = self
            .check_room(frame_bytes)
            .and_then(|()| self.write(record, is_late));
        self.report(written.as_ref().err());
        written?;
        self.appended.ring();
        Ok(())
    }

    /// Nothing more is appended.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.seal_active();
    }

    /// Leaves some of the disk for what is made of the log: else nothing could be, and nothing in
    /// the log could go.
    fn check_room(&mut self, bytes: u64) -> Result<(), AppendError> {
        if let Some(left) = self.known_free.checked_sub(bytes) {
            self.known_free = left;
            return Ok(());
        }
        // Whoever can't tell how much is left finds out by writing.
        let free = self.disk.free_bytes(&self.folder).unwrap_or(u64::MAX);
        if free >= self.kept_free.saturating_add(bytes) {
            // Others write to the disk too: so little that what is kept free stays enough.
            self.known_free = self.kept_free / ASKED_AFTER;
            return Ok(());
        }
        // Sealed, the segment can go once its records are done, and make room.
        self.seal_active();
        Err(AppendError::Write {
            path: self.folder.clone(),
            source: Arc::new(io::ErrorKind::StorageFull.into()),
        })
    }

    fn write(&mut self, record: &Record, is_late: bool) -> Result<(), AppendError> {
        let mut active = match self.active.take() {
            Some(active) => active,
            None => self.begin_segment()?,
        };
        let (id, start) = (active.id, active.offset);
        let header = FrameHeader::of(record, start, is_late);
        // NOTE: a segment is at most its target size and one record long: under 4 GiB.
        let end = start.saturating_add(u32::try_from(header.frame_bytes()).unwrap_or(u32::MAX));
        let header = header.encode(id);
        let mut parts = [IoSlice::new(&header), IoSlice::new(&record.message)];
        match active.file.append(&mut parts) {
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
                let must_go = is_full(&source) && start > FIRST_OFFSET;
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
        if id > MAX_SEGMENT {
            // The next start would not take it for ours.
            return Err(self.write_error(id, io::Error::other("there is no higher number")));
        }
        let file = self
            .files
            .create(&path)
            .map_err(|source| self.write_error(id, source))?;
        // NOTE: the number is spent even if the next line fails, since the file exists now.
        self.next_segment = SegmentId(id.0 + 1);
        let begun = file.append(&mut [IoSlice::new(&SEGMENT_MAGIC)]);
        if let Err(source) = begun {
            // Nothing but an empty file is left if this fails; the next start clears it away.
            drop(self.disk.remove(&path));
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
