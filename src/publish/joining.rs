//! Joins a part of a reconcile that arrived late with the document that was stored before, and
//! writes the line of the whole.
//!
//! Each document is read twice as a stream: once for its outline, once for its payloads. Invariant:
//! one payload is in memory at a time, and a reconcile has the same line whether it was split or
//! not, but for its revision, the size of its object and what only the process knows that received
//! all of it.

use std::{
    borrow::Cow,
    cell::Cell,
    io::{self, Read, Write},
};

use memchr::memmem;

use super::{
    Context, StepPayloads,
    document::{DocumentWriter, content_of, payload_ref_of},
    line_of,
    merging::{Merge, MergedStep, Origin, Placed},
    outline::Outline,
};
use crate::{
    fingerprint::Fingerprint,
    line::{Line, LineStep},
    pace::breathe,
    reconcile::{ClosedReconcile, Closing, Half, Step, TraceId, Unanswered},
    record::{Position, RecordKind, SegmentId},
    redact::REDACTED,
    summarise::Summariser,
    time::Timestamp,
};

/// Opens a document from its beginning, decompressed.
pub type Opener<'o> = dyn FnMut() -> io::Result<Box<dyn Read>> + 'o;

/// Joins the document of a late part with the one that was stored before; returns the line of the
/// whole.
///
/// The merged document is written to `out` if it holds more than the earlier one, or if the late one
/// is stored too and is about to go (`is_stored`): then lines may name it, which a higher revision
/// replaces. Before that its size is told to `expected_bytes`. What only the process knows is taken
/// from the late part's line. With the line of a `beginning`, the earlier document is that of
/// another reconcile whose payloads are the same. `None` if one of the two can't be read, is damaged, not a document, or
/// of another reconcile; an error is about writing.
pub fn join_documents(
    earlier: &mut Opener<'_>,
    late: &mut Opener<'_>,
    late_line: &Line,
    beginning: Option<&Line>,
    is_stored: bool,
    expected_bytes: &Cell<u64>,
    out: &mut dyn Write,
) -> io::Result<Option<Line>> {
    let stored = Outline::read(earlier()?);
    let Some(stored) = (match beginning {
        Some(line) => stored.and_then(|equal| equal.into_beginning(line)),
        None => stored,
    }) else {
        return Ok(None);
    };
    let Some(part) = Outline::read(late()?) else {
        return Ok(None);
    };
    let is_same = stored.steps == part.steps && stored.heading.trace_id == part.heading.trace_id;
    if is_same && !is_stored {
        // Stored before, and sent again.
        return Ok(Some(Line {
            revision: stored.heading.revision,
            ..late_line.clone()
        }));
    }
    let Some(merge) = Merge::of(stored, part, is_stored) else {
        return Ok(None);
    };
    let Some(reconcile) = reconcile_of(&merge) else {
        return Ok(None);
    };
    let mut sink = io::sink();
    let out: &mut dyn Write = if merge.is_new { out } else { &mut sink };
    expected_bytes.set(merge.bytes());
    let mut payloads = Payloads {
        earlier: Forward::new(earlier),
        late: Forward::new(late),
    };
    let mut summariser = Summariser::new();
    let mut steps = Vec::with_capacity(merge.steps.len());
    let mut document = DocumentWriter::begin(out, &merge.heading)?;
    for (place, step) in merge.steps.iter().enumerate() {
        document.begin_step(&step.head)?;
        let mut refs = StepPayloads::default();
        for kind in [RecordKind::Request, RecordKind::Response] {
            let Some(placed) = step.payload(kind) else {
                document.payload(kind, "", b"null")?;
                continue;
            };
            let form = placed.slot.form;
            let Ok(json) = payloads.read(placed) else {
                return Ok(None);
            };
            document.payload(kind, form, &json)?;
            if form.is_empty() {
                summariser.read(place, kind, &json);
            }
            let Some(content) = content_of(form, &json) else {
                return Ok(None);
            };
            let known = late_step(late_line, placed.late_place);
            let redacted = redacted_values(known, kind, &content);
            let payload_ref = payload_ref_of(place, kind, form, &content, redacted);
            match kind {
                RecordKind::Request => refs.request = payload_ref,
                RecordKind::Response => refs.response = payload_ref,
            }
        }
        steps.push(refs);
        document.end_step()?;
    }
    document.end()?;
    let summary = summariser.finish(&reconcile);
    let object = late_line.object.clone();
    let mut line = line_of(&reconcile, summary, steps, object, context_of(late_line));
    line.revision = merge.heading.revision;
    for (step, merged) in line.steps.iter_mut().zip(&merge.steps) {
        let late = late_step(late_line, merged.answered_late);
        step.cached = late.is_some_and(|late| late.cached);
    }
    Ok(Some(line))
}

/// What lies around the late part lies around the whole.
fn context_of(late: &Line) -> Context {
    Context {
        previous_trace_id: late.previous_trace_id.clone(),
        parent_trace_id: late.parent_trace_id.clone(),
        changed: late.changed,
        before: None,
        flapping: late.flapping.clone(),
        flapping_count: late.flapping_count,
    }
}

fn late_step(line: &Line, place: Option<usize>) -> Option<&LineStep> {
    line.steps.get(place?)
}

/// How many values were taken out of a payload: as its line says or, where that is not at hand, as
/// many as are marked so. Core may have marked some of these.
fn redacted_values(known: Option<&LineStep>, kind: RecordKind, content: &[u8]) -> u64 {
    let known = known.and_then(|step| match kind {
        RecordKind::Request => step.request.as_ref(),
        RecordKind::Response => step.response.as_ref(),
    });
    if let Some(known) = known {
        return known.redacted;
    }
    if content == REDACTED.as_bytes() {
        return 1;
    }
    let marker = format!("\"{REDACTED}\"");
    memmem::find_iter(content, &marker).count() as u64
}

/// The merged document as a reconcile that was received in one piece; `None` if a time in it is
/// none.
fn reconcile_of(merge: &Merge) -> Option<ClosedReconcile> {
    let steps: Option<Vec<_>> = merge.steps.iter().map(step_of).collect();
    Some(ClosedReconcile {
        trace_id: TraceId(merge.heading.trace_id.as_ref().into()),
        subject: merge.heading.subject.clone().into_owned(),
        steps: steps?,
        records: Vec::new(),
        first_received_at: Timestamp::default(),
        maybe_fatal: false,
        succeeded_at: None,
        // Documents from before this was noted don't say how waiting for a response ended. What
        // ended it early enough for the rest to arrive is most likely that the sidecar stopped.
        closing: Closing::ShuttingDown,
    })
}

fn step_of(step: &MergedStep) -> Option<Step> {
    let head = &step.head;
    let time = |text: &Cow<'_, str>| Timestamp::parse_rfc3339(text);
    let started_at = time(&head.timestamp)?;
    let half = |placed: Option<&Placed>, received_at| Half {
        // Not in the log any more, and not read through it.
        position: Position {
            segment: SegmentId(0),
            offset: 0,
        },
        fingerprint: Fingerprint::of(b""),
        size: placed
            .map(|placed| placed.slot.range.end - placed.slot.range.start)
            .and_then(|size| usize::try_from(size).ok())
            .unwrap_or_default(),
        received_at,
    };
    let response = match &head.ended_at {
        Some(ended_at) => Some(half(step.response.as_ref(), time(ended_at)?)),
        None => None,
    };
    let unanswered = match &head.waited_until {
        Some(until) => Some(Unanswered {
            until: time(until)?,
            interrupted: head.interrupted,
        }),
        None => None,
    };
    let request = step.request.as_ref();
    Some(Step {
        span_id: head.span_id.clone().into_owned(),
        index: head.index,
        iteration: head.iteration,
        name: head.name.clone().into_owned(),
        function: head.function.clone().into_owned(),
        started_at,
        error: head.error.clone().unwrap_or_default().into_owned(),
        request: request.map(|placed| half(Some(placed), started_at)),
        response,
        unanswered,
    })
}

/// The payloads of both documents, one at a time.
struct Payloads<'o> {
    earlier: Forward<'o>,
    late: Forward<'o>,
}

impl Payloads<'_> {
    fn read(&mut self, placed: &Placed) -> io::Result<Vec<u8>> {
        let document = match placed.origin {
            Origin::Earlier => &mut self.earlier,
            Origin::Late => &mut self.late,
        };
        document.read(placed.slot.range.start, placed.slot.range.end)
    }
}

/// A document that is read forwards; what lies behind takes another opening.
struct Forward<'o> {
    open: &'o mut (dyn FnMut() -> io::Result<Box<dyn Read>> + 'o),
    document: Option<Box<dyn Read>>,
    position: u64,
}

impl<'o> Forward<'o> {
    fn new(open: &'o mut Opener<'_>) -> Self {
        Self {
            open,
            document: None,
            position: 0,
        }
    }

    fn read(&mut self, start: u64, end: u64) -> io::Result<Vec<u8>> {
        let document = match &mut self.document {
            Some(document) if self.position <= start => document,
            document => {
                self.position = 0;
                document.insert((self.open)()?)
            }
        };
        let mut to_skip = start - self.position;
        while to_skip > 0 {
            let skipped = io::copy(
                &mut document.take(to_skip.min(SLICE_BYTES)),
                &mut io::sink(),
            )?;
            if skipped == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            to_skip -= skipped;
            breathe();
        }
        let size = end - start;
        let mut payload = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        while (payload.len() as u64) < size {
            let rest = size - payload.len() as u64;
            let read = document
                .take(rest.min(SLICE_BYTES))
                .read_to_end(&mut payload)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            breathe();
        }
        self.position = end;
        Ok(payload)
    }
}

/// About 0.1 ms of decompression.
const SLICE_BYTES: u64 = 128 * 1024;
