//! The few things that the log asks of a file system, so that a test can hand it a full one.
//!
//! Invariant: an [`SegmentFile::append`] that fails may have written a part. The caller cuts that
//! off again, or never appends to the file again.

use std::{
    fmt, fs,
    io::{self, IoSlice, Write as _},
    path::Path,
    sync::Arc,
};

/// A file system, as far as the log needs one for writing.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Creates a file that must not exist yet.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn SegmentFile>>;

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
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalDisk;

impl Disk for LocalDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn SegmentFile>> {
        // NOTE: in append mode a cut-off tail needs no seek before the next write.
        let file = fs::OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(path)?;
        Ok(Arc::new(LocalFile(file)))
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        fs::File::open(folder)?.sync_all()
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        let free = rustix::fs::statvfs(folder)?;
        Ok(free.f_bavail.saturating_mul(free.f_frsize))
    }
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
