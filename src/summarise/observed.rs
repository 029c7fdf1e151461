//! The observed state: which resources exist, and what they hold.
//!
//! Invariant: a hash a leaf, up to `MAX_LEAVES`; of a resource past that it is not known what it
//! holds.

use serde::de::MapAccess;

use super::{
    allowance::Allowance,
    composite::CompositeReader,
    digest::{Leaves, ROOT, Segment, digest_body, member_path, mix},
    json::{Found, Object, fill, one_of},
    names::{MAX_NUMBERED, NameId, Names},
};
use crate::line::SubjectFacts;

/// Resources of one name may come up any number of times; they are sorted out at this many.
const UNSETTLED: usize = 2 * MAX_NUMBERED;

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

    fn push(&mut self, id: NameId, is_whole: bool) {
        if self.resources.len() >= UNSETTLED {
            self.settle();
        }
        self.resources.push((id, is_whole));
    }

    fn settle(&mut self) {
        self.resources.sort_by_key(|(id, _)| *id);
        self.resources.dedup_by_key(|(id, _)| *id);
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
    allowance: &'r Allowance,
    observed: Observed,
    composite: CompositeReader,
    is_unknown: bool,
}

impl<'r> ObservedReader<'r> {
    pub(super) fn new(names: &'r mut Names, allowance: &'r Allowance) -> Self {
        Self {
            names,
            allowance,
            observed: Observed::default(),
            composite: CompositeReader::default(),
            is_unknown: false,
        }
    }

    /// `None` if something else stands in its place, or if it is too large to be looked at.
    pub(super) fn finish(mut self, found: Found) -> Option<(Observed, SubjectFacts)> {
        if found == Found::Other || self.is_unknown || self.allowance.is_exceeded() {
            return None;
        }
        self.observed.settle();
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
            allowance: self.allowance,
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
    allowance: &'o Allowance,
    observed: &'o mut Observed,
    managed_fields: u64,
}

impl Object for ObservedResources<'_> {
    type Member = (NameId, u64);

    fn member(&mut self, name: &str) -> Option<(NameId, u64)> {
        let may_look = self.allowance.take();
        may_look.then(|| self.names.number(name)).flatten()
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        (id, name): (NameId, u64),
        members: &mut A,
    ) -> Result<(), A::Error> {
        let mut resource = ObservedResource {
            name,
            managed_fields: self.managed_fields,
            allowance: self.allowance,
            leaves: &mut self.observed.leaves,
            is_whole: true,
        };
        fill(members, &mut resource)?;
        let is_whole = resource.is_whole;
        self.observed.push(id, is_whole);
        Ok(())
    }
}

struct ObservedResource<'o> {
    name: u64,
    managed_fields: u64,
    allowance: &'o Allowance,
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
        let allowance = self.allowance;
        digest_body(members, self, allowance).map(drop)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summarise::json::parse;

    #[test]
    fn a_name_that_comes_up_over_and_over_takes_no_memory() {
        let many = vec![r#""a":{},"b":{}"#; 10 * MAX_NUMBERED].join(",");
        let json = format!(r#"{{"resources":{{{many}}}}}"#);
        let mut names = Names::default();
        let allowance = Allowance::default();
        let mut reader = ObservedReader::new(&mut names, &allowance);
        parse(json.as_bytes(), &mut reader).unwrap();
        assert!(reader.observed.resources.capacity() <= 2 * UNSETTLED);
        let (observed, _) = reader.finish(Found::Object).unwrap();
        assert_eq!(observed.ids().count(), 2);
    }
}
