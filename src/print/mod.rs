//! Messages on stdout, as Crossplane's reference sidecar prints them.
//!
//! Invariant: for the same message the same bytes as the reference, but for secret values, which
//! are shown redacted, and for large payloads, which are named and not shown: printing takes a few
//! megabytes, whatever the payload. Go's formatting rules live in `go_json` and `go_yaml`.

mod go_json;
mod go_yaml;
mod payload_lines;

use std::io::{self, BufWriter, Write};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use self::{go_json::write_json, go_yaml::write_yaml, payload_lines::PayloadLines};
use crate::{
    decode::StepMeta,
    json::{Json, Values},
    reconcile::{Subject, SubjectType},
    record::RecordKind,
    redact::CleanPayload,
    time::Timestamp,
};

/// A payload usually takes some 18 times its size while it is printed. Larger ones are not worth
/// the memory: they are in the store.
const MAX_PRINTED_BYTES: usize = 256 * 1024;
/// The same for a payload that is made to take more: a value of a byte or two may take some
/// hundred. Usual payloads of [`MAX_PRINTED_BYTES`] have 10,000.
const MAX_PRINTED_VALUES: usize = 16 * 1024;
/// Stdout writes every line by itself, unless it gets many at once.
const PIECE_BYTES: usize = 64 * 1024;

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
    pub payload: &'m PrintedPayload,
    pub error: &'m str,
}

/// A payload to print.
#[derive(Clone, Debug)]
pub enum PrintedPayload {
    Shown(CleanPayload),
    TooLarge { bytes: usize },
}

impl PrintedPayload {
    /// The payload as `redact` leaves it; one that is too large to be shown is not even redacted.
    pub fn of(payload: &Bytes, redact: impl FnOnce(&Bytes) -> CleanPayload) -> Self {
        if payload.len() > MAX_PRINTED_BYTES {
            let bytes = payload.len();
            return Self::TooLarge { bytes };
        }
        Self::Shown(redact(payload))
    }

    fn value(&self) -> Value {
        match self {
            Self::TooLarge { bytes } => too_large(*bytes),
            Self::Shown(payload) => value_of(payload),
        }
    }
}

impl PrintFormat {
    pub fn print(self, message: PrintedMessage<'_>, out: &mut impl Write) -> io::Result<()> {
        let mut out = BufWriter::with_capacity(PIECE_BYTES, out);
        match self {
            Self::Json => out.write_all(json_line(message).as_bytes())?,
            Self::Text => write_text_block(message, &mut out)?,
        }
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
    event.insert("payload".to_owned(), message.payload.value());
    if !message.error.is_empty() {
        event.insert("error".to_owned(), json!(message.error));
    }
    let mut line = String::new();
    write_json(&Value::Object(event), &mut line);
    line.push('\n');
    line
}

fn write_text_block(message: PrintedMessage<'_>, out: &mut dyn Write) -> io::Result<()> {
    let PrintedMessage { meta, error, .. } = message;
    writeln!(out, "=== {} ===", name_of(message.kind))?;
    let mut field = |name: &str, value: &str| writeln!(out, "  {name:<13}{value}");
    if let Some(subject) = &meta.subject {
        match subject.kind_of_subject {
            SubjectType::Composite => {
                let Subject {
                    api_version,
                    kind,
                    name,
                    ..
                } = subject;
                field("XR:", &format!("{api_version}/{kind} ({name})"))?;
                field("XR UID:", &subject.uid)?;
                if !subject.namespace.is_empty() {
                    field("XR NS:", &subject.namespace)?;
                }
                field("Composition:", &subject.composition)?;
            }
            SubjectType::Operation => {
                field("Operation:", &subject.name)?;
                field("Op UID:", &subject.uid)?;
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
    )?;
    field("Function:", &meta.function_name)?;
    field("Trace ID:", &meta.trace_id)?;
    field("Span ID:", &meta.span_id)?;
    field(
        "Timestamp:",
        &meta.timestamp.unwrap_or_default().rfc3339_millis(),
    )?;
    if !error.is_empty() {
        field("Error:", error)?;
    }

    let value = message.payload.value();
    // The reference leaves out a payload that its YAML library refuses.
    let mut lines = PayloadLines::new(out);
    if !value.is_null() {
        write_yaml(&value, &mut |character| lines.put(character));
    }
    lines.finish()?;
    writeln!(out)
}

const fn name_of(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Request => "REQUEST",
        RecordKind::Response => "RESPONSE",
    }
}

fn too_large(bytes: usize) -> Value {
    json!(format!(
        "({bytes} bytes, too large to print; see the store)"
    ))
}

fn value_of(payload: &CleanPayload) -> Value {
    let as_it_came = |bytes| Value::String(String::from_utf8_lossy(bytes).into_owned());
    match payload {
        CleanPayload::Empty => Value::Null,
        CleanPayload::Json(bytes) if has_too_many_values(bytes) => too_large(bytes.len()),
        CleanPayload::Json(bytes) => {
            // Too deep for a tree, or a lone surrogate: shown as it came.
            serde_json::from_slice(bytes).unwrap_or_else(|_| as_it_came(bytes))
        }
        CleanPayload::Text(bytes) | CleanPayload::Binary(bytes) => as_it_came(bytes),
    }
}

/// Whether a tree of this would take too much; found out with a tree that takes less.
fn has_too_many_values(json: &[u8]) -> bool {
    let values = Values::up_to(MAX_PRINTED_VALUES);
    let tree = std::str::from_utf8(json).map(|text| Json::parse_within(text, &values));
    drop(tree);
    values.is_exceeded()
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
    use super::*;
    use crate::redact::Redactor;

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
            payload: &PrintedPayload::Shown(payload),
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

    /// What both formats print of a payload, without the message around it.
    fn payloads_of(payload: Vec<u8>) -> [String; 2] {
        let redactor = Redactor::new::<&str>(&[], &[]).unwrap();
        let payload =
            PrintedPayload::of(&payload.into(), |payload| redactor.redact(payload).payload);
        [PrintFormat::Json, PrintFormat::Text].map(|format| {
            let mut out = Vec::new();
            let message = PrintedMessage {
                kind: RecordKind::Request,
                meta: &StepMeta::default(),
                payload: &payload,
                error: "",
            };
            format.print(message, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        })
    }

    /// JSON, text and binary of about this many bytes.
    fn payloads(bytes: usize) -> [Vec<u8>; 3] {
        let text = "x".repeat(bytes - 8);
        let mut binary = text.clone().into_bytes();
        binary.push(0xff);
        [format!(r#"{{"a":"{text}"}}"#).into(), text.into(), binary]
    }

    #[test]
    fn a_large_payload_is_named_and_not_shown_whatever_it_is() {
        for payload in payloads(MAX_PRINTED_BYTES + 16) {
            let expected = format!(
                "({} bytes, too large to print; see the store)",
                payload.len()
            );
            for printed in payloads_of(payload) {
                assert!(printed.contains(&expected), "{}", printed.len());
                assert!(printed.len() < 1024, "{}", printed.len());
            }
        }
        for payload in payloads(MAX_PRINTED_BYTES) {
            for printed in payloads_of(payload) {
                assert!(printed.len() > MAX_PRINTED_BYTES, "{}", printed.len());
            }
        }
    }

    #[test]
    fn a_large_payload_is_not_redacted() {
        let [large, ..] = payloads(MAX_PRINTED_BYTES + 16);
        let printed = PrintedPayload::of(&large.into(), |_| unreachable!("this is for nobody"));
        assert!(matches!(printed, PrintedPayload::TooLarge { .. }));
    }

    #[test]
    fn very_many_small_values_are_named_and_not_shown() {
        let list = |values: usize| format!("[{}]", vec!["1"; values].join(",")).into_bytes();
        for printed in payloads_of(list(MAX_PRINTED_VALUES)) {
            assert!(printed.contains("too large to print"), "{}", printed.len());
        }
        for printed in payloads_of(list(MAX_PRINTED_VALUES - 1)) {
            assert!(!printed.contains("too large to print"));
        }
    }
}
