//! Emits recorded messages as Crossplane would: in order, as what happens now, each with a
//! deadline.
//!
//! ```sh
//! spanplane --socket-path /tmp/spanplane/socket &
//! cargo run --example emit -- /tmp/spanplane/socket tests/fixtures/captures/network.jsonl.zst
//! ```

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use spanplane::{
    capture::{Replay, in_draft_layout, read_capture},
    client::InspectorClient,
    config::parse_duration,
    time::{Clock as _, SystemClock},
};

#[derive(Parser)]
struct Args {
    /// How a message says which step it is of
    #[arg(long, default_value = "shipped")]
    layout: Layout,
    /// How long to wait for an answer; Crossplane waits 100ms
    #[arg(long, default_value = "100ms", value_parser = parse_duration)]
    deadline: Duration,
    /// Name of this run: the ids of messages are made from those recorded and from this, so that a
    /// run that is emitted in parts stays one [default: the time]
    #[arg(long)]
    run: Option<String>,
    /// Leave out this many messages of each capture
    #[arg(long, default_value_t = 0)]
    skip: usize,
    /// Emit at most this many messages of each capture
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true)]
    take: usize,
    /// The sidecar's socket
    socket: PathBuf,
    /// Files such as those in tests/fixtures/captures
    #[arg(required = true)]
    captures: Vec<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Layout {
    /// Crossplane 2.2 and later
    Shipped,
    /// The first published design, which knows neither step names nor Operations
    Draft,
}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut client = InspectorClient::new(args.socket, args.deadline);
    for path in args.captures {
        let compressed =
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let (mut taken, mut refused) = (0, 0);
        let run = args.run.clone();
        let mut replay = Replay::new(run.unwrap_or_else(|| SystemClock.now().to_string()));
        let records = read_capture(&compressed)?.into_iter();
        for record in records.skip(args.skip).take(args.take) {
            let (wait, message) = replay.next(&record, SystemClock.now());
            let message = match args.layout {
                Layout::Shipped => message,
                Layout::Draft => in_draft_layout(record.kind, &message)
                    .context("the first design knows no Operations")?,
            };
            tokio::time::sleep(wait).await;
            match client.emit(record.kind, message).await {
                Ok(()) => taken += 1,
                Err(status) => {
                    refused += 1;
                    println!("refused: {status}");
                }
            }
        }
        println!("{}: {taken} taken, {refused} refused", path.display());
    }
    Ok(())
}
