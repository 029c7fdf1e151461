//! Calling a function again: the commands on a step's page, and the description they hand to
//! `grpcurl`. `tests/e2e/again.py` runs them against real functions.

use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor};
use spanplane::{capture::step_of, record::RecordKind};

use crate::{setup::Served, support::every_capture};

/// What the viewer offers, by way of the address on the page.
async fn offered(page: &str, served: &Served) -> MethodDescriptor {
    let (_, behind) = page.split_once("/assets/run_function-").unwrap();
    let name = behind.split('\'').next().unwrap();
    let proto = served.page(&format!("/assets/run_function-{name}")).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("run_function.proto"), proto.body).unwrap();
    let compiled = protox::compile(["run_function.proto"], [folder.path()]).unwrap();
    let pool = DescriptorPool::from_file_descriptor_set(compiled).unwrap();
    let service = pool.get_service_by_name("apiextensions.fn.proto.v1.FunctionRunnerService");
    service.unwrap().methods().next().unwrap()
}

#[tokio::test]
async fn every_payload_of_a_real_crossplane_reads_by_the_description_that_is_offered() {
    let served = Served::of_captures(&["secrets"]).await;
    let line = served.lines().await.remove(0);
    let page = served
        .page(&format!("/trace/{}/step/0", line.trace_id))
        .await;
    let text = page.text();
    assert!(
        text.contains("-proto run_function.proto -allow-unknown-fields"),
        "{text}"
    );
    assert!(
        text.contains("apiextensions.fn.proto.v1.FunctionRunnerService/RunFunction < request.json"),
        "{text}"
    );
    let method = offered(&text, &served).await;
    let mut read = 0;
    for record in every_capture() {
        let payload = step_of(&record).payload;
        if payload.is_empty() {
            continue;
        }
        let message = match record.kind {
            RecordKind::Request => method.input(),
            RecordKind::Response => method.output(),
        };
        let mut json = serde_json::Deserializer::from_slice(&payload);
        // It takes no field that it does not know.
        DynamicMessage::deserialize(message, &mut json).unwrap();
        json.end().unwrap();
        read += 1;
    }
    assert!(read > 100, "{read}");
}
