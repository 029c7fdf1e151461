//! What stands on root and steps.

use opentelemetry_proto::tonic::{resource::v1::Resource, trace::v1::span::SpanKind};

use super::*;
use crate::line::{Condition, FlappingField, INTERRUPTED, Requirement};

#[test]
fn a_root_and_a_span_a_step_are_one_trace() {
    let spans = spans_of(&line(vec![step(0), step(1)]), &links());
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "reconcile networks-aws",
            "RunFunction step-0",
            "RunFunction step-1"
        ]
    );
    let kinds: Vec<_> = spans.iter().map(Span::kind).collect();
    assert_eq!(
        kinds,
        [SpanKind::Internal, SpanKind::Client, SpanKind::Client]
    );
    let trace = OtelTraceId::of(TRACE);
    assert!(
        spans
            .iter()
            .all(|span| span.trace_id == trace.0 && span.flags == SAMPLED)
    );
    assert_eq!(spans[0].span_id, trace.root_span().0);
    assert!(spans[0].parent_span_id.is_empty());
    assert!(
        spans[1..]
            .iter()
            .all(|span| span.parent_span_id == spans[0].span_id)
    );
    assert_eq!(spans[2].span_id, OtelSpanId::of(&step(1).span_id).0);
}

#[test]
fn names_are_told_where_there_are_any() {
    let mut line = line(vec![step(0), step(1)]);
    line.subject.composition = String::new();
    line.steps[0].name = String::new();
    line.steps[1].name = String::new();
    line.steps[1].function = String::new();
    let names = |line: &Line| -> Vec<_> {
        let spans = spans_of(line, &links());
        spans.into_iter().map(|span| span.name).collect()
    };
    assert_eq!(
        names(&line),
        [
            "reconcile",
            "RunFunction function-go-templating",
            "RunFunction"
        ]
    );
    line.subject.kind_of_subject = SubjectType::Operation;
    line.subject.composition = "ignored".to_owned();
    assert_eq!(names(&line)[0], "operation");
    line.steps[0].name = format!("a\n{}", "é".repeat(100));
    let long = &names(&line)[1];
    assert!(
        long.starts_with("RunFunction a éé") && long.ends_with("é…"),
        "{long}"
    );
    assert!(long.len() <= 128, "{long}");
}

#[test]
fn success_and_warnings_leave_the_status_unset() {
    for status in [LineStatus::Ok, LineStatus::Warning] {
        let mut line = line(vec![step(0)]);
        line.status = status;
        line.steps[0].status = status;
        let spans = spans_of(&line, &links());
        assert!(spans.iter().all(|span| span.status.is_none()));
        assert!(spans.iter().all(|span| span.says("error.type").is_empty()));
        assert_eq!(
            spans[0].says("crossplane.reconcile.status"),
            status.as_str()
        );
        assert_eq!(spans[1].says("crossplane.step.status"), status.as_str());
    }
}

#[test]
fn a_failed_call_is_told_on_its_step_and_on_the_root() {
    let mut line = line(vec![step(0), step(1)]);
    line.status = LineStatus::Error;
    line.steps[1].status = LineStatus::Error;
    line.steps[1].error = Some("cannot run\nFunction".to_owned());
    line.steps[1].error_type = Some("Unavailable".to_owned());
    let spans = spans_of(&line, &links());
    assert_eq!(spans[1].status, None);
    for span in [&spans[0], &spans[2]] {
        let status = span.status.as_ref().unwrap();
        assert_eq!(status.code(), StatusCode::Error);
        assert_eq!(status.message, "cannot run Function");
        assert_eq!(span.says("error.type"), "Unavailable");
        assert_eq!(span.says("crossplane.error"), "cannot run\nFunction");
    }
    assert_eq!(spans[0].says("crossplane.failed.step"), "step-1");
    assert_eq!(
        spans[0].says("crossplane.failed.function"),
        "function-go-templating"
    );
}

#[test]
fn a_fatal_result_is_the_message() {
    let mut line = line(vec![step(0)]);
    line.status = LineStatus::Fatal;
    line.steps[0].status = LineStatus::Fatal;
    line.steps[0].facts.results = vec![
        result(Severity::Warning, "beware"),
        result(Severity::Fatal, "first"),
        result(Severity::Fatal, "second"),
    ];
    line.steps[0].facts.result_counts = SeverityCounts {
        normal: 0,
        warning: 1,
        fatal: 2,
    };
    let spans = spans_of(&line, &links());
    assert_eq!(spans[0].says("crossplane.error"), "first");
    assert_eq!(spans[0].status.as_ref().unwrap().message, "first");
    assert_eq!(spans[1].says("error.type"), "fatal");
    assert_eq!(spans[1].says("crossplane.error"), "");
    assert_eq!(spans[1].says("crossplane.result.severity"), "fatal");
    assert_eq!(spans[1].says("crossplane.result.message"), "first");
    assert_eq!(spans[1].says("crossplane.results.fatal"), "2");
    assert_eq!(spans[1].says("crossplane.results.warning"), "1");
    assert_eq!(spans[1].says("crossplane.results.normal"), "");
}

#[test]
fn the_first_of_the_worst_steps_is_the_one_that_failed() {
    let mut line = line(vec![step(0), step(1), step(2), step(3)]);
    line.status = LineStatus::Error;
    line.steps[0].status = LineStatus::Fatal;
    line.steps[1].status = LineStatus::Error;
    line.steps[2].status = LineStatus::Error;
    let root = &spans_of(&line, &links())[0];
    assert_eq!(root.says("crossplane.failed.step"), "step-1");
}

#[test]
fn a_failure_that_no_step_explains_is_still_one() {
    let mut line = line(vec![]);
    line.status = LineStatus::Error;
    let [root] = &spans_of(&line, &links())[..] else {
        panic!("there is no step");
    };
    assert_eq!(root.says("error.type"), "_OTHER");
    assert_eq!(root.status.as_ref().unwrap().message, "the call failed");
    assert_eq!(root.says("crossplane.failed.step"), "");
    assert_eq!(root.says("crossplane.reconcile.steps"), "");
}

#[test]
fn the_root_links_to_the_reconcile_before_and_to_the_parent() {
    let mut line = line(vec![step(0)]);
    let others = ["1d5c3d3c-93e5-4d0c-8a2b-0d5a3b1c2d3e", "parent"];
    line.previous_trace_id = Some(others[0].to_owned());
    line.parent_trace_id = Some(others[1].to_owned());
    let spans = spans_of(&line, &links());
    assert_eq!(spans[0].links.len(), 2);
    for ((link, trace_id), what) in spans[0]
        .links
        .iter()
        .zip(others)
        .zip(["previous", "parent"])
    {
        let trace_id = OtelTraceId::of(trace_id);
        assert_eq!(link.trace_id, trace_id.0);
        assert_eq!(link.span_id, trace_id.root_span().0);
        assert_eq!(link.flags, SAMPLED);
        assert_eq!(shown(&link.attributes, "crossplane.link").unwrap(), what);
    }
    line.previous_trace_id = Some(String::new());
    line.parent_trace_id = Some(TRACE.to_owned());
    assert!(spans_of(&line, &links())[0].links.is_empty());
}

#[test]
fn a_step_says_what_it_did() {
    let mut line = line(vec![step(0)]);
    let step = &mut line.steps[0];
    step.iteration = 2;
    step.cached = true;
    step.facts.tag = Some("7a".to_owned());
    step.facts.ttl_s = Some(60.0);
    step.facts.input_kind = Some("Resources.pt.fn.crossplane.io".to_owned());
    step.facts.desired = Some(Desired {
        total: 4,
        ready: 0,
        added: vec!["a".to_owned(), "b".to_owned()],
        changed: vec!["c".to_owned()],
        changed_count: 600,
        ..Desired::default()
    });
    step.facts.conditions = vec![Condition {
        condition_type: "Ready".to_owned(),
        status: "false".to_owned(),
        reason: "Creating".to_owned(),
        message: None,
    }];
    let requirement = |name: &str, api_version: &str, found| Requirement {
        name: name.to_owned(),
        api_version: api_version.to_owned(),
        kind: "Thing".to_owned(),
        found,
    };
    step.facts.requirements = vec![
        requirement("env", "g.io/v1", Some(0)),
        requirement("core", "v1", Some(2)),
        requirement("unknown", "g.io/v1", None),
    ];
    let span = &spans_of(&line, &links())[1];
    let expected = [
        ("crossplane.step.index", "0"),
        ("crossplane.step.iteration", "2"),
        ("crossplane.function.name", "function-go-templating"),
        ("service.peer.name", "function-go-templating"),
        ("crossplane.composition.name", "networks-aws"),
        ("k8s.object.kind", "Network"),
        ("k8s.object.name", "prod-net"),
        ("k8s.namespace.name", "default"),
        ("crossplane.trace.id", TRACE),
        ("crossplane.response.cached", "true"),
        ("crossplane.response.tag", "7a"),
        ("crossplane.response.ttl_s", "60"),
        ("crossplane.input.kind", "Resources.pt.fn.crossplane.io"),
        ("crossplane.desired.total", "4"),
        ("crossplane.desired.ready", ""),
        ("crossplane.desired.added", "2"),
        ("crossplane.desired.added.names", "a,b"),
        ("crossplane.desired.changed", "600"),
        ("crossplane.desired.changed.names", "c"),
        ("crossplane.desired.removed", ""),
        ("crossplane.conditions", "Ready=false(Creating)"),
        (
            "crossplane.requirements",
            "env=Thing.g.io,core=Thing,unknown=Thing.g.io",
        ),
        ("crossplane.requirements.missing", "env"),
    ];
    for (key, value) in expected {
        assert_eq!(span.says(key), value, "{key}");
    }
    assert_eq!(span.dropped_attributes_count, 0);
}

#[test]
fn a_root_has_room_for_all_that_it_can_say() {
    let mut line = line(vec![step(0)]);
    line.status = LineStatus::Error;
    line.steps[0].status = LineStatus::Error;
    line.subject.facts = SubjectFacts {
        composition_revision: Some("networks-aws-1".to_owned()),
        generation: Some(3),
        resource_version: Some("77".to_owned()),
        parent_uid: None,
    };
    let names = || vec!["a".to_owned()];
    line.resources = Outcome {
        create: names(),
        update: names(),
        delete: names(),
        unchanged: 4,
        ..Outcome::default()
    };
    line.dropped = vec![dropped("a", None, true)];
    line.flapping = vec![
        FlappingField {
            resource: "vpc".to_owned(),
            field: "spec.size".to_owned(),
        },
        FlappingField {
            resource: String::new(),
            field: "status.x".to_owned(),
        },
    ];
    let root = &spans_of(&line, &links())[0];
    assert_eq!(
        (root.attributes.len(), root.dropped_attributes_count),
        (31, 0)
    );
    assert_eq!(
        root.says("crossplane.flapping.fields"),
        "vpc:spec.size,status.x"
    );
    assert_eq!(root.says("crossplane.flapping.count"), "2");
    assert_eq!(root.says("crossplane.resources.create.count"), "1");
    assert_eq!(root.says("crossplane.resources.unchanged.count"), "4");
    assert_eq!(root.says("crossplane.xr.generation"), "3");
    assert_eq!(
        root.says("crossplane.object.url"),
        format!("http://localhost:8686/open?key={KEY}")
    );
}

#[test]
fn a_request_holds_all_spans_under_one_resource_and_scope() {
    let spans = spans_of(&line(vec![step(0)]), &links());
    let resource = Resource {
        dropped_attributes_count: 3,
        ..Resource::default()
    };
    let mut batch = SpanBatch::default();
    let (first, others) = spans.split_at(1);
    batch.extend(first);
    batch.extend(others);
    let encoded = batch.request(&resource);
    assert_eq!(encoded.count, spans.len() as u64);
    let request = encoded.decode().unwrap();
    let [of_resource] = &request.resource_spans[..] else {
        panic!("one resource");
    };
    assert_eq!(of_resource.resource, Some(resource));
    let [of_scope] = &of_resource.scope_spans[..] else {
        panic!("one scope");
    };
    let scope = of_scope.scope.as_ref().unwrap();
    assert_eq!(
        (scope.name.as_str(), scope.version.as_str()),
        ("spanplane", env!("CARGO_PKG_VERSION"))
    );
    assert_eq!(of_scope.spans, spans);
    assert_eq!(EncodedSpans::of(&request), encoded);
    batch.clear();
    assert!(batch.is_empty());
    assert_eq!(batch.bytes(), 0);
}

#[test]
fn a_step_with_too_much_to_say_loses_the_least() {
    let mut line = line(vec![step(0)]);
    let step = &mut line.steps[0];
    step.iteration = 1;
    step.cached = true;
    step.status = LineStatus::Fatal;
    step.error = Some("odd".to_owned());
    step.facts.results = vec![result(Severity::Fatal, "no")];
    step.facts.result_counts = SeverityCounts {
        normal: 1,
        warning: 1,
        fatal: 1,
    };
    step.facts.tag = Some("7a".to_owned());
    let names = || vec!["a".to_owned()];
    step.facts.desired = Some(Desired {
        total: 3,
        ready: 1,
        added: names(),
        changed: names(),
        removed: names(),
        ..Desired::default()
    });
    step.facts.requirements = vec![Requirement {
        name: "env".to_owned(),
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        found: Some(0),
    }];
    step.facts.input_kind = Some("Input".to_owned());
    let span = &spans_of(&line, &links())[1];
    assert_eq!(
        (span.attributes.len(), span.dropped_attributes_count),
        (32, 4)
    );
    // Nothing of what it returned is applied.
    assert_eq!(span.says("crossplane.desired.removed"), "");
    assert_eq!(span.says("crossplane.requirements.missing"), "env");
    assert_eq!(span.says("crossplane.response.tag"), "");
}

#[test]
fn a_step_that_the_sidecar_did_not_wait_for_is_no_failure() {
    let mut interrupted = step(0);
    interrupted.ended_at = None;
    interrupted.status = LineStatus::Incomplete;
    interrupted.error_type = Some(INTERRUPTED.to_owned());
    let mut line = line(vec![interrupted]);
    line.status = LineStatus::Incomplete;
    let spans = spans_of(&line, &links());
    for span in &spans {
        assert_eq!(span.says("error.type"), "");
        assert_eq!(span.status, None);
    }
    assert_eq!(spans[1].says("crossplane.step.status"), "incomplete");
}
