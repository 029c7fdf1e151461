//! The checks, once everything has been delivered.

mod bucket;
mod entries;
mod logs;
mod payloads;
mod readers;
mod spans;

use std::path::PathBuf;

use bucket::Bucket;

use crate::{
    problems::{Problem, Problems},
    run::Run,
};

/// What was checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checked {
    pub(crate) problems: Problems,
    /// Acknowledged messages that are where they should be.
    pub(crate) found: u64,
    pub(crate) traces: usize,
    pub(crate) objects: usize,
    pub(crate) stored_bytes: u64,
    pub(crate) spans: u64,
    pub(crate) left_out: Vec<String>,
}

pub(crate) async fn check(run: &Run, undelivered: &[PathBuf]) -> anyhow::Result<Checked> {
    let mut problems = Problems::default();
    let stage = &run.stage;
    for path in undelivered {
        problems.add(Problem::Undelivered, path.display().to_string());
    }
    let reader = stage.store.reader();
    let copy = stage.folder.join("index");
    let bucket = Bucket::read(&reader, &copy).await?;
    let traces = run.ledger.traces();
    let spans = stage.collector.spans();
    let found = payloads::check(&traces, &bucket, &mut problems);
    entries::check(&traces, &bucket, &mut problems);
    spans::check(&traces, &spans, &bucket, &mut problems);
    for sidecar in &stage.sidecars {
        logs::check(sidecar, &mut problems)?;
    }
    let left_out = readers::check(&stage.program, &reader, &bucket, &copy, &mut problems).await?;
    let leaks = bucket
        .leaks
        .iter()
        .map(|key| format!("in the store: {key}"));
    let leaks = leaks
        .chain(spans.leaks.iter().map(|name| format!("in a span: {name}")))
        .chain(
            run.ledger
                .leaks()
                .into_iter()
                .map(|text| format!("in an answer: {text}")),
        );
    for leak in leaks {
        problems.add(Problem::Leak, leak);
    }
    Ok(Checked {
        problems,
        found,
        traces: bucket.entries.len(),
        objects: bucket.objects.len(),
        stored_bytes: bucket.bytes,
        spans: spans.count,
        left_out,
    })
}
