//! What is removed from a store on local disk, when, and what never is.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
};

use super::*;
use crate::{
    fingerprint::Fingerprint,
    history::{History, Last, LastObject},
    line::samples::line,
    reconcile::SubjectIdentity,
};

const DAY: i64 = 24 * 60 * 60;
/// Much more than the folders around it.
const OBJECT_BYTES: usize = 256 * 1024;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_parts(1_794_787_200 + seconds, 0).unwrap()
}

/// A file that looks as if it had been written then.
fn write(path: &Path, at: Timestamp, bytes: usize) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, vec![1; bytes]).unwrap();
    date(path, at);
}

fn date(path: &Path, at: Timestamp) {
    let nanos = u64::try_from(at.as_nanos()).unwrap();
    let written_at = std::time::UNIX_EPOCH + Duration::from_nanos(nanos);
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(written_at).unwrap();
    // Some file systems set blocks aside only now.
    file.sync_all().unwrap();
}

fn object_path(store: &Path, at: Timestamp) -> PathBuf {
    let folder = store.join("v1/reconciles/K.g/_/x").join(at.date());
    folder.join(format!("{}-t.json.zst", at.time_of_day()))
}

/// A store with an object at each of these times.
fn store(times: &[i64]) -> tempfile::TempDir {
    let store = tempfile::tempdir().unwrap();
    for seconds in times {
        let at = at(*seconds);
        write(&object_path(store.path(), at), at, OBJECT_BYTES);
    }
    store
}

/// Adds a batch of the index at each of these times, and as much of what it holds.
fn add_index(store: &Path, times: &[i64]) {
    for seconds in times {
        let at = at(*seconds);
        for (folder, name) in [
            ("v1/index", "pod-00000001.jsonl.zst"),
            ("v1/contents", "pod-00000001.contents.txt"),
        ] {
            let hour = format!("{folder}/date={}/hour={}", at.date(), at.hour());
            write(&store.join(hour).join(name), at, OBJECT_BYTES);
        }
    }
}

fn files(folder: &Path) -> usize {
    let mut count = 0;
    let mut walk = Walk::new(folder, &[""]);
    while !walk.advance(|_, found| count += usize::from(found.kind == Kind::Object)) {}
    count
}

/// A pruner at work, with a clock that steps and one that does not.
struct Work {
    pruner: Pruner,
    history: History,
    began: Instant,
}

impl Work {
    fn new(store: &Path, retention: Retention) -> Self {
        Self {
            pruner: Pruner::new(store, retention),
            history: History::in_process(),
            began: Instant::now(),
        }
    }

    fn step(&mut self, now: Timestamp, after: Duration) -> PruneStep {
        let history = &mut self.history;
        let mut forget = |forget| match forget {
            Forget::StoredUntil(until) => history.forget_stored_until(until),
            Forget::StoredAfter(now) => history.forget_stored_after(now),
        };
        self.pruner.step(now, self.began + after, &mut forget)
    }

    /// Works until it rests; tells how many objects went.
    fn prune(&mut self, now: Timestamp, after: Duration) -> u64 {
        loop {
            match self.step(now, after) {
                PruneStep::Worked => {}
                PruneStep::Rested => return 0,
                PruneStep::Removed(count) => return count,
            }
        }
    }
}

fn prune(store: &Path, retention: Retention, now: Timestamp) -> u64 {
    Work::new(store, retention).prune(now, Duration::ZERO)
}

fn hours(age: u64) -> Retention {
    Retention {
        age: Some(Duration::from_hours(age)),
        bytes: None,
    }
}

fn bytes(limit: u64) -> Retention {
    Retention {
        age: None,
        bytes: Some(limit),
    }
}

/// As many objects as fit, with their folders.
fn objects(count: u64) -> Retention {
    bytes(count * OBJECT_BYTES as u64 + 128 * 1024)
}

#[test]
fn the_oldest_go_first_by_age_and_by_size() {
    let left = |retention| {
        let store = store(&[0, DAY, 2 * DAY, 2 * DAY + 90]);
        prune(store.path(), retention, at(2 * DAY + 100));
        files(store.path())
    };
    assert_eq!(left(hours(36)), 3);
    assert_eq!(left(hours(12)), 2);
    assert_eq!(left(objects(3)), 3);
    assert_eq!(left(objects(2)), 2);
    assert_eq!(left(objects(4)), 4);
    assert_eq!(left(bytes(1)), 0);
    assert_eq!(left(Retention::default()), 4);
}

#[test]
fn the_index_goes_with_the_objects_of_its_time() {
    let left = |retention| {
        let store = store(&[0, DAY, 2 * DAY]);
        add_index(store.path(), &[10, DAY + 10, 2 * DAY + 10]);
        prune(store.path(), retention, at(2 * DAY + 100));
        ["v1/reconciles", "v1/index", "v1/contents"].map(|folder| files(&store.path().join(folder)))
    };
    assert_eq!(left(hours(36)), [2, 2, 2]);
    assert_eq!(left(hours(12)), [1, 1, 1]);
    assert_eq!(left(objects(9)), [3, 3, 3]);
    assert_eq!(left(objects(8)), [2, 2, 2]);
    assert_eq!(left(bytes(1)), [0, 0, 0]);
}

#[test]
fn an_index_without_objects_is_pruned_and_its_folders_go() {
    let store = tempfile::tempdir().unwrap();
    add_index(store.path(), &[0]);
    assert_eq!(prune(store.path(), bytes(1), at(10)), 2);
    for folder in ["v1/index", "v1/contents"] {
        let left = fs::read_dir(store.path().join(folder)).unwrap();
        assert_eq!(left.count(), 0);
    }
}

#[test]
fn nothing_is_removed_through_a_symbolic_link() {
    let outside = store(&[0]);
    add_index(outside.path(), &[0]);
    let staged = outside.path().join("v1/index/x.jsonl.zst#1");
    write(&staged, at(0), 10);
    let count = files(outside.path());
    let v1 = outside.path().join("v1");

    let (linked, parts, deep) = (store(&[]), store(&[]), store(&[0]));
    symlink(&v1, linked.path().join("v1")).unwrap();
    fs::create_dir(parts.path().join("v1")).unwrap();
    for part in ["reconciles", "index", "contents"] {
        symlink(v1.join(part), parts.path().join("v1").join(part)).unwrap();
    }
    symlink(&v1, deep.path().join("v1/reconciles/K.g/other")).unwrap();
    for (store, removed) in [(&linked, 0), (&parts, 0), (&deep, 1)] {
        assert_eq!(prune(store.path(), bytes(1), at(10)), removed);
        let mut work = Work::new(store.path(), Retention::default());
        for look in 0..3 {
            let after = look * LOOK_EVERY;
            work.prune(at(DAY) + after, after);
        }
    }
    assert_eq!(files(outside.path()), count);
    assert!(staged.is_file());

    // The store's own folder may be one: somebody named it.
    let named = linked.path().join("named");
    symlink(outside.path(), &named).unwrap();
    assert_eq!(prune(&named, bytes(1), at(10)), count as u64);
}

#[test]
fn a_folder_that_becomes_a_link_while_it_is_walked_costs_nothing_behind_it() {
    let (store, outside) = (store(&[0]), store(&[0]));
    let object = object_path(store.path(), at(0));
    let day = object.parent().unwrap();
    let behind = object_path(outside.path(), at(0));
    fs::rename(day, store.path().join("day")).unwrap();
    symlink(behind.parent().unwrap(), day).unwrap();
    assert!(!remove(store.path(), &object));
    remove_empty_folders(store.path(), &object, &[]);
    assert!(behind.is_file());
}

#[test]
fn files_beside_the_store_are_not_taken_for_half_written_ones() {
    let store = store(&[0]);
    let (note, left) = ("notes#1", "v1/check.json#1");
    for name in [note, "other/report#2", left] {
        write(&store.path().join(name), at(0), 10);
    }
    let mut work = Work::new(store.path(), Retention::default());
    for look in 0..3 {
        let after = look * LOOK_EVERY;
        work.prune(at(DAY) + after, after);
    }
    let is_there = |name: &str| store.path().join(name).is_file();
    assert!(is_there(note) && is_there("other/report#2") && !is_there(left));
}

/// What the history holds of an object that was stored then.
fn remember(history: &mut History, stored_at: Timestamp, started_at: Timestamp) -> SubjectIdentity {
    note(history, stored(stored_at, started_at))
}

/// It was noted as on its way, and is in the store now.
fn store_again(history: &mut History, stored_at: Timestamp, started_at: Timestamp) {
    let stored = stored(stored_at, started_at);
    let on_its_way = LastObject {
        stored_at: None,
        ..stored.clone()
    };
    let subject = note(history, on_its_way);
    history.object_stored(&subject, Fingerprint::of(b"x"), stored);
}

fn note(history: &mut History, object: LastObject) -> SubjectIdentity {
    let subject = SubjectIdentity("x".into());
    let started_at = object.started_at;
    let last = Last {
        trace_id: "x".into(),
        previous: None,
        ended_at: started_at,
        fingerprint: Fingerprint::of(b"x"),
        object: Some(object),
    };
    history.note(&subject, last, &line("x", started_at), Vec::new());
    subject
}

fn stored(stored_at: Timestamp, started_at: Timestamp) -> LastObject {
    LastObject {
        key: "v1/reconciles/x".into(),
        started_at,
        stored_at: Some(stored_at),
        bytes: 10,
    }
}

fn links(history: &mut History, subject: &SubjectIdentity, started_at: Timestamp) -> bool {
    let last = history.last(subject).unwrap();
    let object = last.object_for(Fingerprint::of(b"x"), started_at);
    object.is_some()
}

#[test]
fn what_goes_is_forgotten_and_never_remembered_again() {
    let store = store(&[0, 2 * DAY]);
    let mut work = Work::new(store.path(), hours(24));
    let subject = remember(&mut work.history, at(0), at(0));
    assert!(links(&mut work.history, &subject, at(5)));
    assert_eq!(work.prune(at(2 * DAY + 60), Duration::ZERO), 1);
    assert!(!links(&mut work.history, &subject, at(5)));
    store_again(&mut work.history, at(0), at(0));
    assert!(!links(&mut work.history, &subject, at(5)));
}

#[test]
fn it_rests_until_something_is_due() {
    let store = store(&[0, 60]);
    let mut work = Work::new(store.path(), objects(2));
    assert_eq!(work.prune(at(70), Duration::ZERO), 0);
    let soon = Duration::from_secs(10);
    assert_eq!(work.step(at(80), soon), PruneStep::Rested);
    work.pruner.add(OBJECT_BYTES as u64);
    assert_eq!(work.step(at(80), soon), PruneStep::Worked);
}

#[test]
fn empty_folders_go_and_other_files_stay() {
    let store = store(&[0]);
    let other = store.path().join("v1/reconciles/README");
    fs::write(&other, "mine").unwrap();
    prune(store.path(), bytes(1), at(10));
    let left = fs::read_dir(store.path().join("v1/reconciles")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [other]);
}

/// As `du` counts, without the folder itself.
fn disk_use(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let sizes = entries.map(|entry| {
        let metadata = entry.metadata().unwrap();
        let own = match metadata.blocks() {
            0 => metadata.len(),
            blocks => blocks * 512,
        };
        let below = metadata.is_dir().then(|| disk_use(&entry.path()));
        own + below.unwrap_or_default()
    });
    sizes.sum()
}

#[test]
fn what_counts_is_what_small_objects_and_folders_take_on_disk() {
    let store = tempfile::tempdir().unwrap();
    for hour in 0..40 {
        let at = at(hour * 3_600);
        write(&object_path(store.path(), at), at, 10);
    }
    let used = disk_use(&store.path().join("v1/reconciles"));
    let now = at(40 * 3_600);
    assert_eq!(prune(store.path(), bytes(used), now), 0);
    assert_ne!(prune(store.path(), bytes(used - 1), now), 0);
}

#[test]
fn the_length_of_an_object_does_not_count() {
    let store = store(&[0]);
    let path = object_path(store.path(), at(0));
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(1 << 30).unwrap();
    date(&path, at(0));
    assert_eq!(prune(store.path(), objects(2), at(10)), 0);
}

#[test]
fn a_clock_that_was_ahead_does_not_keep_it_from_looking() {
    let store = store(&[]);
    let mut work = Work::new(store.path(), hours(24));
    assert_eq!(work.prune(at(30 * DAY), Duration::ZERO), 0);
    // The clock is set right, and something is stored.
    write(&object_path(store.path(), at(0)), at(0), 10);
    let days = Duration::from_hours(48);
    assert_eq!(work.prune(at(0) + days, days), 1);
}

#[test]
fn what_is_dated_in_the_future_goes_once_it_was_seen_for_long_enough() {
    let store = store(&[0, 30 * DAY, 30 * DAY + 120]);
    let mut work = Work::new(store.path(), hours(24));
    // Begun before the clock went ahead, stored while it was.
    let subject = remember(&mut work.history, at(30 * DAY), at(0));
    let hour = |hours| Duration::from_hours(hours);
    assert_eq!(work.prune(at(60), hour(0)), 0);
    assert_eq!(work.prune(at(60) + hour(23), hour(23)), 0);
    assert!(links(&mut work.history, &subject, at(60)));
    // The third is stored after the first look, by a clock that is ahead again.
    write(
        &object_path(store.path(), at(30 * DAY + 240)),
        at(30 * DAY + 240),
        10,
    );
    assert_eq!(work.prune(at(60) + hour(25), hour(25)), 3);
    assert!(!links(&mut work.history, &subject, at(60)));
    assert!(object_path(store.path(), at(30 * DAY + 240)).is_file());
    // What is stored by the right clock is linked to.
    let now = at(60) + hour(25);
    store_again(&mut work.history, now, now);
    assert!(links(&mut work.history, &subject, now));
}

#[test]
fn a_new_store_is_kept_within_its_age_from_the_start() {
    let store = store(&[]);
    let mut work = Work::new(store.path(), hours(2));
    let hour = |hours| Duration::from_hours(hours);
    assert_eq!(work.prune(at(0), hour(0)), 0);
    write(&object_path(store.path(), at(60)), at(60), 10);
    assert_eq!(work.prune(at(0) + hour(1), hour(1)), 0);
    assert_eq!(work.prune(at(0) + hour(3), hour(3)), 1);
    // A clock that jumps ahead is not believed there either.
    write(&object_path(store.path(), at(DAY)), at(DAY), 10);
    assert_eq!(work.prune(at(30 * DAY), hour(4)), 0);
}

#[test]
fn a_clock_that_is_behind_makes_nothing_too_old() {
    let store = store(&[0, DAY, 2 * DAY]);
    let mut work = Work::new(store.path(), hours(24 * 7));
    // Since 1970, and for an hour; then somebody set it.
    assert_eq!(work.prune(Timestamp::default(), Duration::ZERO), 0);
    let hour = Duration::from_hours(1);
    assert_eq!(work.prune(at(3 * DAY), hour), 0);
    assert_eq!(work.prune(at(3 * DAY) + hour, 2 * hour), 0);
    assert_eq!(files(store.path()), 3);
}

#[test]
fn what_a_dead_process_left_half_written_goes_after_an_hour_also_without_limits() {
    let store = store(&[0]);
    let object = object_path(store.path(), at(0));
    let beside = |number: &str| {
        let mut path = object.clone().into_os_string();
        path.push(number);
        PathBuf::from(path)
    };
    let check = store.path().join("v1/check.json#12");
    write(&beside("#1"), at(0), 10);
    write(&beside("#2"), at(2 * 3_600), 10);
    write(&beside("#x"), at(0), 10);
    write(&check, at(0), 10);
    let mut work = Work::new(store.path(), Retention::default());
    let (now, mut after) = (at(2 * 3_600 + 10), Duration::ZERO);
    let left = |path: &Path| path.try_exists().unwrap();
    work.prune(now, after);
    // Another sidecar may be writing it, by a clock that is wrong.
    write(&check, at(0), 100_000);
    after += UNTOUCHED_FOR;
    work.prune(now + after, after);
    assert!(!left(&beside("#1")) && left(&check));
    after += UNTOUCHED_FOR;
    work.prune(now + after, after);
    assert!(!left(&check));
    assert!(left(&beside("#2")) && left(&beside("#x")) && left(&object));
    // The next restart may be far away.
    after += LOOK_EVERY;
    work.prune(now + after, after);
    after += LOOK_EVERY;
    work.prune(now + after, after);
    assert!(!left(&beside("#2")));
    assert!(left(&beside("#x")) && left(&object));
}

#[test]
fn a_clock_that_is_ahead_makes_nothing_too_old_for_a_day() {
    let month = 30 * DAY;
    let hour = |hours| Duration::from_hours(hours);
    // It jumps ahead while the process runs.
    let jumped = store(&[0, DAY]);
    let mut work = Work::new(jumped.path(), hours(48));
    assert_eq!(work.prune(at(DAY + 60), hour(0)), 0);
    assert_eq!(work.prune(at(month), hour(1)), 0);
    assert_eq!(work.prune(at(month) + hour(1), hour(2)), 0);
    // Somebody puts it right.
    assert_eq!(work.prune(at(DAY) + hour(3), hour(3)), 0);
    assert_eq!(files(jumped.path()), 2);
    assert_eq!(work.prune(at(DAY) + hour(28), hour(28)), 1);

    // It was ahead before, or nobody stored anything for a month.
    let idle = store(&[0, DAY]);
    let mut work = Work::new(idle.path(), hours(48));
    write(&object_path(idle.path(), at(month + 1)), at(month + 1), 10);
    assert_eq!(work.prune(at(month), hour(0)), 0);
    assert_eq!(work.prune(at(month) + hour(23), hour(23)), 0);
    assert_eq!(work.prune(at(month) + hour(24), hour(24)), 2);

    // What is too much goes all the same.
    let full = store(&[0, DAY]);
    assert_eq!(prune(full.path(), bytes(1), at(month)), 2);
}
