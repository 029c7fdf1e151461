//! Joins what came late with the document that was stored before.
//!
//! A straggler opens its reconcile again after the rest of it was stored. Invariant: nothing that
//! stood in the earlier document is lost or changed, and nothing that came late is; the same
//! payload twice is one.

use std::io;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::document::{DocumentWriter, Heading, StepHead, move_pointer};
use crate::{line::Line, record::RecordKind};

/// The forms in which a payload can stand.
const FORMS: [&str; 3] = ["", "_text", "_base64"];

/// Both documents as one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Joined {
    pub document: Vec<u8>,
    /// Where each step of the late document stands now.
    places: Vec<usize>,
}

impl Joined {
    /// Brings the line of the late part in line with the document.
    pub fn adjust(&self, line: &mut Line) {
        for (step, place) in line.steps.iter_mut().zip(&self.places) {
            for payload in [&mut step.request, &mut step.response]
                .into_iter()
                .flatten()
            {
                move_pointer(&mut payload.pointer, *place);
            }
        }
    }
}

/// A payload as it stands in a document: its form and its JSON.
type Slot<'d> = Option<(&'static str, &'d RawValue)>;

#[derive(Debug)]
struct StoredStep<'d> {
    head: StepHead<'d>,
    request: Slot<'d>,
    response: Slot<'d>,
}

/// Joins two documents of one reconcile; `None` if they are none.
pub fn join_documents(earlier: &[u8], late: &[u8]) -> Option<Joined> {
    let (heading, earlier) = parse(earlier)?;
    let (_, late) = parse(late)?;
    // Where each came from, to tell where it went.
    let mut steps: Vec<_> = earlier.into_iter().map(|step| (None, step)).collect();
    let mut merged = Vec::new();
    for (place, mut step) in late.into_iter().enumerate() {
        let twin = steps
            .iter()
            .position(|(_, known)| is_same_step(&known.head, &step.head));
        if let Some((_, known)) = twin.and_then(|twin| steps.get_mut(twin)) {
            fill(known, &mut step);
        }
        match twin {
            Some(twin) if step.request.is_none() && step.response.is_none() => {
                merged.push((place, twin));
            }
            _ => steps.push((Some(place), step)),
        }
    }
    let mut order: Vec<usize> = (0..steps.len()).collect();
    order.sort_by_key(|index| {
        let head = steps.get(*index).map(|(_, step)| &step.head);
        head.map(|head| (head.index, head.iteration))
    });
    let mut places: Vec<(usize, usize)> = Vec::new();
    let mut document = Vec::new();
    let mut writer = DocumentWriter::begin(&mut document, &heading).ok()?;
    for (now, index) in order.into_iter().enumerate() {
        let (late_place, step) = steps.get(index)?;
        let here = merged.iter().filter(|(_, twin)| *twin == index);
        places.extend(here.map(|(place, _)| (*place, now)));
        places.extend(late_place.map(|place| (place, now)));
        write_step(&mut writer, step).ok()?;
    }
    writer.end().ok()?;
    places.sort_unstable();
    let places = places.into_iter().map(|(_, now)| now).collect();
    Some(Joined { document, places })
}

fn parse(document: &[u8]) -> Option<(Heading<'_>, Vec<StoredStep<'_>>)> {
    #[derive(Deserialize)]
    struct Steps<'d> {
        #[serde(borrow)]
        steps: Vec<&'d RawValue>,
    }

    let heading: Heading<'_> = serde_json::from_slice(document).ok()?;
    let Steps { steps } = serde_json::from_slice(document).ok()?;
    let steps = steps.into_iter().map(|step| parse_step(step.get()));
    (heading.v == 1).then_some((heading, steps.collect::<Option<_>>()?))
}

fn parse_step(step: &str) -> Option<StoredStep<'_>> {
    #[derive(Deserialize)]
    struct Payloads<'d> {
        #[serde(borrow)]
        request: Option<&'d RawValue>,
        #[serde(borrow)]
        request_text: Option<&'d RawValue>,
        #[serde(borrow)]
        request_base64: Option<&'d RawValue>,
        #[serde(borrow)]
        response: Option<&'d RawValue>,
        #[serde(borrow)]
        response_text: Option<&'d RawValue>,
        #[serde(borrow)]
        response_base64: Option<&'d RawValue>,
    }

    let payloads: Payloads<'_> = serde_json::from_str(step).ok()?;
    Some(StoredStep {
        head: serde_json::from_str(step).ok()?,
        request: slot_of([
            payloads.request,
            payloads.request_text,
            payloads.request_base64,
        ]),
        response: slot_of([
            payloads.response,
            payloads.response_text,
            payloads.response_base64,
        ]),
    })
}

fn slot_of(forms: [Option<&RawValue>; 3]) -> Slot<'_> {
    let mut named = FORMS.into_iter().zip(forms);
    named.find_map(|(form, value)| {
        let value = value.filter(|value| value.get() != "null")?;
        Some((form, value))
    })
}

fn is_same_step(known: &StepHead<'_>, late: &StepHead<'_>) -> bool {
    (&known.span_id, known.index, known.iteration) == (&late.span_id, late.index, late.iteration)
}

/// Moves late payloads to where they belong, and drops those that stand there already.
fn fill<'d>(known: &mut StoredStep<'d>, late: &mut StoredStep<'d>) {
    let had_response = known.response.is_some() || known.head.error.is_some();
    for (slot, late) in [
        (&mut known.request, &mut late.request),
        (&mut known.response, &mut late.response),
    ] {
        if slot.is_none() {
            *slot = late.take();
        } else if as_text(*slot) == as_text(*late) {
            *late = None;
        }
    }
    if !had_response {
        known.head.ended_at = late.head.ended_at.take();
        known.head.error = late.head.error.take();
    }
}

fn as_text(slot: Slot<'_>) -> Option<(&'static str, &str)> {
    slot.map(|(form, value)| (form, value.get()))
}

fn write_step(writer: &mut DocumentWriter<'_>, step: &StoredStep<'_>) -> io::Result<()> {
    writer.begin_step(&step.head)?;
    for (kind, slot) in [
        (RecordKind::Request, step.request),
        (RecordKind::Response, step.response),
    ] {
        let (form, json) = as_text(slot).unwrap_or(("", "null"));
        writer.payload(kind, form, json.as_bytes())?;
    }
    writer.end_step()
}
