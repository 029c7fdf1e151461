//! The history on disk: JSON lines, of which the last of a subject wins.
//!
//! ```json
//! {"v":2,"store":"s3://bucket/ …"}
//! {"subject":"<uid>","trace_id":"…","previous":"…","ended_at":"…","fingerprint":"…",
//!  "object":{"key":"…","started_at":"…","stored_at":"…","bytes":1},"line":"<base64>","fields":"<base64>"}
//! ```
//!
//! The first line names the store: what another store holds says nothing about this one.
//! Invariant: a line that is torn or unreadable says nothing; the file as a whole is replaced by
//! rename.

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use super::{Details, Last, LastObject};
use crate::{fingerprint::Fingerprint, pace::breathe, reconcile::SubjectIdentity, time::Timestamp};

const VERSION: u32 = 2;
/// Lines that say nothing new are dropped once there are this many more than subjects.
const STALE_LINES: usize = 4096;

#[derive(Debug, Deserialize, Serialize)]
struct Heading {
    v: u32,
    store: String,
}

/// One line: a subject's last reconcile.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct JournalLine {
    subject: String,
    trace_id: String,
    previous: Option<String>,
    ended_at: Timestamp,
    fingerprint: Fingerprint,
    object: Option<ObjectEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    line: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fields: Option<String>,
}

#[derive(Debug, Deserialize, Serialize)]
struct ObjectEntry {
    key: String,
    started_at: Timestamp,
    stored_at: Option<Timestamp>,
    bytes: u64,
}

/// What a line says.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) subject: SubjectIdentity,
    pub(super) last: Last,
    pub(super) details: Option<Details>,
}

impl JournalLine {
    pub(super) fn of(subject: &SubjectIdentity, last: &Last, details: Option<&Details>) -> Self {
        let object = last.object.as_ref().map(|object| ObjectEntry {
            key: object.key.to_string(),
            started_at: object.started_at,
            stored_at: object.stored_at,
            bytes: object.bytes,
        });
        Self {
            subject: subject.0.to_string(),
            trace_id: last.trace_id.to_string(),
            previous: last.previous.as_deref().map(str::to_owned),
            ended_at: last.ended_at,
            fingerprint: last.fingerprint,
            object,
            line: details.map(|details| STANDARD.encode(&details.line)),
            fields: details.map(|details| STANDARD.encode(&details.fields)),
        }
    }

    /// Nothing that was stored up to then will be there.
    pub(super) fn forget_stored_until(&mut self, until: Timestamp) {
        let stored_at = self.object.as_ref().and_then(|object| object.stored_at);
        if stored_at.is_some_and(|at| at <= until) {
            self.object = None;
        }
    }

    fn load(self) -> Loaded {
        let object = self.object.map(|object| LastObject {
            key: object.key.into(),
            started_at: object.started_at,
            stored_at: object.stored_at,
            bytes: object.bytes,
        });
        let unpack = |text: String| STANDARD.decode(text).ok().map(Vec::into_boxed_slice);
        let details = self.line.and_then(unpack).map(|line| Details {
            line,
            fields: self.fields.and_then(unpack).unwrap_or_default(),
        });
        Loaded {
            subject: SubjectIdentity(self.subject.into()),
            last: Last {
                trace_id: self.trace_id.into(),
                previous: self.previous.map(Into::into),
                ended_at: self.ended_at,
                fingerprint: self.fingerprint,
                object,
            },
            details,
        }
    }
}

/// Reads what a journal says of this store.
pub(super) fn load(path: &Path, store: &str, mut take: impl FnMut(Loaded)) -> io::Result<()> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut lines = BufReader::new(file).split(b'\n');
    let heading = lines.next().transpose()?.unwrap_or_default();
    let heading: Option<Heading> = serde_json::from_slice(&heading).ok();
    if heading.is_none_or(|heading| heading.v != VERSION || heading.store != store) {
        return Ok(());
    }
    for line in lines {
        // A line cut off by a crash is as good as none.
        if let Ok(line) = serde_json::from_slice::<JournalLine>(&line?) {
            take(line.load());
        }
    }
    Ok(())
}

/// The file that is appended to.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    store: String,
    file: File,
    lines: usize,
}

impl Journal {
    /// Writes a journal of these lines and puts it in place of the old one.
    pub(super) fn write(
        path: PathBuf,
        store: String,
        lines: impl Iterator<Item = JournalLine>,
    ) -> io::Result<Self> {
        let fresh = path.with_extension("new");
        let mut out = BufWriter::new(File::create(&fresh)?);
        let heading = Heading { v: VERSION, store };
        write_line(&mut out, &heading)?;
        let mut written = 0;
        for line in lines {
            write_line(&mut out, &line)?;
            written += 1;
            breathe();
        }
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_data()?;
        fs::rename(&fresh, &path)?;
        Ok(Self {
            path,
            store: heading.store,
            file,
            lines: written,
        })
    }

    /// The same with other lines. If that fails there is none any more.
    pub(super) fn rewrite(self, lines: impl Iterator<Item = JournalLine>) -> io::Result<Self> {
        Self::write(self.path.clone(), self.store, lines)
            .inspect_err(|_| drop(fs::remove_file(&self.path)))
    }

    pub(super) fn append(&mut self, lines: impl Iterator<Item = JournalLine>) -> io::Result<()> {
        let mut batch = Vec::new();
        for line in lines {
            write_line(&mut batch, &line)?;
            self.lines += 1;
        }
        (&self.file).write_all(&batch)
    }

    /// Whether most of it says nothing new.
    pub(super) fn is_stale(&self, subjects: usize) -> bool {
        self.lines > subjects + STALE_LINES
    }
}

fn write_line(out: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    out.write_all(&bytes)
}
