//! A writer that rests between slices, for compression of large payloads.

use std::io::{self, Write};

use crate::pace::Pacer;

/// About 0.1 ms of compression.
const SLICE_BYTES: usize = 128 * 1024;

/// Hands bytes on slice by slice.
#[derive(Debug)]
pub(super) struct PacedWriter<'w, W> {
    pub(super) out: &'w mut W,
    pub(super) pacer: &'w mut Pacer,
}

impl<W: Write> Write for PacedWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let slice = bytes.get(..SLICE_BYTES).unwrap_or(bytes);
        self.out.write_all(slice)?;
        self.pacer.breathe();
        Ok(slice.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
