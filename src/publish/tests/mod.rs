//! Documents and lines of what a real Crossplane sent.

mod joining;

use std::{io, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::Value;

use super::*;
use crate::{
    assemble::tests::captures::{capture, follow, messages},
    capture::step_of,
    line::{Line, ObjectRef, PayloadRef, PayloadState, Status},
    reconcile::{ClosedReconcile, Closing, Half, NO_RESPONSE_AFTER, PayloadHash},
    record::{Record, RecordKind},
    redact::Redactor,
    summarise::{Summariser, Summary},
};

/// A capture, as the log that was followed.
struct Recorded(Vec<Record>);

impl PayloadSource for Recorded {
    fn read_payload(&mut self, _: RecordKind, half: &Half) -> io::Result<Option<Bytes>> {
        let place = usize::try_from(half.position.offset).unwrap();
        Ok(Some(step_of(&self.0[place]).payload))
    }
}

struct Published {
    document: Vec<u8>,
    report: DocumentReport,
    summary: Summary,
}

fn publish(capture: &[u8], reconcile: &ClosedReconcile) -> Published {
    let mut source = Recorded(messages(capture));
    let redactor = Redactor::new::<&str>(&[], &[]).unwrap();
    let mut summariser = Summariser::new();
    let mut document = Vec::new();
    let report = write_document(
        reconcile,
        &mut source,
        &redactor,
        &mut |step, kind, payload| summariser.read(step, kind, payload),
        &mut document,
    )
    .unwrap();
    Published {
        document,
        report,
        summary: summariser.finish(reconcile),
    }
}

fn object() -> ObjectRef {
    ObjectRef {
        key: "v1/reconciles/x".to_owned(),
        state: PayloadState::Stored,
        bytes: 1,
        redaction: None,
    }
}

fn read_line(capture: &[u8], reconcile: &ClosedReconcile, context: Context) -> Line {
    let Published {
        report, summary, ..
    } = publish(capture, reconcile);
    line_of(reconcile, summary, report.steps, object(), context)
}

/// The reconciles of one subject.
fn of_subject(capture: &[u8], name: &str) -> Vec<ClosedReconcile> {
    let closed = follow(capture).into_iter();
    closed
        .filter(|reconcile| reconcile.subject.name == name)
        .collect()
}

fn refs(line: &Line) -> impl Iterator<Item = &PayloadRef> {
    let steps = line.steps.iter();
    steps
        .flat_map(|step| [&step.request, &step.response])
        .flatten()
}

#[test]
fn pointers_and_hashes_are_those_of_the_document() {
    for capture in [
        &capture!("dropper")[..],
        capture!("secrets"),
        capture!("broken"),
    ] {
        for reconcile in follow(capture) {
            let document = publish(capture, &reconcile).document;
            let text = std::str::from_utf8(&document).unwrap();
            let parsed: Value = serde_json::from_str(text).unwrap();
            let line = read_line(capture, &reconcile, Context::default());
            assert_eq!(parsed["trace_id"], line.trace_id);
            for payload in refs(&line) {
                let value = parsed.pointer(&payload.pointer).unwrap();
                assert!(value.is_object(), "{}", payload.pointer);
                // The very bytes stand in the document.
                let hashes_match = |start: usize| {
                    let end = start + usize::try_from(payload.size).unwrap();
                    let bytes = document.get(start..end).unwrap_or_default();
                    PayloadHash::of(bytes).to_string() == payload.sha256
                };
                let member = payload.pointer.rsplit_once('/').unwrap().1;
                let marker = format!("\"{member}\":");
                let mut places = text.match_indices(&marker);
                assert!(places.any(|(at, _)| hashes_match(at + marker.len())));
            }
        }
    }
}

#[test]
fn a_line_is_the_same_whether_read_or_taken_from_the_one_before() {
    let capture = capture!("steady-idle");
    let reconciles = of_subject(capture, "calm-1");
    let [first, second, ..] = &reconciles[..] else {
        panic!("the capture has two");
    };
    assert_eq!(first.fingerprint(), second.fingerprint());
    let context = || Context {
        previous_trace_id: Some(first.trace_id.to_string()),
        ..Context::default()
    };
    let read = read_line(capture, second, context());
    let last = read_line(capture, first, Context::default());
    assert_eq!(line_again(last, second, object(), context()), read);
}

#[test]
fn an_answer_is_cached_if_the_same_was_asked_within_its_time_and_it_took_nothing() {
    let capture = capture!("steady-idle");
    let mut reconciles = of_subject(capture, "calm-1");
    let second = reconciles.remove(1);
    let before = read_line(capture, &reconciles[0], Context::default());
    let ttl = Duration::from_secs_f64(before.steps[0].facts.ttl_s.unwrap());
    let cached = |after: Duration, took: Duration, before: &Line| {
        let mut reconcile = second.clone();
        let step = &mut reconcile.steps[0];
        let asked_at = step.request.as_ref().unwrap().received_at;
        step.response.as_mut().unwrap().received_at = asked_at + took;
        let answered_at = step.started_at - after;
        let context = Context {
            before: Some(Before::new(before, answered_at)),
            ..Context::default()
        };
        read_line(capture, &reconcile, context).steps[0].cached
    };
    let short = Duration::from_millis(1);
    assert!(cached(ttl / 2, short, &before));
    assert!(!cached(ttl * 2, short, &before));
    assert!(!cached(ttl / 2, Duration::from_millis(2), &before));
    let mut other = before.clone();
    other.steps[0].facts.tag = Some("other".to_owned());
    assert!(!cached(ttl / 2, short, &other));
    other.steps[0].facts.tag = None;
    assert!(!cached(ttl / 2, short, &other));
    let mut fleeting = before.clone();
    fleeting.steps[0].facts.ttl_s = Some(0.0);
    assert!(!cached(Duration::ZERO, short, &fleeting));
}

#[test]
fn a_reconcile_ends_with_its_last_response_or_when_waiting_for_it_ends() {
    let capture = capture!("broken");
    let mut overdue = of_subject(capture, "hanger").remove(0);
    let asked = overdue.steps.last().unwrap().clone();
    let asked_at = asked.request.unwrap().received_at;
    let next_at = overdue.succeeded_at;
    assert!(next_at.is_some());
    for (closing, succeeded_at, end) in [
        (Closing::Overdue, None, asked_at + NO_RESPONSE_AFTER),
        (Closing::Succeeded, next_at, next_at.unwrap()),
        (Closing::ShuttingDown, None, asked.started_at),
    ] {
        overdue.closing = closing;
        overdue.succeeded_at = succeeded_at;
        let line = read_line(capture, &overdue, Context::default());
        assert_eq!(line.status, Status::Incomplete);
        assert_eq!(line.ended_at, end, "{closing:?}");
        assert_eq!(line.steps.last().unwrap().ended_at, None);
    }
}

#[test]
fn a_clock_that_steps_back_gives_no_negative_time() {
    let capture = capture!("dropper");
    let mut reconcile = of_subject(capture, "assets").remove(0);
    for step in &mut reconcile.steps {
        step.response.as_mut().unwrap().received_at = step.started_at - Duration::from_mins(1);
    }
    let line = read_line(capture, &reconcile, Context::default());
    assert!(line.ended_at >= line.started_at);
    assert!(line.steps.iter().all(|step| step.duration_ms == Some(0.0)));
}

/// The same payload for every half.
struct Same(Bytes);

impl PayloadSource for Same {
    fn read_payload(&mut self, _: RecordKind, _: &Half) -> io::Result<Option<Bytes>> {
        Ok(Some(self.0.clone()))
    }
}

/// Counts what is written at once, as one that keeps all of it would have to hold it.
#[derive(Default)]
struct Pieces {
    document: Vec<u8>,
    largest: usize,
}

impl io::Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.largest = self.largest.max(bytes.len());
        self.document.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn written(payload: &[u8]) -> Pieces {
    let reconcile = &of_subject(capture!("dropper"), "assets")[0];
    let redactor = Redactor::new::<&str>(&[], &[]).unwrap();
    let mut pieces = Pieces::default();
    let mut source = Same(Bytes::copy_from_slice(payload));
    let visit = &mut |_: usize, _: RecordKind, _: &[u8]| false;
    write_document(reconcile, &mut source, &redactor, visit, &mut pieces).unwrap();
    pieces
}

#[test]
fn what_is_no_json_is_written_piece_by_piece() {
    // Six bytes each, as JSON; and characters of several bytes across the borders of pieces.
    let text = format!(
        "{}{}",
        "\u{1}".repeat(100_000),
        "aé€\u{1F600}\"\\\n".repeat(20_000)
    );
    let pieces = written(text.as_bytes());
    assert!(pieces.largest < 200_000, "{} bytes", pieces.largest);
    let document: Value = serde_json::from_slice(&pieces.document).unwrap();
    let at = |pointer| document.pointer(pointer).and_then(Value::as_str);
    assert_eq!(at("/steps/0/request_text"), Some(text.as_str()));
    assert_eq!(at("/steps/0/response_text"), Some(text.as_str()));

    let bytes: Vec<u8> = (0..100_001_u32).map(|n| 200 + (n % 50) as u8).collect();
    let pieces = written(&bytes);
    assert!(pieces.largest < 50_000, "{} bytes", pieces.largest);
    let document: Value = serde_json::from_slice(&pieces.document).unwrap();
    let encoded = document.pointer("/steps/0/request_base64").unwrap();
    assert_eq!(encoded, &Value::from(STANDARD.encode(&bytes)));
}
