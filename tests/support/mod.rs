//! What several test programs share: captures, a sidecar on a socket of its own, and a look into
//! its store.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test program uses a part of this"
)]
#![allow(
    clippy::allow_attributes,
    reason = "what is unused differs from program to program"
)]

pub mod authority;
pub mod otlp;
pub mod program;
pub mod s3;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use clap::Parser;
use prost::Message as _;
use serde_json::Value;
use spanplane::{
    archive::{Archive, Compression, StoreUrl, Variables},
    backoff::Backoff,
    capture::{read_capture, step_of},
    client::InspectorClient,
    config::{ServeArgs, Settings},
    disk::LocalDisk,
    metrics::Metrics,
    proto::pipeline,
    record::{Record, RecordKind},
    serve::Sidecar,
    spool::{Spool, SpoolSettings},
};
use tempfile::TempDir;

/// Long enough for a loaded machine; nothing waits for it when all is well.
pub const PATIENCE: Duration = Duration::from_mins(3);

/// A thirtieth of the pauses that a sidecar makes.
pub const QUICK: Backoff = Backoff {
    first: Duration::from_millis(7),
    longest: Duration::from_millis(500),
};

const CAPTURES: [&str; 8] = [
    "broken",
    "dropper",
    "network",
    "operation",
    "requirements",
    "secrets",
    "steady-idle",
    "steady-start",
];

/// The messages of a capture.
pub fn capture(name: &str) -> Vec<Record> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures");
    let compressed = std::fs::read(folder.join(format!("{name}.jsonl.zst"))).unwrap();
    read_capture(&compressed).unwrap()
}

/// The messages of all captures, in the order in which they came.
pub fn every_capture() -> Vec<Record> {
    let mut records: Vec<_> = CAPTURES.into_iter().flat_map(capture).collect();
    records.sort_by_key(|record| record.received_at);
    records
}

#[derive(Parser)]
#[command(args_override_self = true)]
struct ServeLine {
    #[command(flatten)]
    args: ServeArgs,
}

/// A folder for a sidecar, and how to run one in it.
#[derive(Debug)]
pub struct Home {
    folder: TempDir,
    variables: Variables,
    store: Option<String>,
}

impl Home {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            folder,
            variables: Variables::default(),
            store: None,
        }
    }

    /// With a bucket on this server as its store.
    pub fn with_s3(server: &s3::S3Server) -> Self {
        Self {
            variables: server.variables(),
            store: Some(s3::S3Server::url("some/prefix")),
            ..Self::new()
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn socket(&self) -> PathBuf {
        self.path().join("socket")
    }

    pub fn data_dir(&self) -> PathBuf {
        self.path().join("data")
    }

    pub fn settings(&self, flags: &[&str]) -> Settings {
        let socket = self.socket();
        let data_dir = self.data_dir();
        let mut line = vec![
            "spanplane",
            "--socket-path",
            socket.to_str().unwrap(),
            "--data-dir",
            data_dir.to_str().unwrap(),
            "--metrics-address=none",
            "--viewer-address=none",
            "--shutdown-timeout=240s",
        ];
        if let Some(store) = &self.store {
            line.extend(["--store", store]);
        }
        line.extend(flags);
        let mut settings = ServeLine::try_parse_from(line)
            .unwrap()
            .args
            .validate()
            .unwrap();
        settings.store_variables = self.variables.clone();
        settings.backoff = QUICK;
        settings
    }

    pub async fn start(&self, flags: &[&str]) -> Sidecar {
        Sidecar::start(self.settings(flags)).await.unwrap()
    }

    pub fn client(&self) -> InspectorClient {
        InspectorClient::new(self.socket(), PATIENCE)
    }

    /// Sends all of this, in order.
    pub async fn emit_all(&self, records: &[Record]) {
        emit_all(&mut self.client(), records).await;
    }

    /// Runs a sidecar, sends it all of this and stops it; returns what it counted.
    pub async fn play(&self, flags: &[&str], records: &[Record]) -> String {
        let sidecar = self.start(flags).await;
        self.emit_all(records).await;
        stop(sidecar).await
    }

    pub fn archive(&self) -> Archive {
        let settings = self.settings(&[]);
        Archive::open(&settings.store, &self.variables, Compression::Zstd).unwrap()
    }

    /// Every stored document, by its key.
    pub async fn documents(&self) -> BTreeMap<String, String> {
        documents(&self.archive()).await
    }
}

/// Puts messages into the log of a data directory, with the times at which they came.
pub async fn fill_spool(data_dir: &Path, records: &[Record]) {
    let settings = SpoolSettings {
        data_dir: data_dir.to_owned(),
        max_bytes: 1 << 30,
        sync: Duration::from_secs(1),
        syncs_itself: true,
    };
    let metrics = Metrics::new().unwrap();
    let (spool, _) = Spool::open(&settings, Arc::new(LocalDisk), &metrics, Arc::default()).unwrap();
    let appender = spool.appender();
    for record in records {
        appender.append(record.clone()).await.unwrap();
    }
    drop(appender);
    assert!(spool.close(PATIENCE));
}

/// Waits for something that happens elsewhere.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "waited in vain until {what}");
}

/// Sends messages, in order; all of them are taken.
pub async fn emit_all(client: &mut InspectorClient, records: &[Record]) {
    for record in records {
        client
            .emit(record.kind, record.message.clone())
            .await
            .unwrap();
    }
}

/// Stops a sidecar once everything it received is stored; returns what it counted.
pub async fn stop(sidecar: Sidecar) -> String {
    let metrics = sidecar.metrics().clone();
    sidecar.run_until(std::future::ready(())).await.unwrap();
    metrics.text().unwrap()
}

/// The value of a counter, summed over its labels.
pub fn counted(metrics: &str, name: &str) -> u64 {
    let is_it = |line: &&str| line.split([' ', '{']).next() == Some(name);
    let values = metrics
        .lines()
        .filter(is_it)
        .map(|line| line.rsplit(' ').next().unwrap());
    values.map(|value| value.parse::<u64>().unwrap()).sum()
}

/// Every document in a store, by its key.
pub async fn documents(archive: &Archive) -> BTreeMap<String, String> {
    let mut documents = BTreeMap::new();
    for (key, ..) in archive.list().await.unwrap() {
        let document = String::from_utf8(archive.fetch(&key).await.unwrap()).unwrap();
        documents.insert(key.to_string(), document);
    }
    documents
}

/// A store in a folder.
pub fn folder_archive(folder: &Path) -> Archive {
    let url = StoreUrl::folder(folder);
    Archive::open(&url, &Variables::default(), Compression::Zstd).unwrap()
}

/// Checks that every payload stands in a document of its trace, byte for byte.
pub fn assert_all_payloads_stored(records: &[Record], documents: &BTreeMap<String, String>) {
    let mut by_trace: BTreeMap<String, Vec<&String>> = BTreeMap::new();
    for document in documents.values() {
        let trace_id = trace_id_of(document);
        by_trace.entry(trace_id).or_default().push(document);
    }
    for record in records {
        let step = step_of(record);
        let payload = std::str::from_utf8(&step.payload).unwrap();
        let found = by_trace.get(&step.meta.trace_id).is_some_and(|documents| {
            documents.iter().any(|document| {
                let member = format!("\"{}\":{payload}", step.kind.as_str());
                document.contains(&member)
            })
        });
        assert!(
            found || (payload.is_empty() && !step.error.is_empty()),
            "payload of {} {} step {} is missing",
            step.meta.trace_id,
            step.kind.as_str(),
            step.meta.step_index
        );
    }
}

pub fn trace_id_of(document: &str) -> String {
    let document: Value = serde_json::from_str(document).unwrap();
    document["trace_id"].as_str().unwrap().to_owned()
}

/// A message in the shipped layout.
pub fn message(trace: &str, step: i32, kind: RecordKind, payload: &str) -> Record {
    message_at(1_794_803_806, trace, step, kind, payload)
}

/// The same, of a call at this second.
pub fn message_at(seconds: i64, trace: &str, step: i32, kind: RecordKind, payload: &str) -> Record {
    use pipeline::{CompositionMeta, StepMeta, step_meta::Context};

    let meta = StepMeta {
        timestamp: Some(prost_types::Timestamp {
            seconds,
            nanos: 5_000_000,
        }),
        trace_id: trace.to_owned(),
        span_id: format!("{trace}-{step}"),
        step_index: step,
        step_name: format!("step-{step}"),
        iteration: 0,
        function_name: "function-test".to_owned(),
        context: Some(Context::CompositionMeta(CompositionMeta {
            composition_name: "tests".to_owned(),
            composite_resource_uid: format!("uid-of-{trace}"),
            composite_resource_name: format!("xr-of-{trace}"),
            composite_resource_namespace: String::new(),
            composite_resource_api_version: "example.org/v1".to_owned(),
            composite_resource_kind: "Test".to_owned(),
        })),
    };
    raw_message(kind, payload.as_bytes(), &meta.encode_to_vec())
}

/// A message with any meta.
pub fn raw_message(kind: RecordKind, payload: &[u8], meta: &[u8]) -> Record {
    let payload = Bytes::copy_from_slice(payload);
    let meta = Bytes::copy_from_slice(meta);
    let message = match kind {
        RecordKind::Request => pipeline::EmitRequestRequest {
            request: payload,
            meta,
        }
        .encode_to_vec(),
        RecordKind::Response => {
            let error = String::new();
            pipeline::EmitResponseRequest {
                response: payload,
                error,
                meta,
            }
            .encode_to_vec()
        }
    };
    Record {
        kind,
        received_at: spanplane::time::Timestamp::default(),
        message: message.into(),
    }
}

/// What is answered at an address.
pub async fn get(address: Option<SocketAddr>, path: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let mut stream = tokio::net::TcpStream::connect(address.unwrap())
        .await
        .unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
