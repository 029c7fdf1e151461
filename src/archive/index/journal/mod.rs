//! Index lines on local disk, on their way to the bucket: batched by hour, closed by age and size.
//!
//! Owned by one thread; everything here waits for the disk. A batch keeps the key that it was begun
//! with, whatever process stores it in the end, so that storing it again changes nothing.
//!
//! Invariant: a line that was appended is in exactly one batch, and that batch is ready sooner or
//! later, be it after a crash of the process. At most [`MAX_OPEN`] batches are open, each no larger
//! than [`FULL_BYTES`] and a line. A file that is not the journal's is left alone.

mod batch;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashSet, VecDeque},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use self::batch::{FileKind, LineFile};
use super::{IndexKey, InstanceName, MAX_LINE_BYTES, Partition, line_hash};
use crate::{line::Line, time::Timestamp};

/// Batches open at once: lines of this hour, of the one before, and of two that waited long.
const MAX_OPEN: usize = 4;
/// A batch is closed when it has been open for this long, so that a reader need not wait longer.
const OPEN_FOR: Duration = Duration::from_mins(1);
/// Or when it holds this much.
const FULL_BYTES: u64 = 1024 * 1024;
/// After a batch could not be closed.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// A deadline that is always past.
const AT_ONCE: Timestamp = Timestamp::from_nanos(i64::MIN);
/// Traces of an earlier process that are known, the last ones. What was under way when it died are
/// some thousand at most; reading more would hold up the start.
const MAX_EARLIER: usize = 20_000;

/// The lines that wait to be stored.
#[derive(Debug)]
pub struct IndexJournal {
    folder: PathBuf,
    instance: InstanceName,
    next_sequence: u32,
    /// In the order in which they were begun.
    open: Vec<OpenBatch>,
    /// Nothing is appended to these any more.
    closing: Vec<ClosingBatch>,
    ready: VecDeque<ReadyBatch>,
    /// Lines that may come again.
    earlier: HashSet<u64>,
    /// The folder is not synced since a file was begun or closed.
    has_new_names: bool,
}

/// A closed batch that waits to be stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReadyBatch {
    pub key: IndexKey,
    pub path: PathBuf,
    /// Compressed.
    pub bytes: u64,
}

#[derive(Debug)]
struct OpenBatch {
    key: IndexKey,
    lines: LineFile<File>,
    opened_at: Timestamp,
}

#[derive(Debug)]
struct ClosingBatch {
    key: IndexKey,
    /// Of whole lines.
    bytes: u64,
    due_at: Timestamp,
}

impl IndexJournal {
    /// Takes up what an earlier process left: batches that were closed, and open ones, which are
    /// closed now, without a last line that is torn.
    pub fn open(folder: PathBuf, instance: InstanceName) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let mut journal = Self {
            folder,
            instance,
            next_sequence: 1,
            open: Vec::new(),
            closing: Vec::new(),
            ready: VecDeque::new(),
            earlier: HashSet::new(),
            has_new_names: false,
        };
        journal.take_up()?;
        if let Err(error) = journal.close_due(Timestamp::default(), true) {
            // It may be put right while the sidecar runs.
            tracing::warn!(%error, "cannot close an index batch yet");
        }
        Ok(journal)
    }

    /// Whether an earlier process wrote this very line and did not know it to be stored when it
    /// ended, or such a line was [remembered](Self::remember). Of very many only the last are known.
    pub fn has(&self, line: &Line) -> bool {
        self.earlier.contains(&hash_of(line))
    }

    /// A line may come again.
    pub fn remember(&mut self, line: &Line) {
        self.earlier.insert(hash_of(line));
    }

    /// A crash of this process does not lose the line once this returns. A line that fails leaves
    /// nothing behind and may be appended again; one that is too long to be read back fails as
    /// [`io::ErrorKind::InvalidInput`].
    pub fn append(&mut self, line: &Line, now: Timestamp) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        if text.len() > MAX_LINE_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        text.push(b'\n');
        let batch = self.batch_for(Partition::of(line.started_at), now)?;
        let appended = batch.lines.append(&text);
        if batch.lines.is_torn() {
            let key = batch.key.clone();
            self.seal(|batch| batch.key == key);
        }
        appended
    }

    /// Closes what has been open for long enough or is full; with `all`, everything. A batch that
    /// can't be closed is tried again later, and does not keep the others from it.
    pub fn close_due(&mut self, now: Timestamp, all: bool) -> io::Result<()> {
        self.seal(|batch| all || batch.is_due(now));
        let mut closed = Ok(());
        for batch in std::mem::take(&mut self.closing) {
            let is_resting = now < batch.due_at && batch.due_at <= now + RETRY_AFTER;
            if is_resting && !all {
                self.closing.push(batch);
                continue;
            }
            if let Err(error) = self.close(&batch) {
                self.closing.push(ClosingBatch {
                    due_at: now + RETRY_AFTER,
                    ..batch
                });
                closed = closed.and(Err(error));
            }
        }
        closed
    }

    /// When [`Self::close_due`] next has something to do; a time in the past means now.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let open = self.open.iter().map(OpenBatch::due_at);
        let closing = self.closing.iter().map(|batch| batch.due_at);
        open.chain(closing).min()
    }

    /// Closed batches that wait to be stored, oldest first.
    pub fn ready(&self) -> impl Iterator<Item = &ReadyBatch> {
        self.ready.iter()
    }

    /// It is in the store.
    pub fn remove(&mut self, batch: &ReadyBatch) {
        self.ready.retain(|ready| ready.key != batch.key);
        if let Err(error) = batch::remove(&batch.path) {
            // It is stored once more after a restart, which changes nothing.
            tracing::warn!(path = %batch.path.display(), %error, "cannot remove an index batch");
        }
    }

    /// Makes what was appended survive the loss of power.
    pub fn sync(&mut self) -> io::Result<()> {
        for batch in &mut self.open {
            batch.lines.sync()?;
        }
        if std::mem::take(&mut self.has_new_names)
            && let Err(error) = File::open(&self.folder).and_then(|folder| folder.sync_all())
        {
            self.has_new_names = true;
            return Err(error);
        }
        Ok(())
    }

    /// Nothing waits to be stored.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.closing.is_empty() && self.ready.is_empty()
    }

    /// What all batches take on disk.
    pub fn waiting_bytes(&self) -> u64 {
        let open = self.open.iter().map(|batch| batch.lines.bytes());
        let closing = self.closing.iter().map(|batch| batch.bytes);
        let ready = self.ready.iter().map(|batch| batch.bytes);
        open.chain(closing).chain(ready).sum()
    }

    /// The open batch for lines of this hour.
    fn batch_for(&mut self, partition: Partition, now: Timestamp) -> io::Result<&mut OpenBatch> {
        self.seal(|batch| batch.key.partition == partition && batch.is_full());
        let is_open = |batch: &OpenBatch| batch.key.partition == partition;
        let place = match self.open.iter().position(is_open) {
            Some(place) => place,
            None => self.begin(partition, now)?,
        };
        self.open
            .get_mut(place)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Opens a batch, and returns its place.
    fn begin(&mut self, partition: Partition, now: Timestamp) -> io::Result<usize> {
        let key = IndexKey {
            partition,
            instance: self.instance.clone(),
            sequence: self.next_sequence,
        };
        // Somebody may have tidied up.
        fs::create_dir_all(&self.folder)?;
        // NOTE: a name that can't be taken must not be tried for ever.
        self.next_sequence = self.next_sequence.saturating_add(1);
        let lines = LineFile::create(&FileKind::Lines.path(&self.folder, &key))?;
        self.has_new_names = true;
        if self.open.len() >= MAX_OPEN {
            let oldest = self.open.remove(0);
            self.closing.push(oldest.into_closing());
        }
        self.open.push(OpenBatch {
            key,
            lines,
            opened_at: now,
        });
        Ok(self.open.len() - 1)
    }

    /// Lets nothing more be appended to these.
    fn seal(&mut self, is_done: impl Fn(&OpenBatch) -> bool) {
        for batch in self.open.iter_mut().filter(|batch| is_done(batch)) {
            // Closing copies it into a file that is synced; until then the loss of power costs it.
            if let Err(error) = batch.lines.sync() {
                tracing::warn!(%error, "cannot sync an index batch");
            }
        }
        let done = self.open.extract_if(.., |batch| is_done(batch));
        self.closing.extend(done.map(OpenBatch::into_closing));
    }

    fn close(&mut self, batch: &ClosingBatch) -> io::Result<()> {
        let ClosingBatch { key, bytes, .. } = batch;
        if *bytes == 0 {
            return batch::remove(&FileKind::Lines.path(&self.folder, key));
        }
        match batch::close(&self.folder, key, *bytes) {
            Ok(size) => {
                self.has_new_names = true;
                self.add_ready(key, size);
            }
            Err(error) if is_gone(&error, &FileKind::Lines.path(&self.folder, key)) => {
                tracing::error!(%key, "an index batch is lost: its file is gone");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn add_ready(&mut self, key: &IndexKey, bytes: u64) {
        let is_older = |batch: &ReadyBatch| batch.key.order() < key.order();
        let place = self.ready.partition_point(is_older);
        let batch = ReadyBatch {
            key: key.clone(),
            path: FileKind::Compressed.path(&self.folder, key),
            bytes,
        };
        self.ready.insert(place, batch);
    }

    /// Sorts what is in the folder.
    fn take_up(&mut self) -> io::Result<()> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if entry.file_type()?.is_file()
                && let Some((kind, key)) = name.to_str().and_then(FileKind::of_name)
            {
                found.push((key, kind, entry.path()));
            }
        }
        found.sort_by(|(a, ..), (b, ..)| a.order().cmp(&b.order()));
        let closed: HashSet<IndexKey> = found
            .iter()
            .filter(|(_, kind, _)| *kind == FileKind::Compressed)
            .map(|(key, ..)| key.clone())
            .collect();
        for (key, kind, path) in &found {
            if let Err(error) = self.take_up_file(key, *kind, path, closed.contains(key)) {
                tracing::warn!(path = %path.display(), %error, "cannot take up an index batch");
            }
        }
        for (_, kind, path) in found.iter().rev() {
            if *kind == FileKind::Unfinished {
                continue;
            }
            let traces = &mut self.earlier;
            if let Err(error) = batch::collect_lines(path, *kind, traces, MAX_EARLIER)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), %error, "cannot read an index batch");
            }
        }
        Ok(())
    }

    fn take_up_file(
        &mut self,
        key: &IndexKey,
        kind: FileKind,
        path: &Path,
        is_closed: bool,
    ) -> io::Result<()> {
        if key.instance == self.instance {
            let next = key.sequence.saturating_add(1);
            self.next_sequence = self.next_sequence.max(next);
        }
        match kind {
            FileKind::Unfinished => batch::remove(path)?,
            // The process died between the two.
            FileKind::Lines if is_closed => batch::remove(path)?,
            FileKind::Lines => self.closing.push(ClosingBatch {
                key: key.clone(),
                bytes: batch::whole_lines(path)?,
                due_at: AT_ONCE,
            }),
            FileKind::Compressed => {
                self.add_ready(key, fs::metadata(path)?.len());
            }
        }
        Ok(())
    }
}

impl OpenBatch {
    fn is_full(&self) -> bool {
        self.lines.bytes() >= FULL_BYTES
    }

    fn is_due(&self, now: Timestamp) -> bool {
        // A clock that was set back must not keep a batch open.
        now >= self.due_at() || now < self.opened_at
    }

    fn due_at(&self) -> Timestamp {
        if self.is_full() {
            AT_ONCE
        } else {
            self.opened_at + OPEN_FOR
        }
    }

    fn into_closing(self) -> ClosingBatch {
        ClosingBatch {
            due_at: AT_ONCE,
            bytes: self.lines.bytes(),
            key: self.key,
        }
    }
}

fn hash_of(line: &Line) -> u64 {
    line_hash(&line.trace_id, line.started_at, line.ended_at)
}

/// Whether a file that could not be found is this one.
fn is_gone(error: &io::Error, path: &Path) -> bool {
    error.kind() == io::ErrorKind::NotFound && matches!(path.try_exists(), Ok(false))
}
