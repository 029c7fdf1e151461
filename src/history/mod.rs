//! What is known of each subject's last reconcile: what the next one is compared with, linked to,
//! and summed up by if it is the same again.
//!
//! Kept on disk as a journal (`journal`), so that a restart neither stores the whole platform anew
//! nor forgets what came before. Invariant: an entry is never believed that is not certain to be
//! true; losing one costs an object more, losing its details a look into the payloads. The journal
//! is never ahead of what is done with: a reconcile that is published again after a crash finds
//! the history that it found before. Bounded in subjects and in bytes; those not seen for longest
//! are forgotten first.

mod journal;

use std::{collections::HashMap, io, path::PathBuf, sync::Arc, time::Duration};

use self::journal::{Journal, JournalLine, Loaded};
use crate::{
    fingerprint::Fingerprint,
    line::Line,
    pack::{pack, unpack},
    reconcile::SubjectIdentity,
    time::Timestamp,
};

/// Some 600 bytes each: 12 MB at most.
const MAX_SUBJECTS: usize = 20_000;
/// For the details of all of them.
const MAX_DETAIL_BYTES: usize = 16 * 1024 * 1024;
/// A line is bounded; this is far more than one takes.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;
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
    subjects: HashMap<SubjectIdentity, Entry>,
    journal: Option<Journal>,
    /// What was stored up to then is gone, or will be.
    pruned_until: Option<Timestamp>,
    detail_bytes: usize,
    ticks: u64,
    /// Of the reconcile that is published now.
    ticket: Ticket,
    /// What came up to here is done with.
    saved_until: Ticket,
    /// What the journal does not say yet.
    unsaved: Vec<Unsaved>,
}

#[derive(Debug)]
struct Entry {
    last: Last,
    details: Option<Details>,
    last_seen: u64,
    /// Of the reconcile.
    ticket: Ticket,
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
    fn bytes(&self) -> usize {
        self.line.len() + self.fields.len()
    }
}

/// A line of the journal that waits until its reconcile is done with.
#[derive(Debug)]
struct Unsaved {
    ticket: Ticket,
    line: JournalLine,
}

impl History {
    /// Forgets everything with the process.
    pub fn in_process() -> Self {
        Self {
            subjects: HashMap::new(),
            journal: None,
            pruned_until: None,
            detail_bytes: 0,
            ticks: 0,
            ticket: Ticket::default(),
            saved_until: Ticket::default(),
            unsaved: Vec::new(),
        }
    }

    /// Remembers across restarts what was stored in `store`.
    pub fn on_disk(path: PathBuf, store: &str) -> io::Result<Self> {
        let mut history = Self::in_process();
        journal::load(&path, store, |loaded| history.take(loaded))?;
        let lines = history.all_lines();
        history.journal = Some(Journal::write(path, store.to_owned(), lines)?);
        Ok(history)
    }

    /// Another reconcile is published from now on: what is noted is its.
    pub fn begin(&mut self) -> Ticket {
        self.ticket = Ticket(self.ticket.0 + 1);
        self.ticket
    }

    pub fn last(&mut self, subject: &SubjectIdentity) -> Option<&Last> {
        self.ticks += 1;
        let entry = self.subjects.get_mut(subject)?;
        entry.last_seen = self.ticks;
        Some(&entry.last)
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
        let packed = serde_json::to_vec(line)
            .map_err(io::Error::from)
            .and_then(|json| pack(&json));
        let details = packed.ok().map(|packed| Details {
            line: packed.into(),
            fields: fields.into(),
        });
        self.insert(subject.clone(), last, details);
        self.note_unsaved(subject, true);
    }

    /// A subject's last reconcile was the same again.
    pub fn note_again(
        &mut self,
        subject: &SubjectIdentity,
        trace_id: Arc<str>,
        ended_at: Timestamp,
    ) {
        if let Some(entry) = self.subjects.get_mut(subject) {
            entry.ticket = self.ticket;
        }
        self.change(subject, |last| {
            last.previous = last.before(&trace_id);
            last.trace_id = trace_id;
            last.ended_at = ended_at;
        });
    }

    /// An object is in the store now.
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
        self.change(subject, |last| {
            if last.fingerprint == fingerprint {
                last.object = (!is_gone).then_some(stored);
            }
        });
    }

    /// An object will never be in the store.
    pub fn object_lost(&mut self, subject: &SubjectIdentity, fingerprint: Fingerprint) {
        self.change(subject, |last| {
            if last.fingerprint == fingerprint {
                last.object = None;
            }
        });
    }

    /// Nothing that was stored up to then will be there.
    pub fn forget_stored_until(&mut self, until: Timestamp) {
        let until = until + NOTED_WITHIN;
        self.pruned_until = Some(until);
        for entry in self.subjects.values_mut() {
            let stored_at = entry.last.object.as_ref().map(|object| object.stored_at);
            if stored_at.flatten().is_some_and(|at| at <= until) {
                entry.last.object = None;
            }
        }
        for unsaved in &mut self.unsaved {
            unsaved.line.forget_stored_until(until);
        }
        let Some(journal) = self.journal.take() else {
            return;
        };
        // NOTE: a journal that can't be written anew may claim what is gone: better none at all.
        match journal.rewrite(self.all_lines()) {
            Ok(rewritten) => self.journal = Some(rewritten),
            Err(error) => {
                tracing::warn!(%error, "cannot note what was removed; a restart will store more");
            }
        }
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
        let Some(mut journal) = self.journal.take() else {
            return;
        };
        let mut saved = journal.append(done.into_iter().map(|unsaved| unsaved.line));
        if saved.is_ok() && journal.is_stale(self.subjects.len()) {
            saved = match journal.rewrite(self.all_lines()) {
                Ok(rewritten) => {
                    self.journal = Some(rewritten);
                    return;
                }
                Err(error) => Err(error),
            };
            // What could not be written anew is gone.
            tracing::debug!(error = ?saved.err(), "cannot keep the history; it ends here");
            return;
        }
        if let Err(error) = saved {
            // Costs an object more after a restart.
            tracing::debug!(%error, "cannot note what was stored");
        }
        self.journal = Some(journal);
    }

    fn change(&mut self, subject: &SubjectIdentity, change: impl FnOnce(&mut Last)) {
        if let Some(entry) = self.subjects.get_mut(subject) {
            change(&mut entry.last);
            self.note_unsaved(subject, false);
        }
    }

    fn note_unsaved(&mut self, subject: &SubjectIdentity, with_details: bool) {
        if self.journal.is_none() {
            return;
        }
        if let Some(entry) = self.subjects.get(subject) {
            self.unsaved.push(Unsaved {
                ticket: entry.ticket,
                line: line_of(subject, entry, with_details),
            });
        }
    }

    fn take(&mut self, loaded: Loaded) {
        let Loaded {
            subject,
            last,
            details,
        } = loaded;
        let known = self.subjects.get(&subject);
        // A line without details leaves them as they are.
        let details = details.or_else(|| known.and_then(|entry| entry.details.clone()));
        self.insert(subject, last, details);
    }

    fn insert(&mut self, subject: SubjectIdentity, last: Last, details: Option<Details>) {
        self.ticks += 1;
        if self.subjects.len() >= MAX_SUBJECTS && !self.subjects.contains_key(&subject) {
            let oldest = self.oldest_tenth();
            let bytes = &mut self.detail_bytes;
            self.subjects.retain(|_, entry| {
                let stays = entry.last_seen > oldest;
                if !stays {
                    *bytes -= entry.details.as_ref().map_or(0, Details::bytes);
                }
                stays
            });
        }
        let entry = Entry {
            last,
            last_seen: self.ticks,
            details,
            ticket: self.ticket,
        };
        self.detail_bytes += entry.details.as_ref().map_or(0, Details::bytes);
        let replaced = self.subjects.insert(subject, entry);
        let replaced = replaced.and_then(|entry| entry.details);
        self.detail_bytes -= replaced.as_ref().map_or(0, Details::bytes);
        if self.detail_bytes > MAX_DETAIL_BYTES {
            let oldest = self.oldest_tenth();
            for entry in self.subjects.values_mut() {
                if entry.last_seen <= oldest {
                    let dropped = entry.details.take();
                    self.detail_bytes -= dropped.as_ref().map_or(0, Details::bytes);
                }
            }
        }
    }

    /// A tenth at a time, so that the search for the oldest is rare.
    fn oldest_tenth(&self) -> u64 {
        let mut seen: Vec<u64> = self
            .subjects
            .values()
            .map(|entry| entry.last_seen)
            .collect();
        let tenth = seen.len() / 10;
        let (_, oldest, _) = seen.select_nth_unstable(tenth);
        *oldest
    }

    /// Of what is done with. A subject that is ahead of that is noted when it is done with too.
    fn all_lines(&self) -> impl Iterator<Item = JournalLine> {
        let subjects = self.subjects.iter();
        let done = subjects.filter(|(_, entry)| entry.ticket <= self.saved_until);
        done.map(|(subject, entry)| line_of(subject, entry, true))
    }
}

fn line_of(subject: &SubjectIdentity, entry: &Entry, with_details: bool) -> JournalLine {
    let details = entry.details.as_ref().filter(|_| with_details);
    JournalLine::of(subject, &entry.last, details)
}

#[cfg(test)]
mod tests;
