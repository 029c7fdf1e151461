//! What will become of a resource, and whether it did.
//!
//! Crossplane applies after the pipeline, which nobody reports, so this is a prediction; the
//! observed state of the next reconcile confirms or refutes it. Invariant: the same prediction as
//! that of the index line, made from payloads in place of hashes; nothing is predicted from a
//! state that is not known. What is being deleted while it is desired is an outcome of its own
//! here; the line counts it among what is updated or left as it is, by its fields alone.

use super::{comparison::MAX_FIELDS, matrix::find, pipeline::Pipeline, state::Resource};
use crate::json::{Change, is_missing_any, missing_from};

/// What will become of a resource.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Fate {
    Create,
    Update,
    /// All that is desired of it is observed.
    Keep,
    Delete,
    /// It is on its way out, though it is desired: once it is gone, it is created again.
    Recreate,
    /// An Operation desires it, which is not told whether it exists.
    Apply,
    /// A step asked for it, a later one took that back, and it never existed.
    Never,
    /// The pipeline did not end well, or its states are not known.
    Unknown,
}

impl Fate {
    pub fn of(pipeline: &Pipeline<'_>, name: &str) -> Self {
        let Some(desired) = pipeline.desired() else {
            return Self::Unknown;
        };
        let desired = find(desired, name);
        let observed = match &pipeline.observed {
            Some(observed) => find(observed, name),
            None if pipeline.is_operation => {
                return desired.map_or(Self::Never, |_| Self::Apply);
            }
            None => return Self::Unknown,
        };
        match (observed, desired) {
            (None, Some(_)) => Self::Create,
            // A composite is not composed: nobody here creates it again.
            (Some(observed), Some(_)) if observed.is_being_deleted() && !name.is_empty() => {
                Self::Recreate
            }
            (Some(observed), Some(desired)) => {
                if is_missing_any(&desired.body, &observed.body) {
                    Self::Update
                } else {
                    Self::Keep
                }
            }
            // Who says nothing about a composite leaves it as it is.
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
            Self::Recreate => "recreate",
            Self::Apply => "apply",
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
    /// These fields are still not as they were desired; the first of them if there are very many.
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
            (Fate::Unknown | Fate::Apply, _) => Self::Nothing,
            (Fate::Delete | Fate::Recreate | Fate::Never, None) | (Fate::Create, Some(_)) => {
                Self::Confirmed
            }
            (Fate::Recreate, Some(next)) if is_another(pipeline, name, next) => Self::Confirmed,
            (Fate::Delete | Fate::Recreate, Some(next)) if next.is_being_deleted() => {
                Self::BeingDeleted
            }
            (Fate::Delete | Fate::Recreate | Fate::Never, Some(_)) | (_, None) => Self::Refuted,
            (Fate::Update | Fate::Keep, Some(next)) => {
                let lacking =
                    desired.map(|desired| missing_from(&desired.body, &next.body, MAX_FIELDS));
                match lacking {
                    Some(lacking) if !lacking.is_empty() => Self::StillLacking(lacking),
                    _ => Self::Confirmed,
                }
            }
        }
    }
}

/// Whether what is observed next is not what was observed, but was made since.
fn is_another(pipeline: &Pipeline<'_>, name: &str, next: &Resource<'_>) -> bool {
    let before = pipeline.observed.as_ref();
    let before = before.and_then(|observed| find(observed, name));
    before.is_some_and(|before| before.uid() != next.uid())
}
