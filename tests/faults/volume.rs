//! A volume of limited size, which can be full, without inodes, or read-only for a while.
//!
//! Invariant: what is on it stays as it is, whatever limit is set.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::mount::{MsFlags, mount};
use rustix::fs::statvfs;

const SIZE: u64 = 4 << 30;
const INODES: u64 = 2_000_000;
/// A limit that is being exceeded while it is set is refused.
const TRIES: u32 = 200;
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum VolumeFault {
    /// So many bytes are left.
    Full {
        left: u64,
    },
    NoInodes,
    ReadOnly,
}

#[derive(Clone, Debug)]
pub(crate) struct Volume {
    path: PathBuf,
}

impl Volume {
    /// An empty one in this folder.
    pub(crate) fn mount(path: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        let limits = format!("mode=0755,size={SIZE},nr_inodes={INODES}");
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(
            Some("tmpfs"),
            &path,
            Some("tmpfs"),
            flags,
            Some(limits.as_str()),
        )?;
        Ok(Self { path })
    }

    /// Whether it worked: a volume that is being written to can't become read-only.
    pub(crate) async fn begin(&self, fault: VolumeFault) -> bool {
        let attempt = || match fault {
            VolumeFault::Full { left } => {
                let stat = statvfs(&self.path)?;
                let used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize;
                self.remount(MsFlags::empty(), &format!("size={}", used + left))
            }
            VolumeFault::NoInodes => {
                let stat = statvfs(&self.path)?;
                let used = stat.f_files - stat.f_ffree;
                self.remount(MsFlags::empty(), &format!("nr_inodes={used}"))
            }
            VolumeFault::ReadOnly => self.remount(MsFlags::MS_RDONLY, ""),
        };
        for _ in 0..TRIES {
            if attempt().is_ok() {
                return true;
            }
            tokio::time::sleep(PAUSE).await;
        }
        false
    }

    pub(crate) fn end_fault(&self) -> io::Result<()> {
        let limits = format!("size={SIZE},nr_inodes={INODES}");
        self.remount(MsFlags::empty(), &limits)
    }

    fn remount(&self, flags: MsFlags, options: &str) -> io::Result<()> {
        let flags = flags | MsFlags::MS_REMOUNT | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let nothing = None::<&Path>;
        mount(nothing, &self.path, nothing, flags, Some(options))?;
        Ok(())
    }
}
