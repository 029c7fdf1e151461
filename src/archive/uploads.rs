//! Sends to the store what waits in the outbox, on behalf of a thread that does not wait for it:
//! each try ends in an [`Event`].
//!
//! Invariant: every try that was started sends exactly one event, unless the program stops before.
//! Whether and when something that failed is tried again is up to whoever hears the event; nothing
//! sleeps here, so that no upload that has to wait takes the place of another.

use std::{
    collections::HashSet,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Archive, ReadyBatch, StoreError,
    delivery::{Delivered, PART_BYTES, deliver},
    joining::Joins,
    turns::{Turn, Turns},
};
use crate::{
    bell::Bell,
    disk::{DiskFile, SharedDisk, read_file},
    metrics::Metrics,
    outbox::{Label, ParcelId, scratch_file},
    panics::{Panicked, Panics, Task},
    reconcile::TraceId,
    time::{SharedClock, Timestamp},
};

/// What an upload takes in memory, at most: larger objects go in parts.
pub const MAX_UPLOAD_MEMORY: u64 = PART_BYTES;

/// How a try ended.
#[derive(Debug)]
pub enum Event {
    /// Its label says where it is, which need not be where it was to go.
    Stored {
        parcel: ParcelId,
        label: Box<Label>,
        bytes: u64,
        /// The label is that of an object that other parcels may lead to as well.
        is_joined: bool,
        /// The object held all of it before this try.
        was_held: bool,
    },
    /// It is not in the store.
    Failed {
        parcel: ParcelId,
        failure: UploadError,
    },
    /// A batch of the index is in the store.
    IndexStored { batch: ReadyBatch },
    /// It is not.
    IndexFailed {
        batch: ReadyBatch,
        failure: UploadError,
    },
}

/// Why something is not in the store.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error(transparent)]
    Store(StoreError),
    /// The disk may be able to read it later.
    #[error("cannot read it from local disk")]
    Read(#[source] io::Error),
    /// Reading it again gives the same.
    #[error("it is damaged or gone")]
    Damaged(#[source] io::Error),
    #[error("its key {0:?} is not that of a reconcile")]
    Key(String),
    #[error(transparent)]
    Panicked(#[from] Panicked),
    #[error("cannot join it with what is stored of its reconcile, on local disk")]
    Join(#[source] io::Error),
    /// It waits for that, though not forever.
    #[error("the beginning of its reconcile is not stored yet")]
    Early,
    #[error("others keep changing the objects of its reconcile")]
    Contended,
    /// It would die again.
    #[error("the process died {0} times while joining it with what is stored of its reconcile")]
    Deadly(u32),
}

impl UploadError {
    /// What a person can do about it; the store's errors say it themselves.
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Store(error) => error.trouble.advice(),
            Self::Join(_) => "make room on the volume of --data-dir, where parts are joined",
            Self::Contended => {
                "let no other program change the objects below v1/reconciles, and check that the \
                 store lists and reads what was just written"
            }
            Self::Read(_) => "check the volume of --data-dir",
            Self::Early => {
                "nothing: it waits for the beginning of its reconcile, though not forever"
            }
            Self::Damaged(_) | Self::Key(_) | Self::Panicked(_) | Self::Deadly(_) => {
                "nothing; please report it"
            }
        }
    }

    /// It was in reach, and could not be joined with what is stored of its reconcile.
    pub const fn is_unjoined(&self) -> bool {
        matches!(self, Self::Join(_) | Self::Contended)
    }

    /// What the store or the disk said.
    pub fn detail(&self) -> String {
        match self {
            Self::Store(error) => error.detail(),
            Self::Read(error) | Self::Damaged(error) | Self::Join(error) => error.to_string(),
            Self::Key(_) | Self::Early | Self::Contended | Self::Panicked(_) | Self::Deadly(_) => {
                String::new()
            }
        }
    }
}

impl From<io::Error> for UploadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof => {
                Self::Damaged(error)
            }
            _ => Self::Read(error),
        }
    }
}

/// While stopping, a part without its beginning waits this long for it. Another sidecar stores a
/// beginning that is not continued after 2 s; `--shutdown-timeout` is 5 s by default.
const DRAINING_PATIENCE: Duration = Duration::from_millis(2_500);

/// A parcel to be sent.
#[derive(Clone, Debug)]
pub struct Shipment {
    pub parcel: ParcelId,
    pub path: PathBuf,
    /// It has been refused before; meanwhile another part of its reconcile may have been stored.
    pub is_retried: bool,
    /// How often it failed before.
    pub tries: u32,
    /// How long ago it first failed, whatever the clock says.
    pub failing_for: Duration,
}

/// Who hears how tries end: events go there, and the bell is rung for each.
#[derive(Clone, Debug)]
pub struct Listener {
    pub events: mpsc::Sender<Event>,
    pub bell: Arc<Bell>,
}

/// Starts uploads.
#[derive(Clone, Debug)]
pub struct Uploads {
    shared: Arc<Shared>,
    runtime: Handle,
    tracker: TaskTracker,
    stop: CancellationToken,
    listener: Listener,
}

/// What the uploads share.
#[derive(Debug)]
pub(super) struct Shared {
    disk: SharedDisk,
    archive: Archive,
    joins: Joins,
    metrics: Metrics,
    clock: SharedClock,
    started_at: Timestamp,
    /// When the program was told to end: there is a deadline.
    draining_since: OnceLock<Timestamp>,
    turns: Turns,
    /// Files without a name that were begun.
    scratches: AtomicU64,
    /// Batches of the index whose contents are in the store, and which are not.
    half_stored: Mutex<HashSet<PathBuf>>,
}

impl Uploads {
    pub fn new(
        disk: SharedDisk,
        archive: Archive,
        joins: Joins,
        metrics: Metrics,
        clock: SharedClock,
        stop: CancellationToken,
        listener: Listener,
    ) -> Self {
        Self {
            shared: Arc::new(Shared::new(disk, archive, joins, metrics, clock)),
            runtime: Handle::current(),
            tracker: TaskTracker::new(),
            stop,
            listener,
        }
    }

    pub fn archive(&self) -> &Archive {
        &self.shared.archive
    }

    /// The program is about to end.
    pub fn hurry(&self) {
        self.shared.hurry();
    }

    /// Sends a parcel, once.
    pub fn send(&self, shipment: Shipment) {
        let shared = Arc::clone(&self.shared);
        let parcel = shipment.parcel;
        self.spawn(async move {
            let delivery = Box::pin(deliver(&shared, &shipment));
            match shared.guarded(delivery).await {
                Ok(Delivered {
                    label,
                    bytes,
                    is_joined,
                    was_held,
                }) => Event::Stored {
                    parcel,
                    label: Box::new(label),
                    bytes,
                    is_joined,
                    was_held,
                },
                Err(failure) => Event::Failed { parcel, failure },
            }
        });
    }

    /// Sends a batch of the index, once.
    pub fn send_index(&self, batch: ReadyBatch) {
        let shared = Arc::clone(&self.shared);
        self.spawn(async move {
            match shared.guarded(shared.store_index(&batch)).await {
                Ok(()) => Event::IndexStored { batch },
                Err(failure) => Event::IndexFailed { batch, failure },
            }
        });
    }

    /// Waits until no upload is under way.
    pub async fn finish(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    fn spawn(&self, upload: impl Future<Output = Event> + Send + 'static) {
        let (stop, listener) = (self.stop.clone(), self.listener.clone());
        let send = async move {
            if let Some(event) = stop.run_until_cancelled(upload).await {
                // Nobody listens any more once the program stops.
                drop(listener.events.send(event));
                listener.bell.ring();
            }
        };
        self.tracker.spawn_on(send, &self.runtime);
    }
}

impl Shared {
    pub(super) fn new(
        disk: SharedDisk,
        archive: Archive,
        joins: Joins,
        metrics: Metrics,
        clock: SharedClock,
    ) -> Self {
        Self {
            disk,
            archive,
            joins,
            metrics,
            started_at: clock.now(),
            clock,
            draining_since: OnceLock::new(),
            turns: Turns::default(),
            scratches: AtomicU64::new(0),
            half_stored: Mutex::default(),
        }
    }

    pub(super) fn hurry(&self) {
        self.draining_since.get_or_init(|| self.clock.now());
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining_since.get().is_some()
    }

    /// Whether there is time to wait for what may never come.
    pub(super) fn may_wait(&self) -> bool {
        let since = self.draining_since.get();
        since.is_none_or(|since| self.now().since(*since) < DRAINING_PATIENCE)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// When this process began to send.
    pub(super) fn started_at(&self) -> Timestamp {
        self.started_at
    }

    /// To be held while something of this trace is sent.
    pub(super) async fn turn_of(&self, trace_id: &TraceId) -> Turn<'_> {
        self.turns.of(trace_id).await
    }

    /// To be held while documents are joined.
    pub(super) async fn turn_to_join(&self) -> Turn<'_> {
        self.turns.joining().await
    }

    /// A file without a name, in this folder.
    pub(super) fn scratch(&self, folder: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let number = self.scratches.fetch_add(1, Ordering::Relaxed);
        scratch_file(self.disk.as_ref(), folder, number)
    }

    pub(super) fn disk(&self) -> &SharedDisk {
        &self.disk
    }

    pub(super) fn archive(&self) -> &Archive {
        &self.archive
    }

    pub(super) fn panics(&self) -> &Panics {
        self.metrics.panics()
    }

    pub(super) fn joins(&self) -> &Joins {
        &self.joins
    }

    /// A try that a panic may interrupt, which is a failure like others then.
    async fn guarded<T>(
        &self,
        upload: impl Future<Output = Result<T, UploadError>>,
    ) -> Result<T, UploadError> {
        let outcome = self.panics().catch_in(Task::Upload, upload).await?;
        if outcome.is_ok() {
            self.panics().works(Task::Upload);
        }
        outcome
    }

    /// Counts a call to the store that failed.
    pub(super) fn failed(&self, error: StoreError) -> UploadError {
        self.metrics.store_failed();
        UploadError::Store(error)
    }

    async fn store_index(&self, batch: &ReadyBatch) -> Result<(), UploadError> {
        let ReadyBatch { key, path, .. } = batch;
        let body = read_file(self.disk.as_ref(), path)?;
        let body = Bytes::from(body.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?);
        let failed = |error| self.failed(error);
        // NOTE: where most calls fail, two in a row would hardly ever succeed.
        if !self.half_stored().contains(path) {
            let put = self.archive.put_contents(key, body.clone()).await;
            put.map_err(failed)?;
            self.half_stored().insert(path.clone());
        }
        self.archive.put_batch(key, body).await.map_err(failed)?;
        self.half_stored().remove(path);
        Ok(())
    }

    fn half_stored(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.half_stored
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
