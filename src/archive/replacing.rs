//! Replacing an object by one that holds more, without losing what another process put there.
//!
//! Clouds replace an object only if it is still the one that was read, if asked to. Files have no
//! such thing: there a lock keeps other processes away while the file is compared and replaced.
//! Invariant: what is replaced is what was read, but for two cases that no store can prevent: a
//! store without conditional writes, and an object sent in parts (over 5 MiB). In these the object
//! is compared right before, and a write in between is lost.

use std::{
    fs::{File, TryLockError},
    io::{self, Write as _},
    path::Path as FilePath,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures_util::StreamExt as _;
use object_store::{
    Error, MultipartUpload, ObjectMeta, ObjectStoreExt as _, PutMode, UpdateVersion, path::Path,
};

use super::{
    Archive, Key, Place, Put, StoreError, failure::knows_no_conditions, local::open_beside,
};
use crate::{
    disk::{DiskFile, FileWriter},
    panics::elsewhere,
    reconcile::TraceId,
};

/// Among the objects, where all processes that share the store find it.
const LOCK: &str = "v1/replace.lock";
/// The lock is held for as long as it takes to write a file.
const LOCK_TRIES: u32 = 500;
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// Files come in pieces of 8 KiB, which is little for a trip to another thread.
const COPIED_AT_ONCE: usize = 256 * 1024;

/// Which of the objects that were at a key over time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Version {
    e_tag: Option<String>,
    /// Of stores that count them.
    number: Option<String>,
}

impl Version {
    fn of(meta: &ObjectMeta) -> Self {
        Self {
            e_tag: meta.e_tag.clone(),
            number: meta.version.clone(),
        }
    }
}

/// Keeps other processes from replacing files.
#[derive(Debug)]
pub(super) struct ReplaceLock(#[expect(dead_code, reason = "unlocks when dropped")] File);

impl Archive {
    /// Copies an object, as it is stored, to a file; returns which one that was, and its size.
    pub(super) async fn copy_to(
        &self,
        key: &Key,
        file: &Arc<dyn DiskFile>,
    ) -> Result<(Version, u64), CopyError> {
        let stored = self.store.client.get(&self.location(key.as_str())).await?;
        let version = Version::of(&stored.meta);
        let size = stored.meta.size;
        let mut pieces = stored.into_stream();
        let mut waiting = Vec::new();
        while let Some(piece) = pieces.next().await {
            waiting.extend_from_slice(&piece?);
            if waiting.len() >= COPIED_AT_ONCE {
                append(file, std::mem::take(&mut waiting)).await?;
            }
        }
        append(file, waiting).await?;
        Ok((version, size))
    }

    /// Puts an object in place of the one of this version.
    pub(super) async fn replace(
        &self,
        key: &Key,
        trace_id: &TraceId,
        body: Bytes,
        version: &Version,
    ) -> Result<Put, StoreError> {
        let location = self.location(key.as_str());
        let is_known = version.e_tag.is_some() || version.number.is_some();
        if self.abilities.can_replace.load(Ordering::Relaxed) && !self.store.is_local && is_known {
            let mode = PutMode::Update(UpdateVersion {
                e_tag: version.e_tag.clone(),
                version: version.number.clone(),
            });
            match self
                .write_reconcile(key, trace_id, body.clone(), mode)
                .await
            {
                Ok(()) => return Ok(Put::Stored),
                Err(Error::NotFound { .. }) => return Ok(Put::Occupied),
                Err(error @ Error::Precondition { .. }) => {
                    // A store may answer that whatever is there.
                    let place = Place::Instead(version.clone());
                    return if self.is_place_of(&location, &place).await? {
                        Err(StoreError::of_write(error))
                    } else {
                        Ok(Put::Occupied)
                    };
                }
                // A check has it tried again, in case the store learns it.
                Err(error) if knows_no_conditions(&error) => self.abilities.lose_replacing(),
                Err(error) => return Err(StoreError::of_write(error)),
            }
        }
        let _lock = self.lock_replacing().await?;
        let place = Place::Instead(version.clone());
        if !self.is_place_of(&location, &place).await? {
            return Ok(Put::Occupied);
        }
        let written = self.write_reconcile(key, trace_id, body, PutMode::Overwrite);
        written.await.map_err(StoreError::of_write)?;
        Ok(Put::Stored)
    }

    /// Ends an upload in parts, unless something else was put there since.
    pub(super) async fn complete(
        &self,
        location: &Path,
        place: &Place,
        upload: &mut dyn MultipartUpload,
    ) -> Result<Put, Error> {
        let _lock = self.lock_replacing().await?;
        if !self.is_place_of(location, place).await? {
            return Ok(Put::Occupied);
        }
        upload.complete().await?;
        Ok(Put::Stored)
    }

    /// Whether an object may be put there now.
    async fn is_place_of(&self, location: &Path, place: &Place) -> Result<bool, Error> {
        let expected = match place {
            Place::Replacing => return Ok(true),
            Place::IfFree => None,
            Place::Instead(version) => Some(version.clone()),
        };
        let found = match self.store.client.head(location).await {
            Ok(meta) => Some(Version::of(&meta)),
            Err(Error::NotFound { .. }) => None,
            // Whoever may write need not be allowed to read.
            Err(Error::PermissionDenied { .. }) if expected.is_none() => None,
            Err(error) => return Err(error),
        };
        Ok(found == expected)
    }

    /// Removes an object; one that is gone is fine.
    pub(super) async fn remove(&self, key: &Key) -> Result<(), StoreError> {
        match self.store.client.delete(&self.location(key.as_str())).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether there is an object.
    pub async fn has(&self, key: &Key) -> Result<bool, StoreError> {
        match self.store.client.head(&self.location(key.as_str())).await {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// To be held while a file is compared and replaced; clouds need none.
    pub(super) async fn lock_replacing(&self) -> Result<Option<ReplaceLock>, Error> {
        let Some(folder) = &self.store.folder else {
            return Ok(None);
        };
        for _ in 0..LOCK_TRIES {
            let folder = folder.clone();
            let tried = elsewhere(move || try_lock(&folder)).await;
            match tried.map_err(store_error)?? {
                Locking::Locked(lock) => return Ok(Some(lock)),
                Locking::Impossible => return Ok(None),
                Locking::Taken => tokio::time::sleep(LOCK_PAUSE).await,
            }
        }
        Err(store_error(io::ErrorKind::TimedOut.into()))
    }
}

async fn append(file: &Arc<dyn DiskFile>, bytes: Vec<u8>) -> Result<(), CopyError> {
    let mut file = FileWriter(Arc::clone(file));
    let written = elsewhere(move || file.write_all(&bytes)).await;
    written.flatten().map_err(CopyError::Write)
}

/// Why an object could not be copied to a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot write to local disk")]
    Write(#[source] io::Error),
}

impl From<Error> for CopyError {
    fn from(error: Error) -> Self {
        Self::Store(error.into())
    }
}

enum Locking {
    Locked(ReplaceLock),
    /// By somebody else.
    Taken,
    /// The file system has no locks.
    Impossible,
}

fn try_lock(folder: &FilePath) -> Result<Locking, Error> {
    let file = open_beside(folder, &Path::from(LOCK))?;
    match file.try_lock() {
        Ok(()) => Ok(Locking::Locked(ReplaceLock(file))),
        Err(TryLockError::WouldBlock) => Ok(Locking::Taken),
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
            Ok(Locking::Impossible)
        }
        Err(TryLockError::Error(error)) => Err(store_error(error)),
    }
}

fn store_error(error: io::Error) -> Error {
    Error::Generic {
        store: "LocalFileSystem",
        source: Box::new(error),
    }
}
