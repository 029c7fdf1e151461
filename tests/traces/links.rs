//! Where payload events lead: to an object that is there, at the place that they name, to the
//! bytes that they promise.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use opentelemetry_proto::tonic::{
    common::v1::any_value::Value,
    trace::v1::{Span, span::Event},
};
use serde_json::value::RawValue;
use spanplane::{
    capture::step_of,
    reconcile::PayloadHash,
    record::{Record, RecordKind},
};

use crate::{
    setup::{every_capture, is_root, spans_of_log, text, value},
    support::{Home, message, raw_message},
};

/// The payload that a pointer names, as it came.
fn payload_at(document: &str, pointer: &str) -> Vec<u8> {
    type Members<'d> = BTreeMap<String, &'d RawValue>;

    let [_, steps, place, member] = pointer.split('/').collect::<Vec<_>>()[..] else {
        panic!("{pointer}");
    };
    let document: Members<'_> = serde_json::from_str(document).unwrap();
    let steps: Vec<Members<'_>> = serde_json::from_str(document[steps].get()).unwrap();
    let json = steps[place.parse::<usize>().unwrap()][member].get();
    if member.ends_with("_text") {
        serde_json::from_str::<String>(json).unwrap().into_bytes()
    } else if member.ends_with("_base64") {
        let encoded: String = serde_json::from_str(json).unwrap();
        STANDARD.decode(encoded).unwrap()
    } else {
        json.as_bytes().to_vec()
    }
}

fn assert_leads_to_its_payload(event: &Event, documents: &BTreeMap<String, String>) {
    let of = |what: &str| text(&event.attributes, &format!("crossplane.payload.{what}"));
    let (key, pointer) = (of("key"), of("pointer"));
    let payload = payload_at(&documents[key], pointer);
    assert_eq!(of("sha256"), PayloadHash::of(&payload).to_string());
    let size = value(&event.attributes, "crossplane.payload.size");
    let length = i64::try_from(payload.len()).unwrap();
    assert_eq!(size, Some(&Value::IntValue(length)));
    assert!(of("uri").ends_with(&format!("/{key}")));
    let address = format!("http://127.0.0.1:8686/open?key={key}&pointer={pointer}");
    assert_eq!(of("url"), address);
}

/// Follows every link of a log's spans; returns how many say `unchanged`.
async fn follow_links(records: &[Record]) -> usize {
    let home = Home::new();
    let spans = spans_of_log(&home, &[], records).await;
    let documents = home.documents().await;
    let events = spans.iter().flat_map(|span| &span.events);
    let is_payload = |event: &&Event| event.name.starts_with("function.re") && is_of_payload(event);
    let events: Vec<_> = events.filter(is_payload).collect();
    for event in &events {
        assert_leads_to_its_payload(event, &documents);
    }
    let payloads = records.iter().map(|record| step_of(record).payload);
    let payloads = payloads.filter(|payload| !payload.is_empty());
    assert_eq!(events.len(), payloads.count());

    let roots: Vec<&Span> = spans.iter().filter(|span| is_root(span)).collect();
    let state = |root: &Span| text(&root.attributes, "crossplane.object.state").to_owned();
    let stored = roots.iter().filter(|root| state(root) == "stored").count();
    assert_eq!(stored, documents.len());
    let unchanged = roots.iter().filter(|root| state(root) == "unchanged");
    let unchanged = unchanged.count();
    assert_eq!(stored + unchanged, roots.len());
    unchanged
}

fn is_of_payload(event: &Event) -> bool {
    value(&event.attributes, "crossplane.payload.state").is_some()
}

#[tokio::test]
async fn every_link_of_every_capture_opens() {
    let unchanged = follow_links(&every_capture()).await;
    assert!(unchanged > 20, "{unchanged}");
}

#[tokio::test]
async fn a_payload_that_is_no_json_is_found_as_it_came() {
    let request = message("text", 0, RecordKind::Request, "not \"json\"\n");
    let meta = step_meta_of(&message("binary", 0, RecordKind::Request, ""));
    let binary = raw_message(RecordKind::Request, b"\xff\xfe binary", &meta);
    let response = message("text", 0, RecordKind::Response, r#"{"a": 1}"#);
    assert_eq!(follow_links(&[request, binary, response]).await, 0);
}

/// The meta of a message, as it was sent.
fn step_meta_of(record: &Record) -> Vec<u8> {
    use prost::Message as _;
    use spanplane::proto::pipeline::EmitRequestRequest;

    let message = EmitRequestRequest::decode(record.message.clone()).unwrap();
    message.meta.to_vec()
}
