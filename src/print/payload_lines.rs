//! The lines of a payload below a message, each indented.
//!
//! Invariant: nothing is held back but line ends, which count only if something follows.

use std::io::{self, Write};

/// Takes a text character by character.
pub(super) struct PayloadLines<'o> {
    out: &'o mut dyn Write,
    /// What came before the first character, or how many line ends since the last one.
    begun: Option<usize>,
    written: io::Result<()>,
}

impl<'o> PayloadLines<'o> {
    pub(super) fn new(out: &'o mut dyn Write) -> Self {
        Self {
            out,
            begun: None,
            written: Ok(()),
        }
    }

    pub(super) fn put(&mut self, character: char) {
        if self.written.is_ok() {
            self.written = self.try_put(character);
        }
    }

    fn try_put(&mut self, character: char) -> io::Result<()> {
        match &mut self.begun {
            None => {
                self.out.write_all(b"  Payload:\n    ")?;
                self.begun = Some(0);
                return self.try_put(character);
            }
            Some(line_ends) if character == '\n' => {
                *line_ends += 1;
                return Ok(());
            }
            Some(line_ends) => {
                for _ in 0..std::mem::take(line_ends) {
                    self.out.write_all(b"\n    ")?;
                }
            }
        }
        let mut bytes = [0; 4];
        let bytes = character.encode_utf8(&mut bytes);
        self.out.write_all(bytes.as_bytes())
    }

    /// Ends the last line, and leaves an empty one after it.
    pub(super) fn finish(self) -> io::Result<()> {
        self.written?;
        if self.begun.is_some() {
            self.out.write_all(b"\n\n")?;
        }
        Ok(())
    }
}
