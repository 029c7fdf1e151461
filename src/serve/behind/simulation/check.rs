//! The ledger against what the store and the collector have.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use futures_util::{FutureExt as _, TryStreamExt as _};
use object_store::{ObjectStore as _, ObjectStoreExt as _, path::Path};
use serde_json::Value;

use super::world::{Acknowledged, World};
use crate::{
    archive::Compression,
    ids::{OtelSpanId, OtelTraceId},
    reconcile::PayloadHash,
};

/// What was checked.
pub(super) struct Checked {
    /// Payloads that were acknowledged, and found.
    pub(super) payloads: u64,
    /// Reconciles that were split, and put together again.
    pub(super) joined: u64,
    /// Reconciles that were the same as the one before.
    pub(super) unchanged: u64,
}

/// Everything acknowledged is there, and nothing is noted twice. A reconcile that a crash or a late
/// message split has one object, and an entry for each part at most, of which the one with the
/// highest revision is that of the whole.
pub(super) fn check(world: &World) -> Checked {
    let found = Found {
        objects: objects(world),
        entries: entries(world),
        world,
    };
    found.check_objects();
    let latest = found.check_entries();
    let mut payloads = 0;
    for payload in &world.ledger {
        found.check_payload(payload, latest.get(payload.trace_id.as_str()).copied());
        payloads += 1;
    }
    let count = |is_one: fn(&Value) -> bool| latest.values().filter(|entry| is_one(entry)).count();
    Checked {
        payloads,
        joined: count(|entry| revision_of(entry) > 0) as u64,
        unchanged: count(|entry| entry["changed"] == false) as u64,
    }
}

/// What there is at the end.
struct Found<'w> {
    /// By key.
    objects: BTreeMap<String, Value>,
    entries: Vec<Value>,
    world: &'w World,
}

impl Found<'_> {
    /// No trace has two objects.
    fn check_objects(&self) {
        let mut keys: BTreeMap<&str, &str> = BTreeMap::new();
        for (key, document) in &self.objects {
            let trace_id = document["trace_id"].as_str().unwrap();
            if let Some(other) = keys.insert(trace_id, key) {
                panic!("two objects: {other}, {key}{}", self.about(trace_id));
            }
        }
    }

    /// No trace has two entries of one revision; returns those that a reader believes: of the highest
    /// revision, of these with the most steps, of these the one written last. Where the store refused
    /// a part for a while, that may have been noted on its own, before or after another was. A message
    /// may be sent again from the quarantine although it was stored, or be joined with an object that
    /// does not know of an entry before: that is noted once more, too.
    fn check_entries(&self) -> BTreeMap<&str, &Value> {
        let mut latest: BTreeMap<&str, &Value> = BTreeMap::new();
        let mut revisions = BTreeSet::new();
        let refused = &self.world.refused;
        let was_sent_again = self.world.events.contains_key("message in quarantine");
        for entry in &self.entries {
            let trace_id = entry["trace_id"].as_str().unwrap();
            let is_new = revisions.insert((trace_id, revision_of(entry)));
            let is_same = |other: &&Value| *other == entry;
            let was_refused = || refused.iter().any(|key| key.contains(trace_id));
            let is_repeated = || self.entries.iter().filter(is_same).count() > 1;
            assert!(
                is_new || was_sent_again || (was_refused() && !is_repeated()),
                "two entries of one revision{}",
                self.about(trace_id)
            );
            let known = latest.entry(trace_id).or_insert(entry);
            if rank_of(entry) >= rank_of(known) {
                *known = entry;
            }
        }
        latest
    }

    /// What was acknowledged is where the entry of the highest revision says, and has a span.
    fn check_payload(&self, payload: &Acknowledged, entry: Option<&Value>) {
        let trace_id = payload.trace_id.as_str();
        let fail = |what: &str| -> ! { panic!("{what}: {payload:?}{}", self.about(trace_id)) };
        let entry = entry.unwrap_or_else(|| fail("no entry"));
        let mut steps = entry["steps"].as_array().unwrap().iter();
        let step = steps.find(|step| step["span_id"] == payload.span_id.as_str());
        let step = step.unwrap_or_else(|| fail("no step"));
        let which = if payload.is_response {
            "response"
        } else {
            "request"
        };
        let half = &step[which];
        if half["sha256"] != payload.sha256.as_str() {
            fail("not in the entry");
        }
        let document = self.objects.get(entry["object"]["key"].as_str().unwrap());
        let document = document.unwrap_or_else(|| fail("no object"));
        let stored = document.pointer(half["pointer"].as_str().unwrap());
        let stored = stored.unwrap_or_else(|| fail("nothing at its pointer"));
        if PayloadHash::of(stored.to_string().as_bytes()).to_string() != payload.sha256 {
            fail("something else at its pointer");
        }
        let span = (
            OtelTraceId::of(trace_id).to_string(),
            OtelSpanId::of(&payload.span_id).to_string(),
        );
        if !self.world.spans.contains(&span) {
            fail("no span");
        }
    }

    /// Everything about a trace, for whoever has to find out what happened.
    fn about(&self, trace_id: &str) -> String {
        let World { seed, events, .. } = self.world;
        let mut about = format!("\nseed {seed}: {events:?}\ntrace {trace_id}");
        let of_trace = |value: &&Value| value["trace_id"] == trace_id;
        let mut tell = |what: String, value: &Value| {
            write!(about, "\n{what}").unwrap();
            for step in value["steps"].as_array().unwrap() {
                let has = |which: &'static str| if step[which].is_null() { "-" } else { which };
                let (request, response) = (has("request"), has("response"));
                write!(about, " [{} {request} {response}]", step["index"]).unwrap();
            }
        };
        for entry in self.entries.iter().filter(of_trace) {
            let (revision, object) = (revision_of(entry), &entry["object"]);
            tell(
                format!("entry {revision}: {} {object}", entry["status"]),
                entry,
            );
        }
        for (key, document) in &self.objects {
            if of_trace(&document) {
                tell(format!("object {key}"), document);
            }
        }
        about
    }
}

fn revision_of(entry: &Value) -> u64 {
    entry["revision"].as_u64().unwrap_or_default()
}

fn rank_of(entry: &Value) -> (u64, usize) {
    (revision_of(entry), entry["steps"].as_array().unwrap().len())
}

/// Every reconcile's document, by key.
fn objects(world: &World) -> BTreeMap<String, Value> {
    let stored = stored(world, "v1/reconciles").into_iter();
    stored
        .map(|(key, document)| (key, serde_json::from_slice(&document).unwrap()))
        .collect()
}

/// Every entry of the index, in the order in which they were written.
fn entries(world: &World) -> Vec<Value> {
    let mut entries = Vec::new();
    for (_, batch) in stored(world, "v1/index") {
        let lines = batch.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        entries.extend(lines.map(|line| serde_json::from_slice::<Value>(line).unwrap()));
    }
    entries
}

fn stored(world: &World, folder: &str) -> Vec<(String, Vec<u8>)> {
    let store = &world.store.content;
    let listed = store
        .list(Some(&Path::from(folder)))
        .try_collect::<Vec<_>>();
    let mut listed = listed.now_or_never().unwrap().unwrap();
    listed.sort_by_key(|meta| meta.last_modified);
    listed
        .into_iter()
        .map(|meta| {
            let key = meta.location.to_string();
            let object = store.get(&meta.location).now_or_never().unwrap().unwrap();
            let bytes = object.bytes().now_or_never().unwrap().unwrap();
            let content = Compression::of_key(&key).decode(&bytes, u64::MAX).unwrap();
            (key, content)
        })
        .collect()
}
