//! Reconciles to make a world of: what a real Crossplane emitted, through a real sidecar.
//!
//! The network's pipeline gets a fifth step, which passes on what it is given; one of its
//! reconciles also comes with so many resources that its largest payload has 4 MB.

use std::path::Path;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Parser;
use futures_util::TryStreamExt as _;
use prost::Message as _;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use spanplane::{
    answers::Answers,
    archive::Query,
    capture::{Replay, read_capture, step_of},
    client::InspectorClient,
    config::ServeArgs,
    line::{Line, PayloadState, Status},
    proto::pipeline::{EmitRequestRequest, EmitResponseRequest, StepMeta, step_meta::Context},
    record::{Record, RecordKind},
    serve::Sidecar,
    time::{Clock as _, SystemClock},
};

use crate::open;

const NETWORK: &[u8] = include_bytes!("../../tests/fixtures/captures/network.jsonl.zst");
const BROKEN: &[u8] = include_bytes!("../../tests/fixtures/captures/broken.jsonl.zst");

const NETWORK_NAME: &str = "prod-net";
/// Reconciles of the network that are played, the last ones.
const NETWORK_RECONCILES: usize = 12;
/// A payload that holds everything this many times has 4 MB.
const TIMES: usize = 104;
/// As long as the other.
const LARGE_NAME: &str = "mega-net";
const LARGE_TRACE: &str = "00000000-0000-4000-8000-000000000001";
/// A laptop that is busy compiling may take longer than core's 100 ms.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(60);

/// A reconcile that was stored.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) line: Line,
    pub(crate) document: String,
}

#[derive(Debug)]
pub(crate) struct Templates {
    /// One after the other.
    pub(crate) usual: Vec<Template>,
    pub(crate) failed: Template,
    pub(crate) dropping: Template,
    /// With a payload of 4 MB.
    pub(crate) large: Template,
}

impl Templates {
    pub(crate) async fn make(folder: &Path) -> anyhow::Result<Self> {
        let network = last_traces(read_capture(NETWORK)?, NETWORK_NAME, NETWORK_RECONCILES);
        let mut records = with_fifth_steps(&network)?;
        let last = records.last().map(|record| step_of(record).meta.trace_id);
        let last = last.context("the capture is empty")?;
        for record in records.clone() {
            if step_of(&record).meta.trace_id == last {
                records.push(enlarged(&record)?);
            }
        }
        records.extend(last_traces(read_capture(BROKEN)?, "grpc-unavailable", 1));
        play(folder, &records).await?;

        let answers = Answers::new(open(&folder.join("store"))?);
        let lines = answers.lines(Query::default());
        let mut lines: Vec<_> = lines.try_collect().await?;
        lines.reverse();
        let mut stored = Vec::new();
        for line in lines {
            if line.object.state == PayloadState::Stored {
                let document = answers.payloads(&line).await?.text().to_owned();
                stored.push(Template { line, document });
            }
        }
        let mut take = |is_it: fn(&Line) -> bool| {
            let place = stored.iter().rposition(|template| is_it(&template.line));
            place.map(|place| stored.remove(place))
        };
        let large = take(|line| line.subject.name == LARGE_NAME);
        let failed = take(|line| line.status == Status::Error);
        let dropping = take(|line| line.dropped_count > 0);
        Ok(Self {
            usual: stored,
            failed: failed.context("no reconcile failed")?,
            dropping: dropping.context("no reconcile dropped anything")?,
            large: large.context("no reconcile is large")?,
        })
    }
}

/// The messages of the last reconciles of a subject.
fn last_traces(records: Vec<Record>, name: &str, reconciles: usize) -> Vec<Record> {
    let trace_of = |record: &Record| {
        let meta = step_of(record).meta;
        let is_it = meta.subject.is_some_and(|subject| subject.name == name);
        is_it.then_some(meta.trace_id)
    };
    let mut traces: Vec<String> = Vec::new();
    for trace in records.iter().filter_map(trace_of) {
        if !traces.contains(&trace) {
            traces.push(trace);
        }
    }
    let last = traces.split_off(traces.len().saturating_sub(reconciles));
    let is_last = |record: &Record| trace_of(record).is_some_and(|trace| last.contains(&trace));
    records.into_iter().filter(is_last).collect()
}

#[derive(Deserialize)]
struct Desiring<'p> {
    #[serde(borrow)]
    desired: Option<&'p RawValue>,
}

fn desired(payload: &str) -> anyhow::Result<&str> {
    let parts: Desiring<'_> = serde_json::from_str(payload)?;
    Ok(parts.desired.map_or("{}", RawValue::get))
}

fn with_fifth_steps(records: &[Record]) -> anyhow::Result<Vec<Record>> {
    let mut longer: Vec<Record> = Vec::new();
    for pair in records.chunks(2) {
        longer.extend_from_slice(pair);
        let [request, response] = pair else {
            continue;
        };
        if step_of(request).meta.step_index != 3 {
            continue;
        }
        let payloads = [request, response].map(|record| step_of(record).payload);
        let asked = std::str::from_utf8(&payloads[0])?;
        let answered = std::str::from_utf8(&payloads[1])?;
        let asked = asked.replacen(desired(asked)?, desired(answered)?, 1);
        for (record, payload) in [(request, asked.as_str()), (response, answered)] {
            longer.push(changed(record, payload, |meta| {
                meta.step_index = 4;
                meta.step_name = "check-policies".to_owned();
                meta.function_name = "function-policies".to_owned();
                meta.span_id = meta.span_id.chars().rev().collect();
            })?);
        }
    }
    Ok(longer)
}

/// The same message with very many more resources, as one of another subject.
fn enlarged(record: &Record) -> anyhow::Result<Record> {
    let payload = step_of(record).payload;
    let mut payload: Value = serde_json::from_slice(&payload)?;
    for resources in ["/observed/resources", "/desired/resources"] {
        let Some(Value::Object(resources)) = payload.pointer_mut(resources) else {
            continue;
        };
        for (name, resource) in resources.clone() {
            let copies = (1..TIMES).map(|copy| (format!("{name}-{copy:03}"), resource.clone()));
            resources.extend(copies);
        }
    }
    let payload = payload.to_string().replace(NETWORK_NAME, LARGE_NAME);
    changed(record, &payload, |meta| {
        meta.trace_id = LARGE_TRACE.to_owned();
        meta.span_id = meta.span_id.chars().rev().collect();
        if let Some(Context::CompositionMeta(context)) = &mut meta.context {
            context.composite_resource_name = LARGE_NAME.to_owned();
            context.composite_resource_uid = LARGE_TRACE.to_owned();
        }
    })
}

fn changed(
    record: &Record,
    payload: &str,
    change: impl FnOnce(&mut StepMeta),
) -> anyhow::Result<Record> {
    let changed = |meta: Bytes| {
        let mut meta = StepMeta::decode(meta)?;
        change(&mut meta);
        anyhow::Ok(Bytes::from(meta.encode_to_vec()))
    };
    let payload = Bytes::copy_from_slice(payload.as_bytes());
    let message = record.message.clone();
    let message = match record.kind {
        RecordKind::Request => {
            let meta = changed(EmitRequestRequest::decode(message)?.meta)?;
            let request = payload;
            EmitRequestRequest { request, meta }.encode_to_vec()
        }
        RecordKind::Response => {
            let message = EmitResponseRequest::decode(message)?;
            EmitResponseRequest {
                response: payload,
                meta: changed(message.meta)?,
                error: message.error,
            }
            .encode_to_vec()
        }
    };
    Ok(Record {
        message: message.into(),
        ..*record
    })
}

#[derive(Parser)]
struct ServeLine {
    #[command(flatten)]
    args: ServeArgs,
}

/// Sends all of this through a sidecar.
async fn play(folder: &Path, records: &[Record]) -> anyhow::Result<()> {
    let sockets = tempfile::tempdir()?;
    let socket = sockets.path().join("socket");
    let store = format!("file://{}", folder.join("store").display());
    let line = ServeLine::try_parse_from([
        "spanplane".as_ref(),
        "--socket-path".as_ref(),
        socket.as_os_str(),
        "--data-dir".as_ref(),
        folder.as_os_str(),
        "--store".as_ref(),
        store.as_ref(),
        "--metrics-address=none".as_ref(),
        "--max-recv-msg-size=16777216".as_ref(),
        "--shutdown-timeout=5m".as_ref(),
    ])?;
    let settings = line.args.validate();
    let settings = settings.map_err(|mistakes| anyhow::anyhow!(mistakes.join("; ")))?;
    let sidecar = Sidecar::start(settings).await?;
    let mut client = InspectorClient::new(socket, DEADLINE);
    let mut replay = Replay::new("world".to_owned());
    for record in records {
        let (wait, message) = replay.next(record, SystemClock.now());
        tokio::time::sleep(wait).await;
        client.emit(record.kind, message).await?;
    }
    sidecar.run_until(std::future::ready(())).await?;
    Ok(())
}
