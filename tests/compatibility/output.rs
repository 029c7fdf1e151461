//! What `--format` prints, byte for byte as the reference does: its own output stands beside this
//! file. On purpose different, and not here: secret values are redacted, and payloads over 256 KiB,
//! or of more than 16,000 values, are named and not shown.

use bytes::Bytes;
use prost::Message as _;
use spanplane::{
    capture::in_draft_layout,
    proto::pipeline::{
        CompositionMeta, EmitRequestRequest, EmitResponseRequest, OperationMeta, StepMeta,
        step_meta::Context,
    },
    record::RecordKind::{self, Request, Response},
};

use crate::support::program::Place;

/// What the reference printed of [`messages`], with `--format=json` and `--format=text`.
const JSON: &str = include_str!("output/reference.jsonl");
const TEXT: &str = include_str!("output/reference.txt");

struct Sent {
    kind: RecordKind,
    meta: StepMeta,
    payload: &'static str,
    error: &'static str,
}

/// One of everything that a message can be.
fn messages() -> Vec<Sent> {
    let namespaced = || meta(Some(composition("default")));
    let cluster_wide = || meta(Some(composition("")));
    let operation = || {
        let operation = OperationMeta {
            operation_name: "rotate".to_owned(),
            operation_uid: "op-uid-123".to_owned(),
        };
        meta(Some(Context::OperationMeta(operation)))
    };
    let later = || StepMeta {
        step_index: 2,
        iteration: 1,
        timestamp: Some(prost_types::Timestamp {
            seconds: 1_768_473_000,
            nanos: 120_000_000,
        }),
        ..namespaced()
    };
    let failed = "cannot run Function \"f\": rpc error: code = Unavailable desc = <gone>";
    vec![
        // A composite: namespaced, cluster-wide, later in the pipeline.
        sent(
            Request,
            namespaced(),
            r#"{"meta":{"tag":"t"},"b":[1,{"c":"x"}],"a":"yes"}"#,
            "",
        ),
        sent(Response, namespaced(), r#"{"desired":{},"results":[]}"#, ""),
        sent(
            Request,
            cluster_wide(),
            r#"{"n":1.0,"e":1e21,"html":"<&>","tab":"\t"}"#,
            "",
        ),
        sent(
            Response,
            later(),
            r#"{"text":"two\nlines","unicode":"é ✓ 🚀"}"#,
            "",
        ),
        // An Operation.
        sent(Request, operation(), r#"{"input":{"kind":"Script"}}"#, ""),
        sent(Response, operation(), r#"{"output":{"done":true}}"#, ""),
        // A call that failed: without a payload, and with one.
        sent(Response, namespaced(), "", failed),
        sent(
            Response,
            operation(),
            r#"{"results":[{"severity":"SEVERITY_FATAL"}]}"#,
            failed,
        ),
        // Nothing, no JSON, JSON that is no object.
        sent(Request, namespaced(), "", ""),
        sent(Request, namespaced(), "not json", ""),
        sent(Request, namespaced(), "{\"cut\":", ""),
        sent(Request, namespaced(), "null", ""),
        sent(Request, namespaced(), "\"text\"", ""),
        sent(Request, namespaced(), "[]", ""),
        // No context; almost no meta.
        sent(Request, meta(None), "{}", ""),
        sent(
            Request,
            StepMeta {
                span_id: "s".to_owned(),
                ..StepMeta::default()
            },
            "{}",
            "",
        ),
    ]
}

const fn sent(
    kind: RecordKind,
    meta: StepMeta,
    payload: &'static str,
    error: &'static str,
) -> Sent {
    Sent {
        kind,
        meta,
        payload,
        error,
    }
}

fn meta(context: Option<Context>) -> StepMeta {
    StepMeta {
        timestamp: Some(prost_types::Timestamp {
            seconds: 1_768_473_000,
            nanos: 0,
        }),
        trace_id: "trace-789".to_owned(),
        span_id: "span-456".to_owned(),
        step_index: 0,
        step_name: "compose".to_owned(),
        iteration: 0,
        function_name: "function-patch-and-transform".to_owned(),
        context,
    }
}

fn composition(namespace: &str) -> Context {
    Context::CompositionMeta(CompositionMeta {
        composition_name: "my-composition".to_owned(),
        composite_resource_uid: "abc-123".to_owned(),
        composite_resource_name: "my-db".to_owned(),
        composite_resource_namespace: namespace.to_owned(),
        composite_resource_api_version: "example.org/v1".to_owned(),
        composite_resource_kind: "XDatabase".to_owned(),
    })
}

fn encoded(sent: &Sent) -> Bytes {
    let meta = sent.meta.encode_to_vec().into();
    let payload = Bytes::from_static(sent.payload.as_bytes());
    let message = match sent.kind {
        Request => EmitRequestRequest {
            request: payload,
            meta,
        }
        .encode_to_vec(),
        Response => EmitResponseRequest {
            response: payload,
            error: sent.error.to_owned(),
            meta,
        }
        .encode_to_vec(),
    };
    message.into()
}

/// What is printed of these.
async fn printed(format: &str, messages: impl IntoIterator<Item = (RecordKind, Bytes)>) -> String {
    let place = Place::new();
    let flags = ["--shutdown-timeout=1m", "--format", format];
    let running = place.start(&flags).await;
    let mut client = place.client();
    for (kind, message) in messages {
        client.emit(kind, message).await.unwrap();
    }
    running.terminate().await.1
}

#[tokio::test]
async fn json_and_text_are_the_references() {
    for (format, reference) in [("json", JSON), ("text", TEXT)] {
        let messages = messages();
        let messages = messages.iter().map(|sent| (sent.kind, encoded(sent)));
        let printed = printed(format, messages).await;
        for (number, (line, reference)) in printed.lines().zip(reference.lines()).enumerate() {
            assert_eq!(line, reference, "line {} in {format}", number + 1);
        }
        assert_eq!(printed.len(), reference.len(), "{format}");
    }
}

/// The reference can't read the first design's layout: it answers with an error, and the message
/// is lost.
#[tokio::test]
async fn the_first_designs_layout_prints_as_the_shipped_one_but_for_the_step_name() {
    let messages = messages();
    let composites: Vec<_> = messages
        .iter()
        .filter(|sent| matches!(sent.meta.context, Some(Context::CompositionMeta(_))))
        .collect();
    let shipped = composites.iter().map(|sent| (sent.kind, encoded(sent)));
    let drafted = shipped.clone().map(|(kind, message)| {
        let drafted = in_draft_layout(kind, &message).unwrap();
        (kind, drafted)
    });
    for (format, named, nameless) in [
        ("json", r#""stepName":"compose","#, ""),
        ("text", "Step:        compose (", "Step:         ("),
    ] {
        let shipped = printed(format, shipped.clone()).await;
        assert!(shipped.contains(named), "{shipped}");
        let expected = shipped.replace(named, nameless);
        assert_eq!(printed(format, drafted.clone()).await, expected, "{format}");
    }
}
