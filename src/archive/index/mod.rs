//! The index: one line a reconcile, in batches beside the objects that they point to.
//!
//! [`IndexJournal`] gathers lines on local disk, [`Archive::put_index`] stores a batch, and
//! [`Archive::read_index`] reads lines back, newest first. Invariant: what the journal writes, the
//! reader reads; the limits that both keep to stand here.

mod contents;
mod hour;
mod journal;
mod key;
mod query;
mod reader;
mod scan;
mod sieve;
#[cfg(test)]
mod tests;

use std::io;

use bytes::Bytes;

pub(super) use self::key::{contents_folder, index_folder};
pub use self::{
    journal::{IndexJournal, ReadyBatch},
    key::{IndexKey, InstanceName, Partition},
    query::{Query, SubjectFilter},
};
use super::{Archive, StoreError};

/// Of the line, as [`crate::line::Line::v`].
const VERSION: u32 = 1;
/// Decompressed; a batch that was written here holds little over 1 MiB.
const MAX_BATCH_BYTES: u64 = 64 * 1024 * 1024;
/// Some thousand times what a line of five steps takes.
const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// What a part of the index can't be read for. Reading goes on behind it.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("cannot list {folder}")]
    List { folder: String, source: StoreError },
    #[error("cannot fetch {key}")]
    Fetch { key: IndexKey, source: StoreError },
    /// What stands before the break is given all the same.
    #[error("{key} is broken")]
    Batch { key: IndexKey, source: io::Error },
    #[error("{key} holds {lines} lines that can't be read")]
    Lines { key: IndexKey, lines: u64 },
    #[error("{key} holds {lines} lines of other versions, such as {version}")]
    Version {
        key: IndexKey,
        lines: u64,
        version: u32,
    },
    #[error("{folder} holds more than {limit} batches")]
    TooManyBatches { folder: String, limit: usize },
}

impl IndexError {
    /// The call to the store that failed, if one did.
    pub fn store_error(&self) -> Option<&StoreError> {
        match self {
            Self::List { source, .. } | Self::Fetch { source, .. } => Some(source),
            Self::Batch { .. }
            | Self::Lines { .. }
            | Self::Version { .. }
            | Self::TooManyBatches { .. } => None,
        }
    }
}

impl Archive {
    /// Stores a batch of index lines, in place of what stands there.
    pub async fn put_index(&self, key: &IndexKey, body: Bytes) -> Result<(), StoreError> {
        self.put_contents(key, body.clone()).await?;
        self.put_batch(key, body).await
    }

    /// Stores a batch whose contents are in the store.
    pub(in crate::archive) async fn put_batch(
        &self,
        key: &IndexKey,
        body: Bytes,
    ) -> Result<(), StoreError> {
        // NOTE: no Content-Encoding. Programs that read the index decompress by the ending of
        // the key, and a client that did it for them would break that.
        self.put_as(&key.to_string(), "application/zstd", body)
            .await
    }
}

/// What stands for a trace id where very many are held.
fn trace_hash(trace_id: &str) -> u64 {
    twox_hash::XxHash3_64::oneshot(trace_id.as_bytes())
}
