//! Finding a reconcile by what people call it, and its payloads.
//!
//! Invariant: an id that fits two reconciles is told as such and never guessed; a subject's name
//! means its newest reconcile.

use std::{collections::BTreeSet, fmt, pin::Pin, sync::Arc, time::Duration};

use futures_util::{Stream, StreamExt as _, stream};

use super::{
    document::{OpenError, StoredDocument},
    excerpt::{Excerpter, Selection},
    lookback::subject_of,
    reference::{Reference, SubjectName},
};
use crate::{
    archive::{Archive, FetchError, IndexError, Key, Query, StoreError, SubjectFilter},
    line::{Line, PayloadState},
    time::Timestamp,
};

/// How far behind the newest reconcile others of the same name are looked for: every XR is
/// reconciled within minutes, so that one that is still there is found.
const NAMESAKES_WITHIN: Duration = Duration::from_mins(30);
/// How far ahead the next reconcile of a subject is looked for, at first.
const NEAR: Duration = Duration::from_mins(15);

/// Objects that a store is asked for at once.
const LOOKED_FOR_AT_ONCE: usize = 16;

/// Text of payloads that is in memory at once, unless told otherwise. A reconcile of ten steps,
/// each with the largest payloads that are received by default, has 640 MiB.
const MAX_BYTES: u64 = 1024 * 1024 * 1024;

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// `None` for all.
    pub namespace: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("no reconcile is known in this store")]
    Empty,
    #[error("no reconcile of {0} is known")]
    NoSubject(SubjectName),
    #[error("no reconcile has an id that begins with {0}")]
    NoTrace(String),
    #[error("{prefix} is the beginning of several ids, such as {one} and {other}")]
    Ambiguous {
        prefix: String,
        one: String,
        other: String,
    },
    #[error("cannot read the index")]
    Index(#[from] IndexError),
}

/// Why a reconcile's payloads can't be shown.
#[derive(Debug, thiserror::Error)]
pub enum PayloadsError {
    #[error("the payloads of this reconcile were never stored: {0} was refused by the store")]
    Dropped(String),
    #[error("{key} is not in the store: it is still on its way, or the store was away for good")]
    Queued { key: String },
    #[error(
        "{key} is not in the store any more: it held what began at {began}, and expired or was deleted"
    )]
    Gone { key: String, began: String },
    #[error("{0} is no key of a reconcile's object")]
    NotAKey(String),
    #[error(transparent)]
    Fetch(FetchError),
    #[error("the payloads that this needs take more than {} MiB", limit / (1024 * 1024))]
    TooLarge { key: String, limit: u64 },
    #[error("cannot open {key}")]
    Open { key: String, source: OpenError },
}

/// Looks things up in an archive.
#[derive(Clone)]
pub struct Answers {
    archive: Archive,
    max_bytes: u64,
    note: Note,
}

/// Who is told that a part of the index can't be read, although an answer was found elsewhere.
type Note = Arc<dyn Fn(&IndexError) + Send + Sync>;

impl fmt::Debug for Answers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Answers").field(&self.archive).finish()
    }
}

impl Answers {
    pub fn new(archive: Archive) -> Self {
        let note = |error: &IndexError| {
            tracing::warn!(%error, "cannot read a part of the index");
        };
        Self {
            archive,
            max_bytes: MAX_BYTES,
            note: Arc::new(note),
        }
    }

    /// The same, that takes no more text into memory at once.
    #[must_use]
    pub fn limited_to(self, max_bytes: u64) -> Self {
        Self { max_bytes, ..self }
    }

    pub(super) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Tells somebody else what can't be read.
    #[must_use]
    pub fn noting(self, note: impl Fn(&IndexError) + Send + Sync + 'static) -> Self {
        Self {
            note: Arc::new(note),
            ..self
        }
    }

    pub fn archive(&self) -> &Archive {
        &self.archive
    }

    /// Lines, newest first; see [`Archive::read_index`].
    pub fn lines(
        &self,
        query: Query,
    ) -> impl Stream<Item = Result<Line, IndexError>> + Send + use<> {
        self.archive.read_index(query)
    }

    /// The reconcile that is meant.
    pub async fn find(&self, reference: &Reference, scope: &Scope) -> Result<Line, FindError> {
        let query = Query {
            since: scope.since,
            until: scope.until,
            ..Query::default()
        };
        match reference {
            Reference::Last => {
                let subject = SubjectFilter {
                    namespace: scope.namespace.clone(),
                    ..SubjectFilter::default()
                };
                let newest = self.newest(Query { subject, ..query }).await?;
                newest.ok_or(FindError::Empty)
            }
            Reference::Subject(subject) => {
                let filter = subject.filter(scope.namespace.clone());
                let newest = self
                    .newest(Query {
                        subject: filter,
                        ..query
                    })
                    .await?;
                newest.ok_or_else(|| FindError::NoSubject(subject.clone()))
            }
            Reference::Trace(prefix) => {
                let query = Query {
                    trace_id: Some(prefix.clone()),
                    ..query
                };
                self.only(query, prefix).await
            }
        }
    }

    /// All that people may mean by a name, as [`SubjectName`] has it with its namespace behind it,
    /// among what was reconciled not long before the newest.
    pub async fn namesakes(
        &self,
        subject: &SubjectName,
        scope: &Scope,
        newest: &Line,
    ) -> Result<BTreeSet<(String, String)>, IndexError> {
        let mut reading = self.read(Query {
            since: Some(newest.started_at - NAMESAKES_WITHIN).max(scope.since),
            until: scope.until,
            subject: subject.filter(scope.namespace.clone()),
            ..Query::default()
        });
        let mut found = BTreeSet::new();
        while let Some(line) = reading.next().await {
            let group = line.subject.api_version.split_once('/');
            let name = SubjectName {
                kind: line.subject.kind,
                group: group.map(|(group, _)| group.to_owned()),
                name: Some(line.subject.name),
            };
            found.insert((name.to_string(), line.subject.namespace));
        }
        Ok(reading.end(Some(found))?.unwrap_or_default())
    }

    async fn newest(&self, query: Query) -> Result<Option<Line>, IndexError> {
        let mut reading = self.read(query);
        let newest = reading.next().await;
        reading.end(newest)
    }

    async fn only(&self, query: Query, prefix: &str) -> Result<Line, FindError> {
        let mut reading = self.read(query);
        let mut found: Option<Line> = None;
        while let Some(line) = reading.next().await {
            match &found {
                // The same trace may have a second line, if a part of it came late.
                Some(found) if found.trace_id == line.trace_id => {}
                Some(found) => {
                    return Err(FindError::Ambiguous {
                        prefix: prefix.to_owned(),
                        one: found.trace_id.clone(),
                        other: line.trace_id,
                    });
                }
                None => {
                    let is_whole = is_whole_id(&line, prefix);
                    found = Some(line);
                    if is_whole {
                        break;
                    }
                }
            }
        }
        let found = reading.end(found)?;
        found.ok_or_else(|| FindError::NoTrace(prefix.to_owned()))
    }

    pub(super) fn read(&self, query: Query) -> Reading {
        Reading {
            lines: Box::pin(self.lines(query)),
            note: Arc::clone(&self.note),
            trouble: None,
        }
    }

    /// The reconcile of the same subject that came after this one.
    pub async fn next_of(&self, line: &Line) -> Result<Option<Line>, IndexError> {
        let subject = filter_of(line);
        // Lines come newest first, so that one that is far back is looked for close to it first.
        for ahead in [Some(NEAR), Some(NEAR * 8), Some(NEAR * 96), None] {
            let until = ahead.map(|ahead| line.started_at + ahead);
            let query = Query {
                since: Some(line.started_at),
                until,
                subject: subject.clone(),
                ..Query::default()
            };
            let mut reading = self.read(query);
            let mut next = None;
            while let Some(later) = reading.next().await {
                if later.trace_id == line.trace_id {
                    break;
                }
                next = Some(later);
            }
            if next.is_some() || until.is_none() {
                return reading.end(next);
            }
        }
        Ok(None)
    }

    /// The reconcile of the same subject that came before this one.
    pub async fn previous_of(&self, line: &Line) -> Result<Option<Line>, IndexError> {
        self.newest(Query {
            until: Some(line.started_at),
            subject: filter_of(line),
            ..Query::default()
        })
        .await
    }

    /// Whether each of these objects is in the store, in any order. What is no key of an object is
    /// not there.
    pub fn look_for(
        &self,
        keys: Vec<String>,
    ) -> impl Stream<Item = (String, Result<bool, StoreError>)> + Send {
        let looked_for = keys.into_iter().map(async |key| {
            let found = match Key::parse(&key) {
                Some(parsed) => self.archive.has(&parsed).await,
                None => Ok(false),
            };
            (key, found)
        });
        stream::iter(looked_for).buffer_unordered(LOOKED_FOR_AT_ONCE)
    }

    /// The payloads of a reconcile.
    pub async fn payloads(&self, line: &Line) -> Result<StoredDocument, PayloadsError> {
        self.excerpt(line, &Selection::everything()).await
    }

    /// Some of the payloads of a reconcile, or some of what they hold.
    pub async fn excerpt(
        &self,
        line: &Line,
        selection: &Selection,
    ) -> Result<StoredDocument, PayloadsError> {
        let key = &line.object.key;
        let mut excerpter = Excerpter::new(selection, self.max_bytes);
        match self.walk(key, &mut excerpter).await {
            Ok(()) => {
                StoredDocument::new(excerpter.finish()).map_err(|source| PayloadsError::Open {
                    key: key.clone(),
                    source,
                })
            }
            Err(PayloadsError::Gone { key, began }) => Err(match line.object.state {
                PayloadState::Queued => PayloadsError::Queued { key },
                PayloadState::Dropped => PayloadsError::Dropped(key),
                PayloadState::Stored | PayloadState::Unchanged => {
                    PayloadsError::Gone { key, began }
                }
            }),
            Err(error) => Err(error),
        }
    }
}

/// Lines alone. What can't be read is told on the way, but for the first of it: that is the answer
/// if nothing else is.
pub(super) struct Reading {
    lines: Pin<Box<dyn Stream<Item = Result<Line, IndexError>> + Send>>,
    note: Note,
    trouble: Option<IndexError>,
}

impl Reading {
    pub(super) async fn next(&mut self) -> Option<Line> {
        loop {
            match self.lines.next().await? {
                Ok(line) => return Some(line),
                Err(error) if self.trouble.is_none() => self.trouble = Some(error),
                Err(error) => (self.note)(&error),
            }
        }
    }

    pub(super) fn end<T>(self, found: Option<T>) -> Result<Option<T>, IndexError> {
        match (found, self.trouble) {
            (None, Some(trouble)) => Err(trouble),
            (found, trouble) => {
                if let Some(error) = &trouble {
                    (self.note)(error);
                }
                Ok(found)
            }
        }
    }
}

/// Only the subject of this line.
fn filter_of(line: &Line) -> SubjectFilter {
    SubjectFilter {
        // One that was deleted and made again is another, whatever its name.
        uid: (!line.subject.uid.is_empty()).then(|| line.subject.uid.clone()),
        ..subject_of(line)
    }
}

fn is_whole_id(line: &Line, id: &str) -> bool {
    let digits = |id: &str| id.chars().filter(|c| *c != '-').count();
    [&line.trace_id, &line.otel_trace_id]
        .iter()
        .any(|whole| digits(whole) == digits(id))
}
