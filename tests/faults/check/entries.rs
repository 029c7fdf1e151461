//! One object and one entry per trace, and nothing that was never sent.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::bucket::{Bucket, Entry};
use crate::{
    ledger::Sent,
    problems::{Problem, Problems},
};

pub(super) fn check(traces: &HashMap<String, Vec<Sent>>, bucket: &Bucket, problems: &mut Problems) {
    for (trace_id, entries) in &bucket.entries {
        if !traces.contains_key(trace_id) {
            problems.add(Problem::Unknown, format!("entry of trace {trace_id}"));
        }
        let lines: HashSet<_> = entries.iter().map(|entry| &entry.line).collect();
        if lines.len() < entries.len() {
            problems.add(Problem::IdenticalEntries, shapes(bucket, trace_id));
        }
        // NOTE: two sidecars may both note the whole of a reconcile that was split between them, each
        // with what it knows of the reconciles before. Readers take either.
        let differ = |[first, second]: [&Entry; 2]| {
            first.revision == second.revision
                && (first.steps != second.steps || first.object.key != second.object.key)
        };
        let mut others = entries.iter();
        if entries.iter().any(|entry| {
            others.next();
            others.clone().any(|other| differ([entry, other]))
        }) {
            problems.add(Problem::TwoEntries, shapes(bucket, trace_id));
        }
    }

    let mut keys: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (key, object) in &bucket.objects {
        keys.entry(&object.trace_id).or_default().push(key);
    }
    for (trace_id, keys) in keys {
        if !traces.contains_key(trace_id) {
            problems.add(Problem::Unknown, format!("object of trace {trace_id}"));
        }
        if keys.len() > 1 {
            let shapes = shapes(bucket, trace_id);
            problems.add(Problem::TwoObjects, format!("{keys:?}; {shapes}"));
        }
        let entry = bucket.entry(trace_id);
        for key in keys {
            if entry.is_none_or(|entry| entry.object.key != key) {
                problems.add(
                    Problem::Orphan,
                    format!("{key}; {}", shapes(bucket, trace_id)),
                );
            }
        }
    }
    for unreadable in &bucket.unreadable {
        problems.add(Problem::Unreadable, unreadable.clone());
    }
}

/// The entries of a trace, in a few words.
pub(super) fn shapes(bucket: &Bucket, trace_id: &str) -> String {
    let entries = bucket.entries.get(trace_id).into_iter().flatten();
    let shapes: Vec<_> = entries.map(shape).collect();
    format!("{trace_id}: {}", shapes.join(" "))
}

fn shape(entry: &Entry) -> String {
    let Entry {
        revision,
        object,
        batch,
        steps,
        ..
    } = entry;
    let has = |payload: &Option<_>, letter| if payload.is_some() { letter } else { '-' };
    let steps = steps.iter().map(|step| {
        let error = step.error_type.as_ref();
        format!(
            " {}.{}:{}{}{}",
            step.index,
            step.iteration,
            has(&step.request, 'q'),
            has(&step.response, 's'),
            error.map(|error| format!("({error})")).unwrap_or_default()
        )
    });
    format!(
        "[revision {revision} in {}: {} {}, steps{}]",
        last_part(batch),
        object.state,
        last_part(&object.key),
        steps.collect::<String>()
    )
}

fn last_part(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or(key)
}
