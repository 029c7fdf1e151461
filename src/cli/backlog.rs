//! What waits in the data directory of a sidecar on this machine.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::Path, time::Duration};

use spanplane::{config::show_bytes, time::Timestamp};

use super::moment::show_span;

/// What waits for longer than this waits for something that does not come: index lines go after a
/// minute, and a response is waited for for two and a half.
const TOO_LONG: Duration = Duration::from_mins(5);

/// What waits in a folder.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Backlog {
    pub(crate) files: usize,
    pub(crate) bytes: u64,
    /// Since when the oldest was not written to.
    pub(crate) oldest: Option<Timestamp>,
    pub(crate) is_stuck: bool,
}

/// Each folder in which something waits, by what waits there.
pub(crate) fn backlogs(
    data_dir: &Path,
    now: Timestamp,
) -> io::Result<Vec<(&'static str, Backlog)>> {
    let folder = |what, path: &str| {
        let backlog = Backlog::of(&data_dir.join(path), now, |_| true)?;
        io::Result::Ok((what, backlog))
    };
    let is_segment = |path: &Path| path.extension().is_some_and(|end| end == "seg");
    let spool = Backlog::of(&data_dir.join("spool"), now, is_segment)?;
    let mut spool = ("messages in the spool", spool);
    // The newest segment stays until the next begins, whether or not all of it is done.
    spool.1.is_stuck &= spool.1.files > 1;
    // Nothing leaves the quarantine by itself.
    let quarantined = |what, of_messages: bool| {
        let is_it = |path: &Path| is_message(path) == of_messages;
        let mut backlog = Backlog::of(&data_dir.join("quarantine"), now, is_it)?;
        backlog.is_stuck = backlog.files > 0;
        io::Result::Ok((what, backlog))
    };
    Ok(vec![
        spool,
        folder("objects for the store", "outbox/objects")?,
        folder("index lines for the store", "outbox/index")?,
        folder("spans for the collector", "outbox/traces")?,
        quarantined("refused, in quarantine", false)?,
        quarantined("messages that kill the process", true)?,
    ])
}

fn is_message(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "message")
}

impl Backlog {
    fn of(folder: &Path, now: Timestamp, is_it: impl Fn(&Path) -> bool) -> io::Result<Self> {
        let mut backlog = Self::default();
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(backlog),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            let is_note = path.extension().is_some_and(|end| end == "note");
            let metadata = match entry.metadata() {
                // A running sidecar takes files away while we look.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            if is_note || !metadata.is_file() || !is_it(&path) {
                continue;
            }
            let written_at = Timestamp::from_parts(metadata.mtime(), 0).unwrap_or_default();
            backlog.files += 1;
            backlog.bytes += metadata.len();
            backlog.oldest = Some(backlog.oldest.map_or(written_at, |at| at.min(written_at)));
        }
        let oldest = backlog.oldest.unwrap_or(now);
        backlog.is_stuck = now.since(oldest) > TOO_LONG;
        Ok(backlog)
    }

    pub(crate) fn tell(&self, now: Timestamp) -> String {
        match self.oldest {
            None => "nothing".to_owned(),
            Some(oldest) => {
                let bytes = show_bytes(self.bytes);
                let age = show_span(now.since(oldest));
                let files = match self.files {
                    1 => "1 file".to_owned(),
                    files => format!("{files} files"),
                };
                format!("{bytes} in {files}, the oldest {age} old")
            }
        }
    }
}
