//! How writing to the store goes: what `/readyz`, the metrics and the log say about it.
//!
//! Invariant: it says how writing goes as far as the last writes tell. A single object that the store
//! refuses says nothing about the store, and neither does a place that failed before, for the same
//! reason, while others were written to.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs, io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use twox_hash::XxHash3_64;

use super::{StoreError, StoreIdentity, Trouble, UploadError};
use crate::time::Timestamp;

/// In the data directory.
const NOTE: &str = "store-state.json";

/// Places that are known to fail are kept in mind up to this number.
const MAX_PLACES: usize = 1024;
/// Where some places are known to fail for a reason while others are written to, so many others
/// have to fail for it in a row before it is the store.
const NEW_PLACES: usize = 3;
/// Or nothing was written for this long.
const SILENCE: Duration = Duration::from_mins(5);

/// How writing to the store goes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Standing {
    /// Nothing was written yet.
    #[default]
    Unknown,
    Works,
    Fails {
        trouble: Trouble,
        /// The store's own words.
        detail: String,
    },
}

impl Standing {
    /// What is wrong, if only a person can put it right.
    pub fn refusal(&self) -> Option<Trouble> {
        match self {
            Self::Fails { trouble, .. } if trouble.is_lasting() => Some(*trouble),
            _ => None,
        }
    }

    /// The same state, whatever the words.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Fails { trouble, .. },
                Self::Fails {
                    trouble: before, ..
                },
            ) => trouble == before,
            _ => self == other,
        }
    }
}

/// Takes note of every write.
#[derive(Clone, Debug, Default)]
pub(super) struct Witness(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    standing: watch::Sender<Standing>,
    places: Mutex<Places>,
    unjoined: watch::Sender<Option<FailureNote>>,
}

impl Witness {
    /// Something was written to this place, or was not.
    pub(super) fn note<T>(&self, place: &str, outcome: &Result<T, StoreError>) {
        let place = XxHash3_64::oneshot(place.as_bytes());
        let now = Instant::now();
        let mut places = self.0.places.lock().unwrap_or_else(PoisonError::into_inner);
        let standing = match outcome {
            Ok(_) => {
                places.succeeded(place, now);
                Standing::Works
            }
            Err(error) if error.trouble == Trouble::ObjectRefused => return,
            Err(error) => {
                let is_the_store = places.failed(place, error.trouble, now);
                let works = *self.0.standing.borrow() == Standing::Works;
                if works && !is_the_store {
                    return;
                }
                Standing::Fails {
                    trouble: error.trouble,
                    detail: error.detail(),
                }
            }
        };
        // NOTE: with the lock held, so that what was seen last is what is told.
        self.0.standing.send_if_modified(|before| {
            let is_news = !standing.is_like(before);
            if is_news {
                *before = standing;
            }
            is_news
        });
    }

    pub(super) fn watch(&self) -> watch::Receiver<Standing> {
        self.0.standing.subscribe()
    }

    /// Parts of reconciles keep failing to be joined, for this reason; or none does.
    pub(super) fn note_unjoined(&self, failure: Option<&UploadError>) {
        let note = failure.map(|failure| FailureNote {
            cause: "not_joined".into(),
            is_refusal: false,
            error: failure.to_string().into(),
            advice: failure.advice().into(),
            detail: failure.detail(),
        });
        self.0.unjoined.send_if_modified(|before| {
            let is_news = *before != note;
            *before = note;
            is_news
        });
    }

    pub(super) fn watch_unjoined(&self) -> watch::Receiver<Option<FailureNote>> {
        self.0.unjoined.subscribe()
    }
}

/// Where writing failed, by a hash of the place, and why.
#[derive(Debug, Default)]
struct Places {
    /// Since something was last written.
    in_a_row: BTreeMap<u64, Trouble>,
    /// These failed while others were written to, and have not been written to since.
    alone: BTreeMap<u64, Trouble>,
    succeeded_at: Option<Instant>,
}

impl Places {
    fn succeeded(&mut self, place: u64, now: Instant) {
        self.alone.append(&mut self.in_a_row);
        self.alone.remove(&place);
        while self.alone.len() > MAX_PLACES {
            self.alone.pop_first();
        }
        self.succeeded_at = Some(now);
    }

    /// Tells whether the failure says something about the store.
    fn failed(&mut self, place: u64, trouble: Trouble, now: Instant) -> bool {
        let last = self.succeeded_at;
        let is_silent = last.is_none_or(|last| now.saturating_duration_since(last) >= SILENCE);
        if self.alone.get(&place) == Some(&trouble) {
            return is_silent;
        }
        if self.in_a_row.len() < MAX_PLACES {
            self.in_a_row.insert(place, trouble);
        }
        let is_known = self.alone.values().any(|known| *known == trouble);
        is_silent || !is_known || self.in_a_row.len() >= NEW_PLACES
    }
}

/// How writing to the store went, for whoever looks into a sidecar's data directory.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct StandingNote {
    pub v: u32,
    pub since: Timestamp,
    /// `None` if it works.
    pub failure: Option<FailureNote>,
    /// Why parts of reconciles can't be joined, if some keep failing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unjoined: Option<FailureNote>,
    /// Which store it is about; `None` in a note of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreIdentity>,
}

/// Why nothing could be written.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FailureNote {
    pub cause: Cow<'static, str>,
    /// Whether it lasts until somebody puts it right.
    pub is_refusal: bool,
    pub error: Cow<'static, str>,
    pub advice: Cow<'static, str>,
    /// The store's own words.
    pub detail: String,
}

impl StandingNote {
    /// `None` if there is nothing to note.
    pub fn of(
        standing: &Standing,
        unjoined: Option<FailureNote>,
        store: &StoreIdentity,
        since: Timestamp,
    ) -> Option<Self> {
        let failure = match standing {
            Standing::Unknown => return None,
            Standing::Works => None,
            Standing::Fails { trouble, detail } => Some(FailureNote {
                cause: trouble.as_str().into(),
                is_refusal: trouble.is_lasting(),
                error: trouble.what().into(),
                advice: trouble.advice().into(),
                detail: detail.clone(),
            }),
        };
        Some(Self {
            v: 1,
            since,
            failure,
            unjoined,
            store: Some(store.clone()),
        })
    }

    /// Puts it into a data directory, in place of the one before.
    pub fn write(&self, data_dir: &Path) -> io::Result<()> {
        let written = data_dir.join(format!("{NOTE}.new"));
        fs::write(&written, serde_json::to_vec(self)?)?;
        fs::rename(written, data_dir.join(NOTE))
    }

    /// Removes that of a data directory unless it is about this store: it says nothing any more.
    pub fn keep_only_of(store: &StoreIdentity, data_dir: &Path) -> io::Result<()> {
        // One that can't be read is as good as none.
        let note = Self::read(data_dir).ok().flatten();
        if note.is_some_and(|note| note.store.as_ref() == Some(store)) {
            return Ok(());
        }
        match fs::remove_file(data_dir.join(NOTE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// That of a data directory, if there is one.
    pub fn read(data_dir: &Path) -> io::Result<Option<Self>> {
        match fs::read(data_dir.join(NOTE)) {
            Ok(note) => Ok(Some(serde_json::from_slice(&note)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENIED: Trouble = Trouble::AccessDenied;
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_place_that_fails_again_while_others_are_written_to_says_nothing_about_the_store() {
        let (mut places, mut now) = (Places::default(), Instant::now());
        places.succeeded(1, now);
        // Nobody can know yet that it isn't the store.
        assert!(places.failed(7, DENIED, now));
        for place in 0..100 {
            places.succeeded(100 + place, now);
            assert!(!places.failed(7, DENIED, now));
            // Nor are others like it.
            assert!(!places.failed(200 + place, DENIED, now));
            now += SECOND;
        }
        // For another reason, it may be.
        assert!(places.failed(7, Trouble::BucketMissing, now));
    }

    #[test]
    fn the_store_is_to_blame_once_several_fail_in_a_row_or_nothing_is_written_for_long() {
        let (mut places, now) = (Places::default(), Instant::now());
        assert!(places.failed(7, DENIED, now));
        places.succeeded(1, now);
        assert!(!places.failed(8, DENIED, now));
        assert!(!places.failed(9, DENIED, now));
        assert!(!places.failed(9, DENIED, now));
        assert!(places.failed(10, DENIED, now));
        places.succeeded(1, now);
        assert!(!places.failed(7, DENIED, now + SILENCE / 2));
        assert!(places.failed(7, DENIED, now + SILENCE));
        // Once it could be written to, it counts as any other.
        places.succeeded(7, now);
        places.succeeded(8, now);
        places.succeeded(9, now);
        places.succeeded(10, now);
        assert!(places.failed(7, DENIED, now));
    }

    #[test]
    fn what_is_kept_in_mind_is_bounded() {
        let (mut places, now) = (Places::default(), Instant::now());
        for place in 0..4 * MAX_PLACES as u64 {
            places.failed(place, DENIED, now);
            places.succeeded(u64::MAX, now);
        }
        assert_eq!(places.alone.len(), MAX_PLACES);
        for place in 0..4 * MAX_PLACES as u64 {
            places.failed(place, Trouble::Other, now);
        }
        assert_eq!(places.in_a_row.len(), MAX_PLACES);
    }

    #[test]
    fn a_note_of_an_earlier_version_can_be_read() {
        let note = r#"{"v":1,"since":"2026-11-16T04:36:46Z","failure":null}"#;
        let note: StandingNote = serde_json::from_str(note).unwrap();
        assert_eq!(
            (note.failure, note.unjoined, note.store),
            (None, None, None)
        );
    }

    #[test]
    fn a_note_is_kept_only_for_the_store_that_it_is_about() {
        let folder = tempfile::tempdir().unwrap();
        let [store, other] = ["s3://bucket/a", "s3://bucket/b"]
            .map(|url| StoreIdentity::new(url.to_owned(), None, None));
        let keep = |store| StandingNote::keep_only_of(store, folder.path()).unwrap();
        let read = || StandingNote::read(folder.path()).unwrap();
        keep(&store);
        let note = StandingNote::of(&Standing::Works, None, &store, Timestamp::default()).unwrap();
        note.write(folder.path()).unwrap();
        keep(&store);
        assert_eq!(read(), Some(note));
        keep(&other);
        assert_eq!(read(), None);
        // Nor is one that does not say which, or says nothing at all.
        for text in [
            r#"{"v":1,"since":"2026-11-16T04:36:46Z","failure":null}"#,
            "{",
        ] {
            fs::write(folder.path().join(NOTE), text).unwrap();
            keep(&store);
            assert_eq!(read(), None);
        }
    }
}
