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

use crate::{
    line::PayloadRef,
    pace::in_slices,
    reconcile::{ClosedReconcile, Half, PayloadHasher, Step, Subject},
    record::RecordKind,
    redact::{CleanPayload, Redacted, Redactor},
};

/// Where payloads come from.
pub trait PayloadSource {
    /// The payload of this half; `None` if it is lost, an error if another try may help.
    fn read_payload(&mut self, kind: RecordKind, half: &Half) -> io::Result<Option<Bytes>>;
}

/// Sees every payload that may be JSON as it goes by, without its secrets: the place of its step,
/// which half it is. Tells whether it is JSON, if it went to the trouble of finding that out.
pub type Visitor<'v> = dyn FnMut(usize, RecordKind, &[u8]) -> bool + 'v;

/// What was written.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DocumentReport {
    pub redacted_values: u64,
    pub not_json: u64,
    pub unreadable: u64,
    /// Where each step's payloads stand.
    pub steps: Vec<StepPayloads>,
}

/// Where the payloads of a step stand.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StepPayloads {
    pub request: Option<PayloadRef>,
    pub response: Option<PayloadRef>,
}

/// What a document begins with.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Heading<'d> {
    pub(super) v: u32,
    #[serde(borrow)]
    pub(super) trace_id: Cow<'d, str>,
    pub(super) subject: Cow<'d, Subject>,
}

/// What a step's line begins with.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct StepHead<'d> {
    pub(super) index: i32,
    #[serde(borrow)]
    pub(super) name: Cow<'d, str>,
    pub(super) iteration: i32,
    #[serde(borrow)]
    pub(super) function: Cow<'d, str>,
    #[serde(borrow)]
    pub(super) span_id: Cow<'d, str>,
    #[serde(borrow)]
    pub(super) timestamp: Cow<'d, str>,
    #[serde(borrow)]
    pub(super) ended_at: Option<Cow<'d, str>>,
    #[serde(borrow)]
    pub(super) error: Option<Cow<'d, str>>,
}

impl<'d> StepHead<'d> {
    fn of(step: &'d Step) -> Self {
        let text = |text: &'d str| Cow::Borrowed(text);
        Self {
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
        }
    }
}

/// Writes the document of a reconcile.
pub fn write_document(
    reconcile: &ClosedReconcile,
    source: &mut dyn PayloadSource,
    redactor: &Redactor,
    visit: &mut Visitor<'_>,
    out: &mut dyn Write,
) -> io::Result<DocumentReport> {
    let heading = Heading {
        v: 1,
        trace_id: Cow::Borrowed(&reconcile.trace_id.0),
        subject: Cow::Borrowed(&reconcile.subject),
    };
    let mut report = DocumentReport::default();
    let mut document = DocumentWriter::begin(out, &heading)?;
    for (place, step) in reconcile.steps.iter().enumerate() {
        document.begin_step(&StepHead::of(step))?;
        let mut payloads = StepPayloads::default();
        for (kind, half, payload_ref) in [
            (RecordKind::Request, &step.request, &mut payloads.request),
            (RecordKind::Response, &step.response, &mut payloads.response),
        ] {
            let payload = match half {
                Some(half) => source.read_payload(kind, half)?,
                None => None,
            };
            let Some(payload) = payload else {
                report.unreadable += u64::from(half.is_some());
                document.payload(kind, "", b"null")?;
                continue;
            };
            // Most have nothing to hide; then who reads it for its own sake tells whether it is
            // JSON, so that it is not read twice.
            let clean = if redactor.has_nothing_to_hide(&payload) && visit(place, kind, &payload) {
                Redacted {
                    payload: CleanPayload::Json(payload),
                    values: 0,
                }
            } else {
                let clean = redactor.redact(&payload);
                if let CleanPayload::Json(json) = &clean.payload {
                    visit(place, kind, json);
                }
                clean
            };
            let (form, value) = json_of(&clean.payload)?;
            document.payload(kind, form, &value)?;
            report.redacted_values += clean.values;
            report.not_json += u64::from(!form.is_empty());
            *payload_ref = payload_ref_of(place, kind, form, &clean);
        }
        report.steps.push(payloads);
        document.end_step()?;
    }
    document.end()?;
    Ok(report)
}

/// Where a payload stands, and how to tell that it is the one; `None` if nothing came.
fn payload_ref_of(
    place: usize,
    kind: RecordKind,
    form: &str,
    clean: &Redacted,
) -> Option<PayloadRef> {
    let content = clean.payload.as_bytes();
    if content.is_empty() {
        return None;
    }
    let mut hasher = PayloadHasher::default();
    in_slices(content, |slice| hasher.update(slice));
    Some(PayloadRef {
        pointer: pointer_of(place, kind, form),
        sha256: hasher.finish().to_string(),
        size: content.len() as u64,
        redacted: clean.values,
    })
}

/// The JSON pointer of a payload in its document.
fn pointer_of(place: usize, kind: RecordKind, form: &str) -> String {
    format!("/steps/{place}/{}{form}", kind.as_str())
}

/// Moves a pointer to another step.
pub(super) fn move_pointer(pointer: &mut String, place: usize) {
    if let Some((_, member)) = pointer.rsplit_once('/') {
        *pointer = format!("/steps/{place}/{member}");
    }
}

/// Puts a document together.
pub(super) struct DocumentWriter<'w> {
    out: &'w mut dyn Write,
    separator: &'static [u8],
}

impl<'w> DocumentWriter<'w> {
    pub(super) fn begin(out: &'w mut dyn Write, heading: &Heading<'_>) -> io::Result<Self> {
        let mut document = Self {
            out,
            separator: b"\n",
        };
        document.open_object(heading)?;
        document.out.write_all(b",\"steps\":[")?;
        Ok(document)
    }

    pub(super) fn begin_step(&mut self, head: &StepHead<'_>) -> io::Result<()> {
        self.out.write_all(self.separator)?;
        self.separator = b",\n";
        self.open_object(head)
    }

    /// Writes a payload as JSON, in its form: as it came, as text, in base64.
    pub(super) fn payload(&mut self, kind: RecordKind, form: &str, json: &[u8]) -> io::Result<()> {
        write!(self.out, ",\"{}{form}\":", kind.as_str())?;
        self.out.write_all(json)
    }

    pub(super) fn end_step(&mut self) -> io::Result<()> {
        self.out.write_all(b"}")
    }

    pub(super) fn end(self) -> io::Result<()> {
        self.out.write_all(b"\n]}\n")
    }

    /// Writes an object without its closing brace.
    fn open_object(&mut self, object: &impl Serialize) -> io::Result<()> {
        let json = serde_json::to_vec(object)?;
        self.out.write_all(json.strip_suffix(b"}").unwrap_or(&json))
    }
}

/// A payload as JSON, and the form in which it stands.
fn json_of(payload: &CleanPayload) -> io::Result<(&'static str, Bytes)> {
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
