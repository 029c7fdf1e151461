//! What pages may take in memory.
//!
//! A viewer inside the sidecar shares the container with receiving and storing, which must never
//! suffer from somebody who looks at a large reconcile. Invariant: what a page reads is bounded by
//! [`Limits`], one page at a time has payloads in memory (`Viewer::take_desk`), and takes the memory
//! for that from what everybody shares, or gives up; what has been made and waits for slow clients is
//! bounded too (`holding`). What does not fit is not shown, and the page says so.

/// What the sidecar's container has by default, and what of that is left to the viewer.
const DEFAULT_MEMORY: u64 = 128 * MIB;
const DEFAULT_SHARE: u64 = 24 * MIB;
const MIB: u64 = 1024 * 1024;
/// Of a value in a tree, about.
const VALUE_BYTES: u64 = 96;
/// Of the text that a value takes at least, with what separates it from the next.
const SHORTEST_VALUE: u64 = 2;
/// What reading a large object takes besides.
const INFLATING_BYTES: u64 = 8 * MIB;

/// What a page may read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Text of payloads that is held at once.
    pub(super) text_bytes: u64,
    /// Values of trees that are held at once.
    pub(super) values: usize,
}

impl Limits {
    /// For a viewer that is a program of its own.
    pub const fn alone() -> Self {
        Self {
            text_bytes: 256 * MIB,
            values: 8_000_000,
        }
    }

    /// For one inside the sidecar, which may use this much memory in all.
    pub fn inside_sidecar(memory_limit: Option<u64>) -> Self {
        let more = memory_limit.map_or(0, |limit| limit.saturating_sub(DEFAULT_MEMORY) / 4);
        let share = DEFAULT_SHARE + more;
        let values = (share / 3 * 2) / VALUE_BYTES;
        let alone = Self::alone();
        Self {
            text_bytes: (share / 3).min(alone.text_bytes),
            values: usize::try_from(values)
                .unwrap_or(usize::MAX)
                .min(alone.values),
        }
    }

    /// What a page over so many bytes of payloads may take in memory, whatever they hold.
    pub(super) fn needed_for(self, payload_bytes: u64) -> usize {
        let trees = (payload_bytes / SHORTEST_VALUE).saturating_mul(VALUE_BYTES);
        let held = payload_bytes.saturating_add(trees).min(self.bytes());
        let needed = held + payload_bytes.min(INFLATING_BYTES);
        usize::try_from(needed).unwrap_or(usize::MAX)
    }

    /// What a page may take of both.
    pub fn bytes(self) -> u64 {
        self.text_bytes + self.values as u64 * VALUE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_needs_little_for_small_payloads_and_never_more_than_its_share() {
        let usual = Limits::inside_sidecar(Some(128 * MIB));
        let needed = |bytes| usual.needed_for(bytes) as u64;
        assert_eq!(needed(0), 0);
        assert!(needed(10_000) < MIB);
        assert!(needed(8 * MIB) <= DEFAULT_SHARE + INFLATING_BYTES);
        assert_eq!(needed(8 * MIB), needed(u64::MAX));
    }

    #[test]
    fn the_more_memory_there_is_the_more_is_shown() {
        let usual = Limits::inside_sidecar(Some(128 * MIB));
        assert_eq!(usual.text_bytes, 8 * MIB);
        assert!(usual.bytes() <= DEFAULT_SHARE);
        assert_eq!(Limits::inside_sidecar(None), usual);
        assert_eq!(Limits::inside_sidecar(Some(64 * MIB)), usual);
        let more = Limits::inside_sidecar(Some(512 * MIB));
        assert!(more.text_bytes > 4 * usual.text_bytes && more.values > 4 * usual.values);
        assert_eq!(Limits::inside_sidecar(Some(1 << 50)), Limits::alone());
    }
}
