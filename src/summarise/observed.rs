//! The observed state: which resources exist, and what they hold.
//!
//! Invariant: a hash a leaf, up to `MAX_LEAVES`; of a resource past that it is not known what it
//! holds.

use serde::de::MapAccess;

use super::{
    composite::CompositeReader,
    digest::{Leaves, ROOT, Segment, digest_body, member_path, mix},
    json::{Found, Object, fill, one_of},
    names::{NameId, Names},
};
use crate::line::SubjectFacts;

/// Some 100,000 leaves make a payload of 4 MiB.
const MAX_LEAVES: usize = 200_000;

/// The composed resources that exist.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// By id, each with whether all of its leaves are known.
    resources: Vec<(NameId, bool)>,
    /// Hashes of resource, path and value, sorted.
    leaves: Vec<u64>,
}

impl Observed {
    pub(super) fn ids(&self) -> impl Iterator<Item = NameId> {
        self.resources.iter().map(|(id, _)| *id)
    }

    pub(super) fn holds(&self, id: NameId) -> bool {
        self.find(id).is_some()
    }

    /// It exists, and all of its leaves are known.
    pub(super) fn holds_whole(&self, id: NameId) -> bool {
        self.find(id) == Some(true)
    }

    /// Whether a resource holds this leaf.
    pub(super) fn holds_leaf(&self, resource: u64, path: u64, value: u64) -> bool {
        let leaf = leaf_of(resource, path, value);
        self.leaves.binary_search(&leaf).is_ok()
    }

    /// Whether all leaves of this resource are known; `None` if it does not exist.
    fn find(&self, id: NameId) -> Option<bool> {
        let place = self.resources.binary_search_by_key(&id, |(id, _)| *id);
        let place = place.ok()?;
        self.resources.get(place).map(|(_, is_whole)| *is_whole)
    }
}

/// Reads an observed state, and what its composite says of itself.
#[derive(Debug)]
pub(super) struct ObservedReader<'r> {
    names: &'r mut Names,
    observed: Observed,
    composite: CompositeReader,
    is_unknown: bool,
}

impl<'r> ObservedReader<'r> {
    pub(super) fn new(names: &'r mut Names) -> Self {
        Self {
            names,
            observed: Observed::default(),
            composite: CompositeReader::default(),
            is_unknown: false,
        }
    }

    /// `None` if something else stands in its place.
    pub(super) fn finish(mut self, found: Found) -> Option<(Observed, SubjectFacts)> {
        if found == Found::Other || self.is_unknown {
            return None;
        }
        let resources = &mut self.observed.resources;
        resources.sort_by_key(|(id, _)| *id);
        resources.dedup_by_key(|(id, _)| *id);
        self.observed.leaves.sort_unstable();
        Some((self.observed, self.composite.finish()))
    }
}

impl Object for ObservedReader<'_> {
    type Member = &'static str;

    fn member(&mut self, name: &str) -> Option<&'static str> {
        one_of(&["composite", "resources"], name)
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        member: &'static str,
        members: &mut A,
    ) -> Result<(), A::Error> {
        if member == "composite" {
            return fill(members, &mut self.composite).map(drop);
        }
        self.observed = Observed::default();
        let metadata = member_path(ROOT, "metadata");
        let mut resources = ObservedResources {
            names: self.names,
            observed: &mut self.observed,
            managed_fields: member_path(metadata, "managedFields"),
        };
        self.is_unknown = fill(members, &mut resources)? == Found::Other;
        Ok(())
    }
}

/// The resources of an observed state, by name.
struct ObservedResources<'o> {
    names: &'o mut Names,
    observed: &'o mut Observed,
    managed_fields: u64,
}

impl Object for ObservedResources<'_> {
    type Member = (NameId, u64);

    fn member(&mut self, name: &str) -> Option<(NameId, u64)> {
        self.names.number(name)
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        (id, name): (NameId, u64),
        members: &mut A,
    ) -> Result<(), A::Error> {
        let mut resource = ObservedResource {
            name,
            managed_fields: self.managed_fields,
            leaves: &mut self.observed.leaves,
            is_whole: true,
        };
        fill(members, &mut resource)?;
        let is_whole = resource.is_whole;
        self.observed.resources.push((id, is_whole));
        Ok(())
    }
}

struct ObservedResource<'o> {
    name: u64,
    managed_fields: u64,
    leaves: &'o mut Vec<u64>,
    is_whole: bool,
}

impl Object for ObservedResource<'_> {
    type Member = &'static str;

    fn member(&mut self, name: &str) -> Option<&'static str> {
        one_of(&["resource"], name)
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        _: &'static str,
        members: &mut A,
    ) -> Result<(), A::Error> {
        digest_body(members, self).map(drop)
    }
}

impl Leaves for ObservedResource<'_> {
    /// Nobody may desire these, and they are half of what is observed.
    fn skips(&self, path: u64) -> bool {
        path == self.managed_fields
    }

    fn enter(&mut self, _: Segment<'_>) -> usize {
        0
    }

    fn leave(&mut self, _: usize) {}

    fn leaf(&mut self, path: u64, value: u64) {
        if self.leaves.len() < MAX_LEAVES {
            self.leaves.push(leaf_of(self.name, path, value));
        } else {
            self.is_whole = false;
        }
    }
}

fn leaf_of(resource: u64, path: u64, value: u64) -> u64 {
    mix(resource, mix(path, value))
}
