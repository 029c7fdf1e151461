//! Bytes that are read as what to do: any bytes are a script.

/// What is left of a script. At its end it gives zeros.
#[derive(Debug)]
pub(crate) struct Script<'s>(&'s [u8]);

impl<'s> Script<'s> {
    pub(crate) fn new(bytes: &'s [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or_default()
    }

    /// One of so many.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// Up to so many bytes.
    pub(crate) fn bytes(&mut self, most: usize) -> &'s [u8] {
        let count = most.min(self.0.len());
        self.0.split_off(..count).unwrap_or_default()
    }

    pub(crate) fn number(&mut self) -> u64 {
        let mut number = [0; 8];
        for (digit, byte) in number.iter_mut().zip(self.bytes(8)) {
            *digit = *byte;
        }
        u64::from_le_bytes(number)
    }
}
