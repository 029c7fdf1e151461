//! What each stage needs to start: clients, files, threads.
//!
//! Invariant: nothing here waits for anything that is not on this machine.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool, mpsc},
    thread,
};

use object_store::ObjectStore;
use tokio::{net::TcpListener, runtime::Handle, sync::oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    RunError,
    behind::{Behind, Tracing},
    health::{Health, serve_health},
};
use crate::{
    archive::{Archive, Event, IndexJournal, InstanceName, Joins, Listener, Uploads},
    bell::Bell,
    config::Settings,
    disk::{Reserve, SharedDisk},
    export::{Destination, Exporter, OtlpSettings, OwnMetrics, SpanSender, sdk_resource},
    history::{Basis, History},
    metrics::{Metrics, SpanLoss},
    outbox::{Parcels, Quarantine, TraceBatches},
    pace::give_way,
    panics::{Panics, Task},
    receive::ServeError,
    spans::Links,
    spool::{Follower, Spool, SpoolSettings},
    time::{SharedClock, Timestamp},
};

/// What of the spool's limit may wait for the store. What neither this nor the next two take is for
/// messages as they came.
pub(super) const fn for_the_store(limit: u64) -> u64 {
    limit / 2
}

/// What of the spool's limit may wait for the collector.
const fn for_the_collector(limit: u64) -> u64 {
    limit / 4
}

/// What of the spool's limit may be in quarantine.
const fn for_the_quarantine(limit: u64) -> u64 {
    limit / 8
}

/// Answers core on a thread of its own: nothing else that the program does holds up an answer, and
/// no answer has to be handed from one thread to another.
pub(super) fn start_receiving(
    serving: impl Future<Output = Result<(), ServeError>> + Send + 'static,
    ended: oneshot::Sender<Result<(), ServeError>>,
    panics: Panics,
) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RunError::Thread)?;
    let work = move || {
        let served = panics.catch(Task::Receive, || runtime.block_on(serving));
        if let Ok(served) = served {
            // Whoever waits for it is gone only when the program ends.
            drop(ended.send(served));
        }
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
    archive: &Archive,
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
    let health = Health {
        metrics: metrics.clone(),
        stopping: Arc::clone(stopping),
        store: archive.standing(),
    };
    let panics = metrics.panics().clone();
    tasks.spawn(async move {
        let serving = serve_health(health, listener, stop);
        if let Ok(Err(error)) = panics.catch_in(Task::Metrics, serving).await {
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
    let telemetry = &settings.telemetry;
    let traces = telemetry.tracing().collector();
    let traces = traces.map_or("none".to_owned(), OtlpSettings::endpoint);
    tracing::info!(
        socket = %settings.socket_path.display(),
        data_dir = %settings.data_dir.display(),
        store = %settings.store,
        metrics,
        viewer,
        traces,
        spool_max_bytes = settings.spool_max_bytes,
        retention_bytes = settings.retention.bytes,
        "listening"
    );
    for problem in &settings.warnings {
        tracing::warn!(problem, "a setting may not work as intended");
    }
    for setting in &telemetry.ignored {
        tracing::warn!(
            variable = setting.variable,
            problem = setting.problem,
            "ignoring a setting that is not valid"
        );
    }
    match (telemetry.tracing(), &telemetry.traces) {
        (Destination::Collector(_), _) => {}
        (Destination::Off, Destination::Off) => tracing::info!(
            "tracing is off: OTEL_EXPORTER_OTLP_ENDPOINT is not set, or OTEL_SDK_DISABLED or \
             OTEL_TRACES_EXPORTER turned it off"
        ),
        (Destination::Off, _) => {
            tracing::info!("tracing is off: OTEL_TRACES_SAMPLER leaves out every trace");
        }
        (Destination::Unknown, _) => tracing::warn!(
            "no spans are sent, because a setting that says where to is not valid; they wait on \
             disk until the sidecar is started with a valid one, and beyond a quarter of \
             --spool-max-bytes the oldest are lost. Set OTEL_TRACES_EXPORTER=none to turn tracing \
             off"
        ),
    }
}

/// Counts, and pushes the counts if that is asked for.
pub(super) fn start_metrics(settings: &Settings) -> Result<Metrics, RunError> {
    let telemetry = &settings.telemetry;
    let Some(otlp) = &telemetry.metrics else {
        return Ok(Metrics::new()?);
    };
    let exporter = OwnMetrics::new(otlp.clone(), Handle::current());
    let interval = exporter.interval();
    let resource = sdk_resource(&telemetry.resource);
    Ok(Metrics::pushing(exporter, interval, resource)?)
}

pub(super) fn open_spool(
    settings: &Settings,
    disk: &SharedDisk,
    metrics: &Metrics,
    bell: &Arc<Bell>,
) -> Result<(Spool, Follower), RunError> {
    let spool_settings = SpoolSettings {
        data_dir: settings.data_dir.clone(),
        max_bytes: settings.spool_max_bytes,
        sync: settings.spool_sync,
        syncs_itself: true,
    };
    Ok(Spool::open(
        &spool_settings,
        Arc::clone(disk),
        metrics,
        Arc::clone(bell),
    )?)
}

/// A client for the store.
pub(super) fn open_archive(
    settings: &Settings,
    store: Option<Arc<dyn ObjectStore>>,
) -> Result<Archive, RunError> {
    if let Some(client) = store {
        return Ok(Archive::over(client, settings.compression));
    }
    Ok(Archive::open(
        &settings.store,
        &settings.store_variables,
        settings.compression,
    )?)
}

/// Has the store written to.
pub(super) fn start_uploads(
    disk: &SharedDisk,
    archive: Archive,
    joins: Joins,
    stop: &CancellationToken,
    metrics: &Metrics,
    clock: SharedClock,
    bell: &Arc<Bell>,
) -> (Uploads, mpsc::Receiver<Event>) {
    let (heard, events) = mpsc::channel();
    let listener = Listener {
        events: heard,
        bell: Arc::clone(bell),
    };
    let uploads = Uploads::new(
        Arc::clone(disk),
        archive,
        joins,
        metrics.clone(),
        clock,
        stop.clone(),
        listener,
    );
    (uploads, events)
}

/// Has spans sent, if there is somebody to send them to. If it is not known to whom, they wait for a
/// start that knows. Receiving goes on without that if they can't wait on disk.
pub(super) fn start_tracing(
    settings: &Settings,
    disk: &SharedDisk,
    quarantine: &Arc<Quarantine>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
    metrics: &Metrics,
    bell: &Arc<Bell>,
) -> Option<Tracing> {
    let telemetry = &settings.telemetry;
    let path = outbox_folder(settings).join("traces");
    let limit = for_the_collector(settings.spool_max_bytes);
    let batches = match TraceBatches::open(Arc::clone(disk), path.clone(), limit) {
        Ok(batches) => Arc::new(batches),
        Err(error) => {
            let path = path.display();
            tracing::error!(
                %path, %error,
                "cannot open the spans that wait for the collector: no spans are made or sent \
                 until the folder can be opened at a start"
            );
            return None;
        }
    };
    let destination = telemetry.tracing();
    match destination {
        Destination::Off => {
            give_up_spans(&batches, metrics);
            return None;
        }
        Destination::Unknown => {}
        Destination::Collector(otlp) => {
            let exporter = Exporter::new(otlp, metrics.clone());
            let mut sender = SpanSender::new(
                exporter,
                Arc::clone(&batches),
                Arc::clone(quarantine),
                metrics.clone(),
                settings.backoff,
                Arc::clone(bell),
            );
            let stop = stop.clone();
            tasks.spawn(async move { stop.run_until_cancelled(sender.keep_running()).await });
        }
    }
    Some(Tracing {
        batches,
        is_sending: destination.collector().is_some(),
        links: Links::new(&settings.viewer_url, &settings.store.to_string()),
        resource: telemetry.resource.clone(),
        sampler: telemetry.sampler,
    })
}

/// Where tracing was turned off, what an earlier process left will not be sent, and would take its
/// part of the disk for ever.
fn give_up_spans(batches: &TraceBatches, metrics: &Metrics) {
    let spans = batches.give_up();
    if spans > 0 {
        metrics.spans_lost(SpanLoss::TracingOff, spans);
        tracing::error!(
            spans,
            "removed spans that waited for the collector, since tracing is off; their payloads and \
             index lines are kept. Wait until spanplane_outbox_bytes{{kind=\"traces\"}} is 0 before \
             you turn tracing off"
        );
    }
}

/// What waits on disk for the store.
pub(super) struct Outbox {
    pub(super) parcels: Parcels,
    pub(super) index: IndexJournal,
    pub(super) reserve: Reserve,
    pub(super) quarantine: Arc<Quarantine>,
}

impl Outbox {
    pub(super) fn open(
        settings: &Settings,
        disk: &SharedDisk,
        started_at: Timestamp,
    ) -> Result<Self, RunError> {
        let path = outbox_folder(settings);
        let failed = |source| RunError::Outbox {
            path: path.clone(),
            source,
        };
        let host = rustix::system::uname();
        let instance = InstanceName::new(&host.nodename().to_string_lossy(), started_at);
        Ok(Self {
            parcels: Parcels::open(Arc::clone(disk), path.join("objects")).map_err(failed)?,
            reserve: Reserve::new(Arc::clone(disk), path.join("reserve")),
            index: IndexJournal::open(Arc::clone(disk), path.join("index"), instance)
                .map_err(failed)?,
            quarantine: open_quarantine(settings, disk)?,
        })
    }
}

fn open_quarantine(settings: &Settings, disk: &SharedDisk) -> Result<Arc<Quarantine>, RunError> {
    let path = settings.data_dir.join("quarantine");
    let limit = for_the_quarantine(settings.spool_max_bytes);
    Quarantine::open(Arc::clone(disk), path.clone(), limit)
        .map(Arc::new)
        .map_err(|source| RunError::Outbox { path, source })
}

fn outbox_folder(settings: &Settings) -> PathBuf {
    settings.data_dir.join("outbox")
}

pub(super) fn start_behind(behind: Behind) -> Result<oneshot::Receiver<()>, RunError> {
    let (ended, end) = oneshot::channel();
    let panics = behind.metrics.panics().clone();
    let work = move || {
        give_way();
        // What it has in memory can't be trusted after a panic. The process ends: the next start
        // finds everything in the log and the outbox.
        if panics.catch(Task::Publish, || behind.run()).is_ok() {
            // Nobody waits for it after the deadline.
            ended.send(()).unwrap_or_default();
        }
    };
    thread::Builder::new()
        .name("behind".to_owned())
        .spawn(work)
        .map_err(RunError::Thread)?;
    Ok(end)
}

pub(super) fn open_history(settings: &Settings, disk: &SharedDisk) -> History {
    if !settings.store.is_lasting() {
        return History::in_process();
    }
    let path = settings.data_dir.join("history.jsonl");
    let basis = Basis {
        store: settings.store_identity(),
        redaction: settings.redactor.rules(),
    };
    History::on_disk(disk, &path, basis).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot keep the history; a restart will store more than needed");
        History::in_process()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_of_what_answers_core_is_counted_and_told_to_who_waits_for_it() {
        let panics = Panics::default();
        let (ended, received) = oneshot::channel();
        let serving = async { panic!("in a test") };
        start_receiving(serving, ended, panics.clone()).unwrap();
        assert!(received.await.is_err());
        assert!(panics.broken().eq([Task::Receive]));
    }
}
