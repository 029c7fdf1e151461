//! What spanplane stores of what a real Crossplane sent: the capture `network`.

use serde::Serialize;
use spanplane::{
    capture::{Replay, read_capture, step_of},
    client::InspectorClient,
    record::Record,
    time::{Clock as _, SystemClock},
};
use tokio::runtime::Runtime;

use crate::{
    drive::PATIENCE,
    report::Reached,
    server::{Kind, Place},
    store,
};

const CAPTURE: &[u8] = include_bytes!("../../tests/fixtures/captures/network.jsonl.zst");

/// What is told of storing.
#[derive(Debug, Serialize)]
pub(crate) struct Stored {
    scenario: &'static str,
    messages: usize,
    payload_bytes: usize,
    #[serde(flatten)]
    kept: store::Stored,
    targets: Vec<Reached>,
}

impl Stored {
    pub(crate) const NAME: &str = "stored";

    pub(crate) fn measure(runtime: &Runtime) -> anyhow::Result<Self> {
        let records = read_capture(CAPTURE)?;
        let payloads = records.iter().map(|record| step_of(record).payload.len());
        let payload_bytes: usize = payloads.sum();
        let place = Place::new()?;
        let server = place.start(&Kind::Spanplane, None)?;
        runtime.block_on(send(&place, &records))?;
        server.drain(false)?;
        server.stop()?;
        let stored = store::Stored::count(&place.store())?;
        let ratio = |what: &str, bytes: u64| Reached {
            what: format!("{what} / payload bytes"),
            measured: bytes as f64 / payload_bytes as f64,
            at_most: 1.0 / 30.0,
        };
        Ok(Self {
            scenario: Self::NAME,
            messages: records.len(),
            payload_bytes,
            targets: vec![
                ratio("bytes of objects", stored.object_bytes),
                ratio(
                    "bytes of objects and index",
                    stored.object_bytes + stored.index_bytes,
                ),
            ],
            kept: stored,
        })
    }

    pub(crate) fn table(&self) -> String {
        let Self { kept, .. } = self;
        let mut lines = vec![
            format!(
                "\n{}: the capture `network`, {} messages with {} bytes of payloads",
                self.scenario, self.messages, self.payload_bytes,
            ),
            format!("{:<18} {:>8} {:>10}", "", "objects", "bytes"),
            format!(
                "{:<18} {:>8} {:>10}",
                "reconciles", kept.objects, kept.object_bytes
            ),
            format!(
                "{:<18} {:>8} {:>10}",
                "index", kept.index_objects, kept.index_bytes
            ),
        ];
        lines.extend(self.targets.iter().map(Reached::line));
        lines.join("\n")
    }
}

/// As what happens now, without the pauses.
async fn send(place: &Place, records: &[Record]) -> anyhow::Result<()> {
    let mut client = InspectorClient::new(place.socket(), PATIENCE);
    let mut replay = Replay::new("load".to_owned());
    for record in records {
        let (_, message) = replay.next(record, SystemClock.now());
        client.emit(record.kind, message).await?;
    }
    Ok(())
}
