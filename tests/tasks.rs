//! A panic in each task of a sidecar: it is counted and reported, and costs no more than it has to.

#![cfg(test)]

mod support;

use std::{
    fmt,
    io::{self, IoSlice},
    path::Path as FilePath,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::stream::BoxStream;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, memory::InMemory, path::Path,
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    metrics::{Temporality, data::ResourceMetrics, exporter::PushMetricExporter},
};
use spanplane::{
    archive::{Archive, Compression},
    disk::{DirEntry, Disk, DiskFile, DiskLock, LocalDisk},
    export::{Destination, Signal},
    metrics::Metrics,
    outbox::{Quarantinable, Quarantine},
    panics::Task,
    record::RecordKind,
    serve::{RunError, Sidecar, Surroundings},
    time::{Clock, SystemClock, Timestamp},
};
use support::{
    Home, assert_all_payloads_stored, capture, counted, documents, fill_spool, get, message,
    otlp::OtlpServer, stop, until,
};
use tokio::sync::Notify;
use tonic::Code;

/// A clock that panics once when it is asked on a certain thread.
#[derive(Debug, Default)]
struct TrickyClock {
    thread: Mutex<Option<String>>,
}

impl TrickyClock {
    fn panic_on(&self, thread: &str) {
        *self.thread.lock().unwrap() = Some(thread.to_owned());
    }
}

impl Clock for TrickyClock {
    fn now(&self) -> Timestamp {
        let thread = std::thread::current();
        let is_it = self
            .thread
            .lock()
            .unwrap()
            .take_if(|name| thread.name() == Some(name.as_str()));
        assert!(is_it.is_none(), "the clock was asked in a test");
        SystemClock.now()
    }
}

/// A store that panics over some writes while it is told to.
#[derive(Debug, Default)]
struct TrickyStore {
    objects: InMemory,
    panics_over: Mutex<Option<&'static str>>,
    /// Writes wait.
    is_held: AtomicBool,
    released: Notify,
}

impl TrickyStore {
    fn panic_over(&self, keys: Option<&'static str>) {
        *self.panics_over.lock().unwrap() = keys;
    }

    fn let_go(&self) {
        self.is_held.store(false, Ordering::Relaxed);
        self.released.notify_one();
    }
}

impl fmt::Display for TrickyStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a store of a test")
    }
}

#[tonic::async_trait]
impl ObjectStore for TrickyStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        if self.is_held.load(Ordering::Relaxed) {
            self.released.notified().await;
        }
        let panics_over = *self.panics_over.lock().unwrap();
        let is_it = panics_over.is_some_and(|word| location.as_ref().contains(word));
        assert!(!is_it, "something was written in a test");
        self.objects.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.objects.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

/// Where it stands in a payload, the object can't be written.
const DEADLY: &[u8] = b"deadly in a test";

/// A disk that panics when it is to sync the spool, or to open what waits in the outbox, while it is
/// told to, and over what is [`DEADLY`].
#[derive(Debug, Default)]
struct TrickyDisk {
    disk: LocalDisk,
    /// The ending of the files at which it panics.
    panics_at: PanicsAt,
}

/// The ending of segments of the spool.
const SPOOL: &str = ".seg";

type PanicsAt = Arc<Mutex<Option<&'static str>>>;

#[derive(Debug)]
struct TrickyFile {
    file: Arc<dyn DiskFile>,
    panics_at: PanicsAt,
}

impl Disk for TrickyDisk {
    fn create(&self, path: &FilePath) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.create(path)?;
        let panics_at = Arc::clone(&self.panics_at);
        let is_spool = path.to_string_lossy().ends_with(SPOOL);
        let is_object = path.to_string_lossy().contains("outbox/objects");
        Ok(if is_object {
            Arc::new(DeadlyFile(file))
        } else if is_spool {
            Arc::new(TrickyFile { file, panics_at })
        } else {
            file
        })
    }

    fn open(&self, path: &FilePath) -> io::Result<Arc<dyn DiskFile>> {
        // The thread behind the answers reads parcels, too, and would end the process.
        let is_behind = std::thread::current().name() == Some("behind");
        let panics_at = *self.panics_at.lock().unwrap();
        let is_it = panics_at.is_some_and(|end| path.to_string_lossy().ends_with(end));
        assert!(!is_it || is_behind, "opened in a test");
        self.disk.open(path)
    }

    fn open_to_append(&self, path: &FilePath) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open_to_append(path)
    }

    fn rename(&self, from: &FilePath, to: &FilePath) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn rename_new(&self, from: &FilePath, to: &FilePath) -> io::Result<()> {
        self.disk.rename_new(from, to)
    }

    fn remove(&self, path: &FilePath) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn list(&self, folder: &FilePath) -> io::Result<Vec<DirEntry>> {
        self.disk.list(folder)
    }

    fn create_folder(&self, folder: &FilePath) -> io::Result<()> {
        self.disk.create_folder(folder)
    }

    fn sync_folder(&self, folder: &FilePath) -> io::Result<()> {
        self.disk.sync_folder(folder)
    }

    fn free_bytes(&self, folder: &FilePath) -> io::Result<u64> {
        self.disk.free_bytes(folder)
    }

    fn lock(&self, path: &FilePath) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.disk.lock(path)
    }
}

impl DiskFile for TrickyFile {
    fn append(&self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        self.file.append(parts)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.file.truncate(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        let panics_at = *self.panics_at.lock().unwrap();
        assert!(panics_at != Some(SPOOL), "synced in a test");
        self.file.sync()
    }
}

/// An object that is written.
#[derive(Debug)]
struct DeadlyFile(Arc<dyn DiskFile>);

impl DiskFile for DeadlyFile {
    fn append(&self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        for part in parts.iter() {
            let is_deadly = part.windows(DEADLY.len()).any(|bytes| bytes == DEADLY);
            assert!(!is_deadly, "written in a test");
        }
        self.0.append(parts)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.0.truncate(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

/// Makes a test of each case. A task without one does not compile.
macro_rules! cases {
    ($($task:ident: $($case:ident),+;)+) => {
        const _: fn(Task) = |task| match task {
            $(Task::$task => {})+
        };

        mod panics_in {
            $($(
                #[tokio::test]
                async fn $case() {
                    super::$case().await;
                }
            )+)+
        }
    };
}

// The loop behind the answers to core has a test beside it (`serve/starting.rs`).
cases! {
    Receive: receiving_one_message;
    Sync: syncing_the_spool;
    Publish: publishing_ends_the_process_and_the_next_one_goes_on, publishing_a_small_message_twice_quarantines_it;
    Upload: uploading, reading_what_is_to_be_uploaded;
    Check: checking_the_store, noting_how_the_store_does;
    Export: sending_spans;
    Metrics: showing_metrics, pushing_metrics;
    Viewer: showing_a_page;
}

const SERVED: [&str; 2] = [
    "--metrics-address=127.0.0.1:0",
    "--viewer-address=127.0.0.1:0",
];

async fn start(home: &Home, surroundings: &Surroundings, flags: &[&str]) -> Sidecar {
    let settings = home.settings(&[&SERVED, flags].concat());
    let started = Sidecar::start_in(settings, surroundings.clone()).await;
    started.unwrap()
}

async fn readiness(sidecar: &Sidecar) -> String {
    get(sidecar.metrics_address(), "/readyz").await
}

fn panics_of(sidecar: &Sidecar, task: &str) -> u64 {
    let metrics = sidecar.metrics().text().unwrap();
    let counter = format!("spanplane_panics_total{{task=\"{task}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&counter));
    line.unwrap().parse().unwrap()
}

/// It is counted, and reported as not ready.
async fn assert_reported(sidecar: &Sidecar, task: &str) {
    let waiting = format!("the {task} task panicked");
    until(&waiting, || panics_of(sidecar, task) > 0).await;
    let answer = readiness(sidecar).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains(&waiting), "{answer}");
}

async fn assert_ready(sidecar: &Sidecar) {
    // Whoever waited for the work may hear of it before it is noted that the task works.
    let panics = sidecar.metrics().panics().clone();
    until("every task works", || panics.broken().count() == 0).await;
    let answer = readiness(sidecar).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

fn with_clock() -> (Arc<TrickyClock>, Surroundings) {
    let clock = Arc::new(TrickyClock::default());
    let surroundings = Surroundings {
        clock: Arc::<TrickyClock>::clone(&clock),
        ..Surroundings::default()
    };
    (clock, surroundings)
}

fn with_store() -> (Arc<TrickyStore>, Surroundings) {
    let store = Arc::new(TrickyStore::default());
    let surroundings = Surroundings {
        store: Some(Arc::<TrickyStore>::clone(&store)),
        ..Surroundings::default()
    };
    (store, surroundings)
}

async fn receiving_one_message() {
    let (clock, surroundings) = with_clock();
    let home = Home::new();
    let sidecar = start(&home, &surroundings, &[]).await;
    let mut client = home.client();
    let record = message("t", 0, RecordKind::Request, "{}");
    clock.panic_on("receive");
    let refused = client.emit(record.kind, record.message.clone()).await;
    assert_eq!(refused.unwrap_err().code(), Code::Internal);
    assert_reported(&sidecar, "receive").await;
    // On the same connection.
    client.emit(record.kind, record.message).await.unwrap();
    assert_ready(&sidecar).await;
    let metrics = stop(sidecar).await;
    assert_eq!(counted(&metrics, "spanplane_objects_stored_total"), 1);
}

async fn syncing_the_spool() {
    let disk = TrickyDisk::default();
    let panics_at = Arc::clone(&disk.panics_at);
    let surroundings = Surroundings {
        disk: Arc::new(disk),
        ..Surroundings::default()
    };
    let home = Home::new();
    let sidecar = start(&home, &surroundings, &["--spool-sync=0"]).await;
    let mut client = home.client();
    let record = message("t", 0, RecordKind::Request, "{}");
    *panics_at.lock().unwrap() = Some(SPOOL);
    // Who waits for the sync is answered.
    let refused = client.emit(record.kind, record.message.clone()).await;
    assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
    assert_reported(&sidecar, "sync").await;
    let metrics = sidecar.metrics().text().unwrap();
    assert!(counted(&metrics, "spanplane_spool_sync_failures_total") > 0);
    *panics_at.lock().unwrap() = None;
    client.emit(record.kind, record.message).await.unwrap();
    assert_ready(&sidecar).await;
    stop(sidecar).await;
}

async fn publishing_ends_the_process_and_the_next_one_goes_on() {
    let (clock, surroundings) = with_clock();
    let home = Home::new();
    let records = capture("dropper");
    let sidecar = start(&home, &surroundings, &["--shutdown-timeout=10ms"]).await;
    let metrics = sidecar.metrics().clone();
    let mut client = home.client();
    clock.panic_on("behind");
    for record in &records {
        // It may have ended meanwhile.
        let sent = client.emit(record.kind, record.message.clone()).await;
        if sent.is_err() {
            break;
        }
    }
    let ended = sidecar.run_until(std::future::pending()).await;
    assert!(matches!(ended, Err(RunError::Ended(_))), "{ended:?}");
    let metrics = metrics.text().unwrap();
    assert!(metrics.contains("spanplane_panics_total{task=\"publish\"} 1"));
    home.play(&[], &records).await;
    assert_all_payloads_stored(&records, &home.documents().await);
}

async fn publishing_a_small_message_twice_quarantines_it() {
    let surroundings = Surroundings {
        disk: Arc::new(TrickyDisk::default()),
        ..Surroundings::default()
    };
    let home = Home::new();
    let records = capture("dropper");
    let deadly = format!(r#"{{"a":"{}"}}"#, str::from_utf8(DEADLY).unwrap());
    let deadly = message("deadly", 0, RecordKind::Request, &deadly);
    fill_spool(&home.data_dir(), &records).await;
    fill_spool(&home.data_dir(), std::slice::from_ref(&deadly)).await;
    for death in 1..=2 {
        let sidecar = start(&home, &surroundings, &["--compression=none"]).await;
        let metrics = sidecar.metrics().clone();
        let ended = sidecar.run_until(std::future::pending()).await;
        assert!(
            matches!(ended, Err(RunError::Ended(_))),
            "{death}: {ended:?}"
        );
        let metrics = metrics.text().unwrap();
        assert_eq!(counted(&metrics, "spanplane_records_quarantined_total"), 0);
    }
    let metrics = stop(start(&home, &surroundings, &["--compression=none"]).await).await;
    assert_eq!(counted(&metrics, "spanplane_records_quarantined_total"), 1);
    assert_all_payloads_stored(&records, &home.documents().await);
    let quarantine = home.data_dir().join("quarantine");
    let kept = Quarantine::list(&LocalDisk, &quarantine).unwrap();
    let [kept] = &kept[..] else {
        panic!("{kept:?}")
    };
    assert_eq!(kept.what, Quarantinable::Message);
    assert_eq!(std::fs::read(&kept.path).unwrap(), deadly.message);
}

async fn uploading() {
    let (store, surroundings) = with_store();
    let home = Home::new();
    let records = capture("dropper");
    let sidecar = start(&home, &surroundings, &[]).await;
    store.panic_over(Some("v1/reconciles"));
    home.emit_all(&records).await;
    assert_reported(&sidecar, "upload").await;
    store.panic_over(None);
    let stored = || {
        counted(
            &sidecar.metrics().text().unwrap(),
            "spanplane_objects_stored_total",
        )
    };
    until("it is stored", || stored() > 0).await;
    assert_ready(&sidecar).await;
    stop(sidecar).await;
    let archive = Archive::over(store, Compression::Zstd);
    assert_all_payloads_stored(&records, &documents(&archive).await);
}

async fn checking_the_store() {
    let (store, surroundings) = with_store();
    store.panic_over(Some("v1/check.json"));
    let home = Home::new();
    let sidecar = start(&home, &surroundings, &[]).await;
    assert_reported(&sidecar, "check").await;
    store.panic_over(None);
    let panics = sidecar.metrics().panics().clone();
    until("it is checked again", || panics.broken().count() == 0).await;
    assert_ready(&sidecar).await;
    stop(sidecar).await;
}

async fn reading_what_is_to_be_uploaded() {
    let disk = TrickyDisk::default();
    let panics_at = Arc::clone(&disk.panics_at);
    let surroundings = Surroundings {
        disk: Arc::new(disk),
        ..Surroundings::default()
    };
    let home = Home::new();
    let records = capture("dropper");
    let sidecar = start(&home, &surroundings, &[]).await;
    *panics_at.lock().unwrap() = Some(".parcel");
    home.emit_all(&records).await;
    // It is read on another thread than the one that sends it.
    assert_reported(&sidecar, "upload").await;
    *panics_at.lock().unwrap() = None;
    let stored = || {
        counted(
            &sidecar.metrics().text().unwrap(),
            "spanplane_objects_stored_total",
        )
    };
    until("it is stored", || stored() > 0).await;
    stop(sidecar).await;
    assert_all_payloads_stored(&records, &home.documents().await);
}

async fn noting_how_the_store_does() {
    let (clock, surroundings) = with_clock();
    let (store, with_store) = with_store();
    store.is_held.store(true, Ordering::Relaxed);
    let surroundings = Surroundings {
        store: with_store.store,
        ..surroundings
    };
    let home = Home::new();
    let sidecar = start(&home, &surroundings, &[]).await;
    // The check is the only one to write, and the note the only one to ask for the time then.
    let thread = std::thread::current();
    clock.panic_on(thread.name().unwrap());
    store.let_go();
    let panics = sidecar.metrics().panics().clone();
    // NOTE: showing the metrics would ask for the time on this thread.
    let has_panicked = || {
        let mut counts = panics.counts();
        counts.any(|(task, count)| task == Task::Check && count > 0)
    };
    until("it panicked", has_panicked).await;
    let note = home.data_dir().join("store-state.json");
    until("the note is written", || note.is_file()).await;
    assert_ready(&sidecar).await;
    stop(sidecar).await;
}

async fn sending_spans() {
    let collector = OtlpServer::start_grpc().await;
    let endpoint = |name: &str| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(collector.url().to_owned()),
        // The port is not the one that is known for it.
        "OTEL_EXPORTER_OTLP_PROTOCOL" => Some("grpc".to_owned()),
        _ => None,
    };
    let disk = TrickyDisk::default();
    let panics_at = Arc::clone(&disk.panics_at);
    let surroundings = Surroundings {
        disk: Arc::new(disk),
        ..Surroundings::default()
    };
    let home = Home::new();
    let mut settings = home.settings(&SERVED);
    let mut ignored = Vec::new();
    settings.telemetry.traces =
        Destination::from_variables(&endpoint, Signal::Traces, &mut ignored);
    let sidecar = Sidecar::start_in(settings, surroundings).await.unwrap();
    home.emit_all(&capture("dropper")).await;
    *panics_at.lock().unwrap() = Some(".otlp.zst");
    assert_reported(&sidecar, "export").await;
    *panics_at.lock().unwrap() = None;
    let exported = || {
        counted(
            &sidecar.metrics().text().unwrap(),
            "spanplane_spans_exported_total",
        )
    };
    until("spans are sent", || exported() > 0).await;
    assert_ready(&sidecar).await;
    stop(sidecar).await;
}

async fn showing_a_page() {
    let (clock, surroundings) = with_clock();
    let home = Home::new();
    let sidecar = start(&home, &surroundings, &[]).await;
    clock.panic_on("viewer");
    let page = get(sidecar.viewer_address(), "/").await;
    assert!(page.starts_with("HTTP/1.1 500 "), "{page}");
    assert_reported(&sidecar, "viewer").await;
    let page = get(sidecar.viewer_address(), "/").await;
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    assert_ready(&sidecar).await;
    stop(sidecar).await;
}

async fn showing_metrics() {
    let (clock, surroundings) = with_clock();
    let home = Home::new();
    let sidecar = start(&home, &surroundings, &[]).await;
    let age = "spanplane_spool_oldest_record_age_seconds ";
    let note = home.data_dir().join("store-state.json");
    until("the store is checked", || note.is_file()).await;
    // They are served by the thread that this test runs on.
    let thread = std::thread::current();
    clock.panic_on(thread.name().unwrap());
    let metrics = get(sidecar.metrics_address(), "/metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200 "), "{metrics}");
    assert!(!metrics.contains(age), "{metrics}");
    let answer = readiness(&sidecar).await;
    assert!(answer.contains("the metrics task panicked"), "{answer}");
    let metrics = get(sidecar.metrics_address(), "/metrics").await;
    assert!(metrics.contains(age), "{metrics}");
    assert!(metrics.contains("spanplane_panics_total{task=\"metrics\"} 1"));
    assert_ready(&sidecar).await;
    stop(sidecar).await;
}

/// Panics at the first batch of metrics.
struct TrickyExporter(Arc<AtomicUsize>);

impl PushMetricExporter for TrickyExporter {
    async fn export(&self, _metrics: &ResourceMetrics) -> OTelSdkResult {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        assert!(before > 0, "exported in a test");
        Ok(())
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        Temporality::Cumulative
    }
}

async fn pushing_metrics() {
    let pushes = Arc::new(AtomicUsize::new(0));
    let exporter = TrickyExporter(Arc::clone(&pushes));
    let nobody = Resource::builder_empty().build();
    let metrics = Metrics::pushing(exporter, Duration::from_millis(1), nobody).unwrap();
    until("metrics are pushed again", || {
        pushes.load(Ordering::Relaxed) > 2
    })
    .await;
    let mut counts = metrics.panics().counts();
    assert!(counts.any(|(task, count)| task == Task::Metrics && count == 1));
}
