//! How figures are written.

use std::time::Duration;

/// Seconds, to the tenth.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64())
}

/// MiB, rounded.
pub(crate) fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}
