//! `spanplane ls`, `show` and the rest: questions on the command line, answered from a store.
//!
//! One file a question; each finds what is meant, has [`spanplane::answers`] answer, and lays the
//! answer out in rows. Exit codes: 0 found, 1 nothing found or a difference, 2 called the wrong way.
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
mod row;
mod screen;
mod session;
mod show;
mod step;
mod table;
mod tree;
mod values;
mod why;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::{Subcommand, ValueEnum};

use self::nothing::Nothing;
pub(crate) use self::screen::tell;

/// A question.
#[derive(Debug, Subcommand)]
pub(crate) enum Question {
    /// List reconciles, the newest first
    Ls(Box<ls::LsArgs>),
    /// Show a reconcile as a tree, one of its steps, or what a step was asked and answered
    Show(Box<show::ShowArgs>),
    /// Tell what each step did to the desired state, or what differs between two reconciles
    ///
    /// Ends with 1 if anything differs, like diff(1).
    Diff(Box<diff::DiffArgs>),
    /// Tell why a composed resource is created, changed, deleted, or not there
    Why(Box<why::WhyArgs>),
    /// Tell what changed over time in an XR, or in one of its resources
    History(Box<history::HistoryArgs>),
    /// Look for what is missing or odd, in the last 24 hours unless told otherwise
    ///
    /// Ends with 1 if anything is.
    Health(Box<health::HealthArgs>),
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

/// Answers, and says how that went.
pub(crate) fn run(question: Question, program: fn() -> clap::Command) -> anyhow::Result<ExitCode> {
    let answered = crate::runtime()?.block_on(async {
        match question {
            Question::Ls(args) => ls::run(*args).await,
            Question::Show(args) => show::run(*args).await,
            Question::Diff(args) => diff::run(*args).await,
            Question::Why(args) => why::run(*args).await,
            Question::History(args) => history::run(*args).await,
            Question::Health(args) => health::run(*args).await,
            Question::Completions { shell } => complete(shell, program()),
        }
    });
    match answered {
        Err(error) if error.is::<Nothing>() => {
            tell(&error.to_string());
            Ok(ExitCode::FAILURE)
        }
        answered => answered,
    }
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
