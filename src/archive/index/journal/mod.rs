//! Index lines on local disk, on their way to the bucket: batched by hour, closed by age and size.
//!
//! Owned by one thread; everything here waits for the disk. A batch keeps the key that it was begun
//! with, whatever process stores it in the end, so that storing it again changes nothing.
//!
//! Invariant: a line that was appended is in exactly one batch, and that batch is ready sooner or
//! later, be it after a crash of the process. At most [`MAX_OPEN`] batches are open, each no larger
//! than [`FULL_BYTES`] and a line. A file that is not the journal's is left alone.

mod batch;
mod earlier;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashSet, VecDeque},
    io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Duration,
};

use self::{
    batch::{FileKind, LineFile},
    earlier::EarlierLines,
};
use super::{IndexKey, InstanceName, MAX_LINE_BYTES, Partition};
use crate::{
    disk::{SharedDisk, disk_use, remove_if_there},
    line::{Coverage, Line, ObjectRef, PayloadState},
    time::Timestamp,
};

/// Batches open at once: lines of this hour, of the one before, and of two that waited long.
const MAX_OPEN: usize = 4;
/// A batch is closed when it has been open for this long, so that a reader need not wait longer.
const OPEN_FOR: Duration = Duration::from_mins(1);
/// Or when it holds this much.
const FULL_BYTES: u64 = 1024 * 1024;
/// After a batch could not be closed.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// A batch is closed after a minute, and a reconcile takes two.
const SEARCHED_BATCHES: usize = 16;
/// A deadline that is always past.
const AT_ONCE: Timestamp = Timestamp::from_nanos(i64::MIN);

/// The lines that wait to be stored.
#[derive(Debug)]
pub struct IndexJournal {
    disk: SharedDisk,
    folder: PathBuf,
    instance: InstanceName,
    next_sequence: u32,
    /// In the order in which they were begun.
    open: Vec<OpenBatch>,
    /// Nothing is appended to these any more.
    closing: Vec<ClosingBatch>,
    ready: VecDeque<ReadyBatch>,
    earlier: EarlierLines,
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
    lines: LineFile,
    opened_at: Timestamp,
}

#[derive(Debug)]
struct ClosingBatch {
    key: IndexKey,
    /// Of whole lines.
    bytes: u64,
    due_at: Timestamp,
    /// Until it is known to survive the loss of power; none of an earlier process.
    unsynced: Option<LineFile>,
}

impl IndexJournal {
    /// Takes up what an earlier process left: batches that were closed, and open ones, which are
    /// closed now, without a last line that is torn.
    pub fn open(disk: SharedDisk, folder: PathBuf, instance: InstanceName) -> io::Result<Self> {
        disk.create_folder(&folder)?;
        let mut journal = Self {
            disk,
            folder,
            instance,
            next_sequence: 1,
            open: Vec::new(),
            closing: Vec::new(),
            ready: VecDeque::new(),
            earlier: EarlierLines::default(),
            has_new_names: false,
        };
        journal.take_up()?;
        if let Err(error) = journal.close_due(Timestamp::default(), true) {
            // It may be put right while the sidecar runs.
            tracing::warn!(%error, "cannot close an index batch yet");
        }
        Ok(journal)
    }

    /// The object of this very line, if an earlier process noted it and the records behind it were
    /// not known to be done when it ended, or if it was [remembered](Self::remember).
    pub fn find(&self, trace_id: &str, revision: u32, coverage: Coverage) -> Option<&ObjectRef> {
        self.earlier.find(trace_id, revision, coverage)
    }

    /// Whether [`Self::find`] finds this line. One that says that the object is on its way does not
    /// say what this one does, if it is known by now what became of it.
    pub fn has(&self, line: &Line) -> bool {
        use PayloadState::{Dropped, Queued, Stored};

        let found = self.find(&line.trace_id, line.revision, line.coverage());
        let is_decided = matches!(line.object.state, Stored | Dropped);
        found.is_some_and(|object| !is_decided || object.state != Queued)
    }

    /// Whether this process began the batch.
    pub fn is_own(&self, batch: &ReadyBatch) -> bool {
        batch.key.instance == self.instance
    }

    /// The revision that another line of this trace needs to be believed over those that an earlier
    /// process noted.
    pub fn next_revision(&self, trace_id: &str) -> u32 {
        let last = self.earlier.last_revision(trace_id);
        last.map_or(0, |last| last.saturating_add(1))
    }

    /// The line of this trace with the highest revision, if it was noted in the last minutes and is
    /// not in the store yet.
    pub fn line_of(&self, trace_id: &str) -> Option<Line> {
        let open = self.open.iter().map(|batch| &batch.key);
        let closing = self.closing.iter().map(|batch| &batch.key);
        let lines = open.chain(closing).map(|key| (FileKind::Lines, key));
        let ready = self.ready.iter().rev();
        let compressed = ready.map(|batch| (FileKind::Compressed, &batch.key));
        let mut found: Option<Line> = None;
        for (kind, key) in lines.chain(compressed).take(SEARCHED_BATCHES) {
            let path = kind.path(&self.folder, key);
            let read = batch::read_noted(self.disk.as_ref(), &path, kind, |noted, line| {
                let is_newer = found.as_ref().is_none_or(|it| it.revision < noted.revision);
                if noted.trace_id == trace_id && is_newer {
                    found = serde_json::from_slice(line).ok();
                }
                ControlFlow::Continue(())
            });
            if let Err(error) = read {
                tracing::debug!(path = %path.display(), %error, "cannot read an index batch");
            }
        }
        found
    }

    /// A line may come again.
    pub fn remember(&mut self, line: &Line) {
        let object = line.object.clone();
        self.earlier
            .insert(&line.trace_id, line.revision, line.coverage(), object);
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

    /// The batch that this line was just appended to.
    pub fn open_batch_of(&self, line: &Line) -> Option<IndexKey> {
        let partition = Partition::of(line.started_at);
        let mut open = self.open.iter().rev();
        let batch = open.find(|batch| batch.key.partition == partition)?;
        Some(batch.key.clone())
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
        if let Err(error) = remove_if_there(self.disk.as_ref(), &batch.path) {
            // It is stored once more after a restart, which changes nothing.
            tracing::warn!(path = %batch.path.display(), %error, "cannot remove an index batch");
        }
    }

    /// Hands the file of a batch, which waits no more, to somebody else.
    pub fn set_aside(
        &mut self,
        batch: &ReadyBatch,
        take: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        take(&batch.path)?;
        self.ready.retain(|ready| ready.key != batch.key);
        self.has_new_names = true;
        Ok(())
    }

    /// Takes back a batch that was [set aside](Self::set_aside) under this name.
    pub fn take_back(&mut self, path: &Path, name: &str) -> io::Result<()> {
        let Some((FileKind::Compressed, key)) = FileKind::of_name(name) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let bytes = self.disk.open(path)?.length()?;
        let place = FileKind::Compressed.path(&self.folder, &key);
        self.disk.rename(path, &place)?;
        self.has_new_names = true;
        self.add_ready(&key, bytes);
        Ok(())
    }

    /// Makes what was appended survive the loss of power.
    pub fn sync(&mut self) -> io::Result<()> {
        for batch in &mut self.open {
            batch.lines.sync()?;
        }
        for batch in &mut self.closing {
            if let Some(lines) = &mut batch.unsynced {
                lines.sync()?;
            }
            batch.unsynced = None;
        }
        if std::mem::take(&mut self.has_new_names)
            && let Err(error) = self.disk.sync_folder(&self.folder)
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
        open.chain(closing).chain(ready).map(disk_use).sum()
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
        self.disk.create_folder(&self.folder)?;
        // NOTE: a name that can't be taken must not be tried for ever.
        self.next_sequence = self.next_sequence.saturating_add(1);
        let lines = LineFile::create(
            self.disk.as_ref(),
            &FileKind::Lines.path(&self.folder, &key),
        )?;
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
        // NOTE: whoever needs the lines to survive the loss of power calls [`Self::sync`], which fails
        // as long as one of these can't be synced. Closing copies them into a file that is synced.
        let done = self.open.extract_if(.., |batch| is_done(batch));
        self.closing.extend(done.map(OpenBatch::into_closing));
    }

    fn close(&mut self, batch: &ClosingBatch) -> io::Result<()> {
        let ClosingBatch { key, bytes, .. } = batch;
        if *bytes == 0 {
            return remove_if_there(self.disk.as_ref(), &self.lines_path(key));
        }
        match batch::close(self.disk.as_ref(), &self.folder, key, *bytes) {
            Ok(size) => {
                self.has_new_names = true;
                self.add_ready(key, size);
            }
            Err(error) if self.is_gone(&error, key) => {
                tracing::error!(%key, "an index batch is lost: its file is gone");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn lines_path(&self, key: &IndexKey) -> PathBuf {
        FileKind::Lines.path(&self.folder, key)
    }

    /// Whether the file that could not be found is that of a batch's lines.
    fn is_gone(&self, error: &io::Error, key: &IndexKey) -> bool {
        let lines = self.disk.open(&self.lines_path(key));
        error.kind() == io::ErrorKind::NotFound
            && lines.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
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
        for entry in self.disk.list(&self.folder)? {
            if !entry.is_folder
                && let Some((kind, key)) = FileKind::of_name(&entry.name)
            {
                found.push((key, kind, self.folder.join(&entry.name)));
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
            if *kind == FileKind::Unfinished || self.earlier.is_full() {
                continue;
            }
            let earlier = &mut self.earlier;
            let read = batch::read_noted(self.disk.as_ref(), path, *kind, |noted, _| {
                let coverage = noted.coverage();
                earlier.insert(&noted.trace_id, noted.revision, coverage, noted.object);
                if earlier.is_full() {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            });
            if let Err(error) = read
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
            FileKind::Unfinished => remove_if_there(self.disk.as_ref(), path)?,
            // The process died between the two.
            FileKind::Lines if is_closed => remove_if_there(self.disk.as_ref(), path)?,
            FileKind::Lines => self.closing.push(ClosingBatch {
                key: key.clone(),
                bytes: batch::whole_lines(self.disk.as_ref(), path)?,
                due_at: AT_ONCE,
                unsynced: None,
            }),
            FileKind::Compressed => {
                self.add_ready(key, self.disk.open(path)?.length()?);
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
            unsynced: Some(self.lines),
        }
    }
}
