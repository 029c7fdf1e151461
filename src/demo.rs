//! `spanplane demo`: the whole sidecar on a real socket, fed with what a real Crossplane emitted.
//!
//! Invariant: nothing is staged. What is printed is what the store holds afterwards.

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::Parser;
use spanplane::{
    archive::{Archive, Compression, Key, StoreUrl, Variables},
    capture::{read_capture, step_of, with_timestamp},
    client::InspectorClient,
    config::{ServeArgs, show_bytes},
    reconcile::Subject,
    record::Record,
    serve::Sidecar,
    time::{Clock as _, SystemClock},
};

/// A laptop that is busy compiling may take longer than core's 100 ms.
const EMIT_DEADLINE: Duration = Duration::from_secs(10);

/// What is played: a capture, and which subjects of it.
const WORLD: [(&[u8], &[&str]); 4] = [
    (
        include_bytes!("../tests/fixtures/captures/network.jsonl.zst"),
        &["prod-net"],
    ),
    (
        include_bytes!("../tests/fixtures/captures/dropper.jsonl.zst"),
        &["assets"],
    ),
    (
        include_bytes!("../tests/fixtures/captures/broken.jsonl.zst"),
        &["fatal-bad", "grpc-unavailable", "hanger"],
    ),
    (
        include_bytes!("../tests/fixtures/captures/steady-idle.jsonl.zst"),
        &["calm-1", "calm-2"],
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
    let sidecar = Sidecar::start(settings).await?;

    let mut played = BTreeMap::new();
    let mut client = InspectorClient::new(socket, EMIT_DEADLINE);
    let mut messages = 0;
    for (capture, names) in WORLD {
        for (record, subject, trace_id) in chosen_records(capture, names)? {
            client
                .emit(record.kind, record.message)
                .await
                .context("the sidecar did not take a message")?;
            messages += 1;
            let traces: &mut Vec<String> = played.entry(title_of(&subject)).or_default();
            if traces.last() != Some(&trace_id) {
                traces.push(trace_id);
            }
        }
    }
    // Stopping finishes everything that was received.
    sidecar.run_until(std::future::ready(())).await?;
    show(messages, played, &store).await
}

/// The messages of these subjects, moved in time so that the last one is of now.
fn chosen_records(
    capture: &[u8],
    names: &[&str],
) -> anyhow::Result<Vec<(Record, Subject, String)>> {
    let records = read_capture(capture)?;
    let last = records
        .iter()
        .map(|record| record.received_at)
        .max()
        .unwrap_or_default();
    let delay = SystemClock.now().since(last);
    let chosen = records.into_iter().filter_map(|record| {
        let meta = step_of(&record).meta;
        let subject = meta
            .subject
            .filter(|subject| names.contains(&subject.name.as_str()))?;
        let timestamp = meta.timestamp? + delay;
        let message = with_timestamp(record.kind, &record.message, timestamp);
        Some((Record { message, ..record }, subject, meta.trace_id))
    });
    Ok(chosen.collect())
}

fn title_of(subject: &Subject) -> String {
    format!("{} {}/{}", subject.kind, subject.namespace, subject.name)
}

async fn show(
    messages: usize,
    played: BTreeMap<String, Vec<String>>,
    store: &StoreUrl,
) -> anyhow::Result<()> {
    let archive = Archive::open(store, &Variables::default(), Compression::default())?;
    let mut stored = archive.list().await?;
    stored.sort();
    let reconciles: usize = played.values().map(Vec::len).sum();
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{messages} messages of {reconciles} reconciles went through the socket. \
         What the store holds of them:\n"
    )?;
    writeln!(
        out,
        "{:<34}{:>10}{:>9}{:>11}  SIZE",
        "XR", "RECONCILES", "STORED", "UNCHANGED"
    )?;
    let mut broken = None;
    for (title, traces) in played {
        let objects: Vec<_> = stored
            .iter()
            .filter(|(key, ..)| traces.iter().any(|trace| key.as_str().contains(trace)))
            .collect();
        let bytes: u64 = objects.iter().map(|(_, size, _)| size).sum();
        writeln!(
            out,
            "{title:<34}{:>10}{:>9}{:>11}  {}",
            traces.len(),
            objects.len(),
            traces.len().saturating_sub(objects.len()),
            show_bytes(bytes)
        )?;
        if title.contains("grpc-unavailable") {
            broken = objects.first().map(|(key, ..)| key.clone());
        }
    }
    if let Some(key) = broken {
        writeln!(out, "\nOne that failed:\n")?;
        show_object(&mut out, &archive, &key).await?;
        let folder = store.local_folder().unwrap_or_default();
        let path = folder.join(key.as_str());
        writeln!(
            out,
            "\nThe object, with all payloads (needs zstd and jq):\n"
        )?;
        writeln!(
            out,
            "  zstd -dc '{}' | jq '.steps[0].response.desired'",
            path.display()
        )?;
        writeln!(
            out,
            "\nAll of it stays in {} until you remove it.",
            folder.display()
        )?;
    }
    Ok(())
}

/// Without what a terminal would act on.
fn printable(text: &str) -> String {
    let show = |character: char| {
        if character.is_control() {
            '\u{fffd}'
        } else {
            character
        }
    };
    text.chars().map(show).collect()
}

async fn show_object(
    out: &mut impl std::io::Write,
    archive: &Archive,
    key: &Key,
) -> anyhow::Result<()> {
    let document: serde_json::Value = serde_json::from_slice(&archive.fetch(key).await?)?;
    writeln!(out, "  {key}")?;
    let steps = document.get("steps").and_then(|steps| steps.as_array());
    for step in steps.into_iter().flatten() {
        let text = |name: &str| {
            step.get(name)
                .and_then(|value| value.as_str())
                .unwrap_or_default()
        };
        let size = |name: &str| match step.get(name) {
            None | Some(serde_json::Value::Null) => "nothing".to_owned(),
            Some(payload) => show_bytes(payload.to_string().len() as u64),
        };
        writeln!(
            out,
            "    {:<10} {:<18} asked {:>9}, answered {:>9}",
            text("name"),
            text("function"),
            size("request"),
            size("response"),
        )?;
        if !text("error").is_empty() {
            writeln!(out, "      {}", printable(text("error")))?;
        }
    }
    Ok(())
}
