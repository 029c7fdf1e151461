//! Keeps a store on local disk within its limits, by age and by size, and clears away what dead
//! processes left half written. Buckets have rules of their own for that.
//!
//! It works in small steps, for a thread that has better things to do: first everything is
//! measured, by the minute in which it was stored, then the oldest minutes go.
//!
//! The clock may have been wrong, when something was stored or now. What is dated in the future was
//! stored at an unknown time; it is too old once it has been seen for as long as objects are kept. A
//! clock that jumped ahead, or that is far ahead of everything in the store at the start, is believed
//! once it has gone on like that for a day; until then nothing is too old.
//!
//! Invariant: what is about to go is forgotten before, so that nothing ever links to what is gone.
//! Nothing goes for its age by a clock that is not believed. Memory grows with the minutes that the
//! store spans, not with its objects.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    index::{contents_folder, index_folder},
    keys::reconciles_folder,
    local::within::{remove_file, remove_folder},
    walk::{Found, Kind, Minute, Walk},
};
use crate::time::Timestamp;

/// All that is stored, and nothing else: a store may be in a folder with other things.
const OBJECTS: &str = "v1";
/// Age is looked at this often; size whenever enough was stored.
const LOOK_EVERY: Duration = Duration::from_hours(1);
/// Another sidecar may be writing a younger one at this moment.
const STAGED_FOR: Duration = Duration::from_hours(1);
/// And an older one by a clock that is wrong, unless nothing was added to it for this long.
const UNTOUCHED_FOR: Duration = Duration::from_mins(1);
/// Files half written that are kept in mind between two looks for them.
const MAX_STAGED: usize = 4096;
/// A clock that is further ahead of everything before it is not believed at once.
const PLAUSIBLE: Duration = Duration::from_hours(24);
/// But once it has gone on for this long.
const BELIEVED_AFTER: Duration = Duration::from_hours(24);
/// What clocks are put right by at most, a little at a time, between two looks at the time.
const DRIFT: Duration = Duration::from_mins(5);
/// What a file system sets aside at least, for what was stored since the last measure.
const BLOCK_BYTES: u64 = 4096;

/// What a store on local disk may hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retention {
    pub age: Option<Duration>,
    /// On disk, which takes more than the length of small files.
    pub bytes: Option<u64>,
}

/// Removes what is too old or too much.
#[derive(Debug)]
pub struct Pruner {
    /// Of the reconciles, of the index, and of what it holds.
    folders: [&'static str; 3],
    retention: Retention,
    phase: Phase,
    /// What the store takes on disk, by the last measure and by what was stored since.
    bytes: u64,
    /// Minutes of the future that objects are dated to, and when that was first seen.
    ahead: BTreeMap<Minute, Instant>,
    store: PathBuf,
    /// Files half written that were seen.
    staged: HashMap<PathBuf, Staged>,
    /// When to look for such files again.
    sweep_at: Option<Instant>,
    faith: Option<Faith>,
}

/// A file half written, as it was when it was first seen.
#[derive(Clone, Copy, Debug)]
struct Staged {
    minute: Minute,
    disk_bytes: u64,
    seen_at: Instant,
}

/// What is thought of the clock that tells the time of day.
#[derive(Clone, Copy, Debug)]
struct Faith {
    /// When this process first asked it.
    began: Minute,
    last: (Timestamp, Instant),
    /// It has run without a jump ahead since.
    steady_since: Instant,
    /// It fits what is in the store; `None` as long as nobody looked.
    is_plausible: Option<bool>,
}

#[derive(Debug)]
enum Phase {
    /// Looks for what dead processes left.
    Sweeping {
        walk: Walk,
        removed: u64,
        seen: HashMap<PathBuf, Staged>,
        /// When to look at the rest afterwards.
        until: Option<Instant>,
    },
    Resting {
        /// `None` if the next look is due.
        until: Option<Instant>,
    },
    Measuring {
        walk: Walk,
        minutes: BTreeMap<Minute, Weight>,
    },
    Removing {
        walk: Walk,
        going: Going,
        removed: u64,
    },
}

/// What was stored within a minute.
#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    disk_bytes: u64,
    /// Folders that were last written to in it count too, but go with their last object only.
    has_objects: bool,
}

/// What has to go.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Going {
    /// Everything up to this minute.
    until: Option<Minute>,
    /// And these minutes of the future.
    ahead: BTreeSet<Minute>,
}

/// What must not be linked to any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Forget {
    /// What was stored up to then.
    StoredUntil(Timestamp),
    /// What was stored later than that, by a clock that was ahead.
    StoredAfter(Timestamp),
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
            folders: [reconciles_folder(), index_folder(), contents_folder()],
            retention,
            phase: Phase::Resting { until: None },
            bytes: 0,
            ahead: BTreeMap::new(),
            store: store.to_owned(),
            staged: HashMap::new(),
            sweep_at: None,
            faith: None,
        }
    }

    /// This much was stored.
    pub fn add(&mut self, bytes: u64) {
        let on_disk = bytes.checked_next_multiple_of(BLOCK_BYTES);
        self.bytes = self.bytes.saturating_add(on_disk.unwrap_or(bytes));
    }

    /// Goes on for a little while. `now` is the time of day and `at` the same moment of a clock that
    /// never steps. Tells `forget` what is about to go.
    #[expect(clippy::too_many_lines, reason = "one arm for each phase")]
    pub fn step(
        &mut self,
        now: Timestamp,
        at: Instant,
        forget: &mut dyn FnMut(Forget),
    ) -> PruneStep {
        let store = &self.store;
        Faith::look(&mut self.faith, now, at);
        let is_too_much = self.retention.bytes.is_some_and(|limit| self.bytes > limit);
        match &mut self.phase {
            Phase::Sweeping {
                walk,
                removed,
                seen,
                until,
            } => {
                let staged = &self.staged;
                let is_done = walk.advance(|path, found| {
                    if found.kind != Kind::Staged {
                        return;
                    }
                    let first = Staged::of(found, staged.get(path), at);
                    if first.is_left(now, at) && remove(store, path) {
                        *removed += 1;
                    } else if seen.len() < MAX_STAGED {
                        seen.insert(path.to_owned(), first);
                    }
                });
                if is_done {
                    if *removed > 0 {
                        tracing::info!(
                            files = *removed,
                            "removed files that an earlier process left half written"
                        );
                    }
                    self.staged = std::mem::take(seen);
                    // What an earlier process left goes soon, though not at the first sight.
                    let is_left = |staged: &Staged| staged.minute < Minute::of(now - STAGED_FOR);
                    let pause = if self.staged.values().any(is_left) {
                        UNTOUCHED_FOR
                    } else {
                        LOOK_EVERY
                    };
                    self.sweep_at = Some(at + pause);
                    let until = *until;
                    self.phase = Phase::Resting { until };
                }
            }
            Phase::Resting { until } => {
                if self.sweep_at.is_none_or(|sweep_at| at >= sweep_at) {
                    self.phase = Phase::Sweeping {
                        walk: Walk::new(store, &[OBJECTS]),
                        removed: 0,
                        seen: HashMap::new(),
                        until: *until,
                    };
                    return PruneStep::Worked;
                }
                let has_limits = self.retention.age.is_some() || self.retention.bytes.is_some();
                let is_due = is_too_much || until.is_none_or(|until| at >= until);
                if !has_limits || !is_due {
                    return PruneStep::Rested;
                }
                self.phase = Phase::Measuring {
                    walk: Walk::new(store, &self.folders),
                    minutes: BTreeMap::new(),
                };
            }
            Phase::Measuring { walk, minutes } => {
                let is_done = walk.advance(|_, found| {
                    if found.kind != Kind::Staged {
                        let weight: &mut Weight = minutes.entry(found.minute).or_default();
                        weight.disk_bytes += found.disk_bytes;
                        weight.has_objects |= found.kind == Kind::Object;
                    }
                });
                if is_done {
                    let minutes = std::mem::take(minutes);
                    self.bytes = minutes.values().map(|weight| weight.disk_bytes).sum();
                    if let Some(faith) = &mut self.faith {
                        faith.compare(&minutes);
                    }
                    self.look_ahead(&minutes, now, at);
                    let going = self.choose(&minutes, now, at);
                    self.phase = self.begin_removing(going, now, at, forget);
                }
            }
            Phase::Removing {
                walk,
                going,
                removed,
            } => {
                let (bytes, folders) = (&mut self.bytes, &self.folders);
                let is_done = walk.advance(|path, found| {
                    let goes = found.kind == Kind::Object && going.holds(found.minute);
                    if goes && remove(store, path) {
                        remove_empty_folders(store, path, folders);
                        *removed += 1;
                        *bytes = bytes.saturating_sub(found.disk_bytes);
                    }
                });
                if is_done {
                    let removed = *removed;
                    self.phase = Phase::Resting {
                        until: Some(at + LOOK_EVERY),
                    };
                    return PruneStep::Removed(removed);
                }
            }
        }
        PruneStep::Worked
    }

    fn begin_removing(
        &self,
        going: Going,
        now: Timestamp,
        at: Instant,
        forget: &mut dyn FnMut(Forget),
    ) -> Phase {
        if going == Going::default() {
            return Phase::Resting {
                until: Some(at + LOOK_EVERY),
            };
        }
        // NOTE: before the first object goes.
        if let Some(until) = going.until {
            forget(Forget::StoredUntil(until.end()));
        }
        if !going.ahead.is_empty() {
            forget(Forget::StoredAfter(now));
        }
        Phase::Removing {
            walk: Walk::new(&self.store, &self.folders),
            going,
            removed: 0,
        }
    }

    /// Notes which minutes of the future were seen, and when first.
    fn look_ahead(&mut self, minutes: &BTreeMap<Minute, Weight>, now: Timestamp, at: Instant) {
        let this = Minute::of(now);
        self.ahead
            .retain(|minute, _| *minute > this && minutes.contains_key(minute));
        for minute in minutes.keys().filter(|minute| **minute > this) {
            self.ahead.entry(*minute).or_insert(at);
        }
    }

    /// What is too old, and what is too much.
    fn choose(&self, minutes: &BTreeMap<Minute, Weight>, now: Timestamp, at: Instant) -> Going {
        let Retention { age, bytes } = self.retention;
        let (this, oldest_kept) = (Minute::of(now), age.map(|age| Minute::of(now - age)));
        let is_believed = self.faith.is_some_and(|faith| faith.believes(at));
        let is_too_old = |minute: &Minute| match self.ahead.get(minute) {
            Some(seen) => age.is_some_and(|age| at.saturating_duration_since(*seen) >= age),
            None => is_believed && oldest_kept.is_some_and(|oldest| *minute < oldest),
        };
        let mut total = self.bytes;
        // A tenth below the limit, so that the next look is not due at once.
        let goal = bytes
            .filter(|limit| total > *limit)
            .map(|limit| limit - limit / 10);
        let mut going = Going::default();
        for (minute, weight) in minutes {
            let is_too_much = goal.is_some_and(|goal| total > goal);
            if !is_too_much && !is_too_old(minute) {
                continue;
            }
            total = total.saturating_sub(weight.disk_bytes);
            if !weight.has_objects {
                continue;
            }
            if *minute > this {
                going.ahead.insert(*minute);
            } else {
                going.until = Some(*minute);
            }
        }
        going
    }
}

impl Staged {
    /// As it is now, and since when it is like that.
    fn of(found: Found, before: Option<&Self>, at: Instant) -> Self {
        let now = Self {
            minute: found.minute,
            disk_bytes: found.disk_bytes,
            seen_at: at,
        };
        let is_same =
            |before: &&Self| (before.minute, before.disk_bytes) == (now.minute, now.disk_bytes);
        before.filter(is_same).copied().unwrap_or(now)
    }

    /// Nobody is writing it any more.
    fn is_left(&self, now: Timestamp, at: Instant) -> bool {
        let untouched = at.saturating_duration_since(self.seen_at);
        let is_old = self.minute < Minute::of(now - STAGED_FOR);
        untouched >= STAGED_FOR || is_old && untouched >= UNTOUCHED_FOR
    }
}

impl Faith {
    fn look(faith: &mut Option<Self>, now: Timestamp, at: Instant) {
        let Some(faith) = faith else {
            *faith = Some(Self {
                began: Minute::of(now),
                last: (now, at),
                steady_since: at,
                is_plausible: None,
            });
            return;
        };
        let (then, asked_at) = faith.last;
        let expected = then + at.saturating_duration_since(asked_at);
        if now > expected + DRIFT {
            faith.steady_since = at;
            faith.is_plausible = Some(false);
        }
        faith.last = (now, at);
    }

    /// Compares it with what was stored before this process began. Where there is nothing yet, all
    /// that will be there is dated by this clock, so that its age is right by it, too.
    fn compare(&mut self, minutes: &BTreeMap<Minute, Weight>) {
        if self.is_plausible.is_some() {
            return;
        }
        let objects = minutes.iter().filter(|(_, weight)| weight.has_objects);
        let last = objects
            .map(|(minute, _)| *minute)
            .rfind(|minute| *minute < self.began);
        let is_plausible = last.is_none_or(|last| self.began <= Minute::of(last.end() + PLAUSIBLE));
        self.is_plausible = Some(is_plausible);
    }

    fn believes(self, at: Instant) -> bool {
        self.is_plausible == Some(true)
            || at.saturating_duration_since(self.steady_since) >= BELIEVED_AFTER
    }
}

impl Going {
    fn holds(&self, minute: Minute) -> bool {
        self.until.is_some_and(|until| minute <= until) || self.ahead.contains(&minute)
    }
}

/// Folders go with their last object, up to those that stay.
fn remove_empty_folders(store: &Path, object: &Path, staying: &[&str]) {
    let below = object.strip_prefix(store).unwrap_or(object);
    for folder in below.ancestors().skip(1) {
        let stays = staying.iter().any(|staying| Path::new(staying) == folder);
        if stays || remove_folder(store, folder).is_err() {
            break;
        }
    }
}

fn remove(store: &Path, path: &Path) -> bool {
    match remove_file(store, path.strip_prefix(store).unwrap_or(path)) {
        Ok(()) => true,
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(path = %path.display(), %error, "cannot remove a file of the store");
            }
            false
        }
    }
}

#[cfg(test)]
mod tests;
