//! What the system tells of a process: its processor time, its memory, its threads.

use std::{collections::BTreeMap, fs, path::Path, sync::Mutex, sync::PoisonError, time::Duration};

use anyhow::Context as _;

use crate::fence::Fence;

/// The place of stolen time in `/proc/stat`, after user, nice, system, idle, iowait, irq, softirq.
const STOLEN: usize = 7;

/// The process group of every server: it ends with this program, however that ends.
pub(crate) fn group() -> anyhow::Result<i32> {
    static FENCE: Mutex<Option<Fence>> = Mutex::new(None);
    let mut fence = FENCE.lock().unwrap_or_else(PoisonError::into_inner);
    if fence.is_none() {
        *fence = Some(Fence::start()?);
    }
    Ok(fence.as_ref().map_or(0, Fence::group))
}

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

/// Time of all processors of this machine, and what of it its host gave to others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineTime {
    all: u64,
    stolen: u64,
}

impl MachineTime {
    pub(crate) fn now() -> anyhow::Result<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        let line = stat.lines().next().context("empty stat")?;
        let ticks = line.split_whitespace().skip(1).take(STOLEN + 1);
        let ticks = ticks
            .map(str::parse::<u64>)
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            all: ticks.iter().sum(),
            stolen: ticks.get(STOLEN).copied().unwrap_or_default(),
        })
    }

    /// Of what passed since then, the part that was stolen.
    pub(crate) fn stolen_since(self, earlier: Self) -> f64 {
        (self.stolen - earlier.stolen) as f64 / (self.all - earlier.all).max(1) as f64
    }
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
