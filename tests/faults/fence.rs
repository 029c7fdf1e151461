//! What keeps a run from leaving anything behind, however it ends.
//!
//! Every process that the harness starts is in one process group, which a watchdog kills as soon
//! as the harness is gone. Mounts are made in a mount namespace of the harness's own, which goes
//! with its last process.

use std::{
    env, fs,
    io::{self, Read as _},
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
};

use anyhow::Context as _;
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    unistd::{getegid, geteuid},
};
use rustix::process::{Signal, kill_current_process_group};

/// Makes this program a watchdog.
pub(crate) const WATCHDOG: &str = "--watchdog";

/// The process group of everything that was started.
#[derive(Debug)]
pub(crate) struct Fence {
    watchdog: Child,
}

impl Fence {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let watchdog = Command::new(env::current_exe()?)
            .arg(WATCHDOG)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start the watchdog")?;
        Ok(Self { watchdog })
    }

    /// For `process_group` of every command.
    pub(crate) fn group(&self) -> i32 {
        i32::try_from(self.watchdog.id()).unwrap_or_default()
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        self.watchdog.wait().map(drop).unwrap_or_default();
    }
}

/// Waits until whoever started this process is gone, and kills its process group.
pub(crate) fn watch() {
    io::stdin()
        .read_to_end(&mut Vec::new())
        .map(drop)
        .unwrap_or_default();
    kill_current_process_group(Signal::KILL).unwrap_or_default();
}

/// Gives this process mounts of its own. To be called while it has one thread.
pub(crate) fn use_own_mounts() -> io::Result<()> {
    if geteuid().is_root() {
        unshare(CloneFlags::CLONE_NEWNS)?;
    } else {
        let (user, group) = (geteuid(), getegid());
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
    }
    let nothing = None::<&str>;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(nothing, "/", nothing, private, nothing)?;
    Ok(())
}
