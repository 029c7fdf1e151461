//! A record: one message as it came, what kind it is and when it came. And where it lies.
//!
//! Invariant: a [`Position`] names a record for as long as the record exists; positions of one
//! log grow in the order of appending, and are used again only by a process that found none of
//! them taken.

use bytes::Bytes;

use crate::time::Timestamp;

/// What a record holds. The number is written to disk: it never changes its meaning.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum RecordKind {
    /// An `EmitRequestRequest`: what a function was asked.
    Request = 1,
    /// An `EmitResponseRequest`: what a function answered.
    Response = 2,
}

impl RecordKind {
    pub const fn code(self) -> u8 {
        self as u8
    }

    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Request),
            2 => Some(Self::Response),
            _ => None,
        }
    }

    /// The word for it in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
        }
    }
}

/// A message as it came.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    pub kind: RecordKind,
    pub received_at: Timestamp,
    pub message: Bytes,
}

/// The number of a segment file; a higher one was begun later.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SegmentId(pub u64);

/// Where a record lies in the log.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Position {
    pub segment: SegmentId,
    pub offset: u32,
}
