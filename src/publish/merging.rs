//! Which payloads the merged document of two parts holds, and where each comes from. Pure.
//!
//! Halves are paired as they are when they arrive (`assemble`), so that a reconcile is the same
//! whether it was split or not. Invariant: nothing of either part is lost or changed, and the same
//! payload twice is one.

use super::{
    document::{Heading, StepHead},
    outline::{Outline, OutlinedStep, Slot},
};
use crate::record::RecordKind;

/// Which of the two documents a payload is in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Origin {
    Earlier,
    Late,
}

/// A payload of the merged document.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) origin: Origin,
    pub(super) slot: Slot,
    /// The place of the step that has it in the late part, if one does.
    pub(super) late_place: Option<usize>,
}

/// A step of the merged document.
#[derive(Clone, Debug)]
pub(super) struct MergedStep {
    pub(super) head: StepHead<'static>,
    pub(super) request: Option<Placed>,
    pub(super) response: Option<Placed>,
    /// The place of this step in the late part, if its response is from there.
    pub(super) answered_late: Option<usize>,
}

/// Both parts as one.
#[derive(Debug)]
pub(super) struct Merge {
    pub(super) heading: Heading<'static>,
    pub(super) steps: Vec<MergedStep>,
    /// It is not the earlier part.
    pub(super) is_new: bool,
}

impl Merge {
    /// Gives a new revision if the late part has something new, or in any case. `None` if the parts
    /// are not of one reconcile.
    pub(super) fn of(earlier: Outline, late: Outline, in_any_case: bool) -> Option<Self> {
        if earlier.heading.trace_id != late.heading.trace_id {
            return None;
        }
        let revision = earlier.heading.revision;
        let mut merge = Self {
            heading: earlier.heading,
            steps: earlier.steps.into_iter().map(MergedStep::of).collect(),
            is_new: in_any_case,
        };
        for (place, step) in late.steps.into_iter().enumerate() {
            merge.add(place, &step);
        }
        // Stable: steps for the same place stay in the order of their arrival.
        merge
            .steps
            .sort_by_key(|step| (step.head.index, step.head.iteration));
        if merge.is_new {
            merge.heading.revision = revision.max(late.heading.revision).saturating_add(1);
        }
        Some(merge)
    }

    /// What the payloads take, without what is around them.
    pub(super) fn bytes(&self) -> u64 {
        let payloads = self
            .steps
            .iter()
            .flat_map(|step| [&step.request, &step.response]);
        payloads
            .flatten()
            .map(|placed| placed.slot.range.end - placed.slot.range.start)
            .sum()
    }

    fn add(&mut self, place: usize, late: &OutlinedStep) {
        let is_answered = late.head.ended_at.is_some();
        if late.request.is_some() || !is_answered {
            self.add_request(place, late);
        }
        if is_answered {
            self.add_response(place, late);
        }
    }

    fn add_request(&mut self, place: usize, late: &OutlinedStep) {
        let request = late.request.as_ref().map(|slot| Placed::late(slot, place));
        let twins = self
            .steps
            .iter_mut()
            .filter(|known| known.is_at(&late.head));
        for known in twins {
            match (&mut known.request, &request) {
                (Some(here), Some(request)) if here.slot == request.slot => {
                    here.late_place = Some(place);
                }
                (Some(_), Some(_)) => continue,
                (_, None) => {}
                (here @ None, Some(request)) => {
                    *here = Some(request.clone());
                    self.is_new = true;
                    // Core builds a step's meta once, for its request.
                    let StepHead {
                        name,
                        function,
                        timestamp,
                        ..
                    } = late.head.clone();
                    known.head.name = name;
                    known.head.function = function;
                    known.head.timestamp = timestamp;
                }
            }
            self.is_new |= known.wait_as_long_as(&late.head);
            return;
        }
        let mut head = late.head.clone();
        // That is the response's, which is added after this.
        head.ended_at = None;
        head.error = None;
        self.is_new = true;
        self.steps.push(MergedStep {
            head,
            request,
            response: None,
            answered_late: None,
        });
    }

    fn add_response(&mut self, place: usize, late: &OutlinedStep) {
        let response = late.response.as_ref().map(|slot| Placed::late(slot, place));
        let twins = self
            .steps
            .iter_mut()
            .filter(|known| known.is_at(&late.head));
        for known in twins {
            if known.head.ended_at.is_none() {
                known.head.ended_at.clone_from(&late.head.ended_at);
                known.head.error.clone_from(&late.head.error);
                known.head.waited_until = None;
                known.head.interrupted = false;
                known.response = response;
                known.answered_late = Some(place);
                self.is_new = true;
                return;
            }
            let slot = known.response.as_ref().map(|placed| &placed.slot);
            if slot == late.response.as_ref() && known.head.error == late.head.error {
                if let Some(here) = &mut known.response {
                    here.late_place = Some(place);
                }
                known.answered_late = Some(place);
                return;
            }
        }
        self.is_new = true;
        self.steps.push(MergedStep {
            head: late.head.clone(),
            request: None,
            response,
            answered_late: Some(place),
        });
    }
}

impl Placed {
    fn late(slot: &Slot, place: usize) -> Self {
        Self {
            origin: Origin::Late,
            slot: slot.clone(),
            late_place: Some(place),
        }
    }
}

impl MergedStep {
    fn of(step: OutlinedStep) -> Self {
        let earlier = |slot| Placed {
            origin: Origin::Earlier,
            slot,
            late_place: None,
        };
        Self {
            head: step.head,
            request: step.request.map(earlier),
            response: step.response.map(earlier),
            answered_late: None,
        }
    }

    pub(super) fn payload(&self, kind: RecordKind) -> Option<&Placed> {
        match kind {
            RecordKind::Request => self.request.as_ref(),
            RecordKind::Response => self.response.as_ref(),
        }
    }

    fn is_at(&self, head: &StepHead<'_>) -> bool {
        (&self.head.span_id, self.head.index, self.head.iteration)
            == (&head.span_id, head.index, head.iteration)
    }

    /// Of two that waited for a response, the one that waited longer knows how that ended; tells
    /// whether that is news.
    fn wait_as_long_as(&mut self, other: &StepHead<'static>) -> bool {
        let is_longer = self.head.ended_at.is_none()
            && other.ended_at.is_none()
            && other.waited_until > self.head.waited_until;
        if is_longer {
            self.head.waited_until.clone_from(&other.waited_until);
            self.head.interrupted = other.interrupted;
        }
        is_longer
    }
}
