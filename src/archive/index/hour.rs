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
//! Invariant: lines come in the order in which they began, and a line that another one stands for
//! is never given, as long as no hour holds more than [`MAX_LINES`] lines and the store's clock is
//! not behind the writer's by more than [`CLOCK_SKEW`]; else a line may come late or twice, but
//! none is lost and memory stays bounded.

use std::{
    collections::{BTreeMap, BinaryHeap, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesOrdered};

use super::{
    IndexError,
    query::Query,
    scan::{HeldLines, Order, Scanned, SeenLine, StoredBatch, Written, scan},
};
use crate::{archive::Archive, line::Line};

/// By which the store's clock may be behind that of who wrote the lines.
pub(super) const CLOCK_SKEW: Duration = Duration::from_mins(1);
/// Text of lines that wait.
const HELD_BYTES: usize = 4 * 1024 * 1024;
/// Lines of an hour that are kept in order and apart: twice what 1,000 reconciles a minute make.
pub(super) const MAX_LINES: usize = 120_000;
/// Batches that are read at once: many small ones, or a few that are full.
const READING: usize = 16;
/// Compressed; some ten times as much when they are read.
const READING_BYTES: u64 = 256 * 1024;

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
    steps: u32,
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
                continue;
            }
            let pending = self.pending.pop()?;
            if self.latest.stands_for(&pending) {
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
                || (self.reading.len() < READING && self.reading_bytes + bytes <= READING_BYTES);
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
        let query = Arc::clone(&self.query);
        Some(scan(self.archive.clone(), query, batch, place, until))
    }

    fn next_unread(&self) -> Option<&StoredBatch> {
        self.batch(*self.unread.last()?)
    }

    fn has_to_be_read(&self, batch: &StoredBatch) -> bool {
        let may_hold_newer = |next: &Pending| batch.stored_at + CLOCK_SKEW >= next.order.0;
        self.pending.len() < self.max_lines && self.pending.peek().is_none_or(may_hold_newer)
    }

    fn take_in(&mut self, scanned: Scanned) {
        for seen in &scanned.lines {
            if self.latest.0.len() < self.max_lines {
                self.latest.note(seen);
            }
        }
        let asked_for = scanned.lines.into_iter().filter(|seen| seen.is_asked_for);
        self.pending.extend(asked_for.map(|seen| Pending {
            order: seen.order,
            trace: seen.trace,
            steps: seen.steps,
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

/// The lines of each trace that no other one stands for: a line stands for those of its trace that
/// were written before it and hold no more steps. So a repeated line is given once, the whole takes
/// the place of a part, and a part that came late, with fewer steps, is given beside what it
/// belongs to.
///
/// Of one trace, the later a line was written, the fewer steps it has.
#[derive(Debug, Default)]
struct Latest(BTreeMap<(u64, Written), u32>);

impl Latest {
    fn note(&mut self, line: &SeenLine) {
        let (_, written) = line.order;
        if self.has_later(line.trace, written, line.steps) {
            return;
        }
        while let Some((before, steps)) = self.last_before(line.trace, written)
            && steps <= line.steps
        {
            self.0.remove(&(line.trace, before));
        }
        self.0.insert((line.trace, written), line.steps);
    }

    fn stands_for(&self, line: &Pending) -> bool {
        self.has_later(line.trace, line.order.1, line.steps)
    }

    /// The next one has the most steps of all that are later.
    fn has_later(&self, trace: u64, written: Written, steps: u32) -> bool {
        let after = Written {
            offset: written.offset.saturating_add(1),
            ..written
        };
        let end = Written {
            batch: u32::MAX,
            offset: u32::MAX,
        };
        let mut later = self.0.range((trace, after)..=(trace, end));
        later.next().is_some_and(|(_, later)| *later >= steps)
    }

    fn last_before(&self, trace: u64, written: Written) -> Option<(Written, u32)> {
        let start = Written {
            batch: 0,
            offset: 0,
        };
        let mut before = self.0.range((trace, start)..(trace, written));
        let ((_, written), steps) = before.next_back()?;
        Some((*written, *steps))
    }
}
