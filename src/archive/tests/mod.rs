//! Parts of reconciles on their way to one store, from one process or from several.

mod delivering;
mod watched;

use std::{
    io::Write as _,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use object_store::{ObjectStore, ObjectStoreExt as _, PutPayload, memory::InMemory};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::watched::{Asked, Watched};
use super::{
    Archive, Compression, Deadly, JoinWatch, Joins, Key, ObjectWriter,
    delivery::{DENIALS, Delivered, deliver},
    local::LocalStore,
    standing::Witness,
    store::OpenStore,
    uploads::{Shared, Shipment, UploadError},
};
use crate::{
    disk::{LocalDisk, SharedDisk},
    fingerprint::Fingerprint,
    line::{Line, samples},
    memory::Unlimited,
    metrics::Metrics,
    outbox::{Label, ParcelId, Parcels},
    publish::join_documents,
    reconcile::{Subject, TraceId},
    time::{Clock, Timestamp},
};

/// Shows what it is told to.
#[derive(Debug)]
struct HeldClock(AtomicI64);

impl Clock for HeldClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// A store, and how to look into it.
struct Place {
    store: Arc<Watched>,
    /// Of a store on local disk.
    folder: Option<TempDir>,
}

impl Place {
    fn in_memory(seed: u64) -> Self {
        Self {
            store: Watched::new(Arc::new(InMemory::new()), seed),
            folder: None,
        }
    }

    fn on_disk(seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = LocalStore::open(folder.path()).unwrap();
        Self {
            store: Watched::new(Arc::new(files), seed),
            folder: Some(folder),
        }
    }

    fn archive(&self, compression: Compression) -> Archive {
        let client: Arc<dyn ObjectStore> = Arc::<Watched>::clone(&self.store);
        Archive {
            store: OpenStore {
                client,
                signer: None,
                prefix: object_store::path::Path::default(),
                is_local: self.folder.is_some(),
                folder: self.folder.as_ref().map(|folder| folder.path().to_owned()),
            },
            compression,
            abilities: Arc::default(),
            witness: Witness::default(),
        }
    }

    /// A process that started at this second.
    fn process(&self, started_at: i64) -> Process {
        self.process_with(started_at, Compression::Zstd)
    }

    fn process_with(&self, started_at: i64, compression: Compression) -> Process {
        let nanos = samples::at(started_at).as_nanos();
        let clock = Arc::new(HeldClock(AtomicI64::new(nanos)));
        let shared_clock: Arc<dyn Clock> = Arc::<HeldClock>::clone(&clock);
        let metrics = Metrics::new().unwrap();
        let archive = self.archive(compression);
        let outbox = tempfile::tempdir().unwrap();
        let disk: SharedDisk = Arc::new(LocalDisk);
        let parcels = Parcels::open(Arc::clone(&disk), outbox.path().to_owned());
        Process {
            shared: Shared::new(disk, archive, joins(), metrics, shared_clock),
            clock,
            compression,
            parcels: parcels.unwrap(),
            tries: 0,
            failing_for: None,
            _outbox: outbox,
        }
    }

    /// Every document, with its key.
    async fn documents(&self) -> Vec<(Key, Value)> {
        let archive = self.archive(Compression::Zstd);
        let mut documents = Vec::new();
        for (key, ..) in archive.list().await.unwrap() {
            let document = archive.fetch(&key).await.unwrap();
            documents.push((key, serde_json::from_slice(&document).unwrap()));
        }
        documents
    }

    /// The indices of the steps in the only document that there is.
    async fn only_steps(&self) -> Vec<i64> {
        let documents = self.documents().await;
        let [(_, document)] = &documents[..] else {
            panic!("{:?}", documents.iter().map(|it| &it.0).collect::<Vec<_>>())
        };
        steps_of(document)
    }

    async fn put(&self, key: &str, body: impl Into<PutPayload>) {
        self.store.put(&key.into(), body.into()).await.unwrap();
    }
}

fn steps_of(document: &Value) -> Vec<i64> {
    let steps = document["steps"].as_array().unwrap().iter();
    steps.map(|step| step["index"].as_i64().unwrap()).collect()
}

/// A process with a store.
struct Process {
    shared: Shared,
    clock: Arc<HeldClock>,
    compression: Compression,
    parcels: Parcels,
    /// How often everything that it sends was tried before.
    tries: u32,
    /// How long ago everything that it sends was first tried; if it is not said, when it ended.
    failing_for: Option<Duration>,
    _outbox: TempDir,
}

impl Process {
    fn at(self, second: i64) -> Self {
        let nanos = samples::at(second).as_nanos();
        self.clock.0.store(nanos, Ordering::Relaxed);
        self
    }

    fn denied_before(self) -> Self {
        Self {
            tries: DENIALS,
            ..self
        }
    }

    fn failing_for(self, seconds: u64) -> Self {
        Self {
            failing_for: Some(Duration::from_secs(seconds)),
            ..self
        }
    }

    fn draining(self) -> Self {
        self.shared.hurry();
        self
    }

    /// Sends what was received of a reconcile, whose first step began at second 0, the next at
    /// second 1, and so on.
    async fn send(&mut self, steps: Range<u8>) -> Result<Delivered, UploadError> {
        self.send_padded(steps, "").await
    }

    /// The same, with so much more in each payload.
    async fn send_padded(
        &mut self,
        steps: Range<u8>,
        padding: &str,
    ) -> Result<Delivered, UploadError> {
        let shipment = self.seal(&steps, padding);
        deliver(&self.shared, &shipment).await
    }

    fn seal(&mut self, steps: &Range<u8>, padding: &str) -> Shipment {
        let label = label(steps, self.compression);
        let document = document(steps, padding).to_string();
        let parcel = self.parcels.begin().unwrap();
        let mut object = ObjectWriter::new(self.compression, document.len(), parcel).unwrap();
        object.write_all(document.as_bytes()).unwrap();
        let parcel = object.finish().unwrap();
        let id = self.parcels.seal(parcel, &label, samples::at(0)).unwrap();
        let since_its_end = self.shared.now().since(label.line.ended_at);
        Shipment {
            failing_for: self.failing_for.unwrap_or(since_its_end),
            parcel: id,
            path: self.parcels.path_of(id),
            is_retried: false,
            tries: self.tries,
        }
    }
}

fn subject() -> Subject {
    Subject {
        api_version: "example.org/v1".into(),
        kind: "Network".into(),
        name: "net".into(),
        ..Subject::default()
    }
}

fn document(steps: &Range<u8>, padding: &str) -> Value {
    let step = |index: u8| {
        let at = samples::at(index.into());
        json!({
            "index": index, "name": format!("step-{index}"), "iteration": 0, "function": "f",
            "span_id": format!("span-{index}"), "timestamp": at, "ended_at": at, "error": null,
            "request": {"asked": index, "padding": padding},
            "response": {"answered": index, "padding": padding},
        })
    };
    let steps: Vec<_> = steps.clone().map(step).collect();
    json!({"v": 1, "trace_id": "trace", "subject": subject(), "steps": steps})
}

fn label(steps: &Range<u8>, compression: Compression) -> Label {
    let started_at = samples::at(steps.start.into());
    let mut line = samples::with_steps(samples::line("trace", started_at), steps.len());
    line.ended_at = samples::at(i64::from(steps.end) - 1);
    let trace_id = TraceId("trace".into());
    let key = Key::of_reconcile(&subject(), &trace_id, started_at, compression);
    line.object.key = key.to_string();
    Label {
        subject: subject(),
        is_fragment: steps.start > 0,
        fingerprint: Fingerprint::of(&[steps.start, steps.end]),
        line,
        beginning: None,
    }
}

fn assert_complete(line: &Line, steps: usize, revision: u32) {
    assert_eq!((line.steps.len(), line.revision), (steps, revision));
    assert_eq!(line.started_at, samples::at(0));
    let indices = line.steps.iter().map(|step| step.index);
    assert!(indices.eq((0..).take(steps)));
}

/// Nobody dies here.
#[derive(Debug)]
struct Unwatched;

impl JoinWatch for Unwatched {
    fn begin(&self, _: ParcelId) -> Result<(), Deadly> {
        Ok(())
    }

    fn end(&self, _: ParcelId) {}
}

fn joins() -> Joins {
    Joins {
        joiner: join_documents,
        memory: Arc::new(Unlimited),
        watch: Arc::new(Unwatched),
    }
}
