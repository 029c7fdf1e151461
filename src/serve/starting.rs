//! What each stage needs to start: clients, files, threads.
//!
//! Invariant: nothing here waits for anything that is not on this machine.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use tokio::{net::TcpListener, runtime::Handle, sync::oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    RunError,
    behind::{Behind, Tracing},
    health::{Health, serve_health},
    sending::send_traces,
};
use crate::{
    archive::{Archive, Event, IndexJournal, InstanceName, StoreUrl, Uploads},
    backoff::Backoff,
    bell::Bell,
    config::Settings,
    export::{Exporter, OtlpSettings, OwnMetrics, sdk_resource},
    history::History,
    metrics::Metrics,
    outbox::{Parcels, TraceBatches},
    pace::give_way,
    publish::join_documents,
    receive::ServeError,
    spans::Links,
    time::Timestamp,
};

/// What of the spool's limit may wait for the store. What neither this nor the next takes is for
/// messages as they came.
pub(super) const fn for_the_store(limit: u64) -> u64 {
    limit / 2
}

/// What of the spool's limit may wait for the collector.
const fn for_the_collector(limit: u64) -> u64 {
    limit / 4
}

/// Answers core on a thread of its own: nothing else that the program does holds up an answer, and
/// no answer has to be handed from one thread to another.
pub(super) fn start_receiving(
    serving: impl Future<Output = Result<(), ServeError>> + Send + 'static,
    ended: oneshot::Sender<Result<(), ServeError>>,
) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RunError::Thread)?;
    let work = move || {
        // Whoever waits for it is gone only when the program ends.
        drop(ended.send(runtime.block_on(serving)));
    };
    thread::Builder::new()
        .name("receive".to_owned())
        .spawn(work)
        .map_err(RunError::Thread)?;
    Ok(())
}

/// Serves metrics and health, and returns where.
pub(super) async fn start_health(
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

pub(super) fn announce(
    settings: &Settings,
    metrics_address: Option<SocketAddr>,
    viewer_address: Option<SocketAddr>,
) {
    let [metrics, viewer] = [metrics_address, viewer_address]
        .map(|address| address.map_or("none".to_owned(), |address| address.to_string()));
    let traces = settings.telemetry.traces.as_ref();
    let traces = traces.map_or("none".to_owned(), OtlpSettings::endpoint);
    tracing::info!(
        socket = %settings.socket_path.display(),
        data_dir = %settings.data_dir.display(),
        store = %settings.store,
        metrics,
        viewer,
        traces,
        "listening"
    );
    if settings.telemetry.traces.is_none() {
        tracing::info!("no spans are sent: OTEL_EXPORTER_OTLP_ENDPOINT names no collector");
    }
}

/// Counts, and pushes the counts if that is asked for.
pub(super) fn start_metrics(settings: &Settings) -> Result<Metrics, RunError> {
    let telemetry = &settings.telemetry;
    let Some(otlp) = &telemetry.metrics else {
        return Ok(Metrics::new()?);
    };
    let exporter = OwnMetrics::new(otlp.clone(), Handle::current())?;
    let interval = exporter.interval();
    let resource = sdk_resource(&telemetry.resource);
    Ok(Metrics::pushing(exporter, interval, resource)?)
}

/// A client for the store.
pub(super) fn open_archive(settings: &Settings) -> Result<Archive, RunError> {
    Ok(Archive::open(
        &settings.store,
        &settings.store_variables,
        settings.compression,
    )?)
}

/// Has the store written to, and looked at in the background.
pub(super) fn start_store(
    settings: &Settings,
    archive: Archive,
    tasks: &TaskTracker,
    stop: &CancellationToken,
    metrics: &Metrics,
    bell: &Arc<Bell>,
) -> (Uploads, mpsc::Receiver<Event>) {
    let (heard, events) = mpsc::channel();
    let uploads = Uploads::new(
        archive.clone(),
        |earlier, late, line| {
            let joined = join_documents(earlier, late)?;
            joined.adjust(line);
            Some(joined.document)
        },
        metrics.clone(),
        stop.clone(),
        heard,
        Arc::clone(bell),
    );
    let (stop, check) = (stop.clone(), check_store(archive, settings.store.clone()));
    tasks.spawn(async move { stop.run_until_cancelled(check).await });
    (uploads, events)
}

/// Has spans sent, if there is somebody to send them to.
pub(super) fn start_tracing(
    settings: &Settings,
    tasks: &TaskTracker,
    stop: &CancellationToken,
    metrics: &Metrics,
    bell: &Arc<Bell>,
) -> Result<Option<Tracing>, RunError> {
    let telemetry = &settings.telemetry;
    let Some(otlp) = &telemetry.traces else {
        return Ok(None);
    };
    let exporter = Exporter::new(otlp, metrics.clone(), Backoff::default())?;
    let path = outbox_folder(settings).join("traces");
    let limit = for_the_collector(settings.spool_max_bytes);
    let batches = TraceBatches::open(path.clone(), limit)
        .map(Arc::new)
        .map_err(|source| RunError::Outbox { path, source })?;
    let (sent, bell) = (Arc::clone(&batches), Arc::clone(bell));
    let (sending, stop) = (
        send_traces(exporter, sent, metrics.clone(), bell),
        stop.clone(),
    );
    tasks.spawn(async move { stop.run_until_cancelled(sending).await });
    Ok(Some(Tracing {
        batches,
        links: Links::new(&settings.viewer_url, &settings.store.to_string()),
        resource: telemetry.resource.clone(),
        sampler: telemetry.sampler,
    }))
}

/// What waits on disk for the store.
pub(super) struct Outbox {
    pub(super) parcels: Parcels,
    pub(super) index: IndexJournal,
}

impl Outbox {
    pub(super) fn open(settings: &Settings, started_at: Timestamp) -> Result<Self, RunError> {
        let path = outbox_folder(settings);
        let failed = |source| RunError::Outbox {
            path: path.clone(),
            source,
        };
        let host = rustix::system::uname();
        let instance = InstanceName::new(&host.nodename().to_string_lossy(), started_at);
        Ok(Self {
            parcels: Parcels::open(path.join("objects")).map_err(failed)?,
            index: IndexJournal::open(path.join("index"), instance).map_err(failed)?,
        })
    }
}

fn outbox_folder(settings: &Settings) -> PathBuf {
    settings.data_dir.join("outbox")
}

pub(super) fn start_behind(behind: Behind) -> Result<oneshot::Receiver<()>, RunError> {
    let (ended, end) = oneshot::channel();
    let work = move || {
        give_way();
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

pub(super) fn open_history(settings: &Settings) -> History {
    if !settings.store.is_lasting() {
        return History::in_process();
    }
    let path = settings.data_dir.join("history.jsonl");
    History::on_disk(path, &settings.store_identity()).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot keep the history; a restart will store more than needed");
        History::in_process()
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
