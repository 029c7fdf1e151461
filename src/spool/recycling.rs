//! Segment files that are done with are emptied and used again: where many files come and go, ext4
//! takes half a millisecond to create one, and the caller that waits for an answer would wait for
//! that.
//!
//! Invariant: a segment that is removed loses its name first and its content afterwards. A crash in
//! between leaves a spare file, which the next start removes; never a segment that is cut short.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    disk::{DiskFile, SharedDisk},
    pace::breathe,
};

/// Extension of an emptied file that waits to be used again.
pub(super) const SPARE: &str = "spare";
/// Maximum number of spare files.
const SPARES: usize = 16;
/// A file is emptied in pieces of this size, a tenth of a millisecond or so each: the kernel lets
/// nobody else have the CPU before a piece is gone.
pub(super) const PIECE_BYTES: u64 = 2 * 1024 * 1024;

/// Creates and removes segment files.
#[derive(Debug)]
pub(super) struct SegmentFiles {
    disk: SharedDisk,
    piece_bytes: u64,
    spares: Mutex<Vec<PathBuf>>,
}

impl SegmentFiles {
    pub(super) fn new(disk: SharedDisk, piece_bytes: u64) -> Self {
        Self {
            disk,
            piece_bytes,
            spares: Mutex::default(),
        }
    }

    /// Creates a file that must not exist yet.
    pub(super) fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let spare = self.spares().pop();
        match spare.map(|spare| self.reuse(&spare, path)) {
            Some(Ok(file)) => Ok(file),
            _ => self.disk.create(path),
        }
    }

    /// Removes a file that nobody needs any more.
    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        if self.spares().len() >= SPARES {
            return self.disk.remove(path);
        }
        let spare = path.with_extension(SPARE);
        self.disk.rename(path, &spare)?;
        match self.empty(&spare) {
            Ok(()) => self.spares().push(spare),
            // If this fails too, the next start removes it.
            Err(_) => drop(self.disk.remove(&spare)),
        }
        Ok(())
    }

    fn empty(&self, path: &Path) -> io::Result<()> {
        let file = self.disk.open_to_append(path)?;
        let mut left = file.length()?;
        while left > 0 {
            left = left.saturating_sub(self.piece_bytes);
            file.truncate(left)?;
            breathe();
        }
        // NOTE: ext4 writes a file to disk when it is closed for the first time after it was
        // emptied. The file is dropped here, while there is nothing in it.
        Ok(())
    }

    fn reuse(&self, spare: &Path, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let reused = self.disk.open_to_append(spare).and_then(|file| {
            self.disk.rename_new(spare, path)?;
            Ok(file)
        });
        reused.inspect_err(|_| drop(self.disk.remove(spare)))
    }

    fn spares(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::disk::{
        Disk as _, read_file,
        simulated::{Death, SimulatedDisk},
    };

    /// More than is removed at once.
    const MUCH: usize = 5 * 1024 * 1024;

    fn segment(number: usize) -> PathBuf {
        PathBuf::from(format!("spool/{number}.seg"))
    }

    fn files_on(disk: &SimulatedDisk) -> SegmentFiles {
        SegmentFiles::new(Arc::new(disk.clone()), PIECE_BYTES)
    }

    fn fill(files: &SegmentFiles, path: &Path, content: &[u8]) {
        let file = files.create(path).unwrap();
        file.append(&mut [IoSlice::new(content)]).unwrap();
    }

    fn names(disk: &SimulatedDisk) -> Vec<String> {
        let listed = disk.list(Path::new("spool")).unwrap();
        listed.into_iter().map(|entry| entry.name).collect()
    }

    #[test]
    fn a_removed_file_is_used_again_with_nothing_left_of_its_content() {
        let disk = SimulatedDisk::default();
        let files = files_on(&disk);
        fill(&files, &segment(1), &vec![7; MUCH]);
        files.remove(&segment(1)).unwrap();
        assert_eq!(names(&disk), ["1.spare"]);
        assert_eq!(disk.list(Path::new("spool")).unwrap()[0].bytes, 0);
        fill(&files, &segment(2), b"second");
        assert_eq!(names(&disk), ["2.seg"]);
        assert_eq!(read_file(&disk, &segment(2)).unwrap().unwrap(), b"second");
        fill(&files, &segment(3), b"third");
        assert_eq!(names(&disk), ["2.seg", "3.seg"]);
    }

    #[test]
    fn an_existing_file_is_never_replaced() {
        let disk = SimulatedDisk::default();
        let files = files_on(&disk);
        fill(&files, &segment(1), b"first");
        fill(&files, &segment(2), b"second");
        files.remove(&segment(1)).unwrap();
        let refused = files.create(&segment(2)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(read_file(&disk, &segment(2)).unwrap().unwrap(), b"second");
    }

    #[test]
    fn only_a_few_spare_files_are_kept() {
        let disk = SimulatedDisk::default();
        let files = files_on(&disk);
        for number in 0..2 * SPARES {
            fill(&files, &segment(number), b"full");
        }
        for number in 0..2 * SPARES {
            files.remove(&segment(number)).unwrap();
        }
        assert_eq!(names(&disk).len(), SPARES);
        let gone = files.remove(&segment(0)).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_crash_while_a_segment_is_removed_leaves_all_of_it_or_nothing() {
        let removal = |crash_at: Option<u64>| {
            let disk = SimulatedDisk::with_seed(crash_at.unwrap_or_default());
            let files = files_on(&disk);
            fill(&files, &segment(1), &vec![7; MUCH]);
            let before = disk.operations();
            if let Some(crash_at) = crash_at {
                disk.crash_at(before + crash_at);
            }
            let removed = files.remove(&segment(1));
            let operations = disk.operations() - before;
            disk.restart(Death::Killed);
            (disk, removed, operations)
        };
        let (_, removed, operations) = removal(None);
        removed.unwrap();
        assert!(operations > 3);
        for crash_at in 1..=operations {
            let (disk, ..) = removal(Some(crash_at));
            let left = read_file(&disk, &segment(1)).unwrap();
            assert!(
                left.is_none_or(|content| content.len() == MUCH),
                "operation {crash_at}"
            );
        }
    }
}
