//! Joins a part of a reconcile that arrived late with the document that was stored before, and
//! writes the line of the whole.
//!
//! Each document is read twice as a stream: once for its outline, once for its payloads. Invariants:
//! memory holds a piece of a payload, or one that is JSON as a whole, since it is summarised; the
//! memory for that is taken from what everybody shares, and one that there is never enough for is
//! joined all the same, in pieces. A reconcile has the same line whether it was split or not, but
//! for its revision, the size of its object, what only the process knows that received all of it,
//! and the summary of what is too large to be held.

use std::{
    borrow::Cow,
    cell::Cell,
    io::{self, Read, Write},
    ops::Range,
};

use super::{
    Context, StepPayloads,
    contents::{Contents, Occurrences},
    document::{DocumentWriter, pointer_of},
    line_of,
    merging::{Merge, MergedStep, Origin, Placed},
    outline::Outline,
};
use crate::{
    fingerprint::Fingerprint,
    json::NotAString,
    line::{Line, LineStep, PayloadRef},
    memory::SharedMemory,
    pace::breathe,
    reconcile::{ClosedReconcile, Closing, Half, Step, TraceId, Unanswered},
    record::{Position, RecordKind, SegmentId},
    summarise::{FATAL, Summariser},
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
/// another reconcile whose payloads are the same. What is held as a whole takes its `memory`.
/// `None` if one of the two can't be read, is damaged, not a document, or of another reconcile; an
/// error is about writing.
pub fn join_documents(
    [earlier, late]: [&mut Opener<'_>; 2],
    late_line: &Line,
    beginning: Option<&Line>,
    is_stored: bool,
    memory: &dyn SharedMemory,
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
    let document = DocumentWriter::begin(out, &merge.heading)?;
    let mut joining = Joining {
        earlier: Forward::new(earlier),
        late: Forward::new(late),
        late_line,
        memory,
        summariser: Summariser::new(),
        document,
    };
    let steps = match joining.steps(&merge) {
        Ok(steps) => steps,
        Err(Stop::Unreadable) => return Ok(None),
        Err(Stop::Write(error)) => return Err(error),
    };
    let Joining {
        summariser,
        document,
        ..
    } = joining;
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

/// Why there is no merged document.
#[derive(Debug)]
enum Stop {
    /// One of the two can't be read, or a payload is not what it should be.
    Unreadable,
    Write(io::Error),
}

impl From<NotAString> for Stop {
    fn from(_: NotAString) -> Self {
        Self::Unreadable
    }
}

/// Two documents on their way into one.
struct Joining<'j> {
    earlier: Forward<'j>,
    late: Forward<'j>,
    late_line: &'j Line,
    memory: &'j dyn SharedMemory,
    summariser: Summariser,
    document: DocumentWriter<'j>,
}

impl Joining<'_> {
    /// Writes the merged steps; returns where their payloads stand.
    fn steps(&mut self, merge: &Merge) -> Result<Vec<StepPayloads>, Stop> {
        let mut steps = Vec::with_capacity(merge.steps.len());
        for (place, step) in merge.steps.iter().enumerate() {
            self.document.begin_step(&step.head).map_err(Stop::Write)?;
            let request = self.payload(place, step, RecordKind::Request)?;
            let response = self.payload(place, step, RecordKind::Response)?;
            steps.push(StepPayloads { request, response });
            self.document.end_step().map_err(Stop::Write)?;
        }
        Ok(steps)
    }

    /// Writes a payload of a step, if it has one; returns where it stands, unless it is empty.
    fn payload(
        &mut self,
        place: usize,
        step: &MergedStep,
        kind: RecordKind,
    ) -> Result<Option<PayloadRef>, Stop> {
        let Some(placed) = step.payload(kind) else {
            let written = self.document.payload(kind, "", b"null");
            return written.map(|()| None).map_err(Stop::Write);
        };
        let form = placed.slot.form;
        self.document
            .begin_payload(kind, form)
            .map_err(Stop::Write)?;
        let contents = if form.is_empty() {
            self.summarised(place, placed, kind)?
        } else {
            self.in_pieces(placed, |_| {})?
        };
        let measured = contents.finish()?;
        if measured.size == 0 {
            return Ok(None);
        }
        // As the line says or, where that is not at hand, as many as are marked so. Core may have
        // marked some of these.
        let known = late_step(self.late_line, placed.late_place);
        let known = known.and_then(|step| match kind {
            RecordKind::Request => step.request.as_ref(),
            RecordKind::Response => step.response.as_ref(),
        });
        Ok(Some(PayloadRef {
            pointer: pointer_of(place, kind, form),
            sha256: measured.sha256,
            size: measured.size,
            redacted: known.map_or(measured.marked, |known| known.redacted),
        }))
    }

    /// Copies JSON, and has it summarised.
    fn summarised(
        &mut self,
        place: usize,
        placed: &Placed,
        kind: RecordKind,
    ) -> Result<Contents, Stop> {
        let size = placed.slot.range.end - placed.slot.range.start;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        // Outlives what it is for.
        let held = self.memory.hold_payload(size);
        if held.is_none() {
            let mut fatal = Occurrences::of(FATAL);
            let contents = self.in_pieces(placed, |piece| fatal.add(piece))?;
            self.summariser.skip(place, kind, fatal.count > 0);
            return Ok(contents);
        }
        let mut json = Vec::with_capacity(size);
        let contents = self.in_pieces(placed, |piece| json.extend_from_slice(piece))?;
        self.summariser.read(place, kind, &json);
        Ok(contents)
    }

    /// Copies a payload, and shows each piece of it.
    fn in_pieces(
        &mut self,
        placed: &Placed,
        mut each: impl FnMut(&[u8]),
    ) -> Result<Contents, Stop> {
        let Self {
            earlier,
            late,
            document,
            ..
        } = self;
        let source = match placed.origin {
            Origin::Earlier => earlier,
            Origin::Late => late,
        };
        let mut contents = Contents::in_form(placed.slot.form);
        source.read(&placed.slot.range, &mut |piece| {
            document.piece(piece).map_err(Stop::Write)?;
            contents.add(piece)?;
            each(piece);
            Ok(())
        })?;
        Ok(contents)
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

    /// Hands on what is there, piece by piece.
    fn read(
        &mut self,
        range: &Range<u64>,
        each: &mut dyn FnMut(&[u8]) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let document = match &mut self.document {
            Some(document) if self.position <= range.start => document,
            document => {
                self.position = 0;
                document.insert((self.open)().map_err(unreadable)?)
            }
        };
        let mut piece = Vec::new();
        while self.position < range.end {
            let is_before = self.position < range.start;
            let end = if is_before { range.start } else { range.end };
            let wanted = (end - self.position).min(PIECE_BYTES);
            piece.clear();
            let read = document.take(wanted).read_to_end(&mut piece);
            if read.map_err(unreadable)? == 0 {
                return Err(Stop::Unreadable);
            }
            self.position += piece.len() as u64;
            if !is_before {
                each(&piece)?;
            }
            breathe();
        }
        Ok(())
    }
}

fn unreadable(_: io::Error) -> Stop {
    Stop::Unreadable
}

/// About 0.1 ms of decompression.
const PIECE_BYTES: u64 = 128 * 1024;
