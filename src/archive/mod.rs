//! The bucket: the only module that knows keys, compression and clients.
//!
//! It writes for the sidecar and reads for whoever asks later. Invariant: writing the same object
//! again changes nothing, so everything here may be repeated; and an object is only ever replaced
//! by one that holds all that it held.

mod delivery;
mod failure;
mod index;
mod keys;
mod object;
mod prune;
mod store;
mod uploads;
mod walk;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::{
    Attribute, Attributes, ObjectStore as _, ObjectStoreExt as _, PutMode, PutMultipartOptions,
    PutOptions, PutPayload, path::Path, signer::Method,
};
use url::Url;

pub use self::{
    delivery::Joiner,
    failure::{StoreError, Trouble},
    index::{
        IndexError, IndexJournal, IndexKey, InstanceName, Partition, Query, ReadyBatch,
        SubjectFilter,
    },
    keys::Key,
    object::{Compression, ObjectWriter},
    prune::{PruneStep, Pruner, Retention},
    store::{OpenStoreError, StoreUrl, StoreUrlError, Variables},
    uploads::{Event, Uploads},
};
use crate::{
    reconcile::{Subject, TraceId},
    time::Timestamp,
};

const DAY: Duration = Duration::from_hours(24);
/// Written at the start, to find out whether the store can be written to.
const CHECK_KEY: &str = "v1/check.json";

/// A store that objects can be put into and read from.
#[derive(Clone, Debug)]
pub struct Archive {
    store: store::OpenStore,
    compression: Compression,
    /// The store knows writes that fail if something is there.
    can_create: Arc<AtomicBool>,
}

/// Where an object may be put.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// Only where nothing stands.
    IfFree,
    /// In place of what stands there.
    Replacing,
}

/// How putting an object ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Put {
    Stored,
    /// Something stands there already.
    Occupied,
}

/// An object that stands in the store already.
#[derive(Clone, Debug)]
pub enum Existing {
    /// Its document.
    Document { key: Key, document: Vec<u8> },
    /// It is too large to be read back, or can't be read.
    Unjoinable { key: Key },
}

/// Why an object can't be read.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot decompress {key}")]
    Decompress { key: Key, source: io::Error },
}

/// Why an object could not be put part by part.
#[derive(Debug, thiserror::Error)]
pub enum PartsError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot read the next part")]
    Read(#[source] io::Error),
}

impl From<object_store::Error> for PartsError {
    fn from(error: object_store::Error) -> Self {
        Self::Store(error.into())
    }
}

impl From<object_store::Error> for FetchError {
    fn from(error: object_store::Error) -> Self {
        Self::Store(error.into())
    }
}

impl Archive {
    pub fn open(
        url: &StoreUrl,
        variables: &Variables,
        compression: Compression,
    ) -> Result<Self, OpenStoreError> {
        Ok(Self {
            store: url.open(variables)?,
            compression,
            can_create: Arc::new(AtomicBool::new(true)),
        })
    }

    /// Whether the store can be kept from replacing what stands in a place.
    pub fn can_create(&self) -> bool {
        self.can_create.load(Ordering::Relaxed)
    }

    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Finds out whether the store can be written to, by writing.
    pub async fn check(&self) -> Result<(), StoreError> {
        let path = self.location(CHECK_KEY);
        let document = Bytes::from_static(br#"{"v":1,"about":"spanplane writes here"}"#);
        let attributes = self.attributes(Compression::None, None);
        let options = PutOptions {
            attributes,
            ..PutOptions::default()
        };
        self.store
            .client
            .put_opts(&path, document.into(), options)
            .await?;
        Ok(())
    }

    /// Puts an object in its place, whole or not at all.
    pub async fn put(
        &self,
        key: &Key,
        trace_id: &TraceId,
        body: Bytes,
        place: Place,
    ) -> Result<Put, StoreError> {
        let is_conditional = place == Place::IfFree && self.can_create.load(Ordering::Relaxed);
        let mode = if is_conditional {
            PutMode::Create
        } else {
            PutMode::Overwrite
        };
        // A part that came late goes to an object that may be of another setting's time.
        let attributes = self.attributes(Compression::of_key(key.as_str()), Some(trace_id));
        let options = PutOptions {
            mode,
            attributes,
            ..PutOptions::default()
        };
        let location = self.location(key.as_str());
        let payload = PutPayload::from_bytes(body.clone());
        match self
            .store
            .client
            .put_opts(&location, payload, options)
            .await
        {
            Ok(_) => Ok(Put::Stored),
            Err(object_store::Error::AlreadyExists { .. }) if is_conditional => Ok(Put::Occupied),
            Err(error) if is_conditional && failure::is_unknown_to_store(&error) => {
                tracing::warn!("the store knows no conditional writes; it is written to without");
                self.can_create.store(false, Ordering::Relaxed);
                Box::pin(self.put(key, trace_id, body, place)).await
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Puts an object in its place part by part, in place of what stands there.
    pub async fn put_parts(
        &self,
        key: &Key,
        trace_id: &TraceId,
        mut next_part: impl FnMut() -> io::Result<Option<Bytes>> + Send,
    ) -> Result<(), PartsError> {
        let options = PutMultipartOptions {
            attributes: self.attributes(Compression::of_key(key.as_str()), Some(trace_id)),
            ..PutMultipartOptions::default()
        };
        let path = self.location(key.as_str());
        let mut upload = self.store.client.put_multipart_opts(&path, options).await?;
        let outcome = loop {
            match next_part() {
                Ok(Some(part)) => {
                    if let Err(error) = upload.put_part(PutPayload::from_bytes(part)).await {
                        break Err(error.into());
                    }
                }
                Ok(None) => break upload.complete().await.map(drop).map_err(Into::into),
                Err(error) => break Err(PartsError::Read(error)),
            }
        };
        if outcome.is_err() {
            // What can't be taken back now goes with the bucket's rule for unfinished uploads.
            if let Err(error) = upload.abort().await {
                tracing::debug!(%error, "cannot abort an upload");
            }
        }
        outcome
    }

    /// The object that holds an earlier part of this reconcile.
    pub async fn find(
        &self,
        subject: &Subject,
        trace_id: &TraceId,
        around: Timestamp,
    ) -> Result<Option<Existing>, StoreError> {
        // A reconcile that began before midnight stands in that day's folder.
        for day in [around, around - DAY] {
            let folder = self.location(&keys::day_folder(subject, day));
            let mut objects = self.store.client.list(Some(&folder));
            while let Some(meta) = objects.try_next().await? {
                let Some(key) = self.key_of(&meta.location) else {
                    continue;
                };
                if !key.is_of_trace(trace_id) {
                    continue;
                }
                if meta.size > delivery::JOINABLE_BYTES {
                    return Ok(Some(Existing::Unjoinable { key }));
                }
                return Ok(Some(
                    match self.fetch_up_to(&key, delivery::JOINABLE_BYTES).await {
                        Ok(document) => Existing::Document { key, document },
                        Err(FetchError::Store(error)) => return Err(error),
                        Err(error @ FetchError::Decompress { .. }) => {
                            tracing::warn!(%error, "cannot join with the part stored before");
                            Existing::Unjoinable { key }
                        }
                    },
                ));
            }
        }
        Ok(None)
    }

    /// An object's document, decompressed.
    pub async fn fetch(&self, key: &Key) -> Result<Vec<u8>, FetchError> {
        self.fetch_up_to(key, u64::MAX).await
    }

    /// The same, if it has no more bytes than this.
    pub async fn fetch_up_to(&self, key: &Key, limit: u64) -> Result<Vec<u8>, FetchError> {
        let stored = self
            .store
            .client
            .get(&self.location(key.as_str()))
            .await?
            .bytes()
            .await?;
        Compression::of_key(key.as_str())
            .decode(&stored, limit)
            .map_err(|source| FetchError::Decompress {
                key: key.clone(),
                source,
            })
    }

    /// Whether the store can sign addresses.
    pub fn can_sign(&self) -> bool {
        self.store.signer.is_some()
    }

    /// An address of an object that anybody can read it at for a while; `None` if the store knows
    /// no such thing.
    pub async fn sign(&self, key: &Key, lasting: Duration) -> Result<Option<Url>, StoreError> {
        let Some(signer) = &self.store.signer else {
            return Ok(None);
        };
        let location = self.location(key.as_str());
        Ok(Some(
            signer.signed_url(Method::GET, &location, lasting).await?,
        ))
    }

    /// Every reconcile's object, with its size and age, as the store lists them.
    pub async fn list(&self) -> Result<Vec<(Key, u64, Timestamp)>, StoreError> {
        let folder = self.location(keys::reconciles_folder());
        let objects = self
            .store
            .client
            .list(Some(&folder))
            .filter_map(async |meta| {
                let listed = |meta: object_store::ObjectMeta| {
                    let nanos = meta.last_modified.timestamp_nanos_opt().unwrap_or(i64::MAX);
                    Some((
                        self.key_of(&meta.location)?,
                        meta.size,
                        Timestamp::from_nanos(nanos),
                    ))
                };
                meta.map(listed).transpose()
            });
        Ok(objects.try_collect().await?)
    }

    fn location(&self, key: &str) -> Path {
        let segments = Path::from(key);
        self.store.prefix.parts().chain(segments.parts()).collect()
    }

    fn key_of(&self, location: &Path) -> Option<Key> {
        let segments = location.prefix_match(&self.store.prefix)?;
        Key::of_stored(segments.collect::<Path>().as_ref())
    }

    fn attributes(&self, compression: Compression, trace_id: Option<&TraceId>) -> Attributes {
        let mut attributes = Attributes::new();
        if self.store.is_local {
            return attributes;
        }
        attributes.insert(Attribute::ContentType, "application/json".into());
        if let Some(encoding) = compression.encoding() {
            attributes.insert(Attribute::ContentEncoding, encoding.into());
        }
        if let Some(trace_id) = trace_id {
            // NOTE: travels as an HTTP header, which takes no control characters.
            let visible = |character: &char| character.is_ascii_graphic();
            let value: String = trace_id.0.chars().filter(visible).take(128).collect();
            attributes.insert(Attribute::Metadata("trace-id".into()), value.into());
        }
        attributes
    }
}
