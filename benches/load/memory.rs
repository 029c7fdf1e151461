//! A control group with a memory limit: that of the sidecar's own limits, 128 MiB.
//!
//! Invariant: a server is in it from its first instruction on; it can't swap.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use anyhow::{Context as _, bail};

pub(crate) const LIMIT_BYTES: u64 = 128 << 20;

/// Where the memory controller of version 1 is found.
const VERSION_1: &str = "/sys/fs/cgroup/memory";
/// Where version 2 is.
const VERSION_2: &str = "/sys/fs/cgroup";

/// A control group. It goes when it is dropped; by then its processes must have.
#[derive(Debug)]
pub(crate) struct MemoryGroup {
    folder: PathBuf,
}

impl MemoryGroup {
    /// Makes one, or says why it can't be made here.
    pub(crate) fn make() -> anyhow::Result<Self> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("spanplane-memory-{}-{number}", std::process::id());
        let root = Path::new(VERSION_1);
        if root.join("cgroup.procs").try_exists()? {
            let group = Self::in_folder(root.join(name))?;
            group.set("memory.limit_in_bytes")?;
            // Not every kernel counts swap.
            group.set("memory.memsw.limit_in_bytes").unwrap_or_default();
            return Ok(group);
        }
        let root = Path::new(VERSION_2);
        let controllers = fs::read_to_string(root.join("cgroup.subtree_control"))
            .context("there are no control groups")?;
        if !controllers.split_whitespace().any(|name| name == "memory") {
            bail!("control groups have no memory controller");
        }
        let group = Self::in_folder(root.join(name))?;
        group.set("memory.max")?;
        fs::write(group.folder.join("memory.swap.max"), "0").unwrap_or_default();
        Ok(group)
    }

    fn in_folder(folder: PathBuf) -> anyhow::Result<Self> {
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { folder })
    }

    fn set(&self, file: &str) -> anyhow::Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, LIMIT_BYTES.to_string())
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// A process enters by writing its id into this.
    pub(crate) fn door(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// How often the kernel killed a process for want of memory.
    pub(crate) fn kills(&self) -> anyhow::Result<u64> {
        for file in ["memory.events", "memory.oom_control"] {
            let Ok(text) = fs::read_to_string(self.folder.join(file)) else {
                continue;
            };
            let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
            return Ok(count.context("kills are not counted")?.trim().parse()?);
        }
        bail!("kills are not counted")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // What can't be removed is empty and does no harm.
        drop(fs::remove_dir(&self.folder));
    }
}
