//! A long outage: large payloads, 16 at a time, while store and collector are down, until the spool
//! is full; then both return, and everything that was acknowledged has to arrive.
//!
//! The sidecar is in a control group with its memory limit, if one can be made here. Its data is on
//! a disk: a file system in memory would count as the sidecar's.

use std::{path::PathBuf, time::Duration};

use anyhow::{bail, ensure};
use tokio::time::Instant;

use crate::{
    fence::Fence,
    memory::MemoryGroup,
    plan::{CollectorFault, Event, Fault, Load, Round, StoreFault, What},
    problems::Problem,
    run::{Run, Setup},
    settings::Settings,
};

/// What `cargo test` fills: enough for a dozen payloads.
pub(crate) const QUICK_SPOOL_MIB: u32 = 64;
const HALF_OPEN_SPOOL_MIB: u32 = 256;
const PAYLOAD_BYTES: usize = 4_000_000;
const CALLERS: u32 = 16;
/// A spool of 1 GiB is full within a minute; a loaded machine may be slow.
const PATIENCE: Duration = Duration::from_mins(15);
const ROUND: Duration = Duration::from_secs(2);

/// Plays the outage; the sidecar still runs afterwards. Returns the control group that it is in.
pub(crate) async fn play(
    setup: &Setup,
    fence: &Fence,
    spool_mib: u32,
) -> anyhow::Result<(Run, Option<MemoryGroup>)> {
    let (mut run, group) = start(setup, fence, spool_mib).await?;
    let begun = Instant::now();
    for number in 1.. {
        let mut round = round_of(number);
        if number == 1 {
            round.events = away();
        }
        // NOTE: what is away comes back only at the end of the run.
        let seed = setup.seed.wrapping_mul(1 << 32) + u64::from(number) * 1000;
        run.go_on(&round, seed).await?;
        let failed = run.ledger.answers().failed;
        if failed.keys().any(|reason| reason.contains("spool is full")) {
            break;
        }
        if begun.elapsed() > PATIENCE {
            bail!("the spool is not full after {PATIENCE:?}: {failed:?}");
        }
    }
    Ok((run, group))
}

/// Begins so many pipelines before any of their functions answers.
pub(crate) async fn half_open(
    setup: &Setup,
    fence: &Fence,
    pipelines: usize,
) -> anyhow::Result<(Run, Option<MemoryGroup>)> {
    let (mut run, group) = start(setup, fence, HALF_OPEN_SPOOL_MIB).await?;
    run.half_open(pipelines, setup.seed).await?;
    let answers = run.ledger.answers();
    let failed: u64 = answers.failed.values().sum();
    ensure!(
        answers.acknowledged + failed == 2 * pipelines as u64 && failed * 10 < answers.acknowledged,
        "of {pipelines} pipelines {} messages were acknowledged: {:?}",
        answers.acknowledged,
        answers.failed
    );
    Ok((run, group))
}

/// Prepares a run in which the sidecar has its memory limit.
async fn start(
    setup: &Setup,
    fence: &Fence,
    spool_mib: u32,
) -> anyhow::Result<(Run, Option<MemoryGroup>)> {
    let setup = Setup {
        mounts: Err("data in memory would count as the sidecar's".to_owned()),
        ..setup.clone()
    };
    let mut run = Run::start(&setup, fence).await?;
    run.stage.left_out.clear();
    let group = match MemoryGroup::make() {
        Ok(group) => Some(group),
        Err(error) => {
            let left_out = format!("the memory limit of the outage: {error:#}");
            run.stage.left_out.insert(left_out);
            None
        }
    };
    let door: Option<PathBuf> = group.as_ref().map(MemoryGroup::door);
    for sidecar in &mut run.stage.sidecars {
        sidecar.place.door.clone_from(&door);
        sidecar.settings = Settings::default().with_spool(spool_mib);
    }
    Ok((run, group))
}

/// What the control group says about it, once the sidecar has ended.
pub(crate) fn complaint_of(group: &MemoryGroup) -> anyhow::Result<Option<(Problem, String)>> {
    let kills = group.kills()?;
    let complaint = || {
        (
            Problem::Exit,
            format!("killed {kills} times for its memory"),
        )
    };
    Ok((kills > 0).then(complaint))
}

fn round_of(number: u32) -> Round {
    Round {
        number,
        load: Load {
            lasts: ROUND,
            callers: CALLERS,
            xrs: CALLERS as usize,
            bytes: PAYLOAD_BYTES,
            steps: 1,
            changed: 1.0,
            interrupted: 0.0,
            has_two_sidecars: false,
            is_paced: false,
        },
        events: Vec::new(),
    }
}

fn away() -> Vec<Event> {
    let faults = [
        Fault::Store(StoreFault::Down),
        Fault::Collector(CollectorFault::Down),
    ];
    let begin = |fault| Event {
        at: Duration::ZERO,
        what: What::Begin(fault),
    };
    faults.map(begin).into()
}
