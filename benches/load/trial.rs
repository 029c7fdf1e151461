//! One server under one load, from an empty folder to its end.
//!
//! Invariant: what the load is compared with, the XRs' last reconciles, was sent to another
//! process of the same server before; neither its time nor its memory counts.

use std::{net::TcpListener, thread, time::Duration};

use anyhow::Context as _;
use tokio::runtime::Runtime;

use crate::{
    drive::{self, Load},
    figures::{Figures, Measured},
    process::{self, MachineTime},
    quota::Quota,
    roles::Collector,
    server::{Kind, Place},
    store::Stored,
};

/// After the start, before anything is measured: what a start costs is over.
const SETTLE: Duration = Duration::from_millis(500);

/// What a server is put through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    pub(crate) load: Load,
    /// In a control group with the sidecar's CPU quota.
    pub(crate) has_quota: bool,
    /// Spans are sent to a collector on this machine.
    pub(crate) has_collector: bool,
    /// spanplane's store does not answer.
    pub(crate) is_store_away: bool,
}

impl Trial {
    pub(crate) fn run(self, kind: &Kind, runtime: &Runtime) -> anyhow::Result<Figures> {
        let mut place = Place::new()?;
        let collector = self.has_collector.then(Collector::start).transpose()?;
        if let Some(collector) = &collector {
            let variables = [
                ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.url.clone()),
                ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc".to_owned()),
            ];
            place.variables.extend(variables);
        }
        if self.is_store_away {
            place.variables.extend(store_that_is_away()?);
        }
        let mut xrs = self.load.xrs();
        if self.load.changed < 1.0 {
            let server = place.start(kind, None)?;
            xrs = runtime.block_on(drive::make_known(&place.socket(), xrs))?;
            server.drain(self.is_store_away)?;
            server.stop()?;
        }
        let stored_before = Stored::count(&place.store())?;

        let quota = self.has_quota.then(Quota::make).transpose()?;
        let periods = || quota.as_ref().map(Quota::periods).transpose();
        let server = place.start(kind, quota.as_ref())?;
        thread::sleep(SETTLE);
        let (cpu_before, periods_before) = (process::cpu(server.id())?, periods()?);
        let begun = MachineTime::now()?;
        let heard = runtime.block_on(self.load.drive(&place.socket(), xrs))?;
        let stolen = MachineTime::now()?.stolen_since(begun);
        let periods_under_load = periods()?;
        let drained_after = server.drain(self.is_store_away)?;
        let peak_bytes = process::peak_bytes(server.id())?;
        let threads = process::threads(server.id())?;
        let cpu = server.stop()?.saturating_sub(cpu_before);
        let periods = periods_under_load.zip(periods_before);
        Ok(Figures::new(Measured {
            server: kind.name(),
            heard,
            stolen,
            cpu,
            peak_bytes,
            threads,
            drained_after,
            stored: Stored::count(&place.store())?.since(stored_before),
            periods: periods.map(|(after, before)| after.since(before)),
        }))
    }
}

/// A bucket at an address where nobody listens.
pub(crate) fn store_that_is_away() -> anyhow::Result<Vec<(&'static str, String)>> {
    let free = TcpListener::bind("127.0.0.1:0").context("no free port")?;
    let address = free.local_addr()?;
    let variables = [
        ("SPANPLANE_STORE", "s3://bucket"),
        ("AWS_ENDPOINT_URL", &format!("http://{address}")),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "eu-central-1"),
        ("AWS_ACCESS_KEY_ID", "nobody"),
        ("AWS_SECRET_ACCESS_KEY", "nothing"),
    ];
    Ok(variables
        .map(|(name, value)| (name, value.to_owned()))
        .into())
}
