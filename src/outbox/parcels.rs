//! Objects that wait for the store, one file each.
//!
//! ```text
//! <folder>/<number>.parcel            as in `parcel`
//! <folder>/<number>-late.parcel       a part that came late
//! <folder>/<number>-retried.parcel    back from the quarantine
//! ```
//!
//! Invariant: a parcel is sealed with one rename, and the numbers of those that wait grow in that
//! order. A part that has to be joined with others of its trace waits for these, and for no other.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    UNFINISHED, list_finished,
    parcel::{Label, ParcelReader, ParcelWriter},
    precedence::{Precedence, TraceHash},
    remove_sent,
};
use crate::{
    disk::{DiskFile, SharedDisk, disk_use},
    fingerprint::Fingerprint,
    time::Timestamp,
};

const ENDING: &str = ".parcel";
const LATE_ENDING: &str = "-late.parcel";
const RETRIED_ENDING: &str = "-retried.parcel";
/// No more records than those of as many reconciles wait to be noted.
const MAX_REDONE: usize = 4096;
/// Parcels that may be unsynced: each holds a file open, and a process may not have many.
const MAX_UNSYNCED: usize = 128;
/// Labels of an earlier process read at a time: about a millisecond.
const LABELS_A_TURN: usize = 16;

/// Names a parcel.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ParcelId(u64);

impl ParcelId {
    /// The one of this number.
    pub const fn of_number(number: u64) -> Self {
        Self(number)
    }

    pub const fn number(self) -> u64 {
        self.0
    }

    /// The one after it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The parcels in a folder.
#[derive(Debug)]
pub struct Parcels {
    disk: SharedDisk,
    folder: PathBuf,
    next: u64,
    /// Those before are of an earlier process.
    first_own: ParcelId,
    waiting: BTreeMap<ParcelId, Waiting>,
    /// Of all that wait, on disk.
    bytes: u64,
    unsynced: Vec<Arc<dyn DiskFile>>,
    /// Files of those that don't wait any more.
    finished: Vec<PathBuf>,
    /// What an earlier process may have sealed without noting its records as done.
    left: BTreeMap<(String, Fingerprint), ParcelId>,
    precedence: Precedence,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    bytes: u64,
    form: Form,
    since: Timestamp,
    /// `None` if it is not known, or can't be read.
    trace: Option<TraceHash>,
}

/// What the name of a parcel says about it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form {
    Whole,
    /// What it belongs to may be in the store already.
    Late,
    /// The same, and it has been refused before.
    Retried,
}

impl Form {
    /// The endings of others end in that of a whole one.
    const ALL: [Self; 3] = [Self::Late, Self::Retried, Self::Whole];

    const fn ending(self) -> &'static str {
        match self {
            Self::Whole => ENDING,
            Self::Late => LATE_ENDING,
            Self::Retried => RETRIED_ENDING,
        }
    }

    fn of_name(name: &str) -> Option<(Self, ParcelId)> {
        let mut forms = Self::ALL.into_iter();
        let (form, number) =
            forms.find_map(|form| Some((form, name.strip_suffix(form.ending())?)))?;
        Some((form, ParcelId(number.parse().ok()?)))
    }
}

impl Parcels {
    /// Takes up what an earlier process left.
    pub fn open(disk: SharedDisk, folder: PathBuf) -> io::Result<Self> {
        let mut parcels = Self {
            disk,
            folder,
            next: 0,
            first_own: ParcelId(0),
            bytes: 0,
            waiting: BTreeMap::new(),
            unsynced: Vec::new(),
            finished: Vec::new(),
            left: BTreeMap::new(),
            precedence: Precedence::default(),
        };
        for entry in list_finished(parcels.disk.as_ref(), &parcels.folder)? {
            let Some((form, id)) = Form::of_name(&entry.name) else {
                continue;
            };
            let waiting = Waiting {
                bytes: entry.bytes,
                form,
                since: entry.modified_at,
                trace: None,
            };
            parcels.insert(id, waiting);
        }
        let last = parcels.waiting.keys().next_back();
        parcels.next = last.map_or(0, |last| last.0 + 1);
        parcels.first_own = ParcelId(parcels.next);
        for follower in parcels.precedence.followers() {
            parcels.read_trace(follower);
        }
        parcels.find_left();
        Ok(parcels)
    }

    /// Finds what may be published again since its records were not noted as done.
    fn find_left(&mut self) {
        let sealed = self.waiting.iter().rev();
        let sealed = sealed.filter(|(_, parcel)| parcel.form != Form::Retried);
        let recent: Vec<_> = sealed.map(|(id, _)| *id).take(MAX_REDONE).collect();
        for id in recent {
            // What is damaged is reported when its turn comes.
            if let Ok(parcel) = self.read(id) {
                let Label {
                    line, fingerprint, ..
                } = parcel.label;
                self.note_trace(id, Some(TraceHash::of(&line.trace_id)));
                self.left.insert((line.trace_id, fingerprint), id);
            }
        }
    }

    /// The parcel of this very reconcile, if an earlier process sealed it and it still waits. One
    /// that the loss of power damaged is removed: whoever asks makes it again.
    pub fn find(&mut self, trace_id: &str, fingerprint: Fingerprint) -> Option<ParcelId> {
        if self.left.is_empty() {
            return None;
        }
        let parcel = *self.left.get(&(trace_id.to_owned(), fingerprint))?;
        if !self.waiting.contains_key(&parcel) {
            return None;
        }
        // NOTE: its records are about to be done with, and that process may not have synced it.
        let checked = self.read(parcel).and_then(|mut it| it.check_body());
        if let Err(error) = checked {
            let path = self.path_of(parcel);
            tracing::warn!(
                path = %path.display(), %error,
                "an object in the outbox can't be read; it is made again from its messages"
            );
            if error.kind() == io::ErrorKind::InvalidData {
                self.finish(parcel);
            }
            return None;
        }
        let file = self.disk.open(&self.path_of(parcel)).ok()?;
        self.unsynced.push(file);
        Some(parcel)
    }

    /// Whether something of this trace that an earlier process sealed still waits.
    pub fn has_left_of(&self, trace_id: &str) -> bool {
        let mut left = self.left.iter();
        left.any(|((trace, _), id)| trace == trace_id && self.waiting.contains_key(id))
    }

    /// Whether something that an earlier process sealed still waits.
    pub fn has_left(&self) -> bool {
        self.has_before(self.first_own)
    }

    /// Whether something that was sealed before this one still waits.
    pub fn has_before(&self, id: ParcelId) -> bool {
        let first = self.waiting.first_key_value();
        first.is_some_and(|(first, _)| *first < id)
    }

    /// The one that is sealed next.
    pub fn next(&self) -> ParcelId {
        ParcelId(self.next)
    }

    /// Whether an earlier process sealed it.
    pub fn is_left(&self, id: ParcelId) -> bool {
        id < self.first_own
    }

    /// Begins a parcel.
    pub fn begin(&self) -> io::Result<ParcelWriter> {
        let path = self.folder.join(format!("{:020}.{UNFINISHED}", self.next));
        ParcelWriter::create(&self.disk, path)
    }

    /// Puts a parcel in line. It survives the process from now on, and the loss of power once
    /// [`Self::sync`] was called.
    pub fn seal(
        &mut self,
        parcel: ParcelWriter,
        label: &Label,
        now: Timestamp,
    ) -> io::Result<ParcelId> {
        let id = ParcelId(self.next);
        let form = if label.is_fragment {
            Form::Late
        } else {
            Form::Whole
        };
        let (file, bytes) = parcel.finish(label, &path_of(&self.folder, id, form))?;
        self.unsynced.push(file);
        self.add(form, bytes, label, now);
        Ok(id)
    }

    /// Takes back a parcel that was [set aside](Self::set_aside), and makes that durable.
    pub fn take_back(&mut self, path: &Path, now: Timestamp) -> io::Result<()> {
        let label = ParcelReader::open(self.disk.as_ref(), path)?.label;
        let bytes = self.disk.open(path)?.length()?;
        let place = path_of(&self.folder, ParcelId(self.next), Form::Retried);
        self.disk.rename(path, &place)?;
        self.add(Form::Retried, bytes, &label, now);
        self.disk.sync_folder(&self.folder)
    }

    /// Hands the file of a parcel, which waits no more, to somebody else.
    pub fn set_aside(
        &mut self,
        id: ParcelId,
        take: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        take(&self.path_of(id))?;
        self.remove(id);
        Ok(())
    }

    /// So many were sealed that [`Self::sync`] should not wait.
    pub fn is_sync_due(&self) -> bool {
        self.unsynced.len() >= MAX_UNSYNCED
    }

    /// Makes what was sealed survive the loss of power.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.unsynced.is_empty() {
            return Ok(());
        }
        for file in &self.unsynced {
            file.sync()?;
        }
        self.disk.sync_folder(&self.folder)?;
        self.unsynced.clear();
        Ok(())
    }

    /// The same for one that an earlier process may have sealed without syncing it.
    pub fn sync_one(&mut self, id: ParcelId) -> io::Result<()> {
        self.unsynced.push(self.disk.open(&self.path_of(id))?);
        self.sync()
    }

    /// Those from this one on that may be sent, with their sizes.
    pub fn sendable(&self, from: ParcelId) -> impl Iterator<Item = (ParcelId, u64)> {
        let waiting = self.waiting.range(from..);
        let sendable = waiting.filter(|(id, _)| !self.precedence.has_to_wait(**id));
        sendable.map(|(id, parcel)| (*id, parcel.bytes))
    }

    /// Whether it is a part that has to be joined with what is stored of its reconcile.
    pub fn is_part(&self, id: ParcelId) -> bool {
        self.precedence.is_follower(id)
    }

    /// The first that may have to wait for others.
    pub fn first_follower(&self) -> Option<ParcelId> {
        self.precedence.first_follower()
    }

    /// Whether it was refused before.
    pub fn is_retried(&self, id: ParcelId) -> bool {
        let parcel = self.waiting.get(&id);
        parcel.is_some_and(|parcel| parcel.form == Form::Retried)
    }

    /// What it takes on disk; `None` if it does not wait any more.
    pub fn bytes_of(&self, id: ParcelId) -> Option<u64> {
        self.waiting.get(&id).map(|parcel| parcel.bytes)
    }

    /// Finds out what parcels of an earlier process belong to, a few at a time, if some parcel
    /// waits to know that.
    pub fn read_labels(&mut self) {
        for _ in 0..LABELS_A_TURN {
            match self.precedence.wanted_label() {
                Some(id) => self.read_trace(id),
                None => return,
            }
        }
    }

    fn read_trace(&mut self, id: ParcelId) {
        let parcel = self.read(id).ok();
        let trace = parcel.map(|parcel| TraceHash::of(&parcel.label.line.trace_id));
        self.note_trace(id, trace);
    }

    fn note_trace(&mut self, id: ParcelId, trace: Option<TraceHash>) {
        if let Some(parcel) = self.waiting.get_mut(&id) {
            parcel.trace = trace;
            self.precedence.note_trace(id, trace);
        }
    }

    /// Puts a new one in line.
    fn add(&mut self, form: Form, bytes: u64, label: &Label, since: Timestamp) {
        let id = ParcelId(self.next);
        self.next += 1;
        let waiting = Waiting {
            bytes,
            form,
            since,
            trace: None,
        };
        self.insert(id, waiting);
        self.note_trace(id, Some(TraceHash::of(&label.line.trace_id)));
    }

    fn insert(&mut self, id: ParcelId, parcel: Waiting) {
        self.bytes += disk_use(parcel.bytes);
        self.precedence.add(id, parcel.form != Form::Whole);
        self.waiting.insert(id, parcel);
    }

    fn remove(&mut self, id: ParcelId) -> bool {
        let Some(parcel) = self.waiting.remove(&id) else {
            return false;
        };
        self.bytes -= disk_use(parcel.bytes);
        self.precedence.remove(id, parcel.trace);
        true
    }

    /// Opens a parcel to send it.
    pub fn read(&self, id: ParcelId) -> io::Result<ParcelReader> {
        ParcelReader::open(self.disk.as_ref(), &self.path_of(id))
    }

    /// It is where it belongs, or will never be there. Its file stays until what that means is
    /// noted for good.
    pub fn finish(&mut self, id: ParcelId) {
        let path = self.path_of(id);
        if self.remove(id) {
            self.finished.push(path);
        }
    }

    /// That is noted.
    pub fn remove_finished(&mut self) {
        for path in self.finished.drain(..) {
            remove_sent(self.disk.as_ref(), &path);
        }
    }

    pub fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// What all of them take on disk.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Since when the first of them waits.
    pub fn oldest(&self) -> Option<Timestamp> {
        let (_, first) = self.waiting.first_key_value()?;
        Some(first.since)
    }

    pub fn path_of(&self, id: ParcelId) -> PathBuf {
        let form = self
            .waiting
            .get(&id)
            .map_or(Form::Whole, |parcel| parcel.form);
        path_of(&self.folder, id, form)
    }
}

fn path_of(folder: &Path, id: ParcelId, form: Form) -> PathBuf {
    folder.join(format!("{:020}{}", id.0, form.ending()))
}
