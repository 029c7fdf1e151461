//! Who reconciles when: 1,000 XRs, each once a minute for 100 minutes, each changed five times.
//!
//! Everything follows from the number of the XR and the minute, so that a question knows what to
//! ask for.

use std::time::Duration;

use spanplane::{
    ids::{OtelSpanId, OtelTraceId},
    line::{Line, PayloadState},
    reconcile::{PayloadHash, Subject},
    time::Timestamp,
};

pub(crate) const XRS: u32 = 1_000;
pub(crate) const MINUTES: u32 = 100;
/// Minutes between two changes of an XR.
const CHANGE: u32 = 20;

/// 2026-11-16T10:00:00Z.
const START: Timestamp = Timestamp::from_nanos(1_794_823_200_000_000_000);

/// A reconcile of the world.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Reconcile {
    pub(crate) xr: u32,
    pub(crate) minute: u32,
}

/// What a reconcile shows of the world.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Scene {
    /// The place among the usual ones.
    Usual(usize),
    Failed,
    Dropping,
    Large,
}

/// Has a payload of 4 MB.
pub(crate) const LARGE: Reconcile = Reconcile {
    xr: 500,
    minute: 80,
};

impl Reconcile {
    /// All of them, in the order in which they begin.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..MINUTES).flat_map(|minute| (0..XRS).map(move |xr| Self { xr, minute }))
    }

    pub(crate) fn previous(self) -> Option<Self> {
        let minute = self.minute.checked_sub(1)?;
        Some(Self { minute, ..self })
    }

    /// The reconcile in which the XR last changed.
    pub(crate) fn changed_in(self) -> Self {
        let lag = self.xr % CHANGE;
        let change = self.minute.saturating_sub(lag) / CHANGE;
        let minute = if change == 0 {
            0
        } else {
            change * CHANGE + lag
        };
        Self { minute, ..self }
    }

    pub(crate) fn scene(self) -> Scene {
        let change = self.changed_in();
        match (change.minute / CHANGE, self.xr % 100) {
            _ if change == LARGE => Scene::Large,
            (1, 13) => Scene::Dropping,
            (2, 7) => Scene::Failed,
            (change, _) => Scene::Usual(change as usize),
        }
    }

    pub(crate) fn started_at(self) -> Timestamp {
        let minutes = Duration::from_mins(self.minute.into());
        START + minutes + Duration::from_millis(60) * self.xr
    }

    pub(crate) fn trace_id(self) -> String {
        uuid(&format!("trace {} {}", self.xr, self.minute))
    }

    /// As long as the name in the captures, so that payloads keep their sizes.
    pub(crate) fn name(self) -> String {
        format!("net-{:04}", self.xr)
    }

    pub(crate) fn uid(self) -> String {
        uuid(&format!("xr {}", self.xr))
    }

    pub(crate) fn subject(self) -> Subject {
        Subject {
            api_version: "platform.example.org/v1".to_owned(),
            kind: "Network".to_owned(),
            namespace: "default".to_owned(),
            name: self.name(),
            uid: self.uid(),
            composition: "network-aws".to_owned(),
            ..Subject::default()
        }
    }

    /// The line of this reconcile, from that of one like it.
    pub(crate) fn line(self, like: &Line, key: String, bytes: u64) -> Line {
        let mut line = like.clone();
        let then = like.started_at;
        let shifted = |at: Timestamp| self.started_at() + at.since(then);
        let otel_trace_id = OtelTraceId::of(&self.trace_id());
        line.trace_id = self.trace_id();
        line.otel_trace_id = otel_trace_id.to_string();
        line.root_span_id = otel_trace_id.root_span().to_string();
        line.previous_trace_id = self.previous().map(Self::trace_id);
        line.started_at = shifted(line.started_at);
        line.ended_at = shifted(line.ended_at);
        let subject = self.subject();
        line.subject.api_version = subject.api_version;
        line.subject.kind = subject.kind;
        line.subject.namespace = subject.namespace;
        line.subject.name = subject.name;
        line.subject.uid = subject.uid;
        line.changed = self == self.changed_in();
        line.object.key = key;
        line.object.bytes = bytes;
        if !line.changed {
            line.object.state = PayloadState::Unchanged;
        }
        for step in &mut line.steps {
            step.span_id = uuid(&format!("{} {}", self.trace_id(), step.index));
            step.otel_span_id = OtelSpanId::of(&step.span_id).to_string();
            step.started_at = shifted(step.started_at);
            step.ended_at = step.ended_at.map(shifted);
            // An equal reconcile has equal payloads; those of another XR differ.
            let own = |hash: &str| PayloadHash::of(format!("{hash} {}", self.xr).as_bytes());
            for payload in [&mut step.request, &mut step.response] {
                if let Some(payload) = payload {
                    payload.sha256 = own(&payload.sha256).to_string();
                }
            }
            step.facts.tag = step.facts.tag.as_deref().map(|tag| own(tag).to_string());
        }
        line
    }
}

fn uuid(of: &str) -> String {
    let mut digits = PayloadHash::of(of.as_bytes()).to_string();
    digits.truncate(32);
    for dash in [20, 16, 12, 8] {
        digits.insert(dash, '-');
    }
    digits
}
