//! The index, read backwards: day by day, hour by hour.
//!
//! Invariant: memory holds the names of the days and one hour at a time; nothing is listed or
//! fetched before somebody asks for the line behind it. What can't be read costs itself only.

use std::{collections::VecDeque, sync::Arc};

use futures_util::{Stream, TryStreamExt as _, stream};
use object_store::{ListResult, ObjectMeta, ObjectStore as _, path::Path};

use super::{
    IndexError, IndexKey, Partition,
    hour::{CLOCK_SKEW, Hour, MAX_LINES},
    index_folder,
    query::Query,
    scan::StoredBatch,
};
use crate::{
    archive::{Archive, StoreError},
    line::Line,
    time::Timestamp,
};

/// Far over what a process that starts every few seconds leaves in an hour.
const MAX_BATCHES: usize = 10_000;

impl Archive {
    /// The lines that a query asks for, by when they began, the newest first.
    ///
    /// The order is exact, and of lines that stand for the same only one is given, within the
    /// limits that [`IndexError`] and the store's clock set: a batch must not have been stored more
    /// than a minute before one of its lines began, and an hour must not hold more than 120,000
    /// lines. Lines of one trace that began in different hours are all given.
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
    hour: Option<Hour>,
    errors: VecDeque<IndexError>,
}

impl Reader {
    async fn next(&mut self) -> Option<Result<Line, IndexError>> {
        loop {
            if let Some(error) = self.errors.pop_front() {
                return Some(Err(error));
            }
            if let Some(hour) = &mut self.hour {
                match hour.next().await {
                    Some(item) => return Some(item),
                    None => self.hour = None,
                }
            } else if let Some(partition) = self.hours.pop() {
                self.hour = Some(self.open(partition).await);
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

    async fn open(&mut self, partition: Partition) -> Hour {
        let folder = partition.folder();
        let location = self.archive.location(&folder);
        let mut objects = self.archive.store.client.list(Some(&location));
        let mut batches = Vec::new();
        loop {
            match objects.try_next().await {
                Ok(Some(meta)) => batches.extend(self.batch(partition, &meta)),
                Ok(None) | Err(object_store::Error::NotFound { .. }) => break,
                Err(error) => {
                    self.note_unlisted(folder, error);
                    break;
                }
            }
            if batches.len() > MAX_BATCHES {
                batches.truncate(MAX_BATCHES);
                self.errors.push_back(IndexError::TooManyBatches {
                    folder,
                    limit: MAX_BATCHES,
                });
                break;
            }
        }
        let batches = self.archive.holding(&self.query, batches).await;
        let query = Arc::clone(&self.query);
        Hour::new(self.archive.clone(), query, batches, MAX_LINES)
    }

    /// A listed object, if it is a batch that may hold what is asked for.
    fn batch(&self, partition: Partition, meta: &ObjectMeta) -> Option<StoredBatch> {
        let segments = meta.location.prefix_match(&self.archive.store.prefix)?;
        let key = IndexKey::parse(segments.collect::<Path>().as_ref())?;
        let nanos = meta.last_modified.timestamp_nanos_opt().unwrap_or(i64::MAX);
        let stored_at = Timestamp::from_nanos(nanos);
        let may_hold = |since| stored_at + CLOCK_SKEW >= since;
        (key.partition == partition && self.query.since.is_none_or(may_hold)).then_some(
            StoredBatch {
                key,
                stored_at,
                size: meta.size,
            },
        )
    }

    fn note_unlisted(&mut self, folder: String, error: object_store::Error) {
        let source = StoreError::from(error);
        self.errors.push_back(IndexError::List { folder, source });
    }
}
