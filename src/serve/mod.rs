//! Starts the stages in order, joins them, and stops them again. Only this module knows the order.
//!
//! ```text
//! receive ──▶ spool ──▶ behind: follow, decode, assemble, publish ──▶ archive
//! ```
//!
//! Invariant: the socket listens before anything is asked of the store. On stopping, messages are
//! refused, then what is there is finished, then the deadline ends the rest; the spool keeps it.

mod behind;
mod health;

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use tokio::{net::TcpListener, runtime::Handle, sync::oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    behind::{Behind, Ending},
    health::{Health, serve_health},
};
use crate::{
    archive::{Archive, Backoff, Event, OpenStoreError, Pruner, StoreUrl, SubjectMemory, Uploads},
    assemble::{Assembler, Limits},
    bell::Bell,
    config::Settings,
    metrics::{Metrics, Refusal, SetupError},
    receive::{BindError, Inspector, MessageLog, ServeError, Socket, serve_inspector},
    record::Record,
    spool::{AppendError, Appender, LocalDisk, OpenError, Spool, SpoolSettings},
    time::{SharedClock, SystemClock},
};

/// What connections get to end by themselves, and the disk to sync, once the time is up.
const LAST_GRACE: Duration = Duration::from_millis(500);
/// Nice value of the work behind the answers: it gives way to whatever else wants the CPU.
const BEHIND_NICENESS: i32 = 10;

/// Why the sidecar can't start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("cannot open the data directory")]
    Spool(#[from] OpenError),
    #[error("cannot listen")]
    Socket(#[from] BindError),
    #[error("cannot open the store")]
    Store(#[from] OpenStoreError),
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
    tasks: TaskTracker,
    _socket: Socket,
}

impl Sidecar {
    /// Listens, then does everything else.
    pub async fn start(settings: Settings) -> Result<Self, RunError> {
        let clock: SharedClock = Arc::new(SystemClock);
        let metrics = Metrics::new()?;
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
            Arc::new(LocalDisk),
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
        tasks.spawn(async move {
            // Whoever waits for it is gone only when the program ends.
            drop(received.send(serving.await));
        });
        let stop = stop_receiving.clone();
        let metrics_address = start_health(&settings, &metrics, &stopping, stop, &tasks).await;
        announce(&settings, metrics_address);

        let gauge = spool.gauge();
        metrics.observe_spool(
            settings.spool_max_bytes,
            move || gauge.used_bytes(),
            Arc::clone(&clock),
        );
        let (uploads, events) = start_store(&settings, &tasks, &stop_calls, &metrics, &bell)?;
        let ending = Arc::new(Ending::default());
        let behind = start_behind(Behind {
            follower,
            assembler: Assembler::new(Limits::default()),
            memory: open_memory(&settings),
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
            tasks,
            _socket: socket,
        })
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
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
        if drained {
            tracing::info!("everything received is stored");
        } else {
            tracing::warn!("not everything could be stored in time; the spool keeps the rest");
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
            AppendError::Busy { .. } => Refusal::SpoolBusy,
            AppendError::Write { .. } => Refusal::DiskError,
            AppendError::Closed => Refusal::ShuttingDown,
        })
    }
}

/// Serves metrics and health, and returns where.
async fn start_health(
    settings: &Settings,
    metrics: &Metrics,
    stopping: &Arc<AtomicBool>,
    stop: CancellationToken,
    tasks: &TaskTracker,
) -> Option<SocketAddr> {
    let address = settings.metrics_address?;
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        // Receiving goes on without it: a port that is taken must not cost payloads.
        Err(error) => {
            tracing::error!(%address, %error, "cannot serve metrics; choose --metrics-address");
            return None;
        }
    };
    let bound = listener.local_addr().ok();
    let stopping = Arc::clone(stopping);
    let health = Health {
        metrics: metrics.clone(),
        is_ready: Box::new(move || !stopping.load(Ordering::Relaxed)),
    };
    tasks.spawn(async move {
        if let Err(error) = serve_health(health, listener, stop).await {
            tracing::error!(%error, "metrics are not served any more");
        }
    });
    bound
}

fn announce(settings: &Settings, metrics_address: Option<SocketAddr>) {
    let metrics = metrics_address.map_or("none".to_owned(), |address| address.to_string());
    tracing::info!(
        socket = %settings.socket_path.display(),
        data_dir = %settings.data_dir.display(),
        store = %settings.store,
        metrics,
        "listening"
    );
}

/// Makes a client, and has the store looked at in the background.
fn start_store(
    settings: &Settings,
    tasks: &TaskTracker,
    stop: &CancellationToken,
    metrics: &Metrics,
    bell: &Arc<Bell>,
) -> Result<(Uploads, mpsc::Receiver<Event>), RunError> {
    let archive = Archive::open(
        &settings.store,
        &settings.store_variables,
        settings.compression,
    )?;
    let (heard, events) = mpsc::channel();
    let uploads = Uploads::new(
        archive.clone(),
        Handle::current(),
        stop.clone(),
        heard,
        Arc::clone(bell),
        metrics.clone(),
        Backoff::default(),
    );
    let (stop, check) = (stop.clone(), check_store(archive, settings.store.clone()));
    tasks.spawn(async move { stop.run_until_cancelled(check).await });
    Ok((uploads, events))
}

fn start_behind(behind: Behind) -> Result<oneshot::Receiver<()>, RunError> {
    let (ended, end) = oneshot::channel();
    let work = move || {
        if let Err(error) = rustix::process::setpriority_process(None, BEHIND_NICENESS) {
            tracing::debug!(%error, "cannot lower the priority of the work behind the answers");
        }
        behind.run();
        // Nobody waits for it after the deadline.
        ended.send(()).unwrap_or_default();
    };
    thread::Builder::new()
        .name("behind".to_owned())
        .spawn(work)
        .map_err(RunError::Thread)?;
    Ok(end)
}

fn open_memory(settings: &Settings) -> SubjectMemory {
    if !settings.store.is_lasting() {
        return SubjectMemory::in_process();
    }
    let path = settings.data_dir.join("subjects.jsonl");
    SubjectMemory::on_disk(path, &settings.store_identity()).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot keep what was stored; a restart will store more than needed");
        SubjectMemory::in_process()
    })
}

async fn check_store(archive: Archive, url: StoreUrl) {
    match archive.check().await {
        Ok(()) => tracing::info!(store = %url, "the store can be written to"),
        Err(error) => tracing::error!(
            store = %url, %error, detail = error.detail(), advice = error.trouble.advice(),
            "the store can't be written to; payloads wait in the spool"
        ),
    }
}
