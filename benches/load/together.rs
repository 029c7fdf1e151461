//! Everything that takes memory at once, in the sidecar's 128 MiB: the largest messages with
//! Secrets, pages over a document of 48 MiB, and a reconcile that a restart split after a request of
//! 32 MiB that is no text, whose parts are joined.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use spanplane::{
    archive::{Archive, Compression, StoreUrl, Variables},
    client::InspectorClient,
};
use tokio::{runtime::Runtime, time::sleep};

use crate::{
    heavy,
    rough::{Calls, PATIENCE},
    server::{Kind, Place, Running},
    viewer_limits::{self, PAGES},
};

pub(crate) const NAME: &str = "32 MiB with Secrets, pages of 48 MiB, a join";

/// The XR whose reconcile is split.
const SPLIT: &str = "split";

/// How long pages are looked at while messages are processed.
const LASTS: Duration = Duration::from_secs(40);

/// What waits for it.
pub(crate) struct Prepared {
    key: String,
    split: heavy::Split,
}

/// What was seen of pages.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    shown: usize,
    /// The page said that there is no memory for it.
    busy: usize,
}

impl Pages {
    pub(crate) fn told(&self) -> String {
        format!("pages: {} shown, {} busy", self.shown, self.busy)
    }
}

/// Has a large document stored, and the first part of a reconcile.
pub(crate) fn prepare(place: &mut Place, runtime: &Runtime) -> anyhow::Result<Prepared> {
    let (key, _) = runtime.block_on(viewer_limits::fill(place))?;
    let split = heavy::Split::new(SPLIT);
    let server = place.start(&Kind::Spanplane, None)?;
    runtime.block_on(async {
        let mut client = InspectorClient::new(place.socket(), PATIENCE);
        split.ask(&mut client).await
    })?;
    server.stop()?;
    let viewer = ("SPANPLANE_VIEWER_ADDRESS", "127.0.0.1:0".to_owned());
    place.variables.push(viewer);
    Ok(Prepared { key, split })
}

/// Does everything at once.
pub(crate) fn act(
    prepared: &Prepared,
    place: &Place,
    server: &Running<'_>,
    runtime: &Runtime,
) -> anyhow::Result<(Calls, Pages)> {
    let origin = format!("http://{}", server.serves_at("viewer")?);
    runtime.block_on(async {
        let mut client = InspectorClient::new(place.socket(), PATIENCE);
        prepared.split.answer(&mut client).await?;
        let mut pages = Pages::default();
        let socket = place.socket();
        let calls = tokio::select! {
            calls = async {
                let calls = heavy::secrets(&socket).await;
                // What takes memory is done behind the answers.
                sleep(LASTS).await;
                calls
            } => Ok(calls),
            // It looks for as long as it can.
            Err(error) = look(&origin, &prepared.key, &mut pages) => Err(error),
        };
        calls.map(|calls| (calls, pages))
    })
}

/// Looks at one page after the other.
async fn look(origin: &str, key: &str, pages: &mut Pages) -> anyhow::Result<()> {
    let client = reqwest::Client::builder().timeout(PATIENCE).build()?;
    let name = key.rsplit('/').next().unwrap_or_default();
    let trace_id = name.split_once('-').map_or("", |(_, rest)| rest);
    let trace_id = trace_id.split('.').next().unwrap_or_default();
    for (_, path) in PAGES.iter().cycle() {
        let path = path.replace("/trace/last", &format!("/trace/{trace_id}"));
        let address = format!("{origin}{}", path.replace("{key}", key));
        let answer = client.get(address).send().await?;
        match answer.status().as_u16() {
            200 | 413 => pages.shown += 1,
            503 => pages.busy += 1,
            status => anyhow::bail!("{path}: {status}"),
        }
        answer.bytes().await?;
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Whether the parts are one object.
pub(crate) fn check(place: &Place, runtime: &Runtime) -> anyhow::Result<()> {
    let url = StoreUrl::folder(&place.store());
    let archive = Archive::open(&url, &Variables::default(), Compression::Zstd)?;
    let keys = runtime.block_on(archive.list())?;
    let split = keys
        .into_iter()
        .filter(|(key, ..)| key.as_str().contains("/split/"));
    let split: Vec<_> = split.collect();
    ensure!(split.len() == 1, "the parts are {} objects", split.len());
    let (key, ..) = split.first().context("no object")?;
    let document = runtime.block_on(archive.fetch(key))?;
    let begin = document.get(..4096).context("it is too short")?;
    ensure!(
        String::from_utf8_lossy(begin).contains("\"revision\":1"),
        "the parts are not joined"
    );
    Ok(())
}
