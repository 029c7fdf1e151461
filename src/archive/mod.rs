//! The bucket: the only module that knows keys, compression and clients.
//!
//! It writes for the sidecar and reads for whoever asks later. Invariant: writing the same object
//! again changes nothing, so everything here may be repeated; and an object is only ever replaced
//! by one that holds all that it held.

mod beginning;
mod delivery;
mod failure;
mod identity;
mod index;
mod joining;
mod keys;
mod local;
mod object;
mod parts;
mod prune;
mod reading;
mod replacing;
mod staging;
mod standing;
mod store;
#[cfg(test)]
mod tests;
mod turns;
mod uploads;
mod variables;
mod walk;
mod writing;

use std::{collections::BTreeSet, io, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::{ObjectStore, ObjectStoreExt as _, path::Path, signer::Method};
use url::Url;

use self::{standing::Witness, writing::Abilities};

pub use self::{
    beginning::is_stored_elsewhere,
    failure::{StoreError, Trouble},
    identity::StoreIdentity,
    index::{
        IndexError, IndexJournal, IndexKey, InstanceName, Partition, Query, ReadyBatch,
        SubjectFilter,
    },
    joining::{Deadly, JoinWatch, Joiner, Joins, Opener},
    keys::Key,
    object::{Compression, ObjectWriter},
    prune::{Forget, PruneStep, Pruner, Retention},
    reading::{Inflating, StoredObject},
    replacing::Version,
    standing::{FailureNote, Standing, StandingNote},
    store::{OpenStoreError, StoreUrl, StoreUrlError},
    uploads::{Event, Listener, MAX_UPLOAD_MEMORY, Shipment, UploadError, Uploads},
    variables::Variables,
    writing::TRACE_ID_METADATA,
};
use crate::{
    reconcile::{Subject, TraceId},
    time::Timestamp,
};

/// How far apart the parts of one reconcile begin, at most: core gives it two minutes, and the clock
/// may be set meanwhile.
const REACH: Duration = Duration::from_hours(1);

/// A store that objects can be put into and read from.
#[derive(Clone, Debug)]
pub struct Archive {
    store: store::OpenStore,
    compression: Compression,
    abilities: Arc<Abilities>,
    witness: Witness,
}

/// Where an object may be put.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Place {
    /// Only where nothing stands.
    IfFree,
    /// In place of what stands there.
    Replacing,
    /// In place of this, and of nothing that was put there since.
    Instead(Version),
}

/// How putting an object ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Put {
    Stored,
    /// Something else is there.
    Occupied,
    /// Nothing was written: it turned out that the store can't be kept from replacing what stands
    /// there. Look first.
    Unguarded,
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
            abilities: Arc::default(),
            witness: Witness::default(),
        })
    }

    /// Works with a client that somebody brings, which holds nothing else.
    pub fn over(client: Arc<dyn ObjectStore>, compression: Compression) -> Self {
        Self {
            store: store::OpenStore::over(client),
            compression,
            abilities: Arc::default(),
            witness: Witness::default(),
        }
    }

    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// The objects that hold parts of this reconcile, the one that began first at the front. There
    /// is more than one only if two were stored at once, or can't be joined.
    pub async fn find(
        &self,
        subject: &Subject,
        trace_id: &TraceId,
        around: Timestamp,
    ) -> Result<Vec<Key>, StoreError> {
        // An object is in the folder of the day on which its part began.
        let days: BTreeSet<String> = [around - REACH, around, around + REACH]
            .map(|day| keys::day_folder(subject, day))
            .into();
        let mut found = Vec::new();
        for folder in days {
            let folder = self.location(&folder);
            let mut objects = self.store.client.list(Some(&folder));
            while let Some(meta) = objects.try_next().await? {
                let key = self.key_of(&meta.location);
                found.extend(key.filter(|key| key.is_of_trace(trace_id)));
            }
        }
        found.sort_unstable();
        Ok(found)
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
}
