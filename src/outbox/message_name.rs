//! What a message in quarantine is called.
//!
//! ```text
//! <segment>-<offset>-<kind>-<arrival in nanoseconds since the Unix epoch>.message
//! <segment>-<offset>.message      by versions that knew no way back
//! ```
//!
//! Invariant: the file holds the bytes and its name everything else that it takes to put the
//! message into the log once more.

use std::fmt;

use crate::{
    record::{Position, RecordKind, SegmentId},
    time::Timestamp,
};

const KINDS: [RecordKind; 2] = [RecordKind::Request, RecordKind::Response];
pub(super) const MESSAGE_ENDING: &str = ".message";

/// A message, but for its bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MessageName {
    /// Where it was in the log.
    pub position: Position,
    pub kind: RecordKind,
    pub received_at: Timestamp,
}

impl fmt::Display for MessageName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { segment, offset } = self.position;
        let (kind, arrival) = (self.kind.as_str(), self.received_at.as_nanos());
        write!(
            out,
            "{:020}-{offset}-{kind}-{arrival}{MESSAGE_ENDING}",
            segment.0
        )
    }
}

impl MessageName {
    /// `None` for what has another name, or lacks something.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_suffix(MESSAGE_ENDING)?.splitn(4, '-');
        let mut next = || parts.next();
        let (segment, offset) = (next()?.parse().ok()?, next()?.parse().ok()?);
        let (kind, arrival) = (next()?, next()?.parse().ok()?);
        Some(Self {
            position: Position {
                segment: SegmentId(segment),
                offset,
            },
            kind: KINDS.into_iter().find(|known| known.as_str() == kind)?,
            received_at: Timestamp::from_nanos(arrival),
        })
    }

    /// What versions that knew no way back called it.
    pub(super) fn earlier(&self) -> String {
        let Position { segment, offset } = self.position;
        format!("{:020}-{offset}{MESSAGE_ENDING}", segment.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back_and_one_of_an_earlier_version_does_not() {
        for (kind, nanos) in KINDS.into_iter().zip([1_794_803_806_133_007_001, -5]) {
            let name = MessageName {
                position: Position {
                    segment: SegmentId(7),
                    offset: 8,
                },
                kind,
                received_at: Timestamp::from_nanos(nanos),
            };
            assert_eq!(MessageName::parse(&name.to_string()), Some(name));
            assert_eq!(name.earlier(), "00000000000000000007-8.message");
            assert_eq!(MessageName::parse(&name.earlier()), None);
        }
    }
}
