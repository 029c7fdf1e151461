//! A run: sidecars, their store and their collector, through all rounds and to the end.
//!
//! Invariant: after a round, every fault has ended and every sidecar runs.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use tokio::time::Instant;

use crate::{
    clock::Clock,
    collector::Collector,
    fence::Fence,
    ledger::Ledger,
    load::{self, World},
    plan::{Fault, Kind, Round, What, Who},
    settings::Settings,
    sidecar::{Place, Sidecar},
    store::{self, Store},
    tally::Tally,
    volume::{Volume, VolumeFault},
};

/// How often the sidecars may be restarted at the end to deliver what is left.
const LAST_STARTS: u32 = 5;
const STARTS: u32 = 3;

pub(crate) struct Run {
    pub(crate) ledger: Arc<Ledger>,
    world: World,
    pub(crate) stage: Stage,
}

/// Where faults happen.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) folder: PathBuf,
    pub(crate) program: PathBuf,
    volume: Option<Volume>,
    clock: Option<Clock>,
    pub(crate) store: Store,
    pub(crate) collector: Collector,
    pub(crate) sidecars: Vec<Sidecar>,
    /// Faults that last.
    active: BTreeSet<Kind>,
    pub(crate) left_out: BTreeSet<String>,
    pub(crate) tally: Tally,
}

/// What a run needs.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) folder: PathBuf,
    pub(crate) kind: store::Kind,
    pub(crate) seed: u64,
    /// Whether this process may mount.
    pub(crate) mounts: Result<(), String>,
    /// The program to test.
    pub(crate) program: PathBuf,
    pub(crate) minio: Option<PathBuf>,
}

impl Run {
    pub(crate) async fn start(setup: &Setup, fence: &Fence) -> anyhow::Result<Self> {
        Ok(Self {
            ledger: Arc::default(),
            world: World::default(),
            stage: Stage::start(setup, fence).await?,
        })
    }

    pub(crate) async fn play(&mut self, round: &Round, seed: u64) -> anyhow::Result<()> {
        self.go_on(round, seed).await?;
        self.stage.settle().await
    }

    /// Begins so many pipelines before any of their functions answers.
    pub(crate) async fn half_open(&mut self, count: usize, seed: u64) -> anyhow::Result<()> {
        self.stage.ensure_running(Who::First).await?;
        let socket = self.stage.sidecar(Who::First)?.place.socket.clone();
        load::half_open(count, seed, socket, &self.ledger).await;
        self.stage.tally.rounds += 1;
        Ok(())
    }

    /// Plays a round whose faults go on.
    pub(crate) async fn go_on(&mut self, round: &Round, seed: u64) -> anyhow::Result<()> {
        self.stage.prepare(round).await?;
        let sockets = self.stage.sockets(round);
        self.world.prepare(round.load);
        let load = self
            .world
            .reconcile(round.load, seed, sockets, &self.ledger);
        let ((), played) = tokio::join!(load, self.stage.play(round));
        played?;
        self.stage.tally.rounds += 1;
        Ok(())
    }
}

impl Stage {
    async fn start(setup: &Setup, fence: &Fence) -> anyhow::Result<Self> {
        let folder = setup.folder.clone();
        let logs = folder.join("logs");
        fs::create_dir_all(&logs)?;
        let mut left_out = BTreeSet::new();
        let mut mount = |name: &str| match &setup.mounts {
            Ok(()) => Ok(Some(Volume::mount(folder.join(name))?)),
            Err(error) => {
                left_out.insert(format!(
                    "full disks, exhausted inodes and read-only stores: no tmpfs can be mounted here ({error})"
                ));
                anyhow::Ok(None)
            }
        };
        let volume = mount("volume")?;
        let data = folder.join("volume");
        fs::create_dir_all(&data)?;
        let store = match setup.kind {
            // By default the store is on the sidecar's volume; here that depends on the seed.
            store::Kind::File if setup.seed.is_multiple_of(2) => {
                Store::in_folder(&data.join("store"), volume.clone())?
            }
            store::Kind::File => {
                let store = mount("store")?;
                Store::in_folder(&folder.join("store"), store)?
            }
            store::Kind::S3 => Store::s3().await?,
            store::Kind::Minio => {
                let program = setup.minio.clone().context("there is no MinIO")?;
                Store::minio(program, &folder, fence).await?
            }
        };
        let clock = Clock::find(folder.join("clock"))?;
        if clock.is_none() {
            left_out.insert("clock steps: libfaketime is not installed".to_owned());
        }
        let collector = Collector::start().await?;
        let mut variables = store.variables().to_vec();
        variables.push(("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()));
        variables.push(("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc".to_owned()));
        let sidecars = ["a", "b"].map(|name| {
            Sidecar::new(Place {
                name,
                program: setup.program.clone(),
                socket: folder.join(format!("{name}.socket")),
                data_dir: data.join(name),
                logs: logs.clone(),
                store: store.url().to_owned(),
                variables: variables.clone(),
                group: fence.group(),
                door: None,
            })
        });
        Ok(Self {
            folder,
            program: setup.program.clone(),
            volume,
            clock,
            store,
            collector,
            sidecars: sidecars.into(),
            active: BTreeSet::new(),
            left_out,
            tally: Tally::default(),
        })
    }

    /// Starts the sidecars that a round needs.
    async fn prepare(&mut self, round: &Round) -> anyhow::Result<()> {
        let mut needed = vec![Who::First];
        if round.load.has_two_sidecars {
            needed.push(Who::Second);
        }
        for who in needed {
            if let Some(clock) = self.clock.clone().filter(|_| round.steps_clock()) {
                let sidecar = self.sidecar(who)?;
                if sidecar.clock.is_empty() {
                    sidecar.clock = clock.variables();
                    sidecar.terminate().await?;
                }
            }
            self.ensure_running(who).await?;
        }
        Ok(())
    }

    fn sockets(&self, round: &Round) -> Vec<PathBuf> {
        let count = if round.load.has_two_sidecars { 2 } else { 1 };
        let sidecars = self.sidecars.iter().take(count);
        sidecars
            .map(|sidecar| sidecar.place.socket.clone())
            .collect()
    }

    async fn play(&mut self, round: &Round) -> anyhow::Result<()> {
        let begun = Instant::now();
        for event in &round.events {
            tokio::time::sleep_until(begun + event.at).await;
            match &event.what {
                What::Begin(fault) => self.begin(fault).await?,
                What::End(kind) => self.end(*kind).await?,
            }
        }
        Ok(())
    }

    async fn begin(&mut self, fault: &Fault) -> anyhow::Result<()> {
        let kind = fault.kind();
        for sidecar in &mut self.sidecars {
            sidecar.suffers(kind);
        }
        match *fault {
            Fault::Kill(who) => {
                self.kill(who).await?;
                self.ensure_running(who).await?;
            }
            Fault::KillTwice(who, after) => {
                self.kill(who).await?;
                let active = self.active.clone();
                self.sidecar(who)?.spawn(active)?;
                tokio::time::sleep(after).await;
                self.kill(who).await?;
                self.ensure_running(who).await?;
            }
            Fault::Terminate(who) => {
                self.terminate(who).await?;
                self.ensure_running(who).await?;
            }
            Fault::Pause(who, lasts) => {
                self.sidecar(who)?.pause(lasts).await?;
                self.tally.pauses += 1;
                self.ensure_running(who).await?;
            }
            Fault::Reconfigure {
                who,
                kill,
                settings,
            } => {
                if kill {
                    self.kill(who).await?;
                } else {
                    self.terminate(who).await?;
                }
                self.sidecar(who)?.settings = settings;
                self.tally.reconfigurations += 1;
                self.ensure_running(who).await?;
            }
            Fault::Store(fault) => {
                let begun = self.store.begin(fault).await;
                self.tally.store_faults += u32::from(begun);
                self.note_left_out(begun, || format!("store {fault:?}"));
                self.active.extend(begun.then_some(kind));
            }
            Fault::Collector(fault) => {
                self.collector.begin(fault);
                self.tally.collector_faults += 1;
                self.active.insert(kind);
            }
            Fault::DiskFull { left } => self.begin_on_volume(VolumeFault::Full { left }).await,
            Fault::InodesExhausted => self.begin_on_volume(VolumeFault::NoInodes).await,
            Fault::Clock(seconds) => {
                if let Some(clock) = &self.clock {
                    clock.set(seconds)?;
                    self.tally.clock_steps += 1;
                    self.active.insert(kind);
                }
            }
        }
        Ok(())
    }

    async fn begin_on_volume(&mut self, fault: VolumeFault) {
        let begun = match &self.volume {
            Some(volume) => volume.begin(fault).await,
            None => false,
        };
        self.tally.disk_faults += u32::from(begun);
        self.note_left_out(begun, || {
            format!("{fault:?} on the data directory's volume")
        });
        self.active.extend(begun.then_some(Kind::Disk));
    }

    /// Reports a fault that could not be injected, unless it is reported already that there are no volumes.
    fn note_left_out(&mut self, begun: bool, fault: impl FnOnce() -> String) {
        if !begun && self.volume.is_some() {
            let left_out = format!("{}: the volume was busy, at least once", fault());
            self.left_out.insert(left_out);
        }
    }

    async fn end(&mut self, kind: Kind) -> anyhow::Result<()> {
        if !self.active.remove(&kind) {
            return Ok(());
        }
        match kind {
            Kind::Store => self.store.end_fault().await?,
            Kind::Collector => self.collector.end_fault(),
            Kind::Disk => self.volume.as_ref().map_or(Ok(()), Volume::end_fault)?,
            Kind::Clock => self.clock.as_ref().map_or(Ok(()), |clock| clock.set(0))?,
            Kind::Process | Kind::Settings => {}
        }
        Ok(())
    }

    /// Ends every fault, and looks after the sidecars.
    async fn settle(&mut self) -> anyhow::Result<()> {
        for kind in self.active.clone() {
            self.end(kind).await?;
        }
        for who in [Who::First, Who::Second] {
            let sidecar = self.sidecar(who)?;
            if sidecar.lives.is_empty() {
                continue;
            }
            sidecar.measure()?;
            sidecar.search_metrics().await?;
            self.ensure_running(who).await?;
        }
        Ok(())
    }

    /// Stops the sidecars once they have delivered everything; returns what they have not.
    pub(crate) async fn finish(&mut self) -> anyhow::Result<Vec<PathBuf>> {
        self.settle().await?;
        let mut undelivered = Vec::new();
        for sidecar in &mut self.sidecars {
            if sidecar.lives.is_empty() {
                continue;
            }
            sidecar.terminate().await?;
            sidecar.settings = Settings::default().patient();
            let mut starts = 0;
            loop {
                self.tally.sent_again += sidecar.send_again().await?;
                if !sidecar.start(BTreeSet::new()).await? {
                    bail!("{} does not start any more", sidecar.place.name);
                }
                sidecar.wait_until_sent_again().await?;
                sidecar.terminate().await?;
                starts += 1;
                let left = sidecar.undelivered()?;
                if left.is_empty() || starts == LAST_STARTS {
                    undelivered.extend(left);
                    break;
                }
            }
        }
        Ok(undelivered)
    }

    async fn kill(&mut self, who: Who) -> anyhow::Result<()> {
        self.tally.kills += 1;
        self.sidecar(who)?.kill().await
    }

    async fn terminate(&mut self, who: Who) -> anyhow::Result<()> {
        self.tally.terminations += 1;
        self.sidecar(who)?.terminate().await
    }

    /// Starts a sidecar that is not running. One that can't start on a full disk may try again
    /// once there is room.
    async fn ensure_running(&mut self, who: Who) -> anyhow::Result<()> {
        for _ in 0..STARTS {
            let active = self.active.clone();
            let sidecar = self.sidecar(who)?;
            if !sidecar.notice_death()? {
                return Ok(());
            }
            if sidecar.start(active).await? {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            for kind in [Kind::Disk, Kind::Store] {
                self.end(kind).await?;
            }
        }
        bail!("{who} does not start; see {}", self.folder.display())
    }

    fn sidecar(&mut self, who: Who) -> anyhow::Result<&mut Sidecar> {
        let place = match who {
            Who::First => 0,
            Who::Second => 1,
        };
        self.sidecars.get_mut(place).context("no such sidecar")
    }

    /// Copies what is on volumes to a folder that stays.
    pub(crate) fn keep_volumes(&self) -> anyhow::Result<()> {
        if self.volume.is_none() {
            return Ok(());
        }
        let kept = self.folder.join("kept");
        fs::create_dir_all(&kept)?;
        for name in ["volume", "store"] {
            let volume = self.folder.join(name);
            if volume.is_dir() {
                copy(&volume, &kept)?;
            }
        }
        Ok(())
    }
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([from, to])
        .status()?;
    anyhow::ensure!(copied.success(), "cannot copy {}", from.display());
    Ok(())
}
