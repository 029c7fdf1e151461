//! The program: log → settings → start → wait for a signal → drain; or a question and its answer.
//!
//! Exit codes: 0 when all went well, 1 when something failed, 2 when it was called the wrong way;
//! those of a question stand in [`cli`].

use std::{io::IsTerminal as _, process::ExitCode, time::Duration};

use anyhow::Context as _;
use clap::{CommandFactory, Parser, Subcommand, error::ErrorKind};
use rustix::fs::Mode;
use spanplane::{
    config::{LogFormat, ServeArgs, Settings},
    serve::Sidecar,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::{EnvFilter, prelude::*};

mod allocator;
mod cli;
mod demo;
mod view;

/// A sidecar for Crossplane: turns every reconcile into a trace, and keeps what every function was
/// asked and what it answered.
///
/// It listens on the pipeline inspector's socket, acknowledges before it works, sends spans by OTLP
/// to where the standard variables say, and puts each reconcile's payloads into one object in a
/// bucket or on local disk. Without a subcommand it serves.
#[derive(Debug, Parser)]
#[command(
    version,
    args_override_self = true,
    args_conflicts_with_subcommands = true,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Receive from Crossplane until told to stop (the default)
    Serve(Box<ServeArgs>),
    /// Serve the viewer over a store
    View(view::ViewArgs),
    /// Play a small world of reconciles through a real socket, and show it in the viewer
    Demo(demo::DemoArgs),
    #[command(flatten)]
    Ask(cli::Question),
}

fn main() -> ExitCode {
    allocator::return_large_blocks();
    let cli = Cli::parse();
    let outcome = match cli.command {
        Some(Command::Ask(question)) => {
            return cli::run(question, <Cli as CommandFactory>::command);
        }
        Some(Command::Demo(args)) => demo::run(&args),
        Some(Command::View(args)) => view(args),
        Some(Command::Serve(args)) => serve(*args),
        None => serve(cli.serve),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            cli::tell(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn serve(args: ServeArgs) -> anyhow::Result<()> {
    start_logging(args.log_format, args.debug);
    spanplane::panics::log_panics();
    let settings = args.validate().unwrap_or_else(|mistakes| refuse(&mistakes));
    // NOTE: raw payloads wait on disk. Whoever may not use the socket has no business there.
    rustix::process::umask(Mode::from_raw_mode(0o027));
    let runtime = single_runtime()?;
    let outcome = runtime.block_on(serve_until_signalled(settings));
    // A call to a disk or a store that hangs does not keep the program alive.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

async fn serve_until_signalled(settings: Settings) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let sidecar = Sidecar::start(settings).await?;
    sidecar.run_until(signals.one()).await?;
    Ok(())
}

fn view(args: view::ViewArgs) -> anyhow::Result<()> {
    start_logging(LogFormat::Auto, false);
    let view = args.validate().unwrap_or_else(|mistakes| refuse(&mistakes));
    let runtime = single_runtime()?;
    let outcome = runtime.block_on(view.run());
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// Says what is wrong with the command line.
fn refuse(mistakes: &[String]) -> ! {
    <Cli as clap::CommandFactory>::command()
        .error(ErrorKind::ValueValidation, mistakes.join("\n       "))
        .exit()
}

/// What tells the program to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot wait for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn one(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// For what waits for others: the store, the collector, whoever reads metrics or looks at pages.
/// Core is answered elsewhere. Few threads, since each keeps memory of its own.
fn single_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(4)
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

/// For questions, which read many objects at once.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

fn start_logging(format: LogFormat, debug: bool) {
    let default = if debug {
        "spanplane=debug,info"
    } else {
        // What it tells of a store that is away is told here, once.
        "info,object_store=warn"
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let is_terminal = std::io::stderr().is_terminal();
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false);
    let layer = match (format, is_terminal) {
        (LogFormat::Json, _) | (LogFormat::Auto, false) => layer.json().flatten_event(true).boxed(),
        (LogFormat::Text, _) | (LogFormat::Auto, true) => layer.with_ansi(is_terminal).boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .init();
}
