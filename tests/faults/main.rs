//! Faults at random against the real program, and the proof that nothing acknowledged is lost.
//!
//! ```sh
//! cargo test --test faults                                          # a few rounds, in a minute
//! cargo test --release --test faults -- --store s3 --rounds 100 --seed 7
//! cargo test --release --test faults -- --store file --seed 7 --first 31 --rounds 5
//! cargo test --release --test faults -- --outage                    # until a spool of 1 GiB is full
//! cargo test --release --test faults -- --half-open                 # 10,000 pipelines
//! cargo test --release --test faults -- --help
//! ```
//!
//! Pipelines run as in core, each call with core's deadline of 100 ms, while sidecars are killed,
//! stopped, paused and reconfigured; the store and the collector go down, slow down, refuse and
//! cut connections; the disk fills up or runs out of inodes; and the clock steps. A ledger holds
//! the hash of what was acknowledged. In the end everything is delivered, and
//!
//! - every acknowledged payload is, byte for byte, in the object that the entry of its trace names;
//! - every trace has one object and, of its latest revision, one entry; `spanplane ls` and the
//!   example queries count it once;
//! - every acknowledged step has a span at the collector, and no span says `stored` of something
//!   that is not;
//! - no secret from a place that redaction covers is in the store, a span, a log, a metric or an
//!   answer;
//! - no sidecar panicked, ended by itself, or logged an error that no fault explains.
//!
//! An outage is a run of its own: 16 pipelines at once with payloads of 4 MB, the sidecar in a
//! control group of 128 MiB, store and collector down until the spool is full; then both return.
//!
//! A seed fixes the load and the faults, not the timing, so that a failure may take several tries
//! to come again. What the machine can't do is said in lines that begin with `LEFT OUT`. When
//! something is wrong, the folder of the run stays.

#![expect(clippy::print_stdout, reason = "the report is for people")]

mod check;
mod clock;
mod collector;
mod dice;
mod fence;
mod ledger;
mod load;
#[path = "../../benches/load/memory.rs"]
mod memory;
mod outage;
mod payload;
#[expect(
    dead_code,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "shared with the test that proves the table"
)]
#[path = "../redaction/places/mod.rs"]
mod places;
mod plan;
mod problems;
mod proxy;
mod report;
mod run;
#[expect(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "shared with tests that use other parts of it"
)]
#[path = "../support/s3.rs"]
mod s3;
mod settings;
mod sidecar;
mod store;
mod tally;
mod volume;
mod wording;

use std::{
    collections::BTreeSet,
    env, fmt, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context as _, ensure};
use clap::Parser;
use serde_json::Value;

use self::{
    fence::Fence,
    plan::Round,
    report::Report,
    run::{Run, Setup},
    wording::seconds,
};

/// What `cargo test` runs: few rounds, with every kind of fault.
const QUICK_ROUNDS: u32 = 3;
const QUICK_SEED: u64 = 51;

/// Random faults against the real program
#[derive(Debug, Parser)]
struct Options {
    /// Only these stores; can be repeated [default: file and s3]
    #[arg(long, value_name = "STORE")]
    store: Vec<store::Kind>,
    /// How many rounds
    #[arg(long, default_value_t = QUICK_ROUNDS)]
    rounds: u32,
    /// The number of the first round
    #[arg(long, default_value_t = 1)]
    first: u32,
    /// Decides on load and faults
    #[arg(long, default_value_t = QUICK_SEED)]
    seed: u64,
    /// In place of rounds, fill a spool of this many MiB while store and collector are down
    #[arg(long, value_name = "MIB", num_args = 0..=1, default_missing_value = "1024")]
    outage: Option<u32>,
    /// In place of rounds, begin this many pipelines before any of their functions answers
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "10000")]
    half_open: Option<usize>,
    /// Show the plan and do nothing
    #[arg(long)]
    plan: bool,
    /// Keep the folder of the run even if all is well
    #[arg(long)]
    keep: bool,
    /// Write the figures to this file
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// The program to test, if it is not the one that was built with this
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// The program to run as `MinIO`
    #[arg(long, env = "MINIO", value_name = "PATH")]
    minio: Option<PathBuf>,
    #[command(flatten)]
    libtest: Libtest,
}

/// What `cargo test` passes to every test, whatever its harness.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "so many flags has libtest")]
struct Libtest {
    #[arg(hide = true)]
    names: Vec<String>,
    #[arg(long, hide = true)]
    skip: Vec<String>,
    #[arg(long, hide = true)]
    list: bool,
    #[arg(long, hide = true)]
    ignored: bool,
    #[arg(long, hide = true)]
    include_ignored: bool,
    #[arg(long, hide = true)]
    exact: bool,
    #[arg(long, hide = true)]
    quiet: bool,
    #[arg(long, hide = true)]
    nocapture: bool,
    #[arg(long, hide = true)]
    show_output: bool,
    #[arg(long, hide = true)]
    test_threads: Option<u32>,
    #[arg(long, hide = true)]
    format: Option<String>,
}

impl Libtest {
    /// Whether this test is meant.
    fn wants_this(&self) -> bool {
        let is_named = |names: &[String]| names.iter().any(|name| "faults".contains(name));
        !self.list
            && !self.ignored
            && !is_named(&self.skip)
            && (self.names.is_empty() || is_named(&self.names))
    }
}

impl Options {
    fn stores(&self) -> Vec<store::Kind> {
        if self.store.is_empty() {
            return vec![store::Kind::File, store::Kind::S3];
        }
        self.store.clone()
    }

    /// What to play on which store.
    fn plays<'r>(&self, rounds: &'r [Round]) -> Vec<(store::Kind, Play<'r>)> {
        // NOTE: a local folder has no server that could be away.
        let store = self.store.first().copied().unwrap_or(store::Kind::S3);
        if let Some(spool_mib) = self.outage {
            return vec![(store, Play::Outage(spool_mib))];
        }
        if let Some(pipelines) = self.half_open {
            return vec![(store, Play::HalfOpen(pipelines))];
        }
        let stores = self.stores().into_iter();
        let mut plays: Vec<_> = stores.map(|kind| (kind, Play::Rounds(rounds))).collect();
        // Whoever asks for rounds gets these alone.
        if self.is_quick() && self.store.is_empty() {
            plays.push((store, Play::Outage(outage::QUICK_SPOOL_MIB)));
        }
        plays
    }

    /// Whether this is what `cargo test` runs.
    fn is_quick(&self) -> bool {
        (self.seed, self.first, self.rounds) == (QUICK_SEED, 1, QUICK_ROUNDS)
    }

    fn program(&self) -> PathBuf {
        let built = || env!("CARGO_BIN_EXE_spanplane").into();
        self.program.clone().unwrap_or_else(built)
    }

    fn minio(&self) -> anyhow::Result<Option<PathBuf>> {
        if let Some(minio) = &self.minio {
            ensure!(minio.is_file(), "there is no MinIO at {}", minio.display());
            return Ok(Some(minio.clone()));
        }
        let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
        let cached = cache.map(|cache| cache.join("spanplane-peers/bin/minio"));
        Ok(cached.filter(|minio| minio.is_file()))
    }
}

fn main() -> anyhow::Result<ExitCode> {
    if env::args().nth(1).as_deref() == Some(fence::WATCHDOG) {
        fence::watch();
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options::parse();
    if options.libtest.list {
        println!("faults: test");
    }
    if !options.libtest.wants_this() {
        return Ok(ExitCode::SUCCESS);
    }
    let rounds = options.first..options.first + options.rounds;
    let rounds: Vec<_> = rounds
        .map(|number| Round::plan(options.seed, number))
        .collect();
    if options.plan {
        for round in &rounds {
            println!("{round}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let missing = plan::faults_missing_in(&rounds);
    ensure!(
        !options.is_quick() || missing.is_empty(),
        "these rounds lack faults: {missing:?}"
    );
    // For the checks' client of the store; there is none before.
    drop(rustls::crypto::ring::default_provider().install_default());
    // NOTE: before there are threads.
    let mounts = fence::use_own_mounts().map_err(|error| error.to_string());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(test(&options, &rounds, &mounts));
    runtime.shutdown_background();
    outcome
}

async fn test(
    options: &Options,
    rounds: &[Round],
    mounts: &Result<(), String>,
) -> anyhow::Result<ExitCode> {
    let mut reports = Vec::new();
    let mut left_out = BTreeSet::new();
    let plays = options.plays(rounds);
    for (kind, play) in plays {
        let minio = options.minio()?;
        if kind == store::Kind::Minio && minio.is_none() {
            left_out.insert("MinIO: set MINIO to its path".to_owned());
            continue;
        }
        let folder = tempfile::Builder::new()
            .prefix("spanplane-faults-")
            .tempdir()?;
        let setup = Setup {
            folder: folder.path().to_owned(),
            kind,
            seed: options.seed,
            mounts: mounts.clone(),
            program: options.program(),
            minio,
        };
        println!(
            "store {kind:?}, seed {}, {play}, in {}",
            options.seed,
            folder.path().display()
        );
        let report = match run(&setup, play, &mut left_out).await {
            Ok(report) => report,
            Err(error) => {
                let kept = folder.keep();
                let seed = options.seed;
                return Err(error.context(format!("seed {seed}, see {}", kept.display())));
            }
        };
        println!("{report}");
        if options.keep || !report.holds() {
            println!("{}", report.checked.problems);
            println!("see {}", folder.keep().display());
        }
        reports.push(report);
    }
    for what in &left_out {
        println!("LEFT OUT: {what}");
    }
    if let Some(path) = &options.json {
        write_figures(path, &reports)?;
    }
    if reports.is_empty() {
        println!("FAILED: nothing was tested");
        return Ok(ExitCode::FAILURE);
    }
    let failed: Vec<_> = reports.iter().filter(|report| !report.holds()).collect();
    for report in &failed {
        println!(
            "FAILED: --store {} --seed {} --first {} --rounds {}",
            format!("{:?}", report.store).to_lowercase(),
            report.seed,
            options.first,
            options.rounds
        );
    }
    Ok(if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What a run consists of.
#[derive(Clone, Copy, Debug)]
enum Play<'r> {
    Rounds(&'r [Round]),
    /// With a spool of so many MiB.
    Outage(u32),
    /// So many pipelines.
    HalfOpen(usize),
}

impl fmt::Display for Play<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rounds(rounds) => write!(out, "{} rounds", rounds.len()),
            Self::HalfOpen(pipelines) => write!(out, "{pipelines} half-open pipelines"),
            Self::Outage(spool_mib) => write!(out, "outage with a spool of {spool_mib} MiB"),
        }
    }
}

async fn run(
    setup: &Setup,
    play: Play<'_>,
    left_out: &mut BTreeSet<String>,
) -> anyhow::Result<Report> {
    let begun = Instant::now();
    let fence = Fence::start()?;
    let (mut run, group) = match play {
        Play::Rounds(rounds) => (play_rounds(setup, &fence, rounds).await?, None),
        Play::HalfOpen(pipelines) => outage::half_open(setup, &fence, pipelines).await?,
        Play::Outage(spool_mib) => outage::play(setup, &fence, spool_mib).await?,
    };
    println!("played after {} s", seconds(begun.elapsed()));
    let undelivered = run.stage.finish().await?;
    println!("delivered after {} s", seconds(begun.elapsed()));
    let mut checked = check::check(&run, &undelivered).await?;
    if let Some(group) = group
        && let Some((problem, detail)) = outage::complaint_of(&group)?
    {
        checked.problems.add(problem, detail);
    }
    left_out.append(&mut run.stage.left_out);
    left_out.extend(checked.left_out.iter().cloned());
    if !checked.problems.is_empty() {
        run.stage.keep_volumes()?;
        fs::write(setup.folder.join("problems"), checked.problems.in_full())?;
    }
    Ok(Report::new(
        setup.kind,
        setup.seed,
        &run,
        checked,
        begun.elapsed(),
    ))
}

async fn play_rounds(setup: &Setup, fence: &Fence, rounds: &[Round]) -> anyhow::Result<Run> {
    let mut run = Run::start(setup, fence).await?;
    for round in rounds {
        println!("{round}");
        // Ids of messages follow from this; no two callers of a run may have the same.
        let seed = setup.seed.wrapping_mul(1 << 32) + u64::from(round.number) * 1000;
        let played = run.play(round, seed).await;
        if played.is_err() {
            run.stage.keep_volumes()?;
        }
        played.with_context(|| format!("round {}", round.number))?;
    }
    Ok(run)
}

fn write_figures(path: &Path, reports: &[Report]) -> anyhow::Result<()> {
    let figures: Vec<Value> = reports.iter().map(Report::to_json).collect();
    fs::write(path, serde_json::to_vec_pretty(&figures)?)?;
    Ok(())
}
