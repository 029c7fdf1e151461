//! How objects are compressed. Invariant: written as a stream, so that memory holds the
//! compressor's window and not the object; the same bytes in give the same bytes out.

use std::{
    fmt,
    io::{self, Read, Write},
};

use flate2::write::GzEncoder;

/// Past this, payloads of one reconcile repeat further apart than the small window reaches.
const LONG_DISTANCE_BYTES: usize = 512 * 1024;
/// 8 MiB: the most that browsers accept.
const LONG_DISTANCE_WINDOW: u32 = 23;
/// 5 % smaller than level 1 on captures of a real Crossplane; levels 4 and 5 gain less than they
/// cost.
const ZSTD_LEVEL: i32 = 3;

/// How objects are compressed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub enum Compression {
    #[default]
    Zstd,
    Gzip,
    None,
}

impl Compression {
    /// What the ending of a key says.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
            Self::None => "",
        }
    }

    /// The Content-Encoding.
    pub const fn encoding(self) -> Option<&'static str> {
        match self {
            Self::Zstd => Some("zstd"),
            Self::Gzip => Some("gzip"),
            Self::None => None,
        }
    }

    /// As the ending of a key says.
    pub fn of_key(key: &str) -> Self {
        [Self::Zstd, Self::Gzip]
            .into_iter()
            .find(|compression| key.ends_with(compression.extension()))
            .unwrap_or(Self::None)
    }

    /// Compresses what is in memory.
    pub(super) fn encode(self, content: &[u8]) -> io::Result<Vec<u8>> {
        let mut writer = ObjectWriter::new(self, content.len(), Vec::new())?;
        writer.write_all(content)?;
        writer.finish()
    }

    /// Decompresses a stream, with no more memory than what was written here takes.
    pub(super) fn reader(self, object: impl Read + 'static) -> io::Result<Box<dyn Read>> {
        Ok(match self {
            Self::Zstd => {
                let mut decoder = zstd::Decoder::new(object)?;
                decoder.window_log_max(LONG_DISTANCE_WINDOW)?;
                Box::new(decoder)
            }
            Self::Gzip => Box::new(flate2::read::GzDecoder::new(object)),
            Self::None => Box::new(object),
        })
    }

    /// What was compressed; fails if that is more than `limit`.
    pub(crate) fn decode(self, bytes: &[u8], limit: u64) -> io::Result<Vec<u8>> {
        let mut decoder: Box<dyn Read + '_> = match self {
            Self::Zstd => Box::new(zstd::Decoder::new(bytes)?),
            Self::Gzip => Box::new(flate2::read::GzDecoder::new(bytes)),
            Self::None => Box::new(bytes),
        };
        let mut content = Vec::new();
        decoder.by_ref().take(limit).read_to_end(&mut content)?;
        if decoder.read(&mut [0])? != 0 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(content)
    }
}

/// Compresses what is written to it.
pub struct ObjectWriter<W: Write>(Encoder<W>);

enum Encoder<W: Write> {
    Zstd(zstd::stream::write::Encoder<'static, W>),
    Gzip(GzEncoder<W>),
    None(W),
}

impl<W: Write> fmt::Debug for ObjectWriter<W> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ObjectWriter")
    }
}

impl<W: Write> ObjectWriter<W> {
    /// `expected_bytes` is what will be written, about.
    pub fn new(compression: Compression, expected_bytes: usize, out: W) -> io::Result<Self> {
        Ok(Self(match compression {
            Compression::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(out, ZSTD_LEVEL)?;
                encoder.include_checksum(true)?;
                if expected_bytes > LONG_DISTANCE_BYTES {
                    encoder.long_distance_matching(true)?;
                    encoder.window_log(LONG_DISTANCE_WINDOW)?;
                }
                Encoder::Zstd(encoder)
            }
            Compression::Gzip => Encoder::Gzip(GzEncoder::new(out, flate2::Compression::fast())),
            Compression::None => Encoder::None(out),
        }))
    }

    pub fn finish(self) -> io::Result<W> {
        match self.0 {
            Encoder::Zstd(encoder) => encoder.finish(),
            Encoder::Gzip(encoder) => encoder.finish(),
            Encoder::None(out) => Ok(out),
        }
    }
}

impl<W: Write> Write for ObjectWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.0 {
            Encoder::Zstd(encoder) => encoder.write_all(bytes),
            Encoder::Gzip(encoder) => encoder.write_all(bytes),
            Encoder::None(out) => out.write_all(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
