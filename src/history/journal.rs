//! The history on disk: JSON lines, of which the last of a subject wins.
//!
//! ```json
//! {"v":2,"store":"s3://bucket/ …","redaction":"…"}
//! {"subject":"<uid>","trace_id":"…","previous":"…","ended_at":"…","fingerprint":"…",
//!  "object":{"key":"…","started_at":"…","stored_at":"…","bytes":1},"line":"<base64>","fields":"<base64>"}
//! ```
//!
//! The first line names the store: what another store holds says nothing about this one. It also
//! says what was redacted: objects and details that were made by other rules are forgotten. Without
//! `line` and `fields` the details of the line before stay as they are; empty ones forget them.
//! Invariant: a line that is torn, unreadable or longer than any that is written says nothing, and
//! one line is in memory at a time; the file as a whole is replaced by rename. A line that can't be
//! appended may take back what an earlier one says, so the file is then written anew or removed.

use std::{
    borrow::Cow,
    io::{self, BufRead, BufReader, BufWriter, Read as _, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use super::{Details, Last, LastObject};
use crate::{
    disk::{Disk, DiskFile, FileReader, FileWriter, SharedDisk, disk_use, remove_if_there},
    fingerprint::Fingerprint,
    pace::breathe,
    reconcile::SubjectIdentity,
    time::Timestamp,
};

const VERSION: u32 = 2;
/// Lines that say nothing new are dropped once there are this many more than subjects.
const STALE_LINES: usize = 4096;
/// Or once they take this much more than twice what all lines took when the file was last written:
/// details can be large.
const STALE_BYTES: u64 = 8 * 1024 * 1024;
/// Saves, one per second at most, between two attempts to write a journal that can't be written.
const MOST_RESTS: u32 = 64;
/// Far more than details of the largest size take in base64.
const MAX_LINE_BYTES: u64 = 4 * 1024 * 1024;

#[derive(Debug, Deserialize, Serialize)]
struct Heading {
    v: u32,
    #[serde(flatten)]
    basis: Basis,
}

/// What a history is true of.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Basis {
    /// Where objects are.
    pub store: String,
    /// By which rules secrets were taken out of them.
    #[serde(default)]
    pub redaction: String,
}

/// A line as it is written.
#[derive(Debug, Deserialize, Serialize)]
struct StoredLine<'l> {
    #[serde(borrow)]
    subject: Cow<'l, str>,
    #[serde(borrow)]
    trace_id: Cow<'l, str>,
    #[serde(borrow)]
    previous: Option<Cow<'l, str>>,
    ended_at: Timestamp,
    fingerprint: Fingerprint,
    #[serde(borrow)]
    object: Option<StoredObject<'l>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    line: Option<Cow<'l, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    fields: Option<Cow<'l, str>>,
}

#[derive(Debug, Deserialize, Serialize)]
struct StoredObject<'l> {
    #[serde(borrow)]
    key: Cow<'l, str>,
    started_at: Timestamp,
    stored_at: Option<Timestamp>,
    bytes: u64,
}

/// What a line says about the details of a subject.
#[derive(Clone, Debug)]
pub(super) enum DetailsNote {
    /// They are what the line before said.
    Unchanged,
    /// They are not known any more.
    Forgotten,
    Known(Arc<Details>),
}

/// One line: a subject's last reconcile.
#[derive(Debug)]
pub(super) struct JournalLine {
    pub(super) subject: SubjectIdentity,
    pub(super) last: Last,
    pub(super) details: DetailsNote,
}

impl JournalLine {
    /// Nothing that was stored at such a time will be there.
    pub(super) fn forget_stored(&mut self, goes: &dyn Fn(Timestamp) -> bool) {
        let object = self.last.object.as_ref();
        let stored_at = object.and_then(|object| object.stored_at);
        if stored_at.is_some_and(goes) {
            self.last.object = None;
        }
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let line: StoredLine<'_> = serde_json::from_slice(line).ok()?;
        let object = line.object.map(|object| LastObject {
            key: object.key.into(),
            started_at: object.started_at,
            stored_at: object.stored_at,
            bytes: object.bytes,
        });
        let decode = |text: Cow<'_, str>| {
            let decoded = STANDARD.decode(text.as_bytes()).unwrap_or_default();
            decoded.into_boxed_slice()
        };
        let fields = line.fields.map(decode).unwrap_or_default();
        let details = match line.line.map(decode) {
            None => DetailsNote::Unchanged,
            Some(line) if line.is_empty() => DetailsNote::Forgotten,
            Some(line) => DetailsNote::Known(Arc::new(Details { line, fields })),
        };
        Some(Self {
            subject: SubjectIdentity(line.subject.into()),
            last: Last {
                trace_id: line.trace_id.into(),
                previous: line.previous.map(Into::into),
                ended_at: line.ended_at,
                fingerprint: line.fingerprint,
                object,
            },
            details,
        })
    }

    fn write(&self, out: &mut impl Write) -> io::Result<u64> {
        let Last {
            trace_id,
            previous,
            ended_at,
            fingerprint,
            object,
        } = &self.last;
        let (line, fields) = match &self.details {
            DetailsNote::Unchanged => (None, None),
            DetailsNote::Forgotten => (Some(String::new()), None),
            DetailsNote::Known(details) => (
                Some(STANDARD.encode(&details.line)),
                Some(STANDARD.encode(&details.fields)),
            ),
        };
        let line = StoredLine {
            subject: Cow::Borrowed(&self.subject.0),
            trace_id: Cow::Borrowed(trace_id),
            previous: previous.as_deref().map(Cow::Borrowed),
            ended_at: *ended_at,
            fingerprint: *fingerprint,
            object: object.as_ref().map(|object| StoredObject {
                key: Cow::Borrowed(&object.key),
                started_at: object.started_at,
                stored_at: object.stored_at,
                bytes: object.bytes,
            }),
            line: line.map(Cow::Owned),
            fields: fields.map(Cow::Owned),
        };
        write_line(out, &line)
    }
}

/// Reads what a journal says that is still true.
pub(super) fn load(
    disk: &dyn Disk,
    path: &Path,
    basis: &Basis,
    mut take: impl FnMut(JournalLine),
) -> io::Result<()> {
    let file = match disk.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut file = BufReader::new(FileReader::new(file));
    let mut line = Vec::new();
    read_line(&mut file, &mut line)?;
    let heading: Option<Heading> = serde_json::from_slice(&line).ok();
    let heading =
        heading.filter(|Heading { v, basis: its }| *v == VERSION && its.store == basis.store);
    let Some(heading) = heading else {
        return Ok(());
    };
    let same_redaction = heading.basis.redaction == basis.redaction;
    while read_line(&mut file, &mut line)? {
        // A line cut off by a crash is as good as none.
        if let Some(mut line) = JournalLine::parse(&line) {
            if !same_redaction {
                line.last.object = None;
                line.details = DetailsNote::Forgotten;
            }
            take(line);
        }
    }
    Ok(())
}

/// Reads the next line, or an empty one in place of one that is too long; tells whether there was
/// one.
fn read_line(file: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let read = file.take(MAX_LINE_BYTES).read_until(b'\n', line)?;
    if read as u64 == MAX_LINE_BYTES && !line.ends_with(b"\n") {
        line.clear();
        file.skip_until(b'\n')?;
    }
    Ok(read > 0)
}

/// The file that is appended to.
#[derive(Debug)]
pub(super) struct Journal {
    disk: SharedDisk,
    path: PathBuf,
    basis: Basis,
    written: Written,
    /// It says all that is known: nothing is appended to one that does not.
    is_current: bool,
    /// Saves that pass before it is written again, and how many do after the next failure.
    rests: u32,
    next_rests: u32,
}

/// A journal that was written as a whole, with what was appended since.
#[derive(Debug)]
struct Written {
    file: Arc<dyn DiskFile>,
    lines: usize,
    bytes: u64,
    /// As long as nothing was appended.
    bytes_at_first: u64,
}

impl Journal {
    /// Writes a journal of these lines and puts it in place of the old one.
    pub(super) fn write(
        disk: SharedDisk,
        path: PathBuf,
        basis: Basis,
        lines: impl Iterator<Item = JournalLine>,
    ) -> io::Result<Self> {
        let written = Written::replace(disk.as_ref(), &path, &basis, lines)?;
        Ok(Self {
            disk,
            path,
            basis,
            written,
            is_current: true,
            rests: 0,
            next_rests: 0,
        })
    }

    /// The same with other lines. If that fails there is none any more, until the next time.
    pub(super) fn rewrite(&mut self, lines: impl Iterator<Item = JournalLine>) -> io::Result<()> {
        match Written::replace(self.disk.as_ref(), &self.path, &self.basis, lines) {
            Ok(written) => {
                self.written = written;
                self.is_current = true;
                self.next_rests = 0;
                Ok(())
            }
            Err(error) => {
                self.is_current = false;
                self.rests = self.next_rests;
                self.next_rests = (2 * self.next_rests).clamp(1, MOST_RESTS);
                self.remove();
                Err(error)
            }
        }
    }

    /// Fails if a part of the lines may be missing: then the journal has to be written anew.
    pub(super) fn append(&mut self, lines: impl Iterator<Item = JournalLine>) -> io::Result<()> {
        if !self.is_current {
            return Ok(());
        }
        let appended = self.written.append(lines);
        self.is_current = appended.is_ok();
        appended
    }

    /// Whether it is time to write it anew: most of it says nothing new, or it is not current.
    pub(super) fn is_due(&mut self, subjects: usize) -> bool {
        if self.is_current {
            return self.written.is_stale(subjects);
        }
        let is_due = self.rests == 0;
        self.rests = self.rests.saturating_sub(1);
        is_due
    }

    /// What it takes on disk.
    pub(super) fn bytes(&self) -> u64 {
        if self.is_current {
            disk_use(self.written.bytes)
        } else {
            0
        }
    }

    /// Has nobody believe it.
    fn remove(&self) {
        let removed = remove_if_there(self.disk.as_ref(), &self.path);
        let emptied = removed.or_else(|_| self.written.file.truncate(0));
        let synced = self
            .path
            .parent()
            .map(|folder| self.disk.sync_folder(folder));
        if let Err(error) = emptied.and(synced.unwrap_or(Ok(()))) {
            tracing::debug!(%error, "cannot remove the history");
        }
    }
}

impl Written {
    fn replace(
        disk: &dyn Disk,
        path: &Path,
        basis: &Basis,
        lines: impl Iterator<Item = JournalLine>,
    ) -> io::Result<Self> {
        let fresh = path.with_extension("new");
        remove_if_there(disk, &fresh)?;
        let replaced = Self::create(disk, &fresh, basis, lines).and_then(|written| {
            disk.rename(&fresh, path)?;
            // NOTE: the loss of power must not bring back what said more.
            path.parent()
                .map_or(Ok(()), |folder| disk.sync_folder(folder))?;
            Ok(written)
        });
        replaced.inspect_err(|_| drop(remove_if_there(disk, &fresh)))
    }

    fn create(
        disk: &dyn Disk,
        path: &Path,
        basis: &Basis,
        lines: impl Iterator<Item = JournalLine>,
    ) -> io::Result<Self> {
        let file = disk.create(path)?;
        let mut out = BufWriter::new(FileWriter(Arc::clone(&file)));
        let heading = Heading {
            v: VERSION,
            basis: basis.clone(),
        };
        let mut bytes = write_line(&mut out, &heading)?;
        let mut written = 0;
        for line in lines {
            bytes += line.write(&mut out)?;
            written += 1;
            breathe();
        }
        out.flush()?;
        file.sync()?;
        Ok(Self {
            file,
            lines: written,
            bytes,
            bytes_at_first: bytes,
        })
    }

    fn append(&mut self, lines: impl Iterator<Item = JournalLine>) -> io::Result<()> {
        let mut out = BufWriter::new(FileWriter(Arc::clone(&self.file)));
        for line in lines {
            self.bytes += line.write(&mut out)?;
            self.lines += 1;
        }
        out.flush()
    }

    /// Whether most of it says nothing new.
    fn is_stale(&self, subjects: usize) -> bool {
        self.lines > subjects + STALE_LINES || self.bytes > 2 * self.bytes_at_first + STALE_BYTES
    }
}

/// Returns how many bytes it took.
fn write_line(out: &mut impl Write, line: &impl Serialize) -> io::Result<u64> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    out.write_all(&bytes)?;
    Ok(bytes.len() as u64)
}
