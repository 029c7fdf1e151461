//! Every acknowledged step has a span, and what spans say about the store is true.

use std::collections::HashMap;

use spanplane::{
    ids::{OtelSpanId, OtelTraceId},
    reconcile::PayloadHash,
};

use super::bucket::{Bucket, Object};
use crate::{
    collector::{Claim, Spans},
    ledger::{Content, Sent},
    problems::{Problem, Problems},
};

pub(super) fn check(
    traces: &HashMap<String, Vec<Sent>>,
    spans: &Spans,
    bucket: &Bucket,
    problems: &mut Problems,
) {
    for (trace_id, messages) in traces {
        let trace = OtelTraceId::of(trace_id).0.to_vec();
        let mut missing: Vec<_> = messages
            .iter()
            .filter(|sent| sent.is_acknowledged)
            .map(|sent| &sent.span_id)
            .filter(|span_id| {
                let span = OtelSpanId::of(span_id).0.to_vec();
                !spans.ids.contains(&(trace.clone(), span))
            })
            .collect();
        missing.dedup();
        for span_id in missing {
            problems.add(Problem::MissingSpan, format!("{trace_id} {span_id}"));
        }
    }
    let sent = traces.values().flatten();
    let otherwise_redacted: HashMap<_, _> = sent
        .filter_map(|sent| match sent.content {
            Content::Payload([one, other]) => Some([(one, other), (other, one)]),
            Content::Error(_) => None,
        })
        .flatten()
        .collect();
    for (claim, by) in &spans.claims {
        let Claim {
            key,
            pointer,
            sha256,
        } = claim;
        let object = bucket.objects.get(key).or_else(|| merged(bucket, key));
        let Some(object) = object else {
            problems.add(Problem::FalseClaim, format!("{by}: {key} does not exist"));
            continue;
        };
        // NOTE: a payload may have moved within its object since, when a late part joined it. And a
        // sidecar that is killed and restarted with other rules redacts anew what it was at.
        let holds = |hash| object.payloads.values().any(|stored| *stored == hash);
        let hash = PayloadHash::parse(sha256);
        let other = hash.and_then(|hash| otherwise_redacted.get(&hash).copied());
        if !hash.into_iter().chain(other).any(holds) {
            problems.add(
                Problem::FalseClaim,
                format!("{by}: {key} does not hold {sha256}, said to be at {pointer}"),
            );
        }
    }
}

/// What a part was merged into after its spans were sent. The viewer leads there.
fn merged<'b>(bucket: &'b Bucket, key: &str) -> Option<&'b Object> {
    let entries = bucket.entries.iter();
    let of_trace = entries.filter(|(trace_id, _)| key.contains(trace_id.as_str()));
    let entries = of_trace.flat_map(|(_, entries)| entries);
    let latest = entries.max_by_key(|entry| entry.revision)?;
    bucket.objects.get(&latest.object.key)
}
