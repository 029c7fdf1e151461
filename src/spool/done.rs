//! Which records of a segment are done with: a file beside the segment that only grows.
//!
//! Each entry is the record's offset and a CRC-32 of the segment's number and that offset, both
//! little-endian. Invariant: an entry that does not check out says nothing, so that a torn or
//! zeroed file makes work be done again and never makes it be left out.

use std::{
    collections::HashSet,
    fs,
    io::{self, Write as _},
    path::Path,
};

use super::segment::done_path;
use crate::record::SegmentId;

const ENTRY_BYTES: usize = 8;

/// Adds records to those that are done.
pub(super) fn append_done(folder: &Path, id: SegmentId, offsets: &[u32]) -> io::Result<()> {
    let mut entries = Vec::with_capacity(offsets.len() * ENTRY_BYTES);
    for offset in offsets {
        entries.extend(offset.to_le_bytes());
        entries.extend(entry_crc(id, *offset).to_le_bytes());
    }
    let mut file = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(done_path(folder, id))?;
    // NOTE: a half entry left by a full disk would shift all that follow.
    let torn = file.metadata()?.len() % ENTRY_BYTES as u64;
    if torn != 0 {
        file.set_len(file.metadata()?.len() - torn)?;
    }
    file.write_all(&entries)
}

/// The records of a segment that are done.
pub(super) fn read_done(folder: &Path, id: SegmentId) -> io::Result<HashSet<u32>> {
    let bytes = match fs::read(done_path(folder, id)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashSet::new()),
        Err(error) => return Err(error),
    };
    let (entries, _torn) = bytes.as_chunks::<ENTRY_BYTES>();
    Ok(entries
        .iter()
        .filter_map(|entry| {
            let [a, b, c, d, crc @ ..] = *entry;
            let offset = u32::from_le_bytes([a, b, c, d]);
            (u32::from_le_bytes(crc) == entry_crc(id, offset)).then_some(offset)
        })
        .collect())
}

fn entry_crc(id: SegmentId, offset: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.0.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_and_zeroed_entries_say_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let id = SegmentId(3);
        append_done(folder.path(), id, &[8, 100]).unwrap();
        let path = done_path(folder.path(), id);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..13]).unwrap();
        assert_eq!(read_done(folder.path(), id).unwrap(), HashSet::from([8]));
        append_done(folder.path(), id, &[200]).unwrap();
        assert_eq!(
            read_done(folder.path(), id).unwrap(),
            HashSet::from([8, 200])
        );
        fs::write(&path, [0; 64]).unwrap();
        assert_eq!(read_done(folder.path(), id).unwrap(), HashSet::new());
    }
}
