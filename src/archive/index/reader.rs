//! The index, read backwards: day by day, hour by hour.
//!
//! Invariant: memory holds the names of the days and one hour at a time, or two where a reconcile
//! may have begun in the one and gone on in the other; nothing is listed or fetched before somebody
//! asks for the line behind it. What can't be read costs itself only.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use futures_util::{Stream, TryStreamExt as _, stream};
use object_store::{ListResult, ObjectMeta, ObjectStore as _, path::Path};

use super::{
    IndexError, IndexKey, Partition,
    contents::REACH,
    hour::{CLOCK_SKEW, Hour, MAX_LINES},
    index_folder,
    query::Query,
    scan::{Rank, StoredBatch},
};
use crate::{
    archive::{Archive, StoreError},
    line::Line,
    time::Timestamp,
};

/// Far over what a process that starts every few seconds leaves in an hour.
const MAX_BATCHES: usize = 10_000;

impl Archive {
    /// The lines that a query asks for, by when they began, the newest first, one per trace: the one
    /// of the highest revision, of these the one with the most steps, of these the one written last.
    /// If a query does not ask for that line, it gets none of the trace.
    ///
    /// Both hold within the limits that [`IndexError`] and the store's clock set: a batch must not
    /// have been stored more than a minute before one of its lines began, an hour must not hold more
    /// than 120,000 lines, and the lines of one trace must not have begun more than five minutes
    /// apart.
    ///
    /// An error is about a part of the index; what comes behind it is read all the same.
    pub fn read_index(
        &self,
        query: Query,
    ) -> impl Stream<Item = Result<Line, IndexError>> + Send + use<> {
        let reader = Reader {
            archive: self.clone(),
            query: Arc::new(query),
            days: None,
            hours: Vec::new(),
            hour: None,
            given: HashSet::new(),
            errors: VecDeque::new(),
        };
        stream::unfold(reader, async |mut reader| {
            let item = reader.next().await?;
            Some((item, reader))
        })
    }
}

#[derive(Debug)]
struct Reader {
    archive: Archive,
    query: Arc<Query>,
    /// The newest last; `None` before they are listed.
    days: Option<Vec<String>>,
    /// Of one day, the newest last.
    hours: Vec<Partition>,
    hour: Option<(Partition, Hour)>,
    /// Traces of the hour after this one that are done with, though a part of them began in this one.
    given: HashSet<String>,
    errors: VecDeque<IndexError>,
}

impl Reader {
    async fn next(&mut self) -> Option<Result<Line, IndexError>> {
        loop {
            if let Some(error) = self.errors.pop_front() {
                return Some(Err(error));
            }
            if let Some((partition, hour)) = &mut self.hour {
                match hour.next().await {
                    Some(Ok(line)) => {
                        let partition = *partition;
                        if !self.is_replaced(partition, &line).await {
                            return Some(Ok(line));
                        }
                    }
                    Some(error) => return Some(error),
                    None => self.hour = None,
                }
            } else if let Some(partition) = self.hours.pop() {
                let query = Arc::clone(&self.query);
                let (hour, errors) = open(&self.archive, partition, query).await;
                self.errors.extend(errors);
                self.hour = Some((partition, hour));
            } else if let Some(days) = &mut self.days {
                let day = days.pop()?;
                self.hours = self.hours_of(&day).await;
            } else {
                self.days = Some(self.list_days().await);
            }
        }
    }

    /// Days that may hold what is asked for, the newest last.
    async fn list_days(&mut self) -> Vec<String> {
        let first = self.query.since.map(Timestamp::date);
        let last = self.query.until.map(Timestamp::date);
        let mut days = self.list_names(index_folder().to_owned(), "date=").await;
        days.retain(|day| {
            // NOTE: the first day that time knows begins in the middle.
            Partition::parse(day, "23").is_some()
                && first.as_ref().is_none_or(|first| day >= first)
                && last.as_ref().is_none_or(|last| day <= last)
        });
        days.sort_unstable();
        days
    }

    async fn hours_of(&mut self, day: &str) -> Vec<Partition> {
        let first = self.query.since.map(Partition::of);
        let last = self.query.until.map(Partition::of);
        let folder = format!("{}/date={day}", index_folder());
        let hours = self.list_names(folder, "hour=").await;
        let mut hours: Vec<_> = hours
            .iter()
            .filter_map(|hour| Partition::parse(day, hour))
            .filter(|hour| first.is_none_or(|first| *hour >= first))
            .filter(|hour| last.is_none_or(|last| *hour <= last))
            .collect();
        hours.sort_unstable();
        hours
    }

    /// What comes after `prefix` in the names of the folders in a folder.
    async fn list_names(&mut self, folder: String, prefix: &str) -> Vec<String> {
        let location = self.archive.location(&folder);
        let listed = self
            .archive
            .store
            .client
            .list_with_delimiter(Some(&location));
        let folders = match listed.await {
            Ok(ListResult {
                common_prefixes, ..
            }) => common_prefixes,
            Err(object_store::Error::NotFound { .. }) => Vec::new(),
            Err(error) => {
                self.note_unlisted(folder, error);
                Vec::new()
            }
        };
        let name = |folder: &Path| Some(folder.filename()?.strip_prefix(prefix)?.to_owned());
        folders.iter().filter_map(name).collect()
    }

    /// Whether a line of the hour before or after stands for this one. A part that arrived late may
    /// have begun in the hour after its reconcile.
    async fn is_replaced(&mut self, partition: Partition, line: &Line) -> bool {
        if self.given.remove(&line.trace_id) {
            return true;
        }
        let start = partition.start();
        let has_beginning = line
            .steps
            .iter()
            .any(|step| (step.index, step.iteration) == (0, 0));
        if has_beginning || line.started_at >= start + REACH {
            return false;
        }
        let query = Query {
            since: Some(start - REACH),
            until: Some(start),
            trace_id: Some(line.trace_id.clone()),
            ..Query::default()
        };
        let before = Partition::of(start - REACH);
        if before == partition {
            return false;
        }
        // What is wrong with that hour is told when its turn comes.
        let (mut hour, _) = open(&self.archive, before, Arc::new(query)).await;
        while let Some(earlier) = hour.next().await {
            let Ok(earlier) = earlier else { continue };
            if earlier.trace_id != line.trace_id {
                continue;
            }
            if rank_of(&earlier) >= rank_of(line) {
                return true;
            }
            self.given.insert(earlier.trace_id);
        }
        false
    }

    fn note_unlisted(&mut self, folder: String, error: object_store::Error) {
        let source = StoreError::from(error);
        self.errors.push_back(IndexError::List { folder, source });
    }
}

/// The lines of an hour that a query asks for, and what can't be listed.
async fn open(
    archive: &Archive,
    partition: Partition,
    query: Arc<Query>,
) -> (Hour, Option<IndexError>) {
    let folder = partition.folder();
    let location = archive.location(&folder);
    let mut objects = archive.store.client.list(Some(&location));
    let mut batches = Vec::new();
    let trouble = loop {
        match objects.try_next().await {
            Ok(Some(meta)) => batches.extend(batch_of(archive, &query, partition, &meta)),
            Ok(None) | Err(object_store::Error::NotFound { .. }) => break None,
            Err(error) => {
                let source = StoreError::from(error);
                break Some(IndexError::List { folder, source });
            }
        }
        if batches.len() > MAX_BATCHES {
            batches.truncate(MAX_BATCHES);
            break Some(IndexError::TooManyBatches {
                folder,
                limit: MAX_BATCHES,
            });
        }
    };
    let batches = archive.holding(&query, batches).await;
    let hour = Hour::new(archive.clone(), query, batches, MAX_LINES);
    (hour, trouble)
}

/// A listed object, if it is a batch that may hold what is asked for.
fn batch_of(
    archive: &Archive,
    query: &Query,
    partition: Partition,
    meta: &ObjectMeta,
) -> Option<StoredBatch> {
    let segments = meta.location.prefix_match(&archive.store.prefix)?;
    let key = IndexKey::parse(segments.collect::<Path>().as_ref())?;
    let nanos = meta.last_modified.timestamp_nanos_opt().unwrap_or(i64::MAX);
    let stored_at = Timestamp::from_nanos(nanos);
    let may_hold = |since| stored_at + CLOCK_SKEW >= since;
    (key.partition == partition && query.since.is_none_or(may_hold)).then_some(StoredBatch {
        key,
        stored_at,
        size: meta.size,
    })
}

fn rank_of(line: &Line) -> Rank {
    Rank::new(line.revision, line.steps.len())
}
