//! The lines of one hour, newest first.
//!
//! A batch says nothing about when its lines began, but none of them can have begun after the
//! batch was stored. So batches are read in the order in which they were stored, the last first,
//! and a line is given once every batch is read that was stored after the line began. Where lines
//! come as they should, that is what was stored in the last two or three minutes before it; after
//! a store was away for long it is the whole hour.
//!
//! Of each line that was read only some facts are held, and the text of those that come next; the
//! rest is fetched again when its turn comes. At 60,000 lines an hour of 5 KB each these are 2 MB
//! for the lines that wait, 2 MB for the traces that were seen, and [`HELD_BYTES`] of text, beside
//! what [`READING_BYTES`] of batches take while they are read: 16 MB were measured where the whole
//! hour has to be read first, 14 MB where not.
//!
//! Invariant: lines come in the order in which they began, and of the lines of one trace only the
//! most complete one is given, as long as no hour holds more than [`MAX_LINES`] lines and the store's clock is
//! not behind the writer's by more than [`CLOCK_SKEW`]; else a line may come late or twice, but
//! none is lost and memory stays bounded.

use std::{
    collections::{BinaryHeap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesOrdered};

use super::{
    IndexError,
    contents::REACH,
    query::Query,
    scan::{Decoders, HeldLines, Order, Rank, Scanned, SeenLine, StoredBatch, Written, scan},
};
use crate::{archive::Archive, line::Line};

/// By which the store's clock may be behind that of who wrote the lines.
pub(super) const CLOCK_SKEW: Duration = Duration::from_mins(1);
/// Text of lines that wait.
const HELD_BYTES: usize = 4 * 1024 * 1024;
/// Lines of an hour that are kept in order and apart: twice what 1,000 reconciles a minute make.
pub(super) const MAX_LINES: usize = 120_000;
/// Of batches that are read at once, compressed; some ten times as much when they are read.
const READING_BYTES: u64 = 256 * 1024;
/// The same while nothing is found, of which then little is held.
const SEARCHING_BYTES: u64 = 2 * 1024 * 1024;

/// An hour that is being read.
#[derive(Debug)]
pub(super) struct Hour {
    archive: Archive,
    query: Arc<Query>,
    /// In the order in which they were begun.
    batches: Vec<StoredBatch>,
    /// Places of those not read yet, the one stored last at the end.
    unread: Vec<u32>,
    /// In the order in which they were taken.
    reading: FuturesOrdered<BoxFuture<'static, ReadBatch>>,
    /// Compressed.
    reading_bytes: u64,
    /// For these.
    room: u64,
    decoders: Decoders,
    pending: BinaryHeap<Pending>,
    latest: Latest,
    held: HeldLines,
    errors: VecDeque<IndexError>,
    max_lines: usize,
}

#[derive(Debug)]
struct ReadBatch {
    /// Compressed.
    bytes: u64,
    scanned: Scanned,
    errors: Vec<IndexError>,
}

/// A line that waits for its turn.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Pending {
    order: Order,
    trace: u64,
    rank: Rank,
    lacks_beginning: bool,
}

impl Hour {
    /// Keeps up to `max_lines` in order and apart.
    pub(super) fn new(
        archive: Archive,
        query: Arc<Query>,
        mut batches: Vec<StoredBatch>,
        max_lines: usize,
    ) -> Self {
        batches.sort_by(|a, b| a.key.order().cmp(&b.key.order()));
        let mut unread: Vec<_> = (0_u32..).zip(&batches).collect();
        unread.sort_by_key(|(place, batch)| (batch.stored_at, *place));
        let unread = unread.into_iter().map(|(place, _)| place).collect();
        Self {
            archive,
            query,
            batches,
            unread,
            reading: FuturesOrdered::new(),
            reading_bytes: 0,
            room: READING_BYTES,
            decoders: Decoders::default(),
            pending: BinaryHeap::new(),
            latest: Latest::default(),
            held: HeldLines::default(),
            errors: VecDeque::new(),
            max_lines,
        }
    }

    pub(super) async fn next(&mut self) -> Option<Result<Line, IndexError>> {
        loop {
            if let Some(error) = self.errors.pop_front() {
                return Some(Err(error));
            }
            self.begin_reading();
            if let Some(read) = self.reading.next().await {
                self.reading_bytes -= read.bytes;
                self.errors.extend(read.errors);
                self.take_in(read.scanned);
                if self.pending.is_empty() {
                    self.room = (self.room * 2).min(SEARCHING_BYTES);
                }
                continue;
            }
            let pending = self.pending.pop()?;
            if self.latest.replaces(&pending) {
                self.held.take(pending.order);
                continue;
            }
            if !self.held.holds(pending.order) {
                self.read_again(pending.order).await;
            }
            // It may be gone by now.
            let Some(line) = self.held.take(pending.order) else {
                continue;
            };
            match serde_json::from_slice(&line) {
                Ok(line) => return Some(Ok(line)),
                Err(_) => self.note_unreadable(pending.order),
            }
        }
    }

    /// Begins to read what has to be read before the next line can be given.
    fn begin_reading(&mut self) {
        while let Some(batch) = self.next_unread() {
            let bytes = batch.size;
            let has_room = self.reading.is_empty()
                || (self.reading.len() < self.archive.store.at_once()
                    && self.reading_bytes + bytes <= self.room);
            if !has_room || !self.has_to_be_read(batch) {
                break;
            }
            let Some(place) = self.unread.pop() else {
                break;
            };
            let Some(scan) = self.scan(place, None) else {
                continue;
            };
            self.reading_bytes += bytes;
            self.reading.push_back(Box::pin(async move {
                let (scanned, errors) = scan.await;
                ReadBatch {
                    bytes,
                    scanned,
                    errors,
                }
            }));
        }
    }

    fn scan(
        &self,
        place: u32,
        until: Option<Order>,
    ) -> Option<impl Future<Output = (Scanned, Vec<IndexError>)> + Send + use<>> {
        let batch = self.batch(place)?.clone();
        let (archive, query) = (self.archive.clone(), Arc::clone(&self.query));
        let decoders = self.decoders.clone();
        Some(scan(archive, query, decoders, batch, place, until))
    }

    fn next_unread(&self) -> Option<&StoredBatch> {
        self.batch(*self.unread.last()?)
    }

    fn has_to_be_read(&self, batch: &StoredBatch) -> bool {
        let may_matter = |next: &Pending| {
            // A more complete line may have been stored before a late part began.
            let reach = if next.lacks_beginning {
                REACH
            } else {
                Duration::ZERO
            };
            batch.stored_at + CLOCK_SKEW + reach >= next.order.0
        };
        self.pending.len() < self.max_lines && self.pending.peek().is_none_or(may_matter)
    }

    fn take_in(&mut self, scanned: Scanned) {
        for seen in &scanned.lines {
            self.latest.note(seen, self.max_lines);
        }
        let asked_for = scanned.lines.into_iter().filter(|seen| seen.is_asked_for);
        self.pending.extend(asked_for.map(|seen| Pending {
            order: seen.order,
            trace: seen.trace,
            rank: seen.rank,
            lacks_beginning: seen.lacks_beginning,
        }));
        self.held.hold_all(scanned.held, HELD_BYTES);
    }

    /// For the text of a line that was let go of, and of those after it.
    async fn read_again(&mut self, order: Order) {
        let Some(scan) = self.scan(order.1.batch, Some(order)) else {
            return;
        };
        let (scanned, errors) = scan.await;
        // Everything else was said the first time.
        let is_new = |error: &IndexError| matches!(error, IndexError::Fetch { .. });
        self.errors.extend(errors.into_iter().filter(is_new));
        self.held.hold_all(scanned.held, HELD_BYTES);
    }

    fn note_unreadable(&mut self, order: Order) {
        let key = self.batch(order.1.batch).map(|batch| batch.key.clone());
        let error = key.map(|key| IndexError::Lines { key, lines: 1 });
        self.errors.extend(error);
    }

    fn batch(&self, place: u32) -> Option<&StoredBatch> {
        self.batches.get(usize::try_from(place).ok()?)
    }
}

/// The most complete line of each trace: the one of the highest revision, of these the one with the
/// most steps, of these the one written last. It replaces all others, be it asked for or not.
///
/// Lines from before there were revisions, and parts that could not be merged, are told apart by
/// their steps alone: one reconcile is one line, and the larger part stands for it.
#[derive(Debug, Default)]
struct Latest(HashMap<u64, (Rank, Written)>);

impl Latest {
    /// Knows up to `max_traces`.
    fn note(&mut self, line: &SeenLine, max_traces: usize) {
        let seen = (line.rank, line.order.1);
        if let Some(latest) = self.0.get_mut(&line.trace) {
            *latest = seen.max(*latest);
        } else if self.0.len() < max_traces {
            self.0.insert(line.trace, seen);
        }
    }

    fn replaces(&self, line: &Pending) -> bool {
        let latest = self.0.get(&line.trace);
        latest.is_some_and(|latest| *latest > (line.rank, line.order.1))
    }
}
