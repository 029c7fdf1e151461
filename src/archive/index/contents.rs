//! What a batch holds, in a small object of its own, so that one reconcile, or those of one
//! subject, are found among very many without reading them all.
//!
//! ```text
//! v1/contents/date=<YYYY-MM-DD>/hour=<HH>/<instance>-<sequence>.contents.txt
//! ```
//!
//! A line of text for each line of the batch: when it began, its trace id as OpenTelemetry has it,
//! the name of its subject and, unless that has the same digits, the trace id as core has it. It
//! stands outside the index, where other programs take every object for a batch.
//!
//! Invariant: stored before its batch. A batch without one, as those are that hold something out
//! of the ordinary, is read.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use object_store::ObjectStoreExt as _;

use super::{
    IndexKey, MAX_BATCH_BYTES,
    query::{Glimpse, Query, digits},
    scan::StoredBatch,
    sieve::Beginning,
};
use crate::{
    archive::{Archive, Compression, StoreError},
    pace::{breathe, pace_this_thread},
    panics::elsewhere,
};

/// More than a batch that was written here can have.
const MAX_BYTES: u64 = 4 * 1024 * 1024;
/// How far apart the lines of one trace may begin: no reconcile takes longer. A line that replaces
/// another must not be left out.
pub(super) const REACH: Duration = Duration::from_mins(5);

impl Archive {
    /// Stores what a batch holds.
    pub(in crate::archive) async fn put_contents(
        &self,
        key: &IndexKey,
        batch: Bytes,
    ) -> Result<(), StoreError> {
        let work = elsewhere(move || {
            pace_this_thread();
            contents_of(&batch)
        });
        let given_up = |error| object_store::Error::Generic {
            store: "contents",
            source: Box::new(error),
        };
        let Some(contents) = work.await.map_err(given_up)? else {
            return Ok(());
        };
        self.put_as(&key.contents_key(), "text/plain", contents.into())
            .await
    }

    /// Leaves out the batches that don't hold what is asked for.
    pub(super) async fn holding(
        &self,
        query: &Query,
        batches: Vec<StoredBatch>,
    ) -> Vec<StoredBatch> {
        // Whoever asks for all reads all.
        let is_worth_it =
            query.trace_id.is_some() || query.subject.name.is_some() || query.until.is_some();
        if !is_worth_it {
            return batches;
        }
        let looked_up = batches.into_iter().map(async |batch| {
            let contents = self.fetch_contents(&batch.key).await;
            // Whatever is wrong with them: reading the batch will tell.
            let may_hold = contents.is_none_or(|contents| may_hold(&contents, query));
            may_hold.then_some(batch)
        });
        let looked_up = stream::iter(looked_up).buffer_unordered(self.store.at_once());
        looked_up.filter_map(std::future::ready).collect().await
    }

    async fn fetch_contents(&self, key: &IndexKey) -> Option<String> {
        let location = self.location(&key.contents_key());
        let stored = self.store.client.get(&location).await.ok()?;
        if stored.meta.size > MAX_BYTES {
            return None;
        }
        String::from_utf8(stored.bytes().await.ok()?.into()).ok()
    }
}

/// `None` if some of it would not read back.
fn contents_of(batch: &[u8]) -> Option<Vec<u8>> {
    let lines = Compression::Zstd.decode(batch, MAX_BATCH_BYTES).ok()?;
    let mut contents = String::new();
    let mut beginning = Beginning::default();
    let lines = lines.split(|byte| *byte == b'\n');
    for line in lines.filter(|line| !line.is_empty()) {
        let (line, _) = beginning.of(line)?;
        contents.push_str(&content_of(&line)?);
        breathe();
    }
    Some(contents.into_bytes())
}

fn content_of(line: &Glimpse<'_>) -> Option<String> {
    let Glimpse {
        trace_id,
        otel_trace_id,
        started_at,
        ..
    } = line;
    let name = line.name();
    let own = if digits(trace_id).eq(digits(otel_trace_id)) {
        String::new()
    } else {
        format!(" {trace_id}")
    };
    let is_plain =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    [trace_id.as_ref(), otel_trace_id, name]
        .iter()
        .all(|text| is_plain(text))
        .then(|| format!("{started_at} {otel_trace_id} {name}{own}\n"))
}

/// Whether a line that is asked for, or one that stands for it, may be among these.
fn may_hold(contents: &str, query: &Query) -> bool {
    // NOTE: written like this, times sort as text.
    let since = query.since.map(|since| (since - REACH).rfc3339());
    let until = query.until.map(|until| (until + REACH).rfc3339());
    contents.lines().any(|line| {
        let mut words = line.split(' ');
        let (Some(start), Some(otel_id), Some(name)) = (words.next(), words.next(), words.next())
        else {
            // Nobody here wrote that.
            return true;
        };
        let asked_name = query.subject.name.as_deref();
        since.as_deref().is_none_or(|since| start >= since)
            && until.as_deref().is_none_or(|until| start < until)
            && asked_name.is_none_or(|asked| asked == name)
            && (query.asks_for_id(otel_id) || words.any(|id| query.asks_for_id(id)))
    })
}
