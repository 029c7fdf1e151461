//! One batch, fetched, decompressed and looked through as a stream.
//!
//! Invariant: memory holds [`WHOLE_BYTES`] of what is fetched, a line, the window of the
//! compression, and of the lines that are asked for a few facts each and no more than
//! [`HELD_BYTES`] of text, whatever the batch holds. What is broken is counted and passed over.
//! All this is done on threads for work that takes a while, so that several batches are looked
//! through at once.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{StreamExt as _, stream};
use object_store::ObjectStoreExt as _;
use serde::Deserialize;
use zstd::stream::{
    raw::{DParameter, Decoder, Operation as _},
    zio,
};

use super::{
    IndexError, IndexKey, MAX_BATCH_BYTES, MAX_LINE_BYTES, VERSION,
    query::{Glimpse, GlimpsedStep, Query},
    sieve::{Sieve, Strained},
    trace_hash,
};
use crate::{archive::Archive, panics::elsewhere, time::Timestamp};

/// Text of one batch that is kept; one that was written here fits.
const HELD_BYTES: usize = 2 * 1024 * 1024;
/// No line takes so little that more fit into a batch that was written here.
const MAX_BATCH_LINES: usize = 16 * 1024;
/// Compressed; a batch that was written here is smaller, and fetched in one piece.
const WHOLE_BYTES: u64 = 2 * 1024 * 1024;
/// 8 MiB; a batch is compressed with a window of its own size, or less.
const MAX_WINDOW: u32 = 23;

/// A batch in the store.
#[derive(Clone, Debug)]
pub(super) struct StoredBatch {
    pub(super) key: IndexKey,
    pub(super) stored_at: Timestamp,
    /// Compressed.
    pub(super) size: u64,
}

/// When a line was written, as against the others of its hour: the place of its batch among them,
/// and its place in there.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Written {
    pub(super) batch: u32,
    pub(super) offset: u32,
}

/// Sorts lines by when they began; of two that began at once, by when they were written.
pub(super) type Order = (Timestamp, Written);

/// Which of two lines of one trace is the more complete one.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Rank {
    pub(super) revision: u32,
    pub(super) steps: u32,
}

impl Rank {
    pub(super) fn new(revision: u32, steps: usize) -> Self {
        Self {
            revision,
            steps: u32::try_from(steps).unwrap_or(u32::MAX),
        }
    }
}

/// A line that was seen.
#[derive(Debug)]
pub(super) struct SeenLine {
    pub(super) order: Order,
    /// Of its trace id.
    pub(super) trace: u64,
    pub(super) rank: Rank,
    pub(super) is_asked_for: bool,
    /// It has no first step: another line of its trace may have begun before it.
    pub(super) lacks_beginning: bool,
}

/// What was found in a batch.
#[derive(Debug, Default)]
pub(super) struct Scanned {
    pub(super) lines: Vec<SeenLine>,
    pub(super) held: HeldLines,
    /// Can't be read.
    unreadable: u64,
    /// Of another version, and one of these.
    foreign: (u64, u32),
}

/// The text of lines, as much as may be held: those that come first when reading backwards.
#[derive(Debug, Default)]
pub(super) struct HeldLines {
    lines: BTreeMap<Order, Box<[u8]>>,
    bytes: usize,
}

impl HeldLines {
    /// Forgets the oldest while there is too much; the newest is always held.
    pub(super) fn hold(&mut self, order: Order, line: Box<[u8]>, limit: usize) {
        self.bytes += line.len();
        if let Some(same) = self.lines.insert(order, line) {
            self.bytes -= same.len();
        }
        while self.bytes > limit && self.lines.len() > 1 {
            if let Some((_, line)) = self.lines.pop_first() {
                self.bytes -= line.len();
            }
        }
    }

    pub(super) fn hold_all(&mut self, others: Self, limit: usize) {
        for (order, line) in others.lines.into_iter().rev() {
            self.hold(order, line, limit);
        }
    }

    pub(super) fn take(&mut self, order: Order) -> Option<Box<[u8]>> {
        let line = self.lines.remove(&order)?;
        self.bytes -= line.len();
        Some(line)
    }

    pub(super) fn holds(&self, order: Order) -> bool {
        self.lines.contains_key(&order)
    }
}

/// Looks through a batch; `place` is its place among those of its hour. The text of lines up to
/// `until` is held, or of all. A batch that is gone holds nothing.
pub(super) async fn scan(
    archive: Archive,
    query: Arc<Query>,
    decoders: Decoders,
    batch: StoredBatch,
    place: u32,
    until: Option<Order>,
) -> (Scanned, Vec<IndexError>) {
    let mut errors = Vec::new();
    let scanner = Scanner {
        sieve: Sieve::of(&query),
        query,
        place,
        until,
        position: 0,
        line: Vec::new(),
        is_overlong: false,
        found: Scanned::default(),
    };
    let found = match read(&archive, &decoders, &batch, scanner).await {
        Ok((scanner, broken)) => {
            let is_whole = broken.is_none();
            errors.extend(broken.map(|source| IndexError::Batch {
                key: batch.key.clone(),
                source,
            }));
            scanner.finish(is_whole)
        }
        Err(object_store::Error::NotFound { .. }) => Scanned::default(),
        Err(error) => {
            errors.push(IndexError::Fetch {
                key: batch.key.clone(),
                source: error.into(),
            });
            Scanned::default()
        }
    };
    if found.unreadable > 0 {
        errors.push(IndexError::Lines {
            key: batch.key.clone(),
            lines: found.unreadable,
        });
    }
    let (lines, version) = found.foreign;
    if lines > 0 {
        errors.push(IndexError::Version {
            key: batch.key.clone(),
            lines,
            version,
        });
    }
    (found, errors)
}

/// Hands a batch to a scanner; tells what broke it, if something did.
async fn read(
    archive: &Archive,
    decoders: &Decoders,
    batch: &StoredBatch,
    scanner: Scanner,
) -> object_store::Result<(Scanner, Option<io::Error>)> {
    let location = archive.location(&batch.key.to_string());
    let stored = archive.store.client.get(&location).await?;
    if stored.meta.size > MAX_BATCH_BYTES {
        return Ok((scanner, Some(io::ErrorKind::FileTooLarge.into())));
    }
    let mut decoder = match decoders.take() {
        Ok(decoder) => zio::Writer::new(scanner, decoder),
        Err(error) => return Ok((scanner, Some(error))),
    };
    let mut pieces = if stored.meta.size <= WHOLE_BYTES {
        stream::once(stored.bytes()).boxed()
    } else {
        stored.into_stream()
    };
    while let Some(bytes) = pieces.next().await {
        let bytes = bytes?;
        let work = elsewhere(move || {
            let broken = decoder.write_all(&bytes).err();
            (decoder, broken)
        });
        let (worked, broken) = work.await.map_err(|error| object_store::Error::Generic {
            store: "index",
            source: Box::new(error),
        })?;
        if broken.is_some() {
            return Ok((worked.into_inner().0, broken));
        }
        decoder = worked;
    }
    let broken = decoder.finish().err();
    let (scanner, decoder) = decoder.into_inner();
    decoders.give_back(decoder);
    Ok((scanner, broken))
}

/// Used again for batch after batch: what they hold, taken by one thread and let go of by another,
/// would add up.
#[derive(Clone, Default)]
pub(super) struct Decoders(Arc<Mutex<Vec<Decoder<'static>>>>);

impl Decoders {
    fn take(&self) -> io::Result<Decoder<'static>> {
        if let Some(mut decoder) = self.idle().pop() {
            decoder.reinit()?;
            return Ok(decoder);
        }
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(MAX_WINDOW))?;
        Ok(decoder)
    }

    fn give_back(&self, decoder: Decoder<'static>) {
        self.idle().push(decoder);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Decoder<'static>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Decoders {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Decoders")
    }
}

/// Takes what is decompressed, and looks at line after line.
struct Scanner {
    query: Arc<Query>,
    /// `None` if all lines are asked for.
    sieve: Option<Sieve>,
    place: u32,
    until: Option<Order>,
    /// Of what comes next.
    position: u64,
    /// The beginning of a line.
    line: Vec<u8>,
    is_overlong: bool,
    found: Scanned,
}

impl Write for Scanner {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let newline = memchr::memchr(b'\n', bytes);
            let end = newline.map_or(bytes.len(), |newline| newline + 1);
            let (piece, rest) = bytes.split_at(end);
            bytes = rest;
            let next = self.position + piece.len() as u64;
            if next > MAX_BATCH_BYTES || self.found.lines.len() >= MAX_BATCH_LINES {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            self.position = next;
            match piece.strip_suffix(b"\n") {
                Some(end) if self.line.is_empty() && !self.is_overlong => self.look_at(end, 1),
                Some(end) => {
                    self.keep(end);
                    self.end_line(1);
                }
                None => self.keep(piece),
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Scanner {
    fn keep(&mut self, bytes: &[u8]) {
        if self.line.len() + bytes.len() > MAX_LINE_BYTES {
            self.is_overlong = true;
            self.line = Vec::new();
        }
        if !self.is_overlong {
            self.line.extend_from_slice(bytes);
        }
    }

    /// `newline`: how many bytes it takes.
    fn end_line(&mut self, newline: u64) {
        if std::mem::take(&mut self.is_overlong) {
            self.found.unreadable += 1;
        } else {
            let mut line = std::mem::take(&mut self.line);
            self.look_at(&line, newline);
            line.clear();
            self.line = line;
        }
    }

    fn look_at(&mut self, line: &[u8], newline: u64) {
        let start = self.position - newline - line.len() as u64;
        let Ok(offset) = u32::try_from(start) else {
            return;
        };
        if line.is_empty() {
            return;
        }
        let written = Written {
            batch: self.place,
            offset,
        };
        let strained = self
            .sieve
            .as_mut()
            .map(|sieve| sieve.strain(line, &self.query));
        match strained {
            None | Some(Strained::Passed) => self.parse(line, written),
            Some(Strained::KeptOut) => {}
            Some(Strained::KeptOutAlone { beginning, steps }) => {
                self.found.lines.push(SeenLine {
                    order: (beginning.started_at, written),
                    trace: trace_hash(&beginning.trace_id),
                    rank: Rank::new(beginning.revision, steps),
                    is_asked_for: false,
                    lacks_beginning: false,
                });
            }
        }
    }

    fn parse(&mut self, line: &[u8], written: Written) {
        let glimpse: Option<Glimpse<'_>> = serde_json::from_slice(line).ok();
        let steps = glimpse.as_ref().and_then(|glimpse| glimpse.steps.as_ref());
        let (Some(glimpse), Some(steps)) = (&glimpse, steps) else {
            match version_of(line) {
                Some(version) if version != VERSION => self.count_foreign(version),
                _ => self.found.unreadable += 1,
            }
            return;
        };
        if glimpse.v != VERSION {
            self.count_foreign(glimpse.v);
            return;
        }
        let seen = SeenLine {
            order: (glimpse.started_at, written),
            trace: trace_hash(&glimpse.trace_id),
            rank: Rank::new(glimpse.revision, steps.len()),
            is_asked_for: self.query.asks_for(glimpse),
            lacks_beginning: !steps.iter().any(GlimpsedStep::is_first),
        };
        if seen.is_asked_for && self.until.is_none_or(|until| seen.order <= until) {
            self.found.held.hold(seen.order, line.into(), HELD_BYTES);
        }
        self.found.lines.push(seen);
    }

    fn count_foreign(&mut self, version: u32) {
        self.found.foreign = (self.found.foreign.0 + 1, version);
    }

    /// A last line need not end with a newline, unless the batch broke off there.
    fn finish(mut self, is_whole: bool) -> Scanned {
        if is_whole && (self.is_overlong || !self.line.is_empty()) {
            self.end_line(0);
        }
        self.found
    }
}

/// A line of another version may have little else in common.
fn version_of(line: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct Versioned {
        v: u32,
    }

    let versioned: Versioned = serde_json::from_slice(line).ok()?;
    Some(versioned.v)
}
