//! Keeps one message from killing the process again and again.
//!
//! While a large payload is processed, a small file names its record. After a process that did not
//! end in order, so it does for every payload, until everything is processed that was left. A panic
//! unwinds, so then the file is written at that moment: it names the payload that was processed, or
//! all records of the reconcile that was being published, whatever their size. A process that finds
//! records named at its start knows that the one before it died there, be it by chance, and
//! processes them with everything else committed. If it dies there too, they are quarantined: kept
//! on disk, counted, logged with their position, and skipped.
//!
//! A part that is joined with what is stored of its reconcile is noted, too, by who joins it; once
//! the process died at it twice, it is quarantined instead.
//!
//! The file is in `in_progress`. Invariant: a panic that has nothing to do with a certain reconcile
//! accuses nobody, and neither does an end in order, be it that time runs out on the way.

use std::{collections::BTreeMap, io, path::PathBuf, thread};

use super::in_progress::{DEATHS, Deaths, InProgress};
use crate::{disk::SharedDisk, outbox::ParcelId, record::Position};

/// Smaller payloads can't take much memory, whatever they hold.
const LARGE_BYTES: usize = 64 * 1024;

/// Notes which record is processed.
#[derive(Debug)]
pub(in crate::serve) struct PoisonGuard {
    note: InProgress,
    is_noted: bool,
    /// The process before did not end in order, and not all that it left is processed.
    is_careful: bool,
    /// Records at which earlier processes died.
    suspects: Deaths,
    /// What a panic is blamed on.
    current: Vec<Position>,
    /// Poison that is not done with, and whether it is in quarantine already.
    held: BTreeMap<Position, bool>,
}

impl PoisonGuard {
    /// Finds out whether the process before died at a record.
    pub(in crate::serve) fn open(disk: SharedDisk, path: PathBuf) -> Self {
        let (note, found) = InProgress::open(disk, path);
        let mut guard = Self {
            note,
            is_noted: false,
            is_careful: found.is_some(),
            suspects: found.unwrap_or_default(),
            current: Vec::new(),
            held: BTreeMap::new(),
        };
        for deaths in guard.suspects.values_mut() {
            *deaths = deaths.saturating_add(1);
        }
        for (position, deaths) in &guard.suspects {
            tracing::warn!(
                segment = position.segment.0,
                offset = position.offset,
                deaths,
                "the process died while it processed this message"
            );
        }
        guard
    }

    /// What the process ends in order with, whatever is still processed.
    pub(in crate::serve) fn in_progress(&self) -> InProgress {
        self.note.clone()
    }

    /// Forgets parcels that are not in the outbox any more.
    pub(super) fn keep_parcels(&self, is_there: impl Fn(ParcelId) -> bool) {
        self.note.keep_parcels(is_there);
    }

    /// Whether an earlier process died at this record, so that it is to be processed alone.
    pub(super) fn is_suspect(&self, position: Position) -> bool {
        self.suspects.contains_key(&position)
    }

    /// Whether processes died at this record often enough.
    pub(super) fn is_poison(&self, position: Position) -> bool {
        self.deaths_at(position) >= DEATHS
    }

    /// How often processes died at this record.
    pub(super) fn deaths_at(&self, position: Position) -> u32 {
        self.suspects.get(&position).copied().unwrap_or_default()
    }

    /// Everything that an earlier process left was processed.
    pub(super) fn relax(&mut self) {
        self.is_careful = false;
    }

    /// This record is processed from now on.
    pub(super) fn begin(&mut self, position: Position, bytes: usize) {
        self.end();
        self.current.push(position);
        if self.is_careful || bytes >= LARGE_BYTES || self.is_suspect(position) {
            // Without the note, a death is only not counted.
            if let Err(error) = self.write_note() {
                tracing::debug!(%error, "cannot note which message is processed");
            }
        }
    }

    /// From now on a panic is blamed on all of these.
    pub(super) fn blame(&mut self, records: &[Position]) {
        self.end();
        self.current.extend_from_slice(records);
    }

    pub(super) fn blames_nobody(&self) -> bool {
        self.current.is_empty()
    }

    /// What was processed is done.
    pub(super) fn end(&mut self) {
        self.current.clear();
        if std::mem::take(&mut self.is_noted)
            && let Err(error) = self.write_note()
        {
            tracing::debug!(%error, "cannot note that a message was processed");
        }
    }

    /// This record is poison. Until it is quarantined and done with, the next process has to know.
    pub(super) fn hold(&mut self, position: Position, is_kept: bool) {
        if self.held.insert(position, is_kept) != Some(is_kept) {
            self.note_held();
        }
    }

    /// Poison that is not done with, and whether it is in quarantine already.
    pub(super) fn held(&self) -> Vec<(Position, bool)> {
        let held = self.held.iter();
        held.map(|(position, is_kept)| (*position, *is_kept))
            .collect()
    }

    /// This record is quarantined, and done with.
    pub(super) fn release(&mut self, position: Position) {
        if self.held.remove(&position).is_some() {
            self.note_held();
        }
    }

    fn note_held(&mut self) {
        if let Err(error) = self.write_note() {
            tracing::warn!(%error, "cannot note which message has to be quarantined");
        }
    }

    /// Writes down what is processed and what is held.
    fn write_note(&mut self) -> io::Result<()> {
        let current = self.current.iter();
        let current = current.map(|position| (*position, self.deaths_at(*position)));
        // NOTE: the next process counts one death more, and it is not because of these.
        let held = self.held.keys();
        let held = held.map(|position| (*position, self.deaths_at(*position).saturating_sub(1)));
        let (current, held): (Deaths, Deaths) = (current.collect(), held.collect());
        self.is_noted = !self.current.is_empty();
        self.note.write(current, held)
    }
}

impl Drop for PoisonGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            if !self.current.is_empty()
                && let Err(error) = self.write_note()
            {
                tracing::warn!(%error, "cannot note at which message the process died");
            }
            self.note.close();
            return;
        }
        // The process ends in order, and not because of this record.
        self.end();
        self.note.end_in_order();
    }
}

#[cfg(test)]
mod tests {
    use std::{panic, sync::Arc};

    use super::*;
    use crate::{
        disk::{
            Disk as _,
            simulated::{Death, SimulatedDisk},
        },
        record::SegmentId,
    };

    const SMALL_BYTES: usize = LARGE_BYTES - 1;

    fn open(disk: &SimulatedDisk) -> PoisonGuard {
        PoisonGuard::open(Arc::new(disk.clone()), "spool/in-progress".into())
    }

    fn position(offset: u32) -> Position {
        Position {
            segment: SegmentId(7),
            offset,
        }
    }

    /// A process that is killed while it does this.
    fn be_killed(disk: &SimulatedDisk, work: impl FnOnce(&mut PoisonGuard)) {
        let mut guard = open(disk);
        work(&mut guard);
        // Dropped, it would end in order.
        std::mem::forget(guard);
        disk.restart(Death::Killed);
    }

    /// A process that panics while it does this.
    fn panic_at(disk: &SimulatedDisk, work: impl FnOnce(&mut PoisonGuard)) {
        let mut guard = open(disk);
        let panicked = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            work(&mut guard);
            let _dropped = guard;
            panic::resume_unwind(Box::new(()));
        }));
        panicked.unwrap_err();
        disk.restart(Death::Killed);
    }

    #[test]
    fn a_record_is_poison_once_the_process_died_at_it_twice() {
        let disk = SimulatedDisk::default();
        assert!(!open(&disk).is_suspect(position(8)));
        for death in 1..=2 {
            be_killed(&disk, |guard| guard.begin(position(8), LARGE_BYTES));
            be_killed(&disk, |guard| {
                assert!(guard.is_suspect(position(8)));
                assert!(!guard.is_suspect(position(9)));
                assert_eq!(guard.is_poison(position(8)), death == 2, "{death}");
            });
        }
    }

    #[test]
    fn a_panic_is_blamed_on_what_was_processed_whatever_its_size() {
        let disk = SimulatedDisk::default();
        for death in 1..=2 {
            panic_at(&disk, |guard| {
                guard.begin(position(8), SMALL_BYTES);
                guard.end();
                guard.begin(position(9), SMALL_BYTES);
            });
            be_killed(&disk, |guard| {
                assert!(!guard.is_suspect(position(8)));
                assert_eq!(guard.is_poison(position(9)), death == 2, "{death}");
            });
        }
    }

    #[test]
    fn a_panic_is_blamed_on_all_records_of_a_reconcile_and_on_nobody_between_reconciles() {
        let disk = SimulatedDisk::default();
        for _ in 0..2 {
            panic_at(&disk, |guard| {
                guard.begin(position(8), SMALL_BYTES);
                guard.blame(&[position(8), position(100)]);
            });
        }
        be_killed(&disk, |guard| {
            assert!(guard.is_poison(position(8)) && guard.is_poison(position(100)));
        });
        panic_at(&disk, |guard| {
            guard.begin(position(8), LARGE_BYTES);
            guard.end();
            assert!(guard.blames_nobody());
        });
        assert!(!open(&disk).is_suspect(position(8)));
    }

    #[test]
    fn a_death_elsewhere_acquits() {
        let disk = SimulatedDisk::default();
        be_killed(&disk, |guard| guard.begin(position(8), LARGE_BYTES));
        be_killed(&disk, |guard| guard.begin(position(100), LARGE_BYTES));
        be_killed(&disk, |guard| guard.begin(position(8), LARGE_BYTES));
        assert!(!open(&disk).is_poison(position(8)));
    }

    #[test]
    fn what_is_small_is_noted_after_a_process_that_did_not_end_in_order() {
        let disk = SimulatedDisk::default();
        be_killed(&disk, |guard| guard.begin(position(8), SMALL_BYTES));
        be_killed(&disk, |guard| {
            assert!(!guard.is_suspect(position(8)));
            guard.begin(position(8), SMALL_BYTES);
        });
        be_killed(&disk, |guard| {
            assert!(guard.is_suspect(position(8)));
            guard.relax();
            guard.begin(position(9), SMALL_BYTES);
        });
        assert!(!open(&disk).is_suspect(position(9)));
    }

    #[test]
    fn what_was_processed_is_never_suspect_and_an_orderly_end_leaves_nothing() {
        let disk = SimulatedDisk::default();
        be_killed(&disk, |guard| {
            guard.begin(position(8), LARGE_BYTES);
            guard.end();
        });
        let mut guard = open(&disk);
        assert!(!guard.is_suspect(position(8)));
        guard.begin(position(9), LARGE_BYTES);
        drop(guard);
        assert_eq!(disk.list(std::path::Path::new("spool")).unwrap(), []);
    }

    #[test]
    fn what_could_not_be_quarantined_keeps_its_deaths() {
        let disk = SimulatedDisk::default();
        for _ in 0..2 {
            be_killed(&disk, |guard| guard.begin(position(8), LARGE_BYTES));
        }
        for _ in 0..3 {
            be_killed(&disk, |guard| {
                assert_eq!(guard.deaths_at(position(8)), 2);
                guard.hold(position(8), false);
                guard.begin(position(9), LARGE_BYTES);
                guard.end();
            });
        }
        // An orderly end does not acquit it either.
        open(&disk).hold(position(8), false);
        let mut guard = open(&disk);
        assert_eq!(guard.deaths_at(position(8)), 2);
        guard.hold(position(8), false);
        guard.release(position(8));
        drop(guard);
        assert!(!open(&disk).is_suspect(position(8)));
    }

    #[test]
    fn an_end_in_order_that_runs_out_of_time_accuses_nobody() {
        let disk = SimulatedDisk::default();
        for _ in 0..2 {
            be_killed(&disk, |guard| guard.begin(position(100), LARGE_BYTES));
        }
        for _ in 0..3 {
            be_killed(&disk, |guard| {
                assert!(!guard.is_suspect(position(8)));
                // What is poison stays so.
                assert!(guard.is_poison(position(100)));
                guard.hold(position(100), false);
                guard.begin(position(8), LARGE_BYTES);
                guard.in_progress().end_in_order();
                // It is still at it.
                guard.end();
                guard.begin(position(9), LARGE_BYTES);
            });
        }
        let guard = open(&disk);
        guard.in_progress().end_in_order();
        std::mem::forget(guard);
        assert_eq!(disk.list(std::path::Path::new("spool")).unwrap(), []);
    }

    #[test]
    fn a_panic_is_not_taken_back_by_an_end_in_order() {
        let disk = SimulatedDisk::default();
        let mut note = None;
        panic_at(&disk, |guard| {
            guard.begin(position(8), SMALL_BYTES);
            note = Some(guard.in_progress());
        });
        note.unwrap().end_in_order();
        assert!(open(&disk).is_suspect(position(8)));
    }
}
