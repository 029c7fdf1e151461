//! One try to take a parcel to the store: to its own place, or joined with what is there of its
//! reconcile.
//!
//! Most parcels are whole reconciles that ended a moment ago: these are created in their place
//! unseen. Everything else looks for other parts of its reconcile before and after it is written, so
//! that of two that were stored at once at least one finds the other; these are merged into the
//! object that began first. A part whose beginning is not there waits for it, for longer than a
//! beginning may be created unseen. If it has no object, since the previous reconcile was the same,
//! its entry in the index says which object it is equal to.
//!
//! Invariant: what is in the store is only replaced or removed once another object holds all of it.
//! What is to be removed is first replaced by a note of where it went, on condition that nobody
//! added to it; nobody ever adds to such a note. Doing it again after a failure or a crash finds the
//! object in its place, joins it with itself, and changes nothing.

use std::{io, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;

use super::{
    Archive, Compression, Key, Place, Put, StoreError, Trouble,
    joining::{Deadly, Joined, Joining, StoredFile},
    replacing::{CopyError, Version},
    uploads::{Shared, Shipment, UploadError},
};
use crate::{
    archive::PartsError,
    disk::{DiskFile, FileReader},
    line::Line,
    outbox::{Label, ParcelReader},
    panics::elsewhere,
    reconcile::TraceId,
};

/// S3 takes parts of 5 MiB or more; what is no larger goes whole.
pub(super) const PART_BYTES: u64 = 5 * 1024 * 1024;
/// A reconcile that ended longer ago may not be created unseen: a part of it may have been stored
/// without it.
const FRESH: Duration = Duration::from_secs(10);
/// A part without its beginning waits this long for it: until the last request that may have been
/// made for it while it was fresh is over.
const PATIENCE: Duration = Duration::from_secs(90);
/// One whose beginning is equal to another reconcile waits this long for the object of that one: for
/// as long as anything may be equal to it.
const LINKED: Duration = Duration::from_hours(24);
/// Looking for other parts is given up if the store still refuses it after as many tries.
const LOOKS: u32 = 10;
/// After as many tries, some five minutes with the usual pauses, whoever may not list or read never
/// may. Until then credentials may be renewed, or a policy put right.
pub(super) const DENIALS: u32 = 12;
/// Others may change a reconcile's objects as often while a part is added.
const ROUNDS: u32 = 16;

/// A parcel that arrived.
#[derive(Debug)]
pub(super) struct Delivered {
    pub(super) label: Label,
    pub(super) bytes: u64,
    /// The object holds what somebody else stored too, or already held all of it.
    pub(super) is_joined: bool,
    /// It already held all of it: who stored it notes that in the index.
    pub(super) was_held: bool,
}

/// A parcel on its way.
struct Delivery<'s> {
    shared: &'s Shared,
    shipment: &'s Shipment,
    key: Key,
    trace_id: TraceId,
    label: Label,
    body: StoredFile,
    /// Objects of the same reconcile that can't be read or joined.
    unjoinable: Vec<Key>,
    /// Those that another object holds all of, and that could not be removed.
    leftovers: Vec<Key>,
    /// This try merged two objects into one, and nobody else notes that.
    has_folded: bool,
}

/// An object of the store, copied to local disk.
struct Copied {
    version: Version,
    object: StoredFile,
}

/// Tries to take a parcel to the store.
pub(super) async fn deliver(
    shared: &Shared,
    shipment: &Shipment,
) -> Result<Delivered, UploadError> {
    let (disk, path) = (Arc::clone(shared.disk()), shipment.path.clone());
    let parcel = blocking(move || ParcelReader::open(disk.as_ref(), &path)).await?;
    let key = &parcel.label.line.object.key;
    let Some(key) = Key::of_stored(key) else {
        return Err(UploadError::Key(key.clone()));
    };
    let compression = Compression::of_key(key.as_str());
    let trace_id = TraceId(parcel.label.line.trace_id.as_str().into());
    let _turn = shared.turn_of(&trace_id).await;
    let mut delivery = Delivery {
        shared,
        shipment,
        key,
        trace_id,
        body: StoredFile::new(parcel.body(), parcel.body_bytes, compression)
            .with_crc32(parcel.body_crc32),
        label: parcel.label,
        unjoinable: Vec::new(),
        leftovers: Vec::new(),
        has_folded: false,
    };
    delivery.run().await
}

impl Delivery<'_> {
    async fn run(&mut self) -> Result<Delivered, UploadError> {
        let own = self.key.clone();
        let mut is_occupied = false;
        let mut written = None;
        if self.may_create_first() {
            if self.put_body(&own, Place::IfFree).await? == Put::Stored {
                if self.is_fresh() && !self.shared.is_draining() {
                    return Ok(self.delivered(&own));
                }
                written = Some(self.delivered(&own));
            } else {
                // Something is there: from before a crash, or from before a straggler. Or the store
                // can't be kept from replacing it.
                is_occupied = self.archive().can_create();
            }
        }
        for _ in 0..ROUNDS {
            let found = match self.look(is_occupied).await {
                Ok(Some(found)) => found,
                Ok(None) if written.is_none() => return self.store_unread().await,
                Ok(None) | Err(UploadError::Early) if let Some(delivered) = written => {
                    return Ok(delivered);
                }
                Ok(None) => return Err(UploadError::Early),
                Err(error) => return Err(error),
            };
            written = match (&found[..], written.take()) {
                ([only], Some(delivered)) if is_at(&delivered, only) => return Ok(delivered),
                // Some stores list what is new a little later.
                ([], Some(delivered)) if self.is_there(&delivered).await? => return Ok(delivered),
                ([], _) if !self.unjoinable.is_empty() => return self.store_beside().await,
                ([], _) => {
                    if self.waits_for_its_beginning() {
                        return Err(UploadError::Early);
                    }
                    match self.join_noted_beginning().await? {
                        Some(Step::Done(delivered) | Step::Written(delivered)) => Some(*delivered),
                        Some(Step::Again) => None,
                        None => {
                            let put = self.put_body(&own, Place::IfFree).await?;
                            is_occupied |= put == Put::Occupied;
                            (put == Put::Stored).then(|| self.delivered(&own))
                        }
                    }
                }
                // The next reconcile may be equal to this one, and says that it is in this place.
                ([first, ..], None) if self.belongs_before(first) => {
                    let put = self.put_body(&own, Place::IfFree).await?;
                    (put == Put::Stored).then(|| self.delivered(&own))
                }
                ([first], _) => match self.join(first).await? {
                    Step::Done(delivered) => return Ok(*delivered),
                    Step::Written(delivered) => Some(*delivered),
                    Step::Again => None,
                },
                ([first, other, ..], _) => {
                    self.fold(first, other).await?;
                    None
                }
            };
        }
        Err(UploadError::Contended)
    }

    fn archive(&self) -> &Archive {
        self.shared.archive()
    }

    /// Whether this can be stored before anybody looks for other parts: there should be none, or
    /// there is no time to look twice.
    fn may_create_first(&self) -> bool {
        // NOTE: what is sent in parts can't be kept from replacing what is there.
        !self.label.is_fragment
            && !self.shipment.is_retried
            && self.body.bytes <= PART_BYTES
            && self.archive().can_create()
            // What an earlier process received it may have stored.
            && self.label.line.started_at >= self.shared.started_at()
            && (self.is_fresh() || self.shared.is_draining())
    }

    /// Whether this is the beginning of what is stored in that place, and not stored itself.
    fn belongs_before(&self, first: &Key) -> bool {
        !self.label.is_fragment && self.key < *first && !self.unjoinable.contains(&self.key)
    }

    /// Whether no part of this reconcile can have been stored without it.
    fn is_fresh(&self) -> bool {
        self.age() <= FRESH
    }

    /// How long ago it ended. A clock that was ahead makes nothing young for ever.
    fn age(&self) -> Duration {
        let (now, ended_at) = (self.shared.now(), self.label.line.ended_at);
        now.since(ended_at).max(ended_at.since(now))
    }

    /// Whether the beginning of this reconcile may still come. While stopping there is time for
    /// one that another sidecar is about to store, and for no more.
    ///
    /// NOTE: measured from the first try and not from when the part ended: the clock may have been
    /// set meanwhile.
    fn waits_for_its_beginning(&self) -> bool {
        self.label.is_fragment
            && self.label.beginning.is_none()
            && self.shipment.failing_for < PATIENCE
            && self.shared.may_wait()
    }

    /// The parcel as it is, in this place.
    fn delivered(&self, key: &Key) -> Delivered {
        Delivered {
            is_joined: false,
            was_held: false,
            ..self.delivered_as(key, self.label.line.clone(), self.body.bytes)
        }
    }

    fn delivered_as(&self, key: &Key, line: Line, bytes: u64) -> Delivered {
        let mut label = Label {
            line,
            ..self.label.clone()
        };
        label.line.object.key = key.to_string();
        label.line.object.bytes = bytes;
        Delivered {
            label,
            bytes,
            is_joined: true,
            was_held: false,
        }
    }

    /// The objects that hold parts of this reconcile; `None` if that can't be found out.
    async fn look(&self, is_occupied: bool) -> Result<Option<Vec<Key>>, UploadError> {
        let started_at = self.label.line.started_at;
        let found = self
            .archive()
            .find(&self.label.subject, &self.trace_id, started_at)
            .await;
        let mut found = match found {
            Ok(found) => found,
            Err(error) if self.may_be_allowed_later(&error) => return Err(UploadError::Early),
            Err(error) if self.may_look_again(&error) => return Err(self.shared.failed(error)),
            Err(_) if is_occupied => vec![self.key.clone()],
            Err(_) => return Ok(None),
        };
        found.retain(|key| !self.unjoinable.contains(key) && !self.leftovers.contains(key));
        Ok(Some(found))
    }

    /// Credentials may be out of date for a while; whoever is denied again and again may not read.
    fn may_be_allowed_later(&self, error: &StoreError) -> bool {
        error.trouble == Trouble::AccessDenied && self.shipment.tries < DENIALS
    }

    fn may_look_again(&self, error: &StoreError) -> bool {
        // Whoever may write need not be allowed to list, or to read.
        let is_denied = error.trouble == Trouble::AccessDenied;
        !(is_denied || error.is_refusal() && self.shipment.tries >= LOOKS)
    }

    async fn is_there(&self, delivered: &Delivered) -> Result<bool, UploadError> {
        let key = Key::of_stored(&delivered.label.line.object.key);
        match key {
            Some(key) => self
                .archive()
                .has(&key)
                .await
                .map_err(|it| self.shared.failed(it)),
            None => Ok(false),
        }
    }

    /// Stores the parcel without knowing what else is there of its reconcile.
    async fn store_unread(&mut self) -> Result<Delivered, UploadError> {
        let own = self.key.clone();
        // What is sent in parts would replace what is there.
        let may_create = !self.label.is_fragment && self.body.bytes <= PART_BYTES;
        if may_create && self.put_body(&own, Place::IfFree).await? == Put::Stored {
            return Ok(self.delivered(&own));
        }
        self.unjoinable.push(own);
        self.store_beside().await
    }

    /// Stores the parcel beside what it can't be joined with.
    async fn store_beside(&mut self) -> Result<Delivered, UploadError> {
        tracing::warn!(
            trace_id = %self.trace_id,
            "a part of a reconcile is stored as an object of its own: what is stored of it can't be \
             read, or is damaged"
        );
        let whole = self.unjoinable.first().unwrap_or(&self.key);
        let beside = whole.of_part(self.label.fingerprint);
        self.put_body(&beside, Place::Replacing).await?;
        Ok(self.delivered(&beside))
    }

    /// Joins the parcel with an object.
    async fn join(&mut self, key: &Key) -> Result<Step, UploadError> {
        let Some(Copied { version, object }) = self.copy(key).await? else {
            return Ok(Step::Again);
        };
        let stored_bytes = object.bytes;
        let late = self.body.clone();
        Ok(match self.join_files(object, late, None, false).await? {
            Joined::Unjoinable => {
                self.unjoinable.push(key.clone());
                Step::Again
            }
            Joined::Held(line) => Step::Done(Box::new(Delivered {
                was_held: !self.has_folded,
                ..self.delivered_as(key, *line, stored_bytes)
            })),
            Joined::Merged(line, mut merged) => {
                let put = self.put_merged(key, &mut merged, version).await?;
                match put {
                    Put::Stored => {
                        Step::Written(Box::new(self.delivered_as(key, *line, merged.bytes)))
                    }
                    Put::Occupied | Put::Unguarded => Step::Again,
                }
            }
        })
    }

    /// Stores the parcel together with its beginning, if that has no object of its own because it
    /// was the same as the previous reconcile.
    async fn join_noted_beginning(&mut self) -> Result<Option<Step>, UploadError> {
        if !self.label.is_fragment {
            return Ok(None);
        }
        let Some(beginning) = self.unstored_beginning().await? else {
            return Ok(None);
        };
        let Some(source) = Key::of_stored(&beginning.object.key) else {
            return Ok(None);
        };
        let copied = self.copy(&source).await?;
        // It is of another reconcile: nothing goes beside it.
        self.unjoinable.retain(|key| *key != source);
        let object = match copied {
            Some(Copied { object, .. }) => object,
            // It waits in the same outbox, or in quarantine.
            None if self.age() < LINKED => return Err(UploadError::Early),
            None => return Ok(None),
        };
        let key = Key::of_reconcile(
            &self.label.subject,
            &self.trace_id,
            beginning.started_at,
            Compression::of_key(source.as_str()),
        );
        let late = self.body.clone();
        let joined = self.join_files(object, late, Some(beginning), true).await?;
        let Joined::Merged(line, mut merged) = joined else {
            return Ok(None);
        };
        let put = self.put_file(&key, &mut merged, Place::IfFree).await;
        let put = put.map_err(|error| self.merged_failed(error))?;
        Ok(Some(match put {
            Put::Stored => Step::Written(Box::new(self.delivered_as(&key, *line, merged.bytes))),
            Put::Occupied | Put::Unguarded => Step::Again,
        }))
    }

    /// The line of the beginning that has no object of its own.
    async fn unstored_beginning(&self) -> Result<Option<Line>, UploadError> {
        if let Some(beginning) = &self.label.beginning {
            return Ok(Some(beginning.as_ref().clone()));
        }
        let around = self.label.line.started_at;
        match self.archive().noted_beginning(&self.trace_id, around).await {
            Ok(beginning) => Ok(beginning),
            Err(error) if self.may_look_again(&error) => Err(self.shared.failed(error)),
            Err(_) => Ok(None),
        }
    }

    /// Merges an object into another one of the same reconcile, and removes it.
    async fn fold(&mut self, into: &Key, other: &Key) -> Result<(), UploadError> {
        let (earlier, late) = (self.copy(into).await?, self.copy(other).await?);
        let (Some(earlier), Some(late)) = (earlier, late) else {
            return Ok(());
        };
        if late.object.is_note() {
            // NOTE: what is stored here meanwhile is not lost. Whoever stores a part looks again
            // after that, finds the object that the note names, and adds the part to it.
            self.remove(other).await;
            return Ok(());
        }
        let merged = self.join_files(earlier.object, late.object, None, true);
        let merged = merged.await?;
        let Joined::Merged(_, mut merged) = merged else {
            self.leftovers.push(other.clone());
            return Ok(());
        };
        let put = self.put_merged(into, &mut merged, earlier.version).await?;
        if put != Put::Stored {
            return Ok(());
        }
        self.has_folded = true;
        let note = note_of_move(other, into).map_err(UploadError::Join)?;
        let place = Place::Instead(late.version);
        let archive = self.archive();
        let put = archive.put(other, &self.trace_id, note, place).await;
        if put.map_err(|error| self.shared.failed(error))? != Put::Stored {
            return Ok(());
        }
        self.remove(other).await;
        Ok(())
    }

    /// Removes an object that another one holds all of.
    async fn remove(&mut self, key: &Key) {
        if let Err(error) = self.archive().remove(key).await {
            tracing::warn!(
                %key, %error, detail = error.detail(),
                "cannot remove an object whose content was moved to another one"
            );
            self.leftovers.push(key.clone());
        }
    }

    /// Copies an object to local disk; `None` if it is gone, or must not be read.
    async fn copy(&mut self, key: &Key) -> Result<Option<Copied>, UploadError> {
        let scratch = self.scratch().map_err(UploadError::Join)?;
        let compression = Compression::of_key(key.as_str());
        match self.archive().copy_to(key, &scratch).await {
            Ok((version, bytes)) => Ok(Some(Copied {
                version,
                object: StoredFile::new(FileReader::new(scratch), bytes, compression),
            })),
            Err(CopyError::Store(error)) if error.is_not_found() => Ok(None),
            Err(CopyError::Store(error)) if self.may_be_allowed_later(&error) => {
                Err(UploadError::Early)
            }
            Err(CopyError::Store(error)) if error.trouble == Trouble::AccessDenied => {
                self.unjoinable.push(key.clone());
                Ok(None)
            }
            Err(CopyError::Store(error)) => Err(self.shared.failed(error)),
            Err(CopyError::Write(error)) => Err(UploadError::Join(error)),
        }
    }

    async fn join_files(
        &self,
        earlier: StoredFile,
        late: StoredFile,
        beginning: Option<Line>,
        is_stored: bool,
    ) -> Result<Joined, UploadError> {
        let joining = Joining {
            joins: self.shared.joins().clone(),
            parcel: self.shipment.parcel,
            beginning,
            is_stored,
            is_urgent: self.shared.is_draining(),
        };
        let scratch = self.scratch().map_err(UploadError::Join)?;
        let line = self.label.line.clone();
        let _turn = self.shared.turn_to_join().await;
        let panics = self.shared.panics().clone();
        let joined =
            blocking(move || joining.run_watched(&panics, &earlier, &late, &line, scratch));
        match joined.await {
            Ok(Ok(joined)) => Ok(joined),
            Ok(Err(Deadly { deaths })) => Err(UploadError::Deadly(deaths)),
            Err(error) => Err(UploadError::Join(error)),
        }
    }

    fn scratch(&self) -> io::Result<Arc<dyn DiskFile>> {
        let folder = self.shipment.path.parent();
        self.shared.scratch(folder.unwrap_or(Path::new("")))
    }

    /// Puts the parcel into a place.
    async fn put_body(&self, key: &Key, place: Place) -> Result<Put, UploadError> {
        match self.put_file(key, &mut self.body.clone(), place).await {
            Ok(put) => Ok(put),
            Err(PartsError::Read(error)) => Err(error.into()),
            Err(PartsError::Store(error)) => Err(self.shared.failed(error)),
        }
    }

    /// Puts what was joined in place of what it was joined with.
    async fn put_merged(
        &self,
        key: &Key,
        merged: &mut StoredFile,
        version: Version,
    ) -> Result<Put, UploadError> {
        let put = self.put_file(key, merged, Place::Instead(version)).await;
        put.map_err(|error| self.merged_failed(error))
    }

    fn merged_failed(&self, error: PartsError) -> UploadError {
        match error {
            PartsError::Read(error) => UploadError::Join(error),
            PartsError::Store(error) => self.shared.failed(error),
        }
    }

    async fn put_file(
        &self,
        key: &Key,
        file: &mut StoredFile,
        place: Place,
    ) -> Result<Put, PartsError> {
        file.rewind();
        if file.bytes <= PART_BYTES {
            let body = file.next_part(PART_BYTES).map_err(PartsError::Read)?;
            let put = self
                .archive()
                .put(key, &self.trace_id, body.into(), place)
                .await;
            return Ok(put?);
        }
        let parts = || {
            let part = file.next_part(PART_BYTES)?;
            Ok(Some(Bytes::from(part)).filter(|part| !part.is_empty()))
        };
        self.archive()
            .put_parts(key, &self.trace_id, place, parts)
            .await
    }
}

/// How adding to an object went.
enum Step {
    /// It was there already.
    Done(Box<Delivered>),
    /// It is there now; others may have stored something at the same time.
    Written(Box<Delivered>),
    /// The object was changed or is gone, or nothing can be added to it.
    Again,
}

fn is_at(delivered: &Delivered, key: &Key) -> bool {
    delivered.label.line.object.key == key.as_str()
}

/// What stands in place of an object between its move and its removal.
fn note_of_move(from: &Key, to: &Key) -> io::Result<Bytes> {
    let note = serde_json::json!({"v": 1, "moved_to": to.as_str()}).to_string();
    let note = Compression::of_key(from.as_str()).encode(note.as_bytes())?;
    Ok(note.into())
}

/// Runs what may take a while where it holds up nobody.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    elsewhere(work).await?
}
