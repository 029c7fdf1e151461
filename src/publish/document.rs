//! The document of a reconcile, version 1:
//!
//! ```json
//! {"v":1,"trace_id":"…","revision":1,"subject":{…},"steps":[
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
//! `revision` says how often a part that arrived late was merged into the document; without it, never.
//! A step without a response has `waited_until`, when waiting for it ended, and `interrupted` if that
//! was because the sidecar stopped.
//!
//! Invariant: one payload is in memory at a time, beside it at most a copy without its secrets
//! while that is made; and the same reconcile gives the same bytes.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use base64::{display::Base64Display, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    line::PayloadRef,
    pace::in_slices,
    reconcile::{ClosedReconcile, Half, PayloadHasher, Step, Subject},
    record::RecordKind,
    redact::{CleanPayload, Redacted, Redactor},
};

/// Of a text that is written at once.
const TEXT_PIECE_BYTES: usize = 16 * 1024;
/// A multiple of three, so that pieces in base64 make up the whole.
const BASE64_PIECE_BYTES: usize = 12 * 1024;

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
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Heading<'d> {
    pub(super) v: u32,
    #[serde(borrow)]
    pub(super) trace_id: Cow<'d, str>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) revision: u32,
    pub(super) subject: Cow<'d, Subject>,
}

impl Heading<'_> {
    pub(super) fn into_owned(self) -> Heading<'static> {
        Heading {
            v: self.v,
            trace_id: owned(self.trace_id),
            revision: self.revision,
            subject: Cow::Owned(self.subject.into_owned()),
        }
    }
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
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) waited_until: Option<Cow<'d, str>>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) interrupted: bool,
}

impl<'d> StepHead<'d> {
    fn of(reconcile: &ClosedReconcile, step: &'d Step) -> Self {
        let text = |text: &'d str| Cow::Borrowed(text);
        let unanswered = reconcile.unanswered(step);
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
            waited_until: unanswered.map(|it| it.until.rfc3339().into()),
            interrupted: unanswered.is_some_and(|it| it.interrupted),
        }
    }
}

impl StepHead<'_> {
    pub(super) fn into_owned(self) -> StepHead<'static> {
        StepHead {
            index: self.index,
            name: owned(self.name),
            iteration: self.iteration,
            function: owned(self.function),
            span_id: owned(self.span_id),
            timestamp: owned(self.timestamp),
            ended_at: self.ended_at.map(owned),
            error: self.error.map(owned),
            waited_until: self.waited_until.map(owned),
            interrupted: self.interrupted,
        }
    }
}

fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
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
        revision: 0,
        subject: Cow::Borrowed(&reconcile.subject),
    };
    let mut report = DocumentReport::default();
    let mut document = DocumentWriter::begin(out, &heading)?;
    for (place, step) in reconcile.steps.iter().enumerate() {
        document.begin_step(&StepHead::of(reconcile, step))?;
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
                drop(payload);
                if let CleanPayload::Json(json) = &clean.payload {
                    visit(place, kind, json);
                }
                clean
            };
            let form = form_of(&clean.payload);
            document.clean_payload(kind, form, &clean.payload)?;
            report.redacted_values += clean.values;
            report.not_json += u64::from(!form.is_empty());
            *payload_ref =
                payload_ref_of(place, kind, form, clean.payload.as_bytes(), clean.values);
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
    content: &[u8],
    redacted: u64,
) -> Option<PayloadRef> {
    if content.is_empty() {
        return None;
    }
    let mut hasher = PayloadHasher::default();
    in_slices(content, |slice| hasher.update(slice));
    Some(PayloadRef {
        pointer: pointer_of(place, kind, form),
        sha256: hasher.finish().to_string(),
        size: content.len() as u64,
        redacted,
    })
}

/// The JSON pointer of a payload in its document.
pub(super) fn pointer_of(place: usize, kind: RecordKind, form: &str) -> String {
    format!("/steps/{place}/{}{form}", kind.as_str())
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
        self.begin_payload(kind, form)?;
        self.piece(json)
    }

    /// What comes next are the pieces of a payload.
    pub(super) fn begin_payload(&mut self, kind: RecordKind, form: &str) -> io::Result<()> {
        write!(self.out, ",\"{}{form}\":", kind.as_str())
    }

    pub(super) fn piece(&mut self, json: &[u8]) -> io::Result<()> {
        self.out.write_all(json)
    }

    /// Writes a payload in the form that it has, piece by piece: as JSON, a text may take six times
    /// its size.
    fn clean_payload(
        &mut self,
        kind: RecordKind,
        form: &str,
        payload: &CleanPayload,
    ) -> io::Result<()> {
        match payload {
            CleanPayload::Empty => self.payload(kind, form, b"null"),
            CleanPayload::Json(json) => self.payload(kind, form, json),
            CleanPayload::Text(text) => {
                self.payload(kind, form, b"\"")?;
                for piece in text.utf8_chunks() {
                    for valid in pieces(piece.valid()) {
                        let quoted = serde_json::to_vec(valid)?;
                        let inner = quoted.get(1..quoted.len().saturating_sub(1));
                        self.out.write_all(inner.unwrap_or_default())?;
                    }
                    if !piece.invalid().is_empty() {
                        self.out.write_all("\u{FFFD}".as_bytes())?;
                    }
                }
                self.out.write_all(b"\"")
            }
            CleanPayload::Binary(bytes) => {
                self.payload(kind, form, b"\"")?;
                for piece in bytes.chunks(BASE64_PIECE_BYTES) {
                    write!(self.out, "{}", Base64Display::new(piece, &STANDARD))?;
                }
                self.out.write_all(b"\"")
            }
        }
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

/// The forms in which a payload can stand: as it came, as text, in base64.
pub(super) const FORMS: [&str; 3] = ["", "_text", "_base64"];

/// What the member of a payload is called besides, by its form.
const fn form_of(payload: &CleanPayload) -> &'static str {
    match payload {
        CleanPayload::Empty | CleanPayload::Json(_) => "",
        CleanPayload::Text(_) => "_text",
        CleanPayload::Binary(_) => "_base64",
    }
}

/// A text in pieces, none longer than a few kilobytes.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let end = text.floor_char_boundary(TEXT_PIECE_BYTES);
        let (piece, rest) = text.split_at_checked(end)?;
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}
