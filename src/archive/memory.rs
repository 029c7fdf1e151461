//! What was last stored of each subject, so that an unchanged reconcile stores nothing.
//!
//! Kept on disk as a journal of JSON lines, the last of a subject wins, so that a restart does not
//! store the whole platform anew. Its first line names the store: what another store holds says
//! nothing about this one.
//!
//! Invariant: losing an entry costs one object more; an entry is never believed that is not
//! certain to be true. Bounded in subjects; those not seen for longest are forgotten first.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, BufRead as _, BufReader},
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{Key, walk::Minute};
use crate::{
    reconcile::{PayloadHash, SubjectIdentity},
    time::Timestamp,
};

/// Some 400 bytes each: 8 MB at most.
const MAX_SUBJECTS: usize = 20_000;
/// Lines that say nothing new are dropped once there are this many more than subjects.
const STALE_LINES: usize = 4096;
/// Minutes between storing an object and remembering it, at the very most.
const REMEMBERED_WITHIN: i64 = 10;
/// An object is stored anew after a day, so that rules by age never cut a live link by more.
const FRESH: Duration = Duration::from_hours(24);

/// What is known of a subject's last object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Remembered {
    pub fingerprint: PayloadHash,
    pub key: Key,
    /// When the reconcile began that the object is of.
    pub started_at: Timestamp,
    pub stored_at: Timestamp,
}

/// The last object of each subject.
#[derive(Debug)]
pub struct SubjectMemory {
    subjects: HashMap<SubjectIdentity, Entry>,
    journal: Option<Journal>,
    /// What was stored up to then is gone, or will be.
    pruned_until: Option<Minute>,
    ticks: u64,
}

#[derive(Debug)]
struct Entry {
    remembered: Remembered,
    last_seen: u64,
}

#[derive(Debug)]
struct Journal {
    path: PathBuf,
    store: String,
    file: File,
    lines: usize,
}

#[derive(Debug, Deserialize, Serialize)]
struct Heading {
    v: u32,
    store: String,
}

/// A line: a subject's last object.
#[derive(Debug, Deserialize, Serialize)]
struct Line {
    subject: String,
    last: LastObject,
}

#[derive(Debug, Deserialize, Serialize)]
struct LastObject {
    fingerprint: String,
    key: String,
    started_at: i64,
    stored_at: i64,
}

impl SubjectMemory {
    /// Forgets everything with the process.
    pub fn in_process() -> Self {
        Self {
            subjects: HashMap::new(),
            journal: None,
            pruned_until: None,
            ticks: 0,
        }
    }

    /// Remembers across restarts what was stored in `store`.
    pub fn on_disk(path: PathBuf, store: &str) -> io::Result<Self> {
        let mut memory = Self::in_process();
        memory.load(&path, store)?;
        memory.journal = Some(memory.rewrite(path, store.to_owned())?);
        Ok(memory)
    }

    /// The last object of this subject, if it holds the very same and is fresh enough to link to.
    pub fn find_unchanged(
        &mut self,
        subject: &SubjectIdentity,
        fingerprint: PayloadHash,
        started_at: Timestamp,
    ) -> Option<&Remembered> {
        self.ticks += 1;
        let entry = self.subjects.get_mut(subject)?;
        entry.last_seen = self.ticks;
        let last = &entry.remembered;
        // Either way: a clock that was ahead must not make an object look fresh for ever.
        let apart = started_at
            .since(last.started_at)
            .max(last.started_at.since(started_at));
        let is_fresh = apart < FRESH;
        (last.fingerprint == fingerprint && is_fresh).then_some(last)
    }

    /// This is in the store now.
    pub fn remember(&mut self, subject: &SubjectIdentity, remembered: Remembered) {
        let minute = Minute::of(remembered.stored_at);
        if self.pruned_until.is_some_and(|pruned| minute <= pruned) {
            return;
        }
        self.append(subject, &remembered);
        self.insert(subject.clone(), remembered);
    }

    /// Nothing that was stored up to this minute will be there.
    pub(super) fn forget_until(&mut self, minute: Minute) {
        // An object is remembered some time after it was stored.
        let minute = minute.later(REMEMBERED_WITHIN);
        self.pruned_until = Some(minute);
        self.subjects
            .retain(|_, entry| Minute::of(entry.remembered.stored_at) > minute);
        let Some(journal) = self.journal.take() else {
            return;
        };
        // NOTE: a journal that can't be written anew may claim what is gone: better none at all.
        match self.rewrite(journal.path.clone(), journal.store) {
            Ok(rewritten) => self.journal = Some(rewritten),
            Err(error) => {
                tracing::warn!(%error, "cannot note what was removed; a restart will store more");
                drop(fs::remove_file(&journal.path));
            }
        }
    }

    fn insert(&mut self, subject: SubjectIdentity, remembered: Remembered) {
        self.ticks += 1;
        if self.subjects.len() >= MAX_SUBJECTS && !self.subjects.contains_key(&subject) {
            // A tenth at a time, so that the search for the oldest is rare.
            let mut seen: Vec<u64> = self
                .subjects
                .values()
                .map(|entry| entry.last_seen)
                .collect();
            let (_, oldest, _) = seen.select_nth_unstable(MAX_SUBJECTS / 10);
            let oldest = *oldest;
            self.subjects.retain(|_, entry| entry.last_seen > oldest);
        }
        self.subjects.insert(
            subject,
            Entry {
                remembered,
                last_seen: self.ticks,
            },
        );
    }

    fn load(&mut self, path: &PathBuf, store: &str) -> io::Result<()> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut lines = BufReader::new(file).split(b'\n');
        let heading = lines.next().transpose()?.unwrap_or_default();
        let heading: Option<Heading> = serde_json::from_slice(&heading).ok();
        if heading.is_none_or(|heading| heading.v != 1 || heading.store != store) {
            return Ok(());
        }
        for line in lines {
            // A line cut off by a crash is as good as none.
            let Ok(line) = serde_json::from_slice::<Line>(&line?) else {
                continue;
            };
            let subject = SubjectIdentity(line.subject.as_str().into());
            if let Some(remembered) = line.last.into_remembered() {
                self.insert(subject, remembered);
            }
        }
        Ok(())
    }

    /// Writes a journal with one line a subject and puts it in place of the old one.
    fn rewrite(&self, path: PathBuf, store: String) -> io::Result<Journal> {
        let fresh = path.with_extension("new");
        let mut out = io::BufWriter::new(File::create(&fresh)?);
        write_line(
            &mut out,
            &Heading {
                v: 1,
                store: store.clone(),
            },
        )?;
        for (subject, entry) in &self.subjects {
            write_line(&mut out, &Line::of(subject, &entry.remembered))?;
        }
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_data()?;
        fs::rename(&fresh, &path)?;
        Ok(Journal {
            path,
            store,
            file,
            lines: self.subjects.len(),
        })
    }

    fn append(&mut self, subject: &SubjectIdentity, remembered: &Remembered) {
        let Some(mut journal) = self.journal.take() else {
            return;
        };
        journal.lines += 1;
        let appended = if journal.lines > self.subjects.len() + STALE_LINES {
            // NOTE: written from memory, so the new entry is added below like any other.
            self.rewrite(journal.path.clone(), journal.store.clone())
                .map(|rewritten| journal = rewritten)
        } else {
            Ok(())
        };
        let appended =
            appended.and_then(|()| write_line(&mut &journal.file, &Line::of(subject, remembered)));
        if let Err(error) = appended {
            // Costs an object more after a restart.
            tracing::debug!(%error, "cannot note what was stored");
        }
        self.journal = Some(journal);
    }
}

impl Line {
    fn of(subject: &SubjectIdentity, remembered: &Remembered) -> Self {
        Self {
            subject: subject.0.to_string(),
            last: LastObject {
                fingerprint: remembered.fingerprint.to_string(),
                key: remembered.key.to_string(),
                started_at: remembered.started_at.as_nanos(),
                stored_at: remembered.stored_at.as_nanos(),
            },
        }
    }
}

impl LastObject {
    fn into_remembered(self) -> Option<Remembered> {
        Some(Remembered {
            fingerprint: PayloadHash::parse(&self.fingerprint)?,
            key: Key::of_stored(&self.key)?,
            started_at: Timestamp::from_nanos(self.started_at),
            stored_at: Timestamp::from_nanos(self.stored_at),
        })
    }
}

fn write_line(out: &mut impl io::Write, line: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    out.write_all(&bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const STORE: &str = "s3://bucket/";

    fn subject(name: &str) -> SubjectIdentity {
        SubjectIdentity(name.into())
    }

    fn remembered(content: &str) -> Remembered {
        Remembered {
            fingerprint: PayloadHash::of(content.as_bytes()),
            key: Key::of_stored(&format!("v1/reconciles/{content}")).unwrap(),
            started_at: Timestamp::from_parts(1_000, 0).unwrap(),
            stored_at: Timestamp::from_parts(2_000, 0).unwrap(),
        }
    }

    fn knows(memory: &mut SubjectMemory, name: &str, content: &str) -> bool {
        let last = remembered(content);
        let found = memory.find_unchanged(&subject(name), last.fingerprint, last.started_at);
        found == Some(&last)
    }

    #[test]
    fn it_survives_a_restart_and_a_torn_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("subjects.jsonl");
        let mut memory = SubjectMemory::on_disk(path.clone(), STORE).unwrap();
        memory.remember(&subject("a"), remembered("1"));
        memory.remember(&subject("a"), remembered("2"));
        memory.remember(&subject("b"), remembered("3"));
        memory.remember(&subject("c"), remembered("4"));
        drop(memory);
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(br#"{"subject":"c","last":{"finger"#)
            .unwrap();

        let mut memory = SubjectMemory::on_disk(path, STORE).unwrap();
        assert!(knows(&mut memory, "a", "2") && !knows(&mut memory, "a", "1"));
        assert!(knows(&mut memory, "b", "3"));
        assert!(knows(&mut memory, "c", "4"));
    }

    #[test]
    fn what_was_forgotten_stays_forgotten_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("subjects.jsonl");
        let mut memory = SubjectMemory::on_disk(path.clone(), STORE).unwrap();
        memory.remember(&subject("a"), remembered("1"));
        memory.forget_until(Minute::of(remembered("1").stored_at));
        drop(memory);
        let mut memory = SubjectMemory::on_disk(path, STORE).unwrap();
        assert!(!knows(&mut memory, "a", "1"));
    }

    #[test]
    fn it_says_nothing_about_another_store() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("subjects.jsonl");
        SubjectMemory::on_disk(path.clone(), STORE)
            .unwrap()
            .remember(&subject("a"), remembered("1"));
        let mut memory = SubjectMemory::on_disk(path, "s3://other/").unwrap();
        assert!(!knows(&mut memory, "a", "1"));
    }

    #[test]
    fn an_object_is_stored_anew_after_a_day() {
        let mut memory = SubjectMemory::in_process();
        let last = remembered("1");
        memory.remember(&subject("a"), last.clone());
        let mut links_after = |hours| {
            let later = last.started_at + Duration::from_hours(hours);
            memory
                .find_unchanged(&subject("a"), last.fingerprint, later)
                .is_some()
        };
        assert!(links_after(23));
        assert!(!links_after(24));
    }

    #[test]
    fn those_not_seen_for_longest_are_forgotten_first() {
        let mut memory = SubjectMemory::in_process();
        for index in 0..MAX_SUBJECTS {
            memory.remember(&subject(&index.to_string()), remembered("x"));
        }
        assert!(knows(&mut memory, "0", "x"));
        memory.remember(&subject("one more"), remembered("x"));
        assert!(memory.subjects.len() < MAX_SUBJECTS);
        assert!(knows(&mut memory, "0", "x"));
        assert!(!knows(&mut memory, "1", "x"));
    }

    #[test]
    fn the_journal_stays_short() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("subjects.jsonl");
        let mut memory = SubjectMemory::on_disk(path.clone(), STORE).unwrap();
        for index in 0..3 * STALE_LINES {
            memory.remember(&subject("a"), remembered(&index.to_string()));
        }
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= STALE_LINES + 3, "{lines} lines");
        let mut memory = SubjectMemory::on_disk(path, STORE).unwrap();
        assert!(knows(&mut memory, "a", &(3 * STALE_LINES - 1).to_string()));
    }
}
