//! A store that somebody watches: it counts what is asked of it, denies what it is told to, and
//! lets others in between.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    path::Path,
};

/// What is asked of a store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Asked {
    Create,
    Overwrite,
    Update,
    Parts,
    Get,
    List,
    Delete,
}

#[derive(Debug)]
pub(super) struct Watched {
    inner: Arc<dyn ObjectStore>,
    asked: Mutex<Vec<Asked>>,
    denied: Mutex<Vec<Asked>>,
    /// For how often others get a turn first.
    random: Mutex<fastrand::Rng>,
}

impl Watched {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            inner,
            asked: Mutex::default(),
            denied: Mutex::default(),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
        })
    }

    pub(super) fn deny(&self, denied: &[Asked]) {
        *self.denied.lock().unwrap() = denied.to_vec();
    }

    /// What was asked since the last time.
    pub(super) fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    async fn ask(&self, what: Asked, location: &Path) -> Result<()> {
        let turns = self.random.lock().unwrap().usize(0..6);
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        self.ask_now(what, location)
    }

    fn ask_now(&self, what: Asked, location: &Path) -> Result<()> {
        self.asked.lock().unwrap().push(what);
        if self.denied.lock().unwrap().contains(&what) {
            return Err(Error::PermissionDenied {
                path: location.to_string(),
                source: "by the test".into(),
            });
        }
        Ok(())
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Watched")
    }
}

#[async_trait]
impl ObjectStore for Watched {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let asked = match &options.mode {
            PutMode::Create => Asked::Create,
            PutMode::Overwrite => Asked::Overwrite,
            PutMode::Update(_) => Asked::Update,
        };
        self.ask(asked, location).await?;
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.ask(Asked::Parts, location).await?;
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.ask(Asked::Get, location).await?;
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        match self.ask_now(Asked::Delete, &Path::default()) {
            Ok(()) => self.inner.delete_stream(locations),
            Err(error) => stream::once(std::future::ready(Err(error))).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.ask_now(Asked::List, prefix.unwrap_or(&Path::default())) {
            Ok(()) => self.inner.list(prefix),
            Err(error) => stream::once(std::future::ready(Err(error))).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
