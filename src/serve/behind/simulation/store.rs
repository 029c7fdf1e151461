//! A store in memory whose calls fail in the ways in which real ones do, before or after they took
//! effect, that refuses some keys, and that a dead process can't reach.

use std::{
    fmt,
    sync::{
        Mutex,
        atomic::{AtomicU8, Ordering},
    },
};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, memory::InMemory,
    path::Path,
};

use crate::disk::simulated::SimulatedDisk;

#[derive(Debug)]
pub(super) struct SimulatedStore {
    pub(super) content: InMemory,
    disk: SimulatedDisk,
    /// Of 256 calls, as many fail.
    failing: AtomicU8,
    /// Of 256 objects, as many are refused as such.
    refusing: AtomicU8,
    random: Mutex<fastrand::Rng>,
}

impl SimulatedStore {
    pub(super) fn new(disk: SimulatedDisk, seed: u64) -> Self {
        Self {
            content: InMemory::new(),
            disk,
            failing: AtomicU8::new(0),
            refusing: AtomicU8::new(0),
            random: Mutex::new(fastrand::Rng::with_seed(seed ^ 0x5708)),
        }
    }

    pub(super) fn set_failing(&self, of_256: u8) {
        self.failing.store(of_256, Ordering::Relaxed);
    }

    /// Refuses some objects, by their keys.
    pub(super) fn set_refusing(&self, of_256: u8) {
        self.refusing.store(of_256, Ordering::Relaxed);
    }

    fn check(&self) -> Result<()> {
        if self.disk.is_crashed() {
            return Err(saying("connection reset"));
        }
        let mut random = self.random.lock().unwrap();
        if random.u8(..) >= self.failing.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(match random.u8(..8) {
            0 => saying("status code: 503 Service Unavailable: <Code>SlowDown</Code>"),
            1 => saying("status code: 400 Bad Request: <Code>InvalidRequest</Code>"),
            2 => saying("status code: 412 Precondition Failed"),
            3 => Error::PermissionDenied {
                path: "v1".to_owned(),
                source: "<Code>AccessDenied</Code>".into(),
            },
            4 => Error::Unauthenticated {
                path: "v1".to_owned(),
                source: "<Code>ExpiredToken</Code>".into(),
            },
            _ => saying("connection reset"),
        })
    }

    /// Writing this key.
    fn check_key(&self, key: &Path) -> Result<()> {
        self.check()?;
        let is_refused = crc32fast::hash(key.as_ref().as_bytes()).to_le_bytes()[0]
            < self.refusing.load(Ordering::Relaxed);
        if is_refused {
            return Err(saying("status code: 413: <Code>EntityTooLarge</Code>"));
        }
        Ok(())
    }
}

fn saying(what: &str) -> Error {
    Error::Generic {
        store: "simulated",
        source: what.into(),
    }
}

impl fmt::Display for SimulatedStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("simulated")
    }
}

#[async_trait]
impl ObjectStore for SimulatedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.check_key(location)?;
        let put = self.content.put_opts(location, payload, options).await?;
        // It is stored, and the answer is lost.
        self.check()?;
        Ok(put)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.check_key(location)?;
        self.content.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.check()?;
        self.content.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.content.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.check() {
            Ok(()) => self.content.list(prefix),
            Err(error) => Box::pin(futures_util::stream::once(async { Err(error) })),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.check()?;
        self.content.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.check()?;
        self.content.copy_opts(from, to, options).await
    }
}
