//! Why something was refused or lost: the values of the label `reason`.
//!
//! Invariant: few, fixed, and each counted from the start.

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    SpoolFull,
    DiskError,
    Oversize,
    /// It began, and did not end.
    Slow,
    /// More are under way than there is memory for.
    TooManyCalls,
    ShuttingDown,
}

impl Refusal {
    pub(super) const ALL: [Self; 6] = [
        Self::SpoolFull,
        Self::DiskError,
        Self::Oversize,
        Self::Slow,
        Self::TooManyCalls,
        Self::ShuttingDown,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::SpoolFull => "spool_full",
            Self::DiskError => "disk_error",
            Self::Oversize => "oversize",
            Self::Slow => "slow",
            Self::TooManyCalls => "too_many_calls",
            Self::ShuttingDown => "shutting_down",
        }
    }
}

/// Why an object will never be in the store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ObjectLoss {
    /// The store refuses this object, whatever the time of day.
    Refused,
    /// A payload of it can't be read back from the spool.
    Unreadable,
}

impl ObjectLoss {
    pub(super) const ALL: [Self; 2] = [Self::Refused, Self::Unreadable];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Why a span will never be at the collector.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SpanLoss {
    /// The collector answered that it will never take it.
    Refused,
    /// The collector took the batch, but not this span.
    Rejected,
    /// Too many were waiting already.
    OutboxFull,
    /// It can't be read back from the outbox.
    Unreadable,
    /// It waited when the sidecar was started without tracing.
    TracingOff,
}

impl SpanLoss {
    pub(super) const ALL: [Self; 5] = [
        Self::Refused,
        Self::Rejected,
        Self::OutboxFull,
        Self::Unreadable,
        Self::TracingOff,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Rejected => "rejected",
            Self::OutboxFull => "outbox_full",
            Self::Unreadable => "unreadable",
            Self::TracingOff => "tracing_off",
        }
    }
}
