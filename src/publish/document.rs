//! The document of a reconcile, version 1:
//!
//! ```json
//! {"v":1,"trace_id":"…","subject":{…},"steps":[
//! {"index":0,"name":"…","iteration":0,"function":"…","span_id":"…","timestamp":"…","ended_at":"…",
//!  "error":null,"request":…,"response":…},
//! …
//! ]}
//! ```
//!
//! `ended_at` is the arrival of the response. A payload stands in it byte for byte as it came but
//! for redacted values; one that is no JSON stands as a string under `request_text` or
//! `response_text`, one that is no text either in base64 under `…_base64`. What is missing is null.
//!
//! Invariant: one payload is in memory at a time, and the same reconcile gives the same bytes.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::joining::{EarlierDocument, join};
use crate::{
    reconcile::{ClosedReconcile, Half, Step, Subject},
    record::RecordKind,
    redact::{CleanPayload, Redactor},
};

/// Where payloads come from.
pub trait PayloadSource {
    /// The payload of this half; `None` if it is lost, an error if another try may help.
    fn read_payload(&mut self, kind: RecordKind, half: &Half) -> io::Result<Option<Bytes>>;
}

/// What was found on the way.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DocumentReport {
    pub redacted_values: u64,
    pub not_json: u64,
    pub unreadable: u64,
}

/// What a step's line begins with.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct StepHead<'d> {
    pub(super) index: i32,
    pub(super) name: Cow<'d, str>,
    pub(super) iteration: i32,
    pub(super) function: Cow<'d, str>,
    pub(super) span_id: Cow<'d, str>,
    pub(super) timestamp: Cow<'d, str>,
    pub(super) ended_at: Option<Cow<'d, str>>,
    pub(super) error: Option<Cow<'d, str>>,
}

/// A step on its way into the document.
#[derive(Clone, Debug)]
pub(super) struct StepEntry<'d> {
    pub(super) head: StepHead<'d>,
    pub(super) request: Slot<'d>,
    pub(super) response: Slot<'d>,
}

/// Where a payload of a step is taken from.
#[derive(Clone, Debug)]
pub(super) enum Slot<'d> {
    Nothing,
    /// From the log.
    Logged(&'d Half),
    /// From the document that was stored before.
    Stored {
        form: &'static str,
        value: &'d RawValue,
    },
}

impl<'d> StepEntry<'d> {
    pub(super) fn of(step: &'d Step) -> Self {
        let slot = |half: &'d Option<Half>| half.as_ref().map_or(Slot::Nothing, Slot::Logged);
        let text = |text: &'d str| Cow::Borrowed(text);
        Self {
            head: StepHead {
                index: step.index,
                name: text(&step.name),
                iteration: step.iteration,
                function: text(&step.function),
                span_id: text(&step.span_id),
                timestamp: step.started_at.rfc3339().into(),
                ended_at: step
                    .response
                    .as_ref()
                    .map(|half| half.received_at.rfc3339().into()),
                error: (!step.error.is_empty()).then(|| text(&step.error)),
            },
            request: slot(&step.request),
            response: slot(&step.response),
        }
    }
}

/// Writes the document of a reconcile, joined with what was stored of it before.
pub fn write_document(
    reconcile: &ClosedReconcile,
    earlier: Option<&EarlierDocument<'_>>,
    source: &mut dyn PayloadSource,
    redactor: &Redactor,
    out: &mut dyn Write,
) -> io::Result<DocumentReport> {
    #[derive(Serialize)]
    struct Heading<'d> {
        v: u32,
        trace_id: &'d str,
        subject: &'d Subject,
    }

    let fresh: Vec<_> = reconcile.steps.iter().map(StepEntry::of).collect();
    let steps = match earlier {
        Some(earlier) => join(earlier, fresh, source, redactor)?,
        None => fresh,
    };
    let heading = Heading {
        v: 1,
        trace_id: &reconcile.trace_id.0,
        subject: &reconcile.subject,
    };
    let mut document = DocumentWriter {
        out,
        source,
        redactor,
        report: DocumentReport::default(),
    };
    document.open_object(&heading)?;
    document.out.write_all(b",\"steps\":[")?;
    for (position, step) in steps.iter().enumerate() {
        document
            .out
            .write_all(if position == 0 { b"\n" } else { b",\n" })?;
        document.open_object(&step.head)?;
        document.payload(RecordKind::Request, &step.request)?;
        document.payload(RecordKind::Response, &step.response)?;
        document.out.write_all(b"}")?;
    }
    document.out.write_all(b"\n]}\n")?;
    Ok(document.report)
}

struct DocumentWriter<'w> {
    out: &'w mut dyn Write,
    source: &'w mut dyn PayloadSource,
    redactor: &'w Redactor,
    report: DocumentReport,
}

impl DocumentWriter<'_> {
    /// Writes an object without its closing brace.
    fn open_object(&mut self, object: &impl Serialize) -> io::Result<()> {
        let json = serde_json::to_vec(object)?;
        self.out.write_all(json.strip_suffix(b"}").unwrap_or(&json))
    }

    fn payload(&mut self, kind: RecordKind, slot: &Slot<'_>) -> io::Result<()> {
        match slot {
            Slot::Nothing => self.member(kind, "", b"null"),
            Slot::Stored { form, value } => self.member(kind, form, value.get().as_bytes()),
            Slot::Logged(half) => match self.source.read_payload(kind, half)? {
                None => {
                    self.report.unreadable += 1;
                    self.member(kind, "", b"null")
                }
                Some(payload) => self.fresh_payload(kind, &payload),
            },
        }
    }

    fn fresh_payload(&mut self, kind: RecordKind, payload: &Bytes) -> io::Result<()> {
        let redacted = self.redactor.redact(payload);
        self.report.redacted_values += redacted.values;
        let (form, value) = json_of(&redacted.payload)?;
        self.report.not_json += u64::from(!form.is_empty());
        self.member(kind, form, &value)
    }

    fn member(&mut self, kind: RecordKind, form: &str, value: &[u8]) -> io::Result<()> {
        write!(self.out, ",\"{}{form}\":", kind.as_str())?;
        self.out.write_all(value)
    }
}

/// A payload as JSON, and the form in which it stands: as it came, as text, in base64.
pub(super) fn json_of(payload: &CleanPayload) -> io::Result<(&'static str, Bytes)> {
    Ok(match payload {
        CleanPayload::Empty => ("", Bytes::from_static(b"null")),
        CleanPayload::Json(bytes) => ("", bytes.clone()),
        CleanPayload::Text(bytes) => (
            "_text",
            serde_json::to_vec(&String::from_utf8_lossy(bytes))?.into(),
        ),
        CleanPayload::Binary(bytes) => (
            "_base64",
            serde_json::to_vec(&STANDARD.encode(bytes))?.into(),
        ),
    })
}
