//! Messages on stdout, as Crossplane's reference sidecar prints them.
//!
//! Invariant: for the same message the same bytes as the reference, but for secret values, which
//! are shown redacted, and for payloads of megabytes, which are named and not shown. Go's formatting rules live in `go_json` and `go_yaml`.

mod go_json;
mod go_yaml;

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use self::{go_json::write_json, go_yaml::write_yaml};
use crate::{
    decode::StepMeta,
    reconcile::{Subject, SubjectType},
    record::RecordKind,
    redact::CleanPayload,
    time::Timestamp,
};

/// A payload takes some 18 times its size while it is printed. Larger ones are not worth the
/// memory: they stand in the store.
const MAX_PRINTED_BYTES: usize = 2 * 1024 * 1024;

/// How messages are printed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum PrintFormat {
    /// One line of JSON a message.
    Json,
    /// A few lines and the payload as YAML.
    Text,
}

/// A message to print.
#[derive(Clone, Copy, Debug)]
pub struct PrintedMessage<'m> {
    pub kind: RecordKind,
    pub meta: &'m StepMeta,
    pub payload: &'m CleanPayload,
    pub error: &'m str,
}

impl PrintFormat {
    pub fn print(self, message: PrintedMessage<'_>, out: &mut impl Write) -> io::Result<()> {
        let text = match self {
            Self::Json => json_line(message),
            Self::Text => text_block(message),
        };
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

fn json_line(message: PrintedMessage<'_>) -> String {
    let mut event = Map::new();
    event.insert("type".to_owned(), json!(name_of(message.kind)));
    event.insert(
        "meta".to_owned(),
        Value::Object(protojson_meta(message.meta)),
    );
    event.insert("payload".to_owned(), payload_value(message.payload));
    if !message.error.is_empty() {
        event.insert("error".to_owned(), json!(message.error));
    }
    let mut line = String::new();
    write_json(&Value::Object(event), &mut line);
    line.push('\n');
    line
}

fn text_block(message: PrintedMessage<'_>) -> String {
    let PrintedMessage { meta, error, .. } = message;
    let mut lines = vec![format!("=== {} ===", name_of(message.kind))];
    let mut field = |name: &str, value: &str| lines.push(format!("  {name:<13}{value}"));
    if let Some(subject) = &meta.subject {
        match subject.kind_of_subject {
            SubjectType::Composite => {
                let Subject {
                    api_version,
                    kind,
                    name,
                    ..
                } = subject;
                field("XR:", &format!("{api_version}/{kind} ({name})"));
                field("XR UID:", &subject.uid);
                if !subject.namespace.is_empty() {
                    field("XR NS:", &subject.namespace);
                }
                field("Composition:", &subject.composition);
            }
            SubjectType::Operation => {
                field("Operation:", &subject.name);
                field("Op UID:", &subject.uid);
            }
        }
    }
    let StepMeta {
        step_name,
        step_index,
        iteration,
        ..
    } = meta;
    field(
        "Step:",
        &format!("{step_name} (index {step_index}, iteration {iteration})"),
    );
    field("Function:", &meta.function_name);
    field("Trace ID:", &meta.trace_id);
    field("Span ID:", &meta.span_id);
    field(
        "Timestamp:",
        &meta.timestamp.unwrap_or_default().rfc3339_millis(),
    );
    if !error.is_empty() {
        field("Error:", error);
    }

    let value = payload_value(message.payload);
    let mut yaml = String::new();
    if !value.is_null() {
        write_yaml(&value, &mut yaml);
    }
    // The reference leaves out a payload that its YAML library refuses.
    if !yaml.is_empty() {
        lines.push("  Payload:".to_owned());
        lines.extend(
            yaml.trim_end_matches('\n')
                .split('\n')
                .map(|line| format!("    {line}")),
        );
        lines.push(String::new());
    }
    lines.push(String::new());
    lines.push(String::new());
    lines.join("\n")
}

const fn name_of(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Request => "REQUEST",
        RecordKind::Response => "RESPONSE",
    }
}

fn payload_value(payload: &CleanPayload) -> Value {
    match payload {
        CleanPayload::Json(bytes) if bytes.len() > MAX_PRINTED_BYTES => {
            json!(format!(
                "({} bytes, too large to print; see the store)",
                bytes.len()
            ))
        }
        CleanPayload::Empty => Value::Null,
        CleanPayload::Json(bytes) => serde_json::from_slice(bytes)
            // Too deep for a tree, or a lone surrogate: shown as it came.
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned())),
        CleanPayload::Text(bytes) | CleanPayload::Binary(bytes) => {
            Value::String(String::from_utf8_lossy(bytes).into_owned())
        }
    }
}

/// The meta as protojson prints the shipped layout: zero values left out.
fn protojson_meta(meta: &StepMeta) -> Map<String, Value> {
    let mut fields = Map::new();
    if let Some(timestamp) = meta.timestamp {
        fields.insert(
            "timestamp".to_owned(),
            json!(Timestamp::rfc3339_shortest(timestamp)),
        );
    }
    insert_texts(
        &mut fields,
        &[
            ("traceId", &meta.trace_id),
            ("spanId", &meta.span_id),
            ("stepName", &meta.step_name),
            ("functionName", &meta.function_name),
        ],
    );
    for (name, number) in [
        ("stepIndex", meta.step_index),
        ("iteration", meta.iteration),
    ] {
        if number != 0 {
            fields.insert(name.to_owned(), json!(number));
        }
    }
    if let Some(subject) = &meta.subject {
        let mut context = Map::new();
        let name = match subject.kind_of_subject {
            SubjectType::Composite => {
                insert_texts(
                    &mut context,
                    &[
                        ("compositionName", &subject.composition),
                        ("compositeResourceUid", &subject.uid),
                        ("compositeResourceName", &subject.name),
                        ("compositeResourceNamespace", &subject.namespace),
                        ("compositeResourceApiVersion", &subject.api_version),
                        ("compositeResourceKind", &subject.kind),
                    ],
                );
                "compositionMeta"
            }
            SubjectType::Operation => {
                insert_texts(
                    &mut context,
                    &[
                        ("operationName", &subject.name),
                        ("operationUid", &subject.uid),
                    ],
                );
                "operationMeta"
            }
        };
        fields.insert(name.to_owned(), Value::Object(context));
    }
    fields
}

fn insert_texts(fields: &mut Map<String, Value>, texts: &[(&str, &String)]) {
    for (name, text) in texts.iter().filter(|(_, text)| !text.is_empty()) {
        fields.insert((*name).to_owned(), json!(text));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn meta() -> StepMeta {
        StepMeta {
            timestamp: Timestamp::from_parts(1_768_473_000, 0),
            trace_id: "trace-789".into(),
            span_id: "span-456".into(),
            step_index: 0,
            step_name: "my-step".into(),
            iteration: 0,
            function_name: "function-patch-and-transform".into(),
            subject: Some(Subject {
                kind_of_subject: SubjectType::Composite,
                api_version: "example.org/v1".into(),
                kind: "XDatabase".into(),
                namespace: "default".into(),
                name: "my-db".into(),
                uid: "abc-123".into(),
                composition: "my-composition".into(),
            }),
        }
    }

    fn printed(format: PrintFormat, meta: &StepMeta, payload: &'static str, error: &str) -> String {
        let payload = match payload {
            "" => CleanPayload::Empty,
            json if json.starts_with('{') => {
                CleanPayload::Json(Bytes::from_static(json.as_bytes()))
            }
            text => CleanPayload::Text(Bytes::from_static(text.as_bytes())),
        };
        let kind = if error.is_empty() {
            RecordKind::Request
        } else {
            RecordKind::Response
        };
        let mut out = Vec::new();
        let message = PrintedMessage {
            kind,
            meta,
            payload: &payload,
            error,
        };
        format.print(message, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_is_the_references() {
        let text = printed(
            PrintFormat::Text,
            &meta(),
            r#"{"b":[1,{"c":"x"}],"a":"yes"}"#,
            "",
        );
        let expected = "\
=== REQUEST ===
  XR:          example.org/v1/XDatabase (my-db)
  XR UID:      abc-123
  XR NS:       default
  Composition: my-composition
  Step:        my-step (index 0, iteration 0)
  Function:    function-patch-and-transform
  Trace ID:    trace-789
  Span ID:     span-456
  Timestamp:   2026-01-15T10:30:00.000Z
  Payload:
    a: \"yes\"
    b:
    - 1
    - c: x


";
        assert_eq!(text, expected);
    }

    #[test]
    fn text_of_a_failed_operation_has_its_error_and_no_payload() {
        let subject = Some(Subject::operation("rotate".into(), "uid-1".into()));
        let text = printed(
            PrintFormat::Text,
            &StepMeta { subject, ..meta() },
            "",
            "it broke",
        );
        assert!(
            text.starts_with("=== RESPONSE ===\n  Operation:   rotate\n  Op UID:      uid-1\n")
        );
        assert!(text.ends_with("  Error:       it broke\n\n"), "{text}");
    }

    #[test]
    fn json_is_the_references() {
        let line = printed(PrintFormat::Json, &meta(), r#"{"b":1.0,"a":"<&>"}"#, "");
        let expected = concat!(
            r#"{"meta":{"compositionMeta":{"compositeResourceApiVersion":"example.org/v1","#,
            r#""compositeResourceKind":"XDatabase","compositeResourceName":"my-db","#,
            r#""compositeResourceNamespace":"default","compositeResourceUid":"abc-123","#,
            r#""compositionName":"my-composition"},"functionName":"function-patch-and-transform","#,
            r#""spanId":"span-456","stepName":"my-step","timestamp":"2026-01-15T10:30:00Z","#,
            r#""traceId":"trace-789"},"payload":{"a":"\u003c\u0026\u003e","b":1},"type":"REQUEST"}"#,
            "\n"
        );
        assert_eq!(line, expected);
    }

    #[test]
    fn json_of_odd_messages_is_the_references() {
        let none = StepMeta::default();
        assert_eq!(
            printed(PrintFormat::Json, &none, "not json", ""),
            "{\"meta\":{},\"payload\":\"not json\",\"type\":\"REQUEST\"}\n"
        );
        assert_eq!(
            printed(PrintFormat::Json, &none, "", "failed"),
            "{\"error\":\"failed\",\"meta\":{},\"payload\":null,\"type\":\"RESPONSE\"}\n"
        );
    }
}
