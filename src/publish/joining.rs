//! Joins what came late with the document that was stored before.
//!
//! A straggler opens its reconcile again after its records have left the log, so that the rest of
//! it stands in the store alone. Invariant: nothing that stood in the earlier document is lost or
//! changed, and nothing that came late is; the same payload twice is one.

use std::{borrow::Cow, io};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::document::{PayloadSource, Slot, StepEntry, StepHead, json_of};
use crate::{record::RecordKind, redact::Redactor};

/// A document as it was stored.
#[derive(Debug, Deserialize)]
pub struct EarlierDocument<'d> {
    v: u32,
    #[serde(borrow)]
    steps: Vec<EarlierStep<'d>>,
}

#[derive(Debug, Deserialize)]
struct EarlierStep<'d> {
    index: i32,
    #[serde(borrow)]
    name: Cow<'d, str>,
    iteration: i32,
    #[serde(borrow)]
    function: Cow<'d, str>,
    #[serde(borrow)]
    span_id: Cow<'d, str>,
    #[serde(borrow)]
    timestamp: Cow<'d, str>,
    #[serde(borrow)]
    ended_at: Option<Cow<'d, str>>,
    #[serde(borrow)]
    error: Option<Cow<'d, str>>,
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

impl<'d> EarlierDocument<'d> {
    /// `None` if it is no document of this version.
    pub fn parse(document: &'d [u8]) -> Option<Self> {
        serde_json::from_slice::<Self>(document)
            .ok()
            .filter(|document| document.v == 1)
    }

    fn entries(&self) -> impl Iterator<Item = StepEntry<'_>> {
        self.steps.iter().map(|step| {
            let EarlierStep {
                request,
                request_text,
                request_base64,
                ..
            } = *step;
            let EarlierStep {
                response,
                response_text,
                response_base64,
                ..
            } = *step;
            StepEntry {
                head: StepHead {
                    index: step.index,
                    name: Cow::Borrowed(&step.name),
                    iteration: step.iteration,
                    function: Cow::Borrowed(&step.function),
                    span_id: Cow::Borrowed(&step.span_id),
                    timestamp: Cow::Borrowed(&step.timestamp),
                    ended_at: step.ended_at.as_deref().map(Cow::Borrowed),
                    error: step.error.as_deref().map(Cow::Borrowed),
                },
                request: stored_slot([request, request_text, request_base64]),
                response: stored_slot([response, response_text, response_base64]),
            }
        })
    }
}

fn stored_slot(forms: [Option<&RawValue>; 3]) -> Slot<'_> {
    let named = ["", "_text", "_base64"].into_iter().zip(forms);
    let found = named.filter_map(|(form, value)| Some((form, value?)));
    let mut found = found.filter(|(_, value)| value.get() != "null");
    found
        .next()
        .map_or(Slot::Nothing, |(form, value)| Slot::Stored { form, value })
}

/// The steps of both, in the order of the pipeline.
pub(super) fn join<'d>(
    earlier: &'d EarlierDocument<'d>,
    fresh: Vec<StepEntry<'d>>,
    source: &mut dyn PayloadSource,
    redactor: &Redactor,
) -> io::Result<Vec<StepEntry<'d>>> {
    let mut steps: Vec<_> = earlier.entries().collect();
    for mut late in fresh {
        for known in &mut steps {
            if !is_same_step(&known.head, &late.head) {
                continue;
            }
            fill(
                &mut known.request,
                &mut late.request,
                RecordKind::Request,
                source,
                redactor,
            )?;
            let had_response =
                !matches!(known.response, Slot::Nothing) || known.head.error.is_some();
            fill(
                &mut known.response,
                &mut late.response,
                RecordKind::Response,
                source,
                redactor,
            )?;
            if !had_response {
                known.head.ended_at = late.head.ended_at.take();
                known.head.error = late.head.error.take();
            }
        }
        let is_used_up = matches!(
            (&late.request, &late.response),
            (Slot::Nothing, Slot::Nothing)
        );
        if !is_used_up {
            steps.push(late);
        }
    }
    steps.sort_by_key(|step| (step.head.index, step.head.iteration));
    Ok(steps)
}

fn is_same_step(known: &StepHead<'_>, late: &StepHead<'_>) -> bool {
    (&known.span_id, known.index, known.iteration) == (&late.span_id, late.index, late.iteration)
}

/// Moves a late payload to where it belongs, or drops it if it stands there already.
fn fill<'d>(
    known: &mut Slot<'d>,
    late: &mut Slot<'d>,
    kind: RecordKind,
    source: &mut dyn PayloadSource,
    redactor: &Redactor,
) -> io::Result<()> {
    match (&*known, &*late) {
        (Slot::Nothing, _) => *known = std::mem::replace(late, Slot::Nothing),
        (Slot::Stored { form, value }, Slot::Logged(half)) => {
            let payload = source.read_payload(kind, half)?;
            let clean =
                payload.and_then(|payload| json_of(&redactor.redact(&payload).payload).ok());
            if clean.is_some_and(|clean| clean == (*form, value.get().as_bytes().to_vec().into())) {
                *late = Slot::Nothing;
            }
        }
        _ => {}
    }
    Ok(())
}
