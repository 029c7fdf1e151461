//! The file system, as far as the data directory needs one.
//!
//! Everything that has to survive a crash (the spool, the outbox, the history) is read and written
//! through [`Disk`], so that a test can crash the program at any of these calls and look at what
//! is left. [`LocalDisk`] is the operating system's.
//!
//! Invariant: an [`DiskFile::append`] that fails may have written a part. The caller truncates the
//! file again, or never appends to it again.

mod local;
mod reserve;
#[cfg(test)]
pub(crate) mod simulated;

use std::{
    fmt,
    io::{self, IoSlice, Read, Write},
    path::Path,
    sync::Arc,
};

pub use self::{local::LocalDisk, reserve::Reserve};
use crate::time::Timestamp;

/// What file systems hand out, usually.
const BLOCK_BYTES: u64 = 4096;

/// What a file of this length takes on disk: whole blocks. An outage leaves thousands of small
/// files, and the volume's limit counts blocks.
pub fn disk_use(length: u64) -> u64 {
    length
        .checked_next_multiple_of(BLOCK_BYTES)
        .unwrap_or(length)
}

/// Whether a write failed for want of space: the disk is full, or a quota on it is used up.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// A disk that several stages share.
pub type SharedDisk = Arc<dyn Disk>;

/// A file system.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Creates a file that must not exist yet, open for appending and reading.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file that exists for appending and reading.
    fn open_to_append(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file, replacing the one that has the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Renames a file; fails if the new name is taken.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    /// What is in a folder, in no particular order.
    fn list(&self, folder: &Path) -> io::Result<Vec<DirEntry>>;

    /// Creates a folder and those above it, unless they exist.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;

    /// Makes the names in a folder survive a power failure.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Space left for files in this folder.
    fn free_bytes(&self, folder: &Path) -> io::Result<u64>;

    /// Locks a file, creating it if necessary, for as long as the lock is held; `None` if another
    /// process holds it.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>>;
}

/// A file that grows at its end.
pub trait DiskFile: fmt::Debug + Send + Sync {
    fn append(&self, parts: &mut [IoSlice<'_>]) -> io::Result<()>;

    /// Reads at most as many bytes as fit into the buffer; 0 at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    fn length(&self) -> io::Result<u64>;

    fn truncate(&self, bytes: u64) -> io::Result<()>;

    /// Makes what was appended survive a power failure.
    fn sync(&self) -> io::Result<()>;
}

/// Held until it is dropped.
pub trait DiskLock: fmt::Debug + Send + Sync {}

/// What a folder contains.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DirEntry {
    pub name: String,
    pub bytes: u64,
    pub modified_at: Timestamp,
    pub is_folder: bool,
}

impl dyn DiskFile {
    /// Fills the whole buffer.
    pub fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, offset)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => {
                    buffer = buffer.get_mut(read..).unwrap_or_default();
                    offset += read as u64;
                }
            }
        }
        Ok(())
    }
}

/// Reads a file from a position on.
#[derive(Clone, Debug)]
pub struct FileReader {
    file: Arc<dyn DiskFile>,
    position: u64,
}

impl FileReader {
    pub fn new(file: Arc<dyn DiskFile>) -> Self {
        Self { file, position: 0 }
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    pub fn seek_to(&mut self, position: u64) {
        self.position = position;
    }
}

impl Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

/// Appends to a file.
#[derive(Clone, Debug)]
pub struct FileWriter(pub Arc<dyn DiskFile>);

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.append(&mut [IoSlice::new(bytes)])?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The whole content of a file; `None` if there is no such file.
pub fn read_file(disk: &dyn Disk, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut content = Vec::new();
    FileReader::new(file).read_to_end(&mut content)?;
    Ok(Some(content))
}

/// Removes a file that may be gone already.
pub fn remove_if_there(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_that_is_used_up_is_a_full_disk() {
        const EIO: i32 = 5;
        const ENOSPC: i32 = 28;
        const EDQUOT: i32 = 122;
        let is_full = |errno| is_full(&io::Error::from_raw_os_error(errno));
        assert!(is_full(ENOSPC) && is_full(EDQUOT));
        assert!(!is_full(EIO));
    }
}
