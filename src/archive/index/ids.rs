//! Which traces a batch holds, in a small object of its own, so that one trace among very many is
//! found without reading them all.
//!
//! ```text
//! v1/ids/date=<YYYY-MM-DD>/hour=<HH>/<instance>-<sequence>.ids.txt
//! ```
//!
//! A line of text for each line of the batch: the trace id as OpenTelemetry has it; behind a blank
//! core's own, unless that has the same digits. It stands outside the index, where other programs
//! take every object for a batch.
//!
//! Invariant: stored before its batch. A batch without one, or whose ids are out of the ordinary,
//! is read like before there were any.

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use object_store::ObjectStoreExt as _;

use super::{
    IndexKey, MAX_BATCH_BYTES,
    query::{Query, digits},
    scan::StoredBatch,
    sieve::ids_of,
};
use crate::archive::{Archive, Compression, StoreError};

/// Objects that are asked for at once; they have some kilobytes each.
const AT_ONCE: usize = 32;
/// More than a batch that was written here can have.
const MAX_BYTES: u64 = 1024 * 1024;

impl Archive {
    /// Stores the ids of a batch.
    pub(super) async fn put_ids(&self, key: &IndexKey, batch: Bytes) -> Result<(), StoreError> {
        let work = tokio::task::spawn_blocking(move || ids_of_batch(&batch));
        let Some(ids) = work.await.map_err(object_store::Error::from)? else {
            return Ok(());
        };
        self.put_as(&key.ids_key(), "text/plain", ids.into()).await
    }

    /// Leaves out the batches that don't hold the trace that is asked for.
    pub(super) async fn holding(
        &self,
        query: &Query,
        batches: Vec<StoredBatch>,
    ) -> Vec<StoredBatch> {
        if query.trace_id.is_none() {
            return batches;
        }
        let asked = batches.into_iter().map(async |batch| {
            let ids = self.fetch_ids(&batch.key).await;
            // Whatever is wrong with them: reading the batch will tell.
            let may_hold = ids.is_none_or(|ids| lists(&ids, query));
            may_hold.then_some(batch)
        });
        let asked = stream::iter(asked).buffer_unordered(AT_ONCE);
        asked.filter_map(std::future::ready).collect().await
    }

    async fn fetch_ids(&self, key: &IndexKey) -> Option<Bytes> {
        let location = self.location(&key.ids_key());
        let stored = self.store.client.get(&location).await.ok()?;
        if stored.meta.size > MAX_BYTES {
            return None;
        }
        stored.bytes().await.ok()
    }
}

/// `None` if some of them would not read back.
fn ids_of_batch(batch: &[u8]) -> Option<Vec<u8>> {
    let lines = Compression::Zstd.decode(batch, MAX_BATCH_BYTES).ok()?;
    let mut text = Vec::new();
    for line in lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let [trace_id, otel_trace_id] = ids_of(line)?;
        text.extend_from_slice(otel_trace_id);
        if !digits(trace_id).eq(digits(otel_trace_id)) {
            text.push(b' ');
            text.extend_from_slice(trace_id);
        }
        text.push(b'\n');
        let is_plain = |id: &[u8]| id.iter().all(u8::is_ascii_graphic);
        if !is_plain(trace_id) || !is_plain(otel_trace_id) {
            return None;
        }
    }
    Some(text)
}

/// Whether one of them is asked for.
fn lists(ids: &[u8], query: &Query) -> bool {
    let mut lines = ids.split(|byte| *byte == b'\n');
    lines.any(|line| {
        let mut ids = line.split(|byte| *byte == b' ');
        ids.any(|id| !id.is_empty() && query.asks_for_id(id))
    })
}
