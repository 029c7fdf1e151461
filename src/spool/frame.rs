//! One record as bytes on disk, and back. Pure.
//!
//! ```text
//! offset  size  what
//!      0     4  marker F5 53 50 52; F5 occurs in no UTF-8 text, so in no JSON payload
//!      4     4  length of the body
//!      8     4  offset of this frame in its segment
//!     12     1  kind of record
//!     13     1  1 if it is in the log once more, after its time; else 0
//!     14     2  zero
//!     16     8  arrival, nanoseconds since the Unix epoch
//!     24     4  CRC-32 of the body
//!     28     4  CRC-32 of the segment's number and the 28 bytes before
//!     32     …  body: the message as it came
//! ```
//!
//! Numbers are little-endian. Invariant: a header that checks out lies where it was written, in
//! the segment it was written to; a copy of it, in a payload or in a block that the file system
//! gave to another file, does not check out.

use bytes::Bytes;

use crate::{
    record::{Record, RecordKind, SegmentId},
    time::Timestamp,
};

pub(super) const HEADER_BYTES: usize = 32;
/// Longer records are refused before they get here, so that no offset leaves 32 bits.
pub(super) const MAX_BODY_BYTES: usize = 1 << 30;
pub(super) const MARKER: [u8; 4] = [0xF5, b'S', b'P', b'R'];

/// What a frame says about its body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct FrameHeader {
    pub(super) body_bytes: u32,
    pub(super) offset: u32,
    pub(super) kind: u8,
    /// It came before what stands before it.
    pub(super) is_late: bool,
    pub(super) received_at: Timestamp,
    pub(super) body_crc: u32,
}

impl FrameHeader {
    /// The header for a record at `offset`. A record over [`MAX_BODY_BYTES`] has none.
    pub(super) fn of(record: &Record, offset: u32, is_late: bool) -> Self {
        Self {
            body_bytes: u32::try_from(record.message.len()).unwrap_or(u32::MAX),
            offset,
            kind: record.kind.code(),
            is_late,
            received_at: record.received_at,
            body_crc: crc32fast::hash(&record.message),
        }
    }

    pub(super) fn encode(&self, segment: SegmentId) -> [u8; HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend(MARKER);
        bytes.extend(self.body_bytes.to_le_bytes());
        bytes.extend(self.offset.to_le_bytes());
        bytes.extend([self.kind, u8::from(self.is_late), 0, 0]);
        bytes.extend(self.received_at.as_nanos().to_le_bytes());
        bytes.extend(self.body_crc.to_le_bytes());
        bytes.extend(header_crc(segment, &bytes).to_le_bytes());
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&bytes);
        header
    }

    /// The header in these bytes, if they are one that was written at this very place.
    pub(super) fn decode(
        bytes: &[u8; HEADER_BYTES],
        segment: SegmentId,
        offset: u32,
    ) -> Option<Self> {
        let (covered, crc) = bytes.split_last_chunk::<4>()?;
        if u32::from_le_bytes(*crc) != header_crc(segment, covered) {
            return None;
        }
        let mut rest = covered;
        let mut take = |count: usize| rest.split_off(..count);
        if take(4)? != MARKER {
            return None;
        }
        let body_bytes = u32::from_le_bytes(take(4)?.try_into().ok()?);
        let own_offset = u32::from_le_bytes(take(4)?.try_into().ok()?);
        let [kind, is_late, ..] = *take(4)?.first_chunk::<4>()?;
        let header = Self {
            body_bytes,
            offset: own_offset,
            kind,
            is_late: is_late == 1,
            received_at: Timestamp::from_nanos(i64::from_le_bytes(take(8)?.try_into().ok()?)),
            body_crc: u32::from_le_bytes(take(4)?.try_into().ok()?),
        };
        (header.offset == offset).then_some(header)
    }

    /// Bytes from the start of this frame to the start of the next.
    pub(super) fn frame_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.body_bytes)
    }

    /// The record with this header and this body, if the body is whole.
    pub(super) fn check_body(&self, body: Bytes) -> Option<Record> {
        if body.len() != self.body_bytes as usize || crc32fast::hash(&body) != self.body_crc {
            return None;
        }
        Some(Record {
            kind: RecordKind::from_code(self.kind)?,
            received_at: self.received_at,
            message: body,
        })
    }
}

fn header_crc(segment: SegmentId, covered: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&segment.0.to_le_bytes());
    hasher.update(covered);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: SegmentId = SegmentId(9);

    fn record() -> Record {
        Record {
            kind: RecordKind::Response,
            received_at: Timestamp::from_nanos(1_794_803_806_133_007_001),
            message: Bytes::from_static(b"body"),
        }
    }

    #[test]
    fn a_header_reads_back_where_it_was_written_and_nowhere_else() {
        for is_late in [false, true] {
            let header = FrameHeader::of(&record(), 160, is_late);
            let bytes = header.encode(SEGMENT);
            assert_eq!(FrameHeader::decode(&bytes, SEGMENT, 160), Some(header));
            assert_eq!(FrameHeader::decode(&bytes, SEGMENT, 161), None);
            assert_eq!(FrameHeader::decode(&bytes, SegmentId(8), 160), None);
            assert_eq!(header.check_body(record().message), Some(record()));
        }
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let header = FrameHeader::of(&record(), 160, false);
        for bit in 0..HEADER_BYTES * 8 {
            let mut bytes = header.encode(SEGMENT);
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHeader::decode(&bytes, SEGMENT, 160), None, "bit {bit}");
        }
        for bit in 0..32 {
            let mut body = b"body".to_vec();
            body[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(header.check_body(body.into()), None, "bit {bit}");
        }
    }
}
