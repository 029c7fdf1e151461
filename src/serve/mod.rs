//! Starts the stages in order, joins them, and stops them again. Only this module knows the order.
//!
//! ```text
//! receive ──▶ spool ──▶ behind: follow, decode, assemble, publish ──▶ outbox ─┬─▶ archive
//!                                                                            └─▶ export
//! ```
//!
//! Invariant: the socket listens before anything is asked of the store or the collector. On
//! stopping, messages are refused, then what is there is finished, then the deadline ends the rest;
//! the spool and the outbox keep it.

mod behind;
mod checking;
mod health;
mod starting;
mod viewing;

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use object_store::ObjectStore;
use tokio::sync::oneshot;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    behind::{Behind, Ending, InProgress, PoisonGuard},
    checking::watch_store,
    starting::{
        Outbox, announce, for_the_store, open_archive, open_history, open_spool, start_behind,
        start_health, start_metrics, start_receiving, start_tracing, start_uploads,
    },
    viewing::start_viewer,
};
use crate::{
    archive::{Joins, OpenStoreError, Pruner, Uploads},
    assemble::{Assembler, Limits},
    bell::Bell,
    config::Settings,
    disk::{LocalDisk, SharedDisk},
    metrics::{Metrics, Refusal, SetupError},
    publish::join_documents,
    receive::{
        BindError, Inspector, MessageLog, MessageMemory, ReceiveLimits, ServeError, Socket,
        serve_inspector,
    },
    record::Record,
    spool::{AppendError, Appender, OpenError, Spool},
    time::{SharedClock, SystemClock},
};

/// What connections get to end by themselves, and the disk to sync, once the time is up.
const LAST_GRACE: Duration = Duration::from_millis(500);

/// Why the sidecar can't start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("cannot open the data directory")]
    Spool(#[from] OpenError),
    #[error("cannot listen")]
    Socket(#[from] BindError),
    #[error("cannot open the store")]
    Store(#[from] OpenStoreError),
    #[error("cannot open the outbox in {path:?}")]
    Outbox { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Metrics(#[from] SetupError),
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    #[error("receiving failed")]
    Receive(#[from] ServeError),
    #[error("{0} ended unexpectedly; this is a bug")]
    Ended(&'static str),
}

/// What a sidecar takes as given. A test can hand it other things.
#[derive(Clone, Debug)]
pub struct Surroundings {
    pub clock: SharedClock,
    /// For the data directory.
    pub disk: SharedDisk,
    /// In place of the store that the settings name.
    pub store: Option<Arc<dyn ObjectStore>>,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            disk: Arc::new(LocalDisk),
            store: None,
        }
    }
}

/// A sidecar that receives.
#[derive(Debug)]
pub struct Sidecar {
    settings: Settings,
    metrics: Metrics,
    bell: Arc<Bell>,
    spool: Spool,
    stopping: Arc<AtomicBool>,
    stop_receiving: CancellationToken,
    stop_calls: CancellationToken,
    receiving: oneshot::Receiver<Result<(), ServeError>>,
    ending: Arc<Ending>,
    behind: oneshot::Receiver<()>,
    in_progress: InProgress,
    uploads: Uploads,
    metrics_address: Option<SocketAddr>,
    viewer_address: Option<SocketAddr>,
    tasks: TaskTracker,
    _socket: Socket,
}

impl Sidecar {
    /// Listens, then does everything else.
    pub async fn start(settings: Settings) -> Result<Self, RunError> {
        Self::start_in(settings, Surroundings::default()).await
    }

    /// The same, with other surroundings than this machine's.
    #[expect(
        clippy::too_many_lines,
        reason = "the order in which everything starts, in one place"
    )]
    pub async fn start_in(
        settings: Settings,
        surroundings: Surroundings,
    ) -> Result<Self, RunError> {
        let Surroundings { clock, disk, store } = surroundings;
        let metrics = start_metrics(&settings)?;
        let bell = Arc::new(Bell::default());
        let tasks = TaskTracker::new();
        let stopping = Arc::new(AtomicBool::new(false));
        let stop_receiving = CancellationToken::new();
        let stop_calls = CancellationToken::new();

        let (spool, follower) = open_spool(&settings, &disk, &metrics, &bell)?;
        let (socket, listener) = Socket::bind(&settings.socket_path, settings.socket_mode)?;
        let log = SpoolLog(spool.appender());
        let inspector = Inspector::new(
            log,
            Arc::clone(&clock),
            metrics.clone(),
            Arc::clone(&stopping),
        );
        let (received, receiving) = oneshot::channel();
        let memory = MessageMemory::new(
            settings.receive_memory_bytes,
            settings.processing_memory_bytes,
        );
        let limits = ReceiveLimits {
            max_message_bytes: settings.max_message_bytes,
            memory: memory.clone(),
        };
        let serving = serve_inspector(inspector, listener, limits, stop_receiving.clone());
        start_receiving(serving, received, metrics.panics().clone())?;
        let is_brought = store.is_some();
        let archive = open_archive(&settings, store)?;
        let stop = stop_receiving.clone();
        let metrics_address =
            start_health(&settings, &metrics, &archive, &stopping, stop, &tasks).await;
        // NOTE: a client of its own. One that is shared would have connections that uploads use
        // driven by the viewer's thread, which gives way to everything. What is in memory is only
        // there.
        let shared = (is_brought || !settings.store.is_lasting()).then(|| archive.clone());
        let viewer_address = start_viewer(
            &settings,
            shared,
            &metrics,
            &clock,
            &memory,
            &stop_receiving,
        );
        announce(&settings, metrics_address, viewer_address);

        let gauge = spool.gauge();
        metrics.observe_spool(
            settings.spool_max_bytes,
            move || gauge.used_bytes(),
            Arc::clone(&clock),
        );
        watch_store(&settings, &archive, &tasks, &stop_calls, &metrics, &clock);
        let poison = PoisonGuard::open(
            Arc::clone(&disk),
            settings.data_dir.join("spool/in-progress"),
        );
        let in_progress = poison.in_progress();
        let joins = Joins {
            joiner: join_documents,
            memory: Arc::new(memory.clone()),
            watch: Arc::new(in_progress.clone()),
        };
        let (uploads, events) = start_uploads(
            &disk,
            archive,
            joins,
            &stop_calls,
            &metrics,
            Arc::clone(&clock),
            &bell,
        );
        let outbox = Outbox::open(&settings, &disk, clock.now())?;
        let quarantine = outbox.quarantine;
        let tracing = start_tracing(
            &settings,
            &disk,
            &quarantine,
            &tasks,
            &stop_calls,
            &metrics,
            &bell,
        );
        let ending = Arc::new(Ending::default());
        let behind = start_behind(Behind {
            follower,
            appender: spool.appender(),
            memory,
            poison,
            assembler: Assembler::new(Limits::default()),
            history: open_history(&settings, &disk),
            parcels: outbox.parcels,
            index: outbox.index,
            reserve: outbox.reserve,
            outbox_max_bytes: for_the_store(settings.spool_max_bytes),
            gauge: spool.gauge(),
            tracing,
            uploads: uploads.clone(),
            events,
            backoff: settings.backoff,
            quarantine,
            pruner: settings
                .store
                .local_folder()
                .map(|folder| Pruner::new(&folder, settings.retention)),
            redactor: settings.redactor.clone(),
            print: settings.print,
            metrics: metrics.clone(),
            clock,
            bell: Arc::clone(&bell),
            ending: Arc::clone(&ending),
        })?;
        Ok(Self {
            settings,
            metrics,
            bell,
            spool,
            stopping,
            stop_receiving,
            stop_calls,
            receiving,
            ending,
            behind,
            in_progress,
            uploads,
            metrics_address,
            viewer_address,
            tasks,
            _socket: socket,
        })
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Where metrics and health are served.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Where the viewer is served.
    pub fn viewer_address(&self) -> Option<SocketAddr> {
        self.viewer_address
    }

    /// Runs until `stop` is done, then finishes in order.
    pub async fn run_until(mut self, stop: impl Future<Output = ()>) -> Result<(), RunError> {
        let failure = tokio::select! {
            () = stop => None,
            ended = &mut self.receiving => Some(match ended {
                Ok(Err(error)) => error.into(),
                Ok(Ok(())) | Err(_) => RunError::Ended("receiving"),
            }),
            // It only ends when it is told to.
            _ = &mut self.behind => Some(RunError::Ended("the work behind the answers")),
        };
        self.stop().await;
        failure.map_or(Ok(()), Err)
    }

    /// Refuses what comes, finishes what is there, leaves the rest in the spool.
    async fn stop(self) {
        let limit = self.settings.shutdown_timeout;
        tracing::info!(timeout = ?limit, "shutting down");
        self.stopping.store(true, Ordering::Relaxed);
        self.ending.draining.store(true, Ordering::Relaxed);
        self.bell.ring();
        // It may have ended already: that is one reason to stop.
        let drained = !self.behind.is_terminated()
            && matches!(tokio::time::timeout(limit, self.behind).await, Ok(Ok(())));

        self.ending.abandoning.store(true, Ordering::Relaxed);
        self.stop_calls.cancel();
        self.stop_receiving.cancel();
        self.bell.ring();
        if !drained {
            end_in_order(self.in_progress).await;
        }
        self.uploads.finish().await;
        self.tasks.close();
        // A client that keeps its connection open does not keep the program alive.
        if tokio::time::timeout(LAST_GRACE, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::debug!("some connections did not end");
        }
        let spool = self.spool;
        let synced = tokio::task::spawn_blocking(move || spool.close(LAST_GRACE)).await;
        if !synced.unwrap_or(false) {
            tracing::warn!("the spool was not synced to disk");
        }
        self.metrics.shutdown(LAST_GRACE).await;
        if drained {
            tracing::info!("everything received is where it belongs");
        } else {
            tracing::warn!(
                "not everything could be sent in time; the data directory keeps the rest"
            );
        }
    }
}

/// Whatever is processed when the time is up, the process does not die because of it.
async fn end_in_order(in_progress: InProgress) {
    let (done, ended) = oneshot::channel();
    // NOTE: a disk that hangs must not keep the program alive, as it would in a task.
    let ending = thread::Builder::new().spawn(move || {
        in_progress.end_in_order();
        // Nobody waits for it for long.
        done.send(()).unwrap_or_default();
    });
    if ending.is_err() || tokio::time::timeout(LAST_GRACE, ended).await.is_err() {
        tracing::debug!("cannot note that the process ends in order");
    }
}

/// The spool, as the receiving stage sees it.
#[derive(Debug)]
struct SpoolLog(Appender);

impl MessageLog for SpoolLog {
    async fn append(&self, record: Record) -> Result<(), Refusal> {
        self.0.append(record).await.map_err(|error| match error {
            AppendError::Full { .. } => Refusal::SpoolFull,
            AppendError::Write { .. } | AppendError::Sync { .. } => Refusal::DiskError,
            AppendError::Closed => Refusal::ShuttingDown,
        })
    }
}
