//! A control group with a CPU quota: that of the sidecar's own limits, 10 ms of every 100.
//!
//! Invariant: a server is in it from its first instruction on, since servers look at their quota
//! when they start.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde::Serialize;

const QUOTA_US: u32 = 10_000;
const PERIOD_US: u32 = 100_000;

/// Where the CPU controller of version 1 is found.
const VERSION_1: &str = "/sys/fs/cgroup/cpu";
/// Where version 2 is.
const VERSION_2: &str = "/sys/fs/cgroup";

/// A control group. It goes when it is dropped; by then its processes must have.
#[derive(Debug)]
pub(crate) struct Quota {
    folder: PathBuf,
}

/// Periods in which something ran, and those in which it ran into the quota.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Periods {
    pub(crate) all: u64,
    pub(crate) throttled: u64,
}

impl Quota {
    /// Makes one, or says why it can't be made here.
    pub(crate) fn make() -> anyhow::Result<Self> {
        let name = format!("spanplane-load-{}", std::process::id());
        let root = Path::new(VERSION_1);
        if root.join("cgroup.procs").try_exists()? {
            let quota = Self::in_folder(root.join(name))?;
            quota.set("cpu.cfs_period_us", &PERIOD_US.to_string())?;
            quota.set("cpu.cfs_quota_us", &QUOTA_US.to_string())?;
            return Ok(quota);
        }
        let root = Path::new(VERSION_2);
        let controllers = fs::read_to_string(root.join("cgroup.subtree_control"))
            .context("there are no control groups")?;
        if !controllers.split_whitespace().any(|name| name == "cpu") {
            bail!("control groups have no CPU controller");
        }
        let quota = Self::in_folder(root.join(name))?;
        quota.set("cpu.max", &format!("{QUOTA_US} {PERIOD_US}"))?;
        Ok(quota)
    }

    fn in_folder(folder: PathBuf) -> anyhow::Result<Self> {
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { folder })
    }

    fn set(&self, file: &str, value: &str) -> anyhow::Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, value).with_context(|| format!("cannot write {}", path.display()))
    }

    /// A process enters by writing its id into this.
    pub(crate) fn door(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    pub(crate) fn periods(&self) -> anyhow::Result<Periods> {
        let stat = fs::read_to_string(self.folder.join("cpu.stat"))?;
        let count = |name: &str| -> anyhow::Result<u64> {
            let line = stat.lines().find_map(|line| line.strip_prefix(name));
            Ok(line
                .with_context(|| format!("there is no {name}"))?
                .trim()
                .parse()?)
        };
        Ok(Periods {
            all: count("nr_periods ")?,
            throttled: count("nr_throttled ")?,
        })
    }
}

impl Periods {
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            all: self.all - earlier.all,
            throttled: self.throttled - earlier.throttled,
        }
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // What can't be removed is empty and does no harm.
        drop(fs::remove_dir(&self.folder));
    }
}
