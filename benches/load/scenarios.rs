//! The scenarios, and where the figures should get.

use std::time::Duration;

use crate::{
    drive::{Load, Mode},
    figures::Figures,
    payload::Shape,
    trial::Trial,
};

/// How long a row takes unless it is told.
const CLOSED: Duration = Duration::from_secs(5);
const CLOSED_ROUNDS: usize = 3;
const QUOTA: Duration = Duration::from_mins(1);
const GROW: Duration = Duration::from_mins(1);

/// The same bytes a second however XRs grow, so that what differs is what they cost.
const GROW_MB_PER_SECOND: f64 = 10.0;
/// The bytes of a reconcile in sizes of its requests.
const SIZES_PER_RECONCILE: f64 = 6.1;
/// Of a resource, observed and desired.
const RESOURCE_BYTES: usize = 5 * 1024;

/// What the log of a sidecar with default settings takes while nothing leaves it. More would
/// measure how it refuses.
const ENOUGH_BYTES: u64 = 700_000_000;

const KIB: usize = 1024;
const FOUR_MB: usize = 4_000_000;

/// A load that every server is put through.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) trial: Trial,
    pub(crate) targets: Vec<Target>,
    /// How often each server is put through it, one after the other: what a host or a disk does
    /// meanwhile is not the same in all of them.
    pub(crate) rounds: usize,
    /// Run only if it is asked for by name.
    pub(crate) is_long: bool,
    /// Whether there is nothing in it for other servers than spanplane.
    pub(crate) is_ours_alone: bool,
}

/// Where a figure of spanplane should get.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) what: &'static str,
    pub(crate) at_most: f64,
    pub(crate) measure: fn(&Sides<'_>) -> Option<f64>,
}

/// What one is compared with.
#[derive(Debug)]
pub(crate) struct Sides<'f> {
    pub(crate) spanplane: &'f Figures,
    pub(crate) no_op: Option<&'f Figures>,
    pub(crate) other: Option<&'f Figures>,
}

fn target(what: &'static str, at_most: f64, measure: fn(&Sides<'_>) -> Option<f64>) -> Target {
    Target {
        what,
        at_most,
        measure,
    }
}

fn missed() -> Target {
    target("missed", 0.0, |sides| Some(sides.spanplane.missed as f64))
}

fn p99_of_no_op(at_most: f64) -> Target {
    target("p99 / that of no-op", at_most, |sides| {
        Some(sides.spanplane.p99_ms / sides.no_op?.p99_ms)
    })
}

fn p99_of_other() -> Target {
    target("p99 / that of the other", 0.2, |sides| {
        Some(sides.spanplane.p99_ms / sides.other?.p99_ms)
    })
}

fn puts() -> Target {
    target(
        "PUTs a changed reconcile, without the index",
        1.0,
        |sides| sides.spanplane.objects_per_changed_reconcile,
    )
}

/// All of them, in the order in which they run.
pub(crate) fn all() -> Vec<Scenario> {
    let mut all = closed();
    all.extend(quota());
    all.push(down());
    all.extend(grow());
    all
}

fn closed() -> Vec<Scenario> {
    let scenario = |size: &str, bytes, resources, xrs, callers, targets| Scenario {
        name: format!("closed {size} c={callers}"),
        trial: Trial {
            load: Load {
                xrs,
                shape: Shape {
                    resources,
                    request_bytes: bytes,
                },
                changed: 0.1,
                mode: Mode::Closed(callers),
                time: CLOSED,
                enough_bytes: Some(ENOUGH_BYTES),
            },
            has_quota: false,
            has_collector: true,
            is_store_away: false,
        },
        targets,
        rounds: CLOSED_ROUNDS,
        is_long: false,
        is_ours_alone: false,
    };
    let cpu = || {
        target("CPU s/GB", 4.0, |sides| {
            Some(sides.spanplane.cpu_seconds_per_gb)
        })
    };
    vec![
        scenario("4KiB", 4 * KIB, 1, 200, 1, vec![]),
        scenario("4KiB", 4 * KIB, 1, 200, 16, vec![]),
        scenario(
            "64KiB",
            64 * KIB,
            12,
            100,
            1,
            vec![p99_of_no_op(1.3), p99_of_other(), cpu(), puts()],
        ),
        scenario(
            "64KiB",
            64 * KIB,
            12,
            100,
            16,
            vec![p99_of_no_op(2.0), cpu(), puts()],
        ),
        scenario(
            "1MiB",
            1024 * KIB,
            100,
            32,
            1,
            vec![p99_of_no_op(1.3), p99_of_other()],
        ),
        scenario("1MiB", 1024 * KIB, 100, 32, 16, vec![missed()]),
        scenario("4MB", FOUR_MB, 400, 16, 4, vec![missed()]),
    ]
}

/// 1,000 XRs, each reconciled once a minute, inside the sidecar's limits.
fn quota() -> Vec<Scenario> {
    let scenario = |changed: f64, targets| Scenario {
        name: format!("quota {} %", changed * 100.0),
        trial: Trial {
            load: Load {
                xrs: 1000,
                shape: Shape {
                    resources: 12,
                    request_bytes: 64 * KIB,
                },
                changed,
                mode: Mode::Open(1000.0),
                time: QUOTA,
                enough_bytes: None,
            },
            has_quota: true,
            has_collector: true,
            is_store_away: false,
        },
        targets,
        rounds: 1,
        is_long: false,
        is_ours_alone: false,
    };
    let few = vec![
        missed(),
        target("p99 ms", 10.0, |sides| Some(sides.spanplane.p99_ms)),
        target("cores", 0.06, |sides| Some(sides.spanplane.cores)),
        target("peak MiB", 64.0, |sides| Some(sides.spanplane.peak_mib)),
    ];
    vec![scenario(0.02, few), scenario(1.0, vec![missed()])]
}

fn down() -> Scenario {
    let load = Load {
        xrs: 16,
        shape: Shape {
            resources: 400,
            request_bytes: FOUR_MB,
        },
        changed: 1.0,
        mode: Mode::Closed(16),
        time: CLOSED,
        enough_bytes: None,
    };
    Scenario {
        name: "down".to_owned(),
        trial: Trial {
            load,
            has_quota: false,
            has_collector: true,
            is_store_away: true,
        },
        targets: vec![target("peak MiB", 128.0, |sides| {
            Some(sides.spanplane.peak_mib)
        })],
        rounds: 1,
        is_long: false,
        is_ours_alone: false,
    }
}

/// How the cost grows with the number of XRs, and with that of their resources.
fn grow() -> Vec<Scenario> {
    let scenario = |name: String, xrs, shape: Shape| {
        let bytes_per_reconcile = shape.request_bytes as f64 * SIZES_PER_RECONCILE;
        let per_minute = 60.0 * GROW_MB_PER_SECOND * 1e6 / bytes_per_reconcile;
        Scenario {
            name,
            trial: Trial {
                load: Load {
                    xrs,
                    shape,
                    changed: 0.1,
                    mode: Mode::Open(per_minute),
                    time: GROW,
                    enough_bytes: None,
                },
                has_quota: false,
                has_collector: true,
                is_store_away: false,
            },
            targets: vec![],
            rounds: 1,
            is_long: true,
            is_ours_alone: true,
        }
    };
    let usual = Shape {
        resources: 12,
        request_bytes: 64 * KIB,
    };
    let by_xrs = [100, 1000, 10_000].map(|xrs| scenario(format!("grow {xrs} XRs"), xrs, usual));
    let by_resources = [1, 10, 100, 500].map(|resources| {
        let shape = Shape {
            resources,
            request_bytes: resources * RESOURCE_BYTES,
        };
        scenario(format!("grow {resources} resources"), 100, shape)
    });
    by_xrs.into_iter().chain(by_resources).collect()
}
