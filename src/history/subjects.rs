//! The last reconcile of each subject, in memory.
//!
//! Invariant: what the entries take, as counted by [`Entry::bytes`], never exceeds [`MAX_BYTES`]
//! once an insertion or a change has returned. Details go before whole entries: they can be found
//! out again from the payloads.
//!
//! What is counted is what the entries take from the allocator, with its headers and rounding, and
//! their slots in the table. The gaps that trimming leaves between them are not: with 100,000 subjects
//! noted in a row, the kernel counted 27 to 35 MiB (`tests/history.rs`, whose limit is 40).

use std::{collections::HashMap, mem::size_of, sync::Arc};

use twox_hash::XxHash3_64;

use super::{Details, Last, Ticket};
use crate::reconcile::SubjectIdentity;

/// For everything that is known about all subjects: some 6,000 with their details, or 25,000
/// without. The container has 128 MiB for everything.
pub(super) const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Trimming stops here, so that it is rare.
const TRIMMED_BYTES: usize = MAX_BYTES / 10 * 9;
/// A subject is looked up two or three times per reconcile. One that was not seen for this many
/// lookups per known subject has missed several rounds: it was probably deleted.
const MISSED_LOOKUPS: u64 = 8;
/// Of every allocation: the allocator's header and rounding, and the counters of an [`Arc`].
const ALLOCATION: usize = 32;
/// A slot in the table. Tables double, so that up to half of the slots are empty.
const SLOT: usize = 2 * size_of::<(SubjectIdentity, Entry)>();

/// What is known about a subject.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) last: Last,
    pub(super) details: Option<Arc<Details>>,
    last_seen: u64,
    /// The reconcile's place in the order of publishing.
    pub(super) ticket: Ticket,
}

impl Entry {
    /// With its place in the table and its details.
    fn bytes(&self, subject: &SubjectIdentity) -> usize {
        let object = self.last.object.as_ref().map(|object| &*object.key);
        let texts = [Some(&*subject.0), Some(&*self.last.trace_id), object];
        let texts = texts.into_iter().chain([self.last.previous.as_deref()]);
        let texts: usize = texts.flatten().map(|text| text.len() + ALLOCATION).sum();
        SLOT + texts + self.detail_bytes()
    }

    fn detail_bytes(&self) -> usize {
        self.details.as_deref().map_or(0, Details::bytes_in_memory)
    }
}

impl Details {
    /// What keeping these takes.
    pub(super) fn bytes_in_memory(&self) -> usize {
        size_of::<Self>() + self.line.len() + self.fields.len() + 3 * ALLOCATION
    }
}

/// The subjects that are known.
#[derive(Debug, Default)]
pub(super) struct Subjects {
    entries: HashMap<SubjectIdentity, Entry>,
    bytes: usize,
    lookups: u64,
}

impl Subjects {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Doesn't count as a lookup.
    pub(super) fn get(&self, subject: &SubjectIdentity) -> Option<&Entry> {
        self.entries.get(subject)
    }

    pub(super) fn look_up(&mut self, subject: &SubjectIdentity) -> Option<&Entry> {
        self.lookups += 1;
        let entry = self.entries.get_mut(subject)?;
        entry.last_seen = self.lookups;
        Some(entry)
    }

    pub(super) fn insert(
        &mut self,
        subject: &SubjectIdentity,
        last: Last,
        details: Option<Arc<Details>>,
        ticket: Ticket,
    ) {
        self.lookups += 1;
        let entry = Entry {
            last,
            details,
            last_seen: self.lookups,
            ticket,
        };
        self.bytes += entry.bytes(subject);
        if let Some(replaced) = self.entries.insert(subject.clone(), entry) {
            self.bytes -= replaced.bytes(subject);
        }
        self.trim();
    }

    /// Changes an entry, if there is one; tells whether there was.
    pub(super) fn change(
        &mut self,
        subject: &SubjectIdentity,
        change: impl FnOnce(&mut Entry),
    ) -> bool {
        let Some(entry) = self.entries.get_mut(subject) else {
            return false;
        };
        self.bytes -= entry.bytes(subject);
        change(entry);
        self.bytes += entry.bytes(subject);
        self.trim();
        true
    }

    pub(super) fn change_all(&mut self, mut change: impl FnMut(&mut Last)) {
        for (subject, entry) in &mut self.entries {
            self.bytes -= entry.bytes(subject);
            change(&mut entry.last);
            self.bytes += entry.bytes(subject);
        }
        self.trim();
    }

    /// All of them, those not seen for longest first.
    pub(super) fn oldest_first(&self) -> Vec<(&SubjectIdentity, &Entry)> {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_unstable_by_key(|(_, entry)| entry.last_seen);
        entries
    }

    fn trim(&mut self) {
        if self.bytes <= MAX_BYTES {
            return;
        }
        self.drop_details();
        if self.bytes > TRIMMED_BYTES {
            self.forget_oldest();
        }
    }

    /// Drops the details of subjects that are probably gone, then those of always the same others.
    /// Subjects come in turn: dropping what was not seen for longest would drop what comes next,
    /// and once there are too many for all, nobody's details would be there when needed.
    fn drop_details(&mut self) {
        let missed = MISSED_LOOKUPS * self.entries.len() as u64;
        let gone_since = self.lookups.saturating_sub(missed);
        let with_details = self.entries.iter();
        let with_details = with_details.filter(|(_, entry)| entry.details.is_some());
        let mut candidates: Vec<_> = with_details
            .map(|(subject, entry)| {
                let rank = XxHash3_64::oneshot(subject.0.as_bytes());
                ((entry.last_seen >= gone_since, rank), subject.clone())
            })
            .collect();
        candidates.sort_unstable_by_key(|(order, _)| *order);
        for (_, subject) in candidates {
            if self.bytes <= TRIMMED_BYTES {
                break;
            }
            if let Some(entry) = self.entries.get_mut(&subject) {
                self.bytes -= entry.detail_bytes();
                entry.details = None;
            }
        }
    }

    fn forget_oldest(&mut self) {
        let subjects = self.oldest_first().into_iter();
        let subjects: Vec<_> = subjects.map(|(subject, _)| subject.clone()).collect();
        for subject in subjects {
            if self.bytes <= TRIMMED_BYTES {
                break;
            }
            if let Some(entry) = self.entries.remove(&subject) {
                self.bytes -= entry.bytes(&subject);
            }
        }
    }
}

#[cfg(test)]
impl Subjects {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counted anew.
    pub(super) fn recount(&self) -> usize {
        let entries = self.entries.iter();
        entries.map(|(subject, entry)| entry.bytes(subject)).sum()
    }

    pub(super) fn detailed(&self) -> usize {
        let entries = self.entries.values();
        entries.filter(|entry| entry.details.is_some()).count()
    }
}
