//! What the store or the collector refuses, and messages at which the process died, kept for a
//! person to look at.
//!
//! ```text
//! <folder>/<id>-<name>          a parcel, a batch of the index or a batch of spans, as it waited; or
//!                               a message as it came (`message_name`)
//! <folder>/<id>.note            what it is and why it is here, as JSON
//! <folder>/retry/<id>-<name>    to be sent again: put there by a person's command, and taken up by
//!                               the sidecar while it runs, or when it starts
//! ```
//!
//! Any process may list these files, move one to `retry` or remove it; only the sidecar adds any,
//! and takes up what is to be sent again. Invariant: bounded in bytes and in files. What does not fit
//! is given up oldest first, by the caller, who counts it as lost. What is to be sent again leaves
//! before that; if it can't be taken, it stays and is one of those that may be given up.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, IoSlice},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use super::{
    Label, MessageName, ParcelReader, UNFINISHED, message_name::MESSAGE_ENDING, remove_sent,
};
use crate::{
    disk::{Disk, SharedDisk, disk_use, read_file, remove_if_there},
    time::Timestamp,
};

/// The folder for what is to be sent again.
const RETRY: &str = "retry";
const NOTE_ENDING: &str = ".note";
/// What is known of a file takes some 250 bytes of memory.
const MAX_FILES: usize = 16 * 1024;

/// What can be in quarantine.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Quarantinable {
    Object,
    Index,
    Spans,
    Message,
}

impl Quarantinable {
    pub const ALL: [Self; 4] = [Self::Object, Self::Index, Self::Spans, Self::Message];

    /// The value of the metrics' label `kind`.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Object => "objects",
            Self::Index => "index",
            Self::Spans => "traces",
            Self::Message => "messages",
        }
    }

    const fn ending(self) -> &'static str {
        match self {
            Self::Object => ".parcel",
            Self::Index => ".jsonl.zst",
            Self::Spans => ".otlp.zst",
            Self::Message => MESSAGE_ENDING,
        }
    }
}

/// What is known of something in quarantine.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Note {
    /// The key of an object or of a batch; the first of a batch of spans.
    pub what: String,
    /// Why it was refused.
    pub reason: String,
    pub since: Timestamp,
}

/// A file in quarantine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Quarantined {
    pub id: u64,
    pub what: Quarantinable,
    /// What it was called before.
    pub name: String,
    pub path: PathBuf,
    pub bytes: u64,
    /// Somebody wants it to be sent again.
    pub is_retried: bool,
}

impl Quarantined {
    /// What kind of message it is, and when it came; `None` for anything else, and for a message
    /// that an earlier version kept without that.
    pub fn message(&self) -> Option<MessageName> {
        MessageName::parse(&self.name)
    }

    /// Whether it can be sent again.
    pub fn is_sendable(&self) -> bool {
        self.what != Quarantinable::Message || self.message().is_some()
    }

    /// What is known of it; `None` if the note is gone.
    pub fn note(&self, disk: &dyn Disk) -> Option<Note> {
        let folder = self.path.parent()?;
        let folder = if self.is_retried {
            folder.parent()?
        } else {
            folder
        };
        let note = read_file(disk, &note_path(folder, self.id)).ok()??;
        serde_json::from_slice(&note).ok()
    }
}

/// The quarantine of a sidecar.
#[derive(Debug)]
pub struct Quarantine {
    disk: SharedDisk,
    folder: PathBuf,
    max_bytes: u64,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    next: u64,
    files: BTreeMap<u64, Quarantined>,
}

impl Quarantine {
    /// Takes up what an earlier process left.
    pub fn open(disk: SharedDisk, folder: PathBuf, max_bytes: u64) -> io::Result<Self> {
        disk.create_folder(&folder.join(RETRY))?;
        remove_unfinished(disk.as_ref(), &folder)?;
        let quarantine = Self {
            disk,
            folder,
            max_bytes,
            held: Mutex::default(),
        };
        quarantine.look_again()?;
        Ok(quarantine)
    }

    /// Everything in a quarantine, oldest first; nothing if there is none.
    pub fn list(disk: &dyn Disk, folder: &Path) -> io::Result<Vec<Quarantined>> {
        let mut found = files_in(disk, folder, false)?;
        found.extend(files_in(disk, &folder.join(RETRY), true)?);
        // NOTE: a file that is moved meanwhile may be seen twice.
        found.sort_by_key(|file| (file.id, file.is_retried));
        found.dedup_by_key(|file| file.id);
        Ok(found)
    }

    /// Has something sent again by the sidecar that owns the quarantine.
    pub fn retry(disk: &dyn Disk, file: &Quarantined) -> io::Result<()> {
        let (Some(folder), Some(name)) = (file.path.parent(), file.path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if file.is_retried {
            return Ok(());
        }
        disk.rename(&file.path, &folder.join(RETRY).join(name))
    }

    /// Gives something up.
    pub fn remove(disk: &dyn Disk, folder: &Path, file: &Quarantined) -> io::Result<()> {
        remove_if_there(disk, &file.path)?;
        remove_sent(disk, &note_path(folder, file.id));
        Ok(())
    }

    /// Moves a file here, whose name is its own.
    pub fn take(&self, what: Quarantinable, path: &Path, note: &Note) -> io::Result<()> {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or(io::ErrorKind::InvalidInput)?;
        self.add(what, name, note, |place| self.disk.rename(path, place))
    }

    /// Writes a file here.
    pub fn put(
        &self,
        what: Quarantinable,
        name: &str,
        content: &[u8],
        note: &Note,
    ) -> io::Result<()> {
        let fresh = self.folder.join(format!("{name}.{UNFINISHED}"));
        self.add(what, name, note, |place| {
            write(self.disk.as_ref(), &fresh, content)?;
            self.disk.rename(&fresh, place)
        })
    }

    /// Whether this file fits in without pushing others out.
    pub fn has_room_for(&self, path: &Path) -> bool {
        let length = self.disk.open(path).and_then(|file| file.length());
        // Whoever can't tell tries again.
        let Ok(length) = length else { return false };
        let held = self.lock();
        let bytes: u64 = held.files.values().map(|file| disk_use(file.bytes)).sum();
        bytes + disk_use(length) <= self.max_bytes && held.files.len() < MAX_FILES
    }

    /// The oldest that does not fit, be it that it is to be sent again and can't be taken: these are
    /// untakeable. It is to be [given up](Self::give_up).
    pub fn excess(&self, untakeable: &BTreeSet<u64>) -> Option<Quarantined> {
        if !self.is_full() {
            return None;
        }
        let held = self.lock();
        let mut files = held.files.values();
        let oldest = files.find(|file| !file.is_retried || untakeable.contains(&file.id));
        oldest.cloned()
    }

    /// Whether something has to go.
    pub fn is_full(&self) -> bool {
        let held = self.lock();
        let bytes: u64 = held.files.values().map(|file| disk_use(file.bytes)).sum();
        bytes > self.max_bytes || held.files.len() > MAX_FILES
    }

    pub fn give_up(&self, file: &Quarantined) {
        self.lock().files.remove(&file.id);
        if let Err(error) = Self::remove(self.disk.as_ref(), &self.folder, file) {
            tracing::warn!(path = %file.path.display(), %error, "cannot remove a quarantined file");
        }
    }

    pub fn note(&self, file: &Quarantined) -> Option<Note> {
        file.note(self.disk.as_ref())
    }

    /// The label of an object; `None` if it can't be read.
    pub fn label(&self, file: &Quarantined) -> Option<Label> {
        let parcel = ParcelReader::open(self.disk.as_ref(), &file.path);
        parcel.ok().map(|parcel| parcel.label)
    }

    /// What somebody wants to be sent again.
    pub fn retried(&self) -> io::Result<Vec<Quarantined>> {
        files_in(self.disk.as_ref(), &self.folder.join(RETRY), true)
    }

    /// The bytes of a message; `None` if somebody removed it.
    pub fn read(&self, file: &Quarantined) -> io::Result<Option<Vec<u8>>> {
        read_file(self.disk.as_ref(), &file.path)
    }

    /// A copy of it is where it belongs.
    pub fn discard(&self, file: &Quarantined) -> io::Result<()> {
        remove_if_there(self.disk.as_ref(), &file.path)?;
        self.release(file);
        Ok(())
    }

    /// Something was taken back to where it waited before.
    pub fn release(&self, file: &Quarantined) {
        self.lock().files.remove(&file.id);
        remove_sent(self.disk.as_ref(), &note_path(&self.folder, file.id));
    }

    /// Sees what others have changed.
    pub fn look_again(&self) -> io::Result<()> {
        let found = Self::list(self.disk.as_ref(), &self.folder)?;
        let mut held = self.lock();
        let last = found.last().map_or(0, |file| file.id);
        held.next = held.next.max(last + 1);
        held.files = found.into_iter().map(|file| (file.id, file)).collect();
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.lock().files.is_empty()
    }

    /// Whether this message is here, be it by an earlier version's name.
    pub fn has_message(&self, name: &MessageName) -> bool {
        let names = [name.to_string(), name.earlier()];
        self.lock()
            .files
            .values()
            .any(|file| names.contains(&file.name))
    }

    /// What there is of each of [`Quarantinable::ALL`].
    pub fn bytes(&self) -> [u64; Quarantinable::ALL.len()] {
        let held = self.lock();
        Quarantinable::ALL.map(|what| {
            let files = held.files.values().filter(|file| file.what == what);
            files.map(|file| disk_use(file.bytes)).sum()
        })
    }

    fn add(
        &self,
        what: Quarantinable,
        name: &str,
        note: &Note,
        place: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        if !name.ends_with(what.ending()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut held = self.lock();
        let id = held.next;
        let path = self.folder.join(format!("{id}-{name}"));
        let note_path = note_path(&self.folder, id);
        let disk = self.disk.as_ref();
        let placed =
            write(disk, &note_path, &serde_json::to_vec(note)?).and_then(|()| place(&path));
        placed.inspect_err(|_| remove_sent(disk, &note_path))?;
        let file = Quarantined {
            id,
            what,
            name: name.to_owned(),
            bytes: disk.open(&path).and_then(|file| file.length()).unwrap_or(0),
            path,
            is_retried: false,
        };
        held.next += 1;
        held.files.insert(id, file);
        drop(held);
        if let Err(error) = disk.sync_folder(&self.folder) {
            // Without power it may be back where it was, and is refused once more.
            tracing::warn!(%error, "cannot sync the quarantine");
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn note_path(folder: &Path, id: u64) -> PathBuf {
    folder.join(format!("{id}{NOTE_ENDING}"))
}

/// Writes a file, durably, in place of one that was not finished.
fn write(disk: &dyn Disk, path: &Path, content: &[u8]) -> io::Result<()> {
    remove_if_there(disk, path)?;
    let file = disk.create(path)?;
    let written = file
        .append(&mut [IoSlice::new(content)])
        .and_then(|()| file.sync());
    written.inspect_err(|_| remove_sent(disk, path))
}

/// The quarantined files in a folder.
fn files_in(disk: &dyn Disk, folder: &Path, is_retried: bool) -> io::Result<Vec<Quarantined>> {
    let entries = match disk.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let Some((id, name)) = entry.name.split_once('-') else {
            continue;
        };
        let Ok(id) = id.parse() else { continue };
        let mut kinds = Quarantinable::ALL.into_iter();
        let Some(what) = kinds.find(|what| name.ends_with(what.ending())) else {
            continue;
        };
        found.push(Quarantined {
            id,
            what,
            name: name.to_owned(),
            path: folder.join(&entry.name),
            bytes: entry.bytes,
            is_retried,
        });
    }
    Ok(found)
}

/// Removes what a process that died left half done: files that were not finished, and notes of
/// files that are not there.
fn remove_unfinished(disk: &dyn Disk, folder: &Path) -> io::Result<()> {
    let held = Quarantine::list(disk, folder)?;
    let held: BTreeSet<_> = held.iter().map(|file| file.id.to_string()).collect();
    for entry in disk.list(folder)? {
        let path = folder.join(&entry.name);
        let id = entry.name.strip_suffix(NOTE_ENDING);
        let is_orphan = id.is_some_and(|id| !held.contains(id));
        let is_unfinished = path.extension().is_some_and(|ending| ending == UNFINISHED);
        if is_orphan || is_unfinished {
            remove_if_there(disk, &path)?;
        }
    }
    Ok(())
}
