//! Batches of spans that wait for the collector, one file each.
//!
//! ```text
//! <folder>/<number>-<spans>.otlp.zst    an ExportTraceServiceRequest, compressed
//! ```
//!
//! Written by one thread, sent by another, so it locks. Invariant: bounded in bytes. What does not
//! fit any more is given up oldest first, and counted: the payloads and the lines of those
//! reconciles are in the store all the same.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write as _},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::{Found, UNFINISHED, remove_sent, sync_folder, take_up};
use crate::{
    pack::{pack, unpack},
    spans::EncodedSpans,
};

const ENDING: &str = ".otlp.zst";
/// What a batch may hold; one written here holds far less.
const MAX_BATCH_BYTES: usize = 64 * 1024 * 1024;

/// Names a batch.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct BatchId(u64);

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
    /// Of all that wait.
    bytes: u64,
}

impl Queue {
    fn insert(&mut self, batch: WaitingBatch) {
        self.next = self.next.max(batch.id.0 + 1);
        self.bytes += batch.bytes;
        self.waiting.insert(batch.id, batch);
    }

    fn remove(&mut self, id: BatchId) -> Option<WaitingBatch> {
        let batch = self.waiting.remove(&id)?;
        self.bytes -= batch.bytes;
        Some(batch)
    }

    fn oldest(&self) -> Option<WaitingBatch> {
        self.waiting.values().next().copied()
    }
}

impl TraceBatches {
    /// Takes up what an earlier process left.
    pub fn open(folder: PathBuf, max_bytes: u64) -> io::Result<Self> {
        let mut queue = Queue::default();
        for Found { name, bytes, .. } in take_up(&folder)? {
            let numbers = name
                .strip_suffix(ENDING)
                .and_then(|name| name.split_once('-'));
            let numbers =
                numbers.and_then(|(id, spans)| Some((id.parse().ok()?, spans.parse().ok()?)));
            if let Some((id, spans)) = numbers {
                let id = BatchId(id);
                queue.insert(WaitingBatch { id, spans, bytes });
            }
        }
        Ok(Self {
            folder,
            max_bytes,
            line: Mutex::new(queue),
            added: Notify::new(),
        })
    }

    /// Puts a batch in line and makes it durable. Returns how many spans had to be given up for
    /// it.
    pub fn add(&self, request: &EncodedSpans) -> io::Result<u64> {
        let body = pack(&request.body)?;
        let id = BatchId(self.lock().next);
        let batch = WaitingBatch {
            id,
            spans: request.count,
            bytes: body.len() as u64,
        };
        let path = self.path_of(&batch);
        let fresh = path.with_extension(UNFINISHED);
        let mut file = File::create(&fresh)?;
        file.write_all(&body)?;
        file.sync_data()?;
        fs::rename(&fresh, &path)?;
        sync_folder(&self.folder)?;

        let mut queue = self.lock();
        queue.insert(batch);
        let mut given_up = Vec::new();
        while queue.bytes > self.max_bytes && queue.waiting.len() > 1 {
            let Some(oldest) = queue.oldest().and_then(|oldest| queue.remove(oldest.id)) else {
                break;
            };
            given_up.push(oldest);
        }
        drop(queue);
        self.added.notify_one();
        for batch in &given_up {
            remove_sent(&self.path_of(batch));
        }
        Ok(given_up.iter().map(|batch| batch.spans).sum())
    }

    /// The oldest batch, once there is one.
    pub async fn oldest(&self) -> WaitingBatch {
        loop {
            let added = self.added.notified();
            let oldest = self.lock().oldest();
            if let Some(batch) = oldest {
                return batch;
            }
            added.await;
        }
    }

    /// What a batch holds; `None` if it is gone.
    pub fn read(&self, batch: &WaitingBatch) -> io::Result<Option<EncodedSpans>> {
        let body = match fs::read(self.path_of(batch)) {
            Ok(body) => body,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(EncodedSpans {
            body: unpack(&body, MAX_BATCH_BYTES)?.into(),
            count: batch.spans,
        }))
    }

    /// It was delivered, or will never be.
    pub fn remove(&self, batch: &WaitingBatch) {
        if self.lock().remove(batch.id).is_some() {
            remove_sent(&self.path_of(batch));
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
        let WaitingBatch { id, spans, .. } = batch;
        self.folder.join(format!("{:020}-{spans}{ENDING}", id.0))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
