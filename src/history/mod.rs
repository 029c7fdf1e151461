//! What is known of each subject's last reconcile: what the next one is compared with, linked to,
//! and summed up by if it is the same again.
//!
//! Kept on disk as a journal (`journal`), so that a restart neither stores the whole platform anew
//! nor forgets what came before. Invariant: an entry is never believed that is not certain to be
//! true; losing one costs an object more, losing its details a look into the payloads. The journal
//! is never ahead of what is done with: a reconcile that is published again after a crash finds
//! the history that it found before. Bounded in bytes (`subjects`); those not seen for longest are
//! forgotten first.

mod journal;
mod subjects;

use std::{io, path::Path, sync::Arc, time::Duration};

pub use self::journal::Basis;
use self::{
    journal::{DetailsNote, Journal, JournalLine},
    subjects::{Entry, Subjects},
};
use crate::{
    disk::SharedDisk,
    fingerprint::Fingerprint,
    line::Line,
    pack::{pack, unpack},
    reconcile::SubjectIdentity,
    time::Timestamp,
};

/// A line takes a few kilobytes. One that is larger than this is not kept.
const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;
/// Details of one subject, compressed; some two kilobytes are usual.
const MAX_DETAIL_BYTES: usize = 1024 * 1024;
/// Details that wait to be written to the journal, which happens once a second.
const MAX_UNSAVED_BYTES: usize = 4 * 1024 * 1024;
/// An object is stored anew after a day, so that rules by age never cut a live link by more.
const FRESH: Duration = Duration::from_hours(24);
/// Time between storing an object and noting it, at the very most.
const NOTED_WITHIN: Duration = Duration::from_mins(10);

/// A subject's last reconcile.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Last {
    pub trace_id: Arc<str>,
    /// The one before it.
    pub previous: Option<Arc<str>>,
    pub ended_at: Timestamp,
    pub fingerprint: Fingerprint,
    /// What holds its payloads; `None` if nothing does any more.
    pub object: Option<LastObject>,
}

/// The object that holds the payloads of a subject's last reconcile.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LastObject {
    pub key: Arc<str>,
    /// When the reconcile began that it was written for.
    pub started_at: Timestamp,
    /// `None` while it is on its way.
    pub stored_at: Option<Timestamp>,
    pub bytes: u64,
}

impl Last {
    /// The object to link to, if this reconcile is the same again.
    pub fn object_for(
        &self,
        fingerprint: Fingerprint,
        started_at: Timestamp,
    ) -> Option<&LastObject> {
        let object = self.object.as_ref()?;
        // Either way: a clock that was ahead must not make an object look fresh for ever.
        let apart = started_at
            .since(object.started_at)
            .max(object.started_at.since(started_at));
        (self.fingerprint == fingerprint && apart < FRESH).then_some(object)
    }

    /// The reconcile before the one of this trace.
    pub fn before(&self, trace_id: &str) -> Option<Arc<str>> {
        if *self.trace_id == *trace_id {
            self.previous.clone()
        } else {
            Some(Arc::clone(&self.trace_id))
        }
    }
}

/// The place of a reconcile in the order in which they are published.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Ticket(u64);

/// The last reconcile of each subject.
#[derive(Debug)]
pub struct History {
    subjects: Subjects,
    journal: Option<Journal>,
    /// What was stored up to then is gone, or will be.
    pruned_until: Option<Timestamp>,
    /// Of the reconcile that is published now.
    ticket: Ticket,
    /// What came up to here is done with.
    saved_until: Ticket,
    /// What the journal does not say yet.
    unsaved: Vec<Unsaved>,
    /// Of the details in there.
    unsaved_bytes: usize,
}

/// What can be found out again from the payloads.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Details {
    /// The last line, as JSON, compressed.
    line: Box<[u8]>,
    /// What the fields of the desired state were, for who looks for flapping.
    fields: Box<[u8]>,
}

impl Details {
    /// `None` if they are too large to be kept.
    fn new(line: &Line, fields: Vec<u8>) -> Option<Self> {
        let json = serde_json::to_vec(line).ok();
        let json = json.filter(|json| json.len() <= MAX_LINE_BYTES)?;
        let details = Self {
            line: pack(&json).ok()?.into(),
            fields: fields.into(),
        };
        (details.line.len() + details.fields.len() <= MAX_DETAIL_BYTES).then_some(details)
    }
}

/// A line of the journal that waits until its reconcile is done with.
#[derive(Debug)]
struct Unsaved {
    ticket: Ticket,
    line: JournalLine,
}

impl Unsaved {
    fn detail_bytes(&self) -> usize {
        match &self.line.details {
            DetailsNote::Known(details) => details.bytes_in_memory(),
            DetailsNote::Unchanged | DetailsNote::Forgotten => 0,
        }
    }
}

impl History {
    /// Forgets everything with the process.
    pub fn in_process() -> Self {
        Self {
            subjects: Subjects::default(),
            journal: None,
            pruned_until: None,
            ticket: Ticket::default(),
            saved_until: Ticket::default(),
            unsaved: Vec::new(),
            unsaved_bytes: 0,
        }
    }

    /// Remembers across restarts what was stored in `store`.
    pub fn on_disk(disk: &SharedDisk, path: &Path, basis: Basis) -> io::Result<Self> {
        let mut history = Self::in_process();
        journal::load(disk.as_ref(), path, &basis, |line| history.take(line))?;
        let lines = history.all_lines();
        let written = Journal::write(Arc::clone(disk), path.to_owned(), basis, lines);
        // NOTE: a journal that is not kept up to date must not be believed later.
        let written = written.inspect_err(|_| drop(disk.remove(path)));
        history.journal = Some(written?);
        Ok(history)
    }

    /// Another reconcile is published from now on: what is noted is its.
    pub fn begin(&mut self) -> Ticket {
        self.ticket = Ticket(self.ticket.0 + 1);
        self.ticket
    }

    /// Of the last reconcile that began to be published.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    pub fn last(&mut self, subject: &SubjectIdentity) -> Option<&Last> {
        self.subjects.look_up(subject).map(|entry| &entry.last)
    }

    /// The last line of this subject, if that is still known.
    pub fn line(&self, subject: &SubjectIdentity) -> Option<Line> {
        let details = self.subjects.get(subject)?.details.as_ref()?;
        let json = unpack(&details.line, MAX_LINE_BYTES).ok()?;
        serde_json::from_slice(&json).ok()
    }

    /// What the fields of the desired state were.
    pub fn fields(&self, subject: &SubjectIdentity) -> &[u8] {
        let details = self
            .subjects
            .get(subject)
            .and_then(|entry| entry.details.as_ref());
        details.map_or(&[], |details| &details.fields)
    }

    /// This is a subject's last reconcile now.
    pub fn note(&mut self, subject: &SubjectIdentity, last: Last, line: &Line, fields: Vec<u8>) {
        let details = Details::new(line, fields).map(Arc::new);
        let known = details.clone();
        // What the journal may still say of earlier details must not be believed any more.
        let known = known.map_or(DetailsNote::Forgotten, DetailsNote::Known);
        self.note_unsaved(subject, last.clone(), known, self.ticket);
        self.subjects.insert(subject, last, details, self.ticket);
    }

    /// A subject's last reconcile was the same again.
    pub fn note_again(
        &mut self,
        subject: &SubjectIdentity,
        trace_id: Arc<str>,
        ended_at: Timestamp,
    ) {
        let ticket = self.ticket;
        self.change(subject, |entry| {
            entry.ticket = ticket;
            entry.last.previous = entry.last.before(&trace_id);
            entry.last.trace_id = trace_id;
            entry.last.ended_at = ended_at;
        });
    }

    /// The object that is known to be on its way is in the store now. Any other is not linked to:
    /// it was lost, or other rules redacted it.
    pub fn object_stored(
        &mut self,
        subject: &SubjectIdentity,
        fingerprint: Fingerprint,
        stored: LastObject,
    ) {
        let is_gone = self
            .pruned_until
            .zip(stored.stored_at)
            .is_some_and(|(pruned, at)| at <= pruned);
        self.change(subject, |entry| {
            let awaited = entry.last.object.as_ref();
            let is_awaited = awaited.is_some_and(|awaited| awaited.key == stored.key);
            if entry.last.fingerprint == fingerprint && is_awaited {
                entry.last.object = (!is_gone).then_some(stored);
            }
        });
    }

    /// An object will never be in the store.
    pub fn object_lost(&mut self, subject: &SubjectIdentity, fingerprint: Fingerprint) {
        self.change(subject, |entry| {
            if entry.last.fingerprint == fingerprint {
                entry.last.object = None;
            }
        });
    }

    /// Nothing that was stored up to then will be there.
    pub fn forget_stored_until(&mut self, until: Timestamp) {
        let until = until + NOTED_WITHIN;
        self.pruned_until = Some(until);
        self.forget_stored(&|at| at <= until);
    }

    /// Nothing that is said to have been stored later than that, by a clock that was ahead, will be
    /// there.
    pub fn forget_stored_after(&mut self, now: Timestamp) {
        self.forget_stored(&|at| at > now);
    }

    fn forget_stored(&mut self, goes: &dyn Fn(Timestamp) -> bool) {
        self.subjects.change_all(|last| {
            let stored_at = last.object.as_ref().map(|object| object.stored_at);
            if stored_at.flatten().is_some_and(goes) {
                last.object = None;
            }
        });
        for unsaved in &mut self.unsaved {
            unsaved.line.forget_stored(goes);
        }
        self.rewrite();
    }

    /// Whether [`Self::save`] would save something.
    pub fn has_unsaved(&self, done_until: Ticket) -> bool {
        let mut unsaved = self.unsaved.iter();
        unsaved.any(|unsaved| unsaved.ticket <= done_until)
    }

    /// Brings the journal up to date with what is done with: every reconcile up to this one.
    pub fn save(&mut self, done_until: Ticket) {
        self.saved_until = done_until;
        let is_done = |unsaved: &mut Unsaved| unsaved.ticket <= done_until;
        let done: Vec<_> = self.unsaved.extract_if(.., is_done).collect();
        self.unsaved_bytes = self.unsaved.iter().map(Unsaved::detail_bytes).sum();
        let Some(journal) = &mut self.journal else {
            return;
        };
        if let Err(error) = journal.append(done.into_iter().map(|unsaved| unsaved.line)) {
            tracing::debug!(%error, "cannot append to the history; it is written anew");
        }
        if journal.is_due(self.subjects.len()) {
            self.rewrite();
        }
    }

    /// What the journal takes on disk.
    pub fn bytes_on_disk(&self) -> u64 {
        self.journal.as_ref().map_or(0, Journal::bytes)
    }

    fn rewrite(&mut self) {
        let Some(mut journal) = self.journal.take() else {
            return;
        };
        // NOTE: a journal that can't be written anew may claim what is gone: it is removed.
        if let Err(error) = journal.rewrite(self.all_lines()) {
            tracing::warn!(
                %error,
                "cannot write the history; a restart before that works will store more than needed"
            );
        }
        self.journal = Some(journal);
    }

    fn change(&mut self, subject: &SubjectIdentity, change: impl FnOnce(&mut Entry)) {
        self.subjects.change(subject, change);
        if let Some(entry) = self.subjects.get(subject) {
            let (last, ticket) = (entry.last.clone(), entry.ticket);
            self.note_unsaved(subject, last, DetailsNote::Unchanged, ticket);
        }
    }

    fn note_unsaved(
        &mut self,
        subject: &SubjectIdentity,
        last: Last,
        details: DetailsNote,
        ticket: Ticket,
    ) {
        if self.journal.is_none() {
            return;
        }
        let mut unsaved = Unsaved {
            ticket,
            line: JournalLine {
                subject: subject.clone(),
                last,
                details,
            },
        };
        if self.unsaved_bytes + unsaved.detail_bytes() > MAX_UNSAVED_BYTES {
            unsaved.line.details = DetailsNote::Forgotten;
        }
        self.unsaved_bytes += unsaved.detail_bytes();
        self.unsaved.push(unsaved);
    }

    fn take(&mut self, line: JournalLine) {
        let JournalLine {
            subject,
            last,
            details,
        } = line;
        let details = match details {
            DetailsNote::Unchanged => {
                // NOTE: the line that told of a change may be lost. Equal payloads have equal details.
                let known = self.subjects.get(&subject);
                let equal = known.filter(|entry| entry.last.fingerprint == last.fingerprint);
                equal.and_then(|entry| entry.details.clone())
            }
            DetailsNote::Forgotten => None,
            DetailsNote::Known(details) => Some(details),
        };
        self.subjects.insert(&subject, last, details, self.ticket);
    }

    /// Of what is done with. A subject that is ahead of that is noted when it is done with too.
    fn all_lines(&self) -> impl Iterator<Item = JournalLine> {
        let subjects = self.subjects.oldest_first().into_iter();
        let done = subjects.filter(|(_, entry)| entry.ticket <= self.saved_until);
        done.map(|(subject, entry)| JournalLine {
            subject: subject.clone(),
            last: entry.last.clone(),
            details: match &entry.details {
                Some(details) => DetailsNote::Known(Arc::clone(details)),
                None => DetailsNote::Unchanged,
            },
        })
    }
}

#[cfg(test)]
mod tests;
