//! Retrying: an upload that failed is tried again later, or set aside if the store will not have it.
//!
//! Invariant: only what can't be read back from local disk is lost here. What the store refuses
//! while it takes others of the same kind goes to the quarantine, and so does what can't be sent as
//! it is; everything else is tried again, for as long as the disk holds it. An answer that may not be
//! about the upload pushes nothing out of a full quarantine.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::{
    Desk,
    dispatching::{Refusal, StoredIndex, Upload},
};
use crate::{
    archive::{ReadyBatch, StoreError, Trouble, UploadError},
    metrics::ObjectLoss,
    outbox::ParcelId,
};

/// The store takes such things if it did so this long before one of them was first refused.
const LATELY: Duration = Duration::from_mins(5);
/// An answer that may be about the store or about this upload is believed to be about the upload if
/// it came this often while others passed.
const REFUSALS: u32 = 5;
/// The log names an upload that failed this often.
const NAMED_AFTER: u32 = 10;

/// An upload that can't be joined with what is stored of its reconcile is shown after so many tries.
const UNJOINED_AFTER: u32 = 3;

/// What is known of the store.
#[derive(Debug, Default)]
pub(super) struct StoreCondition {
    /// Uploads that keep failing to be joined with what is stored of their reconciles.
    unjoined: BTreeSet<Upload>,
    /// What the log says is wrong.
    told: Vec<Trouble>,
    object_stored_at: Option<Instant>,
    index_stored_at: Option<Instant>,
    /// Uploads that the store refused, and did nothing else with since.
    refused: BTreeMap<Upload, Refused>,
}

/// How an upload was refused, time and again.
#[derive(Clone, Copy, Debug)]
struct Refused {
    times: u32,
    since: Instant,
}

impl Desk {
    /// An upload ended.
    pub(super) fn note_success(&mut self, upload: &Upload) {
        let now = self.instant();
        match upload {
            Upload::Object(_) => self.store.object_stored_at = Some(now),
            Upload::Index(_) => self.store.index_stored_at = Some(now),
        }
        self.joined(upload);
        self.store.refused.remove(upload);
        self.retries.succeeded(upload, now);
        if self.retries.is_empty() && !self.store.told.is_empty() {
            self.store.told.clear();
            tracing::info!("the store works again");
        }
    }

    /// A parcel is not in the store.
    pub(super) fn parcel_failed(&mut self, parcel: ParcelId, failure: &UploadError) {
        let upload = Upload::Object(parcel);
        // It was damaged, and has been made again.
        if self.behind.parcels.bytes_of(parcel).is_none() {
            self.sending.remove(&parcel);
            self.retries.forget(&upload);
            return;
        }
        if self.is_to_be_tried_again(&upload, failure) {
            self.sending.remove(&parcel);
            return;
        }
        let label = self.behind.parcels.read(parcel).map(|reader| reader.label);
        match label.map_err(UploadError::from) {
            Ok(label) => {
                self.sending.remove(&parcel);
                if let Err(error) = self.quarantine_parcel(parcel, label, failure) {
                    tracing::warn!(%error, "cannot move an object to the quarantine yet");
                    self.retries.postpone(&upload, self.instant());
                    return;
                }
            }
            Err(error @ UploadError::Read(_)) => {
                tracing::warn!(?upload, %error, "cannot read what failed from local disk yet");
                self.sending.remove(&parcel);
                self.retries.postpone(&upload, self.instant());
                return;
            }
            // Not even its label can be read.
            Err(_) => {
                let path = self.behind.parcels.path_of(parcel);
                self.lose(&path.display().to_string(), failure);
                self.sending.remove(&parcel);
                self.behind.parcels.finish(parcel);
            }
        }
        self.retries.forget(&upload);
    }

    /// A batch of the index is not in the store.
    pub(super) fn index_failed(&mut self, batch: ReadyBatch, failure: &UploadError) {
        self.sending_index.remove(&batch.path);
        let upload = Upload::Index(batch.path.clone());
        if self.is_to_be_tried_again(&upload, failure) {
            return;
        }
        self.retries.forget(&upload);
        if let UploadError::Store(error) = failure {
            let refusal = Refusal {
                note: self.note(&batch.key.to_string(), failure),
                is_certain: error.trouble == Trouble::ObjectRefused,
            };
            self.stored_index.push(StoredIndex {
                batch,
                ticket: self.behind.history.ticket(),
                refusal: Some(refusal),
            });
        } else {
            self.lose(&batch.key.to_string(), failure);
            self.behind.index.remove(&batch);
        }
    }

    /// Counts and logs something that can't be read back.
    fn lose(&self, key: &str, failure: &UploadError) {
        self.behind.metrics.object_lost(ObjectLoss::Unreadable);
        tracing::error!(
            key, error = %failure, detail = failure.detail(),
            "data is lost: it can't be read back from the outbox"
        );
    }

    /// Decides what becomes of something that failed, and when.
    fn is_to_be_tried_again(&mut self, upload: &Upload, failure: &UploadError) -> bool {
        let now = self.instant();
        if !failure.is_unjoined() {
            self.joined(upload);
        }
        let refused = self.count_refusals(upload, failure, now);
        let error = match failure {
            UploadError::Store(error) => error,
            UploadError::Read(error) => {
                tracing::warn!(?upload, %error, "cannot read an upload from local disk yet");
                self.retries.postpone(upload, now);
                return true;
            }
            UploadError::Join(_) | UploadError::Contended => {
                self.retries.postpone(upload, now);
                self.not_joined(upload, failure);
                return true;
            }
            UploadError::Panicked(_) => {
                self.retries.failed(upload, now, None);
                return true;
            }
            UploadError::Early => {
                self.retries.postpone(upload, now);
                return true;
            }
            UploadError::Damaged(_) | UploadError::Key(_) | UploadError::Deadly(_) => return false,
        };
        let tries = self.retries.failed(upload, now, None);
        if self.is_about_itself(upload, error, refused) {
            self.store.refused.remove(upload);
            return false;
        }
        if !self.store.told.contains(&error.trouble) {
            self.store.told.push(error.trouble);
            error.log();
        }
        if tries == NAMED_AFTER {
            tracing::warn!(
                ?upload, %error, tries, detail = error.detail(),
                "an upload keeps failing; it stays in the outbox and is tried again"
            );
        }
        true
    }

    /// A part of a reconcile could not be joined with what is stored of it. That may pass; if it does
    /// not, it is told once, however many there are.
    fn not_joined(&mut self, upload: &Upload, failure: &UploadError) {
        self.behind.metrics.store_failed();
        let tries = self.retries.tries(upload);
        if tries < UNJOINED_AFTER {
            tracing::debug!(
                ?upload, error = %failure, detail = failure.detail(),
                "cannot join a part with its reconcile yet"
            );
            return;
        }
        if self.store.unjoined.is_empty() {
            tracing::warn!(
                ?upload, error = %failure, detail = failure.detail(), advice = failure.advice(),
                "a part keeps failing to be joined with its reconcile; it stays in the outbox and \
                 is tried again"
            );
        }
        self.store.unjoined.insert(upload.clone());
        self.behind.uploads.archive().note_unjoined(Some(failure));
    }

    /// An upload was joined, or fails for another reason by now.
    fn joined(&mut self, upload: &Upload) {
        if self.store.unjoined.remove(upload) && self.store.unjoined.is_empty() {
            tracing::info!("parts are joined with their reconciles again");
            self.behind.uploads.archive().note_unjoined(None);
        }
    }

    /// How often the store refused this upload in a row; none if it did not now. Whatever else it
    /// waited for or failed at before says nothing about that.
    fn count_refusals(
        &mut self,
        upload: &Upload,
        failure: &UploadError,
        now: Instant,
    ) -> Option<Refused> {
        let refused = &mut self.store.refused;
        match failure {
            UploadError::Store(error) if error.is_refusal() => {
                let first = Refused {
                    times: 0,
                    since: now,
                };
                let refused = refused.entry(upload.clone()).or_insert(first);
                refused.times = refused.times.saturating_add(1);
                Some(*refused)
            }
            _ => {
                refused.remove(upload);
                None
            }
        }
    }

    /// Whether the store refuses this very upload.
    fn is_about_itself(
        &self,
        upload: &Upload,
        error: &StoreError,
        refused: Option<Refused>,
    ) -> bool {
        let stored_at = match upload {
            Upload::Object(_) => self.store.object_stored_at,
            Upload::Index(_) => self.store.index_stored_at,
        };
        let (Some(stored_at), Some(Refused { times, since })) = (stored_at, refused) else {
            return false;
        };
        if error.trouble == Trouble::ObjectRefused {
            stored_at + LATELY > since
        } else {
            // NOTE: it may pass, and nothing else is to be lost for it.
            let has_room = || {
                let quarantine = &self.behind.quarantine;
                match upload {
                    Upload::Object(parcel) => {
                        quarantine.has_room_for(&self.behind.parcels.path_of(*parcel))
                    }
                    Upload::Index(path) => quarantine.has_room_for(path),
                }
            };
            times >= REFUSALS && stored_at > since && has_room()
        }
    }
}
