//! What an observed composite says of itself.
//!
//! Invariant: texts are cut, so that the facts are small whatever the composite holds.

use serde::de::MapAccess;

use super::json::{As, Each, Object, Scalar, fill, look, one_of, text};
use crate::line::SubjectFacts;

/// Where in the composite a reader is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Place {
    #[default]
    Composite,
    Resource,
    Metadata,
    Generation,
    ResourceVersion,
    OwnerReferences,
    Spec,
    /// Where Crossplane 2 keeps what is its own.
    Crossplane,
    RevisionRef,
    RevisionName,
}

/// Reads the facts.
#[derive(Debug, Default)]
pub(super) struct CompositeReader {
    at: Place,
    is_in_crossplane: bool,
    facts: SubjectFacts,
    /// As Crossplane 1 has it, which counts if there is no other.
    legacy_revision: Option<String>,
}

impl CompositeReader {
    pub(super) fn finish(self) -> SubjectFacts {
        let revision = self.facts.composition_revision;
        SubjectFacts {
            composition_revision: revision.or(self.legacy_revision),
            ..self.facts
        }
    }

    /// Reads the object at a place.
    fn descend<'de, A: MapAccess<'de>>(
        &mut self,
        place: Place,
        members: &mut A,
    ) -> Result<(), A::Error> {
        let before = (self.at, self.is_in_crossplane);
        self.at = place;
        self.is_in_crossplane |= place == Place::Crossplane;
        fill(members, self)?;
        (self.at, self.is_in_crossplane) = before;
        Ok(())
    }
}

impl Object for CompositeReader {
    type Member = Place;

    fn member(&mut self, name: &str) -> Option<Place> {
        Some(match (self.at, name) {
            (Place::Composite, "resource") => Place::Resource,
            (Place::Resource, "metadata") => Place::Metadata,
            (Place::Metadata, "generation") => Place::Generation,
            (Place::Metadata, "resourceVersion") => Place::ResourceVersion,
            (Place::Metadata, "ownerReferences") => Place::OwnerReferences,
            (Place::Resource, "spec") => Place::Spec,
            (Place::Spec, "crossplane") => Place::Crossplane,
            (Place::Spec | Place::Crossplane, "compositionRevisionRef") => Place::RevisionRef,
            (Place::RevisionRef, "name") => Place::RevisionName,
            _ => return None,
        })
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        place: Place,
        members: &mut A,
    ) -> Result<(), A::Error> {
        match place {
            Place::Generation => {
                self.facts.generation = look(members, |generation| match generation {
                    Scalar::Integer(generation) => Some(generation),
                    _ => None,
                })?;
            }
            Place::ResourceVersion => self.facts.resource_version = text(members)?,
            Place::OwnerReferences => {
                let mut controller = None;
                let take = |owner: Owner| {
                    if owner.is_controller {
                        controller = owner.uid;
                    }
                };
                let blank = Owner::default;
                members.next_value_seed(As(Each { blank, take }))?;
                self.facts.parent_uid = controller;
            }
            Place::RevisionName if self.is_in_crossplane => {
                self.facts.composition_revision = text(members)?;
            }
            Place::RevisionName => self.legacy_revision = text(members)?,
            object => self.descend(object, members)?,
        }
        Ok(())
    }
}

/// An owner of the composite.
#[derive(Debug, Default)]
struct Owner {
    uid: Option<String>,
    is_controller: bool,
}

impl Object for Owner {
    type Member = &'static str;

    fn member(&mut self, name: &str) -> Option<&'static str> {
        one_of(&["uid", "controller"], name)
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        member: &'static str,
        members: &mut A,
    ) -> Result<(), A::Error> {
        if member == "uid" {
            self.uid = text(members)?;
        } else {
            self.is_controller = look(members, |flag| flag == Scalar::Flag(true))?;
        }
        Ok(())
    }
}
