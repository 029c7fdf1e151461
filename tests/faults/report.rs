//! The figures of a run.

use std::{fmt, time::Duration};

use serde_json::{Value, json};

use crate::{
    check::Checked,
    ledger::Answers,
    problems::Problem,
    run::Run,
    sidecar::Life,
    store,
    tally::Tally,
    wording::{mebibytes, seconds},
};

#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) store: store::Kind,
    pub(crate) seed: u64,
    tally: Tally,
    answers: Answers,
    pub(crate) checked: Checked,
    starts: usize,
    slowest_start: Duration,
    peak_bytes: u64,
    pub(crate) took: Duration,
}

impl Report {
    pub(crate) fn new(
        store: store::Kind,
        seed: u64,
        run: &Run,
        checked: Checked,
        took: Duration,
    ) -> Self {
        let sidecars = run.stage.sidecars.iter();
        let lives: Vec<&Life> = sidecars.flat_map(|sidecar| &sidecar.lives).collect();
        let starts = lives.iter().filter_map(|life| life.start_took);
        let peaks = lives.iter().map(|life| life.peak_bytes);
        Self {
            store,
            seed,
            tally: run.stage.tally,
            answers: run.ledger.answers(),
            checked,
            starts: lives.len(),
            slowest_start: starts.max().unwrap_or_default(),
            peak_bytes: peaks.max().unwrap_or_default(),
            took,
        }
    }

    /// Nothing is wrong, and something was tried.
    pub(crate) fn holds(&self) -> bool {
        self.checked.problems.is_empty() && self.answers.acknowledged > 0
    }

    fn count(&self, problem: Problem) -> usize {
        self.checked.problems.count(problem)
    }

    /// Name and value of each figure.
    fn figures(&self) -> Vec<(&'static str, Value)> {
        let Tally {
            rounds,
            kills,
            terminations,
            pauses,
            reconfigurations,
            store_faults,
            collector_faults,
            disk_faults,
            clock_steps,
            sent_again,
        } = self.tally;
        let problems: serde_json::Map<_, _> = self
            .checked
            .problems
            .counts()
            .map(|(name, count)| (name, json!(count)))
            .collect();
        vec![
            ("store", json!(format!("{:?}", self.store).to_lowercase())),
            ("seed", json!(self.seed)),
            ("rounds", json!(rounds)),
            ("took_s", json!(self.took.as_secs())),
            ("starts", json!(self.starts)),
            ("kills", json!(kills)),
            ("terminations", json!(terminations)),
            ("pauses", json!(pauses)),
            ("reconfigurations", json!(reconfigurations)),
            ("store_faults", json!(store_faults)),
            ("collector_faults", json!(collector_faults)),
            ("disk_faults", json!(disk_faults)),
            ("clock_steps", json!(clock_steps)),
            ("sent_again", json!(sent_again)),
            ("acknowledged", json!(self.answers.acknowledged)),
            (
                "acknowledged_mib",
                json!(mebibytes(self.answers.acknowledged_bytes)),
            ),
            ("not_acknowledged", json!(self.answers.failed)),
            ("found", json!(self.checked.found)),
            ("lost", json!(self.count(Problem::Lost))),
            ("hidden", json!(self.count(Problem::Hidden))),
            ("traces", json!(self.checked.traces)),
            ("objects", json!(self.checked.objects)),
            ("stored_mib", json!(mebibytes(self.checked.stored_bytes))),
            ("two_objects", json!(self.count(Problem::TwoObjects))),
            ("two_entries", json!(self.count(Problem::TwoEntries))),
            (
                "identical_entries",
                json!(self.count(Problem::IdenticalEntries)),
            ),
            ("spans", json!(self.checked.spans)),
            ("missing_spans", json!(self.count(Problem::MissingSpan))),
            ("leaks", json!(self.count(Problem::Leak))),
            ("slowest_start_s", json!(seconds(self.slowest_start))),
            ("peak_rss_mib", json!(mebibytes(self.peak_bytes))),
            ("problems", Value::Object(problems)),
        ]
    }

    pub(crate) fn to_json(&self) -> Value {
        let figures = self.figures().into_iter();
        Value::Object(
            figures
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.figures() {
            match value {
                Value::Object(counts) => {
                    for (reason, count) in counts {
                        writeln!(out, "  {name}: {reason}: {count}")?;
                    }
                }
                Value::String(text) => writeln!(out, "  {name}: {text}")?,
                value => writeln!(out, "  {name}: {value}")?,
            }
        }
        Ok(())
    }
}
