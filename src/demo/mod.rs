//! `spanplane demo`: the whole sidecar on a real socket, fed with what a real Crossplane emitted,
//! and the viewer over what it stored.
//!
//! Invariant: nothing is staged. The messages are those of a real Crossplane, as far apart within
//! a step as they were; what is printed is read back from the store.

mod summary;

use std::{
    collections::{BTreeMap, HashSet},
    io::{IsTerminal as _, Write as _},
    net::{Ipv4Addr, SocketAddr},
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
    record::Record,
    serve::Sidecar,
    time::{Clock as _, SystemClock, Timestamp},
};
use tokio::net::TcpListener;

use self::summary::rows_of;
use crate::view::{View, url_of};

/// A laptop that is busy compiling may take longer than core's 100 ms.
const EMIT_DEADLINE: Duration = Duration::from_secs(10);

/// Where the viewer is by default; if that is taken, any other port will do.
const VIEWER_PORT: u16 = 8686;

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

    /// Serve the viewer until Ctrl-C, also if nobody seems to be there
    #[arg(long, overrides_with = "no_wait")]
    wait: bool,

    /// End once everything is stored [default: if the output is no terminal]
    #[arg(long, overrides_with = "wait")]
    no_wait: bool,
}

pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<()> {
    let folder = match &args.data_dir {
        Some(folder) => folder.clone(),
        None => tempfile::Builder::new()
            .prefix("spanplane-demo-")
            .tempdir()?
            .keep(),
    };
    let is_watched = std::io::stdout().is_terminal();
    let waits = args.wait || (is_watched && !args.no_wait);
    let runtime = crate::runtime()?;
    let outcome = runtime.block_on(present(&folder, waits));
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// Plays, tells what there is, and shows it for as long as somebody looks.
async fn present(folder: &Path, waits: bool) -> anyhow::Result<()> {
    let listener = listen().await?;
    let address = listener.local_addr()?;
    let store = play(folder, address).await?;
    let mut out = std::io::stdout();
    if !waits {
        writeln!(out, "Look at it:      spanplane view --store {store}")?;
        return Ok(());
    }
    writeln!(out, "Look at it:      {}  (until Ctrl-C)", url_of(address))?;
    out.flush()?;
    let view = View {
        store,
        address,
        token: None,
        url: None,
    };
    view.serve(listener).await
}

async fn listen() -> anyhow::Result<TcpListener> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, VIEWER_PORT)).await {
        Ok(listener) => Ok(listener),
        Err(_) => Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?),
    }
}

/// Settings as `serve` would get them on the command line.
#[derive(Parser)]
#[command(args_override_self = true)]
struct ServeLine {
    #[command(flatten)]
    args: ServeArgs,
}

/// Runs a sidecar, plays the world to it, and tells what is there; returns the store.
async fn play(folder: &Path, viewer: SocketAddr) -> anyhow::Result<StoreUrl> {
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
        // The links in spans lead to the viewer that is served afterwards.
        "--viewer-address=none".as_ref(),
        "--viewer-url".as_ref(),
        format!("http://{viewer}").as_ref(),
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
    tell(messages, started_at, &store, traces.collector()).await?;
    Ok(store)
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

async fn tell(
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
    let mut out = std::io::stdout().lock();
    let reconciles = lines.len();
    writeln!(
        out,
        "{messages} messages of {reconciles} reconciles went through the socket:\n"
    )?;
    for row in rows_of(&lines) {
        writeln!(out, "{row}")?;
    }
    let folder = store.local_folder().unwrap_or_default();
    writeln!(out, "\nThe payloads are in {}", folder.display())?;
    match traces {
        Some(traces) => writeln!(out, "The traces went to {}", traces.endpoint())?,
        None => writeln!(
            out,
            "No traces were sent: OTEL_EXPORTER_OTLP_ENDPOINT names no collector"
        )?,
    }
    Ok(())
}
