//! A little space set aside for what a full disk must still be able to take: the index entries of
//! objects that are already stored, and the note of which messages are done. Both make room, so
//! refusing them would leave the disk full forever.
//!
//! Invariant: the file holds nothing of value. It is removed to make room and created again once
//! there is enough.

use std::{
    io::{self, IoSlice},
    path::PathBuf,
};

use super::SharedDisk;

/// Some fifty index entries of five steps each.
const RESERVED_BYTES: usize = 256 * 1024;
/// It is created again only if this many times as much is free.
const PLENTY: u64 = 4;

/// A file that is removed when the disk is full.
#[derive(Debug)]
pub struct Reserve {
    disk: SharedDisk,
    path: PathBuf,
    is_there: bool,
}

impl Reserve {
    /// Sets the space aside if it can; works without it otherwise.
    pub fn new(disk: SharedDisk, path: PathBuf) -> Self {
        let mut reserve = Self {
            is_there: disk.open(&path).is_ok(),
            disk,
            path,
        };
        reserve.restore();
        reserve
    }

    /// Makes room; returns whether there was something to release.
    pub fn release(&mut self) -> bool {
        if !std::mem::take(&mut self.is_there) {
            return false;
        }
        self.disk.remove(&self.path).is_ok()
    }

    /// Sets the space aside again, once there is plenty.
    pub fn restore(&mut self) {
        if self.is_there {
            return;
        }
        let folder = self.path.parent().unwrap_or(&self.path);
        let free = self.disk.free_bytes(folder).unwrap_or_default();
        if free < PLENTY * RESERVED_BYTES as u64 {
            return;
        }
        let filled = self.fill();
        self.is_there = filled.is_ok();
        if let Err(error) = filled {
            tracing::debug!(%error, "cannot reserve disk space");
            // Half a reserve is of no use; if it stays, the next start removes it.
            drop(self.disk.remove(&self.path));
        }
    }

    fn fill(&self) -> io::Result<()> {
        super::remove_if_there(self.disk.as_ref(), &self.path)?;
        let file = self.disk.create(&self.path)?;
        file.append(&mut [IoSlice::new(&vec![0; RESERVED_BYTES])])
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use super::*;
    use crate::disk::simulated::SimulatedDisk;

    #[test]
    fn a_full_disk_has_room_again_after_the_reserve_is_released() {
        let disk = SimulatedDisk::default();
        disk.set_capacity(Some(4 * RESERVED_BYTES as u64 + 1000));
        let shared: SharedDisk = Arc::new(disk.clone());
        let mut reserve = Reserve::new(Arc::clone(&shared), "data/reserve".into());
        let file = shared.create(Path::new("data/file")).unwrap();
        let write = |bytes: usize| file.append(&mut [IoSlice::new(&vec![1; bytes])]);
        write(3 * RESERVED_BYTES + 1000).unwrap();
        assert!(write(1).is_err());
        assert!(reserve.release());
        assert!(!reserve.release());
        write(RESERVED_BYTES).unwrap();
        // Not before there is plenty.
        reserve.restore();
        assert!(!reserve.release());
        file.truncate(0).unwrap();
        reserve.restore();
        assert!(reserve.release());
    }
}
