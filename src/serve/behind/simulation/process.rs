//! One process: the real stages, on a simulated disk and store, taking turns as the test says.

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
    time::Duration,
};

use futures_util::FutureExt as _;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::world::{Acknowledged, MOST_BEHIND, SPOOL_BYTES, World};
use crate::{
    archive::{Archive, Compression, IndexJournal, InstanceName, Joins, Listener, Uploads},
    assemble::{Assembler, Limits},
    backoff::Backoff,
    bell::Bell,
    disk::{Reserve, SharedDisk, simulated::Fault},
    export::Sampler,
    history::{Basis, History},
    ids::{OtelSpanId, OtelTraceId},
    metrics::Metrics,
    outbox::{BatchId, Parcels, Quarantine, TraceBatches},
    publish::join_documents,
    receive::MessageMemory,
    record::Record,
    redact::Redactor,
    serve::behind::{Behind, Desk, Ending, PoisonGuard, Tracing, Turn},
    spans::Links,
    spool::{Appender, Spool, SpoolSettings},
    time::Clock as _,
};

const MEMORY_BYTES: usize = 1024 * 1024;
/// Some hundred objects: in an outage the outbox fills up.
const OUTBOX_BYTES: u64 = 512 * 1024;
/// More spans than there are: what the collector misses because there is no room is not wrong.
const TRACES_BYTES: u64 = 16 * 1024 * 1024;
/// More than it takes to finish anything.
const MANY_TURNS: usize = 5_000;

/// As long as a part waits for the object that its beginning is equal to.
const A_DAY_MILLIS: u64 = 24 * 60 * 60 * 1000;

const MOMENT: Duration = Duration::from_millis(1);

pub(super) struct Process {
    runtime: Runtime,
    spool: Spool,
    appender: Appender,
    batches: Arc<TraceBatches>,
    pub(super) desk: Desk,
}

impl Process {
    /// `None` if it dies on the way.
    pub(super) fn start(world: &World) -> Option<Self> {
        let started = Self::try_start(world);
        assert!(
            started.is_some() || world.disk.is_crashed(),
            "the process did not start: {:?}",
            world.disk.file_names()
        );
        started
    }

    fn try_start(world: &World) -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let inside = runtime.enter();
        let disk: SharedDisk = Arc::new(world.disk.clone());
        let metrics = Metrics::new().unwrap();
        let bell = Arc::new(Bell::default());
        let data_dir = PathBuf::from("data");
        let outbox = data_dir.join("outbox");
        let settings = SpoolSettings {
            data_dir: data_dir.clone(),
            max_bytes: world.spool_bytes,
            sync: Duration::from_secs(1),
            syncs_itself: false,
        };
        let (spool, follower) =
            Spool::open(&settings, Arc::clone(&disk), &metrics, Arc::clone(&bell)).ok()?;
        let follower = follower.with_clock(Arc::clone(&world.clock) as _);
        let (heard, events) = mpsc::channel();
        let archive = Archive::over(Arc::clone(&world.store) as _, Compression::Zstd);
        let memory = MessageMemory::new(MEMORY_BYTES, usize::MAX);
        let poison = PoisonGuard::open(Arc::clone(&disk), data_dir.join("spool/in-progress"));
        let joins = Joins {
            joiner: join_documents,
            memory: Arc::new(memory.clone()),
            watch: Arc::new(poison.in_progress()),
        };
        let uploads = Uploads::new(
            Arc::clone(&disk),
            archive,
            joins,
            metrics.clone(),
            Arc::clone(&world.clock) as _,
            CancellationToken::new(),
            Listener {
                events: heard,
                bell: Arc::clone(&bell),
            },
        );
        let batches = TraceBatches::open(Arc::clone(&disk), outbox.join("traces"), TRACES_BYTES);
        let batches = Arc::new(batches.ok()?);
        let started_at = world.clock.now();
        let instance = InstanceName::new("simulated", started_at);
        let quarantine =
            Quarantine::open(Arc::clone(&disk), data_dir.join("quarantine"), SPOOL_BYTES);
        let objects = Parcels::open(Arc::clone(&disk), outbox.join("objects"));
        let index = IndexJournal::open(Arc::clone(&disk), outbox.join("index"), instance);
        let redactor = Redactor::new::<&str>(&[], &[]).unwrap();
        let basis = Basis {
            store: "store".to_owned(),
            redaction: redactor.rules(),
        };
        let history = History::on_disk(&disk, &data_dir.join("history.jsonl"), basis);
        let pipeline = Desk::new(Behind {
            follower,
            appender: spool.appender(),
            memory,
            poison,
            assembler: Assembler::new(Limits::default()),
            history: history.unwrap_or_else(|_| History::in_process()),
            parcels: objects.ok()?,
            index: index.ok()?,
            reserve: Reserve::new(Arc::clone(&disk), outbox.join("reserve")),
            backoff: Backoff::default(),
            quarantine: Arc::new(quarantine.ok()?),
            outbox_max_bytes: OUTBOX_BYTES,
            gauge: spool.gauge(),
            tracing: Some(Tracing {
                batches: Arc::clone(&batches),
                is_sending: true,
                links: Links::new("http://viewer", "memory:///"),
                resource: opentelemetry_proto::tonic::resource::v1::Resource::default(),
                sampler: Sampler::Ratio(1.0),
            }),
            uploads,
            events,
            pruner: None,
            redactor,
            print: None,
            metrics,
            clock: Arc::clone(&world.clock) as _,
            bell,
            ending: Arc::new(Ending::default()),
        });
        drop(inside);
        Some(Self {
            appender: spool.appender(),
            runtime,
            spool,
            batches,
            desk: pipeline,
        })
    }

    /// A message that nobody keeps account of.
    pub(super) fn append(&self, record: Record) {
        let appended = self.appender.append(record).now_or_never();
        appended.unwrap().unwrap();
    }

    /// Something happens.
    pub(super) fn live_a_little(&mut self, world: &mut World) {
        match world.random.u8(..100) {
            0..45 => {
                for _ in 0..world.random.usize(1..6) {
                    self.send(world);
                }
            }
            45..75 => self.turn(world),
            75..85 => self.pass(world, 50),
            85..90 => self.pass(world, 2_500),
            90..92 => self.pass(world, 70_000),
            92..94 => self.sync(world),
            94..97 => self.deliver_spans(world),
            97 => change_surroundings(world),
            98 => {
                let used = SPOOL_BYTES + world.random.u64(..SPOOL_BYTES);
                world.disk.set_capacity(Some(used));
            }
            _ => world.disk.set_capacity(None),
        }
    }

    /// SIGTERM: nothing more is taken, and what is there is finished, if there is time.
    pub(super) fn stop(&mut self, world: &mut World) {
        world.count("stop");
        let turns = world.random.usize(..200);
        for _ in 0..turns {
            if world.disk.is_crashed() || self.desk.take_turn(true) == Turn::Finished {
                return;
            }
            self.pass(world, 20);
        }
    }

    /// Everything that is there gets where it belongs.
    pub(super) fn finish(&mut self, world: &mut World) {
        // Reconciles go quiet, and responses that never come are waited for.
        for millis in [100, 3_000, 3_000, 3_000, 150_000, 3_000, 3_000] {
            self.pass(world, millis);
            self.work(world);
        }
        let mut is_finished = self.drain(world);
        if !is_finished && world.has_lost_power() {
            // A part may wait for what its beginning is equal to, and a power failure took.
            self.pass(world, A_DAY_MILLIS);
            is_finished = self.drain(world);
        }
        let files = world.disk.file_names();
        assert!(is_finished, "the work does not end: {files:?}");
    }

    /// Works until nothing is left; tells whether it got there.
    fn drain(&mut self, world: &mut World) -> bool {
        for _ in 0..MANY_TURNS {
            if self.desk.take_turn(true) == Turn::Finished {
                return true;
            }
            self.pass(world, 20);
            self.deliver_spans(world);
        }
        false
    }

    /// Works for as long as there is something to do.
    pub(super) fn work(&mut self, world: &mut World) {
        for _ in 0..MANY_TURNS {
            if self.desk.take_turn(false) != Turn::Worked {
                break;
            }
            self.pass(world, 1);
        }
        self.deliver_spans(world);
    }

    pub(super) fn send(&mut self, world: &mut World) {
        let sent = world.load.next(world.clock.now());
        world.advance(Duration::from_millis(1));
        // It waits for nothing but the disk.
        let appended = self.appender.append(sent.record.clone()).now_or_never();
        if let Some(Ok(())) = appended {
            world.acknowledge(Acknowledged::new(&sent));
        } else if !world.disk.is_crashed() {
            world.count("not acknowledged");
        }
    }

    pub(super) fn sync(&self, world: &mut World) {
        if self.spool.sync().is_ok() {
            world.unsynced.clear();
        }
    }

    fn turn(&mut self, world: &mut World) {
        for _ in 0..world.random.usize(1..30) {
            self.desk.take_turn(false);
        }
    }

    /// Time passes, in which uploads get on.
    pub(super) fn pass(&self, world: &World, millis: u64) {
        let time = Duration::from_millis(millis);
        self.runtime.block_on(async {
            tokio::time::sleep(time).await;
            // What woke up at the same moment gets to where it waits again.
            tokio::time::sleep(MOMENT).await;
        });
        world.advance(time);
    }

    /// The collector takes what waits for it.
    fn deliver_spans(&self, world: &mut World) {
        while !world.is_collector_away
            && let Some(batch) = self.batches.first_from(BatchId::default())
        {
            let Ok(Some(encoded)) = self.batches.read(&batch) else {
                return;
            };
            let request = ExportTraceServiceRequest::decode(encoded.body).unwrap();
            let resources = request.resource_spans.iter();
            let scopes = resources.flat_map(|resource| &resource.scope_spans);
            for span in scopes.flat_map(|scope| &scope.spans) {
                let trace_id = OtelTraceId(span.trace_id.as_slice().try_into().unwrap());
                let span_id = OtelSpanId(span.span_id.as_slice().try_into().unwrap());
                world
                    .spans
                    .insert((trace_id.to_string(), span_id.to_string()));
            }
            // Or its answer is lost, and they are sent again.
            if world.random.u8(..) < 16 {
                return;
            }
            self.batches.remove(&batch);
        }
    }
}

/// The store, the collector, the clock or the disk begins to behave differently.
fn change_surroundings(world: &mut World) {
    match world.random.u8(..6) {
        0 | 1 => {
            let failing = *world.random.choice(&[0, 40, 160, 255]).unwrap();
            world.store.set_failing(failing);
        }
        2 => {
            let refusing = *world.random.choice(&[0, 100]).unwrap();
            world.store.set_refusing(refusing);
        }
        3 => world.is_collector_away = world.random.bool(),
        4 => {
            world.count("clock set");
            let seconds = world.random.u64(..2 * MOST_BEHIND);
            world.clock.set(seconds);
        }
        _ => {
            let reads = *world.random.choice(&[0, 4, 20]).unwrap();
            world.disk.set_failing_reads(reads);
            let faults = [Fault::Sync, Fault::Rename, Fault::Truncate];
            let faults = &faults[..world.random.usize(..=3)];
            world.disk.fail_next(faults);
        }
    }
}
