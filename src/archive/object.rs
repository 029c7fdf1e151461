//! An object on its way to the store: written as a stream, compressed, cut into parts.
//!
//! Invariant: memory holds the compressor's window and one part. An object that fits into one part
//! is handed over whole; of a larger one each part is handed over as soon as it is full.

use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::write::GzEncoder;
use tokio::sync::mpsc;

/// S3 takes parts of 5 MiB or more.
pub const PART_BYTES: usize = 5 * 1024 * 1024;
/// Past this, payloads of one reconcile repeat further apart than the small window reaches.
const LONG_DISTANCE_BYTES: usize = 512 * 1024;
/// 8 MiB: the most that browsers accept.
const LONG_DISTANCE_WINDOW: u32 = 23;
/// Level 3 was measured to be slower and no smaller on payloads like these.
const ZSTD_LEVEL: i32 = 1;

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

    /// What was compressed; fails if that is more than `limit`.
    pub(super) fn decode(self, bytes: &[u8], limit: u64) -> io::Result<Vec<u8>> {
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

/// A piece of an object. An object whose last part never comes is none.
#[derive(Debug)]
pub enum Part {
    More(Bytes),
    Last(Bytes),
}

/// What was written.
#[derive(Debug)]
pub enum Body {
    /// All of it.
    Whole(Bytes),
    /// The parts went to the channel.
    Streamed,
}

/// Takes an object's bytes.
#[derive(Debug)]
pub struct ObjectWriter<B: FnOnce() -> mpsc::Sender<Part>>(Encoder<B>);

enum Encoder<B: FnOnce() -> mpsc::Sender<Part>> {
    Zstd(zstd::stream::write::Encoder<'static, Parts<B>>),
    Gzip(GzEncoder<Parts<B>>),
    None(Parts<B>),
}

impl<B: FnOnce() -> mpsc::Sender<Part>> std::fmt::Debug for Encoder<B> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Encoder")
    }
}

impl<B: FnOnce() -> mpsc::Sender<Part>> ObjectWriter<B> {
    /// `expected_bytes` is what will be written, about; `begin_stream` is called once the first
    /// part is full.
    pub fn new(
        compression: Compression,
        expected_bytes: usize,
        begin_stream: B,
    ) -> io::Result<Self> {
        let parts = Parts {
            filling: Vec::new(),
            begin_stream: Some(begin_stream),
            stream: None,
        };
        Ok(Self(match compression {
            Compression::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(parts, ZSTD_LEVEL)?;
                encoder.include_checksum(true)?;
                if expected_bytes > LONG_DISTANCE_BYTES {
                    encoder.long_distance_matching(true)?;
                    encoder.window_log(LONG_DISTANCE_WINDOW)?;
                }
                Encoder::Zstd(encoder)
            }
            Compression::Gzip => Encoder::Gzip(GzEncoder::new(parts, flate2::Compression::fast())),
            Compression::None => Encoder::None(parts),
        }))
    }

    pub fn finish(self) -> io::Result<Body> {
        let parts = match self.0 {
            Encoder::Zstd(encoder) => encoder.finish()?,
            Encoder::Gzip(encoder) => encoder.finish()?,
            Encoder::None(parts) => parts,
        };
        parts.finish()
    }
}

impl<B: FnOnce() -> mpsc::Sender<Part>> Write for ObjectWriter<B> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.0 {
            Encoder::Zstd(encoder) => encoder.write_all(bytes),
            Encoder::Gzip(encoder) => encoder.write_all(bytes),
            Encoder::None(parts) => parts.write_all(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Parts<B> {
    filling: Vec<u8>,
    begin_stream: Option<B>,
    stream: Option<mpsc::Sender<Part>>,
}

impl<B: FnOnce() -> mpsc::Sender<Part>> Parts<B> {
    fn hand_over(&mut self, bytes: Vec<u8>, part: fn(Bytes) -> Part) -> io::Result<()> {
        if let Some(begin_stream) = self.begin_stream.take() {
            self.stream = Some(begin_stream());
        }
        let Some(stream) = &self.stream else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        // The receiver is gone when the upload failed.
        stream
            .blocking_send(part(bytes.into()))
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn finish(mut self) -> io::Result<Body> {
        let rest = std::mem::take(&mut self.filling);
        if self.stream.is_none() {
            return Ok(Body::Whole(rest.into()));
        }
        self.hand_over(rest, Part::Last)?;
        Ok(Body::Streamed)
    }
}

impl<B: FnOnce() -> mpsc::Sender<Part>> Write for Parts<B> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.filling.extend_from_slice(bytes);
        // Some stores want all parts but the last to be of one size.
        while self.filling.len() > PART_BYTES {
            let rest = self.filling.split_off(PART_BYTES);
            let part = std::mem::replace(&mut self.filling, rest);
            self.hand_over(part, Part::More)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
