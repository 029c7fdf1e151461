//! What happened within a span, and where its payloads are.

use super::*;

#[test]
fn payload_events_say_where_the_payload_is() {
    let mut line = line(vec![step(0), step(1)]);
    line.object.state = PayloadState::Queued;
    line.steps[1].response = None;
    let spans = spans_of(&line, &links());
    assert_eq!(
        event_names(&spans[1]),
        ["function.request", "function.response"]
    );
    assert_eq!(event_names(&spans[2]), ["function.request"]);
    let event = &spans[2].events[0];
    let url = format!("http://localhost:8686/open?key={KEY}&pointer=/steps/1/request");
    assert_eq!(event.says("crossplane.payload.url"), url);
    assert_eq!(spans[2].says("crossplane.request.url"), url);
    assert_eq!(spans[2].says("crossplane.response.url"), "");
    assert_eq!(
        event.says("crossplane.payload.uri"),
        format!("s3://traces/{KEY}")
    );
    assert_eq!(event.says("crossplane.payload.key"), KEY);
    assert_eq!(event.says("crossplane.payload.pointer"), "/steps/1/request");
    assert_eq!(event.says("crossplane.payload.sha256"), "ab".repeat(32));
    assert_eq!(event.says("crossplane.payload.size"), "4096");
    assert_eq!(event.says("crossplane.payload.state"), "queued");
}

#[test]
fn a_url_that_does_not_fit_is_left_out_not_cut() {
    let far = Links::new(&format!("http://{}", "x".repeat(2000)), "s3://b");
    let spans = spans_of(&line(vec![step(0)]), &far);
    assert_eq!(spans[1].says("crossplane.request.url"), "");
    assert_eq!(spans[1].events[0].says("crossplane.payload.url"), "");
    assert_eq!(
        spans[1].events[0].says("crossplane.payload.uri"),
        format!("s3://b/{KEY}")
    );
}

#[test]
fn a_drop_is_told_by_the_step_that_did_it() {
    let mut line = line(vec![step(0), step(1)]);
    line.dropped = vec![
        dropped("subnet", Some(1), true),
        dropped("nobody's", None, true),
        dropped("lost", Some(7), false),
    ];
    line.dropped_count = 3;
    let spans = spans_of(&line, &links());
    assert_eq!(event_names(&spans[0]), ["resource.dropped"; 2]);
    assert_eq!(
        spans[0].says("crossplane.resources.dropped.names"),
        "subnet,nobody's,lost"
    );
    assert_eq!(spans[0].says("crossplane.resources.dropped.count"), "3");
    assert!(!event_names(&spans[1]).contains(&"resource.dropped"));
    let event = spans[2].events.last().unwrap();
    assert_eq!(event.name, "resource.dropped");
    assert_eq!(event.says("crossplane.resource.name"), "subnet");
    assert_eq!(event.says("crossplane.resource.observed"), "true");
    assert_eq!(event.says("crossplane.step.name"), "step-1");
    assert_eq!(
        spans[0].events[1].says("crossplane.resource.observed"),
        "false"
    );
}

#[test]
fn the_first_results_and_drops_become_events_and_the_others_are_counted() {
    let mut line = line(vec![step(0)]);
    line.steps[0].facts.results = vec![result(Severity::Normal, "done"); 10];
    line.steps[0].facts.result_counts.normal = 30;
    line.dropped = (0..11)
        .map(|n| dropped(&n.to_string(), Some(0), false))
        .collect();
    let spans = spans_of(&line, &links());
    let names = event_names(&spans[1]);
    assert_eq!(names[2..10], ["resource.dropped"; 8]);
    assert_eq!(names[10..], ["function.result"; 8]);
    assert_eq!(spans[1].dropped_events_count, 22 + 3);
    assert_eq!(spans[1].says("crossplane.results.normal"), "30");
    line.dropped
        .iter_mut()
        .for_each(|dropped| dropped.step = None);
    let root = &spans_of(&line, &links())[0];
    assert_eq!((root.events.len(), root.dropped_events_count), (8, 3));
}
