//! The fields of a final desired state, for `flaps` to compare with earlier ones.
//!
//! Invariant: bounded: `MAX_FIELDS` of them, with paths of up to `MAX_FIELD_BYTES`.

use std::{fmt::Write as _, ops::Range};

use super::{
    digest::{Segment, mix},
    json::cut,
};
use crate::line::MAX_TEXT_BYTES;

/// Fields that are looked at.
pub(super) const MAX_FIELDS: usize = 2048;
/// Bytes of a field's path.
const MAX_FIELD_BYTES: usize = 256;

/// The fields of a desired state: all leaves of its resources, and those of the composite's spec
/// and status.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DesiredFields {
    /// In the order of their names.
    resources: Vec<ResourceFields>,
    leaves: Vec<Leaf>,
    /// The paths of all leaves, one after the other.
    paths: String,
    /// There may be more: a field that is not in here may be desired all the same.
    is_partial: bool,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct ResourceFields {
    /// Empty for the composite.
    name: String,
    leaves: Range<usize>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Leaf {
    field: u32,
    value: u32,
    path: Range<usize>,
}

/// A field of a resource and its value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct FieldValue<'f> {
    /// Hash of resource and path.
    pub(super) field: u32,
    /// Hash of the value; never zero.
    pub(super) value: u32,
    pub(super) resource: &'f str,
    pub(super) path: &'f str,
}

impl DesiredFields {
    /// Of a desired state that is not known.
    pub(super) fn unknown() -> Self {
        Self {
            is_partial: true,
            ..Self::default()
        }
    }

    pub(super) fn is_partial(&self) -> bool {
        self.is_partial
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = FieldValue<'_>> {
        self.resources.iter().flat_map(|resource| {
            let leaves = self.leaves.get(resource.leaves.clone());
            leaves.unwrap_or_default().iter().map(|leaf| FieldValue {
                field: leaf.field,
                value: leaf.value,
                resource: &resource.name,
                path: self.paths.get(leaf.path.clone()).unwrap_or_default(),
            })
        })
    }
}

/// Collects fields while a desired state is read.
#[derive(Debug, Default)]
pub(super) struct FieldCollector {
    fields: DesiredFields,
    /// Hash of the name of the resource that is being read.
    resource: u64,
    /// Where in it we are.
    path: String,
}

impl FieldCollector {
    /// What comes next belongs to this resource, below this path.
    pub(super) fn begin(&mut self, name: &str, hash: u64, path: &str) {
        self.resource = hash;
        path.clone_into(&mut self.path);
        let fields = &mut self.fields;
        // NOTE: resources without leaves must not pile up.
        drop(fields.resources.pop_if(|last| last.leaves.is_empty()));
        if !self.is_full() {
            let end = self.fields.leaves.len();
            self.fields.resources.push(ResourceFields {
                name: cut(name, MAX_TEXT_BYTES).to_owned(),
                leaves: end..end,
            });
        }
    }

    pub(super) fn enter(&mut self, segment: Segment<'_>) -> usize {
        let mark = self.path.len();
        if mark >= MAX_FIELD_BYTES || self.is_full() {
            return mark;
        }
        match segment {
            // As Crossplane writes paths: `metadata.annotations[crossplane.io/external-name]`.
            Segment::Member(name) if name.contains(['.', '[', ']']) => {
                self.path.push('[');
                self.path.push_str(cut(name, MAX_FIELD_BYTES));
                self.path.push(']');
            }
            Segment::Member(name) => {
                if mark > 0 {
                    self.path.push('.');
                }
                self.path.push_str(cut(name, MAX_FIELD_BYTES));
            }
            Segment::Element(index) => drop(write!(self.path, "[{index}]")),
        }
        mark
    }

    pub(super) fn leave(&mut self, mark: usize) {
        self.path.truncate(mark);
    }

    pub(super) fn leaf(&mut self, path: u64, value: u64) {
        if self.is_full() {
            self.fields.is_partial = true;
            return;
        }
        let DesiredFields {
            resources,
            leaves,
            paths,
            ..
        } = &mut self.fields;
        let Some(resource) = resources.last_mut() else {
            return;
        };
        let start = paths.len();
        paths.push_str(cut(&self.path, MAX_FIELD_BYTES));
        leaves.push(Leaf {
            field: high_half(mix(self.resource, path)),
            value: high_half(value).max(1),
            path: start..paths.len(),
        });
        resource.leaves.end = leaves.len();
    }

    pub(super) fn finish(mut self) -> DesiredFields {
        let resources = &mut self.fields.resources;
        drop(resources.pop_if(|last| last.leaves.is_empty()));
        resources.sort_by(|one, other| one.name.cmp(&other.name));
        self.fields
    }

    fn is_full(&self) -> bool {
        self.fields.leaves.len() >= MAX_FIELDS
    }
}

fn high_half(hash: u64) -> u32 {
    u32::try_from(hash >> 32).unwrap_or_default()
}
