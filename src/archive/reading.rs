//! Objects, read as streams: fetched and decompressed piece by piece.
//!
//! Invariant: memory holds a piece of what is fetched, a piece of what comes of it, and the window
//! of the compression, which is 8 MiB at most; whatever the object holds.

use std::{
    fmt,
    io::{self, Write as _},
};

use bytes::{Buf as _, Bytes};
use futures_util::{StreamExt as _, stream::BoxStream};
use object_store::ObjectStoreExt as _;
use zstd::stream::raw::{DParameter, Decoder, Operation as _};

use super::{Archive, Compression, FetchError, Key};

/// 8 MiB: larger windows are not written here.
const MAX_WINDOW: u32 = 23;
/// Of what is decompressed at once.
const PIECE_BYTES: usize = 64 * 1024;
/// Of what gzip takes at once: it becomes a thousand times as much at most.
const GZIP_BYTES: usize = 512;

/// An object as it is stored, compressed.
pub struct StoredObject {
    key: Key,
    /// As the store says.
    pub size: u64,
    pieces: BoxStream<'static, object_store::Result<Bytes>>,
}

impl fmt::Debug for StoredObject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("StoredObject").field(&self.key).finish()
    }
}

impl Archive {
    /// Begins to fetch an object.
    pub async fn open_object(&self, key: &Key) -> Result<StoredObject, FetchError> {
        let found = self.store.client.get(&self.location(key.as_str())).await?;
        Ok(StoredObject {
            key: key.clone(),
            size: found.meta.size,
            pieces: found.into_stream(),
        })
    }
}

impl StoredObject {
    /// How it is compressed.
    pub fn compression(&self) -> Compression {
        Compression::of_key(self.key.as_str())
    }

    /// The next piece as it is stored; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FetchError> {
        Ok(self.pieces.next().await.transpose()?)
    }

    /// Decompresses it on the way.
    pub fn inflate(self) -> Result<Inflating, FetchError> {
        let inflater = Inflater::new(self.compression());
        let inflater = inflater.map_err(|source| decompress_error(&self.key, source))?;
        Ok(Inflating {
            object: self,
            fetched: Bytes::new(),
            inflater,
        })
    }
}

/// An object that is decompressed as it is read.
#[derive(Debug)]
pub struct Inflating {
    object: StoredObject,
    /// What is fetched and not decompressed yet.
    fetched: Bytes,
    inflater: Inflater,
}

impl Inflating {
    /// The next piece of the document, which is never empty; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FetchError> {
        loop {
            let inflated = self.inflater.inflate(&mut self.fetched);
            let inflated = inflated.map_err(|source| self.broken(source))?;
            if !inflated.is_empty() {
                return Ok(Some(inflated));
            }
            let Some(fetched) = self.object.next().await? else {
                let end = self.inflater.finish();
                let end = end.map_err(|source| self.broken(source))?;
                return Ok((!end.is_empty()).then_some(end));
            };
            self.fetched = fetched;
        }
    }

    fn broken(&self, source: io::Error) -> FetchError {
        decompress_error(&self.object.key, source)
    }
}

fn decompress_error(key: &Key, source: io::Error) -> FetchError {
    let key = key.clone();
    FetchError::Decompress { key, source }
}

enum Inflater {
    Zstd {
        decoder: Decoder<'static>,
        /// Nothing is missing of what was given to it.
        is_whole: bool,
    },
    Gzip(Option<Box<flate2::write::GzDecoder<Vec<u8>>>>),
    None,
}

impl fmt::Debug for Inflater {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Inflater")
    }
}

impl Inflater {
    fn new(compression: Compression) -> io::Result<Self> {
        Ok(match compression {
            Compression::Zstd => {
                let mut decoder = Decoder::new()?;
                decoder.set_parameter(DParameter::WindowLogMax(MAX_WINDOW))?;
                let is_whole = false;
                Self::Zstd { decoder, is_whole }
            }
            Compression::Gzip => {
                Self::Gzip(Some(Box::new(flate2::write::GzDecoder::new(Vec::new()))))
            }
            Compression::None => Self::None,
        })
    }

    /// Takes from `fetched` and gives a piece; an empty one if more has to be fetched.
    fn inflate(&mut self, fetched: &mut Bytes) -> io::Result<Bytes> {
        match self {
            Self::Zstd { decoder, is_whole } => {
                let mut piece = vec![0; PIECE_BYTES];
                let mut filled = 0;
                // NOTE: called without input too, for what did not fit into the piece before.
                loop {
                    let room = piece.get_mut(filled..).unwrap_or_default();
                    if room.is_empty() || (*is_whole && fetched.is_empty()) {
                        break;
                    }
                    let status = decoder.run_on_buffers(fetched, room)?;
                    fetched.advance(status.bytes_read);
                    filled += status.bytes_written;
                    *is_whole = status.remaining == 0;
                    if status.bytes_read == 0 && status.bytes_written == 0 {
                        break;
                    }
                }
                piece.truncate(filled);
                Ok(piece.into())
            }
            Self::Gzip(decoder) => {
                let Some(decoder) = decoder else {
                    return Ok(Bytes::new());
                };
                while !fetched.is_empty() && decoder.get_ref().len() < PIECE_BYTES {
                    let some = fetched.split_to(fetched.len().min(GZIP_BYTES));
                    decoder.write_all(&some)?;
                }
                Ok(std::mem::take(decoder.get_mut()).into())
            }
            Self::None => Ok(std::mem::take(fetched)),
        }
    }

    /// What is left at the end of the object.
    fn finish(&mut self) -> io::Result<Bytes> {
        match self {
            Self::Zstd { is_whole: true, .. } | Self::None => Ok(Bytes::new()),
            Self::Zstd { .. } => Err(io::ErrorKind::UnexpectedEof.into()),
            Self::Gzip(decoder) => match decoder.take() {
                Some(decoder) => Ok(decoder.finish()?.into()),
                None => Ok(Bytes::new()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::ObjectWriter;

    /// Decompresses what comes in pieces of this size; the largest piece that came of it, too.
    fn inflate(
        compression: Compression,
        stored: &[u8],
        pieces: usize,
    ) -> io::Result<(Vec<u8>, usize)> {
        let mut inflater = Inflater::new(compression)?;
        let (mut content, mut largest) = (Vec::new(), 0);
        for piece in stored.chunks(pieces) {
            let mut fetched = Bytes::copy_from_slice(piece);
            loop {
                let piece = inflater.inflate(&mut fetched)?;
                if piece.is_empty() {
                    break;
                }
                largest = largest.max(piece.len());
                content.extend_from_slice(&piece);
            }
        }
        let end = inflater.finish()?;
        largest = largest.max(end.len());
        content.extend_from_slice(&end);
        Ok((content, largest))
    }

    fn content() -> Vec<u8> {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut content: Vec<u8> = (0..300_000).map(|_| rng.u8(b'a'..b'f')).collect();
        content.extend_from_slice(&vec![0; 20_000_000]);
        content
    }

    #[test]
    fn whatever_is_stored_comes_back_in_small_pieces() {
        let content = content();
        for compression in [Compression::Zstd, Compression::Gzip, Compression::None] {
            let stored = compression.encode(&content).unwrap();
            for pieces in [1_000, 8_192, stored.len()] {
                let (read, largest) = inflate(compression, &stored, pieces).unwrap();
                assert!(read == content, "{compression:?}");
                let is_small = largest <= 10 * PIECE_BYTES || compression == Compression::None;
                assert!(is_small, "{largest} bytes of {compression:?}");
            }
        }
        for compression in [Compression::Zstd, Compression::Gzip] {
            let empty = compression.encode(b"").unwrap();
            assert_eq!(inflate(compression, &empty, 1).unwrap().0, b"");
        }
    }

    #[test]
    fn what_is_cut_off_or_damaged_is_told() {
        for compression in [Compression::Zstd, Compression::Gzip] {
            let mut stored = compression.encode(&content()).unwrap();
            let cut = stored.get(..stored.len() - 1).unwrap();
            inflate(compression, cut, 8_192).unwrap_err();
            let middle = stored.len() / 3;
            stored[middle] ^= 0xFF;
            inflate(compression, &stored, 8_192).unwrap_err();
        }
    }

    #[test]
    fn a_window_that_is_never_written_here_is_refused() {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        std::io::Write::write_all(&mut encoder, &content()).unwrap();
        let stored = encoder.finish().unwrap();
        inflate(Compression::Zstd, &stored, 8_192).unwrap_err();
        let mut writer = ObjectWriter::new(Compression::Zstd, 20 << 20, Vec::new()).unwrap();
        std::io::Write::write_all(&mut writer, &content()).unwrap();
        inflate(Compression::Zstd, &writer.finish().unwrap(), 8_192).unwrap();
    }
}
