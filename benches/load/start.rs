//! How long a server takes from the start of its process to its first connection.

use std::time::Duration;

use serde::Serialize;

use crate::{
    report::Reached,
    server::{Kind, Place},
};

/// Each in a fresh folder.
const STARTS: usize = 10;

/// What is told of starting.
#[derive(Debug, Serialize)]
pub(crate) struct Starts {
    scenario: &'static str,
    figures: Vec<Start>,
    targets: Vec<Reached>,
}

#[derive(Debug, Serialize)]
struct Start {
    server: String,
    median_ms: f64,
    slowest_ms: f64,
}

impl Starts {
    pub(crate) const NAME: &str = "start";

    pub(crate) fn measure(kinds: &[Kind]) -> anyhow::Result<Self> {
        let figures: Vec<_> = kinds
            .iter()
            .map(Start::measure)
            .collect::<anyhow::Result<_>>()?;
        let targets = figures.first().map(|ours| Reached {
            what: "median ms".to_owned(),
            measured: ours.median_ms,
            at_most: 50.0,
        });
        Ok(Self {
            scenario: Self::NAME,
            figures,
            targets: targets.into_iter().collect(),
        })
    }

    pub(crate) fn table(&self) -> String {
        let mut lines = vec![
            format!("\n{}: {STARTS} times in a fresh folder", self.scenario),
            format!("{:<18} {:>10} {:>10}", "", "median ms", "slowest ms"),
        ];
        lines.extend(self.figures.iter().map(|start| {
            let (median, slowest) = (start.median_ms, start.slowest_ms);
            format!("{:<18} {median:>10.1} {slowest:>10.1}", start.server)
        }));
        lines.extend(self.targets.iter().map(Reached::line));
        lines.join("\n")
    }
}

impl Start {
    fn measure(kind: &Kind) -> anyhow::Result<Self> {
        let mut took = Vec::new();
        for _ in 0..STARTS {
            let place = Place::new()?;
            let server = place.start(kind, None)?;
            took.push(server.listening_after);
            server.stop()?;
        }
        took.sort_unstable();
        let millis = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1000.0);
        Ok(Self {
            server: kind.name(),
            median_ms: millis(took.get(STARTS / 2)),
            slowest_ms: millis(took.last()),
        })
    }
}
