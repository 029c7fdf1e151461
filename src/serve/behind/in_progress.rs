//! The file that says which records are processed, and which parcel is joined with what is stored of
//! its reconcile, for the next process to find if this one dies.
//!
//! ```text
//! <data-dir>/spool/in-progress    there while a process runs; entries without gaps
//!   entry                         segment (8 bytes), offset (4), deaths (4), CRC-32 of these (4)
//!                                 or a parcel's number (8), 2³² - 1 (4), deaths (4), CRC-32 (4)
//! ```
//!
//! Three threads may write it: the one that processes records, the one that joins, and the one that
//! ends the process. Invariant: an entry that doesn't check out accuses nobody, and neither does one
//! behind it. Once the process ends in order, or has noted at what it panicked, the file does not
//! change any more. A parcel that processes died at is acquitted by a join that ends, or an end in
//! order, and by no death elsewhere: two parcels must not take turns.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    archive::{Deadly, JoinWatch},
    disk::{DiskFile, FileReader, SharedDisk, remove_if_there},
    outbox::ParcelId,
    record::{Position, SegmentId},
};

/// The first death may be chance.
pub(super) const DEATHS: u32 = 2;

const CHECKED_BYTES: usize = 16;
const ENTRY_BYTES: usize = CHECKED_BYTES + 4;
/// In place of an offset: no segment is so long. A version that knows nothing of parcels finds a
/// record in there that does not exist.
const OFFSET_OF_PARCEL: u32 = u32::MAX;

/// How often processes died at each of some records.
pub(super) type Deaths = BTreeMap<Position, u32>;

/// A handle to the file; clones share it.
#[derive(Clone, Debug)]
pub(in crate::serve) struct InProgress(Arc<Mutex<Note>>);

#[derive(Debug)]
struct Note {
    disk: SharedDisk,
    path: PathBuf,
    file: Option<Arc<dyn DiskFile>>,
    /// What is processed.
    current: Deaths,
    /// Whatever is processed, the next process has to know of these.
    held: Deaths,
    joins: BTreeMap<ParcelId, Join>,
    is_closed: bool,
}

/// A parcel that is joined, or that processes died at.
#[derive(Clone, Copy, Debug, Default)]
struct Join {
    deaths: u32,
    is_running: bool,
}

/// What a process noted that did not end in order.
#[derive(Debug, Default)]
struct Found {
    records: Deaths,
    parcels: BTreeMap<ParcelId, u32>,
}

impl InProgress {
    /// Opens the file, and returns which records a process noted that did not end in order, if
    /// there was one.
    pub(super) fn open(disk: SharedDisk, path: PathBuf) -> (Self, Option<Deaths>) {
        let mut note = Note {
            file: disk.open_to_append(&path).ok(),
            disk,
            path,
            current: Deaths::new(),
            held: Deaths::new(),
            joins: BTreeMap::new(),
            is_closed: false,
        };
        // What can't be read accuses nobody.
        let found = note.file.as_ref().map(read_deaths);
        let found = found.map(io::Result::unwrap_or_default);
        if found.is_none()
            && let Err(error) = note.file()
        {
            tracing::debug!(%error, "cannot note that the process runs");
        }
        let found = found.map(|Found { records, parcels }| {
            for (parcel, before) in parcels {
                note.accuse(parcel, before.saturating_add(1));
            }
            records
        });
        (Self(Arc::new(Mutex::new(note))), found)
    }

    /// Replaces what is noted of records.
    pub(super) fn write(&self, current: Deaths, held: Deaths) -> io::Result<()> {
        let mut note = self.lock();
        if note.is_closed {
            return Ok(());
        }
        note.current = current;
        note.held = held;
        note.write()
    }

    /// Forgets parcels that are not in the outbox any more.
    pub(super) fn keep_parcels(&self, is_there: impl Fn(ParcelId) -> bool) {
        let mut note = self.lock();
        let before = note.joins.len();
        note.joins
            .retain(|parcel, join| join.is_running || is_there(*parcel));
        if note.joins.len() < before {
            note.write_joins();
        }
    }

    /// The process panics. What is noted of records stays; a join that is under way is not to blame.
    pub(super) fn close(&self) {
        let mut note = self.lock();
        for join in note.joins.values_mut() {
            join.is_running = false;
        }
        note.write_joins();
        note.is_closed = true;
    }

    /// The process ends in order, and not because of what is processed or joined.
    pub(in crate::serve) fn end_in_order(&self) {
        let mut note = self.lock();
        if note.is_closed {
            return;
        }
        note.current.clear();
        // What is to be quarantined still is.
        note.joins
            .retain(|_, join| join.deaths >= DEATHS && !join.is_running);
        let ended = if note.held.is_empty() && note.joins.is_empty() {
            remove_if_there(note.disk.as_ref(), &note.path)
        } else {
            note.write()
        };
        note.is_closed = true;
        if let Err(error) = ended {
            tracing::debug!(%error, "cannot note that the process ends in order");
        }
    }

    /// How often processes died at each of some parcels, as far as this one knows.
    #[cfg(test)]
    pub(super) fn deaths_at_parcels(&self) -> Vec<u32> {
        let note = self.lock();
        note.joins.values().map(|join| join.deaths).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Note> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JoinWatch for InProgress {
    fn begin(&self, parcel: ParcelId) -> Result<(), Deadly> {
        let mut note = self.lock();
        let join = note.joins.entry(parcel).or_default();
        if join.deaths >= DEATHS {
            let deaths = join.deaths;
            return Err(Deadly { deaths });
        }
        join.is_running = true;
        note.write_joins();
        Ok(())
    }

    fn end(&self, parcel: ParcelId) {
        let mut note = self.lock();
        note.joins.remove(&parcel);
        note.write_joins();
    }
}

impl Note {
    fn accuse(&mut self, parcel: ParcelId, deaths: u32) {
        tracing::warn!(
            parcel = parcel.number(),
            deaths,
            "the process died while it joined an object in the outbox with what is stored of its \
             reconcile"
        );
        let is_running = false;
        self.joins.insert(parcel, Join { deaths, is_running });
    }

    fn write_joins(&mut self) {
        if self.is_closed {
            return;
        }
        // Without the note, a death is only not counted.
        if let Err(error) = self.write() {
            tracing::debug!(%error, "cannot note what is joined");
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let records = self.current.iter().chain(&self.held);
        let records = records.map(|(position, deaths)| {
            let Position { segment, offset } = *position;
            encode(segment.0, offset, *deaths)
        });
        let joins = self.joins.iter().filter_map(|(parcel, join)| {
            // NOTE: the next process counts one death more, and it is not because of those that are
            // not under way.
            let deaths = if join.is_running {
                join.deaths
            } else {
                join.deaths.checked_sub(1)?
            };
            Some(encode(parcel.number(), OFFSET_OF_PARCEL, deaths))
        });
        let entries: Vec<u8> = records.chain(joins).flatten().collect();
        let file = self.file()?;
        file.truncate(0)?;
        if entries.is_empty() {
            return Ok(());
        }
        file.append(&mut [IoSlice::new(&entries)])
    }

    fn file(&mut self) -> io::Result<&dyn DiskFile> {
        let file = if let Some(file) = self.file.take() {
            file
        } else {
            remove_if_there(self.disk.as_ref(), &self.path)?;
            self.disk.create(&self.path)?
        };
        Ok(&**self.file.insert(file))
    }
}

/// Leaves the file of a process that died at this record, as others had before.
#[cfg(test)]
pub(super) fn accuse(disk: SharedDisk, path: PathBuf, position: Position, before: u32) {
    let (note, _) = InProgress::open(disk, path);
    let current = Deaths::from([(position, before)]);
    // On a disk that is full, it did not.
    drop(note.write(current, Deaths::new()));
}

fn encode(place: u64, offset: u32, deaths: u32) -> Vec<u8> {
    let mut entry = Vec::with_capacity(ENTRY_BYTES);
    entry.extend(place.to_le_bytes());
    entry.extend(offset.to_le_bytes());
    entry.extend(deaths.to_le_bytes());
    let crc = crc32fast::hash(&entry);
    entry.extend(crc.to_le_bytes());
    entry
}

fn read_deaths(file: &Arc<dyn DiskFile>) -> io::Result<Found> {
    let mut entries = Vec::new();
    io::Read::read_to_end(&mut FileReader::new(Arc::clone(file)), &mut entries)?;
    let (entries, _torn) = entries.as_chunks::<ENTRY_BYTES>();
    let mut found = Found::default();
    for (place, offset, deaths) in entries.iter().map_while(parse) {
        if offset == OFFSET_OF_PARCEL {
            found.parcels.insert(ParcelId::of_number(place), deaths);
        } else {
            let segment = SegmentId(place);
            found.records.insert(Position { segment, offset }, deaths);
        }
    }
    Ok(found)
}

fn parse(entry: &[u8; ENTRY_BYTES]) -> Option<(u64, u32, u32)> {
    let (checked, crc) = entry.split_first_chunk::<CHECKED_BYTES>()?;
    if crc != crc32fast::hash(checked).to_le_bytes() {
        return None;
    }
    let (place, rest) = checked.split_first_chunk::<8>()?;
    let (offset, deaths) = rest.split_first_chunk::<4>()?;
    Some((
        u64::from_le_bytes(*place),
        u32::from_le_bytes(*offset),
        u32::from_le_bytes(*deaths.first_chunk()?),
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::disk::{
        Disk as _,
        simulated::{Death, SimulatedDisk},
    };

    #[test]
    fn half_a_note_accuses_nobody() {
        let whole = encode(7, 8, 5);
        let parsed = |entry: &[u8]| entry.as_array().and_then(parse);
        assert!(parsed(&whole).is_some());
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert_eq!(parsed(&changed), None);
        }
        let disk = SimulatedDisk::default();
        for length in 0..whole.len() {
            let path = Path::new("spool/in-progress");
            remove_if_there(&disk, path).unwrap();
            let file = disk.create(path).unwrap();
            file.append(&mut [IoSlice::new(&whole[..length])]).unwrap();
            let (_, found) = InProgress::open(Arc::new(disk.clone()), path.to_owned());
            assert_eq!(found, Some(Deaths::new()));
        }
    }

    const FIRST: ParcelId = ParcelId::of_number(1);
    const SECOND: ParcelId = ParcelId::of_number(2);

    /// What a process does before it is killed.
    fn be_killed(disk: &SimulatedDisk, work: impl FnOnce(&InProgress)) {
        work(&open(disk));
        disk.restart(Death::Killed);
    }

    fn open(disk: &SimulatedDisk) -> InProgress {
        InProgress::open(Arc::new(disk.clone()), "spool/in-progress".into()).0
    }

    #[test]
    fn a_parcel_is_not_joined_again_once_the_process_died_at_it_twice() {
        let disk = SimulatedDisk::default();
        be_killed(&disk, |note| note.begin(FIRST).unwrap());
        be_killed(&disk, |note| {
            note.begin(SECOND).unwrap();
            note.end(SECOND);
            note.begin(FIRST).unwrap();
        });
        let deadly = Err(Deadly { deaths: 2 });
        for _ in 0..3 {
            // Until it is out of the way, whatever happens elsewhere.
            be_killed(&disk, |note| assert_eq!(note.begin(FIRST), deadly));
        }
        open(&disk).end_in_order();
        let note = open(&disk);
        assert_eq!(note.begin(FIRST), deadly);
        note.keep_parcels(|parcel| parcel != FIRST);
        note.end_in_order();
        assert_eq!(disk.list(Path::new("spool")).unwrap(), []);
    }

    #[test]
    fn a_join_that_ends_acquits_and_so_does_an_end_in_order() {
        let disk = SimulatedDisk::default();
        let end_in_order = |note: &InProgress| {
            note.begin(FIRST).unwrap();
            note.end_in_order();
            // It still is at it.
            note.end(FIRST);
        };
        let end = |note: &InProgress| {
            note.begin(FIRST).unwrap();
            note.end(FIRST);
        };
        let acquits: [&dyn Fn(&InProgress); 2] = [&end_in_order, &end];
        for acquit in acquits {
            be_killed(&disk, |note| note.begin(FIRST).unwrap());
            be_killed(&disk, acquit);
            be_killed(&disk, |note| note.begin(FIRST).unwrap());
            let note = open(&disk);
            note.begin(FIRST).unwrap();
            note.end_in_order();
        }
    }

    #[test]
    fn parcels_that_are_deadly_take_no_turns() {
        let disk = SimulatedDisk::default();
        let mut deaths = 0;
        for parcel in [FIRST, SECOND].into_iter().cycle() {
            let note = open(&disk);
            if note.begin(parcel).is_ok() {
                deaths += 1;
                disk.restart(Death::Killed);
            } else if note.begin(FIRST).is_err() && note.begin(SECOND).is_err() {
                break;
            }
        }
        assert_eq!(deaths, 4);
    }

    #[test]
    fn what_is_joined_while_something_else_panics_is_not_accused() {
        let disk = SimulatedDisk::default();
        be_killed(&disk, |note| note.begin(FIRST).unwrap());
        for _ in 0..3 {
            be_killed(&disk, |note| {
                note.begin(FIRST).unwrap();
                note.begin(SECOND).unwrap();
                note.close();
            });
        }
        be_killed(&disk, |note| note.begin(SECOND).unwrap());
        open(&disk).begin(FIRST).unwrap();
    }

    #[test]
    fn parcels_and_records_are_noted_beside_each_other() {
        let disk = SimulatedDisk::default();
        let position = Position {
            segment: SegmentId(1),
            offset: 8,
        };
        let records = Deaths::from([(position, 0)]);
        be_killed(&disk, |note| {
            note.write(records.clone(), Deaths::new()).unwrap();
            note.begin(FIRST).unwrap();
        });
        let shared = Arc::new(disk.clone());
        let (note, found) = InProgress::open(shared, "spool/in-progress".into());
        assert_eq!(found, Some(records));
        note.begin(FIRST).unwrap();
        drop(note);
        disk.restart(Death::Killed);
        open(&disk).begin(FIRST).unwrap_err();
    }
}
