//! Why a resource was created, changed, deleted, or not: its life through one pipeline.
//!
//! Invariant: a moment for every step, in order, and a reason for the outcome that follows from
//! these moments alone.

use super::{
    comparison::{MAX_FIELDS, ResourceChange, compare_resource_up_to},
    fate::Fate,
    matrix::{Cell, Mark, find},
    pipeline::Pipeline,
    state::Resource,
};
use crate::json::{Change, missing_from};

/// The life of a resource through one pipeline.
#[derive(Debug)]
pub struct Story<'p> {
    /// Empty for the composite.
    pub name: &'p str,
    pub observed: Option<&'p Resource<'p>>,
    /// In the end.
    pub desired: Option<&'p Resource<'p>>,
    pub moments: Vec<Moment<'p>>,
    pub fate: Fate,
    pub reason: Reason<'p>,
}

/// What a step did to it.
#[derive(Debug)]
pub struct Moment<'p> {
    /// The place of the step.
    pub place: usize,
    pub cell: Cell,
    pub change: Option<ResourceChange<'p>>,
}

/// Why it will become what it will; steps by their places.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason<'p> {
    /// This step asks for it, and it does not exist, or an Operation is not told whether it does.
    AskedFor { by: usize },
    /// It exists and lacks these, or the first of them if there are very many; the step that
    /// touched it last.
    Lacks {
        fields: Vec<Change<'p>>,
        by: Option<usize>,
    },
    /// It exists, and all that is desired of it is observed.
    AsDesired { by: Option<usize> },
    /// It exists and is desired, and somebody is deleting it.
    BeingDeleted,
    /// It exists, and this step took it out of the desired state.
    Dropped { by: usize },
    /// It exists, and no step asked for it.
    NotAskedFor,
    /// The pipeline ended at this step, so that nothing is applied.
    Failed { at: usize },
    /// No step asked for it, and it does not exist.
    Unheard,
    /// Payloads that would tell are missing.
    Untold,
}

impl<'p> Story<'p> {
    pub fn of(pipeline: &'p Pipeline<'p>, name: &'p str) -> Self {
        let moments: Vec<_> = (0..pipeline.stages.len())
            .map(|place| Moment::of(pipeline, place, name))
            .collect();
        let observed = pipeline.observed.as_ref();
        let observed = observed.and_then(|observed| find(observed, name));
        let desired = pipeline.desired().and_then(|desired| find(desired, name));
        let fate = Fate::of(pipeline, name);
        let last = |marks: &[Mark]| {
            let moment = moments.iter().rev();
            let mut moment = moment.filter(|moment| marks.contains(&moment.cell.mark));
            moment.next().map(|moment| moment.place)
        };
        let touched_by = last(&[Mark::Added, Mark::Changed]);
        let added_by = last(&[Mark::Added]).or(touched_by);
        let dropped_by = last(&[Mark::Dropped]);
        let failed_at = pipeline.stages.iter().position(|stage| stage.has_failed);
        let reason = match (fate, observed, desired) {
            (Fate::Create | Fate::Apply, ..) => {
                added_by.map_or(Reason::Untold, |by| Reason::AskedFor { by })
            }
            (Fate::Recreate, ..) => Reason::BeingDeleted,
            (Fate::Update, Some(observed), Some(desired)) => Reason::Lacks {
                fields: missing_from(&desired.body, &observed.body, MAX_FIELDS),
                by: touched_by,
            },
            (Fate::Keep, ..) => Reason::AsDesired { by: touched_by },
            (Fate::Delete | Fate::Never, ..) => match (dropped_by, fate) {
                (Some(by), _) => Reason::Dropped { by },
                (None, Fate::Delete) => Reason::NotAskedFor,
                (None, _) => Reason::Unheard,
            },
            _ => failed_at.map_or(Reason::Untold, |at| Reason::Failed { at }),
        };
        Self {
            name,
            observed,
            desired,
            moments,
            fate,
            reason,
        }
    }

    /// Whether anything is said of what will become of it, which the next reconcile can confirm.
    pub fn is_predicted(&self) -> bool {
        !matches!(self.fate, Fate::Unknown | Fate::Apply) && self.reason != Reason::Unheard
    }

    /// Neither exists nor was asked for by any step.
    pub fn is_unheard_of(&self) -> bool {
        let is_absent = |mark| matches!(mark, Mark::Absent | Mark::Unknown);
        let mut marks = self.moments.iter().map(|moment| moment.cell.mark);
        self.observed.is_none() && marks.all(is_absent)
    }
}

impl<'p> Moment<'p> {
    fn of(pipeline: &'p Pipeline<'p>, place: usize, name: &'p str) -> Self {
        let sides = pipeline.given(place).zip(pipeline.returned(place));
        let change = sides.and_then(|(given, returned)| {
            compare_resource_up_to(name, find(given, name), find(returned, name), MAX_FIELDS)
        });
        Self {
            place,
            cell: Cell::of(pipeline, place, name),
            change,
        }
    }
}
