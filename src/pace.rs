//! Keeps the work behind the answers from using up the CPU that the answers need.
//!
//! A container's CPU quota is shared by all threads: 100m means 10 ms of every 100, and a thread
//! that burns them in one go freezes every answer for the other 90, while core gives up at 100. So
//! the work is done in small slices, and between two of them its thread rests for as long as keeps
//! it to its share. Without a quota it lets others go first instead: many kernels don't take the
//! CPU from a thread before the next tick, 4 ms away, whatever its priority; with two cores that
//! was most of what made one answer in a hundred late. Invariant: without a quota there are no
//! rests.

use std::{
    cell::RefCell,
    fs, thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

/// The answers need about a quarter of the quota at the load that it is meant for; this leaves
/// them twice that.
const SHARE: f64 = 0.5;
/// Nobody who needs the CPU for an answer waits longer for it.
const SLICE: Duration = Duration::from_micros(100);
/// What is used of the quota before it is paid for: a tenth of the smallest one.
const UNPAID: Duration = Duration::from_millis(1);
const SLICE_BYTES: usize = 128 * 1024;
/// Nobody waits longer than this for the work to go on, or to stop.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// What one thread did since it last let others go first.
#[derive(Debug)]
struct Pacer {
    /// When the slice that is under way began.
    began_at: Instant,
    share: Option<Share>,
}

/// A thread's part of the quota.
#[derive(Debug)]
struct Share {
    /// CPU seconds a second that this thread may use.
    allowance: f64,
    cpu_at_rest: Duration,
    rested_at: Instant,
    /// Rest that is still owed.
    debt: Duration,
}

impl Pacer {
    fn breathe(&mut self) {
        if self.began_at.elapsed() < SLICE {
            return;
        }
        match &mut self.share {
            Some(share) => share.rest(),
            None => thread::yield_now(),
        }
        self.began_at = Instant::now();
    }
}

impl Share {
    /// Rests for as long as is owed for what was used.
    fn rest(&mut self) {
        let used = thread_cpu().saturating_sub(self.cpu_at_rest);
        if used < UNPAID {
            return;
        }
        let owed = rest_owed(self.debt, used, self.rested_at.elapsed(), self.allowance);
        let rest = owed.min(LONGEST_REST);
        thread::sleep(rest);
        self.debt = owed.saturating_sub(rest);
        self.cpu_at_rest = thread_cpu();
        self.rested_at = Instant::now();
    }
}

thread_local! {
    static PACER: RefCell<Pacer> = RefCell::new(Pacer {
        began_at: Instant::now(),
        share: None,
    });
}

/// Keeps the calling thread to its share of the quota from now on, wherever it calls [`breathe`].
pub fn pace_this_thread() {
    let share = cpu_quota().map(|cores| Share {
        allowance: cores * SHARE,
        cpu_at_rest: thread_cpu(),
        rested_at: Instant::now(),
        debt: Duration::ZERO,
    });
    PACER.with_borrow_mut(|pacer| pacer.share = share);
}

/// No rests on the calling thread from now on.
pub fn hurry_this_thread() {
    PACER.with_borrow_mut(|pacer| pacer.share = None);
}

/// Lets others go first, or rests on a thread that keeps to its share. To be called between pieces
/// of work that take a tenth of a millisecond or so.
pub fn breathe() {
    PACER.with_borrow_mut(Pacer::breathe);
}

/// Does something with all of `content`, in pieces that take a tenth of a millisecond or so if it
/// is done at a gigabyte a second or more, and breathes in between.
pub fn in_slices(content: &[u8], mut work: impl FnMut(&[u8])) {
    for slice in content.chunks(SLICE_BYTES) {
        work(slice);
        breathe();
    }
}

/// How long to rest after using `used` of the CPU within `elapsed`, with `debt` from before.
fn rest_owed(debt: Duration, used: Duration, elapsed: Duration, allowance: f64) -> Duration {
    (debt + used.div_f64(allowance)).saturating_sub(elapsed)
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
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

    #[test]
    fn a_slice_is_paid_for_by_the_share() {
        let millis = Duration::from_millis;
        // 1 ms of CPU at half of 100m takes 20 ms of time.
        assert_eq!(rest_owed(millis(0), millis(1), millis(1), 0.05), millis(19));
        assert_eq!(
            rest_owed(millis(0), millis(1), millis(30), 0.05),
            Duration::ZERO
        );
        assert_eq!(rest_owed(millis(5), millis(1), millis(1), 0.05), millis(24));
    }
}
