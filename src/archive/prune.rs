//! Keeps a store on local disk within its limits, by age and by size. Buckets have rules of their
//! own for that.
//!
//! It works in small steps, for a thread that has better things to do: first everything is
//! measured, by the minute in which it was stored, then the oldest minutes go.
//!
//! Invariant: what is about to go is forgotten before, so that nothing ever links to what is gone.
//! Memory grows with the minutes that the store spans, not with its objects.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    index::{contents_folder, index_folder},
    keys::reconciles_folder,
    walk::{Minute, Walk},
};
use crate::time::Timestamp;

/// Age is looked at this often; size whenever enough was stored.
const LOOK_EVERY: Duration = Duration::from_hours(1);

/// What a store on local disk may hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retention {
    pub age: Option<Duration>,
    pub bytes: Option<u64>,
}

/// Removes what is too old or too much.
#[derive(Debug)]
pub struct Pruner {
    /// Of the reconciles, of the index, and of what it holds.
    folders: [PathBuf; 3],
    retention: Retention,
    phase: Phase,
    /// What the store holds, by the last measure and by what was stored since.
    bytes: u64,
}

#[derive(Debug)]
enum Phase {
    Resting {
        until: Timestamp,
    },
    Measuring {
        walk: Walk,
        minutes: BTreeMap<Minute, u64>,
    },
    Removing {
        walk: Walk,
        until: Minute,
        removed: u64,
    },
}

/// What a step did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PruneStep {
    /// Nothing: it is not time yet.
    Rested,
    Worked,
    /// It finished, having removed this many.
    Removed(u64),
}

impl Pruner {
    pub fn new(store: &Path, retention: Retention) -> Self {
        Self {
            folders: [reconciles_folder(), index_folder(), contents_folder()]
                .map(|folder| store.join(folder)),
            retention,
            phase: Phase::Resting {
                until: Timestamp::default(),
            },
            bytes: 0,
        }
    }

    /// This much was stored.
    pub fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Goes on for a little while. Tells `forget` up to when everything stored is about to go.
    pub fn step(&mut self, now: Timestamp, forget: &mut dyn FnMut(Timestamp)) -> PruneStep {
        let is_too_much = self.retention.bytes.is_some_and(|limit| self.bytes > limit);
        match &mut self.phase {
            Phase::Resting { until } => {
                let has_limits = self.retention.age.is_some() || self.retention.bytes.is_some();
                if !has_limits || (now < *until && !is_too_much) {
                    return PruneStep::Rested;
                }
                let walk = Walk::new(&self.folders);
                self.phase = Phase::Measuring {
                    walk,
                    minutes: BTreeMap::new(),
                };
            }
            Phase::Measuring { walk, minutes } => {
                let is_done =
                    walk.advance(|_, minute, size| *minutes.entry(minute).or_default() += size);
                if is_done {
                    self.bytes = minutes.values().sum();
                    self.phase = match self.retention.cut(minutes, now) {
                        None => Phase::Resting {
                            until: now + LOOK_EVERY,
                        },
                        Some(until) => {
                            // NOTE: before the first object goes.
                            forget(until.end());
                            let walk = Walk::new(&self.folders);
                            Phase::Removing {
                                walk,
                                until,
                                removed: 0,
                            }
                        }
                    };
                }
            }
            Phase::Removing {
                walk,
                until,
                removed,
            } => {
                let (bytes, folders) = (&mut self.bytes, &self.folders);
                let is_done = walk.advance(|path, minute, size| {
                    if minute <= *until && remove(path, folders) {
                        *removed += 1;
                        *bytes = bytes.saturating_sub(size);
                    }
                });
                if is_done {
                    let removed = *removed;
                    self.phase = Phase::Resting {
                        until: now + LOOK_EVERY,
                    };
                    return PruneStep::Removed(removed);
                }
            }
        }
        PruneStep::Worked
    }
}

impl Retention {
    /// Everything up to this minute has to go.
    fn cut(self, minutes: &BTreeMap<Minute, u64>, now: Timestamp) -> Option<Minute> {
        let oldest_kept = self.age.map(|age| Minute::of(now - age));
        let mut total: u64 = minutes.values().sum();
        let is_too_much = self.bytes.is_some_and(|limit| total > limit);
        // A tenth below the limit, so that the next look is not due at once.
        let goal = self
            .bytes
            .map(|limit| limit - limit / 10)
            .filter(|_| is_too_much);
        let mut cut = None;
        for (minute, bytes) in minutes {
            let too_old = oldest_kept.is_some_and(|oldest| *minute < oldest);
            let too_much = goal.is_some_and(|goal| total > goal);
            if !too_old && !too_much {
                break;
            }
            total -= bytes;
            cut = Some(*minute);
        }
        cut
    }
}

/// Folders go with their last object, up to those that stay.
fn remove(path: &Path, staying: &[PathBuf]) -> bool {
    match fs::remove_file(path) {
        Ok(()) => {
            for folder in path.ancestors().skip(1) {
                let stays = staying.iter().any(|staying| staying == folder);
                if stays || fs::remove_dir(folder).is_err() {
                    break;
                }
            }
            true
        }
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(path = %path.display(), %error, "cannot remove an object");
            }
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fingerprint::Fingerprint,
        history::{History, Last, LastObject},
        line::samples::line,
        reconcile::SubjectIdentity,
    };

    const DAY: i64 = 24 * 60 * 60;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_parts(1_794_787_200 + seconds, 0).unwrap()
    }

    /// 10 bytes, as if they had been stored then.
    fn write(path: &Path, at: Timestamp) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, [0; 10]).unwrap();
        let nanos = u64::try_from(at.as_nanos()).unwrap();
        let stored_at = std::time::UNIX_EPOCH + Duration::from_nanos(nanos);
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(stored_at).unwrap();
    }

    /// A store with an object of 10 bytes at each of these times.
    fn store(times: &[i64]) -> tempfile::TempDir {
        let store = tempfile::tempdir().unwrap();
        for seconds in times {
            let at = at(*seconds);
            let folder = store.path().join("v1/reconciles/K.g/_/x").join(at.date());
            write(&folder.join(format!("{}-t.json.zst", at.time_of_day())), at);
        }
        store
    }

    /// Adds a batch of the index of 10 bytes at each of these times, and as much of what it holds.
    fn add_index(store: &Path, times: &[i64]) {
        for seconds in times {
            let at = at(*seconds);
            for (folder, name) in [
                ("v1/index", "pod-00000001.jsonl.zst"),
                ("v1/contents", "pod-00000001.contents.txt"),
            ] {
                let hour = format!("{folder}/date={}/hour={}", at.date(), at.hour());
                write(&store.join(hour).join(name), at);
            }
        }
    }

    fn files(folder: &Path) -> usize {
        let mut count = 0;
        let mut walk = Walk::new(&[folder.to_owned()]);
        while !walk.advance(|_, _, _| count += 1) {}
        count
    }

    fn prune(pruner: &mut Pruner, now: Timestamp, history: &mut History) -> u64 {
        loop {
            match pruner.step(now, &mut |until| history.forget_stored_until(until)) {
                PruneStep::Worked => {}
                PruneStep::Rested => return 0,
                PruneStep::Removed(count) => return count,
            }
        }
    }

    #[test]
    fn the_oldest_go_first_by_age_and_by_size() {
        let pruned = |age: Option<u64>, bytes| {
            let store = store(&[0, DAY, 2 * DAY, 2 * DAY + 90]);
            let retention = Retention {
                age: age.map(Duration::from_hours),
                bytes,
            };
            let mut pruner = Pruner::new(store.path(), retention);
            prune(&mut pruner, at(2 * DAY + 100), &mut History::in_process());
            files(store.path())
        };
        assert_eq!(pruned(Some(36), None), 3);
        assert_eq!(pruned(Some(12), None), 2);
        assert_eq!(pruned(None, Some(25)), 2);
        assert_eq!(pruned(None, Some(40)), 4);
        assert_eq!(pruned(None, Some(1)), 0);
        assert_eq!(pruned(None, None), 4);
    }

    #[test]
    fn the_index_goes_with_the_objects_of_its_time() {
        let pruned = |age: Option<u64>, bytes| {
            let store = store(&[0, DAY, 2 * DAY]);
            add_index(store.path(), &[10, DAY + 10, 2 * DAY + 10]);
            let retention = Retention {
                age: age.map(Duration::from_hours),
                bytes,
            };
            let mut pruner = Pruner::new(store.path(), retention);
            let mut history = History::in_process();
            prune(&mut pruner, at(2 * DAY + 100), &mut history);
            ["v1/reconciles", "v1/index", "v1/contents"]
                .map(|folder| files(&store.path().join(folder)))
        };
        assert_eq!(pruned(Some(36), None), [2, 2, 2]);
        assert_eq!(pruned(Some(12), None), [1, 1, 1]);
        assert_eq!(pruned(None, Some(90)), [3, 3, 3]);
        assert_eq!(pruned(None, Some(80)), [2, 2, 2]);
        assert_eq!(pruned(None, Some(1)), [0, 0, 0]);
    }

    #[test]
    fn an_index_without_objects_is_pruned_and_its_folders_go() {
        let store = tempfile::tempdir().unwrap();
        add_index(store.path(), &[0]);
        let retention = Retention {
            age: None,
            bytes: Some(1),
        };
        let mut pruner = Pruner::new(store.path(), retention);
        let mut history = History::in_process();
        assert_eq!(prune(&mut pruner, at(10), &mut history), 2);
        for folder in ["v1/index", "v1/contents"] {
            let left = fs::read_dir(store.path().join(folder)).unwrap();
            assert_eq!(left.count(), 0);
        }
    }

    #[test]
    fn what_goes_is_forgotten_and_never_remembered_again() {
        let store = store(&[0, 2 * DAY]);
        let mut history = History::in_process();
        let subject = SubjectIdentity("x".into());
        let stored = LastObject {
            key: "v1/reconciles/x".into(),
            started_at: at(0),
            stored_at: Some(at(0)),
            bytes: 10,
        };
        let fingerprint = Fingerprint::of(b"x");
        let last = Last {
            trace_id: "x".into(),
            previous: None,
            ended_at: at(0),
            fingerprint,
            object: Some(stored.clone()),
        };
        history.note(&subject, last, &line("x", at(0)), Vec::new());
        let retention = Retention {
            age: Some(Duration::from_hours(24)),
            bytes: None,
        };
        let mut pruner = Pruner::new(store.path(), retention);
        let links = |history: &mut History| {
            let last = history.last(&subject).unwrap();
            last.object_for(fingerprint, at(5)).is_some()
        };
        assert!(links(&mut history));
        assert_eq!(prune(&mut pruner, at(2 * DAY), &mut history), 1);
        assert!(!links(&mut history));
        history.object_stored(&subject, fingerprint, stored);
        assert!(!links(&mut history));
    }

    #[test]
    fn it_rests_until_something_is_due() {
        let store = store(&[0, 60]);
        let retention = Retention {
            age: None,
            bytes: Some(25),
        };
        let mut pruner = Pruner::new(store.path(), retention);
        let mut history = History::in_process();
        assert_eq!(prune(&mut pruner, at(70), &mut history), 0);
        assert_eq!(
            pruner.step(at(80), &mut |until| history.forget_stored_until(until)),
            PruneStep::Rested
        );
        pruner.add(10);
        assert_eq!(
            pruner.step(at(80), &mut |until| history.forget_stored_until(until)),
            PruneStep::Worked
        );
    }

    #[test]
    fn empty_folders_go_and_other_files_stay() {
        let store = store(&[0]);
        let other = store.path().join("v1/reconciles/README");
        fs::write(&other, "mine").unwrap();
        let mut pruner = Pruner::new(
            store.path(),
            Retention {
                age: None,
                bytes: Some(1),
            },
        );
        prune(&mut pruner, at(10), &mut History::in_process());
        let left = fs::read_dir(store.path().join("v1/reconciles")).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, [other]);
    }
}
