//! A reconcile in one line: everything its spans say, and where its payloads lie. The line of the
//! index, version 1.
//!
//! Other programs read it, so names don't change without a new version; what is added is ignored
//! by who does not know it. Invariant: bounded in size whatever the payloads hold. A list is cut at
//! [`MAX_NAMES`] or [`MAX_ENTRIES`], and at [`MAX_LIST_BYTES`], with its full count beside it, a text
//! at [`MAX_TEXT_BYTES`]; where steps have very much to say or are very many, sooner, so that a line
//! never takes more than a few megabytes.

mod coverage;
mod footprint;
#[cfg(test)]
pub(crate) mod samples;

use serde::{Deserialize, Serialize};

pub use self::coverage::{Coverage, CoveredStep};
use crate::{reconcile::SubjectType, time::Timestamp};

/// Names in a list.
pub const MAX_NAMES: usize = 500;
/// Text of such a list: a full one of names of 60 bytes, which few Kubernetes names exceed.
pub const MAX_LIST_BYTES: usize = 32 * 1024;
/// Results, conditions and requirements of a step.
pub const MAX_ENTRIES: usize = 16;
/// Bytes of a message.
pub const MAX_TEXT_BYTES: usize = 1024;

/// The error type of a step whose response was not waited for, since the sidecar stopped. That is
/// no failure of the function.
pub const INTERRUPTED: &str = "interrupted";

/// What [`StepFacts::summary`] says of a step whose payload is too large to be summarised.
pub const SUMMARY_SKIPPED: &str = "skipped: too large";

/// A reconcile.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Line {
    pub v: u32,
    /// As core sent it.
    pub trace_id: String,
    /// 32 hex digits.
    pub otel_trace_id: String,
    /// 16 hex digits.
    pub root_span_id: String,
    /// The previous reconcile of the same subject.
    pub previous_trace_id: Option<String>,
    /// The last reconcile of the XR that composed this one.
    #[serde(default)]
    pub parent_trace_id: Option<String>,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub duration_ms: f64,
    pub subject: LineSubject,
    pub status: Status,
    /// Whether any payload or verdict differs from the previous reconcile's.
    pub changed: bool,
    /// How often parts that arrived late were merged into this reconcile. Of several lines of one
    /// trace the one with the highest revision is complete and replaces the others.
    // NOTE: before the steps, so that a reader sees it without parsing them.
    #[serde(default)]
    pub revision: u32,
    pub steps: Vec<LineStep>,
    pub object: ObjectRef,
    pub resources: Outcome,
    /// What a step or the whole pipeline stopped desiring.
    #[serde(default)]
    pub dropped: Vec<Dropped>,
    #[serde(default)]
    pub dropped_count: u64,
    /// Fields that went from one value to another and back.
    #[serde(default)]
    pub flapping: Vec<FlappingField>,
    #[serde(default)]
    pub flapping_count: u64,
}

impl Line {
    /// Whether a payload was too large to be summarised, so that something is not known.
    pub fn is_summary_partial(&self) -> bool {
        self.steps.iter().any(|step| step.facts.summary.is_some())
    }

    /// Whether [`Self::resources`] is empty because nothing could be predicted from a payload that
    /// was too large to be summarised, not because nothing will happen.
    pub fn is_outcome_unknown(&self) -> bool {
        // Where the pipeline failed, nothing happens.
        !self.status.is_failure()
            && self.is_summary_partial()
            && self.resources == Outcome::default()
    }
}

/// What was reconciled.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct LineSubject {
    #[serde(rename = "type")]
    pub kind_of_subject: SubjectType,
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub composition: String,
    #[serde(flatten)]
    pub facts: SubjectFacts,
}

/// What the payloads say about the subject.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct SubjectFacts {
    pub composition_revision: Option<String>,
    pub generation: Option<i64>,
    pub resource_version: Option<String>,
    /// The uid of the XR that composed this one: the controller among its owners.
    #[serde(default)]
    pub parent_uid: Option<String>,
}

/// How a step, or a reconcile as its worst step, ended; the worst last.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    #[default]
    Ok,
    Warning,
    /// A response is missing.
    Incomplete,
    /// A result was FATAL.
    Fatal,
    /// The call failed.
    Error,
}

impl Status {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Incomplete => "incomplete",
            Self::Fatal => "fatal",
            Self::Error => "error",
        }
    }

    /// Whether the step, or the pipeline, did not do what it should.
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Incomplete | Self::Fatal | Self::Error)
    }
}

/// One function call.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LineStep {
    pub index: i32,
    pub name: String,
    pub iteration: i32,
    pub function: String,
    /// As core sent it.
    pub span_id: String,
    /// 16 hex digits.
    pub otel_span_id: String,
    pub started_at: Timestamp,
    /// Arrival of the response; `None` if none came.
    pub ended_at: Option<Timestamp>,
    pub duration_ms: Option<f64>,
    pub status: Status,
    pub error: Option<String>,
    /// Of few values.
    pub error_type: Option<String>,
    /// Answered from core's cache, by all appearances.
    pub cached: bool,
    pub request: Option<PayloadRef>,
    pub response: Option<PayloadRef>,
    #[serde(flatten)]
    pub facts: StepFacts,
}

/// What the payloads of a step say.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct StepFacts {
    pub results: Vec<StepResult>,
    #[serde(default)]
    pub result_counts: SeverityCounts,
    pub conditions: Vec<Condition>,
    pub tag: Option<String>,
    pub ttl_s: Option<f64>,
    /// `kind.group` of the step's input, such as `Resources.pt.fn.crossplane.io`.
    #[serde(default)]
    pub input_kind: Option<String>,
    /// `None` if there is no response that could be read.
    pub desired: Option<Desired>,
    pub requirements: Vec<Requirement>,
    /// Why the payloads were not looked into, such as `skipped: too large`: then what this says of
    /// them, and what the line says of the outcome, is unknown where it is empty. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct StepResult {
    pub severity: Severity,
    pub reason: Option<String>,
    pub message: String,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Normal,
    Warning,
    Fatal,
}

impl Severity {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Warning => "warning",
            Self::Fatal => "fatal",
        }
    }
}

/// How many results of each severity.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct SeverityCounts {
    pub normal: u64,
    pub warning: u64,
    pub fatal: u64,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Condition {
    #[serde(rename = "type")]
    pub condition_type: String,
    /// `true`, `false` or `unknown`.
    pub status: String,
    pub reason: String,
    pub message: Option<String>,
}

/// What a step asked for besides.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Requirement {
    pub name: String,
    pub api_version: String,
    pub kind: String,
    /// How many came back; `None` where the capture does not tell.
    pub found: Option<u64>,
}

/// A step's desired state, against the one that it was given.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Desired {
    pub total: u64,
    pub ready: u64,
    pub added: Vec<String>,
    pub changed: Vec<String>,
    pub removed: Vec<String>,
    #[serde(default)]
    pub added_count: u64,
    #[serde(default)]
    pub changed_count: u64,
    #[serde(default)]
    pub removed_count: u64,
}

/// The predicted outcome of the pipeline.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Outcome {
    pub create: Vec<String>,
    pub update: Vec<String>,
    pub delete: Vec<String>,
    pub unchanged: u64,
    #[serde(default)]
    pub create_count: u64,
    #[serde(default)]
    pub update_count: u64,
    #[serde(default)]
    pub delete_count: u64,
    /// The step that last touched each resource of the final desired state, by its place in
    /// `steps`, as pairs of step and names.
    #[serde(default)]
    pub touched_by: Vec<(u32, Vec<String>)>,
}

/// A resource that was desired, or is there, and is not desired any more.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Dropped {
    pub resource: String,
    /// The place in `steps` of the step that dropped it; `None` if no step of this pipeline asked
    /// for it in the first place.
    pub step: Option<u32>,
    /// It exists: the drop will delete it.
    pub observed: bool,
}

/// A field that went from one value to another and back.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FlappingField {
    /// Empty for the composite itself.
    pub resource: String,
    /// Such as `spec.forProvider.size`; empty if the whole resource went and came back.
    pub field: String,
}

/// The object that holds the payloads.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ObjectRef {
    /// Within the bucket.
    pub key: String,
    pub state: PayloadState,
    /// As stored.
    pub bytes: u64,
    /// Names the rules that redacted it: objects that were made by the same have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redaction: Option<String>,
}

/// Where a payload stands.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PayloadState {
    /// In the store.
    Stored,
    /// In the store, in the object of an earlier reconcile.
    Unchanged,
    /// On its way.
    Queued,
    /// It will never be in the store.
    Dropped,
}

impl PayloadState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Unchanged => "unchanged",
            Self::Queued => "queued",
            Self::Dropped => "dropped",
        }
    }
}

/// A payload in the object.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PayloadRef {
    /// Such as `/steps/2/request`.
    pub pointer: String,
    /// Of the payload as it stands in the object, 64 hex digits.
    pub sha256: String,
    pub size: u64,
    /// How many values were taken out.
    pub redacted: u64,
}
