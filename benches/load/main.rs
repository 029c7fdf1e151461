//! Load like core's on spanplane, on a server that does nothing, and on any other, side by side.
//!
//! ```sh
//! cargo bench --bench load                    # every scenario but `grow`
//! cargo bench --bench load -- closed          # those with this in their names
//! cargo bench --bench load -- quota --against 'inspector-sidecar --socket-path {socket}'
//! cargo bench --bench load -- --json figures.json
//! cargo bench --bench load -- --help          # how long, without spans, by thread
//! ```
//!
//! Pipelines of 5 steps over many XRs, one connection, core's deadline of 100 ms a call. A size is
//! that of a request: two thirds are the observed state, the same in every request of a reconcile,
//! one third is the desired state, which is what a response holds. Servers run one after the other,
//! each a process of its own in a fresh folder: `spanplane` with its default settings, a store on
//! this disk and a collector on this machine; `no-op`, the same gRPC stack with a log that keeps
//! nothing, which is the floor; and what `--against` names.
//!
//! | scenario | load |
//! | --- | --- |
//! | `closed` | 1, 4 or 16 callers, each one reconcile after the other, without a pause; 10 % changed |
//! | `quota` | 1,000 XRs, each reconciled once a minute, 64 KiB, in a control group of 10 ms CPU per 100 ms |
//! | `down` | 16 callers with 4 MB, all changed, and a store that does not answer |
//! | `stored` | the capture `network`: bytes received and stored |
//! | `limits` | large messages at once, also with Secrets and with many keys, 1,000 connections, slow clients, calls taken back, in a control group of 128 MiB; probes beside slow clients and large messages |
//! | `limits viewer` | pages and downloads of a document of more than 48 MiB, in a control group of 128 MiB |
//! | `start` | from the start of the process to the first connection |
//! | `grow` | the same bytes a second at 100 to 10,000 XRs, and at 1 to 500 resources a payload |
//!
//! What the columns say:
//!
//! - Callers have a higher priority than servers, where that is allowed, and the collector a lower
//!   one: both would be on other cores.
//! - A call that was not answered within the deadline is `missed`, one answered with an error is
//!   `refused`; both count in the percentiles.
//! - CPU is that of the whole process, from the first call until it has ended, after all that is
//!   behind the answers was done (`drain s` is how long that took): per GB (10⁹ bytes) of
//!   acknowledged messages and, as `cores`, per second of load.
//! - A server that does not say what it has left to do, or whose store is away, is done once it
//!   uses no CPU.
//! - `PUTs/rec` are objects stored a reconcile, `index` is the number of objects of the index,
//!   `KB/rec` are the bytes of both.
//! - `throttled` are the periods in which the control group ran into its quota, of those in which
//!   it ran, while the load lasted.
//! - `stolen` is what the host of this machine gave to others while the load lasted. Rows of which
//!   much was stolen tell of the host.
//!
//! Servers are put through a closed loop three times in turn. What is shown is the round with the
//! median p99; `missed`, `refused` and the CPU per GB are those of all rounds.
//!
//! Without `--seconds` a closed loop ends after 5 s, or before once 700 MB were acknowledged, which
//! is what the spool has room for.

#![expect(
    clippy::cast_precision_loss,
    reason = "nothing that is counted here comes near 2⁵²"
)]

mod drive;
#[expect(dead_code, reason = "the fault harness also mounts")]
#[path = "../../tests/faults/fence.rs"]
mod fence;
mod figures;
mod heavy;
mod limits;
mod memory;
mod payload;
mod process;
mod quota;
mod report;
mod roles;
mod rough;
mod scenarios;
mod server;
mod start;
mod store;
mod stored;
mod together;
mod trial;
mod viewer_limits;
mod xr;

use std::{env, fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, bail, ensure};
use clap::Parser;
use rustix::process::setpriority_process;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use self::{
    figures::Figures, limits::Limits, quota::Quota, report::Report, scenarios::Scenario,
    server::Kind, start::Starts, stored::Stored, viewer_limits::ViewerLimits,
};

/// Load like core's, on several servers side by side.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only scenarios with this in their names
    #[arg(default_value = "")]
    wanted: String,
    /// Another server to measure; {socket} stands for the socket. Can be repeated
    #[arg(long, value_name = "CMD")]
    against: Vec<String>,
    /// How long each load lasts
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// How often each load is repeated
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Also write all figures to this file
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Send no spans, to see what they cost
    #[arg(long)]
    without_spans: bool,
    /// Also show the processor time of each thread
    #[arg(long)]
    threads: bool,
    /// What cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

impl Arguments {
    fn wants(&self, scenario: &str, is_long: bool) -> bool {
        match self.wanted.as_str() {
            "" => !is_long,
            wanted => scenario.contains(wanted),
        }
    }

    /// The servers, ours first.
    fn kinds(&self) -> Vec<Kind> {
        let others = self.against.iter().cloned().zip(1..);
        let others = others.map(|(command, number)| Kind::Other(number, command));
        [Kind::Spanplane, Kind::NoOp]
            .into_iter()
            .chain(others)
            .collect()
    }
}

fn main() -> anyhow::Result<()> {
    let words: Vec<_> = env::args().skip(1).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [roles::NO_OP, socket] => roles::serve_nothing(socket.as_ref()),
        [roles::COLLECTOR] => roles::collect_spans(),
        [fence::WATCHDOG] => {
            fence::watch();
            Ok(())
        }
        _ => measure_all(&Arguments::parse()),
    }
}

/// The niceness of those that go first.
const FIRST: i32 = -10;

#[expect(clippy::print_stdout, reason = "a benchmark talks to whoever runs it")]
fn measure_all(arguments: &Arguments) -> anyhow::Result<()> {
    let runtime = runtime()?;
    let mut told = Vec::new();
    for mut scenario in scenarios::all() {
        if !arguments.wants(&scenario.name, scenario.is_long) {
            continue;
        }
        if scenario.trial.has_quota
            && let Err(error) = Quota::make()
        {
            println!("\n{}: LEFT OUT: {error:#}", scenario.name);
            told.push(json!({"scenario": scenario.name, "left_out": format!("{error:#}")}));
            continue;
        }
        scenario.trial.has_collector = !arguments.without_spans;
        if let Some(seconds) = arguments.seconds {
            scenario.trial.load.time = Duration::from_secs(seconds);
            scenario.trial.load.enough_bytes = None;
        }
        let report = Report::new(&scenario, measure(&scenario, arguments, &runtime)?);
        println!("{}", report.table(arguments.threads));
        told.push(serde_json::to_value(report)?);
    }
    if arguments.wants(Stored::NAME, false) {
        let stored = Stored::measure(&runtime)?;
        println!("{}", stored.table());
        told.push(serde_json::to_value(stored)?);
    }
    let is_wanted = |name: &str| arguments.wants(name, false);
    let mut kills = 0;
    if Limits::names().any(|name| is_wanted(&name)) {
        if let Some(error) = Limits::obstacle() {
            println!("\n{}: LEFT OUT: {error:#}", Limits::NAME);
            told.push(json!({"scenario": Limits::NAME, "left_out": format!("{error:#}")}));
        } else {
            let limits = Limits::measure(&runtime, is_wanted)?;
            println!("{}", limits.table());
            kills += limits.kills();
            told.push(serde_json::to_value(limits)?);
        }
    }
    if is_wanted(ViewerLimits::NAME) {
        if let Some(error) = Limits::obstacle() {
            println!("\n{}: LEFT OUT: {error:#}", ViewerLimits::NAME);
            let error = format!("{error:#}");
            told.push(json!({"scenario": ViewerLimits::NAME, "left_out": error}));
        } else {
            let limits = ViewerLimits::measure(&runtime)?;
            println!("{}", limits.table());
            kills += limits.kills();
            told.push(serde_json::to_value(limits)?);
        }
    }
    if arguments.wants(Starts::NAME, false) {
        let starts = Starts::measure(&arguments.kinds())?;
        println!("{}", starts.table());
        told.push(serde_json::to_value(starts)?);
    }
    if told.is_empty() {
        bail!("no scenario has {:?} in its name", arguments.wanted);
    }
    if let Some(path) = &arguments.json {
        fs::write(path, serde_json::to_string_pretty(&told)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    ensure!(kills == 0, "killed {kills} times for using too much memory");
    Ok(())
}

fn measure(
    scenario: &Scenario,
    arguments: &Arguments,
    runtime: &Runtime,
) -> anyhow::Result<Vec<Figures>> {
    let mut kinds = arguments.kinds();
    if scenario.is_ours_alone {
        kinds.truncate(1);
    }
    let mut rounds: Vec<Vec<Figures>> = kinds.iter().map(|_| Vec::new()).collect();
    for _ in 0..arguments.rounds.unwrap_or(scenario.rounds) {
        for (kind, rounds) in kinds.iter().zip(&mut rounds) {
            let figures = scenario.trial.run(kind, runtime);
            rounds.push(figures.with_context(|| format!("{}, {}", scenario.name, kind.name()))?);
        }
    }
    let figures = rounds.into_iter().map(Figures::of_rounds);
    figures.collect::<Option<_>>().context("no round was run")
}

/// The callers'. They get the CPU before whatever else runs here, if they may: what is measured is
/// when an answer comes, not when a caller that shares its core with the server gets to see it. One
/// thread, so that of two cores one is left to the server.
fn runtime() -> anyhow::Result<Runtime> {
    Ok(Builder::new_multi_thread()
        .worker_threads(1)
        .on_thread_start(|| {
            // Who may not goes with the others.
            setpriority_process(None, FIRST).unwrap_or_default();
        })
        .enable_all()
        .build()?)
}
