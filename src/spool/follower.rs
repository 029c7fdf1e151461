//! Following the log: every record in the order of appending, then again by position, then done.
//!
//! Invariant: a record is handed out once a process, unless an earlier process finished it. What
//! can't be read is counted, logged and stepped over; following never stops at it. One segment's
//! finished records are all that is held in memory.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    fs, io,
    path::PathBuf,
    sync::Arc,
};

use super::{
    done::{append_done, read_done},
    ledger::Ledger,
    segment::{FIRST_OFFSET, Found, SegmentReader, done_path, segment_path},
};
use crate::{
    metrics::Metrics,
    record::{Position, Record, SegmentId},
};

/// Segments kept open for reading payloads back.
const OPEN_SEGMENTS: usize = 8;
/// How often a place that the disk can't read is tried before the rest of its segment is given up.
const READ_TRIES: u32 = 10;

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
}

/// The one reader of the log.
#[derive(Debug)]
pub struct Follower {
    folder: PathBuf,
    ledger: Arc<Ledger>,
    metrics: Metrics,
    place: Option<Place>,
    last_segment: Option<SegmentId>,
    open: VecDeque<SegmentReader>,
    failed_reads: u32,
}

/// Where following stands.
#[derive(Debug)]
struct Place {
    segment: SegmentReader,
    offset: u32,
    done: HashSet<u32>,
}

impl Follower {
    pub(super) fn new(folder: PathBuf, ledger: Arc<Ledger>, metrics: Metrics) -> Self {
        Self {
            folder,
            ledger,
            metrics,
            place: None,
            last_segment: None,
            open: VecDeque::new(),
            failed_reads: 0,
        }
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
            let found = place
                .segment
                .look(place.offset, end)
                .map_err(|source| ReadError::Read {
                    segment: id,
                    source,
                });
            if found.is_ok() {
                self.failed_reads = 0;
            }
            match found {
                Ok(Found::Frame(header)) => {
                    let position = Position {
                        segment: id,
                        offset: header.offset,
                    };
                    let end = u64::from(header.offset) + header.frame_bytes();
                    place.offset = u32::try_from(end).unwrap_or(u32::MAX);
                    let record = if place.done.remove(&header.offset) {
                        None
                    } else {
                        place
                            .segment
                            .read_body(&header)
                            .inspect(|record| {
                                if record.is_none() {
                                    self.count_damage(position, header.frame_bytes());
                                }
                            })
                            .map_err(|source| ReadError::Read {
                                segment: id,
                                source,
                            })?
                    };
                    self.place = Some(place);
                    if let Some(record) = record {
                        self.ledger.mark_handed_out(id);
                        return Ok(Some((position, record)));
                    }
                }
                Ok(Found::Damage { until }) => {
                    let position = Position {
                        segment: id,
                        offset: place.offset,
                    };
                    self.count_damage(position, u64::from(until - place.offset));
                    place.offset = until;
                    self.place = Some(place);
                }
                Ok(Found::End) if !sealed => {
                    self.place = Some(place);
                    return Ok(None);
                }
                Ok(found) => {
                    if let Found::TornTail { bytes } = found {
                        self.metrics.spool_torn();
                        tracing::warn!(
                            segment = id.0,
                            bytes,
                            "a record at the end of a segment was never written whole; left out"
                        );
                    }
                    self.ledger.mark_followed(id);
                }
                Err(error) => {
                    self.failed_reads += 1;
                    if self.failed_reads < READ_TRIES {
                        self.place = Some(place);
                    } else {
                        let position = Position {
                            segment: id,
                            offset: place.offset,
                        };
                        self.count_damage(position, end.saturating_sub(u64::from(place.offset)));
                        self.ledger.mark_followed(id);
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Reads a record again.
    pub fn read(&mut self, position: Position) -> Result<Record, ReadError> {
        let id = position.segment;
        let failed = |source| ReadError::Read {
            segment: id,
            source,
        };
        let reader = match self.open.iter().position(|reader| reader.id() == id) {
            Some(index) => self.open.remove(index),
            None => None,
        };
        let reader = match reader {
            Some(reader) => reader,
            None => SegmentReader::open(&self.folder, id).map_err(failed)?,
        };
        let record = reader.read_record(position.offset).map_err(failed);
        self.open.truncate(OPEN_SEGMENTS - 1);
        self.open.push_front(reader);
        record?.ok_or(ReadError::Damaged(position))
    }

    /// These records are not needed any more, now or after a restart.
    pub fn finish(&mut self, records: &[Position]) {
        let mut by_segment: BTreeMap<SegmentId, Vec<u32>> = BTreeMap::new();
        for position in records {
            by_segment
                .entry(position.segment)
                .or_default()
                .push(position.offset);
        }
        for (id, offsets) in by_segment {
            if let Err(error) = append_done(&self.folder, id, &offsets) {
                // Costs nothing but doing it again after a restart.
                tracing::debug!(segment = id.0, %error, "cannot note records as done");
            }
            self.ledger.mark_finished(id, offsets.len() as u64);
        }
        self.remove_unneeded();
    }

    /// Removes the segments that nobody needs.
    pub fn remove_unneeded(&mut self) {
        for id in self.ledger.take_unneeded() {
            self.open.retain(|reader| reader.id() != id);
            let removed = fs::remove_file(segment_path(&self.folder, id));
            if let Err(error) = removed {
                tracing::warn!(segment = id.0, %error, "cannot remove a segment that is done");
                continue;
            }
            // NOTE: the other order would, after a crash between, do the whole segment again.
            match fs::remove_file(done_path(&self.folder, id)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(segment = id.0, %error, "cannot remove a segment's done file");
                }
                _ => {}
            }
        }
    }

    fn enter_next_segment(&mut self) -> Result<bool, ReadError> {
        let Some(id) = self.ledger.next_after(self.last_segment) else {
            return Ok(false);
        };
        let failed = |source| ReadError::Read {
            segment: id,
            source,
        };
        let segment = SegmentReader::open(&self.folder, id).map_err(failed)?;
        self.last_segment = Some(id);
        if !segment.has_known_format().map_err(failed)? {
            // NOTE: never marked as followed, so never removed.
            tracing::error!(
                segment = id.0,
                "segment was written by another version of this program; left as it is"
            );
            return Ok(true);
        }
        let done = read_done(&self.folder, id).map_err(failed)?;
        self.place = Some(Place {
            segment,
            offset: FIRST_OFFSET,
            done,
        });
        Ok(true)
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
