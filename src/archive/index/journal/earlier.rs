//! The lines that an earlier process noted, of reconciles that may be published again.
//!
//! Invariant: of very many only the newest are known, so that memory is bounded and a start is
//! quick. What was under way when a process died are some thousand at most.

use std::collections::HashMap;

use super::super::trace_hash;
use crate::line::{Coverage, ObjectRef};

/// Lines that are known at most.
pub(super) const MAX_LINES: usize = 20_000;

/// Lines by trace.
#[derive(Debug, Default)]
pub(super) struct EarlierLines {
    traces: HashMap<u64, Vec<EarlierLine>>,
    count: usize,
}

#[derive(Debug)]
struct EarlierLine {
    /// The same reconcile, noted again after a crash, has the same.
    coverage: Coverage,
    revision: u32,
    object: ObjectRef,
}

impl EarlierLines {
    pub(super) fn is_full(&self) -> bool {
        self.count >= MAX_LINES
    }

    pub(super) fn insert(
        &mut self,
        trace_id: &str,
        revision: u32,
        coverage: Coverage,
        object: ObjectRef,
    ) {
        self.count += 1;
        let lines = self.traces.entry(trace_hash(trace_id)).or_default();
        lines.push(EarlierLine {
            coverage,
            revision,
            object,
        });
    }

    /// The object of this very line, or of its last revision.
    pub(super) fn find(
        &self,
        trace_id: &str,
        revision: u32,
        coverage: Coverage,
    ) -> Option<&ObjectRef> {
        let is_it = |line: &&EarlierLine| line.coverage == coverage && line.revision >= revision;
        let lines = self.lines_of(trace_id).iter().filter(is_it);
        Some(&lines.max_by_key(|line| line.revision)?.object)
    }

    /// The highest revision that was noted of a trace.
    pub(super) fn last_revision(&self, trace_id: &str) -> Option<u32> {
        let lines = self.lines_of(trace_id).iter();
        lines.map(|line| line.revision).max()
    }

    fn lines_of(&self, trace_id: &str) -> &[EarlierLine] {
        // Most of the time there are none.
        if self.traces.is_empty() {
            return &[];
        }
        let lines = self.traces.get(&trace_hash(trace_id));
        lines.map_or(&[], Vec::as_slice)
    }
}
