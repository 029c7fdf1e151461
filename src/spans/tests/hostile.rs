//! Whatever a line holds, its spans stay within the limits.

use std::collections::HashSet;

use opentelemetry_proto::tonic::resource::v1::Resource;
use proptest::prelude::*;
use prost::Message as _;

use super::{
    strategies::{hostile_line, path},
    *,
};

/// What is read rather than searched for, and may be longer.
const LONG: [&str; 20] = [
    "crossplane.conditions",
    "crossplane.desired.added.names",
    "crossplane.desired.changed.names",
    "crossplane.desired.removed.names",
    "crossplane.error",
    "crossplane.flapping.fields",
    "crossplane.object.key",
    "crossplane.object.url",
    "crossplane.payload.key",
    "crossplane.payload.uri",
    "crossplane.payload.url",
    "crossplane.request.url",
    "crossplane.requirements",
    "crossplane.requirements.missing",
    "crossplane.resources.create.names",
    "crossplane.resources.delete.names",
    "crossplane.resources.dropped.names",
    "crossplane.resources.update.names",
    "crossplane.response.url",
    "crossplane.result.message",
];

// The limits as the backends have them, not as the code does.
const MAX_ATTRIBUTES: usize = 32;
const MAX_EVENT_ATTRIBUTES: usize = 8;
const MAX_EVENTS: usize = 32;
/// Tempo's.
const MAX_VALUE_BYTES: usize = 2048 - 1;
/// Jaeger's.
const MAX_TERM_BYTES: usize = 256 - 1;
const ELEMENT_OVERHEAD: usize = 3;
const MAX_SPAN_BYTES: usize = 64 * 1024;

fn check_attributes(attributes: &[KeyValue], limit: usize) -> Result<(), TestCaseError> {
    prop_assert!(attributes.len() <= limit, "{} attributes", attributes.len());
    let keys: HashSet<_> = attributes.iter().map(|attribute| &attribute.key).collect();
    prop_assert_eq!(keys.len(), attributes.len(), "a key stands twice");
    for KeyValue { key, value, .. } in attributes {
        let limit = if LONG.contains(&key.as_str()) {
            MAX_VALUE_BYTES
        } else {
            MAX_TERM_BYTES
        };
        match value.as_ref().and_then(|value| value.value.as_ref()) {
            Some(Value::StringValue(text)) => {
                prop_assert!(
                    !text.is_empty() && text.len() <= limit,
                    "{key}: {}",
                    text.len()
                );
                let is_address = key.split('.').next_back() == Some("url");
                prop_assert!(!is_address || !text.contains(['%', '…']), "{key}: {text}");
            }
            Some(Value::ArrayValue(array)) => {
                let elements: Vec<_> = array.values.iter().map(text_of).collect();
                let costs = elements
                    .iter()
                    .map(|element| element.len() + ELEMENT_OVERHEAD);
                let cost: usize = costs.sum();
                prop_assert!(!elements.is_empty() && cost <= limit, "{key}: {cost}");
                let longest = elements.iter().map(|element| element.len()).max();
                prop_assert!(
                    longest.is_some_and(|bytes| bytes <= MAX_TERM_BYTES),
                    "{key}"
                );
            }
            Some(Value::DoubleValue(number)) => prop_assert!(number.is_finite(), "{key}"),
            Some(Value::BoolValue(_) | Value::IntValue(_)) => {}
            other => prop_assert!(false, "{key} is {other:?}"),
        }
    }
    Ok(())
}

fn check_span(span: &Span) -> Result<(), TestCaseError> {
    check_attributes(&span.attributes, MAX_ATTRIBUTES)?;
    let verbs = ["reconcile", "operation", "RunFunction"];
    prop_assert!(
        verbs.iter().any(|verb| span.name.starts_with(verb)),
        "{}",
        span.name
    );
    prop_assert!(span.name.len() <= 128 && !span.name.contains(char::is_control));
    prop_assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
    let status = span.status.clone().unwrap_or_default();
    prop_assert!(status.message.len() <= 255 && !status.message.contains(char::is_control));
    let has_error_type = !span.says("error.type").is_empty();
    prop_assert_eq!(has_error_type, status.code() == StatusCode::Error);

    prop_assert!(span.events.len() <= MAX_EVENTS);
    prop_assert!(span.events.is_sorted_by_key(|event| event.time_unix_nano));
    for event in &span.events {
        check_attributes(&event.attributes, MAX_EVENT_ATTRIBUTES)?;
        prop_assert!(event.time_unix_nano >= span.start_time_unix_nano);
        prop_assert!(event.time_unix_nano <= span.end_time_unix_nano);
    }
    prop_assert!(span.links.len() <= 2);
    prop_assert!(
        span.encoded_len() <= MAX_SPAN_BYTES,
        "{} bytes",
        span.encoded_len()
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_line_breaks_the_limits(line in hostile_line(), viewer in path(), store in path()) {
        let links = Links::new(&viewer, &store);
        let spans = spans_of(&line, &links);
        prop_assert_eq!(spans.len(), 1 + line.steps.len());
        spans.iter().try_for_each(check_span)?;

        let ids: HashSet<_> = spans.iter().map(|span| &span.span_id).collect();
        prop_assert_eq!(ids.len(), spans.len());
        let (root, steps) = spans.split_first().unwrap();
        for step in steps {
            prop_assert_eq!(&step.trace_id, &root.trace_id);
            prop_assert_eq!(&step.parent_span_id, &root.span_id);
            prop_assert!(step.start_time_unix_nano >= root.start_time_unix_nano);
            prop_assert!(step.end_time_unix_nano <= root.end_time_unix_nano);
        }
        prop_assert_eq!(root.dropped_attributes_count, 0);
        let is_error = root.status.is_some();
        prop_assert_eq!(is_error, line.status.is_failure());

        let request = |spans: &[Span]| {
            let mut batch = SpanBatch::default();
            batch.extend(spans);
            batch.request(&Resource::default())
        };
        prop_assert!(request(&spans) == request(&spans_of(&line.clone(), &links)));
    }

    #[test]
    fn any_spans_can_be_shown(line in hostile_line()) {
        let text = render(&spans_of(&line, &links()), Detail::Full);
        prop_assert!(!text.contains(|character: char| character.is_control() && character != '\n'));
        let spans = text.lines().filter(|line| line.trim_start().starts_with("trace "));
        prop_assert_eq!(spans.count(), 1 + line.steps.len());
    }
}

#[test]
fn the_longest_that_can_be_said_stays_under_64_kib() {
    let long = "x".repeat(5000);
    let mut step = step(0);
    step.iteration = 1;
    step.started_at = at(1000);
    step.name.clone_from(&long);
    step.function.clone_from(&long);
    step.span_id.clone_from(&long);
    step.status = LineStatus::Error;
    step.error = Some(long.clone());
    step.facts.results = vec![
        StepResult {
            severity: Severity::Fatal,
            reason: Some(long.clone()),
            message: long.clone()
        };
        20
    ];
    let names = vec!["n".repeat(60); 500];
    step.facts.desired = Some(Desired {
        added: names.clone(),
        changed: names.clone(),
        removed: names,
        ..Desired::default()
    });
    let mut line = line(vec![step]);
    line.object.key = "k".repeat(1900);
    line.dropped = vec![
        Dropped {
            resource: long,
            step: Some(0),
            observed: true
        };
        20
    ];
    let spans = spans_of(&line, &Links::new("http://localhost:8686", "s3://traces"));
    let bytes = spans[1].encoded_len();
    assert!((30_000..MAX_SPAN_BYTES).contains(&bytes), "{bytes} bytes");
    assert_eq!(spans[1].events.len(), 18);
}
