//! What a pipeline does to the resources: step by step, and in the end.
//!
//! The outcome is a prediction: resources are applied and collected after the pipeline, which
//! nobody reports. Invariant: nothing is predicted from a state that is not known.

use super::{
    desired::State,
    names::{NameId, Names},
    observed::Observed,
    room::Room,
};
use crate::line::{Desired, Dropped, MAX_LIST_BYTES, MAX_NAMES, Outcome};

/// For the names in [`Outcome::touched_by`], in the lists of all steps.
const TOUCHED_BYTES: usize = 4 * MAX_LIST_BYTES;

/// What a step did to the desired state.
#[derive(Debug, Default)]
pub(super) struct Difference {
    added: Vec<NameId>,
    changed: Vec<NameId>,
    removed: Vec<NameId>,
}

impl Difference {
    pub(super) fn between(given: &State, returned: &State) -> Self {
        let mut difference = Self::default();
        for resource in &returned.resources {
            match given.find(resource.id) {
                None => difference.added.push(resource.id),
                Some(before) if before.digest != resource.digest => {
                    difference.changed.push(resource.id);
                }
                Some(_) => {}
            }
        }
        let given = given.resources.iter().map(|resource| resource.id);
        difference
            .removed
            .extend(given.filter(|id| returned.find(*id).is_none()));
        difference
    }

    /// For the line, with the state that the step returned.
    pub(super) fn describe(&self, returned: &State, names: &Names, room: &mut Room) -> Desired {
        let (added, added_count) = names.list(&self.added, room);
        let (changed, changed_count) = names.list(&self.changed, room);
        let (removed, removed_count) = names.list(&self.removed, room);
        Desired {
            total: returned.total(),
            ready: returned.ready(),
            added,
            changed,
            removed,
            added_count,
            changed_count,
            removed_count,
        }
    }
}

/// Which step touched, and which removed, each resource last; by the place of the name.
#[derive(Debug, Default)]
pub(super) struct Trail {
    touched: Vec<Option<u32>>,
    removed: Vec<Option<u32>>,
}

impl Trail {
    /// Takes in what a step did that did not fail.
    pub(super) fn follow(&mut self, step: u32, difference: &Difference, returned: &State) {
        for resource in &returned.resources {
            set(&mut self.removed, resource.id, None);
        }
        for id in difference.added.iter().chain(&difference.changed) {
            set(&mut self.touched, *id, Some(step));
        }
        for id in &difference.removed {
            set(&mut self.removed, *id, Some(step));
        }
    }

    fn touched_by(&self, id: NameId) -> Option<u32> {
        self.touched.get(id.place()).copied().flatten()
    }

    fn removed_by(&self, id: NameId) -> Option<u32> {
        self.removed.get(id.place()).copied().flatten()
    }
}

fn set(steps: &mut Vec<Option<u32>>, id: NameId, step: Option<u32>) {
    if steps.len() <= id.place() {
        if step.is_none() {
            return;
        }
        // NOTE: places are bounded by how many names there are.
        steps.resize(id.place() + 1, None);
    }
    if let Some(slot) = steps.get_mut(id.place()) {
        *slot = step;
    }
}

/// The states between which a pipeline ran to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending<'e> {
    pub(super) observed: &'e Observed,
    pub(super) desired: &'e State,
}

impl Ending<'_> {
    /// What is going to happen.
    pub(super) fn outcome(self, trail: &Trail, names: &Names) -> Outcome {
        let (mut create, mut update, mut unchanged) = (Vec::new(), Vec::new(), 0);
        for resource in &self.desired.resources {
            if !self.observed.holds(resource.id) {
                create.push(resource.id);
            } else if resource.is_applied {
                unchanged += 1;
            } else {
                update.push(resource.id);
            }
        }
        let delete: Vec<_> = self.deleted().collect();
        // NOTE: room of its own, since what happens matters more than what each step did.
        let mut room = Room::of(3 * MAX_LIST_BYTES);
        let (create, create_count) = names.list(&create, &mut room);
        let (update, update_count) = names.list(&update, &mut room);
        let (delete, delete_count) = names.list(&delete, &mut room);
        Outcome {
            create,
            update,
            delete,
            unchanged,
            create_count,
            update_count,
            delete_count,
            touched_by: self.touched_by(trail, names),
        }
    }

    fn deleted(&self) -> impl Iterator<Item = NameId> {
        let Self { observed, desired } = self;
        observed.ids().filter(|id| desired.find(*id).is_none())
    }

    fn touched_by(&self, trail: &Trail, names: &Names) -> Vec<(u32, Vec<String>)> {
        let resources = self.desired.resources.iter();
        let mut touched: Vec<_> = resources
            .filter_map(|resource| Some((trail.touched_by(resource.id)?, resource.id)))
            .collect();
        touched.sort_unstable();
        let mut room = Room::of(TOUCHED_BYTES);
        let of_one_step = touched.chunk_by(|(one, _), (other, _)| one == other);
        let lists = of_one_step.filter_map(|touched| {
            let (step, _) = touched.first()?;
            let ids: Vec<_> = touched.iter().map(|(_, id)| *id).collect();
            let (names, _) = names.list(&ids, &mut room);
            (!names.is_empty()).then_some((*step, names))
        });
        lists.collect()
    }
}

/// What was dropped, by name, and how much: what a step removed for good, and what the whole
/// pipeline left out, if it ran to its end.
pub(super) fn dropped(
    trail: &Trail,
    observed: Option<&Observed>,
    ending: Option<Ending<'_>>,
    names: &Names,
    has_failed: impl Fn(u32) -> bool,
) -> (Vec<Dropped>, u64) {
    let is_observed = |id| observed.is_some_and(|observed| observed.holds(id));
    let removed = names.ids().filter_map(|id| {
        let step = trail.removed_by(id).filter(|step| !has_failed(*step))?;
        Some((id, Some(step)))
    });
    let left_out = ending.iter().flat_map(Ending::deleted);
    let left_out = left_out.filter(|id| trail.removed_by(*id).is_none());
    let mut dropped: Vec<_> = removed
        .chain(left_out.map(|id| (id, None)))
        .map(|(id, step)| (names.text(id), step, is_observed(id)))
        .collect();
    dropped.sort_unstable();
    let count = dropped.len() as u64;
    dropped.truncate(MAX_NAMES);
    let mut room = Room::of(MAX_LIST_BYTES);
    let fitting = dropped
        .into_iter()
        .take_while(|(name, ..)| room.take_name(name));
    let dropped = fitting.map(|(name, step, observed)| Dropped {
        resource: name.to_owned(),
        step,
        observed,
    });
    (dropped.collect(), count)
}
