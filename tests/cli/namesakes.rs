//! One name that several XRs have.

use prost::Message as _;
use spanplane::{
    proto::pipeline::{CompositionMeta, StepMeta, step_meta::Context},
    record::{Record, RecordKind},
};

use crate::{
    setup::{ask_store, code_of, text_of},
    support::{Home, raw_message},
};

/// A reconcile of a `Twin` called `same`.
fn reconcile(namespace: &str, group: &str) -> [Record; 2] {
    let meta = StepMeta {
        timestamp: Some(prost_types::Timestamp {
            seconds: 1_794_803_806,
            nanos: 5_000_000,
        }),
        trace_id: format!("{namespace}.{group}"),
        span_id: format!("{namespace}.{group}-0"),
        step_name: "only".to_owned(),
        function_name: "function-test".to_owned(),
        context: Some(Context::CompositionMeta(CompositionMeta {
            composition_name: "twins".to_owned(),
            composite_resource_uid: format!("uid-of-{namespace}-{group}"),
            composite_resource_name: "same".to_owned(),
            composite_resource_namespace: namespace.to_owned(),
            composite_resource_api_version: format!("{group}/v1"),
            composite_resource_kind: "Twin".to_owned(),
        })),
        ..StepMeta::default()
    };
    let meta = meta.encode_to_vec();
    let payloads = [
        (
            RecordKind::Request,
            r#"{"observed":{"composite":{"resource":{}}}}"#,
        ),
        (RecordKind::Response, r#"{"desired":{}}"#),
    ];
    payloads.map(|(kind, payload)| raw_message(kind, payload.as_bytes(), &meta))
}

#[tokio::test]
async fn a_name_that_several_have_is_refused() {
    let home = Home::new();
    let twins = [
        ("a", "one.example.org"),
        ("b", "one.example.org"),
        ("b", "two.example.org"),
    ];
    let twins = twins.map(|(namespace, group)| reconcile(namespace, group));
    home.play(&[], &twins.concat()).await;
    let store = home.data_dir().join("store");
    for question in [
        &["show", "twin/same"][..],
        &["diff", "twin/same"],
        &["why", "twin/same", "vpc"],
        &["history", "twin/same"],
        &["show", "twin/same", "-n", "b"],
        &["show", "twin.one.example.org/same"],
    ] {
        let output = ask_store(&store, question);
        let said = text_of(&output.stderr);
        assert_eq!(code_of(&output), 1, "{question:?} {said}");
        assert!(said.contains("several are called"), "{question:?} {said}");
        assert!(said.contains("Twin.one.example.org/same in b"), "{said}");
        assert!(said.contains("-n NAMESPACE"), "{said}");
    }
    for question in [
        &["show", "twin/same", "-n", "a"][..],
        &["show", "twin.two.example.org/same"],
        &["history", "twin.one.example.org/same", "-n", "b"],
        &["ls", "twin/same"],
    ] {
        let output = ask_store(&store, question);
        assert_eq!(code_of(&output), 0, "{question:?} {output:?}");
    }
}
