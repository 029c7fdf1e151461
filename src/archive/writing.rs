//! Writing to the store, with as much about each object as the store takes.
//!
//! Invariant: an object is stored even where the store refuses what is sent with it, and nothing
//! is replaced unless that was asked for or a look has shown that nothing is there.

use std::{
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use object_store::{
    Attribute, Attributes, Error, ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions,
    PutPayload, path::Path,
};
use tokio::sync::watch;

use super::{
    Archive, Compression, FailureNote, Key, PartsError, Place, Put, Standing, StoreError,
    UploadError,
    failure::{is_about_attributes, knows_no_conditions, may_be_about_attributes},
    parts::Suspects,
};
use crate::{causes::with_causes, reconcile::TraceId};

/// Written at the start, to find out whether the store can be written to.
const CHECK_KEY: &str = "v1/check.json";
const CHECK_DOCUMENT: &[u8] = br#"{"v":1,"about":"spanplane writes here"}"#;

/// The trace of a reconcile, in an object's metadata. Azure takes the names of C# variables only.
pub const TRACE_ID_METADATA: &str = "trace_id";

/// What the store did not take with an object, it is asked to take again after so long: a policy may
/// have been corrected.
const ASK_AGAIN: Duration = Duration::from_hours(1);

/// What the store turned out to be able to do.
#[derive(Debug)]
pub(super) struct Abilities {
    /// It knows writes that fail if something is there.
    can_create: AtomicBool,
    /// It knows writes that fail if the object was changed.
    pub(super) can_replace: AtomicBool,
    /// The log says that it does not.
    told_of_replacing: AtomicBool,
    /// A check wrote without knowing whether something was there.
    has_overwritten_check: AtomicBool,
    taken: Mutex<Taken>,
}

impl Default for Abilities {
    fn default() -> Self {
        Self {
            can_create: AtomicBool::new(true),
            can_replace: AtomicBool::new(true),
            told_of_replacing: AtomicBool::new(false),
            has_overwritten_check: AtomicBool::new(false),
            taken: Mutex::default(),
        }
    }
}

impl Abilities {
    /// Until a check has it tried again.
    pub(super) fn lose_replacing(&self) {
        self.can_replace.store(false, Ordering::Relaxed);
        if !self.told_of_replacing.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the store has no writes that fail if the object was changed; two sidecars that \
                 add to one reconcile at the same moment may lose a part of it"
            );
        }
    }
}

/// How much is sent with an object.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Extent {
    #[default]
    Everything,
    /// No metadata of our own.
    Headers,
    Nothing,
}

impl Extent {
    pub(super) const ALL: [Self; 3] = [Self::Everything, Self::Headers, Self::Nothing];
}

/// How much the store takes with an object.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) suspects: Suspects,
    /// And since when.
    limit: Option<(Extent, Instant)>,
    /// What the log says.
    told: Extent,
}

impl Taken {
    fn extent(&self, now: Instant) -> Extent {
        let limit = self
            .limit
            .filter(|(_, since)| now.saturating_duration_since(*since) < ASK_AGAIN);
        limit.map_or(Extent::Everything, |(extent, _)| extent)
    }

    /// It takes no more than this; tells whether that is news.
    fn lower(&mut self, extent: Extent, now: Instant) -> bool {
        if extent > self.extent(now) {
            self.limit = Some((extent, now));
        }
        let is_news = extent > self.told;
        self.told = self.told.max(extent);
        is_news
    }
}

/// What is to be sent with an object.
#[derive(Clone, Debug)]
pub(super) struct About {
    content_type: &'static str,
    content_encoding: Option<&'static str>,
    trace_id: Option<String>,
}

impl About {
    pub(super) fn content(content_type: &'static str) -> Self {
        Self {
            content_type,
            content_encoding: None,
            trace_id: None,
        }
    }

    fn reconcile(compression: Compression, trace_id: &TraceId) -> Self {
        // NOTE: travels as an HTTP header, which takes no control characters.
        let visible = |character: &char| character.is_ascii_graphic();
        Self {
            content_type: "application/json",
            content_encoding: compression.encoding(),
            trace_id: Some(trace_id.0.chars().filter(visible).take(128).collect()),
        }
    }

    fn attributes(&self, extent: Extent) -> Attributes {
        let mut attributes = Attributes::new();
        if extent == Extent::Nothing {
            return attributes;
        }
        attributes.insert(Attribute::ContentType, self.content_type.into());
        if let Some(encoding) = self.content_encoding {
            attributes.insert(Attribute::ContentEncoding, encoding.into());
        }
        if let (Extent::Everything, Some(trace_id)) = (extent, &self.trace_id) {
            let name = Attribute::Metadata(TRACE_ID_METADATA.into());
            attributes.insert(name, trace_id.clone().into());
        }
        attributes
    }
}

impl Archive {
    /// Whether the store can be kept from replacing what stands in a place.
    pub fn can_create(&self) -> bool {
        self.abilities.can_create.load(Ordering::Relaxed)
    }

    /// Whether it can also be kept from replacing what was changed.
    pub fn knows_conditions(&self) -> bool {
        self.can_create() && self.abilities.can_replace.load(Ordering::Relaxed)
    }

    /// How writing goes, from now on.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.witness.watch()
    }

    /// Parts of reconciles keep failing to be joined with what is stored of them, or none does.
    pub fn note_unjoined(&self, failure: Option<&UploadError>) {
        self.witness.note_unjoined(failure);
    }

    /// Why parts of reconciles can't be joined, from now on.
    pub fn unjoined(&self) -> watch::Receiver<Option<FailureNote>> {
        self.witness.watch_unjoined()
    }

    /// Finds out whether the store can be written to, by writing as objects are written. What was
    /// written by an earlier check stays as it is. Where that can't be seen or kept from being
    /// replaced, it is written once in a process; from then on a check finds out only whether the
    /// store has learned to write on conditions.
    pub async fn check(&self) -> Result<(), StoreError> {
        let checked = self.write_check().await.map_err(StoreError::of_write);
        self.witness.note(CHECK_KEY, &checked);
        checked
    }

    async fn write_check(&self) -> Result<(), Error> {
        let location = self.location(CHECK_KEY);
        let compressed = self.compression.encode(CHECK_DOCUMENT);
        let body = Bytes::from(compressed.map_err(|error| Error::Generic {
            store: "check",
            source: Box::new(error),
        })?);
        let about = About::reconcile(self.compression, &TraceId("check".into()));
        let created = self
            .write(&location, body.clone(), PutMode::Create, &about)
            .await;
        match created {
            Err(error) if knows_no_conditions(&error) => {
                self.lose_conditions(&error);
                let overwritten = &self.abilities.has_overwritten_check;
                if overwritten.load(Ordering::Relaxed)
                    || self.store.client.head(&location).await.is_ok()
                {
                    return Ok(());
                }
                // NOTE: in a bucket with versions, each time adds one.
                self.write(&location, body, PutMode::Overwrite, &about)
                    .await?;
                overwritten.store(true, Ordering::Relaxed);
                Ok(())
            }
            Ok(()) => {
                self.regain_conditions();
                Ok(())
            }
            Err(error @ Error::AlreadyExists { .. }) => {
                self.confirm_occupied(&location, error).await?;
                self.regain_conditions();
                Ok(())
            }
            created => created,
        }
    }

    /// A store may answer that something is there whatever it is asked to create. Then it refuses.
    async fn confirm_occupied(&self, location: &Path, answer: Error) -> Result<(), Error> {
        match self.store.client.head(location).await {
            // Whoever may write need not be allowed to read.
            Ok(_) | Err(Error::PermissionDenied { .. }) => Ok(()),
            Err(Error::NotFound { .. }) => Err(answer),
            Err(error) => Err(error),
        }
    }

    /// Puts an object in its place, whole or not at all.
    pub async fn put(
        &self,
        key: &Key,
        trace_id: &TraceId,
        body: Bytes,
        place: Place,
    ) -> Result<Put, StoreError> {
        if let Place::Instead(version) = &place {
            let put = self.replace(key, trace_id, body, version).await;
            self.witness.note(key.as_str(), &put);
            return put;
        }
        let is_conditional = place == Place::IfFree && self.can_create();
        let mode = if is_conditional {
            PutMode::Create
        } else {
            PutMode::Overwrite
        };
        let put = match self.write_reconcile(key, trace_id, body, mode).await {
            Ok(()) => Ok(Put::Stored),
            Err(error @ Error::AlreadyExists { .. }) if is_conditional => {
                let location = self.location(key.as_str());
                let confirmed = self.confirm_occupied(&location, error).await;
                confirmed
                    .map(|()| Put::Occupied)
                    .map_err(StoreError::of_write)
            }
            Err(error) if is_conditional && knows_no_conditions(&error) => {
                self.lose_conditions(&error);
                return Ok(Put::Unguarded);
            }
            Err(error) => Err(StoreError::of_write(error)),
        };
        self.witness.note(key.as_str(), &put);
        put
    }

    /// Puts an object in its place part by part. No store can be kept from replacing what was put
    /// there since, so that it is looked at right before the last step.
    pub async fn put_parts(
        &self,
        key: &Key,
        trace_id: &TraceId,
        place: Place,
        next_part: impl FnMut() -> io::Result<Option<Bytes>> + Send,
    ) -> Result<Put, PartsError> {
        let about = About::reconcile(Compression::of_key(key.as_str()), trace_id);
        let location = self.location(key.as_str());
        let outcome = self.write_parts(&location, &about, &place, next_part).await;
        let outcome = match outcome {
            Ok(put) => Ok(put),
            Err(PartsError::Store(error)) => Err(error),
            Err(error @ PartsError::Read(_)) => return Err(error),
        };
        self.witness.note(key.as_str(), &outcome);
        outcome.map_err(PartsError::Store)
    }

    async fn write_parts(
        &self,
        location: &Path,
        about: &About,
        place: &Place,
        mut next_part: impl FnMut() -> io::Result<Option<Bytes>> + Send,
    ) -> Result<Put, PartsError> {
        let (extent, mut upload) = self.begin_parts(location, about).await?;
        let outcome = loop {
            match next_part() {
                Ok(Some(part)) => {
                    if let Err(error) = upload.put_part(PutPayload::from_bytes(part)).await {
                        break Err(StoreError::of_write(error).into());
                    }
                }
                // NOTE: Azure is told about the object only now.
                Ok(None) => match self.complete(location, place, upload.as_mut()).await {
                    Ok(put) => {
                        self.parts_stored(location);
                        break Ok(put);
                    }
                    Err(error) => {
                        self.parts_failed(location, about, extent, &error);
                        break Err(StoreError::of_write(error).into());
                    }
                },
                Err(error) => break Err(PartsError::Read(error)),
            }
        };
        if !matches!(outcome, Ok(Put::Stored)) {
            // What can't be taken back now goes with the bucket's rule for unfinished uploads.
            if let Err(error) = upload.abort().await {
                tracing::debug!(%error, "cannot abort an upload");
            }
        }
        outcome
    }

    /// Puts something that is no reconcile in its place, in place of what stands there.
    pub(super) async fn put_as(
        &self,
        key: &str,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<(), StoreError> {
        let (location, about) = (self.location(key), About::content(content_type));
        let written = self.write(&location, body, PutMode::Overwrite, &about);
        let written = written.await.map_err(StoreError::of_write);
        self.witness.note(key, &written);
        written
    }

    /// Writes an object of a reconcile, whatever is there.
    pub(super) async fn write_reconcile(
        &self,
        key: &Key,
        trace_id: &TraceId,
        body: Bytes,
        mode: PutMode,
    ) -> Result<(), Error> {
        // The object may be of another setting's time.
        let about = About::reconcile(Compression::of_key(key.as_str()), trace_id);
        let location = self.location(key.as_str());
        self.write(&location, body, mode, &about).await
    }

    /// Writes with all that is to be said about an object, or with less if the store refuses that.
    async fn write(
        &self,
        location: &Path,
        body: Bytes,
        mode: PutMode,
        about: &About,
    ) -> Result<(), Error> {
        let extent = self.extent();
        let is_conditional = mode != PutMode::Overwrite;
        let mut refused: Option<(Attributes, Error)> = None;
        for fewer in Extent::ALL.into_iter().filter(|fewer| *fewer >= extent) {
            let attributes = self.attributes(about, fewer);
            if refused
                .as_ref()
                .is_some_and(|(sent, _)| *sent == attributes)
            {
                continue;
            }
            let put = self.write_once(location, body.clone(), mode.clone(), about, fewer);
            match put.await {
                Err(error)
                    if !attributes.is_empty()
                        && may_be_about_attributes(&error, is_conditional) =>
                {
                    refused = Some((attributes, refused.map_or(error, |(_, first)| first)));
                }
                put => {
                    let is_taken = matches!(put, Ok(()) | Err(Error::AlreadyExists { .. }));
                    return match refused {
                        Some((_, error)) if is_taken => {
                            let again = self.write_once(location, body, mode, about, extent);
                            if is_about_attributes(&error)
                                || again.await.is_err_and(|again| {
                                    may_be_about_attributes(&again, is_conditional)
                                })
                            {
                                self.send_less(fewer, &error);
                            }
                            put
                        }
                        // What it said about all that was to be sent says most.
                        Some((_, error)) => Err(error),
                        None => put,
                    };
                }
            }
        }
        refused.map_or(Ok(()), |(_, error)| Err(error))
    }

    async fn write_once(
        &self,
        location: &Path,
        body: Bytes,
        mode: PutMode,
        about: &About,
        extent: Extent,
    ) -> Result<(), Error> {
        let options = PutOptions {
            mode,
            attributes: self.attributes(about, extent),
            ..PutOptions::default()
        };
        let payload = PutPayload::from_bytes(body);
        let put = self.store.client.put_opts(location, payload, options);
        put.await.map(drop)
    }

    pub(super) fn attributes(&self, about: &About, extent: Extent) -> Attributes {
        // Files hold no Content-Type.
        let extent = if self.store.is_local {
            Extent::Nothing
        } else {
            extent
        };
        about.attributes(extent)
    }

    pub(super) fn extent(&self) -> Extent {
        self.with_taken(|taken| taken.extent(Instant::now()))
    }

    pub(super) fn with_taken<T>(&self, work: impl FnOnce(&mut Taken) -> T) -> T {
        let taken = self.abilities.taken.lock();
        work(&mut taken.unwrap_or_else(PoisonError::into_inner))
    }

    /// The store takes no more than this with an object.
    pub(super) fn send_less(&self, extent: Extent, error: &Error) {
        if self.with_taken(|taken| taken.lower(extent, Instant::now())) {
            let left_out = match extent {
                Extent::Nothing => "their content type and metadata",
                Extent::Everything | Extent::Headers => "their metadata",
            };
            tracing::warn!(
                detail = %one_line(error),
                "the store refuses what is sent with objects; they are stored without {left_out}, \
                 and it is asked again every hour"
            );
        }
    }

    /// Whether the store also knows how to replace on a condition only a write can tell.
    fn regain_conditions(&self) {
        self.abilities.can_create.store(true, Ordering::Relaxed);
        self.abilities.can_replace.store(true, Ordering::Relaxed);
    }

    /// Every place is looked at before it is written to, until a check finds that there is no need.
    fn lose_conditions(&self, error: &Error) {
        if self.abilities.can_create.swap(false, Ordering::Relaxed) {
            tracing::warn!(
                detail = one_line(error),
                "the store has no writes that fail if the object exists; each place is looked at \
                 before it is written to"
            );
        }
    }
}

fn one_line(error: &Error) -> String {
    with_causes(error).replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn a_check_has_conditional_writes_tried_again() {
        let archive = Archive::over(Arc::new(InMemory::new()), Compression::None);
        archive.abilities.lose_replacing();
        assert!(!archive.knows_conditions());
        archive.check().await.unwrap();
        assert!(archive.knows_conditions());
    }

    #[test]
    fn what_a_store_did_not_take_it_is_asked_to_take_again_after_an_hour() {
        let (mut taken, now) = (Taken::default(), Instant::now());
        assert_eq!(taken.extent(now), Extent::Everything);
        assert!(taken.lower(Extent::Nothing, now));
        let later = now + ASK_AGAIN / 2;
        assert!(!taken.lower(Extent::Headers, later));
        assert_eq!(taken.extent(later), Extent::Nothing);
        let later = now + ASK_AGAIN;
        assert_eq!(taken.extent(later), Extent::Everything);
        // It still does not, which was told already.
        assert!(!taken.lower(Extent::Headers, later));
        assert_eq!(taken.extent(later), Extent::Headers);
    }
}
