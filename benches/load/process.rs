//! What the system tells of a process: its processor time, its memory, its threads.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use anyhow::Context as _;

/// Of this process, user and system time of all its threads, also of those that ended. It can be
/// asked until the process has been waited for.
pub(crate) fn cpu(pid: u32) -> anyhow::Result<Duration> {
    Ok(read_stat(Path::new(&format!("/proc/{pid}/stat")))?.cpu)
}

/// Whether it has ended and waits to be waited for.
pub(crate) fn has_ended(pid: u32) -> anyhow::Result<bool> {
    Ok(read_stat(Path::new(&format!("/proc/{pid}/stat")))?.state == "Z")
}

/// The most memory that it ever had.
pub(crate) fn peak_bytes(pid: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.split_whitespace().next());
    Ok(1024 * kib.context("the system counts no memory")?.parse::<u64>()?)
}

/// Processor time by the names of threads that are alive.
pub(crate) fn threads(pid: u32) -> anyhow::Result<BTreeMap<String, Duration>> {
    let mut threads = BTreeMap::<_, Duration>::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // NOTE: one that ended meanwhile is gone.
        if let Ok(stat) = read_stat(&task?.path().join("stat")) {
            *threads.entry(stat.name).or_default() += stat.cpu;
        }
    }
    Ok(threads)
}

struct Stat {
    name: String,
    state: String,
    cpu: Duration,
}

fn read_stat(path: &Path) -> anyhow::Result<Stat> {
    let text = fs::read_to_string(path)?;
    let (head, fields) = text.rsplit_once(')').context("odd stat")?;
    let mut fields = fields.split_whitespace();
    let state = fields.next().context("no state in stat")?.to_owned();
    // NOTE: user and system time are fields 14 and 15 of `proc(5)`, in ticks of 10 ms.
    let ticks = fields.skip(10).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>()?;
    Ok(Stat {
        name: head.split_once('(').unwrap_or_default().1.to_owned(),
        state,
        cpu: Duration::from_millis(10 * ticks),
    })
}
