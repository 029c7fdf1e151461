//! Recovery of the spool: whatever is in its files, the follower hands out what a slow reader
//! finds that follows the format's description; what is finished never comes again, what isn't
//! always does, and what is appended then is read back.
//!
//! The input is a script that writes segments and done files: whole frames, damaged ones, copies,
//! cuts, any bytes.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt as _;
use spanplane::{
    bell::Bell,
    metrics::Metrics,
    record::{Position, Record, RecordKind, SegmentId},
    spool::{Appender, Follower, Spool, SpoolSettings},
    time::Timestamp,
};

use super::{disk::MemoryDisk, script::Script};

const MAGIC: &[u8; 8] = b"SPSPOOL1";
const MARKER: [u8; 4] = [0xF5, b'S', b'P', b'R'];
const HEADER_BYTES: usize = 32;
const FIRST_OFFSET: usize = 8;
/// A higher number is not that of a segment.
const MAX_SEGMENT: u64 = u64::MAX / 2;
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Making the instruments takes longer than everything else.
static METRICS: LazyLock<Metrics> = LazyLock::new(|| Metrics::new().unwrap());

/// See above.
pub fn check(input: &[u8]) {
    let mut script = Script::new(input);
    let finished = script.byte();
    let files = Files::written_by(script);
    let expected = files.records();
    let disk = files.on_disk();

    let mut log = Log::open(&disk);
    let found = log.follow();
    assert_eq!(found, expected);
    for (position, record) in &found {
        let again = log.follower.read(*position).unwrap();
        assert_eq!(&again, record, "{position:?} is read again");
    }
    let is_finished = |place: &usize| finished >> (place % 8) & 1 == 1;
    let (mut done, mut left) = (Vec::new(), Vec::new());
    for (place, (position, record)) in found.into_iter().enumerate() {
        if is_finished(&place) {
            done.push(position);
        } else {
            left.push((position, record));
        }
    }
    log.follower.finish(&done).unwrap();
    let added = record(RecordKind::Request, i64::from(finished), input);
    log.append(added.clone());
    let now = log.follow();
    assert_eq!(now.len(), 1, "what is appended is handed out");
    assert_eq!(now[0].1, added);
    assert!(!done.contains(&now[0].0), "a position is used again");
    left.extend(now);
    drop(log);

    let mut log = Log::open(&disk);
    assert_eq!(log.follow(), left);
    let done: Vec<_> = left.into_iter().map(|(position, _)| position).collect();
    log.follower.finish(&done).unwrap();
    drop(log);
    assert_eq!(Log::open(&disk).follow(), []);
}

fn record(kind: RecordKind, nanos: i64, message: &[u8]) -> Record {
    Record {
        kind,
        received_at: Timestamp::from_nanos(nanos),
        message: Bytes::copy_from_slice(message),
    }
}

struct Log {
    appender: Appender,
    follower: Follower,
    _spool: Spool,
}

impl Log {
    fn open(disk: &MemoryDisk) -> Self {
        let settings = SpoolSettings {
            data_dir: PathBuf::new(),
            max_bytes: MAX_BYTES,
            sync: Duration::from_mins(1),
            syncs_itself: false,
        };
        let disk = Arc::new(disk.clone());
        let opened = Spool::open(&settings, disk, &METRICS, Arc::<Bell>::default());
        let (spool, follower) = opened.unwrap();
        Self {
            appender: spool.appender(),
            follower,
            _spool: spool,
        }
    }

    fn follow(&mut self) -> Vec<(Position, Record)> {
        std::iter::from_fn(|| self.follower.next_record().unwrap()).collect()
    }

    fn append(&self, record: Record) {
        let appended = self.appender.append(record).now_or_never();
        appended.expect("nothing is waited for").unwrap();
    }
}

/// What an earlier process left.
#[derive(Debug, Default)]
struct Files {
    segments: BTreeMap<u64, Vec<u8>>,
    done_log: Vec<u8>,
    /// By segment, as older versions had them.
    old_done: BTreeMap<u64, Vec<u8>>,
}

impl Files {
    fn written_by(mut script: Script<'_>) -> Self {
        let mut files = Self::default();
        files.done_log.extend(b"SPDONE01");
        let mut segment = 1;
        files.segments.insert(segment, MAGIC.to_vec());
        while !script.is_over() {
            files.act(&mut segment, &mut script);
        }
        files
    }

    fn act(&mut self, segment: &mut u64, script: &mut Script<'_>) {
        let act = script.below(14);
        let content = self.segments.entry(*segment).or_default();
        match act {
            // A frame, perhaps of an unknown kind.
            0..=3 => {
                let (kind, nanos) = (script.byte() % 4, script.byte());
                let length = usize::from(script.byte());
                let body = script.bytes(length);
                let frame = frame(*segment, content.len(), kind, nanos.into(), body);
                content.extend(frame);
            }
            // The same with a damaged body, or one that is cut.
            4 => {
                let length = script.below(16);
                let mut frame = frame(*segment, content.len(), 1, 7, script.bytes(length));
                match script.byte() {
                    cut if cut.is_multiple_of(2) => frame.truncate(usize::from(cut / 2)),
                    place => {
                        let place = usize::from(place) % frame.len();
                        frame[place] ^= 1 << (place % 8);
                    }
                }
                content.extend(frame);
            }
            5 => {
                let length = script.below(64);
                content.extend(script.bytes(length));
            }
            6 => {
                let (length, byte) = (script.below(100), script.byte());
                content.extend(vec![byte; length]);
            }
            7 => {
                let kept = content.len().saturating_sub(script.below(80));
                content.truncate(kept);
            }
            // A copy from somewhere before.
            8 => {
                let start = script.below(content.len().clamp(1, 255)).min(content.len());
                let end = (start + usize::from(script.byte())).min(content.len());
                content.extend_from_within(start..end);
            }
            9 => {
                let (place, byte) = (usize::from(script.byte()), script.byte());
                if let Some(changed) = content.get_mut(place) {
                    *changed ^= byte;
                }
            }
            10 => {
                *segment = match script.byte() {
                    next @ ..250 => u64::from(next % 4 + 1),
                    _ => any_segment(script),
                };
                let content = self.segments.entry(*segment).or_default();
                if content.is_empty() {
                    content.extend(MAGIC);
                }
            }
            // An entry of the done log: frames that were written, and any others.
            11 | 12 => {
                let (count, mut records) = (script.below(5), Vec::new());
                for _ in 0..count {
                    let (id, offset) = match script.byte() {
                        255 => (any_segment(script), u32::from(script.byte())),
                        which => self.some_frame(usize::from(which)),
                    };
                    records.extend(id.to_le_bytes());
                    records.extend(offset.to_le_bytes());
                }
                self.done_log.extend(b"DONE");
                let count = u32::try_from(count).unwrap();
                self.done_log.extend(count.to_le_bytes());
                self.done_log
                    .extend(crc32fast::hash(&records).to_le_bytes());
                self.done_log.extend(records);
            }
            _ => match script.byte() {
                length @ ..128 => self.done_log.extend(script.bytes(length.into())),
                cut @ 128..192 => {
                    let kept = self.done_log.len().saturating_sub(usize::from(cut - 128));
                    self.done_log.truncate(kept);
                }
                which => {
                    let (id, offset) = self.some_frame(usize::from(which));
                    let mut hasher = crc32fast::Hasher::new();
                    hasher.update(&id.to_le_bytes());
                    hasher.update(&offset.to_le_bytes());
                    let file = self.old_done.entry(id).or_default();
                    file.extend(offset.to_le_bytes());
                    file.extend(hasher.finalize().to_le_bytes());
                }
            },
        }
    }

    /// One of the frames, or a place where none is.
    fn some_frame(&self, which: usize) -> (u64, u32) {
        let mut frames = Vec::new();
        for (id, content) in &self.segments {
            for offset in FIRST_OFFSET..content.len() {
                if Header::at(content, *id, offset).is_some() {
                    frames.push((*id, u32::try_from(offset).unwrap()));
                }
            }
        }
        let count = frames.len().max(1);
        frames.get(which % count).copied().unwrap_or((1, 8))
    }

    fn on_disk(&self) -> MemoryDisk {
        let disk = MemoryDisk::default();
        let folder = Path::new("spool");
        disk.put(&folder.join("done.log"), self.done_log.clone());
        for (id, content) in &self.segments {
            disk.put(&folder.join(format!("{id:020}.seg")), content.clone());
        }
        for (id, content) in &self.old_done {
            disk.put(&folder.join(format!("{id:020}.done")), content.clone());
        }
        disk
    }

    /// What is to be handed out.
    fn records(&self) -> Vec<(Position, Record)> {
        let done = self.done();
        let mut records = Vec::new();
        for (id, content) in &self.segments {
            if *id > MAX_SEGMENT || !is_readable(*id, content) {
                continue;
            }
            let mut offset = FIRST_OFFSET;
            while offset < content.len() {
                let Some(header) = Header::at(content, *id, offset) else {
                    offset += 1;
                    continue;
                };
                let body_at = offset + HEADER_BYTES;
                let Some(body) = content.get(body_at..body_at + header.body_bytes) else {
                    break;
                };
                let position = Position {
                    segment: SegmentId(*id),
                    offset: u32::try_from(offset).unwrap(),
                };
                let kind = RecordKind::from_code(header.kind);
                if let Some(kind) = kind
                    && crc32fast::hash(body) == header.body_crc
                    && !done.contains(&position)
                {
                    records.push((position, record(kind, header.nanos, body)));
                }
                offset = body_at + header.body_bytes;
            }
        }
        records
    }

    /// What the done files say.
    fn done(&self) -> BTreeSet<Position> {
        let mut done = BTreeSet::new();
        let mut rest = self.done_log.strip_prefix(b"SPDONE01").unwrap_or_default();
        while let Some((header, behind)) = rest.split_at_checked(12)
            && header.starts_with(b"DONE")
            && let length = number(&header[4..8]) * 12
            && let Some((records, behind)) = behind.split_at_checked(length)
            && crc32fast::hash(records).to_le_bytes() == header[8..12]
        {
            for record in records.chunks(12) {
                let segment = u64::from_le_bytes(record[..8].try_into().unwrap());
                done.insert(position(segment, &record[8..]));
            }
            rest = behind;
        }
        for (id, content) in &self.old_done {
            // NOTE: the script writes whole entries only.
            for entry in content.chunks(8) {
                done.insert(position(*id, &entry[..4]));
            }
        }
        done
    }
}

/// Not one of the highest, after which there are none for the log to go on with.
fn any_segment(script: &mut Script<'_>) -> u64 {
    match script.number() {
        number if (MAX_SEGMENT - 0xFF..=MAX_SEGMENT).contains(&number) => number - 0x100,
        number => number,
    }
}

fn position(segment: u64, offset: &[u8]) -> Position {
    Position {
        segment: SegmentId(segment),
        offset: u32::try_from(number(offset)).unwrap(),
    }
}

fn number(bytes: &[u8]) -> usize {
    let number = u32::from_le_bytes(bytes.try_into().unwrap());
    usize::try_from(number).unwrap()
}

/// A segment of another version is left alone, unless its first frame is one of this version.
fn is_readable(id: u64, content: &[u8]) -> bool {
    let Some((name, version)) = content.get(..7).zip(content.get(7)) else {
        return true;
    };
    name != &MAGIC[..7]
        || *version == b'1'
        || !version.is_ascii()
        || Header::at(content, id, FIRST_OFFSET).is_some()
}

fn frame(segment: u64, offset: usize, kind: u8, nanos: i64, body: &[u8]) -> Vec<u8> {
    let mut frame = MARKER.to_vec();
    frame.extend(u32::try_from(body.len()).unwrap().to_le_bytes());
    frame.extend(u32::try_from(offset).unwrap().to_le_bytes());
    frame.extend([kind, 0, 0, 0]);
    frame.extend(nanos.to_le_bytes());
    frame.extend(crc32fast::hash(body).to_le_bytes());
    frame.extend(header_crc(segment, &frame).to_le_bytes());
    frame.extend(body);
    frame
}

fn header_crc(segment: u64, header: &[u8]) -> u32 {
    let covered = [&segment.to_le_bytes(), header].concat();
    crc32fast::hash(&covered)
}

/// A header that checks out.
struct Header {
    body_bytes: usize,
    kind: u8,
    nanos: i64,
    body_crc: u32,
}

impl Header {
    fn at(content: &[u8], segment: u64, offset: usize) -> Option<Self> {
        let bytes = content.get(offset..offset + HEADER_BYTES)?;
        let checks_out = bytes.starts_with(&MARKER)
            && number(&bytes[8..12]) == offset
            && bytes[28..] == header_crc(segment, &bytes[..28]).to_le_bytes();
        checks_out.then(|| Self {
            body_bytes: number(&bytes[4..8]),
            kind: bytes[12],
            nanos: i64::from_le_bytes(bytes[16..24].try_into().unwrap()),
            body_crc: u32::from_le_bytes(bytes[24..28].try_into().unwrap()),
        })
    }
}
