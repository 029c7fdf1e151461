//! Sends to the store what waits in the outbox, on behalf of a thread that does not wait for it:
//! each upload ends in an [`Event`].
//!
//! Invariant: every upload that was started sends exactly one event, however long the store is
//! away, unless the program stops before. What fails is tried again, with pauses that grow and
//! are never the same for two; only what the store will never take is given up.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Archive, ReadyBatch, StoreError, Trouble,
    delivery::{Delivered, DeliveryError, Joiner, deliver},
};
use crate::{
    backoff::Backoff,
    bell::Bell,
    metrics::Metrics,
    outbox::{Label, ParcelId},
};

/// An error that nobody knows, that came this often for one object while the store took this many
/// others, is that object's.
const STUBBORN_TRIES: u32 = 10;
const STUBBORN_OTHERS: u64 = 10;
/// How often a parcel is read before it is given up.
const READ_TRIES: u32 = 10;

/// How an upload ended.
#[derive(Debug)]
pub enum Event {
    /// Its label says where it stands, which need not be where it was to go.
    Stored {
        parcel: ParcelId,
        label: Box<Label>,
        bytes: u64,
    },
    /// It will never be in the store.
    Lost { parcel: ParcelId },
    /// A batch of the index is where it belongs, or will never be there.
    IndexDone { batch: ReadyBatch, stored: bool },
}

/// Starts uploads.
#[derive(Clone, Debug)]
pub struct Uploads {
    shared: Arc<Shared>,
    runtime: Handle,
    tracker: TaskTracker,
    stop: CancellationToken,
    events: mpsc::Sender<Event>,
    bell: Arc<Bell>,
}

/// What the uploads share.
#[derive(Debug)]
pub(super) struct Shared {
    archive: Archive,
    joiner: Joiner,
    metrics: Metrics,
    backoff: Backoff,
    /// What is wrong with the store, if something is.
    trouble: Mutex<Option<Trouble>>,
    successes: AtomicU64,
}

impl Uploads {
    /// Events go to `events`, and `bell` is rung for each.
    pub fn new(
        archive: Archive,
        joiner: Joiner,
        metrics: Metrics,
        stop: CancellationToken,
        events: mpsc::Sender<Event>,
        bell: Arc<Bell>,
    ) -> Self {
        let shared = Shared {
            archive,
            joiner,
            metrics,
            backoff: Backoff::default(),
            trouble: Mutex::new(None),
            successes: AtomicU64::new(0),
        };
        Self {
            shared: Arc::new(shared),
            runtime: Handle::current(),
            tracker: TaskTracker::new(),
            stop,
            events,
            bell,
        }
    }

    pub fn archive(&self) -> &Archive {
        &self.shared.archive
    }

    /// Whether the last call to the store failed.
    pub fn is_failing(&self) -> bool {
        let trouble = &self.shared.trouble;
        trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    /// Sends a parcel.
    pub fn send(&self, parcel: ParcelId, path: PathBuf) {
        let shared = Arc::clone(&self.shared);
        self.spawn(async move {
            let mut failed_reads = 0;
            loop {
                match deliver(&shared, &path).await {
                    Ok(Delivered { label, bytes }) => {
                        return Event::Stored {
                            parcel,
                            label: Box::new(label),
                            bytes,
                        };
                    }
                    // What the disk fails to read now it may read later.
                    Err(DeliveryError::Read(error))
                        if failed_reads < READ_TRIES && !is_damage(&error) =>
                    {
                        tracing::warn!(path = %path.display(), %error, "cannot read an object yet");
                        tokio::time::sleep(shared.backoff.pause(failed_reads)).await;
                        failed_reads += 1;
                    }
                    Err(error) => {
                        tracing::error!(
                            path = %path.display(), %error, detail = error.detail(),
                            "an object is lost: it will never be in the store"
                        );
                        return Event::Lost { parcel };
                    }
                }
            }
        });
    }

    /// Sends a batch of the index.
    pub fn send_index(&self, batch: ReadyBatch) {
        let shared = Arc::clone(&self.shared);
        self.spawn(async move {
            let stored = shared.store_index(&batch).await;
            Event::IndexDone { batch, stored }
        });
    }

    /// Waits until no upload is under way.
    pub async fn finish(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    fn spawn(&self, upload: impl Future<Output = Event> + Send + 'static) {
        let (stop, events, bell) = (
            self.stop.clone(),
            self.events.clone(),
            Arc::clone(&self.bell),
        );
        let send = async move {
            if let Some(event) = stop.run_until_cancelled(upload).await {
                // Nobody listens any more once the program stops.
                drop(events.send(event));
                bell.ring();
            }
        };
        self.tracker.spawn_on(send, &self.runtime);
    }
}

/// Whether reading again gives the same.
fn is_damage(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidData | io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof
    )
}

/// How often something was tried, and how many other things worked meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tries {
    pub(super) count: u32,
    successes_before: u64,
}

impl Shared {
    pub(super) fn archive(&self) -> &Archive {
        &self.archive
    }

    pub(super) fn joiner(&self) -> Joiner {
        self.joiner
    }

    pub(super) fn first_try(&self) -> Tries {
        Tries {
            count: 0,
            successes_before: self.successes.load(Ordering::Relaxed),
        }
    }

    /// Stores a batch of the index; tells whether it is there.
    async fn store_index(&self, batch: &ReadyBatch) -> bool {
        let ReadyBatch { key, path, .. } = batch;
        let mut failed_reads = 0;
        let body = loop {
            match std::fs::read(path) {
                Ok(body) => break Bytes::from(body),
                Err(error) if failed_reads < READ_TRIES && !is_damage(&error) => {
                    tracing::warn!(%key, %error, "cannot read a batch of the index yet");
                    tokio::time::sleep(self.backoff.pause(failed_reads)).await;
                    failed_reads += 1;
                }
                Err(error) => {
                    tracing::error!(%key, %error, "a batch of the index is lost: it can't be read");
                    return false;
                }
            }
        };
        let mut tries = self.first_try();
        loop {
            match self.archive.put_index(key, body.clone()).await {
                Ok(()) => {
                    self.succeeded();
                    return true;
                }
                Err(error) if self.may_try_again(&mut tries, &error).await => {}
                Err(error) => {
                    tracing::error!(
                        %key, %error, detail = error.detail(),
                        "a batch of the index is lost: the store will never take it"
                    );
                    return false;
                }
            }
        }
    }

    /// Pauses, unless it makes no sense to try the same again.
    pub(super) async fn may_try_again(&self, tries: &mut Tries, error: &StoreError) -> bool {
        self.metrics.store_failed();
        let others = self.successes.load(Ordering::Relaxed) - tries.successes_before;
        let is_stubborn = tries.count >= STUBBORN_TRIES && others >= STUBBORN_OTHERS;
        if !error.trouble.is_transient() || is_stubborn {
            return false;
        }
        self.failed(error);
        tokio::time::sleep(self.backoff.pause(tries.count)).await;
        tries.count += 1;
        true
    }

    /// Says once that the store works again.
    pub(super) fn succeeded(&self) {
        self.successes.fetch_add(1, Ordering::Relaxed);
        if self
            .trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .is_some()
        {
            tracing::info!("the store works again");
        }
    }

    /// Says once what is wrong, and again if it is something else.
    fn failed(&self, error: &StoreError) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if *trouble != Some(error.trouble) {
            *trouble = Some(error.trouble);
            tracing::warn!(
                %error, detail = error.detail(), advice = error.trouble.advice(),
                "cannot store; payloads wait in the spool"
            );
        }
    }
}
