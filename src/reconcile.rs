//! What a reconcile is made of: its subject and its steps, each with where its payloads lie.
//!
//! Invariant: metadata, hashes and positions only. A payload never stands in here, so that the
//! memory that a reconcile takes does not depend on the size of what it carries.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sha2::{Digest as _, Sha256};

use crate::{
    fingerprint::{Fingerprint, Fingerprinter},
    record::Position,
    time::Timestamp,
};

/// The API group and version of Crossplane's Operations, which their meta leaves out.
const OPERATION_API_VERSION: &str = "ops.crossplane.io/v1alpha1";

/// Core gives a reconcile two minutes; a response that comes later than this never comes.
pub const NO_RESPONSE_AFTER: Duration = Duration::from_secs(140);

/// What was reconciled.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct Subject {
    #[serde(rename = "type")]
    pub kind_of_subject: SubjectType,
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub composition: String,
}

/// Whether a composite resource or an Operation was reconciled.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SubjectType {
    #[default]
    Composite,
    Operation,
}

impl Subject {
    pub fn operation(name: String, uid: String) -> Self {
        Self {
            kind_of_subject: SubjectType::Operation,
            api_version: OPERATION_API_VERSION.to_owned(),
            kind: "Operation".to_owned(),
            name,
            uid,
            ..Self::default()
        }
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version
            .split_once('/')
            .map_or("", |(group, _)| group)
    }

    /// What tells this subject from every other: its uid or, where that is missing, its name.
    pub fn identity(&self) -> SubjectIdentity {
        if self.uid.is_empty() {
            let Self {
                api_version,
                kind,
                namespace,
                name,
                ..
            } = self;
            SubjectIdentity(format!("{api_version}/{kind}/{namespace}/{name}").into())
        } else {
            SubjectIdentity(self.uid.as_str().into())
        }
    }
}

/// Names one subject among all.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SubjectIdentity(pub Arc<str>);

/// The trace id as it came, or what stands for it where none came.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TraceId(pub Arc<str>);

impl fmt::Display for TraceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// SHA-256 of a payload as it is stored.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PayloadHash(pub [u8; 32]);

impl PayloadHash {
    pub fn of(payload: &[u8]) -> Self {
        Self(Sha256::digest(payload).into())
    }

    /// From 64 hex digits.
    pub fn parse(digits: &str) -> Option<Self> {
        let mut hash = [0; 32];
        let (pairs, []) = digits.as_bytes().as_chunks::<2>() else {
            return None;
        };
        if pairs.len() != hash.len() {
            return None;
        }
        for (byte, pair) in hash.iter_mut().zip(pairs) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(hash))
    }
}

impl Serialize for PayloadHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PayloadHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let digits = Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&digits).ok_or_else(|| D::Error::custom("this is no hash of 64 hex digits"))
    }
}

/// Hashes a payload piece by piece.
#[derive(Clone, Debug, Default)]
pub struct PayloadHasher(Sha256);

impl PayloadHasher {
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    pub fn finish(self) -> PayloadHash {
        PayloadHash(self.0.finalize().into())
    }
}

impl fmt::Display for PayloadHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for PayloadHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// One half of a step: where its payload lies, and what it is told from others by.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Half {
    pub position: Position,
    pub fingerprint: Fingerprint,
    pub size: usize,
    pub received_at: Timestamp,
}

/// One function call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step {
    pub span_id: String,
    pub index: i32,
    pub iteration: i32,
    /// Empty in the draft layout, which has none.
    pub name: String,
    pub function: String,
    /// When the call began, by the sender's clock.
    pub started_at: Timestamp,
    /// Why the call failed; empty when it did not.
    pub error: String,
    pub request: Option<Half>,
    pub response: Option<Half>,
    /// How waiting for the response ended, if that is known from somewhere else than the
    /// reconcile's [`Closing`].
    pub unanswered: Option<Unanswered>,
}

/// How waiting for a response ended.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Unanswered {
    pub until: Timestamp,
    /// The sidecar stopped; the function may have answered all the same.
    pub interrupted: bool,
}

impl Step {
    pub fn awaits_response(&self) -> bool {
        self.response.is_none()
    }
}

/// Why nothing more was waited for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Closing {
    /// Nothing outstanding, and nothing came for a while.
    Idle,
    /// The next reconcile of the same subject began.
    Succeeded,
    /// A step failed or returned FATAL, which ends the pipeline.
    Ended,
    /// A response did not come in time.
    Overdue,
    /// Too many were open, or this one grew too long.
    Flooded,
    /// The program is stopping.
    ShuttingDown,
}

/// A reconcile that nothing more is expected of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClosedReconcile {
    pub trace_id: TraceId,
    pub subject: Subject,
    /// In the order of the pipeline.
    pub steps: Vec<Step>,
    /// Every record that belongs to it, duplicates included.
    pub records: Vec<Position>,
    pub first_received_at: Timestamp,
    /// A response says FATAL somewhere.
    pub maybe_fatal: bool,
    /// When the next reconcile of the same subject began, if a response was outstanding then.
    pub succeeded_at: Option<Timestamp>,
    pub closing: Closing,
}

impl Subject {
    /// Bytes in memory.
    pub fn memory_bytes(&self) -> usize {
        let Self {
            kind_of_subject: _,
            api_version,
            kind,
            namespace,
            name,
            uid,
            composition,
        } = self;
        let texts = [api_version, kind, namespace, name, uid, composition];
        size_of::<Self>() + texts.map(String::len).iter().sum::<usize>()
    }
}

impl Step {
    /// Bytes in memory: of its texts, an error may take by far the most.
    pub fn memory_bytes(&self) -> usize {
        let Self {
            span_id,
            name,
            function,
            error,
            ..
        } = self;
        let texts = [span_id, name, function, error];
        size_of::<Self>() + texts.map(String::len).iter().sum::<usize>()
    }
}

impl ClosedReconcile {
    /// Bytes in memory, about.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.trace_id.0.len()
            + self.subject.memory_bytes()
            + self.steps.iter().map(Step::memory_bytes).sum::<usize>()
            + size_of_val(self.records.as_slice())
    }

    /// Every request has its response.
    pub fn is_complete(&self) -> bool {
        !self.steps.iter().any(Step::awaits_response)
    }

    /// The beginning is missing: another part of it may have been published before.
    pub fn is_fragment(&self) -> bool {
        let is_first = |step: &Step| (step.index, step.iteration) == (0, 0);
        self.steps.iter().any(|step| step.request.is_none()) || !self.steps.iter().any(is_first)
    }

    /// How waiting for the response of a step ended; `None` if it came. Core does not begin the
    /// next reconcile of a subject before it has given up on this one.
    pub fn unanswered(&self, step: &Step) -> Option<Unanswered> {
        if step.response.is_some() {
            return None;
        }
        let until = match (&step.request, self.closing) {
            (Some(request), Closing::Overdue) => request.received_at + NO_RESPONSE_AFTER,
            (Some(_), _) => self.succeeded_at.unwrap_or(step.started_at),
            (None, _) => step.started_at,
        };
        Some(step.unanswered.unwrap_or(Unanswered {
            until,
            interrupted: self.closing == Closing::ShuttingDown,
        }))
    }

    pub fn has_error(&self) -> bool {
        self.steps.iter().any(|step| !step.error.is_empty())
    }

    /// When its first step began.
    pub fn started_at(&self) -> Timestamp {
        let starts = self.steps.iter().map(|step| step.started_at);
        starts.min().unwrap_or(self.first_received_at)
    }

    /// Size of all payloads together.
    pub fn payload_bytes(&self) -> usize {
        let halves = self
            .steps
            .iter()
            .flat_map(|step| [&step.request, &step.response]);
        halves.flatten().map(|half| half.size).sum()
    }

    /// Equal for two reconciles that asked and answered the same in the same steps, whenever
    /// they ran.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut hasher = Fingerprinter::default();
        let mut add = |field: &[u8]| {
            // NOTE: the length keeps fields from running into each other.
            hasher.update(&(field.len() as u64).to_le_bytes());
            hasher.update(field);
        };
        add(self.subject.composition.as_bytes());
        for step in &self.steps {
            add(&step.index.to_le_bytes());
            add(&step.iteration.to_le_bytes());
            add(step.name.as_bytes());
            add(step.function.as_bytes());
            add(step.error.as_bytes());
            for half in [&step.request, &step.response] {
                add(half
                    .as_ref()
                    .map_or(&[][..], |half| half.fingerprint.as_bytes()));
            }
        }
        hasher.finish()
    }
}
