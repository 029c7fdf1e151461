//! Following the log: every record in the order of appending, then again by position, then done.
//!
//! Invariant: a record is handed out once a process, unless an earlier process finished it. What is
//! damaged is counted, logged and stepped over, and so is what the disk has failed to read for
//! minutes; but a segment in which that happened stays on disk, and the next process tries again. One
//! segment's finished records are all that is held in memory.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    io,
    path::PathBuf,
    sync::Arc,
};

use bytes::BytesMut;

use super::{
    done::DoneLog,
    ledger::Ledger,
    read_failures::{FailingSegments, ReadFailures},
    recycling::SegmentFiles,
    segment::{FIRST_OFFSET, Found, SegmentReader, segment_path},
};
use crate::{
    disk::SharedDisk,
    metrics::Metrics,
    record::{Position, Record, SegmentId},
    time::{SharedClock, SystemClock},
};

/// Segments kept open for reading payloads back.
const OPEN_SEGMENTS: usize = 8;

/// Why a record can't be read back.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("record at {0:?} is damaged")]
    Damaged(Position),
    #[error("cannot read segment {segment:?}")]
    Read {
        segment: SegmentId,
        source: io::Error,
    },
    #[error("cannot read segment {segment:?}, after trying for minutes")]
    GivenUp {
        segment: SegmentId,
        source: io::Error,
    },
}

/// The one reader of the log.
#[derive(Debug)]
pub struct Follower {
    folder: PathBuf,
    disk: SharedDisk,
    files: Arc<SegmentFiles>,
    done: DoneLog,
    /// Segments from this one on are of this process.
    first_own: SegmentId,
    /// Finished, and not in the log of what is done yet.
    unlogged: Vec<Position>,
    ledger: Arc<Ledger>,
    metrics: Metrics,
    place: Option<Place>,
    last_segment: Option<SegmentId>,
    open: VecDeque<SegmentReader>,
    /// Records are read into this, one after the other.
    room: BytesMut,
    clock: SharedClock,
    /// Of what is followed next.
    failures: ReadFailures,
    failing: FailingSegments,
    /// The record that was handed out last came before others in the log.
    is_late: bool,
    /// Segments that are done with and whose files could not be removed.
    left: BTreeSet<SegmentId>,
}

/// Where following stands.
#[derive(Debug)]
struct Place {
    segment: SegmentReader,
    offset: u32,
    done: HashSet<u32>,
    /// The disk could not read some of it, so that there may be records that nobody was handed.
    is_unread: bool,
}

impl Place {
    fn position(&self) -> Position {
        Position {
            segment: self.segment.id(),
            offset: self.offset,
        }
    }

    fn at(self, offset: u64) -> Self {
        Self {
            offset: u32::try_from(offset).unwrap_or(u32::MAX),
            ..self
        }
    }
}

impl Follower {
    pub(super) fn new(
        folder: PathBuf,
        disk: SharedDisk,
        files: Arc<SegmentFiles>,
        done: DoneLog,
        first_own: SegmentId,
        ledger: Arc<Ledger>,
        metrics: Metrics,
    ) -> Self {
        Self {
            folder,
            disk,
            files,
            done,
            first_own,
            unlogged: Vec::new(),
            ledger,
            metrics,
            place: None,
            last_segment: None,
            open: VecDeque::new(),
            room: BytesMut::new(),
            clock: Arc::new(SystemClock),
            failures: ReadFailures::default(),
            failing: FailingSegments::default(),
            is_late: false,
            left: BTreeSet::new(),
        }
    }

    /// Measures by this clock for how long something can't be read.
    #[must_use]
    pub fn with_clock(self, clock: SharedClock) -> Self {
        Self { clock, ..self }
    }

    /// Segments from this one on are of this process; those before were left by earlier ones.
    pub fn first_own(&self) -> SegmentId {
        self.first_own
    }

    /// The segment that the next record comes from, if there is one yet.
    pub fn next_segment(&self) -> Option<SegmentId> {
        let entered = self.place.as_ref().map(|place| place.segment.id());
        entered.or_else(|| self.ledger.next_after(self.last_segment))
    }

    /// The next record that is not done; `None` when there is none yet.
    pub fn next_record(&mut self) -> Result<Option<(Position, Record)>, ReadError> {
        loop {
            let Some(mut place) = self.place.take() else {
                if !self.enter_next_segment()? {
                    return Ok(None);
                }
                continue;
            };
            let id = place.segment.id();
            let Some((end, sealed)) = self.ledger.extent(id) else {
                continue;
            };
            // No frame begins further in, whatever file was put here.
            let end = end.min(u64::from(u32::MAX));
            let found = match place.segment.look(place.offset, end) {
                Ok(found) => found,
                Err(source) => return Err(self.fail_read(place, end, source)),
            };
            match found {
                Found::Frame(header) => {
                    let position = place.position();
                    let end = u64::from(header.offset) + header.frame_bytes();
                    if !place.done.remove(&header.offset) {
                        match place.segment.read_body(&header, &mut self.room) {
                            Ok(Some(record)) => {
                                self.is_late = header.is_late;
                                self.ledger.mark_handed_out(id);
                                self.go_on(place.at(end));
                                return Ok(Some((position, record)));
                            }
                            Ok(None) => self.count_damage(position, header.frame_bytes()),
                            Err(source) => return Err(self.fail_read(place, end, source)),
                        }
                    }
                    self.go_on(place.at(end));
                }
                Found::Damage { until } => {
                    self.count_damage(place.position(), u64::from(until - place.offset));
                    self.go_on(place.at(until.into()));
                }
                Found::TornTail { bytes } if !sealed => {
                    // What the writer answered for was whole.
                    self.count_damage(place.position(), bytes);
                    self.go_on(place.at(end));
                }
                Found::End if !sealed => {
                    self.place = Some(place);
                    return Ok(None);
                }
                found => {
                    if let Found::TornTail { bytes } = found {
                        self.metrics.spool_torn();
                        tracing::warn!(
                            segment = id.0,
                            bytes,
                            "a record at the end of a segment was never written whole; left out"
                        );
                    }
                    // NOTE: otherwise never marked as followed, so never removed.
                    if !place.is_unread {
                        self.ledger.mark_followed(id);
                    }
                }
            }
        }
    }

    /// Whether the record that was handed out last was [appended late](super::Appender::append_late):
    /// its arrival says nothing about the time.
    pub fn is_late(&self) -> bool {
        self.is_late
    }

    /// Reads a record again. What can't be read is tried again until that has failed for minutes.
    pub fn read(&mut self, position: Position) -> Result<Record, ReadError> {
        match self.read_at(position) {
            Ok(record) => {
                self.failing.note_success(position);
                record.ok_or(ReadError::Damaged(position))
            }
            Err(source) => {
                let segment = position.segment;
                let is_given_up = self.failing.note_failure(position, self.clock.instant());
                Err(if is_given_up {
                    ReadError::GivenUp { segment, source }
                } else {
                    ReadError::Read { segment, source }
                })
            }
        }
    }

    fn read_at(&mut self, position: Position) -> io::Result<Option<Record>> {
        let id = position.segment;
        let reader = match self.open.iter().position(|reader| reader.id() == id) {
            Some(index) => self.open.remove(index),
            None => None,
        };
        let reader = match reader {
            Some(reader) => reader,
            None => SegmentReader::open(self.disk.as_ref(), &self.folder, id)?,
        };
        let record = reader.read_record(position.offset, &mut self.room);
        self.open.truncate(OPEN_SEGMENTS - 1);
        self.open.push_front(reader);
        record
    }

    /// These records are not needed any more, now or after a restart: all of them, or none if this
    /// fails. Then they are finished together with the next ones.
    pub fn finish(&mut self, records: &[Position]) -> io::Result<()> {
        self.unlogged.extend_from_slice(records);
        if !self.unlogged.is_empty() {
            self.done.append(&self.unlogged)?;
        }
        let mut by_segment: BTreeMap<SegmentId, u64> = BTreeMap::new();
        for position in self.unlogged.drain(..) {
            *by_segment.entry(position.segment).or_default() += 1;
        }
        for (id, records) in by_segment {
            self.ledger.mark_finished(id, records);
        }
        self.remove_unneeded()
    }

    /// Whether something is finished and not noted for good.
    pub fn has_unlogged(&self) -> bool {
        !self.unlogged.is_empty()
    }

    /// Whether this record is finished and not noted for good.
    pub fn is_unlogged(&self, position: Position) -> bool {
        self.unlogged.contains(&position)
    }

    /// Makes it survive a power failure what is finished.
    pub fn sync_done(&mut self) -> io::Result<()> {
        self.done.sync()
    }

    /// Removes the segments that nobody needs.
    pub fn remove_unneeded(&mut self) -> io::Result<()> {
        let unneeded = self.ledger.unneeded();
        if unneeded.is_empty() {
            return Ok(());
        }
        self.done.sync()?;
        for id in unneeded {
            self.open.retain(|reader| reader.id() != id);
            self.failing.forget(id);
            self.ledger.forget(id);
            match self.files.remove(&segment_path(&self.folder, id)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    // The next start finds it done with and tries again.
                    self.left.insert(id);
                    tracing::warn!(segment = id.0, %error, "cannot remove a segment that is done");
                }
                _ => {}
            }
        }
        if self.done.is_stale() {
            // NOTE: what is said about a segment whose file is left is all that keeps its records
            // from being processed again.
            let (ledger, left) = (&self.ledger, &self.left);
            let is_gone = |id| ledger.extent(id).is_none() && !left.contains(&id);
            let rewritten = self.done.drop_gone(is_gone);
            if let Err(error) = rewritten {
                tracing::debug!(%error, "cannot shorten the log of what is done yet");
            }
        }
        Ok(())
    }

    fn enter_next_segment(&mut self) -> Result<bool, ReadError> {
        let Some(id) = self.ledger.next_after(self.last_segment) else {
            return Ok(false);
        };
        let opened = SegmentReader::open(self.disk.as_ref(), &self.folder, id)
            .and_then(|segment| Ok((segment.has_known_format()?, segment)));
        let (is_known, segment) = match opened {
            Ok(opened) => opened,
            Err(source) => return Err(self.fail_open(id, source)),
        };
        self.last_segment = Some(id);
        if !is_known {
            // NOTE: never marked as followed, so never removed.
            tracing::error!(
                segment = id.0,
                "segment was written by another version of this program; left as it is"
            );
            return Ok(true);
        }
        let done = self.done.take_earlier(id);
        self.go_on(Place {
            segment,
            offset: FIRST_OFFSET,
            done,
            is_unread: false,
        });
        Ok(true)
    }

    /// Everything before this place is followed.
    fn go_on(&mut self, place: Place) {
        self.failures = ReadFailures::default();
        self.place = Some(place);
    }

    /// Stays where it is, until it was tried for long enough.
    fn fail_read(&mut self, place: Place, until: u64, source: io::Error) -> ReadError {
        let segment = place.segment.id();
        self.note_failure(segment, &source);
        if self.failures.are_enough() {
            let bytes = until.saturating_sub(u64::from(place.offset));
            self.count_unread(place.position(), bytes);
            self.go_on(Place {
                is_unread: true,
                ..place.at(until)
            });
        } else {
            self.place = Some(place);
        }
        ReadError::Read { segment, source }
    }

    /// Stays before the segment, until it was tried for long enough.
    fn fail_open(&mut self, segment: SegmentId, source: io::Error) -> ReadError {
        self.note_failure(segment, &source);
        // Nothing waits behind a segment that is still written to.
        if self.failures.are_enough()
            && let Some((end, true)) = self.ledger.extent(segment)
        {
            // NOTE: never marked as followed, so never removed.
            self.failures = ReadFailures::default();
            self.last_segment = Some(segment);
            let offset = FIRST_OFFSET;
            self.count_unread(Position { segment, offset }, end);
        }
        ReadError::Read { segment, source }
    }

    fn note_failure(&mut self, segment: SegmentId, error: &io::Error) {
        if self.failures.note(self.clock.instant()) {
            tracing::warn!(segment = segment.0, %error, "cannot read the spool yet");
        }
    }

    fn count_unread(&self, position: Position, bytes: u64) {
        self.metrics.spool_damaged();
        tracing::error!(
            segment = position.segment.0,
            offset = position.offset,
            bytes,
            "a part of the spool can't be read and is skipped; its segment stays on disk, and is \
             tried again after a restart"
        );
    }

    fn count_damage(&self, position: Position, bytes: u64) {
        self.metrics.spool_damaged();
        tracing::error!(
            segment = position.segment.0,
            offset = position.offset,
            bytes,
            "the spool is damaged; what stood there is lost"
        );
    }
}
