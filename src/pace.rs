//! Keeps the work behind the answers from using up the CPU that the answers need.
//!
//! A container's CPU quota is shared by all threads: 100m means 10 ms of every 100, and a thread
//! that burns them in one go freezes every answer for the other 90, while core gives up at 100. So
//! the work is done in small slices, and between two of them its thread looks at what the program
//! used within the last period, and rests until enough of that is over. The more the answers take,
//! the less is left for it, down to a share that it always has: else the log would fill up.
//!
//! Who has the CPU while several want it is decided elsewhere: the work gives way to everything
//! ([`give_way`]). Invariant: without a quota there are no rests.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fs, thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// The kernel counts by this; longer periods can be set, and are rare.
const PERIOD: Duration = Duration::from_millis(100);
/// Of the quota; the rest is for what nobody foresees.
const PLANNED: f64 = 0.8;
/// What others used within the last period they may need again, and as much on top.
const OTHERS_AGAIN: f64 = 2.0;
/// Of the quota: however idle the others are, so that a burst of messages finds the rest free. More
/// of it drains a backlog sooner, and runs into the quota: with 0.6, and more left to this thread
/// beside the others, every reconcile of 1,000 a minute changed, the backlog was gone after 44 s in
/// place of 76, and 69 periods were throttled in place of 6.
const MOST: f64 = 0.4;
/// Of the quota: however busy the others are.
const LEAST: f64 = 0.1;
/// Clocks are not read more often than this.
const SLICE: Duration = Duration::from_micros(100);
/// Between two notes of what was used: there are a hundred a period.
const NOTED_EVERY: Duration = Duration::from_millis(1);
const SLICE_BYTES: usize = 128 * 1024;
/// Of work that takes some nanoseconds per byte.
const SLOW_SLICE_BYTES: usize = 32 * 1024;

/// Lowers the priority of the calling thread: whoever else wants the CPU gets it, and at once. A
/// nice value does not do that: kernels may let a thread finish its slice of some milliseconds
/// first.
pub fn give_way() {
    let policy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    GAVE_WAY.set(set_policy(policy));
}

fn set_policy(policy: ThreadSchedulePolicy) -> bool {
    let set = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy);
    if let Err(error) = &set {
        tracing::debug!(?error, "cannot change the priority of a thread");
    }
    set.is_ok()
}

/// Keeps one thread to what the others leave of the quota.
#[derive(Debug)]
struct Pacer {
    /// CPU time that the program has a period.
    quota: Duration,
    looked_at: Instant,
    /// Oldest first; one of them is from before the last period.
    notes: VecDeque<Note>,
}

/// The CPU time used so far.
#[derive(Clone, Copy, Debug)]
struct Note {
    at: Instant,
    by_all: Duration,
    by_this: Duration,
}

/// What was used between two notes.
struct Used {
    within: Duration,
    by_all: Duration,
    by_this: Duration,
}

impl Note {
    fn now() -> Self {
        Self {
            at: Instant::now(),
            by_all: cpu_time(ClockId::ProcessCPUTime),
            by_this: cpu_time(ClockId::ThreadCPUTime),
        }
    }

    fn since(&self, earlier: &Self) -> Used {
        Used {
            within: self.at.saturating_duration_since(earlier.at),
            by_all: self.by_all.saturating_sub(earlier.by_all),
            by_this: self.by_this.saturating_sub(earlier.by_this),
        }
    }
}

impl Pacer {
    fn new(cores: f64) -> Self {
        Self {
            quota: PERIOD.mul_f64(cores),
            looked_at: Instant::now(),
            notes: VecDeque::from([Note::now()]),
        }
    }

    fn breathe(&mut self) {
        if self.looked_at.elapsed() < SLICE {
            return;
        }
        while let Some(rest) = self.rest_owed(Note::now()) {
            thread::sleep(rest);
        }
        self.looked_at = Instant::now();
    }

    /// How long to rest, if at all.
    fn rest_owed(&mut self, now: Note) -> Option<Duration> {
        let is_old = |note: &Note| now.since(note).within >= PERIOD;
        while self.notes.get(1).is_some_and(is_old) {
            self.notes.pop_front();
        }
        let used = now.since(self.notes.front()?);
        // After a long sleep this is all that is known of the last period.
        let part = PERIOD.as_secs_f64() / used.within.max(PERIOD).as_secs_f64();
        let own = used.by_this.mul_f64(part);
        let others = used.by_all.mul_f64(part).saturating_sub(own);
        let left = allowance(self.quota, others);
        let last = self.notes.back();
        if last.is_none_or(|last| now.since(last).within >= NOTED_EVERY) {
            self.notes.push_back(now);
        }
        if own <= left {
            return None;
        }
        // Until so much of it is over that the rest is within the allowance.
        let is_enough = |note: &&Note| now.since(note).by_this <= left;
        let until = self.notes.iter().find(is_enough)?.at + PERIOD;
        let rest = until.saturating_duration_since(now.at);
        Some(rest.clamp(NOTED_EVERY, PERIOD))
    }
}

/// What this thread may use within a period in which the others used so much.
fn allowance(quota: Duration, others: Duration) -> Duration {
    let planned = quota.mul_f64(PLANNED);
    planned
        .saturating_sub(others.mul_f64(OTHERS_AGAIN))
        .clamp(quota.mul_f64(LEAST), quota.mul_f64(MOST))
}

thread_local! {
    static PACER: RefCell<Option<Pacer>> = const { RefCell::new(None) };
    /// The thread runs only when nobody else wants the CPU.
    static GAVE_WAY: Cell<bool> = const { Cell::new(false) };
    /// What was done since the last slice ended.
    static DONE_BYTES: Cell<usize> = const { Cell::new(0) };
    #[cfg(test)]
    static BREATHS: Cell<usize> = const { Cell::new(0) };
}

/// Keeps the calling thread to what is left of the quota, wherever it calls [`breathe`].
pub fn pace_this_thread() {
    PACER.set(cpu_quota().map(Pacer::new));
}

/// No rests on the calling thread from now on, and no precedence for the others.
pub fn hurry_this_thread() {
    PACER.set(None);
    if GAVE_WAY.take() {
        set_policy(ThreadSchedulePolicy::Normal(
            NormalThreadSchedulePolicy::Other,
        ));
    }
}

/// Rests, on a thread that keeps to what is left. To be called between pieces of work that take a
/// tenth of a millisecond or so; without a quota it costs nothing.
pub fn breathe() {
    #[cfg(test)]
    BREATHS.set(BREATHS.get() + 1);
    PACER.with_borrow_mut(|pacer| {
        if let Some(pacer) = pacer {
            pacer.breathe();
        }
    });
}

/// Breathes once for so many bytes: to be called by loops with small steps, at each of them.
#[inline]
pub fn breathe_after(bytes: usize) {
    let done = DONE_BYTES.get().saturating_add(bytes);
    if done < SLOW_SLICE_BYTES {
        DONE_BYTES.set(done);
    } else {
        DONE_BYTES.set(0);
        breathe();
    }
}

/// How often the calling thread could have rested during some work.
#[cfg(test)]
pub(crate) fn breaths_during<T>(work: impl FnOnce() -> T) -> usize {
    let before = BREATHS.get();
    let _ = work();
    BREATHS.get() - before
}

/// Does something with all of `content`, in pieces that take a tenth of a millisecond or so if it
/// is done at a gigabyte a second or more, and breathes in between.
pub fn in_slices(content: &[u8], mut work: impl FnMut(&[u8])) {
    for slice in content.chunks(SLICE_BYTES) {
        work(slice);
        breathe();
    }
}

fn cpu_time(of: ClockId) -> Duration {
    let time = clock_gettime(of);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// The quota of this process's control group in cores; `None` if there is none.
fn cpu_quota() -> Option<f64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let read = |path: &str| fs::read_to_string(path).ok();
    find_quota(&groups, &read)
}

/// Looks where version 2 of control groups has it, then where version 1 does. In a container the
/// file system shows the own group as the root.
fn find_quota(groups: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<f64> {
    // Lines of the form `4:cpu,cpuacct:/path`, or `0::/path` for version 2.
    let group_of = |controller: &str| {
        groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let is_it = fields.next()?.split(',').any(|name| name == controller);
            fields.next().filter(|_| is_it)
        })
    };
    let own = group_of("").unwrap_or("/");
    let version_2 = [
        format!("/sys/fs/cgroup{own}/cpu.max"),
        "/sys/fs/cgroup/cpu.max".to_owned(),
    ];
    let own = group_of("cpu").unwrap_or("/");
    let version_1 = [
        format!("/sys/fs/cgroup/cpu{own}"),
        "/sys/fs/cgroup/cpu".to_owned(),
    ];
    let split = |folder: &String| {
        let quota = read(&format!("{folder}/cpu.cfs_quota_us"))?;
        let period = read(&format!("{folder}/cpu.cfs_period_us"))?;
        parse_cpu_max(&format!("{} {}", quota.trim(), period.trim()))
    };
    version_2
        .iter()
        .find_map(|path| parse_cpu_max(&read(path)?))
        .or_else(|| version_1.iter().find_map(split))
}

/// `<quota> <period>`; no quota is `max`, or negative.
fn parse_cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let quota: f64 = quota.parse().ok()?;
    let period: f64 = period.parse().ok()?;
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read() {
        assert_eq!(parse_cpu_max("10000 100000\n"), Some(0.1));
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(parse_cpu_max(""), None);
    }

    #[test]
    fn quotas_are_found_in_both_versions_of_control_groups() {
        let files = |files: &'static [(&str, &str)]| {
            move |path: &str| {
                let found = files.iter().find(|(name, _)| *name == path);
                found.map(|(_, text)| (*text).to_owned())
            }
        };
        let version_2 = files(&[("/sys/fs/cgroup/pod/cpu.max", "20000 100000\n")]);
        assert_eq!(find_quota("0::/pod\n", &version_2), Some(0.2));
        let container = files(&[("/sys/fs/cgroup/cpu.max", "10000 100000\n")]);
        assert_eq!(find_quota("0::/\n", &container), Some(0.1));
        let version_1 = files(&[
            ("/sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "10000\n"),
            ("/sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(
            find_quota("3:cpu,cpuacct:/pod\n0::/\n", &version_1),
            Some(0.1)
        );
        let unlimited = files(&[
            ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(find_quota("3:cpu:/\n", &unlimited), None);
    }

    const QUOTA: Duration = Duration::from_millis(10);

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_busier_the_others_are_the_less_is_left() {
        assert_eq!(allowance(QUOTA, millis(0)), millis(4));
        assert_eq!(allowance(QUOTA, millis(3)), millis(2));
        assert_eq!(allowance(QUOTA, millis(9)), millis(1), "and never nothing");
    }

    /// A pacer that began now, and what it would note later.
    fn pacer() -> (Pacer, impl Fn(u64, u64, u64) -> Note) {
        let begun = Note::now();
        let pacer = Pacer {
            quota: QUOTA,
            looked_at: begun.at,
            notes: VecDeque::from([begun]),
        };
        let note = move |after, others, own| Note {
            at: begun.at + millis(after),
            by_all: begun.by_all + millis(others + own),
            by_this: begun.by_this + millis(own),
        };
        (pacer, note)
    }

    #[test]
    fn what_was_used_too_fast_is_rested_for_until_it_is_over() {
        let (mut pacer, note) = pacer();
        assert_eq!(pacer.rest_owed(note(2, 0, 2)), None);
        assert_eq!(pacer.rest_owed(note(4, 0, 4)), None);
        // The first 2 ms of it are over 100 ms after they ended.
        assert_eq!(pacer.rest_owed(note(6, 0, 6)), Some(millis(96)));
        assert_eq!(pacer.rest_owed(note(102, 0, 6)), None);
    }

    #[test]
    fn what_others_use_is_left_to_them() {
        let (mut pacer, note) = pacer();
        assert_eq!(pacer.rest_owed(note(3, 0, 3)), None);
        assert_eq!(pacer.rest_owed(note(10, 5, 3)), Some(millis(93)));
        let busy = note(103, 9, 3);
        assert_eq!(pacer.rest_owed(busy), None, "it rested");
        assert_eq!(pacer.rest_owed(note(104, 9, 4)), None, "some is its own");
    }

    #[test]
    fn a_long_sleep_is_no_debt() {
        let (mut pacer, note) = pacer();
        // 4 ms of every period, and the thread itself slept.
        assert_eq!(pacer.rest_owed(note(1000, 40, 0)), None);
        assert!(pacer.notes.len() <= 2);
        assert_eq!(pacer.rest_owed(note(1003, 40, 3)), None);
    }
}
