//! A reconcile as a person sees it.

use super::*;
use crate::line::Condition;

/// The second step drops a subnet that is there, the third one fails.
fn failing() -> Line {
    let mut line = line(vec![step(0), step(1), step(2)]);
    line.previous_trace_id = Some("1d5c3d3c-93e5-4d0c-8a2b-0d5a3b1c2d3e".to_owned());
    line.status = LineStatus::Fatal;
    line.changed = true;
    line.subject.facts.generation = Some(3);
    line.dropped = vec![Dropped {
        resource: "subnet-b".to_owned(),
        step: Some(1),
        observed: true,
    }];
    line.dropped_count = 1;
    line.resources.delete = vec!["subnet-b".to_owned()];
    line.resources.delete_count = 1;
    line.resources.unchanged = 1;

    let [create, filter, ready] = &mut line.steps[..] else {
        panic!("there are three steps");
    };
    create.name = "create".to_owned();
    create.facts.desired = Some(Desired {
        total: 2,
        added: vec!["subnet-b".to_owned(), "vpc".to_owned()],
        added_count: 2,
        ..Desired::default()
    });
    filter.name = "filter".to_owned();
    filter.function = "function-cel-filter".to_owned();
    filter.status = LineStatus::Warning;
    filter.facts.results = vec![result(Severity::Warning, "filtered 1 of 2")];
    filter.facts.result_counts.warning = 1;
    filter.facts.ttl_s = Some(60.0);
    filter.facts.desired = Some(Desired {
        total: 1,
        removed: vec!["subnet-b".to_owned()],
        removed_count: 1,
        ..Desired::default()
    });
    ready.name = "ready".to_owned();
    ready.function = "function-auto-ready".to_owned();
    ready.status = LineStatus::Fatal;
    ready.error_type = Some("fatal".to_owned());
    ready.facts.results = vec![result(Severity::Fatal, "cannot read \"vpc\":\n\tno status")];
    ready.facts.result_counts.fatal = 1;
    ready.facts.conditions = vec![Condition {
        condition_type: "Ready".to_owned(),
        status: "false".to_owned(),
        reason: "Unreadable".to_owned(),
        message: None,
    }];
    line
}

/// What is long and always the same is shortened.
fn picture(detail: Detail) -> String {
    let text = render(&spans_of(&failing(), &links()), detail);
    text.replace(KEY, "KEY").replace(&"ab".repeat(32), "SHA")
}

#[test]
fn an_outline_shows_where_it_failed() {
    insta::assert_snapshot!(picture(Detail::Outline), @r#"
    reconcile networks-aws [internal] +0 70.0ms {fatal, changed, stored, delete 1, keep 1, dropped subnet-b, -> previous} ERROR "cannot read \"vpc\":  no status"
      RunFunction create [client] +0 20.0ms {ok, desired 2, added 2}
      RunFunction filter [client] +25.0ms 20.0ms {warning, desired 1, removed subnet-b, warning 1}
      RunFunction ready [client] +50.0ms 20.0ms {fatal, desired 0, conditions Ready=false(Unreadable), fatal 1} ERROR "cannot read \"vpc\":  no status"
    "#);
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a picture")]
fn the_full_picture_shows_what_was_dropped_and_why_it_failed() {
    insta::assert_snapshot!(picture(Detail::Full), @r#"
    reconcile networks-aws [internal] +0ns 70ms ERROR "cannot read \"vpc\":  no status"
        trace 784cb8b66017457899ba46a9391f7d1d span 2e3e70b3b8694c89
        crossplane.reconcile.status="fatal"
        error.type="fatal"
        crossplane.failed.step="ready"
        crossplane.failed.function="function-auto-ready"
        crossplane.error="cannot read \"vpc\":\n\tno status"
        crossplane.reconcile.changed=true
        crossplane.reconcile.steps=3
        k8s.object.kind="Network"
        k8s.object.name="prod-net"
        k8s.namespace.name="default"
        k8s.object.uid="0c6fbd0c-5a6c-4a68-9e0b-1f4a1f3f0001"
        k8s.object.api_version="example.org/v1"
        crossplane.composition.name="networks-aws"
        crossplane.xr.generation=3
        crossplane.trace.id="784cb8b6-6017-4578-99ba-46a9391f7d1d"
        crossplane.object.state="stored"
        crossplane.object.url="http://localhost:8686/open?key=KEY"
        crossplane.object.key="KEY"
        crossplane.resources.delete.count=1
        crossplane.resources.delete.names=["subnet-b"]
        crossplane.resources.dropped.count=1
        crossplane.resources.dropped.names=["subnet-b"]
        crossplane.resources.unchanged.count=1
        -> trace 1d5c3d3c93e54d0c8a2b0d5a3b1c2d3e span d0e22704ca8a7d3f crossplane.link="previous"
      RunFunction create [client] +0ns 20ms
          trace 784cb8b66017457899ba46a9391f7d1d span 817293a4b5c6d700
          crossplane.step.status="ok"
          crossplane.step.name="create"
          crossplane.step.index=0
          crossplane.function.name="function-go-templating"
          service.peer.name="function-go-templating"
          peer.service="function-go-templating"
          crossplane.composition.name="networks-aws"
          k8s.object.kind="Network"
          k8s.object.name="prod-net"
          k8s.namespace.name="default"
          crossplane.trace.id="784cb8b6-6017-4578-99ba-46a9391f7d1d"
          crossplane.span.id="0f0a1b2c-3d4e-4f50-8172-93a4b5c6d700"
          crossplane.request.url="http://localhost:8686/open?key=KEY&pointer=/steps/0/request"
          crossplane.response.url="http://localhost:8686/open?key=KEY&pointer=/steps/0/response"
          rpc.system="grpc"
          rpc.service="apiextensions.fn.proto.v1.FunctionRunnerService"
          rpc.method="RunFunction"
          crossplane.desired.total=2
          crossplane.desired.added=2
          crossplane.desired.added.names=["subnet-b", "vpc"]
          * function.request +0ns crossplane.payload.state="stored" crossplane.payload.url="http://localhost:8686/open?key=KEY&pointer=/steps/0/request" crossplane.payload.uri="s3://traces/KEY" crossplane.payload.key="KEY" crossplane.payload.pointer="/steps/0/request" crossplane.payload.sha256="SHA" crossplane.payload.size=4096
          * function.response +20ms crossplane.payload.state="stored" crossplane.payload.url="http://localhost:8686/open?key=KEY&pointer=/steps/0/response" crossplane.payload.uri="s3://traces/KEY" crossplane.payload.key="KEY" crossplane.payload.pointer="/steps/0/response" crossplane.payload.sha256="SHA" crossplane.payload.size=4096
      RunFunction filter [client] +25ms 20ms
          trace 784cb8b66017457899ba46a9391f7d1d span 817293a4b5c6d701
          crossplane.step.status="warning"
          crossplane.step.name="filter"
          crossplane.step.index=1
          crossplane.function.name="function-cel-filter"
          service.peer.name="function-cel-filter"
          peer.service="function-cel-filter"
          crossplane.composition.name="networks-aws"
          k8s.object.kind="Network"
          k8s.object.name="prod-net"
          k8s.namespace.name="default"
          crossplane.trace.id="784cb8b6-6017-4578-99ba-46a9391f7d1d"
          crossplane.span.id="0f0a1b2c-3d4e-4f50-8172-93a4b5c6d701"
          crossplane.request.url="http://localhost:8686/open?key=KEY&pointer=/steps/1/request"
          crossplane.response.url="http://localhost:8686/open?key=KEY&pointer=/steps/1/response"
          rpc.system="grpc"
          rpc.service="apiextensions.fn.proto.v1.FunctionRunnerService"
          rpc.method="RunFunction"
          crossplane.result.severity="warning"
          crossplane.result.message="filtered 1 of 2"
          crossplane.results.warning=1
          crossplane.desired.total=1
          crossplane.desired.removed=1
          crossplane.desired.removed.names=["subnet-b"]
          crossplane.response.ttl_s=60.0
          * function.request +25ms crossplane.payload.state="stored" crossplane.payload.url="http://localhost:8686/open?key=KEY&pointer=/steps/1/request" crossplane.payload.uri="s3://traces/KEY" crossplane.payload.key="KEY" crossplane.payload.pointer="/steps/1/request" crossplane.payload.sha256="SHA" crossplane.payload.size=4096
          * function.response +45ms crossplane.payload.state="stored" crossplane.payload.url="http://localhost:8686/open?key=KEY&pointer=/steps/1/response" crossplane.payload.uri="s3://traces/KEY" crossplane.payload.key="KEY" crossplane.payload.pointer="/steps/1/response" crossplane.payload.sha256="SHA" crossplane.payload.size=4096
          * resource.dropped +45ms crossplane.resource.name="subnet-b" crossplane.resource.observed=true crossplane.step.name="filter"
          * function.result +45ms crossplane.result.severity="warning" crossplane.result.message="filtered 1 of 2"
      RunFunction ready [client] +50ms 20ms ERROR "cannot read \"vpc\":  no status"
          trace 784cb8b66017457899ba46a9391f7d1d span 817293a4b5c6d702
          crossplane.step.status="fatal"
          error.type="fatal"
          crossplane.step.name="ready"
          crossplane.step.index=2
          crossplane.function.name="function-auto-ready"
          service.peer.name="function-auto-ready"
          peer.service="function-auto-ready"
          crossplane.composition.name="networks-aws"
          k8s.object.kind="Network"
          k8s.object.name="prod-net"
          k8s.namespace.name="default"
          crossplane.trace.id="784cb8b6-6017-4578-99ba-46a9391f7d1d"
          crossplane.span.id="0f0a1b2c-3d4e-4f50-8172-93a4b5c6d702"
          crossplane.request.url="http://localhost:8686/open?key=KEY&pointer=/steps/2/request"
          crossplane.response.url="http://localhost:8686/open?key=KEY&pointer=/steps/2/response"
          rpc.system="grpc"
          rpc.service="apiextensions.fn.proto.v1.FunctionRunnerService"
          rpc.method="RunFunction"
          crossplane.result.severity="fatal"
          crossplane.result.message="cannot read \"vpc\":\n\tno status"
          crossplane.results.fatal=1
          crossplane.desired.total=0
          crossplane.conditions=["Ready=false(Unreadable)"]
          * function.request +50ms crossplane.payload.state="stored" crossplane.payload.url="http://localhost:8686/open?key=KEY&pointer=/steps/2/request" crossplane.payload.uri="s3://traces/KEY" crossplane.payload.key="KEY" crossplane.payload.pointer="/steps/2/request" crossplane.payload.sha256="SHA" crossplane.payload.size=4096
          * function.response +70ms crossplane.payload.state="stored" crossplane.payload.url="http://localhost:8686/open?key=KEY&pointer=/steps/2/response" crossplane.payload.uri="s3://traces/KEY" crossplane.payload.key="KEY" crossplane.payload.pointer="/steps/2/response" crossplane.payload.sha256="SHA" crossplane.payload.size=4096
          * function.result +70ms crossplane.result.severity="fatal" crossplane.result.message="cannot read \"vpc\":\n\tno status"
    "#);
}

#[test]
fn no_value_moves_the_cursor() {
    let mut line = failing();
    line.subject.name = "\u{1b}[2J\r\u{202e}".to_owned();
    line.steps[0].name = "\u{1b}]0;x\u{7}".to_owned();
    line.dropped[0].resource = "\u{1b}[2J".to_owned();
    let text = render(&spans_of(&line, &links()), Detail::Full);
    let outline = render(&spans_of(&line, &links()), Detail::Outline);
    let moves = |character: char| character.is_control() && character != '\n';
    for text in [&text, &outline] {
        assert!(
            !text.contains(moves) && !text.contains('\u{202e}'),
            "{text}"
        );
    }
    assert!(outline.contains(r"dropped \u{1b}[2J"), "{outline}");
    assert!(
        text.contains(r#"k8s.object.name="\u{1b}[2J\r\u{202e}""#),
        "{text}"
    );
}

#[test]
fn every_span_is_shown_once_even_in_a_ring() {
    let span = |id: u8, parent: u8| Span {
        name: format!("s{id}"),
        span_id: vec![id],
        parent_span_id: vec![parent],
        ..Span::default()
    };
    let spans = [
        span(1, 2),
        span(2, 1),
        span(3, 3),
        span(5, 4),
        span(4, 9),
        span(6, 4),
    ];
    let text = render(&spans, Detail::Outline);
    let names: Vec<_> = text
        .lines()
        .map(|line| line.split(" [").next().unwrap())
        .collect();
    assert_eq!(names, ["s4", "  s5", "  s6", "s1", "  s2", "s3"]);
}
