//! `spanplane demo`: the whole sidecar on a real socket, fed with what a real Crossplane emitted.
//!
//! Invariant: nothing is staged. The messages are those of a real Crossplane, as far apart within
//! a step as they were; what is printed is read back from the store.

mod tree;

use std::{
    collections::{BTreeMap, HashSet},
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::Parser;
use futures_util::StreamExt as _;
use spanplane::{
    archive::{Archive, Compression, Query, StoreUrl, Variables},
    capture::{Replay, read_capture, step_of},
    client::InspectorClient,
    config::ServeArgs,
    export::OtlpSettings,
    line::Line,
    record::Record,
    serve::Sidecar,
    time::{Clock as _, SystemClock, Timestamp},
};

use self::tree::{show_line, show_story};

/// A laptop that is busy compiling may take longer than core's 100 ms.
const EMIT_DEADLINE: Duration = Duration::from_secs(10);

/// What is played: a capture, which subjects of it, and how many of the last reconciles of each.
const WORLD: [(&[u8], &[&str], usize); 4] = [
    (
        include_bytes!("../../tests/fixtures/captures/network.jsonl.zst"),
        &["prod-net"],
        13,
    ),
    (
        include_bytes!("../../tests/fixtures/captures/dropper.jsonl.zst"),
        &["assets"],
        12,
    ),
    (
        include_bytes!("../../tests/fixtures/captures/broken.jsonl.zst"),
        &["fatal-bad", "grpc-unavailable", "hanger"],
        3,
    ),
    (
        include_bytes!("../../tests/fixtures/captures/steady-idle.jsonl.zst"),
        &["calm-1", "calm-2"],
        5,
    ),
];

/// What `demo` can be told.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Folder for spool and store [default: a new one among the temporary files]
    #[arg(long, value_name = "PATH")]
    data_dir: Option<PathBuf>,
}

pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<()> {
    let folder = match &args.data_dir {
        Some(folder) => folder.clone(),
        None => tempfile::Builder::new()
            .prefix("spanplane-demo-")
            .tempdir()?
            .keep(),
    };
    crate::runtime()?.block_on(play(&folder))
}

/// Settings as `serve` would get them on the command line.
#[derive(Parser)]
#[command(args_override_self = true)]
struct ServeLine {
    #[command(flatten)]
    args: ServeArgs,
}

async fn play(folder: &Path) -> anyhow::Result<()> {
    // A socket's path may have 108 bytes, so it does not go where the user's data goes.
    let sockets = tempfile::Builder::new().prefix("spanplane-").tempdir()?;
    let socket = sockets.path().join("socket");
    let store = format!(
        "file://{}",
        std::path::absolute(folder)?.join("store").display()
    );
    let line = ServeLine::try_parse_from([
        "demo".as_ref(),
        "--socket-path".as_ref(),
        socket.as_os_str(),
        "--data-dir".as_ref(),
        folder.as_os_str(),
        // Whatever the environment says: this is no place for a world of make-believe.
        "--store".as_ref(),
        store.as_ref(),
        "--metrics-address=none".as_ref(),
        "--shutdown-timeout=1m".as_ref(),
    ])?;
    let settings = line
        .args
        .validate()
        .map_err(|mistakes| anyhow::anyhow!(mistakes.join("; ")))?;
    let store = settings.store.clone();
    let traces = settings.telemetry.traces.clone();
    let sidecar = Sidecar::start(settings).await?;

    let started_at = SystemClock.now();
    let mut replay = Replay::new(started_at.to_string());
    let mut client = InspectorClient::new(socket, EMIT_DEADLINE);
    let mut messages = 0;
    for (capture, names, reconciles) in WORLD {
        for record in chosen_records(capture, names, reconciles)? {
            let (wait, message) = replay.next(&record, SystemClock.now());
            tokio::time::sleep(wait).await;
            client
                .emit(record.kind, message)
                .await
                .context("the sidecar did not take a message")?;
            messages += 1;
        }
    }
    // Stopping finishes everything that was received.
    sidecar.run_until(std::future::ready(())).await?;
    show(messages, started_at, &store, traces.as_ref()).await
}

/// The messages of the last reconciles of these subjects.
fn chosen_records(
    capture: &[u8],
    names: &[&str],
    reconciles: usize,
) -> anyhow::Result<Vec<Record>> {
    let records = read_capture(capture)?;
    let metas: Vec<_> = records.iter().map(|record| step_of(record).meta).collect();
    let mut traces: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for meta in &metas {
        let Some(subject) = &meta.subject else {
            continue;
        };
        let seen = traces.entry(&subject.name).or_default();
        if names.contains(&subject.name.as_str()) && !seen.contains(&meta.trace_id.as_str()) {
            seen.push(&meta.trace_id);
        }
    }
    let chosen: HashSet<&str> = traces
        .values()
        .flat_map(|traces| traces.iter().rev().take(reconciles))
        .copied()
        .collect();
    let kept = records.iter().zip(&metas);
    let kept = kept.filter(|(_, meta)| chosen.contains(meta.trace_id.as_str()));
    Ok(kept.map(|(record, _)| record.clone()).collect())
}

async fn show(
    messages: usize,
    started_at: Timestamp,
    store: &StoreUrl,
    traces: Option<&OtlpSettings>,
) -> anyhow::Result<()> {
    let archive = Archive::open(store, &Variables::default(), Compression::default())?;
    let query = Query {
        since: Some(started_at),
        ..Query::default()
    };
    let mut index = Box::pin(archive.read_index(query));
    let mut lines = Vec::new();
    while let Some(line) = index.next().await {
        lines.push(line?);
    }
    lines.reverse();
    let mut subjects: BTreeMap<String, Vec<&Line>> = BTreeMap::new();
    for line in &lines {
        subjects.entry(tree::title_of(line)).or_default().push(line);
    }

    let folder = store.local_folder().unwrap_or_default();
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{messages} messages of {} reconciles went through the socket.",
        lines.len()
    )?;
    if let Some(traces) = traces {
        let endpoint = traces.endpoint();
        writeln!(out, "Their traces are at {endpoint}:\n")?;
        for line in &lines {
            writeln!(out, "{}", show_line(line))?;
        }
    } else {
        writeln!(
            out,
            "OTEL_EXPORTER_OTLP_ENDPOINT names no collector, so here are their traces:"
        )?;
        for (title, lines) in &subjects {
            writeln!(out, "\n{title}\n{}", show_story(lines).join("\n"))?;
        }
    }
    writeln!(out, "\nThe payloads are in {}", folder.display())?;
    let failed = lines.iter().rev().find(|line| line.status.is_failure());
    if let Some(line) = failed {
        let path = folder.join(&line.object.key);
        writeln!(out, "Look into one, with zstd and jq:\n")?;
        writeln!(out, "  zstd -dc '{}' | jq '.steps[0]'", path.display())?;
    }
    Ok(())
}
