//! Joins an object of the store with a part that arrived late, on local disk.
//!
//! Invariant: memory holds the windows of the compression and what the joiner takes from the memory
//! that everybody shares, whatever the size of the two; both documents and the merged one are files
//! without a name, which go with the process.

use std::{
    cell::Cell,
    fmt,
    io::{self, BufWriter, Read, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde::Deserialize;

use super::{Compression, ObjectWriter};
use crate::{
    disk::{DiskFile, FileReader, FileWriter},
    line::Line,
    memory::SharedMemory,
    outbox::ParcelId,
    pace::{breathe, hurry_this_thread, pace_this_thread},
    panics::{Panics, Task},
};

/// A key has 1,024 bytes at most.
const MAX_NOTE_BYTES: u64 = 2048;
/// About 0.1 ms of compression.
const SLICE_BYTES: usize = 128 * 1024;

/// Opens a document from its beginning, decompressed.
pub type Opener<'o> = dyn FnMut() -> io::Result<Box<dyn Read>> + 'o;

/// Joins an earlier document with a late one, whose line is given, and returns the line of the
/// whole. The earlier document may be that of another reconcile, which the beginning of this one is
/// equal to; then the line of the beginning is given too. What holds more than the earlier document
/// is written out, after its size was told; if the late one is stored too, and about to go, in any
/// case. What is held as a whole takes the memory that is given. `None` if the two can't be joined;
/// an error is the disk's.
pub type Joiner = fn(
    documents: [&mut Opener<'_>; 2],
    late_line: &Line,
    beginning: Option<&Line>,
    is_stored: bool,
    memory: &dyn SharedMemory,
    expected_bytes: &Cell<u64>,
    out: &mut dyn Write,
) -> io::Result<Option<Line>>;

/// Keeps account of what is joined: if the process dies at it, the next one has to know.
pub trait JoinWatch: fmt::Debug + Send + Sync {
    /// This parcel is joined from now on, unless processes died at that too often.
    fn begin(&self, parcel: ParcelId) -> Result<(), Deadly>;

    /// That is over.
    fn end(&self, parcel: ParcelId);
}

/// So many processes died while they joined it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Deadly {
    pub deaths: u32,
}

/// What documents are joined with.
#[derive(Clone, Debug)]
pub struct Joins {
    pub joiner: Joiner,
    pub memory: Arc<dyn SharedMemory>,
    pub watch: Arc<dyn JoinWatch>,
}

/// A document, compressed, at the beginning of a file.
#[derive(Clone, Debug)]
pub(super) struct StoredFile {
    file: FileReader,
    pub(super) bytes: u64,
    compression: Compression,
    /// What all of it should have, if that is known, and what has been read of it so far.
    crc32: Option<u32>,
    read: crc32fast::Hasher,
    /// The disk could not read it, which says nothing about the document.
    has_failed: Arc<AtomicBool>,
}

impl StoredFile {
    pub(super) fn new(file: FileReader, bytes: u64, compression: Compression) -> Self {
        Self {
            file,
            bytes,
            compression,
            crc32: None,
            read: crc32fast::Hasher::new(),
            has_failed: Arc::default(),
        }
    }

    /// Reading it in parts fails at its end if it has another CRC-32.
    pub(super) fn with_crc32(self, crc32: Option<u32>) -> Self {
        Self { crc32, ..self }
    }

    /// Back to the beginning.
    pub(super) fn rewind(&mut self) {
        self.file.seek_to(0);
        self.read.reset();
    }

    /// The next bytes, as many as asked for unless it ends before.
    pub(super) fn next_part(&mut self, bytes: u64) -> io::Result<Vec<u8>> {
        let rest = self.bytes - self.file.position().min(self.bytes);
        let wanted = rest.min(bytes);
        let mut part = Vec::with_capacity(usize::try_from(wanted).unwrap_or_default());
        (&mut self.file).take(wanted).read_to_end(&mut part)?;
        if part.len() as u64 != wanted {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read.update(&part);
        let is_end = wanted == rest;
        let is_damaged = |crc32| crc32 != self.read.clone().finalize();
        if is_end && self.crc32.is_some_and(is_damaged) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the object is damaged",
            ));
        }
        Ok(part)
    }

    fn open(&self) -> io::Result<Box<dyn Read>> {
        let mut file = self.file.clone();
        file.seek_to(0);
        let noting = Noting {
            file,
            has_failed: Arc::clone(&self.has_failed),
        };
        self.compression.reader(noting.take(self.bytes))
    }

    /// Whether this only says where an object's content went.
    pub(super) fn is_note(&self) -> bool {
        #[derive(Deserialize)]
        struct Note {
            #[expect(dead_code, reason = "that it is there is enough")]
            moved_to: String,
        }
        if self.bytes > MAX_NOTE_BYTES {
            return false;
        }
        let note = self.open().map(|note| note.take(MAX_NOTE_BYTES));
        note.is_ok_and(|note| serde_json::from_reader::<_, Note>(note).is_ok())
    }

    fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }
}

/// Notes that the disk failed.
struct Noting {
    file: FileReader,
    has_failed: Arc<AtomicBool>,
}

impl Read for Noting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer);
        if read.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        read
    }
}

/// What became of two documents.
#[derive(Debug)]
pub(super) enum Joined {
    /// They can't be joined.
    Unjoinable,
    /// The earlier one holds all of the late one.
    Held(Box<Line>),
    /// Together they are this.
    Merged(Box<Line>, StoredFile),
}

/// How, and where.
#[derive(Clone, Debug)]
pub(super) struct Joining {
    pub(super) joins: Joins,
    /// On whose behalf.
    pub(super) parcel: ParcelId,
    /// The earlier document is that of another reconcile; this says what it stands for.
    pub(super) beginning: Option<Line>,
    /// The late document is stored too, and about to go.
    pub(super) is_stored: bool,
    /// There is a deadline.
    pub(super) is_urgent: bool,
}

impl Joining {
    /// Joins two documents, unless processes died at that too often; the merged one goes to `scratch`,
    /// compressed like the earlier.
    pub(super) fn run_watched(
        &self,
        panics: &Panics,
        earlier: &StoredFile,
        late: &StoredFile,
        late_line: &Line,
        scratch: Arc<dyn DiskFile>,
    ) -> io::Result<Result<Joined, Deadly>> {
        let watch = &self.joins.watch;
        if let Err(deadly) = watch.begin(self.parcel) {
            return Ok(Err(deadly));
        }
        let run = || self.run(earlier, late, late_line, scratch);
        let joined = panics.catch(Task::Upload, run);
        watch.end(self.parcel);
        // What can't be joined because of a bug of ours is stored all the same.
        joined.unwrap_or(Ok(Joined::Unjoinable)).map(Ok)
    }

    fn run(
        &self,
        earlier: &StoredFile,
        late: &StoredFile,
        late_line: &Line,
        scratch: Arc<dyn DiskFile>,
    ) -> io::Result<Joined> {
        if self.is_urgent {
            hurry_this_thread();
        } else {
            pace_this_thread();
        }
        let expected_bytes = Cell::new(0);
        let mut draft = Draft {
            compression: earlier.compression,
            expected_bytes: &expected_bytes,
            scratch: Some(scratch),
            writer: None,
        };
        let line = (self.joins.joiner)(
            [&mut || earlier.open(), &mut || late.open()],
            late_line,
            self.beginning.as_ref(),
            self.is_stored,
            self.joins.memory.as_ref(),
            &expected_bytes,
            &mut draft,
        )?;
        let Some(line) = line.map(Box::new) else {
            if earlier.has_failed() || late.has_failed() {
                return Err(io::Error::other("a document can't be read from local disk"));
            }
            return Ok(Joined::Unjoinable);
        };
        let compression = draft.compression;
        let Some(writer) = draft.writer else {
            return Ok(Joined::Held(line));
        };
        let out = writer.finish()?.into_inner();
        let FileWriter(file) = out.map_err(io::IntoInnerError::into_error)?;
        let bytes = file.length()?;
        let merged = StoredFile::new(FileReader::new(file), bytes, compression);
        Ok(Joined::Merged(line, merged))
    }
}

/// The merged document, while it is being written.
struct Draft<'j> {
    compression: Compression,
    expected_bytes: &'j Cell<u64>,
    scratch: Option<Arc<dyn DiskFile>>,
    /// Nothing was written as long as there is none.
    writer: Option<ObjectWriter<BufWriter<FileWriter>>>,
}

impl Write for Draft<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let writer = match (&mut self.writer, self.scratch.take()) {
            (Some(writer), _) => writer,
            (_, None) => return Err(io::ErrorKind::BrokenPipe.into()),
            (writer, Some(scratch)) => {
                let expected = usize::try_from(self.expected_bytes.get()).unwrap_or(usize::MAX);
                let out = BufWriter::new(FileWriter(scratch));
                writer.insert(ObjectWriter::new(self.compression, expected, out)?)
            }
        };
        let slice = bytes.get(..SLICE_BYTES).unwrap_or(bytes);
        writer.write_all(slice)?;
        breathe();
        Ok(slice.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::disk::{Disk as _, simulated::SimulatedDisk};

    #[test]
    fn a_file_that_is_not_what_was_written_is_not_read_to_its_end() {
        let disk = SimulatedDisk::default();
        let file = disk.create(Path::new("parcel")).unwrap();
        FileWriter(Arc::clone(&file))
            .write_all(b"body and label")
            .unwrap();
        let stored = |crc32| {
            let file = FileReader::new(Arc::clone(&file));
            StoredFile::new(file, 4, Compression::None).with_crc32(crc32)
        };
        for crc32 in [None, Some(crc32fast::hash(b"body"))] {
            let mut stored = stored(crc32);
            for _ in 0..2 {
                stored.rewind();
                assert_eq!(stored.next_part(3).unwrap(), b"bod");
                assert_eq!(stored.next_part(3).unwrap(), b"y");
                assert_eq!(stored.next_part(3).unwrap(), b"");
            }
        }
        let mut other = stored(Some(crc32fast::hash(b"bode")));
        assert_eq!(other.next_part(3).unwrap(), b"bod");
        let error = other.next_part(3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
