//! `spanplane ls`, `show` and the rest: questions on the command line, answered from a store.
//!
//! One file a question; each finds what is meant, has [`spanplane::answers`] answer, and lays the
//! answer out in rows. Exit codes: 0 found, 1 nothing found or a difference, 2 called the wrong way,
//! 3 when there is no telling: the store does not answer, or payloads are gone.
//!
//! Must not know: keys, what is in an index, how a store is reached.

mod backlog;
mod changes;
mod diff;
mod follow;
mod health;
mod history;
mod ls;
mod moment;
mod nothing;
mod pager;
mod quarantine;
mod row;
mod screen;
mod session;
mod show;
mod sidecar;
mod step;
mod table;
mod tree;
mod trouble;
mod values;
mod verdict;
mod why;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::{Subcommand, ValueEnum};
use spanplane::archive::OpenStoreError;

use self::nothing::Nothing;
pub(crate) use self::{screen::tell, session::StoreArgs};

/// A question.
#[derive(Debug, Subcommand)]
pub(crate) enum Question {
    /// List reconciles, the newest first
    Ls(Box<ls::LsArgs>),
    /// Show a reconcile as a tree, one of its steps, or what a step was asked and answered
    Show(Box<show::ShowArgs>),
    /// Tell what each step did to the desired state, or what differs between two reconciles
    ///
    /// Ends with 1 if anything differs, and with 3 if there is no telling, like diff(1) with 2.
    Diff(Box<diff::DiffArgs>),
    /// Tell why a composed resource is created, changed, deleted, or not there
    Why(Box<why::WhyArgs>),
    /// Tell what changed over time in an XR, or in one of its resources
    History(Box<history::HistoryArgs>),
    /// Look for what is missing or odd, in the last 24 hours unless told otherwise
    ///
    /// Exits 1 if anything is, and 3 if the store can't be read.
    Health(Box<health::HealthArgs>),
    /// List what the store or the collector refused, and send it again
    Quarantine(Box<quarantine::QuarantineArgs>),
    /// Print completions for a shell
    Completions {
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
}

/// A shell that completions can be made for.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// It was called the wrong way, as clap says it too.
const WRONG_CALL: u8 = 2;
/// There is no telling.
const TROUBLE: u8 = 3;

/// Answers, and says how that went.
pub(crate) fn run(question: Question, program: fn() -> clap::Command) -> ExitCode {
    match answer(question, program) {
        Ok(code) => code,
        // Whoever reads our output has seen enough.
        Err(error) if crate::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.is::<Nothing>() => {
            tell(&error.to_string());
            ExitCode::FAILURE
        }
        Err(error) if is_wrong_call(&error) => {
            tell(&format!("error: {error}"));
            ExitCode::from(WRONG_CALL)
        }
        Err(error) => {
            tell(&format!(
                "error: {}",
                spanplane::causes::with_causes(error.as_ref())
            ));
            ExitCode::from(TROUBLE)
        }
    }
}

/// Whether a variable of the store's is wrong.
fn is_wrong_call(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(OpenStoreError::Settings(_)))
}

fn answer(question: Question, program: fn() -> clap::Command) -> anyhow::Result<ExitCode> {
    crate::runtime()?.block_on(async {
        match question {
            Question::Ls(args) => ls::run(*args).await,
            Question::Show(args) => show::run(*args).await,
            Question::Diff(args) => diff::run(*args).await,
            Question::Why(args) => why::run(*args).await,
            Question::History(args) => history::run(*args).await,
            Question::Health(args) => health::run(*args).await,
            Question::Quarantine(args) => quarantine::run(*args),
            Question::Completions { shell } => complete(shell, program()),
        }
    })
}

fn complete(shell: Shell, mut program: clap::Command) -> anyhow::Result<ExitCode> {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, "spanplane", &mut script);
    io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
