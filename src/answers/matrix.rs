//! The matrix: composed resources down, steps across, and what each step did to each resource.
//!
//! Invariant: a row for everything that is observed or was desired at any time, the composite
//! first, then by name; a cell for every step.

use std::collections::BTreeSet;

use super::{
    comparison::compare_resource_up_to,
    fate::Fate,
    pipeline::Pipeline,
    state::{Resource, State},
};
use crate::pace::breathe;

/// What each step did to each resource.
#[derive(Debug)]
pub struct Matrix<'p> {
    pub rows: Vec<Row<'p>>,
}

/// A resource on its way through the pipeline.
#[derive(Debug)]
pub struct Row<'p> {
    /// Empty for the composite.
    pub name: &'p str,
    /// Such as `Subnet`.
    pub kind: &'p str,
    pub is_observed: bool,
    pub cells: Vec<Cell>,
    pub fate: Fate,
}

/// What a step did to a resource.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cell {
    pub mark: Mark,
    /// What functions say of it after this step.
    pub ready: Option<bool>,
    /// This step said so.
    pub is_ready_news: bool,
    /// How many fields the step changed.
    pub fields: usize,
}

/// What became of a resource in a step.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Mark {
    /// Nobody asked for it so far.
    Absent,
    Added,
    Changed,
    Untouched,
    Dropped,
    /// The step failed, or its payloads are not there.
    Unknown,
}

impl Mark {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Untouched => "untouched",
            Self::Dropped => "dropped",
            Self::Unknown => "unknown",
        }
    }
}

impl<'p> Matrix<'p> {
    pub fn of(pipeline: &'p Pipeline<'_>) -> Self {
        let places = 0..pipeline.stages.len();
        let states = places.flat_map(|place| [pipeline.given(place), pipeline.returned(place)]);
        let states = || states.clone().chain([pipeline.observed.as_ref()]).flatten();
        let names: BTreeSet<&str> = states()
            .flat_map(|state| state.resources.iter().map(|(name, _)| name.as_ref()))
            .collect();
        let has_composite = states().any(|state| state.composite.is_some());
        let rows = has_composite
            .then_some("")
            .into_iter()
            .chain(names)
            .map(|name| Row::of(pipeline, name));
        Self {
            rows: rows.collect(),
        }
    }

    /// Resources, without the composite.
    pub fn resources(&self) -> impl Iterator<Item = &Row<'p>> {
        self.rows.iter().filter(|row| !row.name.is_empty())
    }
}

impl<'p> Row<'p> {
    fn of(pipeline: &'p Pipeline<'_>, name: &'p str) -> Self {
        let observed = pipeline
            .observed
            .as_ref()
            .and_then(|state| find(state, name));
        let places = 0..pipeline.stages.len();
        let known = places
            .clone()
            .rev()
            .flat_map(|place| [pipeline.returned(place), pipeline.given(place)])
            .flatten()
            .filter_map(|state| find(state, name))
            .chain(observed)
            .find(|resource| !resource.kind().is_empty());
        breathe();
        Self {
            name,
            kind: known.map(Resource::kind).unwrap_or_default(),
            is_observed: observed.is_some(),
            cells: places
                .map(|place| Cell::of(pipeline, place, name))
                .collect(),
            fate: Fate::of(pipeline, name),
        }
    }
}

impl Cell {
    pub(super) fn of(pipeline: &Pipeline<'_>, place: usize, name: &str) -> Self {
        let unknown = Self {
            mark: Mark::Unknown,
            ready: None,
            is_ready_news: false,
            fields: 0,
        };
        let Some(returned) = pipeline.returned(place) else {
            return unknown;
        };
        let Some(given) = pipeline.given(place) else {
            return unknown;
        };
        let (before, after) = (find(given, name), find(returned, name));
        let change = compare_resource_up_to(name, before, after, 0);
        let ready = after.and_then(|after| after.ready);
        let fields = change.as_ref().map_or(0, |change| change.field_count);
        Self {
            mark: match (before, after) {
                (None, None) => Mark::Absent,
                (None, Some(_)) => Mark::Added,
                (Some(_), None) => Mark::Dropped,
                // What is said of readiness alone is no change of a resource.
                (Some(_), Some(_)) if fields > 0 => Mark::Changed,
                (Some(_), Some(_)) => Mark::Untouched,
            },
            ready,
            is_ready_news: ready.is_some() && before.and_then(|before| before.ready) != ready,
            fields,
        }
    }
}

/// A resource of a state by its name in the matrix.
pub fn find<'s, 'd>(state: &'s State<'d>, name: &str) -> Option<&'s Resource<'d>> {
    if name.is_empty() {
        state.composite.as_ref()
    } else {
        state.resource(name)
    }
}
