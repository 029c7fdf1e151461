//! The sidecar in this process, on a real socket, with real stores behind it.

#![cfg(test)]

mod support;

use std::sync::Arc;

use futures_util::TryStreamExt as _;
use opentelemetry_proto::tonic::{resource::v1::Resource, trace::v1::Span};
use prost::Message as _;
use serde_json::Value;
use spanplane::{
    archive::Query,
    capture::in_draft_layout,
    config::Telemetry,
    disk::LocalDisk,
    export::{Destination, Signal},
    line::Line,
    outbox::{BatchId, Quarantine, TraceBatches},
    record::{Record, RecordKind},
    serve::Sidecar,
    spans::SpanBatch,
    time::Timestamp,
};
use support::{
    Home, PATIENCE, assert_all_payloads_stored, capture, counted, fill_spool, message,
    otlp::OtlpServer,
    raw_message,
    s3::{Mood, S3Server},
    stop,
};
use tonic::Code;

#[tokio::test]
async fn every_payload_of_every_capture_is_stored_byte_for_byte() {
    for name in [
        "network",
        "dropper",
        "broken",
        "requirements",
        "operation",
        "steady-start",
    ] {
        let home = Home::new();
        let records = capture(name);
        let metrics = home.play(&[], &records).await;
        assert_eq!(
            counted(&metrics, "spanplane_messages_acknowledged_total"),
            records.len() as u64
        );
        assert_eq!(counted(&metrics, "spanplane_objects_dropped_total"), 0);
        assert_eq!(counted(&metrics, "spanplane_messages_odd_total"), 0);
        let documents = home.documents().await;
        if counted(&metrics, "spanplane_reconciles_unchanged_total") == 0 {
            assert_all_payloads_stored(&records, &documents);
        }
        let stored = counted(&metrics, "spanplane_objects_stored_total");
        assert_eq!(documents.len() as u64, stored, "{name}");
    }
}

#[tokio::test]
async fn both_layouts_give_the_same_objects() {
    let shipped = capture("dropper");
    let drafted = shipped.iter().map(|record| Record {
        message: in_draft_layout(record.kind, &record.message).unwrap(),
        ..record.clone()
    });
    let drafted: Vec<_> = drafted.collect();
    let (one, other) = (Home::new(), Home::new());
    one.play(&[], &shipped).await;
    other.play(&[], &drafted).await;
    let without_names = |documents: std::collections::BTreeMap<String, String>| {
        documents.into_iter().map(|(key, document)| {
            let mut document: Value = serde_json::from_str(&document).unwrap();
            for step in document["steps"].as_array_mut().unwrap() {
                // The draft has no step names, and arrival differs from run to run.
                step["name"] = Value::Null;
                step["ended_at"] = Value::Null;
            }
            (key, document)
        })
    };
    let (one, other) = (one.documents().await, other.documents().await);
    assert_eq!(one.len(), 12);
    assert!(without_names(one).eq(without_names(other)));
}

#[tokio::test]
async fn an_unchanged_reconcile_stores_nothing_even_after_a_restart() {
    let home = Home::new();
    let records = capture("steady-idle");
    let (first, second) = records.split_at(records.len() / 2);
    let metrics = home.play(&[], first).await;
    assert_eq!(counted(&metrics, "spanplane_objects_stored_total"), 2);
    let metrics = home.play(&[], second).await;
    assert_eq!(counted(&metrics, "spanplane_objects_stored_total"), 0);
    assert_eq!(
        counted(&metrics, "spanplane_reconciles_unchanged_total"),
        11
    );
    assert_eq!(home.documents().await.len(), 2);
}

#[tokio::test]
async fn no_canary_that_the_rules_cover_reaches_the_store() {
    let covered = [
        "stringdata",
        "data",
        "object-stringdata",
        "object-data",
        "required-lastapplied",
        "credentials",
        "mr-connection",
        "xr-connection",
        "mr-spec",
        "xr-spec",
        "xr-status",
        "context",
        "input",
    ];
    // In clear since no rule says that it is a secret; shows that the canaries are there.
    let plain = ["configmap-data", "result-message", "condition-message"];
    let home = Home::new();
    let metrics = home.play(&[], &capture("secrets")).await;
    assert!(counted(&metrics, "spanplane_redacted_values_total") > 0);
    let stored: String = home.documents().await.into_values().collect();
    let holds = |name: &str| {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        let canary = format!("canary-s3cr3t-1-{name}");
        // The names are prefixes of each other: `data` and `data-…`.
        let clear = stored.match_indices(&canary).any(|(at, _)| {
            let next = stored
                .get(at + canary.len()..)
                .unwrap()
                .chars()
                .next()
                .unwrap();
            !next.is_ascii_alphanumeric() && next != '-'
        });
        clear || stored.contains(&STANDARD.encode(&canary))
    };
    for name in covered {
        assert!(!holds(name), "{name} reached the store");
    }
    let missing: Vec<_> = plain.into_iter().filter(|name| !holds(name)).collect();
    assert!(missing.is_empty(), "{missing:?} should be there");

    // Without the keys that name a secret, unless the user names them.
    let home = Home::new();
    let flags = ["--redact-secret-keys=false", "--redact-key=(?i)apikey"];
    home.play(&flags, &capture("secrets")).await;
    let stored: String = home.documents().await.into_values().collect();
    assert!(stored.contains("canary-s3cr3t-1-mr-spec"));
    assert!(!stored.contains(r#""apiKey":"canary"#));
}

#[tokio::test]
async fn odd_messages_are_kept_counted_and_in_nobodys_way() {
    let home = Home::new();
    let sidecar = home.start(&[]).await;
    let mut client = home.client();
    let good = message("good", 0, RecordKind::Request, r#"{"good":1}"#);
    let empty_trace = message("", 0, RecordKind::Request, r#"{"odd":"trace"}"#);
    let odd = [
        raw_message(RecordKind::Request, br#"{"odd":"meta"}"#, b""),
        raw_message(
            RecordKind::Request,
            br#"{"odd":"layout"}"#,
            &[0x19, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        empty_trace,
        message("text", 0, RecordKind::Request, "not json"),
        raw_message(RecordKind::Response, b"\xff\xfe binary", b""),
        Record {
            message: bytes::Bytes::from_static(b"\xff\xff\xff\xff"),
            ..good.clone()
        },
    ];
    for record in odd.iter().chain([&good]) {
        client
            .emit(record.kind, record.message.clone())
            .await
            .unwrap();
    }
    let metrics = stop(sidecar).await;
    for oddity in [
        "no_meta",
        "unknown_layout",
        "empty_trace_id",
        "not_json",
        "not_protobuf",
    ] {
        assert!(
            metrics.contains(&format!("oddity=\"{oddity}\"")),
            "{oddity}\n{metrics}"
        );
    }
    let stored: String = home.documents().await.into_values().collect();
    for kept in [
        r#""request":{"odd":"meta"}"#,
        r#""request":{"odd":"layout"}"#,
        r#""request":{"odd":"trace"}"#,
        r#""request_text":"not json""#,
        r#""response_base64":"//4gYmluYXJ5""#,
        r#""request_base64":"/////w==""#,
        r#""request":{"good":1}"#,
    ] {
        assert!(stored.contains(kept), "{kept} is not in {stored}");
    }
}

/// Leaves a data directory as a process does that dies at the first record of the first segment, after
/// this many that died there before.
fn note_death(home: &Home, deaths: u32) {
    let mut note = 1_u64.to_le_bytes().to_vec();
    note.extend(8_u32.to_le_bytes());
    note.extend(deaths.to_le_bytes());
    let crc = crc32fast::hash(&note);
    note.extend(crc.to_le_bytes());
    let path = home.data_dir().join("spool/in-progress");
    std::fs::write(path, note).unwrap();
}

#[tokio::test]
async fn a_message_at_which_the_process_died_twice_is_set_aside() {
    let home = Home::new();
    let large = format!("{{\"poison\":\"{}\"}}", "x".repeat(100_000));
    let poison = message("poison", 0, RecordKind::Request, &large);
    let good = message("good", 0, RecordKind::Request, r#"{"good":1}"#);
    fill_spool(&home.data_dir(), &[poison.clone(), good.clone()]).await;
    note_death(&home, 1);
    let metrics = stop(home.start(&[]).await).await;
    assert_eq!(counted(&metrics, "spanplane_records_quarantined_total"), 1);
    assert_all_payloads_stored(std::slice::from_ref(&good), &home.documents().await);
    assert_eq!(home.documents().await.len(), 1);
    let kept = home
        .data_dir()
        .join("quarantine/1-00000000000000000001-8-request-0.message");
    assert_eq!(std::fs::read(kept).unwrap(), poison.message);
    // It is done with.
    let metrics = stop(home.start(&[]).await).await;
    assert_eq!(counted(&metrics, "spanplane_records_quarantined_total"), 0);

    // One that killed a process no more than once is tried again.
    let home = Home::new();
    fill_spool(&home.data_dir(), &[poison.clone(), good.clone()]).await;
    note_death(&home, 0);
    let metrics = stop(home.start(&[]).await).await;
    assert_eq!(counted(&metrics, "spanplane_records_quarantined_total"), 0);
    assert_all_payloads_stored(&[poison, good], &home.documents().await);
}

#[tokio::test]
async fn a_message_in_quarantine_is_processed_again_on_command_and_joins_its_reconcile() {
    let home = Home::new();
    let large = format!("{{\"poison\":\"{}\"}}", "x".repeat(100_000));
    let received_at = Timestamp::from_parts(1_794_803_807, 0).unwrap();
    let poison = Record {
        received_at,
        ..message("t", 0, RecordKind::Response, &large)
    };
    let request = message("t", 0, RecordKind::Request, r#"{"good":1}"#);
    let records = [poison, request];
    fill_spool(&home.data_dir(), &records).await;
    note_death(&home, 1);
    stop(home.start(&[]).await).await;
    assert_all_payloads_stored(&records[1..], &home.documents().await);
    let quarantine = home.data_dir().join("quarantine");
    let kept = Quarantine::list(&LocalDisk, &quarantine).unwrap();
    assert_eq!(kept.len(), 1);

    Quarantine::retry(&LocalDisk, &kept[0]).unwrap();
    let metrics = stop(home.start(&[]).await).await;
    assert_eq!(counted(&metrics, "spanplane_records_quarantined_total"), 0);
    assert_eq!(Quarantine::list(&LocalDisk, &quarantine).unwrap(), []);
    let documents = home.documents().await;
    assert_all_payloads_stored(&records, &documents);
    let [document] = &documents.into_values().collect::<Vec<_>>()[..] else {
        panic!("more than one document")
    };
    // As if it had been there all the time.
    let document: Value = serde_json::from_str(document).unwrap();
    assert_eq!(document["steps"][0]["ended_at"], received_at.rfc3339());
}

#[tokio::test]
async fn a_straggler_joins_its_reconcile_under_the_same_key() {
    let home = Home::new();
    let (request, response) = (RecordKind::Request, RecordKind::Response);
    let records = [
        message("t", 0, request, r#"{"a":0}"#),
        message("t", 0, response, r#"{"b":0}"#),
        message("t", 1, request, r#"{"a":1}"#),
    ];
    home.play(&[], &records).await;
    let before = home.documents().await;
    assert_eq!(before.len(), 1);
    let late = [
        message("t", 1, response, r#"{"b":1}"#),
        message("t", 0, response, r#"{"b":0}"#),
        message("t", 1, request, r#"{"a":"another"}"#),
    ];
    home.play(&[], &late).await;
    let after = home.documents().await;
    assert!(before.keys().eq(after.keys()));
    let document: Value = serde_json::from_str(after.values().next().unwrap()).unwrap();
    let steps: Vec<_> = document["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| {
            (
                step["index"].as_i64().unwrap(),
                &step["request"],
                &step["response"],
            )
        })
        .collect();
    let [a0, b0, a1, b1, another] = [
        r#"{"a":0}"#,
        r#"{"b":0}"#,
        r#"{"a":1}"#,
        r#"{"b":1}"#,
        r#"{"a":"another"}"#,
    ]
    .map(|json| serde_json::from_str::<Value>(json).unwrap());
    assert_eq!(
        steps,
        [(0, &a0, &b0), (1, &a1, &b1), (1, &another, &Value::Null)]
    );
}

#[tokio::test]
async fn late_parts_of_a_large_reconcile_join_it_in_a_bucket() {
    let server = S3Server::start().await;
    let home = Home::with_s3(&server);
    // More than goes whole, or fits into memory twice.
    let padding = "x".repeat(3_000_000);
    let payload = |step: i32| format!(r#"{{"step":{step},"padding":"{padding}"}}"#);
    let records: Vec<_> = (0..4)
        .flat_map(|step| {
            [RecordKind::Request, RecordKind::Response]
                .map(|kind| message("large", step, kind, &payload(step)))
        })
        .collect();
    for part in records.chunks(3) {
        home.play(&["--compression=none"], part).await;
    }
    let documents = home.documents().await;
    assert_eq!(documents.len(), 1, "{:?}", documents.keys());
    assert_all_payloads_stored(&records, &documents);
    let rows: Vec<Line> = home
        .archive()
        .read_index(Query::default())
        .try_collect()
        .await
        .unwrap();
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.steps.len(), row.revision), (4, 2));
}

#[tokio::test]
async fn a_repeated_first_request_does_not_replace_what_was_stored() {
    let home = Home::new();
    let first = message("t", 0, RecordKind::Request, r#"{"a":0}"#);
    let records = [
        first.clone(),
        message("t", 0, RecordKind::Response, r#"{"b":0}"#),
    ];
    home.play(&[], &records).await;
    let before = home.documents().await;
    home.play(&[], &[first]).await;
    assert_eq!(home.documents().await, before);
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_as_grpc_servers_do_and_counted() {
    let home = Home::new();
    let sidecar = home.start(&["--max-recv-msg-size=1000"]).await;
    let mut client = home.client();
    let large = message(
        "t",
        0,
        RecordKind::Request,
        &format!("\"{}\"", "x".repeat(2000)),
    );
    let error = client.emit(large.kind, large.message).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    let small = message("t", 0, RecordKind::Request, "{}");
    client.emit(small.kind, small.message).await.unwrap();
    let metrics = stop(sidecar).await;
    assert!(
        metrics.contains("spanplane_messages_refused_total{reason=\"oversize\"} 1"),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_full_spool_answers_at_once_and_recovers_by_itself() {
    let server = S3Server::start().await;
    server.set(Mood::Unavailable);
    let home = Home::with_s3(&server);
    let sidecar = home.start(&["--spool-max-bytes=1MiB"]).await;
    let mut client = home.client();
    let payload = format!("\"{}\"", "x".repeat(64 * 1024));
    // A FATAL result ends a reconcile, so that it can be stored at once.
    let fatal = r#"{"results":[{"severity":"SEVERITY_FATAL"}]}"#;
    let mut sent = Vec::new();
    let refused = 'full: loop {
        let trace = format!("t{}", sent.len());
        for record in [
            message(&trace, 0, RecordKind::Request, &payload),
            message(&trace, 0, RecordKind::Response, fatal),
        ] {
            match client.emit(record.kind, record.message.clone()).await {
                Ok(()) => sent.push(record),
                Err(status) => break 'full status,
            }
        }
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!((16..32).contains(&sent.len()), "{} were taken", sent.len());

    server.set(Mood::Works);
    let next = message("next", 0, RecordKind::Request, &payload);
    let taken = async {
        while client.emit(next.kind, next.message.clone()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, taken).await.unwrap();
    let metrics = stop(sidecar).await;
    assert!(metrics.contains("spanplane_messages_refused_total{reason=\"spool_full\"}"));
    sent.push(next);
    assert_all_payloads_stored(&sent, &home.documents().await);
}

#[tokio::test]
async fn a_store_that_fails_hangs_and_comes_back_loses_nothing() {
    let server = S3Server::start().await;
    server.set(Mood::Unavailable);
    let home = Home::with_s3(&server);
    let records = capture("dropper");
    let sidecar = home.start(&[]).await;
    home.emit_all(&records).await;
    server.failed(2).await;
    server.set(Mood::Denies);
    server.fails_again().await;
    server.set(Mood::Works);
    let metrics = stop(sidecar).await;
    assert!(counted(&metrics, "spanplane_store_failures_total") > 0);
    assert_all_payloads_stored(&records, &home.documents().await);
    // One object a changed reconcile, and the index: in one batch with what it holds beside it, unless
    // stopping takes long.
    let batches = counted(&metrics, "spanplane_index_batches_stored_total");
    assert!(batches > 0);
    assert_eq!(server.writes() as u64, 12 + 2 * batches);
}

#[tokio::test]
async fn what_a_hanging_store_did_not_take_is_stored_after_a_restart() {
    let server = S3Server::start().await;
    server.set(Mood::Hangs);
    let home = Home::with_s3(&server);
    let records = capture("dropper");
    let sidecar = home.start(&["--shutdown-timeout=10ms"]).await;
    home.emit_all(&records).await;
    server.failed(1).await;
    stop(sidecar).await;
    assert_eq!(home.documents().await.len(), 0);
    server.set(Mood::Works);
    home.play(&[], &[]).await;
    assert_all_payloads_stored(&records, &home.documents().await);
}

#[tokio::test]
async fn without_leave_to_read_what_comes_late_is_stored_beside_the_rest() {
    let server = S3Server::start().await;
    server.set(Mood::IsWriteOnly);
    let home = Home::with_s3(&server);
    let first = message("t", 0, RecordKind::Request, r#"{"a":0}"#);
    let late = message("t", 0, RecordKind::Response, r#"{"b":0}"#);
    home.play(&[], std::slice::from_ref(&first)).await;
    // It stands in its place already, and nobody remembers.
    std::fs::remove_file(home.data_dir().join("history.jsonl")).unwrap();
    home.play(&[], std::slice::from_ref(&first)).await;
    let metrics = home.play(&[], std::slice::from_ref(&late)).await;
    assert_eq!(counted(&metrics, "spanplane_objects_stored_total"), 1);
    server.set(Mood::Works);
    let documents = home.documents().await;
    assert_eq!(documents.len(), 3, "{:?}", documents.keys());
    assert_all_payloads_stored(&[first, late], &documents);
}

#[tokio::test]
async fn a_reconcile_larger_than_a_part_is_streamed() {
    let server = S3Server::start().await;
    let home = Home::with_s3(&server);
    // Hex of a hash chain hardly compresses: 24 MB of it make an object of several parts.
    let mut hash = spanplane::reconcile::PayloadHash::of(b"seed");
    let mut noise = String::new();
    while noise.len() < 6_000_000 {
        noise.push_str(&hash.to_string());
        hash = spanplane::reconcile::PayloadHash::of(&hash.0);
    }
    let records: Vec<_> = (0..4)
        .map(|step| {
            let payload = format!("\"{step}{noise}\"");
            message("large", step, RecordKind::Request, &payload)
        })
        .collect();
    let metrics = home.play(&["--compression=none"], &records).await;
    assert_eq!(counted(&metrics, "spanplane_objects_stored_total"), 1);
    assert!(counted(&metrics, "spanplane_objects_stored_size_bytes_total") > 24_000_000);
    assert_all_payloads_stored(&records, &home.documents().await);
}

#[tokio::test]
async fn grpc_health_and_reflection_know_the_service() {
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
    use tonic_reflection::pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    };

    const SERVICE: &str = "crossplane.pipeline.v1alpha1.PipelineInspectorService";
    let home = Home::new();
    let sidecar = home.start(&[]).await;
    let channel = spanplane::client::dial(home.socket());

    let mut health = HealthClient::new(channel.clone());
    for service in ["", SERVICE] {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(answer.status().as_str_name(), "SERVING");
    }

    let mut reflection = ServerReflectionClient::new(channel);
    let question = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::FileContainingSymbol(SERVICE.to_owned())),
    };
    let answers = reflection
        .server_reflection_info(tokio_stream::iter([question]))
        .await
        .unwrap();
    let answer = answers.into_inner().message().await.unwrap().unwrap();
    let Some(MessageResponse::FileDescriptorResponse(files)) = answer.message_response else {
        panic!("{answer:?}");
    };
    // The shipped messages, with the meta as a message: not the bytes that the server takes it as.
    let file = prost_types::FileDescriptorProto::decode(&*files.file_descriptor_proto[0]).unwrap();
    let emit = file
        .message_type
        .iter()
        .find(|message| message.name() == "EmitRequestRequest");
    assert_eq!(
        emit.unwrap().field[1].type_name(),
        ".crossplane.pipeline.v1alpha1.StepMeta"
    );
    stop(sidecar).await;
}

#[tokio::test]
async fn what_comes_while_stopping_is_answered_unavailable() {
    let server = S3Server::start().await;
    server.set(Mood::Hangs);
    let home = Home::with_s3(&server);
    let sidecar = home.start(&["--shutdown-timeout=60s"]).await;
    let metrics = sidecar.metrics().clone();
    let mut client = home.client();
    let record = message("t", 0, RecordKind::Request, "{}");
    client
        .emit(record.kind, record.message.clone())
        .await
        .unwrap();
    let stopping = sidecar.run_until(std::future::ready(()));
    let asking = async {
        // The store takes nothing, so the sidecar goes on draining.
        server.failed(1).await;
        let status = client
            .emit(record.kind, record.message.clone())
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        server.set(Mood::Works);
    };
    // A hanging call is given up by the client after 30 s; this one is not waited for.
    tokio::select! {
        outcome = stopping => panic!("stopped too early: {outcome:?}"),
        () = asking => {}
    }
    assert!(
        metrics
            .text()
            .unwrap()
            .contains("{reason=\"shutting_down\"} 1")
    );
}

#[tokio::test]
async fn a_store_on_disk_is_pruned_and_what_is_gone_is_not_linked_to() {
    let home = Home::new();
    let records = capture("steady-idle");
    let (first, second) = records.split_at(records.len() / 2);
    home.play(&[], first).await;
    assert_eq!(home.documents().await.len(), 2);

    let sidecar = home.start(&["--retention-bytes=1"]).await;
    let pruned = async {
        while counted(
            &sidecar.metrics().text().unwrap(),
            "spanplane_objects_pruned_total",
        ) < 2
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, pruned).await.unwrap();
    home.emit_all(second).await;
    let metrics = stop(sidecar).await;
    // Equal to what is gone is not equal to what is there.
    assert!(
        counted(&metrics, "spanplane_objects_stored_total") >= 2,
        "{metrics}"
    );
}

#[tokio::test]
async fn spans_that_nobody_will_send_are_given_up_and_counted() {
    let home = Home::new();
    let traces = home.data_dir().join("outbox/traces");
    std::fs::create_dir_all(&traces).unwrap();
    for (number, spans) in [(1, 3), (7, 4)] {
        let name = TraceBatches::name_of(BatchId::default(), spans);
        let name = format!("{number:020}{}", name.get(20..).unwrap());
        std::fs::write(traces.join(name), "an earlier process left this").unwrap();
    }
    let metrics = stop(home.start(&[]).await).await;
    assert_eq!(std::fs::read_dir(&traces).unwrap().count(), 0);
    let lost = "spanplane_spans_lost_total{reason=\"tracing_off\"} 7\n";
    assert!(metrics.contains(lost), "{metrics}");
}

#[tokio::test]
async fn spans_wait_while_the_endpoint_is_not_valid() {
    let home = Home::new();
    let traces = home.data_dir().join("outbox/traces");
    let waiting = || TraceBatches::open(Arc::new(LocalDisk), traces.clone(), 1 << 20).unwrap();
    let left = Span {
        name: "an earlier process left this".to_owned(),
        ..Span::default()
    };
    let mut batch = SpanBatch::default();
    batch.extend(&[left]);
    waiting().add(&batch.request(&Resource::default())).unwrap();
    let with_endpoint = |endpoint: String| {
        let lookup = move |name: &str| match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(endpoint.clone()),
            "OTEL_EXPORTER_OTLP_PROTOCOL" => Some("grpc".to_owned()),
            _ => None,
        };
        // Nobody is waited for when it stops.
        let mut settings = home.settings(&["--shutdown-timeout=10m"]);
        settings.telemetry = Telemetry::from_variables(&lookup);
        settings
    };

    let mistyped = with_endpoint("htp://collector:4317".to_owned());
    let sidecar = Sidecar::start(mistyped).await.unwrap();
    home.emit_all(&capture("dropper")).await;
    let metrics = stop(sidecar).await;
    let first = waiting().first_from(BatchId::default()).unwrap();
    assert!(waiting().first_from(first.id.next()).is_some());
    for reason in ["tracing_off", "outbox_full"] {
        let lost = format!("spanplane_spans_lost_total{{reason=\"{reason}\"}} 0\n");
        assert!(metrics.contains(&lost), "{metrics}");
    }

    let collector = OtlpServer::start_grpc().await;
    let corrected = with_endpoint(collector.url().to_owned());
    stop(Sidecar::start(corrected).await.unwrap()).await;
    assert!(waiting().is_empty());
    let names = collector.names();
    assert_eq!(names[0], "an earlier process left this");
    assert!(names.len() > 1, "{names:?}");
}

#[tokio::test]
async fn spans_that_can_not_wait_on_disk_keep_nobody_from_receiving() {
    let home = Home::new();
    let outbox = home.data_dir().join("outbox");
    std::fs::create_dir_all(&outbox).unwrap();
    std::fs::write(outbox.join("traces"), "a file where a folder should be").unwrap();
    let collector = |name: &str| {
        let is_endpoint = name == "OTEL_EXPORTER_OTLP_ENDPOINT";
        is_endpoint.then(|| "http://127.0.0.1:9".to_owned())
    };
    let mut settings = home.settings(&[]);
    settings.telemetry.traces =
        Destination::from_variables(&collector, Signal::Traces, &mut Vec::new());
    assert!(settings.telemetry.tracing().collector().is_some());
    let records = capture("dropper");
    let sidecar = Sidecar::start(settings).await.unwrap();
    home.emit_all(&records).await;
    stop(sidecar).await;
    assert_all_payloads_stored(&records, &home.documents().await);
}
