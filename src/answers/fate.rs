//! What will become of a resource, and whether it did.
//!
//! Crossplane applies after the pipeline, which nobody reports, so this is a prediction; the
//! observed state of the next reconcile confirms or refutes it. Invariant: the same prediction as
//! that of the index line, made from payloads in place of hashes; nothing is predicted from a
//! state that is not known.

use super::{matrix::find, pipeline::Pipeline};
use crate::json::{Change, missing_from};

/// What will become of a resource.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Fate {
    Create,
    Update,
    /// All that is desired of it is observed.
    Keep,
    Delete,
    /// A step asked for it, a later one took that back, and it never existed.
    Never,
    /// The pipeline did not end well, or its states are not known.
    Unknown,
}

impl Fate {
    pub fn of(pipeline: &Pipeline<'_>, name: &str) -> Self {
        let (Some(observed), Some(desired)) = (&pipeline.observed, pipeline.desired()) else {
            return Self::Unknown;
        };
        match (find(observed, name), find(desired, name)) {
            (None, Some(_)) => Self::Create,
            (Some(observed), Some(desired)) => {
                if missing_from(&desired.body, &observed.body).is_empty() {
                    Self::Keep
                } else {
                    Self::Update
                }
            }
            // A composite is not composed: who says nothing about it leaves it as it is.
            (Some(_), None) if name.is_empty() => Self::Keep,
            (Some(_), None) => Self::Delete,
            (None, None) => Self::Never,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Keep => "keep",
            Self::Delete => "delete",
            Self::Never => "never",
            Self::Unknown => "unknown",
        }
    }
}

/// Whether a prediction came true.
#[derive(Clone, Debug, PartialEq)]
pub enum Sequel<'p> {
    /// There is no later reconcile, or none whose observed state is known.
    NotSeen,
    /// Nothing was predicted.
    Nothing,
    Confirmed,
    /// It is on its way out.
    BeingDeleted,
    /// What was to be created is not there, or what was to be deleted still is.
    Refuted,
    /// These fields are still not as they were desired.
    StillLacking(Vec<Change<'p>>),
}

impl<'p> Sequel<'p> {
    /// Holds a prediction against what the next reconcile observed.
    pub fn of(pipeline: &'p Pipeline<'_>, next: Option<&'p Pipeline<'_>>, name: &str) -> Self {
        let fate = Fate::of(pipeline, name);
        let Some(next) = next.and_then(|next| next.observed.as_ref()) else {
            return Self::NotSeen;
        };
        let next = find(next, name);
        let desired = pipeline.desired().and_then(|desired| find(desired, name));
        match (fate, next) {
            (Fate::Unknown | Fate::Never, _) => Self::Nothing,
            (Fate::Delete, None) | (Fate::Create, Some(_)) => Self::Confirmed,
            (Fate::Delete, Some(next)) if next.is_being_deleted() => Self::BeingDeleted,
            (Fate::Delete, Some(_)) | (_, None) => Self::Refuted,
            (Fate::Update | Fate::Keep, Some(next)) => {
                let lacking = desired.map(|desired| missing_from(&desired.body, &next.body));
                match lacking {
                    Some(lacking) if !lacking.is_empty() => Self::StillLacking(lacking),
                    _ => Self::Confirmed,
                }
            }
        }
    }
}
