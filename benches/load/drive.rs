//! Load: reconciles as core runs them, on one connection, every call with core's deadline.
//!
//! Invariant: within a reconcile one call follows the other; an XR has one reconcile at a time; a
//! call that failed stops nothing. In an open loop reconciles begin when they are due, however
//! long the others take, and a first call counts from then.

use std::{
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use fastrand::Rng;
use spanplane::{
    client::{CORE_DEADLINE, InspectorClient},
    record::RecordKind,
};
use tokio::task::JoinSet;
use tonic::{Code, Status};

use crate::{
    payload::{STEPS, Shape},
    xr::Xr,
};

/// How long a function takes in an open loop; those on the same machine took 2 ms or more. In a
/// closed one it takes no time.
const FUNCTION_TAKES: Duration = Duration::from_millis(2);

/// Where nothing is measured, everything has to arrive.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
const KNOWN_BY: usize = 4;
/// Until a server that has no room is asked again.
const ROOM_AFTER: Duration = Duration::from_millis(100);

/// When reconciles begin.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    /// So many callers, each one reconcile after the other.
    Closed(usize),
    /// So many a minute; each XR is reconciled at equal distances, from a moment of its own on.
    Open(f64),
}

impl fmt::Display for Mode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(1) => out.write_str("1 caller"),
            Self::Closed(callers) => write!(out, "{callers} callers"),
            Self::Open(per_minute) => write!(out, "{per_minute:.0} reconciles a minute"),
        }
    }
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) xrs: usize,
    pub(crate) shape: Shape,
    /// Share of the reconciles in which something changed.
    pub(crate) changed: f64,
    pub(crate) mode: Mode,
    pub(crate) time: Duration,
    /// A closed loop ends before its time once so much was acknowledged.
    pub(crate) enough_bytes: Option<u64>,
}

/// Tells which reconciles change something: so large a share of all, spread evenly.
#[derive(Debug)]
struct Changes {
    share: f64,
    reconciles: AtomicU64,
}

impl Changes {
    fn next(&self) -> bool {
        let before = self.reconciles.fetch_add(1, Ordering::Relaxed) as f64;
        (before + 1.0).mul_add(self.share, 0.5).floor() > before.mul_add(self.share, 0.5).floor()
    }
}

/// What became of it.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Of all calls, answered or not.
    pub(crate) took: Vec<Duration>,
    pub(crate) acknowledged: u64,
    pub(crate) acknowledged_bytes: u64,
    /// Not answered before core gives up.
    pub(crate) missed: u64,
    /// Answered with an error.
    pub(crate) refused: u64,
    pub(crate) first_refusal: Option<String>,
    pub(crate) reconciles: u64,
    pub(crate) changed: u64,
    pub(crate) time: Duration,
}

impl Heard {
    fn note(&mut self, took: Duration, bytes: usize, answer: Result<(), Status>) {
        self.took.push(took);
        match answer {
            Ok(()) => {
                self.acknowledged += 1;
                self.acknowledged_bytes += bytes as u64;
            }
            // NOTE: which of the two it is depends on whose clock ran out first.
            Err(status)
                if matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled)
                    || took > CORE_DEADLINE =>
            {
                self.missed += 1;
            }
            Err(status) => {
                self.refused += 1;
                self.first_refusal.get_or_insert_with(|| status.to_string());
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.took.extend(other.took);
        self.acknowledged += other.acknowledged;
        self.acknowledged_bytes += other.acknowledged_bytes;
        self.missed += other.missed;
        self.refused += other.refused;
        self.first_refusal = self.first_refusal.take().or(other.first_refusal);
        self.reconciles += other.reconciles;
        self.changed += other.changed;
    }
}

impl Load {
    pub(crate) fn xrs(&self) -> Vec<Xr> {
        Xr::make(self.xrs, self.shape)
    }

    /// Sends it; returns once the last call has ended.
    pub(crate) async fn drive(self, socket: &Path, xrs: Vec<Xr>) -> anyhow::Result<Heard> {
        let begun = Instant::now();
        let changes = Arc::new(Changes {
            share: self.changed,
            reconciles: AtomicU64::new(0),
        });
        let client = InspectorClient::new(socket.to_owned(), CORE_DEADLINE);
        let caller = || Caller {
            client: client.clone(),
            changes: Arc::clone(&changes),
            mode: self.mode,
            end: begun + self.time,
            heard: Heard::default(),
        };
        let mut callers = JoinSet::new();
        match self.mode {
            Mode::Closed(count) => {
                let enough = self.enough_bytes.map(|bytes| bytes / count as u64);
                for xrs in dealt(xrs, count) {
                    callers.spawn(caller().call_in_turn(xrs, enough));
                }
            }
            Mode::Open(per_minute) => {
                let period = Duration::from_secs_f64(self.xrs as f64 * 60.0 / per_minute);
                let mut rng = Rng::with_seed(7);
                for xr in xrs {
                    let first = begun + period.mul_f64(rng.f64());
                    callers.spawn(caller().call_when_due(xr, first, period));
                }
            }
        }
        let mut heard = Heard::default();
        while let Some(caller) = callers.join_next().await {
            heard.add(caller?);
        }
        heard.time = begun.elapsed();
        Ok(heard)
    }
}

/// Runs reconciles, one at a time.
struct Caller {
    client: InspectorClient,
    changes: Arc<Changes>,
    mode: Mode,
    /// No reconcile begins from then on.
    end: Instant,
    heard: Heard,
}

impl Caller {
    async fn call_in_turn(mut self, mut xrs: Vec<Xr>, enough: Option<u64>) -> Heard {
        loop {
            for xr in &mut xrs {
                let heard = self.heard.acknowledged_bytes;
                if Instant::now() >= self.end || enough.is_some_and(|bytes| heard >= bytes) {
                    return self.heard;
                }
                self.reconcile(xr, None).await;
            }
        }
    }

    async fn call_when_due(mut self, mut xr: Xr, mut due: Instant, period: Duration) -> Heard {
        while due < self.end {
            tokio::time::sleep_until(due.into()).await;
            self.reconcile(&mut xr, Some(due)).await;
            due += period;
        }
        self.heard
    }

    async fn reconcile(&mut self, xr: &mut Xr, mut due: Option<Instant>) {
        self.heard.reconciles += 1;
        if self.changes.next() {
            xr.change();
            self.heard.changed += 1;
        }
        let reconcile = xr.reconcile();
        for index in 0..STEPS {
            let step = reconcile.step(index);
            for kind in [RecordKind::Request, RecordKind::Response] {
                if kind == RecordKind::Response && matches!(self.mode, Mode::Open(_)) {
                    tokio::time::sleep(FUNCTION_TAKES).await;
                }
                let message = step.message(kind);
                let bytes = message.len();
                let made = due.take().unwrap_or_else(Instant::now);
                let answer = self.client.emit(kind, message).await;
                self.heard.note(made.elapsed(), bytes, answer);
            }
        }
    }
}

/// Reconciles each XR once, so that a server knows it.
pub(crate) async fn make_known(socket: &Path, xrs: Vec<Xr>) -> anyhow::Result<Vec<Xr>> {
    let client = InspectorClient::new(socket.to_owned(), PATIENCE);
    let mut callers = JoinSet::new();
    for xrs in dealt(xrs, KNOWN_BY) {
        let mut client = client.clone();
        callers.spawn(async move {
            for xr in &xrs {
                let reconcile = xr.reconcile();
                for index in 0..STEPS {
                    let step = reconcile.step(index);
                    for kind in [RecordKind::Request, RecordKind::Response] {
                        emit_until_taken(&mut client, kind, &step.message(kind)).await?;
                    }
                }
            }
            anyhow::Ok(xrs)
        });
    }
    let mut known = Vec::new();
    while let Some(caller) = callers.join_next().await {
        known.extend(caller??);
    }
    Ok(known)
}

async fn emit_until_taken(
    client: &mut InspectorClient,
    kind: RecordKind,
    message: &Bytes,
) -> Result<(), Status> {
    loop {
        match client.emit(kind, message.clone()).await {
            Err(status) if status.code() == Code::ResourceExhausted => {
                tokio::time::sleep(ROOM_AFTER).await;
            }
            answer => return answer,
        }
    }
}

/// In turn, to so many callers.
fn dealt(xrs: Vec<Xr>, count: usize) -> Vec<Vec<Xr>> {
    let mut hands: Vec<Vec<Xr>> = (0..count).map(|_| Vec::new()).collect();
    for (place, xr) in xrs.into_iter().enumerate() {
        if let Some(hand) = hands.get_mut(place % count) {
            hand.push(xr);
        }
    }
    hands.retain(|hand| !hand.is_empty());
    hands
}
