//! A writer that rests between slices, for compression of large payloads.

use std::io::{self, Write};

use crate::pace::breathe;

/// About 0.1 ms of compression.
const SLICE_BYTES: usize = 128 * 1024;

/// Hands bytes on slice by slice.
#[derive(Debug)]
pub(super) struct PacedWriter<W>(pub(super) W);

impl<W: Write> Write for PacedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let slice = bytes.get(..SLICE_BYTES).unwrap_or(bytes);
        self.0.write_all(slice)?;
        breathe();
        Ok(slice.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
