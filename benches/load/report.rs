//! What is told of a scenario: figures, ratios and targets, as a table for people and as JSON.

use serde::Serialize;

use crate::{
    figures::Figures,
    scenarios::{Scenario, Sides},
};

/// What is told of a scenario.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    scenario: String,
    load: String,
    figures: Vec<Figures>,
    ratios: Vec<Ratios>,
    targets: Vec<Reached>,
}

/// Figures of spanplane by those of another server.
#[derive(Debug, Serialize)]
struct Ratios {
    server: String,
    by: String,
    p50: f64,
    p99: f64,
    mb_per_second: f64,
    cpu_seconds_per_gb: f64,
    peak: f64,
}

/// Where a figure is, and where it should get.
#[derive(Debug, Serialize)]
pub(crate) struct Reached {
    pub(crate) what: String,
    pub(crate) measured: f64,
    pub(crate) at_most: f64,
}

impl Report {
    /// `figures` are those of spanplane, of the server that does nothing, and of others.
    pub(crate) fn new(scenario: &Scenario, figures: Vec<Figures>) -> Self {
        let load = scenario.trial.load;
        let shape = load.shape;
        let changed = load.changed * 100.0;
        Self {
            scenario: scenario.name.clone(),
            load: format!(
                "{}, {} XRs, {} composed, requests of {} bytes, {changed:.0} % changed, {:.0} s",
                load.mode,
                load.xrs,
                shape.resources,
                shape.request_bytes,
                load.time.as_secs_f64(),
            ),
            ratios: ratios(&figures),
            targets: reached(scenario, &figures),
            figures,
        }
    }

    pub(crate) fn table(&self, shows_threads: bool) -> String {
        let mut lines = vec![format!("\n{}: {}", self.scenario, self.load), heading()];
        lines.extend(self.figures.iter().map(row));
        lines.extend(self.figures.iter().filter_map(refusal));
        lines.extend(self.ratios.iter().map(Ratios::line));
        lines.extend(self.targets.iter().map(Reached::line));
        if shows_threads {
            lines.extend(self.figures.iter().map(threads));
        }
        lines.join("\n")
    }
}

fn heading() -> String {
    format!(
        "{:<18} {:>7} {:>6} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>8} {:>6} {:>6} {:>8} {:>5} {:>7} {:>7} {:>9} {:>6}",
        "",
        "acked",
        "missed",
        "refused",
        "p50 ms",
        "p99 ms",
        "max ms",
        "msg/s",
        "MB/s",
        "CPU s/GB",
        "cores",
        "MiB",
        "PUTs/rec",
        "index",
        "KB/rec",
        "drain s",
        "throttled",
        "stolen"
    )
}

fn row(of: &Figures) -> String {
    let drained = of.drained_after_seconds;
    let drained = drained.map_or("never".to_owned(), |seconds| format!("{seconds:.0}"));
    let periods = of.periods;
    let throttled = periods.map_or("–".to_owned(), |periods| {
        format!("{}/{}", periods.throttled, periods.all)
    });
    format!(
        "{:<18} {:>7} {:>6} {:>7} {:>7.2} {:>7.2} {:>7.1} {:>7.0} {:>7.1} {:>8.2} {:>6.3} {:>6.1} {:>8.3} {:>5} {:>7.1} {drained:>7} {throttled:>9} {:>5.1}%",
        of.server,
        of.acknowledged,
        of.missed,
        of.refused,
        of.p50_ms,
        of.p99_ms,
        of.max_ms,
        of.messages_per_second,
        of.mb_per_second,
        of.cpu_seconds_per_gb,
        of.cores,
        of.peak_mib,
        of.objects_per_reconcile,
        of.index_objects,
        of.stored_bytes_per_reconcile / 1000.0,
        of.stolen * 100.0,
    )
}

fn refusal(of: &Figures) -> Option<String> {
    let refusal = of.first_refusal.as_ref()?;
    Some(format!("  {} refused: {refusal}", of.server))
}

fn threads(of: &Figures) -> String {
    let threads = of.cpu_seconds_by_thread.iter();
    let threads: Vec<_> = threads
        .map(|(name, seconds)| format!("{name} {seconds:.2}"))
        .collect();
    format!("  {} CPU s by thread: {}", of.server, threads.join(", "))
}

fn ratios(figures: &[Figures]) -> Vec<Ratios> {
    let [ours, others @ ..] = figures else {
        return Vec::new();
    };
    let ratios = others.iter().map(|other| Ratios {
        server: ours.server.clone(),
        by: other.server.clone(),
        p50: ours.p50_ms / other.p50_ms,
        p99: ours.p99_ms / other.p99_ms,
        mb_per_second: ours.mb_per_second / other.mb_per_second,
        cpu_seconds_per_gb: ours.cpu_seconds_per_gb / other.cpu_seconds_per_gb,
        peak: ours.peak_mib / other.peak_mib,
    });
    ratios.collect()
}

impl Ratios {
    fn line(&self) -> String {
        format!(
            "  {} / {}: p50 {:.2}, p99 {:.2}, MB/s {:.2}, CPU s/GB {:.2}, peak {:.2}",
            self.server,
            self.by,
            self.p50,
            self.p99,
            self.mb_per_second,
            self.cpu_seconds_per_gb,
            self.peak,
        )
    }
}

fn reached(scenario: &Scenario, figures: &[Figures]) -> Vec<Reached> {
    let [ours, others @ ..] = figures else {
        return Vec::new();
    };
    let sides = Sides {
        spanplane: ours,
        no_op: others.first(),
        other: others.get(1),
    };
    let reached = scenario.targets.iter().filter_map(|target| {
        Some(Reached {
            what: target.what.to_owned(),
            measured: (target.measure)(&sides)?,
            at_most: target.at_most,
        })
    });
    reached.collect()
}

impl Reached {
    pub(crate) fn line(&self) -> String {
        let Self {
            what,
            measured,
            at_most,
        } = self;
        format!("  {what}: {measured:.3}, target ≤ {at_most:.3}")
    }
}
