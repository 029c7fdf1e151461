//! The way of one parcel to the store: to its own place, or joined with what stands there already.
//!
//! Invariant: what stands in the store is only replaced by what holds all of it. Doing it again
//! after a crash finds the object in its place, joins it with itself, and changes nothing.

use std::{io, path::Path};

use bytes::Bytes;

use super::{
    Archive, Compression, Existing, Key, Place, Put, StoreError, Trouble, uploads::Shared,
};
use crate::{
    archive::PartsError,
    line::Line,
    outbox::{Label, ParcelReader},
    reconcile::TraceId,
};

/// S3 takes parts of 5 MiB or more; what is no larger goes whole.
pub(super) const PART_BYTES: u64 = 5 * 1024 * 1024;
/// A document up to this size is joined with what came late.
pub(super) const JOINABLE_BYTES: u64 = 4 * 1024 * 1024;
/// Looking for an earlier part is given up after as many failures that nobody knows.
const LOOKS: u32 = 10;

/// Joins an earlier document with a late one, and brings the late one's line in line with it;
/// `None` if they can't be joined.
pub type Joiner = fn(earlier: &[u8], late: &[u8], line: &mut Line) -> Option<Vec<u8>>;

/// A parcel that arrived.
#[derive(Debug)]
pub(super) struct Delivered {
    pub(super) label: Label,
    pub(super) bytes: u64,
}

/// Why a parcel can't be delivered.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeliveryError {
    #[error("cannot read it back from the outbox")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Store(StoreError),
    #[error("its key {0:?} is none of a reconcile")]
    Key(String),
}

impl DeliveryError {
    /// What the store or the disk said.
    pub(super) fn detail(&self) -> String {
        match self {
            Self::Store(error) => error.detail(),
            Self::Read(error) => error.to_string(),
            Self::Key(_) => String::new(),
        }
    }
}

/// Where a parcel is to be put.
enum Target {
    /// Where nothing stands.
    Own,
    /// Beside what can't be joined with it.
    Beside(Key),
    /// In place of what it was joined with.
    Joined {
        key: Key,
        body: Bytes,
        line: Box<Line>,
    },
    /// It stands there already.
    There { key: Key, line: Box<Line> },
}

/// A parcel on its way.
struct Delivery<'s> {
    shared: &'s Shared,
    key: Key,
    trace_id: TraceId,
    parcel: ParcelReader,
}

/// Takes a parcel to the store, however long that takes.
pub(super) async fn deliver(shared: &Shared, path: &Path) -> Result<Delivered, DeliveryError> {
    let path = path.to_owned();
    let parcel = blocking(move || ParcelReader::open(&path)).await?;
    let key = &parcel.label.line.object.key;
    let Some(key) = Key::of_stored(key) else {
        return Err(DeliveryError::Key(key.clone()));
    };
    let trace_id = TraceId(parcel.label.line.trace_id.as_str().into());
    let mut delivery = Delivery {
        shared,
        key,
        trace_id,
        parcel,
    };
    delivery.run().await
}

impl Delivery<'_> {
    async fn run(&mut self) -> Result<Delivered, DeliveryError> {
        // NOTE: what is sent in parts can't be kept from replacing what stands there.
        let is_large = self.parcel.body_bytes > PART_BYTES;
        let must_look = self.parcel.label.is_fragment || is_large || !self.archive().can_create();
        let mut target = if must_look {
            self.look().await?
        } else {
            Target::Own
        };
        let mut has_looked = must_look;
        loop {
            let put = match &target {
                Target::Own => self.put_body(self.key.clone(), Place::IfFree).await?,
                Target::Beside(key) => self.put_body(key.clone(), Place::Replacing).await?,
                Target::Joined { key, body, .. } => {
                    self.put(key, body.clone(), Place::Replacing).await?
                }
                Target::There { .. } => Put::Stored,
            };
            if put == Put::Stored {
                return Ok(self.delivered(target));
            }
            // Something stands there: from before a crash, or from before a straggler.
            target = if has_looked {
                // What was looked for and not found is there: it is not ours.
                Target::Beside(self.key.of_part(self.parcel.label.fingerprint))
            } else {
                self.look().await?
            };
            has_looked = true;
        }
    }

    fn archive(&self) -> &Archive {
        self.shared.archive()
    }

    fn delivered(&self, target: Target) -> Delivered {
        let mut label = self.parcel.label.clone();
        let mut bytes = self.parcel.body_bytes;
        match target {
            Target::Own => {}
            Target::Beside(key) => label.line.object.key = key.to_string(),
            Target::Joined { key, body, line } => {
                bytes = body.len() as u64;
                label.line = *line;
                label.line.object.key = key.to_string();
            }
            Target::There { key, line } => {
                label.line = *line;
                label.line.object.key = key.to_string();
            }
        }
        label.line.object.bytes = bytes;
        Delivered { label, bytes }
    }

    /// Looks for what was stored of this reconcile before.
    async fn look(&mut self) -> Result<Target, DeliveryError> {
        let Label {
            subject,
            fingerprint,
            line,
            ..
        } = &self.parcel.label;
        let beside = |key: &Key| Target::Beside(key.of_part(*fingerprint));
        let mut tries = self.shared.first_try();
        let existing = loop {
            let found = self
                .archive()
                .find(subject, &self.trace_id, line.started_at)
                .await;
            match found {
                Ok(existing) => break existing,
                // Whoever may write need not be allowed to read.
                Err(error)
                    if error.trouble != Trouble::AccessDenied
                        && (error.trouble == Trouble::Unreachable || tries.count < LOOKS)
                        && self.shared.may_try_again(&mut tries, &error).await => {}
                Err(error) => {
                    tracing::warn!(
                        trace_id = %self.trace_id, %error,
                        "cannot look for an earlier part; what came late is stored beside it"
                    );
                    return Ok(beside(&self.key));
                }
            }
        };
        self.shared.succeeded();
        match existing {
            None => Ok(Target::Own),
            Some(Existing::Unjoinable { key }) => Ok(beside(&key)),
            Some(Existing::Document { key, document }) => {
                let beside = beside(&key);
                Ok(self.join(key, document).await?.unwrap_or(beside))
            }
        }
    }

    async fn join(&mut self, key: Key, earlier: Vec<u8>) -> Result<Option<Target>, DeliveryError> {
        if self.parcel.body_bytes > PART_BYTES {
            return Ok(None);
        }
        let body = self.body()?;
        let (join, mut line) = (self.shared.joiner(), self.parcel.label.line.clone());
        let own = Compression::of_key(self.key.as_str());
        let joining = move || {
            let Ok(late) = own.decode(&body, JOINABLE_BYTES) else {
                return Ok(None);
            };
            let Some(document) = join(&earlier, &late, &mut line) else {
                return Ok(None);
            };
            let line = Box::new(line);
            if document == earlier {
                return Ok(Some(Target::There { key, line }));
            }
            // What stands there may be of another setting's time.
            let body = Compression::of_key(key.as_str()).encode(&document)?;
            Ok(Some(Target::Joined {
                key,
                body: body.into(),
                line,
            }))
        };
        Ok(blocking(joining).await?)
    }

    /// Puts the body into a place.
    async fn put_body(&mut self, key: Key, place: Place) -> Result<Put, DeliveryError> {
        if self.parcel.body_bytes <= PART_BYTES {
            let body = self.body()?;
            return self.put(&key, body, place).await;
        }
        let mut tries = self.shared.first_try();
        loop {
            let (shared, trace_id) = (self.shared, self.trace_id.clone());
            self.parcel.rewind()?;
            let parts = || {
                let part = self.parcel.next_part(PART_BYTES)?;
                Ok(Some(Bytes::from(part)).filter(|part| !part.is_empty()))
            };
            match shared.archive().put_parts(&key, &trace_id, parts).await {
                Ok(()) => {
                    shared.succeeded();
                    return Ok(Put::Stored);
                }
                Err(PartsError::Read(error)) => return Err(error.into()),
                Err(PartsError::Store(error)) => {
                    if !shared.may_try_again(&mut tries, &error).await {
                        return Err(DeliveryError::Store(error));
                    }
                }
            }
        }
    }

    async fn put(&self, key: &Key, body: Bytes, place: Place) -> Result<Put, DeliveryError> {
        let mut tries = self.shared.first_try();
        loop {
            let put = self
                .archive()
                .put(key, &self.trace_id, body.clone(), place)
                .await;
            match put {
                Ok(put) => {
                    self.shared.succeeded();
                    return Ok(put);
                }
                Err(error) if self.shared.may_try_again(&mut tries, &error).await => {}
                Err(error) => return Err(DeliveryError::Store(error)),
            }
        }
    }

    /// The whole body, of a parcel that is no larger than a part.
    fn body(&mut self) -> io::Result<Bytes> {
        self.parcel.rewind()?;
        self.parcel.next_part(PART_BYTES).map(Bytes::from)
    }
}

/// Runs what may take a while where it holds up nobody.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}
