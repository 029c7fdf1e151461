//! Fields that go from one value to another and back: two functions, or a function and an
//! observed value, that can't agree.
//!
//! Of every field the history keeps the last value, and of those that changed lately the values
//! before, each as a hash of 32 bits. Being absent counts as a value. A field that is gone has no
//! name here any more, so it is told once it is back; a whole resource that is back is told as one.
//!
//! Invariant: bounded, and eight bytes a field while nothing changes.

use std::collections::HashSet;

use super::fields::{DesiredFields, FieldValue, MAX_FIELDS};
use crate::line::FlappingField;

/// Fields that are named; the others are counted.
const MAX_FLAPPING: usize = 32;
/// A change is forgotten after so many reconciles that changed something else.
const MEMORY: u8 = 8;
/// Values that a field had before the last one.
const MAX_EARLIER: usize = 3;
/// Fields of which earlier values are kept.
const MAX_RECENT: usize = 1024;
/// The value of a field that is not there.
const ABSENT: u32 = 0;

/// First byte of a history on disk.
const VERSION: u8 = 1;

/// What the fields of a composite's desired state were over its last reconciles.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FieldHistory {
    /// There was a reconcile before.
    has_begun: bool,
    /// By field, each with its last value.
    last: Vec<(u32, u32)>,
    /// By field.
    recent: Vec<Recent>,
}

/// A field that changed lately.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Recent {
    field: u32,
    /// Reconciles since.
    age: u8,
    count: u8,
    /// The values before the last one, the latest first.
    earlier: [u32; MAX_EARLIER],
}

impl FieldHistory {
    /// Takes the next reconcile in: one that ran to its end and differs from the one before. Gives
    /// the first fields that went back to an earlier value, and how many did.
    pub fn advance(&mut self, fields: &DesiredFields) -> (Vec<FlappingField>, u64) {
        let mut next: Vec<_> = fields.iter().collect();
        next.sort_by_key(|field| field.field);
        next.dedup_by_key(|field| field.field);
        if !self.has_begun {
            self.has_begun = !fields.is_partial() || !next.is_empty();
            self.last = next.iter().map(|next| (next.field, next.value)).collect();
            return (Vec::new(), 0);
        }
        let changes = self.replace(&next, fields.is_partial());
        let mut flapping = self.remember(&changes);
        let came_back = whole_resources(&next, &changes);
        for field in &mut flapping {
            // A resource that went and came back is one thing, not as many as it has fields.
            if came_back.contains(field.resource) {
                field.path = "";
            }
        }
        flapping.sort_unstable_by_key(|field| (field.resource, field.path));
        flapping.dedup_by_key(|field| (field.resource, field.path));
        let count = flapping.len() as u64;
        flapping.truncate(MAX_FLAPPING);
        let named = flapping.into_iter().map(|field| FlappingField {
            resource: field.resource.to_owned(),
            field: field.path.to_owned(),
        });
        (named.collect(), count)
    }

    /// Makes these the last values; gives what changed, in the order of fields.
    fn replace<'f>(&mut self, next: &[FieldValue<'f>], is_partial: bool) -> Vec<Change<'f>> {
        let mut merged = Vec::with_capacity(next.len());
        let mut changes = Vec::new();
        let mut last = std::mem::take(&mut self.last).into_iter().peekable();
        let mut next = next.iter().peekable();
        loop {
            let field = match (last.peek(), next.peek()) {
                (Some((last, _)), Some(next)) => (*last).min(next.field),
                (Some((last, _)), None) => *last,
                (None, Some(next)) => next.field,
                (None, None) => break,
            };
            let before = last.next_if(|(last, _)| *last == field);
            let before = before.map_or(ABSENT, |(_, value)| value);
            let after = next.next_if(|next| next.field == field).copied();
            let value = match after {
                Some(after) => after.value,
                None if is_partial => before,
                None => ABSENT,
            };
            if value != ABSENT {
                merged.push((field, value));
            }
            // NOTE: where the list is not the whole, what comes up may have been there all along.
            if value != before && !(is_partial && before == ABSENT) {
                changes.push(Change {
                    field,
                    before,
                    after,
                });
            }
        }
        merged.truncate(MAX_FIELDS);
        self.last = merged;
        changes
    }

    /// Takes changes in and forgets old ones; gives what went back to an earlier value.
    fn remember<'f>(&mut self, changes: &[Change<'f>]) -> Vec<FieldValue<'f>> {
        for recent in &mut self.recent {
            recent.age += 1;
        }
        self.recent.retain(|recent| recent.age <= MEMORY);
        let known = self.recent.len();
        let mut flapping = Vec::new();
        for change in changes {
            // NOTE: what is pushed on the way is past what is searched.
            let (old, _) = self.recent.split_at_mut(known);
            let place = old.binary_search_by_key(&change.field, |recent| recent.field);
            let Some(recent) = place.ok().and_then(|place| old.get_mut(place)) else {
                self.recent.push(Recent::new(change.field, change.before));
                continue;
            };
            flapping.extend(
                change
                    .after
                    .filter(|after| recent.earlier().contains(&after.value)),
            );
            recent.push(change.before);
        }
        if self.recent.len() > MAX_RECENT {
            // The oldest go first, then those that changed least.
            let key = |recent: &Recent| (recent.age, u8::MAX - recent.count, recent.field);
            self.recent.sort_unstable_by_key(key);
            self.recent.truncate(MAX_RECENT);
        }
        self.recent.sort_unstable_by_key(|recent| recent.field);
        flapping
    }

    /// For the disk.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 + self.last.len() * 8 + self.recent.len() * 9);
        bytes.extend([VERSION, u8::from(self.has_begun)]);
        // NOTE: what does not fit is cut by the limits long before.
        let count = u16::try_from(self.last.len()).unwrap_or(u16::MAX);
        bytes.extend(count.to_le_bytes());
        for (field, value) in self.last.iter().take(usize::from(count)) {
            bytes.extend(field.to_le_bytes());
            bytes.extend(value.to_le_bytes());
        }
        for recent in &self.recent {
            bytes.extend(recent.field.to_le_bytes());
            bytes.extend([recent.age, recent.count]);
            for value in recent.earlier() {
                bytes.extend(value.to_le_bytes());
            }
        }
        bytes
    }

    /// From the disk; `None` if it is something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let [version, has_begun] = take(&mut rest)?;
        if version != VERSION || has_begun > 1 {
            return None;
        }
        let count = u16::from_le_bytes(take(&mut rest)?);
        let last: Vec<_> = (0..count)
            .map(|_| Some((take_u32(&mut rest)?, take_u32(&mut rest)?)))
            .collect::<Option<_>>()?;
        let mut recent = Vec::new();
        while !rest.is_empty() {
            recent.push(Recent::take(&mut rest)?);
        }
        let is_sound = last.len() <= MAX_FIELDS
            && recent.len() <= MAX_RECENT
            && last.is_sorted_by(|(one, _), (other, _)| one < other)
            && last.iter().all(|(_, value)| *value != ABSENT)
            && recent.is_sorted_by(|one, other| one.field < other.field);
        is_sound.then_some(Self {
            has_begun: has_begun == 1,
            last,
            recent,
        })
    }
}

/// The resources all of whose fields were absent before.
fn whole_resources<'f>(next: &[FieldValue<'f>], changes: &[Change<'f>]) -> HashSet<&'f str> {
    let is_new = |change: &&Change<'f>| change.before == ABSENT;
    let new_fields = changes.iter().filter(is_new);
    let new_fields: HashSet<u32> = new_fields.map(|change| change.field).collect();
    let mut whole: HashSet<&str> = next.iter().map(|field| field.resource).collect();
    for field in next {
        if !new_fields.contains(&field.field) {
            whole.remove(field.resource);
        }
    }
    // The composite is always there.
    whole.remove("");
    whole
}

/// A field whose value is another than it was.
#[derive(Clone, Copy, Debug)]
struct Change<'f> {
    field: u32,
    before: u32,
    /// `None` if it is gone.
    after: Option<FieldValue<'f>>,
}

impl Recent {
    fn new(field: u32, before: u32) -> Self {
        Self {
            field,
            age: 0,
            count: 1,
            earlier: [before, ABSENT, ABSENT],
        }
    }

    fn earlier(&self) -> &[u32] {
        self.earlier
            .get(..usize::from(self.count))
            .unwrap_or_default()
    }

    fn push(&mut self, before: u32) {
        let [first, second, _] = self.earlier;
        self.earlier = [before, first, second];
        self.count = (self.count + 1).min(3);
        self.age = 0;
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        let field = take_u32(rest)?;
        let [age, count] = take(rest)?;
        if age > MEMORY || !(1..=MAX_EARLIER).contains(&usize::from(count)) {
            return None;
        }
        let mut earlier = [ABSENT; MAX_EARLIER];
        for value in earlier.iter_mut().take(usize::from(count)) {
            *value = take_u32(rest)?;
        }
        Some(Self {
            field,
            age,
            count,
            earlier,
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(*first)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    take(rest).map(u32::from_le_bytes)
}
