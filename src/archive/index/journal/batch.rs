//! The files in which a batch waits on local disk.
//!
//! `<stem>.jsonl` takes lines; closing makes `<stem>.jsonl.zst` of it, by way of a `.tmp` beside
//! it. Invariant: a `.zst` is whole, and a `.jsonl` beside one holds nothing more. A line is in its
//! file whole, or the file is never written to again.

use std::{
    borrow::Cow,
    io::{self, BufRead as _, BufReader, BufWriter, IoSlice, Read, Write as _},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, de::IgnoredAny};

use super::super::{IndexKey, MAX_BATCH_BYTES};
use crate::{
    disk::{Disk, DiskFile, FileReader, FileWriter, remove_if_there},
    line::{Coverage, CoveredStep, ObjectRef},
    pace::breathe,
    time::Timestamp,
};

const ZSTD_LEVEL: i32 = 3;
/// About 0.2 ms of compression.
const SLICE_BYTES: usize = 32 * 1024;
/// Read at a time when looking for the end of the last whole line.
const TAIL_BYTES: usize = 64 * 1024;

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

/// What a line that was noted is known by.
#[derive(Debug, Deserialize)]
pub(super) struct Noted<'l> {
    #[serde(borrow)]
    pub(super) trace_id: Cow<'l, str>,
    #[serde(default)]
    pub(super) revision: u32,
    pub(super) object: ObjectRef,
    started_at: Timestamp,
    ended_at: Timestamp,
    #[serde(default)]
    steps: Vec<CoveredStep>,
}

impl Noted<'_> {
    pub(super) fn coverage(&self) -> Coverage {
        Coverage::of_steps(self.started_at, self.ended_at, &self.steps)
    }
}

/// A file of whole lines.
#[derive(Debug)]
pub(super) struct LineFile {
    file: Arc<dyn DiskFile>,
    bytes: u64,
    /// Up to here it survives a power failure.
    synced: u64,
    is_torn: bool,
}

impl LineFile {
    pub(super) fn create(disk: &dyn Disk, path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: disk.create(path)?,
            bytes: 0,
            synced: 0,
            is_torn: false,
        })
    }

    /// Makes what was appended since the last time survive a power failure.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.synced != self.bytes {
            self.file.sync()?;
            self.synced = self.bytes;
        }
        Ok(())
    }

    /// `line` ends with its newline.
    pub(super) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.append(&mut [IoSlice::new(line)]) {
            self.is_torn = self.file.truncate(self.bytes).is_err();
            return Err(error);
        }
        self.bytes = self.bytes.saturating_add(line.len() as u64);
        Ok(())
    }

    /// Of whole lines.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A part of a line is at the end and can't be cut off.
    pub(super) const fn is_torn(&self) -> bool {
        self.is_torn
    }
}

/// Compresses the lines in the first `bytes` of a batch, and returns the compressed size. What a
/// power failure left of a line is left out: other programs could read nothing of the batch.
pub(super) fn close(disk: &dyn Disk, folder: &Path, key: &IndexKey, bytes: u64) -> io::Result<u64> {
    let lines = FileKind::Lines.path(folder, key);
    let unfinished = FileKind::Unfinished.path(folder, key);
    let mut whole_bytes = 0;
    for_each_line(disk, &lines, bytes, |line| {
        whole_bytes += line.len() as u64;
        Ok(())
    })?;
    remove_if_there(disk, &unfinished)?;
    let target = BufWriter::new(FileWriter(disk.create(&unfinished)?));
    let mut encoder = zstd::Encoder::new(target, ZSTD_LEVEL)?;
    encoder.include_checksum(true)?;
    // A reader then takes a window no larger than the batch.
    encoder.set_pledged_src_size(Some(whole_bytes))?;
    for_each_line(disk, &lines, bytes, |line| encoder.write_all(line))?;
    let target = encoder.finish()?;
    let FileWriter(target) = target
        .into_inner()
        .map_err(io::IntoInnerError::into_error)?;
    // NOTE: before it gets the name of a whole one.
    target.sync()?;
    let size = target.length()?;
    disk.rename(&unfinished, &FileKind::Compressed.path(folder, key))?;
    // NOTE: the lines must not be gone while the name of what replaces them can still be lost.
    disk.sync_folder(folder)?;
    remove_if_there(disk, &lines)?;
    Ok(size)
}

/// Hands out the lines of JSON in the first `bytes` of a file.
fn for_each_line(
    disk: &dyn Disk,
    path: &Path,
    bytes: u64,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let source = FileReader::new(disk.open(path)?).take(bytes);
    let mut source = BufReader::with_capacity(SLICE_BYTES, source);
    let mut line = Vec::new();
    while source.read_until(b'\n', &mut line)? > 0 {
        if serde_json::from_slice::<IgnoredAny>(&line).is_ok() {
            take(&line)?;
        }
        line.clear();
        breathe();
    }
    Ok(())
}

/// How many bytes of a file are whole lines.
pub(super) fn whole_lines(disk: &dyn Disk, path: &Path) -> io::Result<u64> {
    let file = disk.open(path)?;
    let mut end = file.length()?;
    let mut tail = vec![0; TAIL_BYTES];
    while end > 0 {
        let start = end.saturating_sub(TAIL_BYTES as u64);
        let length = usize::try_from(end - start).unwrap_or(TAIL_BYTES);
        let tail = tail.get_mut(..length).unwrap_or_default();
        file.read_exact_at(tail, start)?;
        if let Some(newline) = memchr::memrchr(b'\n', tail) {
            return Ok(start + newline as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Hands out what the lines of a batch are known by, and the lines, until `take` wants no more.
/// What can't be read is skipped.
pub(super) fn read_noted(
    disk: &dyn Disk,
    path: &Path,
    kind: FileKind,
    mut take: impl FnMut(Noted<'_>, &[u8]) -> ControlFlow<()>,
) -> io::Result<()> {
    let file = FileReader::new(disk.open(path)?);
    let content: Box<dyn Read> = match kind {
        FileKind::Compressed => Box::new(zstd::Decoder::new(file)?),
        FileKind::Lines | FileKind::Unfinished => Box::new(file),
    };
    let mut content = BufReader::new(content.take(MAX_BATCH_BYTES));
    let mut line = Vec::new();
    loop {
        line.clear();
        if content.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if let Ok(noted) = serde_json::from_slice::<Noted<'_>>(&line)
            && take(noted, &line).is_break()
        {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{LocalDisk, simulated::SimulatedDisk};

    fn small(disk: &SimulatedDisk) -> LineFile {
        disk.set_capacity(Some(12));
        LineFile::create(disk, Path::new("index/lines")).unwrap()
    }

    #[test]
    fn half_a_line_is_taken_back() {
        let disk = SimulatedDisk::default();
        let mut lines = small(&disk);
        lines.append(b"first\n").unwrap();
        let error = lines.append(b"too long\n").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(!lines.is_torn());
        lines.append(b"short\n").unwrap();
        let mut content = String::new();
        let mut reader = FileReader::new(Arc::clone(&lines.file));
        reader.read_to_string(&mut content).unwrap();
        assert_eq!(content, "first\nshort\n");
        assert_eq!(lines.bytes(), 12);
    }

    #[test]
    fn half_a_line_that_stays_is_known() {
        let disk = SimulatedDisk::default();
        let mut lines = small(&disk);
        lines.append(b"first\n").unwrap();
        disk.crash_at(disk.operations() + 1);
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
            std::fs::write(&path, content).unwrap();
            assert_eq!(whole_lines(&LocalDisk, &path).unwrap(), whole);
        }
    }
}
