//! How long answers take, and how much memory, on a store with 100,000 reconciles of 1,000 XRs.
//!
//! ```sh
//! cargo bench --bench answers              # every question
//! cargo bench --bench answers -- payload   # those with this in their names
//! ```
//!
//! The store is made once, below `target/tmp`. Every question is asked by a new process, first
//! with nothing of the store in the page cache, then some times more.

mod measure;
mod pages;
mod questions;
mod reconciles;
mod templates;
mod world;

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use spanplane::archive::{Archive, Compression, StoreUrl, Variables};

use self::{measure::Program, questions::QUESTIONS};

/// How often a question is asked with the store in the page cache.
const RUNS: usize = 7;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [measure::WATCH, program, arguments @ ..] => measure::watch(program, arguments),
        [questions::ASK, name] => ask(name),
        arguments => {
            // NOTE: cargo adds `--bench`.
            let wanted = arguments.iter().find(|word| !word.starts_with('-'));
            measure_all(wanted.copied().unwrap_or_default())
        }
    }
}

#[expect(clippy::print_stdout, reason = "a benchmark talks to whoever runs it")]
fn measure_all(wanted: &str) -> anyhow::Result<()> {
    let folder = folder();
    if !world::is_made(&folder)? {
        println!("making {}", folder.display());
        runtime()?.block_on(world::make(&folder))?;
    }
    let url = format!("file://{}", folder.display());
    println!("{}", measure::HEADING);
    for (name, program) in questions::all(&url)? {
        if name.contains(wanted) {
            measure::evict(&folder)?;
            let cold = program.measure().with_context(|| name.clone())?;
            let warm: Vec<_> = (0..RUNS)
                .map(|_| program.measure())
                .collect::<anyhow::Result<_>>()?;
            println!("{}", measure::row(&name, &cold, &warm));
        }
    }
    for (name, path) in pages::all() {
        if name.contains(wanted) {
            let view = pages::View::start(&url)?;
            measure::evict(&folder)?;
            let cold = view.get(&path)?;
            let warm: Vec<_> = (0..RUNS)
                .map(|_| view.get(&path))
                .collect::<anyhow::Result<_>>()?;
            println!("{}", measure::row(name, &cold, &warm));
        }
    }
    Ok(())
}

/// What the process does that is measured.
#[expect(
    clippy::print_stdout,
    reason = "whoever measures it shows what it found"
)]
fn ask(name: &str) -> anyhow::Result<()> {
    let question = QUESTIONS.iter().find(|question| question.name == name);
    let question = question.with_context(|| format!("there is no question {name:?}"))?;
    let found = runtime()?.block_on((question.ask)(open(&folder())?))?;
    println!("{found}");
    Ok(())
}

fn open(folder: &Path) -> anyhow::Result<Archive> {
    let url = StoreUrl::folder(folder);
    Ok(Archive::open(
        &url,
        &Variables::default(),
        Compression::Zstd,
    )?)
}

/// As that of the program.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(2).enable_all().build()?)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("answers")
}
