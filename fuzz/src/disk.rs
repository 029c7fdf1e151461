//! A disk in memory that never fails.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use spanplane::{
    disk::{DirEntry, Disk, DiskFile, DiskLock},
    time::Timestamp,
};

/// Clones share the files.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryDisk(Arc<Mutex<BTreeMap<PathBuf, MemoryFile>>>);

#[derive(Clone, Debug, Default)]
struct MemoryFile(Arc<Mutex<Vec<u8>>>);

#[derive(Debug)]
struct Lock;

impl DiskLock for Lock {}

impl MemoryDisk {
    pub(crate) fn put(&self, path: &Path, content: Vec<u8>) {
        let file = MemoryFile(Arc::new(Mutex::new(content)));
        lock(&self.0).insert(path.to_owned(), file);
    }

    pub(crate) fn content(&self, path: &Path) -> Option<Vec<u8>> {
        lock(&self.0).get(path).map(|file| lock(&file.0).clone())
    }

    fn file(&self, path: &Path) -> io::Result<MemoryFile> {
        let file = lock(&self.0).get(path).cloned();
        file.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk for MemoryDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut files = lock(&self.0);
        if files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = files.entry(path.to_owned()).or_default();
        Ok(Arc::new(file.clone()))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(self.file(path)?))
    }

    fn open_to_append(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = lock(&self.0);
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        if lock(&self.0).contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = lock(&self.0).remove(path);
        removed
            .map(drop)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<DirEntry>> {
        let files = lock(&self.0);
        let inside = files
            .iter()
            .filter(|(path, _)| path.parent() == Some(folder));
        let entries = inside.filter_map(|(path, file)| {
            Some(DirEntry {
                name: path.file_name()?.to_str()?.to_owned(),
                bytes: lock(&file.0).len() as u64,
                modified_at: Timestamp::default(),
                is_folder: false,
            })
        });
        Ok(entries.collect())
    }

    fn create_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn lock(&self, _: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        Ok(Some(Box::new(Lock)))
    }
}

impl DiskFile for MemoryFile {
    fn append(&self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut content = lock(&self.0);
        for part in parts {
            content.extend_from_slice(part);
        }
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = lock(&self.0);
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| content.get(offset..))
            .unwrap_or_default();
        let count = rest.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(rest) {
            *to = *from;
        }
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(lock(&self.0).len() as u64)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        lock(&self.0).truncate(length);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
