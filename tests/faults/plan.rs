//! What happens in a round: the load, and the faults with their times.
//!
//! Invariant: a plan follows from the seed and the number of the round alone, so that a failing
//! round can be planned again on any machine. Whether a fault can be injected there is decided
//! when its turn comes.

use std::{collections::BTreeSet, fmt, time::Duration};

use fastrand::Rng;

use crate::{
    dice::{millis, pick},
    settings::Settings,
    wording::seconds,
};

const SIZES: [usize; 8] = [
    1 << 10,
    4 << 10,
    16 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4_000_000,
];

/// Requests of all XRs of a round together: they are made beforehand.
const PREPARED_BYTES: usize = 4 << 20;

/// One round.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) number: u32,
    pub(crate) load: Load,
    /// In the order of their times.
    pub(crate) events: Vec<Event>,
}

/// What is sent while the faults happen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) lasts: Duration,
    /// Pipelines that run at the same time.
    pub(crate) callers: u32,
    pub(crate) xrs: usize,
    /// Size of a request, about.
    pub(crate) bytes: usize,
    pub(crate) steps: usize,
    /// Share of the reconciles that differ from the XR's previous one.
    pub(crate) changed: f64,
    /// Share of the reconciles with a pause between two steps that is long enough for the first
    /// part to be published by itself.
    pub(crate) interrupted: f64,
    /// Pipelines use two sidecars that share a prefix; some are split between them.
    pub(crate) has_two_sidecars: bool,
    /// Callers pause, so that the checks don't take too long.
    pub(crate) is_paced: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) at: Duration,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Begin(Fault),
    End(Kind),
}

#[derive(Clone, Debug)]
pub(crate) enum Fault {
    Kill(Who),
    /// Killed, started, and killed again after this time.
    KillTwice(Who, Duration),
    Terminate(Who),
    /// SIGSTOP, and SIGCONT after this time.
    Pause(Who, Duration),
    /// Killed or terminated, and started with other settings.
    Reconfigure {
        who: Who,
        kill: bool,
        settings: Settings,
    },
    Store(StoreFault),
    Collector(CollectorFault),
    /// So many bytes are left on the volume.
    DiskFull {
        left: u64,
    },
    InodesExhausted,
    /// The wall clock is off by this many seconds.
    Clock(i64),
}

/// Which of the sidecars.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Who {
    First,
    Second,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum StoreFault {
    Down,
    /// Every piece of at most 16 KiB takes this long.
    Slow(Duration),
    /// Answers everything with this status.
    Refusing(u16),
    /// Cuts every connection after so many bytes.
    Cutting(u64),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CollectorFault {
    Down,
    Slow(Duration),
    Refusing(tonic::Code),
    Cutting(u64),
}

/// Faults that may explain the same symptoms.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Kind {
    Process,
    Settings,
    Store,
    Collector,
    Disk,
    Clock,
}

impl Fault {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Kill(_) | Self::KillTwice(..) | Self::Terminate(_) | Self::Pause(..) => {
                Kind::Process
            }
            Self::Reconfigure { .. } => Kind::Settings,
            Self::Store(_) => Kind::Store,
            Self::Collector(_) => Kind::Collector,
            Self::DiskFull { .. } | Self::InodesExhausted => Kind::Disk,
            Self::Clock(_) => Kind::Clock,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Kill(_) | Self::KillTwice(..) => "kill -9",
            Self::Terminate(_) => "SIGTERM",
            Self::Pause(..) => "SIGSTOP",
            Self::Reconfigure { .. } => "other settings",
            Self::Store(_) => "store",
            Self::Collector(_) => "collector",
            Self::DiskFull { .. } => "disk full",
            Self::InodesExhausted => "inodes exhausted",
            Self::Clock(_) => "clock",
        }
    }

    fn draw(rng: &mut Rng, who: Who) -> Self {
        match rng.u32(..100) {
            0..34 => Self::Kill(who),
            34..42 => Self::KillTwice(who, millis(rng, 0, 300)),
            42..53 => Self::Terminate(who),
            53..60 => Self::Pause(who, millis(rng, 50, 1200)),
            60..68 => Self::Reconfigure {
                who,
                kill: rng.bool(),
                settings: Settings::draw(rng),
            },
            68..79 => Self::Store(StoreFault::draw(rng)),
            79..87 => Self::Collector(CollectorFault::draw(rng)),
            87..92 => Self::DiskFull {
                left: rng.u64(..64 << 10),
            },
            92..95 => Self::InodesExhausted,
            _ => Self::Clock(draw_clock_step(rng)),
        }
    }
}

impl StoreFault {
    fn draw(rng: &mut Rng) -> Self {
        match rng.u32(..6) {
            0 | 1 => Self::Down,
            2 => Self::Slow(millis(rng, 20, 300)),
            3 | 4 => Self::Refusing(pick(rng, [503, 403, 500])),
            _ => Self::Cutting(rng.u64(1..32 << 10)),
        }
    }
}

impl CollectorFault {
    fn draw(rng: &mut Rng) -> Self {
        let codes = [
            tonic::Code::Unavailable,
            tonic::Code::Internal,
            tonic::Code::ResourceExhausted,
            tonic::Code::PermissionDenied,
        ];
        match rng.u32(..5) {
            0 | 1 => Self::Down,
            2 => Self::Slow(millis(rng, 20, 300)),
            3 => Self::Refusing(pick(rng, codes)),
            _ => Self::Cutting(rng.u64(1..16 << 10)),
        }
    }
}

/// Seconds to days, forwards and backwards.
fn draw_clock_step(rng: &mut Rng) -> i64 {
    let sizes = [5, 60, 600, 3600, 86_400, 30 * 86_400];
    let size = pick(rng, sizes);
    if rng.bool() { size } else { -size }
}

impl Round {
    pub(crate) fn plan(seed: u64, number: u32) -> Self {
        let mixed = seed
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(u64::from(number));
        let mut rng = Rng::with_seed(mixed);
        let load = Load::draw(&mut rng);
        let mut events = Vec::new();
        for _ in 0..rng.u32(1..5) {
            let at = load.lasts.mul_f64(rng.f64() * 0.95);
            let who = if load.has_two_sidecars && rng.bool() {
                Who::Second
            } else {
                Who::First
            };
            let fault = Fault::draw(&mut rng, who);
            let end = at + millis(&mut rng, 200, 2500);
            let kind = fault.kind();
            if !matches!(kind, Kind::Process | Kind::Settings) {
                let what = What::End(kind);
                events.push(Event { at: end, what });
            }
            let what = What::Begin(fault);
            events.push(Event { at, what });
        }
        events.sort_by_key(|event| event.at);
        Self {
            number,
            load,
            events,
        }
    }

    /// Whether a sidecar's clock has to be one that can be set.
    pub(crate) fn steps_clock(&self) -> bool {
        self.events
            .iter()
            .any(|event| matches!(event.what, What::Begin(Fault::Clock(_))))
    }
}

/// Names of faults that none of these rounds has.
pub(crate) fn faults_missing_in(rounds: &[Round]) -> BTreeSet<&'static str> {
    let mut missing = BTreeSet::from([
        "kill -9",
        "SIGTERM",
        "SIGSTOP",
        "other settings",
        "store",
        "collector",
        "disk full",
        "inodes exhausted",
        "clock",
    ]);
    for event in rounds.iter().flat_map(|round| &round.events) {
        if let What::Begin(fault) = &event.what {
            missing.remove(fault.name());
        }
    }
    missing
}

impl Load {
    fn draw(rng: &mut Rng) -> Self {
        let bytes = pick(rng, SIZES);
        Self {
            lasts: millis(rng, 1800, 4000),
            callers: rng.u32(1..17),
            xrs: pick(rng, [3, 8, 20, 40]).min(2 + PREPARED_BYTES / bytes),
            bytes,
            steps: rng.usize(1..6),
            changed: rng.f64().mul_add(0.8, 0.2),
            interrupted: if rng.u32(..3) == 0 { 0.05 } else { 0.0 },
            has_two_sidecars: rng.u32(..4) == 0,
            is_paced: true,
        }
    }
}

impl fmt::Display for Round {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Load {
            lasts,
            callers,
            xrs,
            bytes,
            steps,
            changed,
            interrupted,
            has_two_sidecars,
            is_paced: _,
        } = self.load;
        write!(
            out,
            "round {}: {} s, {callers} pipelines at once, {xrs} XRs, {steps} steps, {bytes} B, {:.0} % changed",
            self.number,
            seconds(lasts),
            changed * 100.0
        )?;
        if interrupted > 0.0 {
            out.write_str(", some interrupted")?;
        }
        if has_two_sidecars {
            out.write_str(", two sidecars")?;
        }
        for Event { at, what } in &self.events {
            write!(out, "\n  {:>4} s  ", seconds(*at))?;
            match what {
                What::Begin(fault) => write!(out, "{fault}")?,
                What::End(kind) => write!(out, "{kind:?} works again")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(who) => write!(out, "kill -9 {who}"),
            Self::KillTwice(who, after) => {
                write!(
                    out,
                    "kill -9 {who}, and again {} s after its start",
                    seconds(*after)
                )
            }
            Self::Terminate(who) => write!(out, "SIGTERM {who}"),
            Self::Pause(who, lasts) => write!(out, "SIGSTOP {who} for {} s", seconds(*lasts)),
            Self::Reconfigure {
                who,
                kill,
                settings,
            } => {
                let how = if *kill { "kill -9" } else { "SIGTERM" };
                write!(out, "{how} {who}, then {settings}")
            }
            Self::Store(fault) => write!(out, "store {fault:?}"),
            Self::Collector(fault) => write!(out, "collector {fault:?}"),
            Self::DiskFull { left } => write!(out, "disk full but for {left} B"),
            Self::InodesExhausted => out.write_str("inodes exhausted"),
            Self::Clock(by) => write!(out, "clock off by {by} s"),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::First => "a",
            Self::Second => "b",
        })
    }
}
