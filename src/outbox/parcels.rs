//! Objects that wait for the store, one file each.
//!
//! ```text
//! <folder>/<number>.parcel         body, label, length of the label, CRC-32 of the label, `SPPARCL1`
//! <folder>/<number>-late.parcel    the same, of a part that came late
//! ```
//!
//! The label is compressed JSON and says where the body goes and what is to be noted once it is
//! there. It comes last since it is known last. Numbers are little-endian, of four bytes each.
//! Invariant: a parcel is sealed with one rename, and the numbers of those that wait grow in that
//! order.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{Found, UNFINISHED, remove_sent, sync_folder, take_up};
use crate::{
    fingerprint::Fingerprint,
    line::Line,
    pack::{pack, unpack},
    reconcile::Subject,
    time::Timestamp,
};

const MAGIC: &[u8; 8] = b"SPPARCL1";
const TRAILER_BYTES: u64 = 16;
const ENDING: &str = ".parcel";
const LATE_ENDING: &str = "-late.parcel";
/// Decompressed; far more than a line takes.
const MAX_LABEL_BYTES: usize = 16 * 1024 * 1024;
/// What was sealed longer than this before the last one was made of records that are noted as done;
/// it need not be known after a crash.
const REDONE_WITHIN: Duration = Duration::from_secs(10);
/// No more records than those of as many reconciles wait to be noted.
const MAX_REDONE: usize = 4096;
/// Parcels that may be unsynced: each holds a file open, and a process may not have many.
const MAX_UNSYNCED: usize = 128;

/// Names a parcel.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ParcelId(u64);

/// Where a parcel goes, and what to note once it is there.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Label {
    pub subject: Subject,
    /// The beginning of the reconcile is missing: it may be in the store already.
    pub is_fragment: bool,
    pub fingerprint: Fingerprint,
    /// The reconcile's line in the index, as far as it is known before the object is stored.
    pub line: Line,
}

/// The parcels in a folder.
#[derive(Debug)]
pub struct Parcels {
    folder: PathBuf,
    next: u64,
    /// Those before are of an earlier process.
    first_own: ParcelId,
    waiting: BTreeMap<ParcelId, Waiting>,
    /// Of all that wait.
    bytes: u64,
    unsynced: Vec<File>,
    /// Files of those that don't wait any more.
    finished: Vec<PathBuf>,
    /// What an earlier process may have sealed without noting its records as done.
    left: BTreeMap<(String, Fingerprint), ParcelId>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    bytes: u64,
    is_late: bool,
    since: Timestamp,
}

impl Parcels {
    /// Takes up what an earlier process left.
    pub fn open(folder: PathBuf) -> io::Result<Self> {
        let mut waiting = BTreeMap::new();
        for Found {
            name,
            bytes,
            written_at: since,
        } in take_up(&folder)?
        {
            let late = name.strip_suffix(LATE_ENDING);
            let is_late = late.is_some();
            let number = late.or_else(|| name.strip_suffix(ENDING));
            if let Some(number) = number.and_then(|number| number.parse().ok()) {
                waiting.insert(
                    ParcelId(number),
                    Waiting {
                        bytes,
                        is_late,
                        since,
                    },
                );
            }
        }
        let next = waiting.keys().next_back().map_or(0, |last| last.0 + 1);
        let mut parcels = Self {
            folder,
            next,
            first_own: ParcelId(next),
            bytes: waiting.values().map(|parcel| parcel.bytes).sum(),
            waiting,
            unsynced: Vec::new(),
            finished: Vec::new(),
            left: BTreeMap::new(),
        };
        let last = parcels.waiting.values().next_back();
        let last = last.map_or(Timestamp::default(), |last| last.since);
        let is_recent = |parcel: &Waiting| last.since(parcel.since) <= REDONE_WITHIN;
        let recent = parcels.waiting.iter().rev().take(MAX_REDONE);
        for (id, _) in recent.take_while(|(_, parcel)| is_recent(parcel)) {
            // What is damaged is told when its turn comes.
            if let Ok(parcel) = parcels.read(*id) {
                let Label {
                    line, fingerprint, ..
                } = parcel.label;
                parcels.left.insert((line.trace_id, fingerprint), *id);
            }
        }
        Ok(parcels)
    }

    /// The parcel of this very reconcile, if an earlier process sealed it and it still waits.
    pub fn find(&self, trace_id: &str, fingerprint: Fingerprint) -> Option<ParcelId> {
        if self.left.is_empty() {
            return None;
        }
        let parcel = self.left.get(&(trace_id.to_owned(), fingerprint))?;
        self.waiting.contains_key(parcel).then_some(*parcel)
    }

    /// Whether an earlier process sealed it.
    pub fn is_left(&self, id: ParcelId) -> bool {
        id < self.first_own
    }

    /// Begins a parcel.
    pub fn begin(&self) -> io::Result<ParcelWriter> {
        let path = self.folder.join(format!("{:020}.{UNFINISHED}", self.next));
        Ok(ParcelWriter {
            out: BufWriter::new(File::create(&path)?),
            unsealed: Unsealed(path),
            bytes: 0,
        })
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
        let (is_late, since) = (label.is_fragment, now);
        let (file, bytes) = parcel.finish(label, &path_of(&self.folder, id, is_late))?;
        self.next += 1;
        self.bytes += bytes;
        self.unsynced.push(file);
        self.waiting.insert(
            id,
            Waiting {
                bytes,
                is_late,
                since,
            },
        );
        Ok(id)
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
            file.sync_data()?;
        }
        sync_folder(&self.folder)?;
        self.unsynced.clear();
        Ok(())
    }

    /// Those that may be sent, with their sizes. A part that came late waits for all before it:
    /// what it belongs to is among them.
    pub fn sendable(&self) -> impl Iterator<Item = (ParcelId, u64)> {
        let numbered = self.waiting.iter().enumerate();
        let sendable = numbered.filter(|(place, (_, parcel))| *place == 0 || !parcel.is_late);
        sendable.map(|(_, (id, parcel))| (*id, parcel.bytes))
    }

    /// Opens a parcel to send it.
    pub fn read(&self, id: ParcelId) -> io::Result<ParcelReader> {
        ParcelReader::open(&self.path_of(id))
    }

    /// It is where it belongs, or will never be there. Its file stays until what that means is
    /// noted for good.
    pub fn finish(&mut self, id: ParcelId) {
        let path = self.path_of(id);
        if let Some(parcel) = self.waiting.remove(&id) {
            self.bytes -= parcel.bytes;
            self.finished.push(path);
        }
    }

    /// That is noted.
    pub fn remove_finished(&mut self) {
        for path in self.finished.drain(..) {
            remove_sent(&path);
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
        let is_late = self.waiting.get(&id).is_some_and(|parcel| parcel.is_late);
        path_of(&self.folder, id, is_late)
    }
}

fn path_of(folder: &Path, id: ParcelId, is_late: bool) -> PathBuf {
    let ending = if is_late { LATE_ENDING } else { ENDING };
    folder.join(format!("{:020}{ending}", id.0))
}

/// A parcel that is being packed.
#[derive(Debug)]
pub struct ParcelWriter {
    out: BufWriter<File>,
    unsealed: Unsealed,
    bytes: u64,
}

/// A file that goes if it never becomes a parcel, so that it does not take the room that something
/// else needs.
#[derive(Debug)]
struct Unsealed(PathBuf);

impl Drop for Unsealed {
    fn drop(&mut self) {
        // Once sealed it has another name.
        remove_sent(&self.0);
    }
}

impl ParcelWriter {
    /// What was packed so far.
    pub fn body_bytes(&self) -> u64 {
        self.bytes
    }

    fn finish(mut self, label: &Label, path: &Path) -> io::Result<(File, u64)> {
        let label = pack(&serde_json::to_vec(label)?)?;
        let length = u32::try_from(label.len()).map_err(io::Error::other)?;
        self.write_all(&label)?;
        self.write_all(&length.to_le_bytes())?;
        self.write_all(&crc32fast::hash(&label).to_le_bytes())?;
        self.write_all(MAGIC)?;
        let bytes = self.bytes;
        let file = self
            .out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        fs::rename(&self.unsealed.0, path)?;
        Ok((file, bytes))
    }
}

impl Write for ParcelWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A sealed parcel.
#[derive(Debug)]
pub struct ParcelReader {
    pub label: Label,
    pub body_bytes: u64,
    file: File,
}

impl ParcelReader {
    pub fn open(path: &Path) -> io::Result<Self> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the parcel is damaged");
        let mut file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let trailer_at = bytes.checked_sub(TRAILER_BYTES).ok_or_else(damaged)?;
        file.seek(SeekFrom::Start(trailer_at))?;
        let (mut length, mut crc, mut magic) = ([0; 4], [0; 4], [0; 8]);
        file.read_exact(&mut length)?;
        file.read_exact(&mut crc)?;
        file.read_exact(&mut magic)?;
        let length = u32::from_le_bytes(length);
        let body_bytes = trailer_at.checked_sub(length.into()).ok_or_else(damaged)?;
        if magic != *MAGIC {
            return Err(damaged());
        }
        file.seek(SeekFrom::Start(body_bytes))?;
        let mut label = Vec::new();
        (&file).take(length.into()).read_to_end(&mut label)?;
        if crc32fast::hash(&label) != u32::from_le_bytes(crc) {
            return Err(damaged());
        }
        let label = unpack(&label, MAX_LABEL_BYTES)?;
        let label = serde_json::from_slice(&label)?;
        file.seek(SeekFrom::Start(0))?;
        Ok(Self {
            label,
            body_bytes,
            file,
        })
    }

    /// The next bytes of the body, as many as asked for unless it ends before.
    pub fn next_part(&mut self, bytes: u64) -> io::Result<Vec<u8>> {
        let rest = self.body_bytes - self.file.stream_position()?.min(self.body_bytes);
        let wanted = rest.min(bytes);
        let mut part = Vec::with_capacity(usize::try_from(wanted).unwrap_or_default());
        (&self.file).take(wanted).read_to_end(&mut part)?;
        if part.len() as u64 != wanted {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(part)
    }

    /// Back to the beginning of the body.
    pub fn rewind(&mut self) -> io::Result<()> {
        self.file.rewind()
    }
}
