//! The few things that the log asks of a file system, so that a test can hand it a full one.
//!
//! Invariant: an [`SegmentFile::append`] that fails may have written a part. The caller cuts that
//! off again, or never appends to the file again.

use std::{
    fmt, fs,
    io::{self, IoSlice, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::pace::breathe;

/// The ending of a file that is empty and waits to be used again.
pub(super) const SPARE: &str = "spare";
/// Empty files that wait, at most.
const SPARES: usize = 16;
/// Of a file that is emptied: a tenth of a millisecond or so.
const PIECE_BYTES: u64 = 2 * 1024 * 1024;

/// A file system, as far as the log needs one for writing.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Creates a file that must not exist yet.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn SegmentFile>>;

    /// Removes a file that nobody uses any more.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes what was created or removed in this folder durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Room that is left for files in this folder.
    fn free_bytes(&self, _folder: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

/// A file that grows at its end.
pub trait SegmentFile: fmt::Debug + Send + Sync {
    fn append(&self, parts: &mut [IoSlice<'_>]) -> io::Result<()>;
    fn truncate(&self, bytes: u64) -> io::Result<()>;
    fn sync(&self) -> io::Result<()>;
}

/// The operating system's file system.
///
/// Files that were removed are used again: where many come and go, ext4 takes half a millisecond
/// to make one, and whoever waits for an answer would wait for that.
#[derive(Debug, Default)]
pub struct LocalDisk {
    /// Where they are.
    spares: Mutex<Vec<PathBuf>>,
}

impl Disk for LocalDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn SegmentFile>> {
        // NOTE: in append mode a cut-off tail needs no seek before the next write.
        let mut options = fs::OpenOptions::new();
        options.append(true);
        let spare = self.spares().pop();
        let file = match spare.map(|spare| use_again(&spare, path, &options)) {
            Some(Ok(file)) => file,
            _ => options.create_new(true).open(path)?,
        };
        Ok(Arc::new(LocalFile(file)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if self.spares().len() < SPARES
            && let Ok(spare) = empty(path)
        {
            self.spares().push(spare);
            return Ok(());
        }
        fs::remove_file(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        fs::File::open(folder)?.sync_all()
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        let free = rustix::fs::statvfs(folder)?;
        Ok(free.f_bavail.saturating_mul(free.f_frsize))
    }
}

impl LocalDisk {
    fn spares(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes everything out of a file, piece by piece: the kernel lets nobody else have the CPU before
/// a piece is gone. Returns where the file is then.
fn empty(path: &Path) -> io::Result<PathBuf> {
    let file = fs::OpenOptions::new().append(true).open(path)?;
    let mut left = file.metadata()?.len();
    while left > 0 {
        left = left.saturating_sub(PIECE_BYTES);
        file.set_len(left)?;
        breathe();
    }
    // NOTE: ext4 writes what is in a file to disk when a file that was emptied is closed for the
    // first time after that. Now is when there is nothing in it.
    drop(file);
    let spare = path.with_extension(SPARE);
    fs::rename(path, &spare)?;
    Ok(spare)
}

/// Opens an empty file and gives it a name that no file has.
fn use_again(spare: &Path, path: &Path, options: &fs::OpenOptions) -> io::Result<fs::File> {
    let file = options.open(spare);
    let used = file.and_then(|file| {
        renameat_with(CWD, spare, CWD, path, RenameFlags::NOREPLACE)?;
        Ok(file)
    });
    // Of no use, then; the next start removes it if this does not.
    used.inspect_err(|_| drop(fs::remove_file(spare)))
}

#[derive(Debug)]
struct LocalFile(fs::File);

impl SegmentFile for LocalFile {
    fn append(&self, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            match (&self.0).write_vectored(parts) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut parts, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// More than is taken out at once.
    const MUCH: usize = 3 * 1024 * 1024;

    fn files(folder: &TempDir) -> Vec<String> {
        let entries = fs::read_dir(folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    fn fill(disk: &LocalDisk, path: &Path, content: &[u8]) {
        let file = disk.create(path).unwrap();
        file.append(&mut [IoSlice::new(content)]).unwrap();
    }

    #[test]
    fn a_file_that_was_removed_is_used_again_with_nothing_of_it_left() {
        let folder = TempDir::new().unwrap();
        let disk = LocalDisk::default();
        let [first, second, third] =
            ["1.seg", "2.seg", "3.seg"].map(|name| folder.path().join(name));
        fill(&disk, &first, &vec![7; MUCH]);
        disk.remove(&first).unwrap();
        assert_eq!(files(&folder), ["1.spare"]);
        assert_eq!(
            fs::metadata(folder.path().join("1.spare")).unwrap().len(),
            0
        );
        fill(&disk, &second, b"second");
        assert_eq!(files(&folder), ["2.seg"]);
        assert_eq!(fs::read(&second).unwrap(), b"second");
        fill(&disk, &third, b"third");
        assert_eq!(files(&folder), ["2.seg", "3.seg"]);
    }

    #[test]
    fn a_file_that_is_there_is_never_replaced() {
        let folder = TempDir::new().unwrap();
        let disk = LocalDisk::default();
        let [first, second] = ["1.seg", "2.seg"].map(|name| folder.path().join(name));
        fill(&disk, &first, b"first");
        fill(&disk, &second, b"second");
        disk.remove(&first).unwrap();
        let refused = disk.create(&second).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&second).unwrap(), b"second");
    }

    #[test]
    fn no_more_empty_files_are_kept_than_are_of_use() {
        let folder = TempDir::new().unwrap();
        let disk = LocalDisk::default();
        let paths: Vec<_> = (0..2 * SPARES)
            .map(|number| folder.path().join(format!("{number}.seg")))
            .collect();
        for path in &paths {
            fill(&disk, path, b"full");
        }
        for path in &paths {
            disk.remove(path).unwrap();
        }
        assert_eq!(files(&folder).len(), SPARES);
        let gone = disk.remove(&paths[0]).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
