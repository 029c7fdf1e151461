//! What the data directory of a sidecar on this machine says: what waits there, how writing to the
//! store goes, what is in quarantine.
//!
//! Invariant: a directory that nobody named says nothing about a store that its sidecar does not
//! write to.

use std::{fs, io, path::Path, path::PathBuf};

use anyhow::Context as _;
use spanplane::{
    archive::{FailureNote, StandingNote, StoreIdentity},
    disk::LocalDisk,
    outbox::{Quarantine, Quarantined},
};

use super::{
    backlog::{Backlog, backlogs},
    screen::tell,
    session::{DataDir, Session},
};

/// What was found in a data directory.
#[derive(Debug)]
pub(super) struct SidecarReport {
    pub(super) data_dir: PathBuf,
    pub(super) whose: Whose,
    pub(super) waiting: Vec<(&'static str, Backlog)>,
    /// How writing to the store goes, as the sidecar noted it.
    pub(super) writing: Option<StandingNote>,
    /// The oldest first.
    pub(super) quarantined: Vec<Quarantined>,
}

/// Which store the sidecar writes to.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Whose {
    /// The one that is asked about.
    Ours,
    Other(StoreIdentity),
    /// It has not said so: it has written nothing yet, or is of an earlier version.
    Unknown,
}

impl Whose {
    fn of(note: Option<&StandingNote>, asked: &StoreIdentity) -> Self {
        match note.and_then(|note| note.store.as_ref()) {
            None => Self::Unknown,
            Some(store) if store == asked => Self::Ours,
            Some(store) => Self::Other(store.clone()),
        }
    }
}

impl SidecarReport {
    /// `None` if there is no such directory, or it is about another store.
    pub(super) fn of(session: &Session) -> anyhow::Result<Option<Self>> {
        let DataDir { path, is_guessed } = &session.data_dir;
        if !is_guessed && !path.is_dir() {
            return Ok(None);
        }
        let shown = path.display();
        let report = match Self::look_into(path, session, *is_guessed) {
            // Somebody else's, for all that can be known.
            Err(error) if *is_guessed && error.kind() == io::ErrorKind::PermissionDenied => {
                tell(&format!("warning: cannot look into {shown}: {error}"));
                return Ok(None);
            }
            report => report.with_context(|| format!("cannot look into {shown}"))?,
        };
        let Some(report) = report else {
            return Ok(None);
        };
        if let Whose::Other(store) = &report.whose
            && *is_guessed
        {
            tell(&format!(
                "note: the sidecar in {shown} writes to {}; see --data-dir {shown} for what waits \
                 there",
                store.url
            ));
            return Ok(None);
        }
        Ok(Some(report))
    }

    fn look_into(path: &Path, session: &Session, is_guessed: bool) -> io::Result<Option<Self>> {
        // Every sidecar has made that file.
        if is_guessed && !is_there(&path.join("lock"))? {
            return Ok(None);
        }
        let writing = StandingNote::read(path)?;
        Ok(Some(Self {
            whose: Whose::of(writing.as_ref(), &session.store_identity),
            waiting: backlogs(path, session.now)?,
            writing,
            quarantined: Quarantine::list(&LocalDisk, &path.join("quarantine"))?,
            data_dir: path.to_owned(),
        }))
    }

    /// Why it can't write to the store.
    pub(super) fn failure(&self) -> Option<&FailureNote> {
        self.writing.as_ref()?.failure.as_ref()
    }

    /// Why parts of reconciles can't be joined there.
    pub(super) fn unjoined(&self) -> Option<&FailureNote> {
        self.writing.as_ref()?.unjoined.as_ref()
    }

    /// Nothing waits for too long, and everything can be written.
    pub(super) fn is_well(&self) -> bool {
        let is_stuck = |(_, backlog): &(&str, Backlog)| backlog.is_stuck;
        self.failure().is_none() && self.unjoined().is_none() && !self.waiting.iter().any(is_stuck)
    }

    /// What has to be known of the directory to read the rest.
    pub(super) fn remark(&self, data_dir: &DataDir) -> String {
        match &self.whose {
            Whose::Other(store) => format!(": its sidecar writes to {}", store.url),
            Whose::Unknown if data_dir.is_guessed => {
                ": its sidecar has not yet noted which store it writes to".to_owned()
            }
            Whose::Unknown | Whose::Ours => String::new(),
        }
    }
}

fn is_there(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(false),
            _ => Err(error),
        },
    }
}
