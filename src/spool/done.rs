//! Which records are done with: one log for all segments, to which every commit adds one entry.
//!
//! ```text
//! <folder>/done.log    "SPDONE01", then entries without gaps
//!   entry              "DONE", number of records (4 bytes), CRC-32 of the records (4 bytes), records
//!   record             segment (8 bytes), offset (4 bytes); all little-endian
//! ```
//!
//! A reconcile's records may lie in several segments. Invariant: an entry counts as a whole or not
//! at all, so that after a crash either all records of a reconcile are done or none is; a part of
//! them would come back as a reconcile with missing steps. An entry that doesn't check out, and
//! everything behind it, counts as missing: work is done again, never skipped.
//!
//! Older versions had a file of offsets beside each segment (`*.done`); these are read and removed.

use std::{
    collections::{BTreeMap, HashSet},
    io::{self, IoSlice},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::segment::{MAX_SEGMENT, done_path};
use crate::{
    disk::{Disk, DiskFile, SharedDisk, read_file, remove_if_there},
    record::{Position, SegmentId},
};

const MAGIC: &[u8; 8] = b"SPDONE01";
const MARKER: &[u8; 4] = b"DONE";
const HEADER_BYTES: usize = 12;
const RECORD_BYTES: usize = 12;
/// The log is rewritten once it is this long and most of it is about segments that are gone.
const STALE_BYTES: u64 = 256 * 1024;

/// Records that are done, by segment.
type Done = BTreeMap<SegmentId, HashSet<u32>>;

/// The log of what is done.
#[derive(Debug)]
pub(super) struct DoneLog {
    disk: SharedDisk,
    folder: PathBuf,
    /// `None` until there is room on the disk to begin it.
    file: Option<Arc<dyn DiskFile>>,
    /// Of whole entries.
    bytes: u64,
    /// Bytes after which it is worth rewriting.
    stale_at: u64,
    /// Half an entry is at its end and could not be removed.
    is_torn: bool,
    is_synced: bool,
    /// What an earlier process finished in segments that are still there.
    earlier: Done,
    /// The highest segment number that the log mentions.
    last_segment: Option<SegmentId>,
}

impl DoneLog {
    /// Reads what earlier processes finished, and goes on where they ended.
    pub(super) fn open(disk: SharedDisk, folder: PathBuf, segments: &[SegmentId]) -> Self {
        let (earlier, bytes) = read_log(disk.as_ref(), &folder).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read which messages are done; they are processed again");
            (Done::default(), 0)
        });
        let mut log = Self {
            disk,
            folder,
            file: None,
            bytes,
            stale_at: STALE_BYTES,
            is_torn: true,
            is_synced: false,
            last_segment: earlier.range(..=MAX_SEGMENT).next_back().map(|(id, _)| *id),
            earlier,
        };
        log.take_old_files(segments);
        log.earlier.retain(|id, _| segments.contains(id));
        log
    }

    /// A new segment must not get a number that the log mentions.
    pub(super) fn last_segment(&self) -> Option<SegmentId> {
        self.last_segment
    }

    /// What an earlier process finished in this segment; given out once.
    pub(super) fn take_earlier(&mut self, id: SegmentId) -> HashSet<u32> {
        self.earlier.remove(&id).unwrap_or_default()
    }

    /// Adds records to those that are done, all or none of them.
    pub(super) fn append(&mut self, records: &[Position]) -> io::Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => self.open_file()?,
        };
        let file = &*self.file.insert(file);
        if self.is_torn {
            file.truncate(self.bytes)?;
            self.is_torn = false;
        }
        let entry = entry_of(records);
        if let Err(error) = file.append(&mut [IoSlice::new(&entry)]) {
            self.is_torn = file.truncate(self.bytes).is_err();
            return Err(error);
        }
        self.bytes += entry.len() as u64;
        self.is_synced = false;
        Ok(())
    }

    /// Makes what was added survive a power failure. Has to come before a segment is removed: of
    /// two segments that hold a reconcile together the other might be left.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if let Some(file) = self.file.as_ref().filter(|_| !self.is_synced) {
            file.sync()?;
            self.is_synced = true;
        }
        Ok(())
    }

    /// Whether it is worth rewriting the log.
    pub(super) fn is_stale(&self) -> bool {
        self.bytes >= self.stale_at
    }

    /// Rewrites the log without what it says about segments that are gone.
    ///
    /// NOTE: a segment whose file is still there is not gone, whether anybody needs it or not.
    pub(super) fn drop_gone(&mut self, is_gone: impl Fn(SegmentId) -> bool) -> io::Result<()> {
        // NOTE: first the removal of those segments has to be certain.
        self.disk.sync_folder(&self.folder)?;
        let (mut done, _) = read_log(self.disk.as_ref(), &self.folder)?;
        done.retain(|id, _| !is_gone(*id));
        let (file, bytes) = write_log(&self.disk, &self.folder, &done)?;
        self.file = Some(file);
        self.bytes = bytes;
        self.stale_at = bytes + STALE_BYTES;
        self.is_torn = false;
        self.is_synced = true;
        Ok(())
    }

    fn open_file(&mut self) -> io::Result<Arc<dyn DiskFile>> {
        if self.bytes > 0 {
            return self.disk.open_to_append(&log_path(&self.folder));
        }
        let (file, bytes) = write_log(&self.disk, &self.folder, &Done::default())?;
        self.bytes = bytes;
        self.is_torn = false;
        Ok(file)
    }

    /// Moves what files of older versions say into the log.
    fn take_old_files(&mut self, segments: &[SegmentId]) {
        for id in segments {
            let taken = read_old_file(self.disk.as_ref(), &self.folder, *id).and_then(|offsets| {
                let Some(offsets) = offsets else {
                    return Ok(());
                };
                let position = |offset: &u32| Position {
                    segment: *id,
                    offset: *offset,
                };
                self.append(&offsets.iter().map(position).collect::<Vec<_>>())?;
                self.earlier.entry(*id).or_default().extend(offsets);
                self.disk.remove(&done_path(&self.folder, *id))
            });
            if let Err(error) = taken {
                tracing::warn!(
                    segment = id.0, %error,
                    "cannot take over which messages are done; they may be processed again"
                );
            }
        }
    }
}

fn log_path(folder: &Path) -> PathBuf {
    folder.join("done.log")
}

/// Writes a log of one entry and replaces the one that is there.
fn write_log(
    disk: &SharedDisk,
    folder: &Path,
    done: &Done,
) -> io::Result<(Arc<dyn DiskFile>, u64)> {
    let records: Vec<_> = done
        .iter()
        .flat_map(|(segment, offsets)| {
            offsets.iter().map(|offset| Position {
                segment: *segment,
                offset: *offset,
            })
        })
        .collect();
    let fresh = folder.join("done.log.new");
    remove_if_there(disk.as_ref(), &fresh)?;
    let file = disk.create(&fresh)?;
    let entry = entry_of(&records);
    file.append(&mut [IoSlice::new(MAGIC), IoSlice::new(&entry)])?;
    file.sync()?;
    disk.rename(&fresh, &log_path(folder))?;
    disk.sync_folder(folder)?;
    Ok((file, (MAGIC.len() + entry.len()) as u64))
}

fn entry_of(records: &[Position]) -> Vec<u8> {
    let mut body = Vec::with_capacity(records.len() * RECORD_BYTES);
    for record in records {
        body.extend(record.segment.0.to_le_bytes());
        body.extend(record.offset.to_le_bytes());
    }
    let count = u32::try_from(records.len()).unwrap_or(u32::MAX);
    let mut entry = Vec::with_capacity(HEADER_BYTES + body.len());
    entry.extend(MARKER);
    entry.extend(count.to_le_bytes());
    entry.extend(crc32fast::hash(&body).to_le_bytes());
    entry.extend(body);
    entry
}

/// What a log says, and how many bytes of it check out; none if there is no log.
fn read_log(disk: &dyn Disk, folder: &Path) -> io::Result<(Done, u64)> {
    let mut done = Done::default();
    let bytes = read_file(disk, &log_path(folder))?.unwrap_or_default();
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
        return Ok((done, 0));
    };
    while let Some((records, behind)) = split_entry(rest) {
        for record in records.as_chunks::<RECORD_BYTES>().0 {
            let [s0, s1, s2, s3, s4, s5, s6, s7, offset @ ..] = *record;
            let segment = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
            let offsets = done.entry(SegmentId(segment)).or_default();
            offsets.insert(u32::from_le_bytes(offset));
        }
        rest = behind;
    }
    Ok((done, (bytes.len() - rest.len()) as u64))
}

/// The records of the first entry and what is behind it; `None` if it doesn't check out.
fn split_entry(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let [m0, m1, m2, m3, c0, c1, c2, c3, crc @ ..] = *header;
    if [m0, m1, m2, m3] != *MARKER {
        return None;
    }
    let count = usize::try_from(u32::from_le_bytes([c0, c1, c2, c3])).ok()?;
    let (records, behind) = rest.split_at_checked(count.checked_mul(RECORD_BYTES)?)?;
    (crc32fast::hash(records) == u32::from_le_bytes(crc)).then_some((records, behind))
}

/// The records of a segment that are done according to a file of an older version: each entry is
/// an offset and a CRC-32 of the segment's number and that offset.
fn read_old_file(
    disk: &dyn Disk,
    folder: &Path,
    id: SegmentId,
) -> io::Result<Option<HashSet<u32>>> {
    const ENTRY_BYTES: usize = 8;

    let Some(bytes) = read_file(disk, &done_path(folder, id))? else {
        return Ok(None);
    };
    let (entries, _torn) = bytes.as_chunks::<ENTRY_BYTES>();
    let checked = entries.iter().filter_map(|entry| {
        let [a, b, c, d, crc @ ..] = *entry;
        let offset = [a, b, c, d];
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&id.0.to_le_bytes());
        hasher.update(&offset);
        (u32::from_le_bytes(crc) == hasher.finalize()).then_some(u32::from_le_bytes(offset))
    });
    Ok(Some(checked.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::simulated::{Death, SimulatedDisk};

    const FOLDER: &str = "spool";

    fn position(segment: u64, offset: u32) -> Position {
        Position {
            segment: SegmentId(segment),
            offset,
        }
    }

    fn open(disk: &SimulatedDisk) -> DoneLog {
        let segments = [SegmentId(1), SegmentId(2)];
        DoneLog::open(Arc::new(disk.clone()), FOLDER.into(), &segments)
    }

    fn earlier(disk: &SimulatedDisk) -> Vec<Position> {
        let done = open(disk).earlier;
        let mut found: Vec<_> = done
            .iter()
            .flat_map(|(segment, offsets)| {
                let offsets = offsets.iter();
                offsets.map(|offset| position(segment.0, *offset))
            })
            .collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn an_entry_over_two_segments_counts_as_a_whole_or_not_at_all_wherever_the_process_dies() {
        let first = [position(1, 8), position(2, 8)];
        let second = [position(1, 100), position(2, 100), position(2, 200)];
        let all = [first.as_slice(), second.as_slice()].concat();
        for crash_at in 1..12 {
            for seed in 0..20 {
                let disk = SimulatedDisk::with_seed(seed);
                let mut log = open(&disk);
                log.append(&first).unwrap();
                disk.crash_at(disk.operations() + crash_at);
                let appended = log.append(&second).and_then(|()| log.drop_gone(|_| false));
                disk.restart(Death::Killed);
                let mut found = earlier(&disk);
                let mut expected = all.clone();
                expected.sort_unstable();
                if appended.is_err() && found.len() == first.len() {
                    expected = first.to_vec();
                }
                found.sort_unstable();
                assert_eq!(found, expected, "operation {crash_at}, seed {seed}");
            }
        }
    }

    #[test]
    fn half_an_entry_left_by_a_full_disk_does_not_hide_the_next() {
        let disk = SimulatedDisk::default();
        let mut log = open(&disk);
        disk.set_capacity(Some(30));
        log.append(&[position(1, 8)]).unwrap_err();
        disk.set_capacity(None);
        log.append(&[position(1, 16)]).unwrap();
        disk.restart(Death::Killed);
        assert_eq!(earlier(&disk), [position(1, 16)]);
    }

    #[test]
    fn what_is_synced_survives_a_power_failure() {
        for seed in 0..50 {
            let disk = SimulatedDisk::with_seed(seed);
            let mut log = open(&disk);
            log.append(&[position(1, 8), position(2, 8)]).unwrap();
            log.sync().unwrap();
            log.append(&[position(1, 100)]).unwrap();
            disk.restart(Death::PowerFailure);
            let found = earlier(&disk);
            assert_eq!(found.first(), Some(&position(1, 8)), "seed {seed}");
            assert_eq!(found.last(), Some(&position(2, 8)), "seed {seed}");
        }
    }

    #[test]
    fn what_is_said_about_segments_that_are_gone_is_dropped() {
        let disk = SimulatedDisk::default();
        let mut log = open(&disk);
        log.append(&[position(1, 8), position(2, 8)]).unwrap();
        log.drop_gone(|id| id == SegmentId(1)).unwrap();
        log.append(&[position(2, 16)]).unwrap();
        assert_eq!(earlier(&disk), [position(2, 8), position(2, 16)]);
    }
}
