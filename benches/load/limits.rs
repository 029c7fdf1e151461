//! What the program takes when clients are not like core: many, large, slow, or gone before the
//! answer. In a control group of 128 MiB, where too much memory ends the process.

use std::{
    fmt::Write as _,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde::Serialize;
use tokio::{runtime::Runtime, task::JoinSet};

use crate::{
    figures::percentile,
    heavy,
    memory::{LIMIT_BYTES, MemoryGroup},
    process,
    quota::Quota,
    report::Reached,
    rough::{self, Calls},
    server::{Kind, Place, Running},
    together,
    trial::store_that_is_away,
};

const LARGE: usize = 13_000_000;
const USUAL: usize = 64 * 1024;
/// How long clients that don't stop by themselves go on.
const LASTS: Duration = Duration::from_secs(15);
const PROBES: usize = 100;
/// More than the limit has room for.
const TOO_LARGE: &str = "64MiB";

/// What is told of the limits.
#[derive(Debug, Serialize)]
pub(crate) struct Limits {
    scenario: &'static str,
    limit_bytes: u64,
    rows: Vec<Row>,
    targets: Vec<Reached>,
    /// What the program said about a message size that the memory limit has no room for.
    refusal: String,
}

#[derive(Debug, Serialize)]
struct Row {
    clients: &'static str,
    acknowledged: usize,
    missed: usize,
    failed: usize,
    first_failure: Option<String>,
    longest_ms: f64,
    seconds: f64,
    peak_mib: f64,
    /// Until everything behind the answers was done.
    drained_after_seconds: Option<f64>,
    killed: u64,
    /// What else there is to say.
    note: Option<String>,
}

/// The row in which the store does not answer.
const AWAY: &str = "2 x 5 steps of 32 MiB with Secrets, store away";

/// The row with the sidecar's CPU quota: its `drain s` is how long the small message was delayed.
const BEHIND_KEYS: &str = "1 small behind 15 MB with 1.5 million keys, 10 % CPU";

/// What clients do; returns what became of the calls that count.
type Clients = fn(&Place, &Runtime) -> anyhow::Result<Calls>;

const CLIENTS: [(&str, Clients); 11] = [
    ("1 of 32 MiB", |place, runtime| {
        at_once(place, runtime, 32 * 1024 * 1024 - USUAL, 1, 1)
    }),
    ("16 of 13 MB on 1 connection", |place, runtime| {
        at_once(place, runtime, LARGE, 16, 1)
    }),
    ("16 of 13 MB on 16 connections", |place, runtime| {
        at_once(place, runtime, LARGE, 16, 16)
    }),
    ("256 of 2 MB on 16 connections", |place, runtime| {
        at_once(place, runtime, 2_000_000, 256, 16)
    }),
    ("1,000 of 64 KiB on 1,000 connections", |place, runtime| {
        at_once(place, runtime, USUAL, 1000, 1000)
    }),
    ("1,000 of 500 KB on 1,000 connections", |place, runtime| {
        at_once(place, runtime, 500_000, 1000, 1000)
    }),
    (
        "64 KiB like core, beside 200 halves of 13 MB",
        |place, runtime| {
            runtime.block_on(async {
                let _slow = rough::slow(&place.socket(), 200, LARGE);
                Ok(rough::like_core(&place.socket(), USUAL, LASTS).await)
            })
        },
    ),
    (
        "64 KiB like core, beside 4 MB taken back",
        |place, runtime| {
            runtime.block_on(async {
                let socket = place.socket();
                let (calls, taken_back) = tokio::join!(
                    rough::like_core(&socket, USUAL, LASTS),
                    rough::take_back(&socket, 4_000_000, LASTS)
                );
                anyhow::ensure!(taken_back > 100, "only {taken_back} calls were taken back");
                Ok(calls)
            })
        },
    ),
    (AWAY, |place, runtime| {
        Ok(runtime.block_on(heavy::secrets(&place.socket())))
    }),
    (BEHIND_KEYS, |place, runtime| {
        Ok(runtime.block_on(heavy::many_keys(&place.socket())))
    }),
    ("4 of 13 MB, after 13 MB taken back", |place, runtime| {
        runtime.block_on(rough::take_back(&place.socket(), LARGE, LASTS));
        at_once(place, runtime, LARGE, 4, 1)
    }),
];

/// Steps of so many reconciles, with requests of so many bytes.
fn at_once(
    place: &Place,
    runtime: &Runtime,
    bytes: usize,
    reconciles: usize,
    connections: usize,
) -> anyhow::Result<Calls> {
    let xrs = rough::xrs_of(bytes, reconciles);
    runtime.block_on(rough::at_once(&place.socket(), xrs, connections))
}

impl Limits {
    pub(crate) const NAME: &str = "limits";

    pub(crate) fn names() -> impl Iterator<Item = String> {
        let rows = CLIENTS.map(|(clients, _)| clients).into_iter();
        rows.chain([together::NAME, "probes"])
            .map(|row| format!("{} {row}", Self::NAME))
    }

    /// Why it can't be measured here, if so.
    pub(crate) fn obstacle() -> Option<anyhow::Error> {
        MemoryGroup::make().err()
    }

    /// Those rows that are wanted, by name.
    pub(crate) fn measure(
        runtime: &Runtime,
        is_wanted: impl Fn(&str) -> bool,
    ) -> anyhow::Result<Self> {
        let is_wanted = |row: &str| is_wanted(&format!("{} {row}", Self::NAME));
        let mut rows = Vec::new();
        for (clients, act) in CLIENTS {
            if is_wanted(clients) {
                let row = Row::measure(clients, act, runtime);
                rows.push(row.with_context(|| clients.to_owned())?);
            }
        }
        if is_wanted(together::NAME) {
            let row = Row::measure_together(runtime);
            rows.push(row.context(together::NAME)?);
        }
        let most = |of: fn(&Row) -> f64| rows.iter().map(of).fold(0.0, f64::max);
        let target = |what: &str, measured, at_most| Reached {
            what: what.to_owned(),
            measured,
            at_most,
        };
        let lost = |row: &Row| (row.missed + row.failed) as f64;
        let mut targets = vec![
            target("peak MiB", most(|row| row.peak_mib), 128.0),
            target("killed", most(|row| row.killed as f64), 0.0),
            target("not acknowledged", most(lost), 0.0),
        ];
        if is_wanted("probes") {
            let what = "p99 of /healthz beside 200 slow clients, ms";
            targets.push(target(what, probe_p99(runtime, false)?, 100.0));
            let what = "p99 of /healthz beside 200 slow clients and 16 x 4 MB, ms";
            targets.push(target(what, probe_p99(runtime, true)?, 100.0));
        }
        Ok(Self {
            scenario: Self::NAME,
            limit_bytes: LIMIT_BYTES,
            rows,
            targets,
            refusal: refusal()?,
        })
    }

    /// How often the server was killed for its memory.
    pub(crate) fn kills(&self) -> u64 {
        self.rows.iter().map(|row| row.killed).sum()
    }

    pub(crate) fn table(&self) -> String {
        let limit = self.limit_bytes >> 20;
        let mut lines = format!("\n{}: in a control group of {limit} MiB\n", self.scenario);
        let heading = format!(
            "{:<46} {:>6} {:>6} {:>6} {:>10} {:>7} {:>8} {:>8} {:>6}\n",
            "clients",
            "acked",
            "missed",
            "failed",
            "longest ms",
            "s",
            "peak MiB",
            "drain s",
            "killed",
        );
        lines.push_str(&heading);
        for row in &self.rows {
            let drained = row.drained_after_seconds;
            let drained = drained.map_or("never".to_owned(), |seconds| format!("{seconds:.0}"));
            let line = format!(
                "{:<46} {:>6} {:>6} {:>6} {:>10.0} {:>7.1} {:>8.1} {drained:>8} {:>6}\n",
                row.clients,
                row.acknowledged,
                row.missed,
                row.failed,
                row.longest_ms,
                row.seconds,
                row.peak_mib,
                row.killed,
            );
            lines.push_str(&line);
            if let Some(note) = &row.note {
                writeln!(lines, "  {note}").unwrap_or_default();
            }
            if let Some(failure) = &row.first_failure {
                // Writing to a text can't fail.
                writeln!(lines, "  failed: {failure}").unwrap_or_default();
            }
        }
        let targets: Vec<_> = self.targets.iter().map(Reached::line).collect();
        lines.push_str(&targets.join("\n"));
        format!("{lines}\n  MAX_RECV_MSG_SIZE={TOO_LARGE}: {}", self.refusal)
    }
}

impl Row {
    fn measure(clients: &'static str, act: Clients, runtime: &Runtime) -> anyhow::Result<Self> {
        let group = MemoryGroup::make()?;
        let mut place = Place::new()?;
        place.doors.push(group.door());
        let is_away = clients == AWAY;
        if is_away {
            place.variables.extend(store_that_is_away()?);
        }
        let quota = (clients == BEHIND_KEYS).then(Quota::make).transpose()?;
        let server = place.start(&Kind::Spanplane, quota.as_ref())?;
        let begun = Instant::now();
        let calls = act(&place, runtime)?;
        let seconds = begun.elapsed().as_secs_f64();
        Self::of(clients, calls, seconds, (server, &group), is_away)
    }

    /// Everything at once.
    fn measure_together(runtime: &Runtime) -> anyhow::Result<Self> {
        let mut place = Place::new()?;
        let prepared = together::prepare(&mut place, runtime)?;
        let group = MemoryGroup::make()?;
        place.doors.push(group.door());
        let server = place.start(&Kind::Spanplane, None)?;
        let begun = Instant::now();
        let (calls, pages) = together::act(&prepared, &place, &server, runtime)?;
        let seconds = begun.elapsed().as_secs_f64();
        let mut row = Self::of(together::NAME, calls, seconds, (server, &group), false)?;
        row.note = Some(pages.told());
        if row.killed == 0 {
            together::check(&place, runtime)?;
        }
        Ok(row)
    }

    /// Waits until what is behind the answers is done, and has the server end.
    fn of(
        clients: &'static str,
        calls: Calls,
        seconds: f64,
        (server, group): (Running<'_>, &MemoryGroup),
        is_away: bool,
    ) -> anyhow::Result<Self> {
        // One that was killed has nothing left to ask.
        let drained = server.drain(is_away).unwrap_or_default();
        let peak_bytes = process::peak_bytes(server.id()).unwrap_or(LIMIT_BYTES);
        let killed = group.kills()?;
        if killed == 0 {
            server.stop()?;
        } else {
            drop(server);
        }
        Ok(Self {
            clients,
            acknowledged: calls.acknowledged,
            missed: calls.missed,
            failed: calls.failed,
            first_failure: calls.first_failure,
            longest_ms: calls.longest.as_secs_f64() * 1000.0,
            seconds,
            peak_mib: peak_bytes as f64 / 1024.0 / 1024.0,
            drained_after_seconds: drained.map(|time| time.as_secs_f64()),
            killed,
            note: None,
        })
    }
}

/// In the sidecar's whole container, with its CPU quota, beside 200 clients that are slow and, if
/// that is wanted, beside large messages and their uploads.
fn probe_p99(runtime: &Runtime, is_loaded: bool) -> anyhow::Result<f64> {
    let (group, quota) = (MemoryGroup::make()?, Quota::make()?);
    let mut place = Place::new()?;
    place.doors.push(group.door());
    let server = place.start(&Kind::Spanplane, Some(&quota))?;
    let address = server.serves_metrics_at()?;
    let mut took = runtime.block_on(async {
        let _others = rough::half_requests(&address, 200).await?;
        let mut load = JoinSet::new();
        if is_loaded {
            let socket = place.socket();
            load.spawn(async move {
                loop {
                    let xrs = rough::xrs_of(4_000_000, 16);
                    // What becomes of these is measured elsewhere.
                    drop(rough::at_once(&socket, xrs, 1).await);
                }
            });
        }
        let mut took = Vec::new();
        for _ in 0..PROBES {
            let probed = rough::probe(&address).await;
            took.push(probed.context("a probe was not answered")?);
        }
        anyhow::Ok(took)
    })?;
    server.stop()?;
    took.sort_unstable();
    Ok(percentile(&took, 99))
}

/// What the program says, in the group, to messages that are too large for it.
fn refusal() -> anyhow::Result<String> {
    let group = MemoryGroup::make()?;
    let mut place = Place::new()?;
    place.doors.push(group.door());
    place
        .variables
        .push(("MAX_RECV_MSG_SIZE", TOO_LARGE.to_owned()));
    let mut command = place.command(&Kind::Spanplane, None)?;
    let output = command.stdin(Stdio::null()).output()?;
    anyhow::ensure!(
        output.status.code() == Some(2),
        "it ended with {}",
        output.status
    );
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = told
        .lines()
        .find(|line| line.contains("--max-recv-msg-size"));
    Ok(line.context("it does not say why")?.trim().to_owned())
}
