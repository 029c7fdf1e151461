//! `spanplane quarantine`: what the store or the collector refused, messages at which the process
//! died, and what to do with them.
//!
//! It works on the data directory of a sidecar on this machine, whether that runs or not: it only
//! lists, moves and removes files. A sidecar that runs takes up within seconds what is to be sent
//! again; otherwise the next one does.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::Serialize;
use spanplane::{
    config::show_bytes,
    disk::LocalDisk,
    outbox::{Quarantinable, Quarantine, Quarantined},
    time::{Clock as _, SystemClock, Timestamp},
};

use super::{
    moment::show_span,
    nothing::Nothing,
    row::{Row, Style},
    screen::{LookArgs, Screen, tell},
    session::DataDirArgs,
    table::Table,
};

/// What `quarantine` can be told.
#[derive(Args, Debug)]
pub(crate) struct QuarantineArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List what was refused or killed the process, with the reason, oldest first
    Ls {
        #[command(flatten)]
        home: DataDirArgs,
        #[command(flatten)]
        look: LookArgs,
    },
    /// Send files again: those with these ids, or all
    Retry {
        #[arg(value_name = "ID")]
        ids: Vec<u64>,
        #[command(flatten)]
        home: DataDirArgs,
    },
    /// Delete files for good
    Rm {
        #[arg(value_name = "ID", required = true)]
        ids: Vec<u64>,
        #[command(flatten)]
        home: DataDirArgs,
    },
}

pub(crate) fn run(args: QuarantineArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Ls { home, look } => list(home, look)?,
        Action::Retry { ids, home } => {
            let (_, mut files) = chosen(home, &ids)?;
            let is_empty = files.is_empty();
            let stuck: Vec<_> = files.extract_if(.., |file| !file.is_sendable()).collect();
            if let Some(message) = stuck.first()
                && !ids.is_empty()
            {
                return Err(cannot_retry(message));
            }
            for file in &files {
                let retried = Quarantine::retry(&LocalDisk, file);
                retried.with_context(|| format!("cannot move {}", file.path.display()))?;
            }
            tell(&match files.len() {
                0 if is_empty => "nothing is in quarantine".to_owned(),
                0 => "nothing in quarantine can be sent again".to_owned(),
                count => format!(
                    "{count} to be sent again, by a running sidecar within seconds, or when it \
                     starts"
                ),
            });
            if let Some(message) = stuck.first() {
                return Err(cannot_retry(message));
            }
        }
        Action::Rm { ids, home } => {
            let (folder, files) = chosen(home, &ids)?;
            for file in &files {
                let removed = Quarantine::remove(&LocalDisk, &folder, file);
                removed.with_context(|| format!("cannot remove {}", file.path.display()))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Why a message stays where it is.
fn cannot_retry(message: &Quarantined) -> anyhow::Error {
    let id = message.id;
    anyhow::anyhow!(
        "cannot send {id} again: an earlier version kept this message without its kind and its \
         arrival; `spanplane quarantine rm {id}` deletes it"
    )
}

/// The files with these ids; all, if there are no ids.
fn chosen(home: DataDirArgs, ids: &[u64]) -> anyhow::Result<(PathBuf, Vec<Quarantined>)> {
    let (folder, mut files) = files(home)?;
    let is_missing = |id: &&u64| files.iter().all(|file| file.id != **id);
    if let Some(missing) = ids.iter().find(is_missing) {
        let what = format!("nothing in quarantine has the id {missing}");
        return Err(Nothing::new(what, "spanplane quarantine ls").into());
    }
    files.retain(|file| ids.is_empty() || ids.contains(&file.id));
    Ok((folder, files))
}

fn files(home: DataDirArgs) -> anyhow::Result<(PathBuf, Vec<Quarantined>)> {
    let data_dir = home.resolve();
    if !data_dir.is_dir() {
        let what = format!("{} is not a directory", data_dir.display());
        return Err(Nothing::new(what, "--data-dir PATH, that of a sidecar").into());
    }
    let folder = data_dir.join("quarantine");
    let files = Quarantine::list(&LocalDisk, &folder);
    let files = files.with_context(|| format!("cannot read {}", folder.display()))?;
    Ok((folder, files))
}

fn list(home: DataDirArgs, look: LookArgs) -> anyhow::Result<()> {
    let (_, files) = files(home)?;
    let mut screen = Screen::new(look);
    if screen.format().is_for_people() {
        screen.rows(&rows(&files))?;
    } else {
        let shown: Vec<_> = files.iter().map(Shown::of).collect();
        screen.value(&shown)?;
    }
    screen.close()?;
    Ok(())
}

fn rows(files: &[Quarantined]) -> Vec<Row> {
    if files.is_empty() {
        return vec![Row::new().plain("nothing is in quarantine".to_owned())];
    }
    let now = SystemClock.now();
    let mut table = Table::new(&["ID", "KIND", "SIZE", "AGE", "WHAT", "REASON"]);
    for file in files {
        let shown = Shown::of(file);
        let age = shown.since.map(|since| show_span(now.since(since)));
        let reason = if file.is_retried {
            "to be sent again".to_owned()
        } else {
            shown.reason.unwrap_or_default()
        };
        let cells = [
            file.id.to_string(),
            file.what.kind().to_owned(),
            show_bytes(file.bytes),
            age.unwrap_or_default(),
            shown.what,
            reason,
        ];
        table.push(cells.map(|cell| (Style::Plain, cell)).to_vec());
    }
    table.lay_out()
}

/// A file, for programs.
#[derive(Serialize)]
struct Shown {
    id: u64,
    kind: &'static str,
    bytes: u64,
    what: String,
    reason: Option<String>,
    since: Option<Timestamp>,
    is_retried: bool,
}

impl Shown {
    fn of(file: &Quarantined) -> Self {
        let (what, reason, since) = match file.note(&LocalDisk) {
            Some(note) => (note.what, Some(note.reason), Some(note.since)),
            None => (file.name.clone(), None, None),
        };
        let what = match file.what {
            Quarantinable::Spans => format!("{what} …"),
            Quarantinable::Object | Quarantinable::Index | Quarantinable::Message => what,
        };
        Self {
            id: file.id,
            kind: file.what.kind(),
            bytes: file.bytes,
            what,
            reason,
            since,
            is_retried: file.is_retried,
        }
    }
}
