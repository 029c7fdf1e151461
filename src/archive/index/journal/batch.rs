//! The files in which a batch waits on local disk.
//!
//! `<stem>.jsonl` takes lines; closing makes `<stem>.jsonl.zst` of it, by way of a `.tmp` beside
//! it. Invariant: a `.zst` is whole, and a `.jsonl` beside one holds nothing more. A line is in its
//! file whole, or the file is never written to again.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, BufRead as _, BufReader, BufWriter, Read, Seek as _, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::super::{IndexKey, MAX_BATCH_BYTES, line_hash};
use crate::{pace::breathe, time::Timestamp};

const ZSTD_LEVEL: i32 = 3;
/// About 0.2 ms of compression.
const SLICE_BYTES: usize = 32 * 1024;
/// Read at a time when looking for the end of the last whole line.
const TAIL_BYTES: u64 = 64 * 1024;

/// What a file in the folder is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum FileKind {
    Lines,
    Compressed,
    /// Closing was interrupted.
    Unfinished,
}

impl FileKind {
    const ALL: [Self; 3] = [Self::Lines, Self::Compressed, Self::Unfinished];

    const fn ending(self) -> &'static str {
        match self {
            Self::Lines => ".jsonl",
            Self::Compressed => ".jsonl.zst",
            Self::Unfinished => ".jsonl.zst.tmp",
        }
    }

    pub(super) fn path(self, folder: &Path, key: &IndexKey) -> PathBuf {
        folder.join(format!("{}{}", key.file_stem(), self.ending()))
    }

    /// What a name says; `None` for files of others.
    pub(super) fn of_name(name: &str) -> Option<(Self, IndexKey)> {
        Self::ALL.into_iter().find_map(|kind| {
            let stem = name.strip_suffix(kind.ending())?;
            Some((kind, IndexKey::of_file_stem(stem)?))
        })
    }
}

/// What taking back a failed write takes.
pub(super) trait Cut {
    fn cut(&self, bytes: u64) -> io::Result<()>;
}

impl Cut for File {
    fn cut(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }
}

/// A file of whole lines.
#[derive(Debug)]
pub(super) struct LineFile<F> {
    file: F,
    bytes: u64,
    /// Up to here it is on the platter.
    synced: u64,
    is_torn: bool,
}

impl LineFile<File> {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        // NOTE: in append mode a line that was cut off needs no seek before the next.
        let file = File::options().append(true).create_new(true).open(path)?;
        Ok(Self::new(file))
    }

    /// Makes what was appended since the last time survive the loss of power.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.synced != self.bytes {
            self.file.sync_data()?;
            self.synced = self.bytes;
        }
        Ok(())
    }
}

impl<F: Write + Cut> LineFile<F> {
    const fn new(file: F) -> Self {
        Self {
            file,
            bytes: 0,
            synced: 0,
            is_torn: false,
        }
    }

    /// `line` ends with its newline.
    pub(super) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(line) {
            self.is_torn = self.file.cut(self.bytes).is_err();
            return Err(error);
        }
        self.bytes = self.bytes.saturating_add(line.len() as u64);
        Ok(())
    }

    /// Of whole lines.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A part of a line stands at the end and can't be cut off.
    pub(super) const fn is_torn(&self) -> bool {
        self.is_torn
    }
}

/// Compresses the first `bytes` of a batch's lines, and returns the compressed size.
pub(super) fn close(folder: &Path, key: &IndexKey, bytes: u64) -> io::Result<u64> {
    let lines = FileKind::Lines.path(folder, key);
    let unfinished = FileKind::Unfinished.path(folder, key);
    let mut source = File::open(&lines)?.take(bytes);
    let target = BufWriter::new(File::create(&unfinished)?);
    let mut encoder = zstd::Encoder::new(target, ZSTD_LEVEL)?;
    encoder.include_checksum(true)?;
    // A reader then takes a window no larger than the batch.
    encoder.set_pledged_src_size(Some(bytes))?;
    let mut slice = vec![0; SLICE_BYTES];
    loop {
        let read = source.read(&mut slice)?;
        let Some(read @ [_, ..]) = slice.get(..read) else {
            break;
        };
        encoder.write_all(read)?;
        breathe();
    }
    let target = encoder.finish()?;
    let target = target
        .into_inner()
        .map_err(io::IntoInnerError::into_error)?;
    // NOTE: before it gets the name of a whole one.
    target.sync_data()?;
    let size = target.metadata()?.len();
    fs::rename(&unfinished, FileKind::Compressed.path(folder, key))?;
    remove(&lines)?;
    Ok(size)
}

/// Removes a file that may be gone.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// How many bytes of a file are whole lines.
pub(super) fn whole_lines(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut end = file.metadata()?.len();
    let mut tail = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(TAIL_BYTES);
        tail.clear();
        file.seek(SeekFrom::Start(start))?;
        Read::by_ref(&mut file)
            .take(end - start)
            .read_to_end(&mut tail)?;
        if let Some(newline) = memchr::memrchr(b'\n', &tail) {
            return Ok(start + newline as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Adds the lines in a batch to those known, up to `limit`. What can't be read is passed over.
pub(super) fn collect_lines(
    path: &Path,
    kind: FileKind,
    known: &mut HashSet<u64>,
    limit: usize,
) -> io::Result<()> {
    #[derive(Deserialize)]
    struct Traced<'l> {
        #[serde(borrow)]
        trace_id: std::borrow::Cow<'l, str>,
        started_at: Timestamp,
        ended_at: Timestamp,
    }

    let file = File::open(path)?;
    let content: Box<dyn Read> = match kind {
        FileKind::Compressed => Box::new(zstd::Decoder::new(file)?),
        FileKind::Lines | FileKind::Unfinished => Box::new(file),
    };
    let mut content = BufReader::new(content.take(MAX_BATCH_BYTES));
    let mut line = Vec::new();
    while known.len() < limit {
        line.clear();
        if content.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if let Ok(traced) = serde_json::from_slice::<Traced<'_>>(&line) {
            let Traced {
                trace_id,
                started_at,
                ended_at,
            } = traced;
            known.insert(line_hash(&trace_id, started_at, ended_at));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Takes no more than some bytes, as a full disk does.
    struct SmallDisk {
        content: RefCell<Vec<u8>>,
        room: usize,
        can_cut: bool,
    }

    impl Write for SmallDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let content = self.content.get_mut();
            let taken = bytes.len().min(self.room - content.len());
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            content.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Cut for SmallDisk {
        fn cut(&self, bytes: u64) -> io::Result<()> {
            if !self.can_cut {
                return Err(io::ErrorKind::Other.into());
            }
            let bytes = usize::try_from(bytes).unwrap();
            self.content.borrow_mut().truncate(bytes);
            Ok(())
        }
    }

    fn small(can_cut: bool) -> LineFile<SmallDisk> {
        LineFile::new(SmallDisk {
            content: RefCell::default(),
            room: 12,
            can_cut,
        })
    }

    #[test]
    fn half_a_line_is_taken_back() {
        let mut lines = small(true);
        lines.append(b"first\n").unwrap();
        let error = lines.append(b"too long\n").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(!lines.is_torn());
        lines.append(b"short\n").unwrap();
        assert_eq!(*lines.file.content.borrow(), b"first\nshort\n");
        assert_eq!(lines.bytes(), 12);
    }

    #[test]
    fn half_a_line_that_stays_is_known() {
        let mut lines = small(false);
        lines.append(b"first\n").unwrap();
        lines.append(b"too long\n").unwrap_err();
        assert!(lines.is_torn());
        assert_eq!(lines.bytes(), 6);
    }

    #[test]
    fn the_end_of_the_last_whole_line_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let long = "x".repeat(200_000);
        for (content, whole) in [
            (String::new(), 0),
            ("torn".to_owned(), 0),
            ("one\n".to_owned(), 4),
            ("one\ntorn".to_owned(), 4),
            (format!("one\n{long}"), 4),
            (format!("{long}\n{long}"), 200_001),
        ] {
            fs::write(&path, content).unwrap();
            assert_eq!(whole_lines(&path).unwrap(), whole);
        }
    }
}
