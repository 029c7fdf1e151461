//! Batches of spans that wait for the collector, one file each.
//!
//! ```text
//! <folder>/<number>-<spans>.otlp.zst    an ExportTraceServiceRequest, compressed
//! ```
//!
//! Two threads use it, so it locks. Invariant: bounded in bytes. What does not fit any more is given
//! up oldest first, and counted: the payloads and the index entries of those reconciles are in the
//! store all the same.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::{UNFINISHED, list_finished, remove_sent};
use crate::{
    disk::{SharedDisk, disk_use, read_file},
    pack::{pack, unpack},
    spans::EncodedSpans,
};

const ENDING: &str = ".otlp.zst";
/// What a batch may hold; one written here holds far less.
const MAX_BATCH_BYTES: usize = 64 * 1024 * 1024;

/// Names a batch.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct BatchId(u64);

impl BatchId {
    /// The one after it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A batch in line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WaitingBatch {
    pub id: BatchId,
    pub spans: u64,
    bytes: u64,
}

/// The batches in a folder.
#[derive(Debug)]
pub struct TraceBatches {
    disk: SharedDisk,
    folder: PathBuf,
    max_bytes: u64,
    line: Mutex<Queue>,
    /// Told of every batch that is added.
    added: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    next: u64,
    waiting: BTreeMap<BatchId, WaitingBatch>,
    /// Of all that wait, on disk.
    bytes: u64,
}

impl Queue {
    /// A number that no other batch gets: two threads add batches.
    fn take_number(&mut self) -> BatchId {
        let id = BatchId(self.next);
        self.next += 1;
        id
    }

    fn insert(&mut self, batch: WaitingBatch) {
        self.next = self.next.max(batch.id.0 + 1);
        self.bytes += disk_use(batch.bytes);
        self.waiting.insert(batch.id, batch);
    }

    fn remove(&mut self, id: BatchId) -> Option<WaitingBatch> {
        let batch = self.waiting.remove(&id)?;
        self.bytes -= disk_use(batch.bytes);
        Some(batch)
    }

    fn oldest(&self) -> Option<WaitingBatch> {
        self.waiting.values().next().copied()
    }
}

impl TraceBatches {
    /// Takes up what an earlier process left.
    pub fn open(disk: SharedDisk, folder: PathBuf, max_bytes: u64) -> io::Result<Self> {
        let mut queue = Queue::default();
        for entry in list_finished(disk.as_ref(), &folder)? {
            if let Some((id, spans)) = numbers_of(&entry.name) {
                let bytes = entry.bytes;
                queue.insert(WaitingBatch { id, spans, bytes });
            }
        }
        Ok(Self {
            disk,
            folder,
            max_bytes,
            line: Mutex::new(queue),
            added: Notify::new(),
        })
    }

    /// Removes all of them, since nobody will send them; returns how many spans that were.
    pub fn give_up(&self) -> u64 {
        let given_up = std::mem::take(&mut self.lock().waiting);
        for batch in given_up.values() {
            remove_sent(self.disk.as_ref(), &self.path_of(batch));
        }
        self.lock().bytes = 0;
        given_up.values().map(|batch| batch.spans).sum()
    }

    /// Puts a batch in line and makes it durable. Returns how many spans had to be given up for
    /// it.
    pub fn add(&self, request: &EncodedSpans) -> io::Result<u64> {
        self.insert(request)?;
        let mut queue = self.lock();
        let mut given_up = Vec::new();
        while queue.bytes > self.max_bytes && queue.waiting.len() > 1 {
            let Some(oldest) = queue.oldest().and_then(|oldest| queue.remove(oldest.id)) else {
                break;
            };
            given_up.push(oldest);
        }
        drop(queue);
        for batch in &given_up {
            remove_sent(self.disk.as_ref(), &self.path_of(batch));
        }
        Ok(given_up.iter().map(|batch| batch.spans).sum())
    }

    /// Puts parts of a batch in its place. A crash may leave both, so that spans are sent twice,
    /// which changes nothing.
    pub fn replace(
        &self,
        batch: &WaitingBatch,
        parts: &[EncodedSpans],
    ) -> io::Result<Vec<BatchId>> {
        let mut added = Vec::new();
        for part in parts {
            added.push(self.insert(part)?);
        }
        self.remove(batch);
        Ok(added)
    }

    /// Takes back a batch that was in quarantine under this name, and makes that durable.
    pub fn take_back(&self, path: &Path, name: &str) -> io::Result<()> {
        let (_, spans) = numbers_of(name).ok_or(io::ErrorKind::InvalidData)?;
        let bytes = self.disk.open(path)?.length()?;
        let mut queue = self.lock();
        let id = queue.take_number();
        let batch = WaitingBatch { id, spans, bytes };
        self.disk.rename(path, &self.path_of(&batch))?;
        queue.insert(batch);
        drop(queue);
        self.added.notify_one();
        self.disk.sync_folder(&self.folder)
    }

    /// Ends when a batch was added.
    pub async fn added(&self) {
        self.added.notified().await;
    }

    /// The first batch from this one on.
    pub fn first_from(&self, id: BatchId) -> Option<WaitingBatch> {
        let queue = self.lock();
        queue.waiting.range(id..).next().map(|(_, batch)| *batch)
    }

    /// A batch, if it still waits.
    pub fn find(&self, id: BatchId) -> Option<WaitingBatch> {
        self.lock().waiting.get(&id).copied()
    }

    fn insert(&self, request: &EncodedSpans) -> io::Result<BatchId> {
        let body = pack(&request.body)?;
        let unfinished = self.lock().take_number();
        let fresh = self
            .folder
            .join(format!("{:020}.{UNFINISHED}", unfinished.0));
        let file = self.disk.create(&fresh)?;
        let written = file
            .append(&mut [IoSlice::new(&body)])
            .and_then(|()| file.sync());
        // Half a batch would take the room that something else needs.
        written.inspect_err(|_| remove_sent(self.disk.as_ref(), &fresh))?;

        let mut queue = self.lock();
        // NOTE: whichever thread is first, numbers appear in their order: whoever sends has not
        // gone past this one.
        let batch = WaitingBatch {
            id: queue.take_number(),
            spans: request.count,
            bytes: body.len() as u64,
        };
        let renamed = self.disk.rename(&fresh, &self.path_of(&batch));
        renamed.inspect_err(|_| remove_sent(self.disk.as_ref(), &fresh))?;
        queue.insert(batch);
        drop(queue);
        self.added.notify_one();
        self.disk.sync_folder(&self.folder)?;
        Ok(batch.id)
    }

    /// What a batch holds; `None` if it is gone. One that is damaged fails as
    /// [`io::ErrorKind::InvalidData`].
    pub fn read(&self, batch: &WaitingBatch) -> io::Result<Option<EncodedSpans>> {
        let Some(body) = read_file(self.disk.as_ref(), &self.path_of(batch))? else {
            return Ok(None);
        };
        Ok(Some(EncodedSpans {
            body: unpack(&body, MAX_BATCH_BYTES)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?
                .into(),
            count: batch.spans,
        }))
    }

    /// It was delivered, or will never be.
    pub fn remove(&self, batch: &WaitingBatch) {
        if self.lock().remove(batch.id).is_some() {
            remove_sent(self.disk.as_ref(), &self.path_of(batch));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// What all of them take on disk.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    fn path_of(&self, batch: &WaitingBatch) -> PathBuf {
        self.folder.join(Self::name_of(batch.id, batch.spans))
    }

    /// The name of a file that holds so many spans.
    pub fn name_of(id: BatchId, spans: u64) -> String {
        format!("{:020}-{spans}{ENDING}", id.0)
    }

    /// How many spans are in a file of this name.
    pub fn spans_of(name: &str) -> u64 {
        numbers_of(name).map_or(0, |(_, spans)| spans)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the name of a batch says.
fn numbers_of(name: &str) -> Option<(BatchId, u64)> {
    let (id, spans) = name.strip_suffix(ENDING)?.split_once('-')?;
    Some((BatchId(id.parse().ok()?), spans.parse().ok()?))
}
