//! What the checks found.

use std::{collections::BTreeMap, fmt};

const EXAMPLES: usize = 3;

/// What must not be.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Problem {
    /// An acknowledged message is nowhere.
    Lost,
    /// It is in the store, but not where the entry of its trace says.
    Hidden,
    TwoObjects,
    /// Entries of one trace with the same revision.
    TwoEntries,
    IdenticalEntries,
    /// An object that no entry names.
    Orphan,
    /// An entry or an object of something that was never sent.
    Unknown,
    /// Something in the store that can't be read.
    Unreadable,
    /// Something is left in the outbox.
    Undelivered,
    MissingSpan,
    /// A span says that something is stored, and it is not.
    FalseClaim,
    /// A secret came out.
    Leak,
    /// A line of the log that no fault explains.
    ErrorLine,
    Panic,
    /// It ended by itself, or with the wrong exit code.
    Exit,
    /// A reader does not give one row for each trace.
    Reader,
}

/// All problems, with details of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problems {
    found: BTreeMap<Problem, Vec<String>>,
}

impl Problems {
    pub(crate) fn add(&mut self, problem: Problem, detail: String) {
        self.found.entry(problem).or_default().push(detail);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(crate) fn count(&self, problem: Problem) -> usize {
        self.found.get(&problem).map_or(0, Vec::len)
    }

    /// Everything, one line each.
    pub(crate) fn in_full(&self) -> String {
        let all = self.found.iter();
        let lines = all.flat_map(|(problem, details)| {
            let line = move |detail| format!("{problem:?}: {detail}\n");
            details.iter().map(line)
        });
        lines.collect()
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = (String, usize)> {
        let found = self.found.iter();
        found.map(|(problem, details)| (format!("{problem:?}"), details.len()))
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (problem, details) in &self.found {
            writeln!(out, "{problem:?}: {}", details.len())?;
            for detail in details.iter().take(EXAMPLES) {
                writeln!(out, "    {detail}")?;
            }
        }
        Ok(())
    }
}
