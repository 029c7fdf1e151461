//! Packs what is small and waits: lines, labels, batches of spans.
//!
//! Invariant: what is unpacked takes no more memory than it says it does, and never more than is
//! allowed. Setting zstd up takes longer than packing a line, so every thread does it once.

use std::{cell::RefCell, io};

use zstd::{
    bulk::{Compressor, Decompressor},
    zstd_safe::get_frame_content_size,
};

/// Measured on lines and payloads: a higher one takes longer and hardly less room.
const LEVEL: i32 = 1;

thread_local! {
    static PACKER: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static UNPACKER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

pub(crate) fn pack(content: &[u8]) -> io::Result<Vec<u8>> {
    PACKER.with_borrow_mut(|packer| match packer {
        Some(packer) => packer.compress(content),
        None => packer.insert(Compressor::new(LEVEL)?).compress(content),
    })
}

/// What was packed, if it is not larger than `limit`.
pub(crate) fn unpack(packed: &[u8], limit: usize) -> io::Result<Vec<u8>> {
    let size = get_frame_content_size(packed).ok().flatten();
    let size = size.and_then(|size| usize::try_from(size).ok());
    let Some(size) = size.filter(|size| *size <= limit) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    UNPACKER.with_borrow_mut(|unpacker| match unpacker {
        Some(unpacker) => unpacker.decompress(packed, size),
        None => unpacker
            .insert(Decompressor::new()?)
            .decompress(packed, size),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        for content in [&b""[..], b"a line", &vec![7; 100_000]] {
            let packed = pack(content).unwrap();
            assert_eq!(unpack(&packed, 100_000).unwrap(), content);
        }
    }

    #[test]
    fn what_is_too_large_or_damaged_is_refused() {
        let packed = pack(&[7; 1000]).unwrap();
        assert!(unpack(&packed, 999).is_err());
        assert!(unpack(&packed[..packed.len() - 1], 1000).is_err());
        assert!(unpack(b"no zstd", 1000).is_err());
        assert!(unpack(b"", 1000).is_err());
    }
}
