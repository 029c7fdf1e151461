//! Parts of a reconcile that are joined, in whatever order they were stored.

use std::{cell::Cell, io::Read, pin::Pin};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    assemble::tests::captures::{follow_part, follow_whole},
    capture::step_of,
    line::samples,
    memory::{Held, SharedMemory, Unlimited},
};

/// What came of joining.
struct Joined {
    line: Line,
    /// Empty if there is nothing new.
    document: Vec<u8>,
}

fn join(earlier: &[u8], late: &[u8], late_line: &Line) -> Option<Joined> {
    join_within(&Unlimited, earlier, late, late_line)
}

fn join_within(
    memory: &dyn SharedMemory,
    earlier: &[u8],
    late: &[u8],
    late_line: &Line,
) -> Option<Joined> {
    let open = |document: &[u8]| {
        let document = document.to_vec();
        move || -> io::Result<Box<dyn Read>> { Ok(Box::new(io::Cursor::new(document.clone()))) }
    };
    let (mut earlier, mut late) = (open(earlier), open(late));
    let (expected, mut document) = (Cell::new(0), Vec::new());
    let line = join_documents(
        [&mut earlier, &mut late],
        late_line,
        None,
        false,
        memory,
        &expected,
        &mut document,
    );
    let line = line.unwrap()?;
    if !document.is_empty() {
        let expected = usize::try_from(expected.get()).unwrap();
        assert!((1..=document.len()).contains(&expected));
    }
    Some(Joined { line, document })
}

fn document(steps: &Value) -> Vec<u8> {
    let document = json!({
        "v": 1, "trace_id": "t",
        "subject": {
            "type": "composite", "api_version": "", "kind": "", "namespace": "", "name": "",
            "uid": "", "composition": "",
        },
        "steps": steps,
    });
    document.to_string().into_bytes()
}

fn step(index: i32, request: &Value, response: &Value) -> Value {
    let ended_at = (!response.is_null()).then_some("2026-01-01T00:00:00Z");
    json!({
        "index": index, "name": "n", "iteration": 0, "function": "f",
        "span_id": index.to_string(), "timestamp": "2026-01-01T00:00:00Z",
        "ended_at": ended_at, "error": null, "request": request, "response": response,
    })
}

fn line() -> Line {
    samples::line("t", samples::at(0))
}

#[test]
fn what_came_late_fills_the_gap_and_everything_else_stays() {
    let (asked, answered) = (json!({"a": 1}), json!({"b": [2]}));
    let earlier = document(&json!([
        step(0, &asked, &answered),
        step(2, &asked, &Value::Null)
    ]));
    let late = document(&json!([
        step(1, &asked, &answered),
        step(2, &Value::Null, &answered),
        step(2, &json!("another"), &Value::Null),
    ]));
    let joined = join(&earlier, &late, &line()).unwrap();
    let parsed: Value = serde_json::from_slice(&joined.document).unwrap();
    let expected = json!([
        step(0, &asked, &answered),
        step(1, &asked, &answered),
        step(2, &asked, &answered),
        step(2, &json!("another"), &Value::Null),
    ]);
    assert_eq!(parsed["steps"], expected);
    assert_eq!((&parsed["revision"], joined.line.revision), (&json!(1), 1));
    let steps = joined.line.steps.iter().map(|step| step.index);
    assert!(steps.eq([0, 1, 2, 2]));
    for payload in refs(&joined.line) {
        assert!(!parsed.pointer(&payload.pointer).unwrap().is_null());
    }
    // All of it is there now.
    let again = join(&joined.document, &late, &line()).unwrap();
    assert_eq!((again.document.len(), &again.line), (0, &joined.line));
}

#[test]
fn an_error_that_differs_is_kept() {
    let failed = |error: &str| {
        let mut step = step(0, &json!({}), &Value::Null);
        step["ended_at"] = json!("2026-01-01T00:00:00Z");
        step["error"] = json!(error);
        step
    };
    let earlier = document(&json!([failed("one")]));
    let joined = join(&earlier, &document(&json!([failed("other")])), &line()).unwrap();
    let parsed: Value = serde_json::from_slice(&joined.document).unwrap();
    let errors = parsed["steps"].as_array().unwrap().iter();
    assert!(errors.map(|step| &step["error"]).eq(["one", "other"]));
    let same = join(&joined.document, &earlier, &line()).unwrap();
    assert_eq!(same.document, b"");
}

#[test]
fn payloads_that_are_not_json_are_joined_as_they_stand() {
    let mut text = step(0, &Value::Null, &Value::Null);
    text["request_text"] = json!("é \u{1}");
    let mut binary = step(1, &Value::Null, &Value::Null);
    binary["request_base64"] = json!("//4=");
    let (earlier, late) = (document(&json!([text])), document(&json!([binary])));
    let joined = join(&earlier, &late, &line()).unwrap();
    let parsed: Value = serde_json::from_slice(&joined.document).unwrap();
    assert_eq!(parsed["steps"][0]["request_text"], "é \u{1}");
    assert_eq!(parsed["steps"][1]["request_base64"], "//4=");
    let refs: Vec<_> = refs(&joined.line).collect();
    let told = refs
        .iter()
        .map(|it| (it.pointer.as_str(), it.size, it.sha256.as_str()));
    let hashes = ["é \u{1}".as_bytes(), b"\xff\xfe"].map(|it| PayloadHash::of(it).to_string());
    assert!(told.eq([
        ("/steps/0/request_text", 4, hashes[0].as_str()),
        ("/steps/1/request_base64", 2, &hashes[1]),
    ]));
}

#[test]
fn a_document_joined_with_itself_has_nothing_new_and_its_own_line() {
    for capture in [&capture!("dropper")[..], capture!("broken")] {
        for reconcile in follow(capture) {
            let document = publish(capture, &reconcile).document;
            let line = read_line(capture, &reconcile, Context::default());
            let joined = join(&document, &document, &line).unwrap();
            assert_eq!((joined.document.len(), joined.line), (0, line));
        }
    }
}

#[test]
fn what_is_no_document_or_of_another_reconcile_is_not_joined() {
    let document = document(&json!([step(0, &json!({}), &Value::Null)]));
    let other = String::from_utf8(document.clone()).unwrap();
    let other = other.replace("\"trace_id\":\"t\"", "\"trace_id\":\"u\"");
    for other in [
        &b""[..],
        b"{}",
        b"[1]",
        br#"{"v":2,"trace_id":"t","subject":{},"steps":[]}"#,
        &document[..document.len() - 2],
        other.as_bytes(),
    ] {
        assert!(join(other, &document, &line()).is_none());
        assert!(join(&document, other, &line()).is_none());
    }
}

#[test]
fn redacted_values_are_counted_as_the_line_says_or_as_they_are_marked() {
    let payload = json!({"a": "**REDACTED**", "b": ["**REDACTED**", "**REDACTED** "]});
    let earlier = document(&json!([step(0, &payload, &Value::Null)]));
    let late = document(&json!([step(1, &payload, &Value::Null)]));
    let mut line = line();
    line.steps[0].request = Some(PayloadRef {
        pointer: "/steps/0/request".to_owned(),
        sha256: String::new(),
        size: 1,
        redacted: 1,
    });
    let joined = join(&earlier, &late, &line).unwrap();
    assert!(
        refs(&joined.line)
            .map(|payload| payload.redacted)
            .eq([2, 1])
    );
}

/// There is memory for payloads up to this size.
#[derive(Debug)]
struct UpTo(usize);

impl SharedMemory for UpTo {
    fn hold_payload(&self, bytes: usize) -> Option<Held> {
        (bytes <= self.0).then(Held::untold)
    }

    fn hold(&self, _: usize) -> Pin<Box<dyn Future<Output = Held> + Send>> {
        unreachable!("nothing is held that is not a payload")
    }
}

#[test]
fn a_payload_that_there_is_no_memory_for_is_joined_and_not_summarised() {
    let result = json!({"message": "x".repeat(300_000), "severity": "SEVERITY_FATAL"});
    let (asked, answered) = (json!({"meta": {"tag": "a"}}), json!({"results": [result]}));
    let earlier = document(&json!([step(0, &asked, &answered)]));
    let late = document(&json!([step(1, &asked, &answered)]));
    let whole = join(&earlier, &late, &line()).unwrap();
    let joined = join_within(&UpTo(1000), &earlier, &late, &line()).unwrap();
    assert_eq!(joined.document, whole.document);
    assert!(refs(&joined.line).eq(refs(&whole.line)));
    let facts = |joined: &Joined| {
        let steps = joined.line.steps.iter().map(|step| &step.facts);
        let steps = steps.map(|facts| (facts.summary.is_some(), facts.result_counts.fatal));
        steps.collect::<Vec<_>>()
    };
    assert_eq!(facts(&whole), [(false, 1); 2]);
    assert_eq!(facts(&joined), [(true, 1); 2]);
    assert_eq!(joined.line.status, whole.line.status);
}

/// A line without what only the process knows that received all of a reconcile, and what differs
/// because something was joined.
fn comparable(mut line: Line) -> Line {
    line.revision = 0;
    for step in &mut line.steps {
        for payload in [&mut step.request, &mut step.response]
            .into_iter()
            .flatten()
        {
            // Values that core redacted can't be told from others in what is stored.
            payload.redacted = 0;
        }
    }
    line
}

/// Joins the parts of a reconcile in this order and compares with the whole.
fn assert_joined_is_whole(capture: &[u8], whole: &ClosedReconcile, parts: &[ClosedReconcile]) {
    let mut stored = Vec::new();
    let mut told = None;
    for part in parts {
        let document = publish(capture, part).document;
        let part_line = read_line(capture, part, Context::default());
        if stored.is_empty() {
            (stored, told) = (document, Some(part_line));
            continue;
        }
        let joined = join(&stored, &document, &part_line).unwrap();
        assert!(!joined.document.is_empty());
        (stored, told) = (joined.document, Some(joined.line));
    }
    let told = told.unwrap();
    let revisions = u32::try_from(parts.len() - 1).unwrap();
    let document: Value = serde_json::from_slice(&stored).unwrap();
    assert_eq!(
        (told.revision, &document["revision"]),
        (revisions, &json!(revisions))
    );
    let whole_line = read_line(capture, whole, Context::default());
    assert_eq!(comparable(told), comparable(whole_line));
    // But for its revision, the document is that of the whole, byte for byte.
    let whole = publish(capture, whole).document;
    let revision = format!(",\"revision\":{revisions}");
    let stored = String::from_utf8(stored).unwrap();
    assert_eq!(stored.replacen(&revision, "", 1).into_bytes(), whole);
}

/// The places of a trace's messages in a capture, for some of its traces.
fn traces(capture: &[u8]) -> Vec<Vec<usize>> {
    let mut traces: Vec<(String, Vec<usize>)> = Vec::new();
    for (place, record) in messages(capture).iter().enumerate() {
        let trace = step_of(record).meta.trace_id;
        match traces.iter_mut().find(|(known, _)| *known == trace) {
            Some((_, places)) => places.push(place),
            None => traces.push((trace, vec![place])),
        }
    }
    traces.into_iter().map(|(_, places)| places).collect()
}

fn split(capture: &[u8], places: &[usize], cut: usize) -> (ClosedReconcile, [ClosedReconcile; 2]) {
    let (first, rest) = places.split_at(cut);
    let parts = [follow_part(capture, first), follow_whole(capture, rest)];
    (follow_whole(capture, places), parts)
}

#[test]
fn a_reconcile_split_anywhere_gives_the_document_and_the_line_of_the_whole() {
    let captures = [
        (&capture!("dropper")[..], 3),
        (capture!("broken"), 58),
        (capture!("requirements"), 2),
        (capture!("secrets"), 2),
        (capture!("operation"), 4),
        (capture!("network"), 2),
    ];
    let mut splits = 0;
    for (capture, count) in captures {
        for places in traces(capture).into_iter().take(count) {
            for cut in 1..places.len() {
                let (whole, [first, rest]) = split(capture, &places, cut);
                assert_joined_is_whole(capture, &whole, &[first.clone(), rest.clone()]);
                assert_joined_is_whole(capture, &whole, &[rest, first]);
                splits += 1;
            }
        }
    }
    assert!(splits > 200, "{splits}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn parts_of_any_number_are_joined_in_any_order(
        trace in any::<prop::sample::Index>(),
        owners in prop::collection::vec(0..4_usize, 16),
        order in Just([0, 1, 2, 3]).prop_shuffle(),
    ) {
        let capture = capture!("dropper");
        let traces = traces(capture);
        let places = trace.get(&traces);
        let mut parts: [Vec<usize>; 4] = Default::default();
        for (place, owner) in places.iter().zip(owners) {
            parts[owner].push(*place);
        }
        let parts = order.map(|part| std::mem::take(&mut parts[part]));
        let parts: Vec<_> = parts
            .iter()
            .filter(|places| !places.is_empty())
            .map(|places| follow_part(capture, places))
            .collect();
        if parts.len() > 1 {
            assert_joined_is_whole(capture, &follow_whole(capture, places), &parts);
        }
    }
}
