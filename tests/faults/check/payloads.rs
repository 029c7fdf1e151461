//! Every acknowledged message is in the object that the entry of its trace names.

use std::collections::HashMap;

use spanplane::{reconcile::PayloadHash, record::RecordKind};

use super::{
    bucket::{Bucket, Entry, Object},
    entries::shapes,
};
use crate::{
    ledger::{Content, Sent},
    problems::{Problem, Problems},
};

/// Checks all traces; returns how many acknowledged messages are where they should be.
pub(super) fn check(
    traces: &HashMap<String, Vec<Sent>>,
    bucket: &Bucket,
    problems: &mut Problems,
) -> u64 {
    let mut objects: HashMap<&str, Vec<&Object>> = HashMap::new();
    for object in bucket.objects.values() {
        objects.entry(&object.trace_id).or_default().push(object);
    }
    let mut found = 0;
    for (trace_id, messages) in traces {
        let entry = bucket.entry(trace_id);
        for sent in messages.iter().filter(|sent| sent.is_acknowledged) {
            let Err(why) = find(sent, entry, bucket) else {
                found += 1;
                continue;
            };
            let others = bucket.entries.get(trace_id).into_iter().flatten();
            let in_another_entry = others
                .filter(|other| find(sent, Some(other), bucket).is_ok())
                .count();
            // Its own, and those of the reconciles that it equals.
            let own = objects.get(trace_id.as_str()).into_iter().flatten();
            let entries = bucket.entries.get(trace_id).into_iter().flatten();
            let named = entries.filter_map(|entry| bucket.objects.get(&entry.object.key));
            let mut holding: Vec<_> = own.copied().chain(named).collect();
            holding.retain(|object| holds(object, sent));
            holding.sort_by_key(|object| &object.trace_id);
            holding.dedup_by_key(|object| &object.trace_id);
            let in_objects = holding.len();
            let problem = if in_another_entry + in_objects > 0 {
                Problem::Hidden
            } else {
                Problem::Lost
            };
            let Sent { span_id, kind, .. } = sent;
            problems.add(
                problem,
                format!(
                    "{} {trace_id} {span_id}: {why}; in {in_another_entry} other entries and {in_objects} objects; {}",
                    kind.as_str(),
                    shapes(bucket, trace_id)
                ),
            );
        }
    }
    found
}

/// Whether a message is where this entry says, or why not.
fn find(sent: &Sent, entry: Option<&Entry>, bucket: &Bucket) -> Result<(), &'static str> {
    let entry = entry.ok_or("no entry")?;
    let step = entry
        .steps
        .iter()
        .find(|step| step.span_id == sent.span_id)
        .ok_or("step not in the entry")?;
    let object = bucket.objects.get(&entry.object.key);
    let expected = match &sent.content {
        Content::Payload(expected) => expected,
        Content::Error(error) => {
            if step.error.as_ref() != Some(error) {
                return Err("error not in the entry");
            }
            // NOTE: the object of an equal reconcile has the same errors, under its own ids.
            let object = object.ok_or("the entry's object does not exist")?;
            let is_there = object.errors.values().any(|stored| stored == error);
            return is_there.then_some(()).ok_or("error not in the object");
        }
    };
    let payload = match sent.kind {
        RecordKind::Request => &step.request,
        RecordKind::Response => &step.response,
    };
    let payload = payload.as_ref().ok_or("payload not in the entry")?;
    let hash = PayloadHash::parse(&payload.sha256).ok_or("odd hash in the entry")?;
    if !expected.contains(&hash) {
        return Err("other hash in the entry");
    }
    if entry.object.state == "dropped" {
        return Err("the entry says that it was dropped");
    }
    let object = object.ok_or("the entry's object does not exist")?;
    match object.payloads.get(&payload.pointer) {
        None => Err("nothing at the entry's pointer"),
        Some(stored) if *stored != hash => Err("another payload at the entry's pointer"),
        Some(_) => Ok(()),
    }
}

fn holds(object: &Object, sent: &Sent) -> bool {
    match &sent.content {
        Content::Payload(expected) => {
            let mut stored = object.payloads.values();
            stored.any(|hash| expected.contains(hash))
        }
        Content::Error(error) => object.errors.get(&sent.span_id) == Some(error),
    }
}
