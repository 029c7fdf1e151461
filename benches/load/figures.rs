//! Figures of one server under one load.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use crate::{drive::Heard, quota::Periods, store::Stored};

/// What was seen.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) server: String,
    pub(crate) heard: Heard,
    /// While the load lasted.
    pub(crate) stolen: f64,
    /// From the first call to the end of the process.
    pub(crate) cpu: Duration,
    pub(crate) peak_bytes: u64,
    pub(crate) threads: BTreeMap<String, Duration>,
    pub(crate) drained_after: Option<Duration>,
    pub(crate) stored: Stored,
    pub(crate) periods: Option<Periods>,
}

/// What that comes to.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) server: String,
    pub(crate) seconds: f64,
    pub(crate) reconciles: u64,
    /// Those in which something changed.
    pub(crate) changed: u64,
    pub(crate) acknowledged: u64,
    /// Calls that were not answered before core gives up, in all rounds.
    pub(crate) missed: u64,
    /// Calls that were answered with an error, in all rounds.
    pub(crate) refused: u64,
    pub(crate) first_refusal: Option<String>,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    pub(crate) messages_per_second: f64,
    /// A megabyte is 10⁶ bytes, of acknowledged messages.
    pub(crate) mb_per_second: f64,
    /// Of acknowledged messages, in all rounds.
    pub(crate) acknowledged_bytes: u64,
    /// With the work behind the answers, until the process ended; in all rounds.
    pub(crate) cpu_seconds: f64,
    pub(crate) cpu_seconds_per_gb: f64,
    /// CPU seconds a second of load, in this round.
    pub(crate) cores: f64,
    pub(crate) peak_mib: f64,
    /// From the last answer until nothing was left to do; none if that did not happen.
    pub(crate) drained_after_seconds: Option<f64>,
    pub(crate) objects: u64,
    pub(crate) object_bytes: u64,
    pub(crate) index_objects: u64,
    pub(crate) index_bytes: u64,
    /// Without those of the index.
    pub(crate) objects_per_reconcile: f64,
    pub(crate) objects_per_changed_reconcile: Option<f64>,
    pub(crate) stored_bytes_per_reconcile: f64,
    /// While the load lasted.
    pub(crate) periods: Option<Periods>,
    /// What this machine's host gave to others while the load lasted.
    pub(crate) stolen: f64,
    pub(crate) cpu_seconds_by_thread: BTreeMap<String, f64>,
}

impl Figures {
    pub(crate) fn new(measured: Measured) -> Self {
        let Measured { heard, stored, .. } = measured;
        let mut took = heard.took;
        took.sort_unstable();
        let seconds = heard.time.as_secs_f64();
        let cpu_seconds = measured.cpu.as_secs_f64();
        let bytes = heard.acknowledged_bytes as f64;
        let reconciles = heard.reconciles as f64;
        let threads = measured.threads.into_iter();
        Self {
            server: measured.server,
            seconds,
            reconciles: heard.reconciles,
            changed: heard.changed,
            acknowledged: heard.acknowledged,
            missed: heard.missed,
            refused: heard.refused,
            first_refusal: heard.first_refusal,
            p50_ms: percentile(&took, 50),
            p99_ms: percentile(&took, 99),
            max_ms: percentile(&took, 100),
            messages_per_second: heard.acknowledged as f64 / seconds,
            mb_per_second: bytes / 1e6 / seconds,
            acknowledged_bytes: heard.acknowledged_bytes,
            cpu_seconds,
            cpu_seconds_per_gb: cpu_seconds / (bytes / 1e9),
            cores: cpu_seconds / seconds,
            peak_mib: measured.peak_bytes as f64 / 1024.0 / 1024.0,
            drained_after_seconds: measured.drained_after.map(|time| time.as_secs_f64()),
            objects: stored.objects,
            object_bytes: stored.object_bytes,
            index_objects: stored.index_objects,
            index_bytes: stored.index_bytes,
            objects_per_reconcile: stored.objects as f64 / reconciles,
            objects_per_changed_reconcile: (heard.changed > 0)
                .then(|| stored.objects as f64 / heard.changed as f64),
            stored_bytes_per_reconcile: (stored.object_bytes + stored.index_bytes) as f64
                / reconciles,
            periods: measured.periods,
            stolen: measured.stolen,
            cpu_seconds_by_thread: threads
                .map(|(name, time)| (name, time.as_secs_f64()))
                .collect(),
        }
    }

    /// Those of the round with the median p99, with what went wrong in any and the CPU of all.
    pub(crate) fn of_rounds(mut rounds: Vec<Self>) -> Option<Self> {
        let missed = rounds.iter().map(|round| round.missed).sum();
        let refused = rounds.iter().map(|round| round.refused).sum();
        let first_refusal = rounds.iter().find_map(|round| round.first_refusal.clone());
        let cpu_seconds: f64 = rounds.iter().map(|round| round.cpu_seconds).sum();
        let acknowledged_bytes: u64 = rounds.iter().map(|round| round.acknowledged_bytes).sum();
        rounds.sort_by(|one, other| one.p99_ms.total_cmp(&other.p99_ms));
        let median = rounds.len().checked_sub(1)? / 2;
        Some(Self {
            missed,
            refused,
            first_refusal,
            acknowledged_bytes,
            cpu_seconds,
            cpu_seconds_per_gb: cpu_seconds / (acknowledged_bytes as f64 / 1e9),
            ..rounds.swap_remove(median)
        })
    }
}

/// In milliseconds: so many of a hundred took this long or less.
pub(crate) fn percentile(sorted: &[Duration], of_hundred: usize) -> f64 {
    let rank = (sorted.len() * of_hundred).div_ceil(100);
    let took = sorted.get(rank.saturating_sub(1)).copied();
    took.unwrap_or_default().as_secs_f64() * 1000.0
}
