//! What a process takes: time, processor, memory, bytes read.
//!
//! A process in between starts the one that is measured and waits for it, so that what the system
//! counts for its children is that one's alone.

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

/// Tells the process in between what it is.
pub(crate) const WATCH: &str = "watch-process";

pub(crate) const HEADING: &str = "
question                                 from disk     best   median      CPU     peak      read
                                                ms       ms       ms       ms      MiB       MiB  found
";

/// What is measured.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) path: String,
    pub(crate) arguments: Vec<String>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Measured {
    pub(crate) took: Duration,
    pub(crate) processor: Duration,
    pub(crate) peak_kib: i64,
    pub(crate) read_bytes: u64,
    /// The last line of what it said.
    pub(crate) found: String,
}

impl Program {
    pub(crate) fn measure(&self) -> anyhow::Result<Measured> {
        let own = env::current_exe()?;
        let mut watcher = Command::new(own);
        watcher.args([WATCH, &self.path]).args(&self.arguments);
        let output = watcher.stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "it failed");
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// What the process in between does.
#[expect(clippy::print_stdout, reason = "whoever started it reads this")]
pub(crate) fn watch(path: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let read_before = read_bytes()?;
    let started_at = Instant::now();
    let mut command = Command::new(path);
    let output = command.args(arguments).stderr(Stdio::inherit()).output()?;
    let took = started_at.elapsed();
    ensure!(
        output.status.success(),
        "{path} ended with {}",
        output.status
    );
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let processor = [usage.user_time(), usage.system_time()].map(|time| {
        let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
        Duration::from_micros(u64::try_from(micros).unwrap_or_default())
    });
    let said = String::from_utf8_lossy(&output.stdout);
    let measured = Measured {
        took,
        processor: processor.iter().sum(),
        peak_kib: usage.max_rss(),
        read_bytes: read_bytes()? - read_before,
        found: said.lines().last().unwrap_or_default().to_owned(),
    };
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// By this process and by those that it waited for.
fn read_bytes() -> anyhow::Result<u64> {
    let io = fs::read_to_string("/proc/self/io")?;
    let read = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    Ok(read.context("the system counts no bytes")?.parse()?)
}

pub(crate) fn row(name: &str, cold: &Measured, warm: &[Measured]) -> String {
    let mut times: Vec<_> = warm.iter().map(|measured| measured.took).collect();
    times.sort_unstable();
    let best = times.first().copied().unwrap_or_default();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let processor = warm.iter().map(|measured| measured.processor).min();
    let peak = warm.iter().map(|measured| measured.peak_kib).max();
    let millis = |time: Duration| format!("{:.0}", time.as_secs_f64() * 1000.0);
    let [from_disk, best, median] = [cold.took, best, median].map(millis);
    let processor = millis(processor.unwrap_or_default());
    let peak = peak.unwrap_or_default() / 1024;
    let read = cold.read_bytes.div_ceil(1024 * 1024);
    let found: String = cold.found.chars().take(60).collect();
    format!(
        "{name:<40} {from_disk:>9} {best:>8} {median:>8} {processor:>8} {peak:>8} {read:>9}  {found}"
    )
}

/// Lets go of what the page cache holds of a folder.
pub(crate) fn evict(folder: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            evict(&path)?;
        } else {
            fadvise(fs::File::open(path)?, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}
