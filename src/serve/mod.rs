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
mod health;
mod sending;
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
    time::Duration,
};

use tokio::sync::oneshot;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    behind::{Behind, Ending},
    starting::{
        Outbox, announce, for_the_store, open_archive, open_history, start_behind, start_health,
        start_metrics, start_receiving, start_store, start_tracing,
    },
    viewing::start_viewer,
};
use crate::{
    archive::{OpenStoreError, Pruner, Uploads},
    assemble::{Assembler, Limits},
    bell::Bell,
    config::Settings,
    export::ExportSetupError,
    metrics::{Metrics, Refusal, SetupError},
    receive::{BindError, Inspector, MessageLog, ServeError, Socket, serve_inspector},
    record::Record,
    spool::{AppendError, Appender, LocalDisk, OpenError, Spool, SpoolSettings},
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
    Export(#[from] ExportSetupError),
    #[error(transparent)]
    Metrics(#[from] SetupError),
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    #[error("receiving failed")]
    Receive(#[from] ServeError),
    #[error("{0} ended unexpectedly; this is a bug")]
    Ended(&'static str),
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
    uploads: Uploads,
    viewer_address: Option<SocketAddr>,
    tasks: TaskTracker,
    _socket: Socket,
}

impl Sidecar {
    /// Listens, then does everything else.
    pub async fn start(settings: Settings) -> Result<Self, RunError> {
        let clock: SharedClock = Arc::new(SystemClock);
        let metrics = start_metrics(&settings)?;
        let bell = Arc::new(Bell::default());
        let tasks = TaskTracker::new();
        let stopping = Arc::new(AtomicBool::new(false));
        let stop_receiving = CancellationToken::new();
        let stop_calls = CancellationToken::new();

        let spool_settings = SpoolSettings {
            data_dir: settings.data_dir.clone(),
            max_bytes: settings.spool_max_bytes,
            sync: settings.spool_sync,
        };
        let (spool, follower) = Spool::open(
            &spool_settings,
            Arc::new(LocalDisk::default()),
            &metrics,
            Arc::clone(&bell),
        )?;
        let (socket, listener) = Socket::bind(&settings.socket_path, settings.socket_mode)?;
        let log = SpoolLog(spool.appender());
        let inspector = Inspector::new(
            log,
            Arc::clone(&clock),
            metrics.clone(),
            Arc::clone(&stopping),
        );
        let (received, receiving) = oneshot::channel();
        let serving = serve_inspector(
            inspector,
            listener,
            settings.max_message_bytes,
            stop_receiving.clone(),
        );
        start_receiving(serving, received)?;
        let stop = stop_receiving.clone();
        let metrics_address = start_health(&settings, &metrics, &stopping, stop, &tasks).await;
        let archive = open_archive(&settings)?;
        let viewer_address = start_viewer(&settings, &archive, &stop_receiving);
        announce(&settings, metrics_address, viewer_address);

        let gauge = spool.gauge();
        metrics.observe_spool(
            settings.spool_max_bytes,
            move || gauge.used_bytes(),
            Arc::clone(&clock),
        );
        let (uploads, events) =
            start_store(&settings, archive, &tasks, &stop_calls, &metrics, &bell);
        let tracing = start_tracing(&settings, &tasks, &stop_calls, &metrics, &bell)?;
        let outbox = Outbox::open(&settings, clock.now())?;
        let ending = Arc::new(Ending::default());
        let behind = start_behind(Behind {
            follower,
            assembler: Assembler::new(Limits::default()),
            history: open_history(&settings),
            parcels: outbox.parcels,
            index: outbox.index,
            outbox_max_bytes: for_the_store(settings.spool_max_bytes),
            gauge: spool.gauge(),
            tracing,
            uploads: uploads.clone(),
            events,
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
            uploads,
            viewer_address,
            tasks,
            _socket: socket,
        })
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
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
