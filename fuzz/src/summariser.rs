//! The summariser: any payloads make a summary, a bounded one, and the same one however they are
//! written.
//!
//! A line for each payload: `>` and a request, `<` and a response, both read as lenient JSON (see
//! `json`), or `=` and the bytes of a response as they are. A response ends a step.

use std::collections::BTreeMap;

use spanplane::{
    fingerprint::Fingerprint,
    line::{MAX_ENTRIES, MAX_NAMES, MAX_TEXT_BYTES, StepFacts, SubjectFacts},
    reconcile::{ClosedReconcile, Closing, Half, Step, Subject, TraceId},
    record::{Position, RecordKind, SegmentId},
    summarise::{FieldHistory, Summariser, Summary},
    time::Timestamp,
};

use super::{agreement::written, json::lenient, slow::Node};

/// A payload: of which step, which half, and what it holds.
type Payload<T> = (usize, RecordKind, T);

/// What a payload holds.
enum Content<'c> {
    Json(Node),
    Bytes(&'c [u8]),
}

/// See above.
pub fn check(input: &[u8]) {
    let payloads = read(input);
    let plain = summarise(&payloads, |node| written(node, false));
    assert_bounded(&plain);
    assert_reads_back(&plain);
    let again = summarise(&payloads, |node| written(node, false));
    assert_eq!(again, plain, "the same payloads have another summary");
    let spaced = summarise(&payloads, |node| written(node, true));
    assert_eq!(spaced, plain, "blanks change the summary");
    let settled = summarise(&payloads, |node| written(&without_repetition(node), false));
    assert_eq!(settled, plain, "of members of one name the last counts");
    check_history(input, &plain);
}

fn read(input: &[u8]) -> Vec<Payload<Content<'_>>> {
    let mut step = 0;
    let mut payloads = Vec::new();
    for line in input.split(|byte| *byte == b'\n') {
        match line.split_first() {
            Some((b'>', json)) => {
                payloads.push((step, RecordKind::Request, Content::Json(lenient(json))));
            }
            Some((b'<', json)) => {
                payloads.push((step, RecordKind::Response, Content::Json(lenient(json))));
                step += 1;
            }
            Some((b'=', bytes)) => {
                payloads.push((step, RecordKind::Response, Content::Bytes(bytes)));
                step += 1;
            }
            _ => {}
        }
    }
    payloads
}

fn summarise(payloads: &[Payload<Content<'_>>], write: impl Fn(&Node) -> String) -> Summary {
    let mut summariser = Summariser::new();
    let mut steps: BTreeMap<usize, Step> = BTreeMap::new();
    for (step, kind, content) in payloads {
        let half = match content {
            Content::Json(node) => {
                let text = write(node);
                let is_read = summariser.read(*step, *kind, text.as_bytes());
                assert_eq!(is_read, matches!(node, Node::Object(_)), "{text}");
                half(text.len())
            }
            Content::Bytes(bytes) => {
                summariser.read(*step, *kind, bytes);
                half(bytes.len())
            }
        };
        let step = steps.entry(*step).or_insert_with(|| step_at(*step));
        match kind {
            RecordKind::Request => step.request = Some(half),
            RecordKind::Response => step.response = Some(half),
        }
    }
    summariser.finish(&ClosedReconcile {
        trace_id: TraceId("trace".into()),
        subject: Subject::default(),
        steps: steps.into_values().collect(),
        records: Vec::new(),
        first_received_at: Timestamp::default(),
        maybe_fatal: false,
        succeeded_at: None,
        closing: Closing::Idle,
    })
}

fn step_at(place: usize) -> Step {
    Step {
        span_id: format!("span-{place}"),
        index: i32::try_from(place).unwrap(),
        iteration: 0,
        name: format!("step-{place}"),
        function: "function".to_owned(),
        started_at: Timestamp::default(),
        error: String::new(),
        request: None,
        response: None,
        unanswered: None,
    }
}

fn half(size: usize) -> Half {
    Half {
        position: Position {
            segment: SegmentId(1),
            offset: 8,
        },
        fingerprint: Fingerprint::of(b""),
        size,
        received_at: Timestamp::default(),
    }
}

/// Of members of one name, only the last.
fn without_repetition(node: &Node) -> Node {
    let Node::Object(members) = node else {
        return node.clone();
    };
    let mut settled: Vec<(String, Node)> = Vec::new();
    for (name, value) in members {
        settled.retain(|(other, _)| other != name);
        settled.push((name.clone(), value.clone()));
    }
    Node::Object(settled)
}

fn assert_bounded(summary: &Summary) {
    for step in &summary.steps {
        let facts = &step.facts;
        assert!(facts.results.len() <= MAX_ENTRIES);
        assert!(facts.conditions.len() <= MAX_ENTRIES);
        assert!(facts.requirements.len() <= MAX_ENTRIES);
        assert!(facts.ttl_s.is_none_or(f64::is_finite));
        for text in facts.tag.iter().chain(&facts.input_kind) {
            assert!(text.len() <= 2 * MAX_TEXT_BYTES + 1);
        }
        let counts = facts.result_counts;
        let count = counts.normal + counts.warning + counts.fatal;
        assert!(facts.results.len() as u64 <= count);
        if let Some(desired) = &facts.desired {
            assert!(desired.ready <= desired.total);
            for (names, count) in [
                (&desired.added, desired.added_count),
                (&desired.changed, desired.changed_count),
                (&desired.removed, desired.removed_count),
            ] {
                assert!(names.len() <= MAX_NAMES && names.is_sorted());
                assert!(names.len() as u64 <= count);
            }
            assert!(desired.added_count + desired.changed_count <= desired.total);
        }
    }
    let outcome = &summary.outcome;
    for (names, count) in [
        (&outcome.create, outcome.create_count),
        (&outcome.update, outcome.update_count),
        (&outcome.delete, outcome.delete_count),
    ] {
        assert!(names.len() <= MAX_NAMES && names.is_sorted());
        assert!(names.len() as u64 <= count);
    }
    assert!(summary.dropped.len() as u64 <= summary.dropped_count);
    let worst = summary.steps.iter().map(|step| step.status).max();
    assert_eq!(summary.status, worst.unwrap_or_default());
}

/// What the index gets is what a reader of the index gets.
fn assert_reads_back(summary: &Summary) {
    for step in &summary.steps {
        let text = serde_json::to_string(&step.facts).unwrap();
        let facts: StepFacts = serde_json::from_str(&text).unwrap();
        assert_eq!(facts, step.facts, "{text}");
    }
    let text = serde_json::to_string(&summary.subject).unwrap();
    let subject: SubjectFacts = serde_json::from_str(&text).unwrap();
    assert_eq!(subject, summary.subject, "{text}");
}

/// A history of fields goes on from any bytes, and reads back.
fn check_history(input: &[u8], summary: &Summary) {
    let header = [&[1, 1, 1, 0], input].concat();
    for bytes in [input, &header] {
        let mut history = FieldHistory::from_bytes(bytes).unwrap_or_default();
        for _ in 0..2 {
            history.advance(&summary.fields);
            let again = FieldHistory::from_bytes(&history.to_bytes());
            assert_eq!(again.as_ref(), Some(&history));
        }
    }
}
