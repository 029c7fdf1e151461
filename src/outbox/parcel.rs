//! An object that waits for the store, in a file.
//!
//! ```text
//! body, label, length of the label, CRC-32 of the label, `SPPARCL1`
//! ```
//!
//! The label is compressed JSON and says where the body goes and what is to be noted once it is
//! there. It comes last since it is known last; so is the CRC-32 of the body, which is in it too.
//! Numbers are little-endian, of four bytes each. Invariant: a file with a label that can be read
//! holds the whole body, as long as the power does not fail before the file is synced: what an
//! earlier process may not have synced is believed only if the body agrees with its CRC-32. Parcels
//! of version 0.1 have none.

use std::{
    io::{self, BufWriter, Read as _, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::remove_sent;
use crate::{
    disk::{Disk, DiskFile, FileReader, FileWriter, SharedDisk, remove_if_there},
    fingerprint::Fingerprint,
    line::Line,
    pace::breathe,
    pack::{pack, unpack},
    reconcile::Subject,
};

const MAGIC: &[u8; 8] = b"SPPARCL1";
const TRAILER_BYTES: u64 = 16;
/// Decompressed; far more than a line takes.
const MAX_LABEL_BYTES: usize = 16 * 1024 * 1024;
/// Checked at a time: well under a millisecond.
const SLICE_BYTES: u64 = 128 * 1024;

/// Where a parcel goes, and what to note once it is there.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Label {
    pub subject: Subject,
    /// The beginning of the reconcile is missing: it may be in the store already.
    pub is_fragment: bool,
    pub fingerprint: Fingerprint,
    /// The reconcile's line in the index, as far as it is known before the object is stored.
    pub line: Line,
    /// The line of a reconcile's beginning, if that was the same as the previous reconcile and so
    /// has no object of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beginning: Option<Box<Line>>,
}

/// A label as it is written.
#[derive(Debug, Serialize)]
struct Sealed<'l> {
    #[serde(flatten)]
    label: &'l Label,
    body_crc32: u32,
}

/// What a label says about the body.
#[derive(Debug, Deserialize)]
struct BodyNote {
    #[serde(default)]
    body_crc32: Option<u32>,
}

/// A parcel that is being packed.
#[derive(Debug)]
pub struct ParcelWriter {
    out: BufWriter<FileWriter>,
    unsealed: Unsealed,
    bytes: u64,
    crc: crc32fast::Hasher,
}

/// A file that goes if it never becomes a parcel, so that it does not take the room that something
/// else needs.
#[derive(Debug)]
struct Unsealed {
    disk: SharedDisk,
    path: PathBuf,
}

impl Drop for Unsealed {
    fn drop(&mut self) {
        // Once sealed it has another name.
        remove_sent(self.disk.as_ref(), &self.path);
    }
}

impl ParcelWriter {
    /// Begins a file that is removed again unless it is finished.
    pub(super) fn create(disk: &SharedDisk, path: PathBuf) -> io::Result<Self> {
        remove_if_there(disk.as_ref(), &path)?;
        let file = disk.create(&path)?;
        Ok(Self {
            out: BufWriter::new(FileWriter(file)),
            unsealed: Unsealed {
                disk: Arc::clone(disk),
                path,
            },
            bytes: 0,
            crc: crc32fast::Hasher::new(),
        })
    }

    /// What was packed so far.
    pub fn body_bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn finish(
        mut self,
        label: &Label,
        path: &Path,
    ) -> io::Result<(Arc<dyn DiskFile>, u64)> {
        let label = Sealed {
            label,
            body_crc32: self.crc.clone().finalize(),
        };
        let label = pack(&serde_json::to_vec(&label)?)?;
        let length = u32::try_from(label.len()).map_err(io::Error::other)?;
        self.write_all(&label)?;
        self.write_all(&length.to_le_bytes())?;
        self.write_all(&crc32fast::hash(&label).to_le_bytes())?;
        self.write_all(MAGIC)?;
        let bytes = self.bytes;
        let FileWriter(file) = self
            .out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        self.unsealed.disk.rename(&self.unsealed.path, path)?;
        Ok((file, bytes))
    }
}

impl Write for ParcelWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write_all(bytes)?;
        self.crc.update(bytes);
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
    /// `None` if an earlier version wrote it.
    pub body_crc32: Option<u32>,
    body: FileReader,
}

impl ParcelReader {
    pub fn open(disk: &dyn Disk, path: &Path) -> io::Result<Self> {
        let file = disk.open(path)?;
        let bytes = file.length()?;
        let trailer_at = bytes.checked_sub(TRAILER_BYTES).ok_or_else(damaged)?;
        let (mut length, mut crc, mut magic) = ([0; 4], [0; 4], [0; 8]);
        file.read_exact_at(&mut length, trailer_at)?;
        file.read_exact_at(&mut crc, trailer_at + 4)?;
        file.read_exact_at(&mut magic, trailer_at + 8)?;
        let length = u32::from_le_bytes(length);
        let body_bytes = trailer_at.checked_sub(length.into()).ok_or_else(damaged)?;
        if magic != *MAGIC {
            return Err(damaged());
        }
        let mut label = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        file.read_exact_at(&mut label, body_bytes)?;
        if crc32fast::hash(&label) != u32::from_le_bytes(crc) {
            return Err(damaged());
        }
        let label = unpack(&label, MAX_LABEL_BYTES)?;
        let BodyNote { body_crc32 } = serde_json::from_slice(&label)?;
        let label = serde_json::from_slice(&label)?;
        Ok(Self {
            label,
            body_bytes,
            body_crc32,
            body: FileReader::new(file),
        })
    }

    /// Fails as [`io::ErrorKind::InvalidData`] if the body is not what was packed.
    pub(super) fn check_body(&mut self) -> io::Result<()> {
        let Some(expected) = self.body_crc32 else {
            return Ok(());
        };
        self.rewind();
        let mut crc = crc32fast::Hasher::new();
        loop {
            let slice = self.next_part(SLICE_BYTES)?;
            if slice.is_empty() {
                break;
            }
            crc.update(&slice);
            breathe();
        }
        self.rewind();
        if crc.finalize() == expected {
            Ok(())
        } else {
            Err(damaged())
        }
    }

    /// The next bytes of the body, as many as asked for unless it ends before.
    pub fn next_part(&mut self, bytes: u64) -> io::Result<Vec<u8>> {
        let rest = self.body_bytes - self.body.position().min(self.body_bytes);
        let wanted = rest.min(bytes);
        let mut part = Vec::with_capacity(usize::try_from(wanted).unwrap_or_default());
        (&mut self.body).take(wanted).read_to_end(&mut part)?;
        if part.len() as u64 != wanted {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(part)
    }

    /// The file that begins with the body.
    pub fn body(&self) -> FileReader {
        let mut body = self.body.clone();
        body.seek_to(0);
        body
    }

    /// Back to the beginning of the body.
    pub fn rewind(&mut self) {
        self.body.seek_to(0);
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the parcel is damaged")
}
