//! Segment files: their names, and reading the frames in one.
//!
//! Invariant: reading never fails because of what a file holds. A frame that does not check out
//! is stepped over, by its length if its header is whole, else by looking for the next header
//! that is; what follows it is read.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::BytesMut;

use super::{
    frame::{FrameHeader, HEADER_BYTES, MARKER},
    recycling::SPARE,
};
use crate::{
    disk::{Disk, DiskFile},
    record::{Record, SegmentId},
};

/// The ending of its name.
const SEGMENT: &str = "seg";
/// First bytes of every segment: a name and the version of the format.
pub(super) const SEGMENT_MAGIC: [u8; 8] = *b"SPSPOOL1";
/// Where the first frame stands.
pub(super) const FIRST_OFFSET: u32 = 8;
/// The highest number of a segment, which no process comes near. A file with a higher one was put
/// there by somebody else; if it counted, there would be no number for the next segment.
pub(super) const MAX_SEGMENT: SegmentId = SegmentId(u64::MAX / 2);

/// Larger records are read into memory of their own, which is given back.
const ROOM_BYTES: usize = 1024 * 1024;

/// How much is read at a time while looking for the next whole header.
const SCAN_BYTES: usize = 64 * 1024;

pub(super) fn segment_path(folder: &Path, id: SegmentId) -> PathBuf {
    folder.join(format!("{:020}.{SEGMENT}", id.0))
}

pub(super) fn done_path(folder: &Path, id: SegmentId) -> PathBuf {
    folder.join(format!("{:020}.done", id.0))
}

/// The number in the name of a segment file; `None` for any other file.
pub(super) fn segment_id(path: &Path) -> Option<SegmentId> {
    let id = SegmentId(path.file_stem()?.to_str()?.parse().ok()?);
    // NOTE: `7.seg` and `+7.seg` hold a number too, but are not the file that would be opened.
    (id <= MAX_SEGMENT && segment_path(path.parent()?, id) == path).then_some(id)
}

/// The number in the name of a done file; `None` for any other file.
pub(super) fn done_id(path: &Path) -> Option<SegmentId> {
    let id = SegmentId(path.file_stem()?.to_str()?.parse().ok()?);
    (id <= MAX_SEGMENT && done_path(path.parent()?, id) == path).then_some(id)
}

/// Whether this was a segment, and is empty now.
pub(super) fn is_spare(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == SPARE)
        && segment_id(&path.with_extension(SEGMENT)).is_some()
}

/// What stands at a place in a segment.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Found {
    /// A header that checks out; the body is not read yet.
    Frame(FrameHeader),
    /// Something that is no frame, up to where the next one begins.
    Damage { until: u32 },
    /// The beginning of a frame, or zeros, up to the end: a frame that was being written when
    /// the process or the machine died.
    TornTail { bytes: u64 },
    /// The end.
    End,
}

/// A segment open for reading.
#[derive(Debug)]
pub(super) struct SegmentReader {
    id: SegmentId,
    file: Arc<dyn DiskFile>,
}

impl SegmentReader {
    pub(super) fn open(disk: &dyn Disk, folder: &Path, id: SegmentId) -> io::Result<Self> {
        Ok(Self {
            id,
            file: disk.open(&segment_path(folder, id))?,
        })
    }

    pub(super) fn id(&self) -> SegmentId {
        self.id
    }

    /// Whether this version of the program may read the file. A damaged name does not matter,
    /// since frames are checked one by one; another version's does, unless the first frame shows
    /// that only that byte is damaged.
    pub(super) fn has_known_format(&self) -> io::Result<bool> {
        let mut magic = SEGMENT_MAGIC;
        match self.file.read_exact_at(&mut magic, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(true),
            Err(error) => Err(error),
            Ok(()) => {
                let (name, version) = magic.split_at(SEGMENT_MAGIC.len() - 1);
                let is_ours = SEGMENT_MAGIC.starts_with(name);
                if !is_ours || SEGMENT_MAGIC.ends_with(version) || !version.is_ascii() {
                    return Ok(true);
                }
                let end = self.file.length()?;
                Ok(self.header_at(FIRST_OFFSET, end)?.is_some())
            }
        }
    }

    /// What stands at `offset`, in a segment that is readable up to `end`.
    pub(super) fn look(&self, offset: u32, end: u64) -> io::Result<Found> {
        let left = end.saturating_sub(u64::from(offset));
        if left == 0 {
            return Ok(Found::End);
        }
        if let Some(header) = self.header_at(offset, end)? {
            // A whole header whose body was cut off can only stand at the end.
            return Ok(if header.frame_bytes() <= left {
                Found::Frame(header)
            } else {
                Found::TornTail { bytes: left }
            });
        }
        Ok(match self.find_header(offset.saturating_add(1), end)? {
            Some(until) => Found::Damage { until },
            None if self.is_torn(offset, end)? => Found::TornTail { bytes: left },
            None => Found::Damage {
                until: u32::try_from(end).unwrap_or(u32::MAX),
            },
        })
    }

    /// The record with this header; `None` if its body is damaged. It is read into `room`, which
    /// can be used again once the record is gone.
    pub(super) fn read_body(
        &self,
        header: &FrameHeader,
        room: &mut BytesMut,
    ) -> io::Result<Option<Record>> {
        let bytes = header.body_bytes as usize;
        let mut large = BytesMut::new();
        let room = if bytes > ROOM_BYTES { &mut large } else { room };
        room.resize(bytes, 0);
        let body_at = u64::from(header.offset) + HEADER_BYTES as u64;
        let read = self.file.read_exact_at(room, body_at);
        let body = room.split().freeze();
        read.map(|()| header.check_body(body))
    }

    /// The record at `offset`; `None` if it is damaged.
    pub(super) fn read_record(
        &self,
        offset: u32,
        room: &mut BytesMut,
    ) -> io::Result<Option<Record>> {
        match self.header_at(offset, u64::MAX)? {
            Some(header) => self.read_body(&header, room),
            None => Ok(None),
        }
    }

    fn header_at(&self, offset: u32, end: u64) -> io::Result<Option<FrameHeader>> {
        if end.saturating_sub(u64::from(offset)) < HEADER_BYTES as u64 {
            return Ok(None);
        }
        let mut bytes = [0; HEADER_BYTES];
        self.file.read_exact_at(&mut bytes, u64::from(offset))?;
        Ok(FrameHeader::decode(&bytes, self.id, offset))
    }

    /// Whether a dying process or machine leaves this at the end: less than a header, or zeros
    /// where the file had grown before its bytes were on disk.
    fn is_torn(&self, offset: u32, end: u64) -> io::Result<bool> {
        if end.saturating_sub(u64::from(offset)) < HEADER_BYTES as u64 {
            return Ok(true);
        }
        let mut bytes = [0; HEADER_BYTES];
        self.file.read_exact_at(&mut bytes, u64::from(offset))?;
        Ok(bytes == [0; HEADER_BYTES])
    }

    fn find_header(&self, from: u32, end: u64) -> io::Result<Option<u32>> {
        let marker = memchr::memmem::Finder::new(&MARKER);
        let mut window = vec![0; SCAN_BYTES];
        let mut start = u64::from(from);
        while start + (HEADER_BYTES as u64) <= end {
            let length = usize::try_from(end - start)
                .unwrap_or(SCAN_BYTES)
                .min(SCAN_BYTES);
            let Some(bytes) = window.get_mut(..length) else {
                break;
            };
            self.file.read_exact_at(bytes, start)?;
            for hit in marker.find_iter(bytes) {
                let Ok(candidate) = u32::try_from(start + hit as u64) else {
                    break;
                };
                if self.header_at(candidate, end)?.is_some() {
                    return Ok(Some(candidate));
                }
            }
            // Windows overlap, so that no marker hides on the seam.
            start += (length - MARKER.len() + 1) as u64;
        }
        Ok(None)
    }
}
