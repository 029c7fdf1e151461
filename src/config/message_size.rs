//! How large a message may be, and how many bytes of messages may be in memory at once.
//!
//! Invariant: what is received takes at most a quarter of the memory limit. The rest is for what is
//! made of a message afterwards, which takes up to twice its size, or for a page of the viewer, and
//! for everything else. No message is taken that this does not suffice for: it would kill the process each time it is read.

use super::show_bytes;

/// What the log can hold in one record.
const MAX_MESSAGE_BYTES: u64 = 1 << 30;
/// Needs 128 MiB of memory, the limit that the program is made for.
const DEFAULT_MESSAGE_BYTES: u64 = 32 << 20;
/// Of the memory limit.
const SHARE: u64 = 4;
/// Of a message, for what is made of it.
const PROCESSING: u64 = 2;
/// What is taken however little memory there is, if it is a quarter of it: gRPC's own default.
const MIN_MESSAGE_BYTES: u64 = 4 << 20;
/// Two messages of a usual size, at least.
const MIN_IN_MEMORY_BYTES: u64 = 8 << 20;
/// The program itself, its buffers, and what is on its way to the store, the collector and readers of
/// the viewer.
const EVERYTHING_ELSE_BYTES: u64 = 48 << 20;

/// What may be received.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct MessageLimits {
    pub(super) max_bytes: usize,
    /// Of all messages that are being received. A larger message passes on its own.
    pub(super) in_memory_bytes: usize,
    /// Of the memory limit, for what is made of messages meanwhile.
    pub(super) for_processing_bytes: usize,
    pub(super) warning: Option<String>,
}

impl MessageLimits {
    /// The limits, or why a message can't be so large. `memory` is the memory limit, if there is
    /// one; where it is too small for the default, the largest message is smaller.
    pub(super) fn check(max_bytes: u64, memory: Option<u64>) -> Result<Self, String> {
        if !(1..=MAX_MESSAGE_BYTES).contains(&max_bytes) {
            return Err("this must be between 1 byte and 1GiB".to_owned());
        }
        let mut warning = None;
        let asked = max_bytes;
        let max_bytes = memory.map_or(asked, |memory| asked.min(largest_within(memory)));
        if let Some(memory) = memory.filter(|_| max_bytes < asked) {
            let [asked_for, needed, has, fits] =
                [asked, asked * SHARE, memory, max_bytes].map(show_bytes);
            let problem = format!(
                "messages of {asked_for} need a memory limit of {needed}, and the container has {has}"
            );
            // NOTE: the default must not keep a sidecar with less memory from starting.
            if asked > DEFAULT_MESSAGE_BYTES {
                return Err(format!(
                    "{problem}; raise the container's limit, or set --max-recv-msg-size to {fits} \
                     or less"
                ));
            }
            warning = Some(format!(
                "{problem}; messages over {fits} are refused, raise the container's limit to take them"
            ));
        }
        let share = memory.map_or(u64::MAX, |memory| memory / SHARE);
        let in_memory = DEFAULT_MESSAGE_BYTES
            .max(max_bytes)
            .min(share)
            .max(MIN_IN_MEMORY_BYTES);
        let for_processing = memory.map_or(u64::MAX, |memory| {
            memory.saturating_sub(in_memory + EVERYTHING_ELSE_BYTES)
        });
        let bytes = |number| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Self {
            max_bytes: bytes(max_bytes),
            in_memory_bytes: bytes(in_memory),
            for_processing_bytes: bytes(for_processing),
            warning,
        })
    }
}

/// The largest message that this memory limit suffices for.
fn largest_within(memory: u64) -> u64 {
    let for_processing = memory.saturating_sub(EVERYTHING_ELSE_BYTES) / PROCESSING;
    (memory / SHARE).min(for_processing.max(MIN_MESSAGE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn check(max_mib: u64, memory_mib: Option<u64>) -> Result<(usize, bool), String> {
        let memory = memory_mib.map(|mib| mib * MIB);
        let limits = MessageLimits::check(max_mib * MIB, memory)?;
        let is_lowered = (limits.max_bytes as u64) < max_mib * MIB;
        assert_eq!(limits.warning.is_some(), is_lowered);
        Ok((limits.in_memory_bytes >> 20, limits.warning.is_some()))
    }

    #[test]
    fn the_default_fits_the_memory_limit_that_the_program_is_made_for() {
        assert_eq!(check(32, Some(128)), Ok((32, false)));
        assert_eq!(check(4, Some(128)), Ok((32, false)));
        assert_eq!(check(32, None), Ok((32, false)));
    }

    #[test]
    fn larger_messages_need_more_memory() {
        let problem = check(33, Some(128)).unwrap_err();
        for word in ["33.0 MiB", "132.0 MiB", "128.0 MiB", "32.0 MiB"] {
            assert!(problem.contains(word), "{word} is not in {problem}");
        }
        assert_eq!(check(64, Some(256)), Ok((64, false)));
        assert_eq!(check(1024, None), Ok((1024, false)));
        check(1025, None).unwrap_err();
    }

    #[test]
    fn what_is_received_and_processed_stays_within_the_memory_limit() {
        for memory in [64, 96, 128, 256, 1024] {
            let limits = MessageLimits::check(8 * MIB, Some(memory * MIB)).unwrap();
            let both = limits.in_memory_bytes + limits.for_processing_bytes;
            assert!(
                both as u64 + EVERYTHING_ELSE_BYTES <= memory * MIB,
                "{memory} MiB"
            );
        }
        let limits = MessageLimits::check(32 * MIB, Some(128 * MIB)).unwrap();
        assert_eq!(limits.for_processing_bytes as u64, 48 * MIB);
        let limits = MessageLimits::check(32 * MIB, None).unwrap();
        assert_eq!(limits.for_processing_bytes, usize::MAX);
    }

    #[test]
    fn with_less_memory_the_largest_message_is_smaller_and_the_warning_says_so() {
        for (memory, largest) in [(127, 31), (96, 24), (64, 8), (32, 4), (16, 4), (8, 2)] {
            let limits = MessageLimits::check(32 * MIB, Some(memory * MIB)).unwrap();
            assert_eq!(limits.max_bytes as u64 / MIB, largest, "{memory} MiB");
            let warning = limits.warning.unwrap();
            let over = format!(
                "messages over {} are refused",
                show_bytes(limits.max_bytes as u64)
            );
            assert!(warning.contains(&over), "{warning}");
        }
        let limits = MessageLimits::check(4 * MIB, Some(64 * MIB)).unwrap();
        assert_eq!((limits.max_bytes as u64, limits.warning), (4 * MIB, None));
    }

    #[test]
    fn a_message_that_is_taken_can_be_processed() {
        for memory in 64..=256 {
            let limits = MessageLimits::check(32 * MIB, Some(memory * MIB)).unwrap();
            let processing = PROCESSING * limits.max_bytes as u64;
            assert!(
                processing + EVERYTHING_ELSE_BYTES <= memory * MIB,
                "{memory} MiB"
            );
        }
    }

    #[test]
    fn less_memory_is_a_warning_and_less_is_received_at_once() {
        assert_eq!(check(32, Some(64)), Ok((16, true)));
        assert_eq!(check(8, Some(64)), Ok((16, false)));
        assert_eq!(check(32, Some(16)), Ok((8, true)));
    }
}
