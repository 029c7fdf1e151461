//! The viewer inside the sidecar, over a reconcile that is far larger than its memory: 5 steps with
//! 10,000 resources each. In a control group of 128 MiB, where too much memory ends the process.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use spanplane::{
    archive::{Archive, Compression, StoreUrl, Variables},
    client::InspectorClient,
    record::RecordKind,
};
use tokio::{runtime::Runtime, time::sleep};

use crate::{
    memory::{LIMIT_BYTES, MemoryGroup},
    payload::{STEPS, Shape},
    process,
    report::Reached,
    rough,
    server::{Kind, Place},
    xr::Xr,
};

/// A document of more than 48 MiB comes of it.
const SHAPE: Shape = Shape {
    resources: 10_000,
    request_bytes: 8_000_000,
};
const PATIENCE: Duration = Duration::from_mins(2);
/// How long messages come beside everything at once.
const LASTS: Duration = Duration::from_secs(10);
const USUAL: usize = 64 * 1024;
const ALL: &str = "all, beside downloads and messages";

/// Pages, and where they are; `{key}` stands for the object's key.
pub(crate) const PAGES: [(&str, &str); 7] = [
    ("its reconcile", "/trace/last"),
    ("a resource", "/trace/last/resource?name=instance-42"),
    ("a step", "/trace/last/step/4"),
    (
        "a resource in a step",
        "/trace/last/step/4/change?resource=instance-42",
    ),
    ("a payload", "/open?key={key}&pointer=/steps/4/request"),
    ("a payload, raw", "/raw?key={key}&pointer=/steps/4/request"),
    ("the document, raw", "/raw?key={key}&pointer="),
];

/// What is told of it.
#[derive(Debug, Serialize)]
pub(crate) struct ViewerLimits {
    scenario: &'static str,
    limit_bytes: u64,
    document_bytes: usize,
    rows: Vec<Row>,
    targets: Vec<Reached>,
}

#[derive(Debug, Serialize)]
struct Row {
    page: &'static str,
    seen: Seen,
    seconds: f64,
    peak_mib: f64,
    killed: u64,
}

/// Somebody who looks at pages.
struct Reader {
    client: reqwest::Client,
    origin: String,
    key: String,
    /// The document, as it is stored.
    document: Vec<u8>,
}

/// What came.
#[derive(Debug, Default, Serialize)]
struct Seen {
    /// Pages that are not what they should be, and messages that were not acknowledged in time.
    failed: usize,
    bytes: usize,
    first_failure: Option<String>,
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.failed += other.failed;
        self.bytes += other.bytes;
        self.first_failure = self.first_failure.take().or(other.first_failure);
    }
}

impl ViewerLimits {
    pub(crate) const NAME: &str = "limits viewer";

    pub(crate) fn measure(runtime: &Runtime) -> anyhow::Result<Self> {
        let mut place = Place::new()?;
        let (key, document) = runtime.block_on(fill(&place))?;
        let viewer = ("SPANPLANE_VIEWER_ADDRESS", "127.0.0.1:0".to_owned());
        place.variables.push(viewer);
        let mut reader = Reader {
            client: reqwest::Client::builder().timeout(PATIENCE).build()?,
            origin: String::new(),
            key,
            document,
        };
        let mut rows = Vec::new();
        for (page, _) in PAGES {
            rows.push(Row::measure(page, &mut place, &mut reader, runtime)?);
        }
        rows.push(Row::measure(ALL, &mut place, &mut reader, runtime)?);
        let most = |of: fn(&Row) -> f64| rows.iter().map(of).fold(0.0, f64::max);
        let target = |what: &str, measured, at_most| Reached {
            what: what.to_owned(),
            measured,
            at_most,
        };
        let targets = vec![
            target("peak MiB", most(|row| row.peak_mib), 128.0),
            target("killed", most(|row| row.killed as f64), 0.0),
            target("failed", most(|row| row.seen.failed as f64), 0.0),
        ];
        Ok(Self {
            scenario: Self::NAME,
            limit_bytes: LIMIT_BYTES,
            document_bytes: reader.document.len(),
            rows,
            targets,
        })
    }

    /// How often the server was killed for its memory.
    pub(crate) fn kills(&self) -> u64 {
        self.rows.iter().map(|row| row.killed).sum()
    }

    pub(crate) fn table(&self) -> String {
        let (limit, document) = (self.limit_bytes >> 20, self.document_bytes >> 20);
        let mut lines = vec![
            format!(
                "\n{}: a document of {document} MiB, in a control group of {limit} MiB",
                self.scenario
            ),
            format!(
                "{:<38} {:>6} {:>12} {:>7} {:>8} {:>6}",
                "page", "failed", "bytes", "s", "peak MiB", "killed"
            ),
        ];
        for row in &self.rows {
            let (page, seen, seconds) = (row.page, &row.seen, row.seconds);
            lines.push(format!(
                "{page:<38} {:>6} {:>12} {seconds:>7.1} {:>8.1} {:>6}",
                seen.failed, seen.bytes, row.peak_mib, row.killed
            ));
            let failure = seen.first_failure.as_ref();
            lines.extend(failure.map(|failure| format!("  failed: {failure}")));
        }
        lines.extend(self.targets.iter().map(Reached::line));
        lines.join("\n")
    }
}

impl Row {
    /// One page, or all of them if none has this name, of a process of its own.
    fn measure(
        page: &'static str,
        place: &mut Place,
        reader: &mut Reader,
        runtime: &Runtime,
    ) -> anyhow::Result<Self> {
        let group = MemoryGroup::make()?;
        place.doors = vec![group.door()];
        let server = place.start(&Kind::Spanplane, None)?;
        reader.origin = format!("http://{}", server.serves_at("viewer")?);
        let begun = Instant::now();
        let one = PAGES.iter().find(|(name, _)| *name == page);
        let seen = runtime.block_on(async {
            match one {
                Some((_, path)) => reader.look(path).await,
                None => reader.look_at_everything(&place.socket()).await,
            }
        });
        let seconds = begun.elapsed().as_secs_f64();
        let peak_bytes = process::peak_bytes(server.id()).unwrap_or(LIMIT_BYTES);
        let killed = group.kills()?;
        if killed == 0 {
            server.stop()?;
        } else {
            drop(server);
        }
        Ok(Self {
            page,
            seen,
            seconds,
            peak_mib: peak_bytes as f64 / 1024.0 / 1024.0,
            killed,
        })
    }
}

impl Reader {
    /// One page after the other, while messages come and the document is downloaded twice, once by
    /// somebody who does not read on.
    async fn look_at_everything(&self, socket: &Path) -> Seen {
        let document = "/raw?key={key}&pointer=";
        let unread = self.client.get(self.address(document)).send().await;
        let pages = async {
            let mut seen = Seen::default();
            for (_, path) in PAGES {
                seen.add(self.look(path).await);
            }
            seen
        };
        let load = rough::like_core(socket, USUAL, LASTS);
        let (mut seen, download, calls) = tokio::join!(pages, self.look(document), load);
        drop(unread);
        seen.add(download);
        seen.add(Seen {
            failed: calls.missed + calls.failed,
            bytes: 0,
            first_failure: calls.first_failure,
        });
        seen
    }

    async fn look(&self, path: &str) -> Seen {
        match self.read(path).await {
            Ok(bytes) => Seen {
                bytes,
                ..Seen::default()
            },
            Err(error) => Seen {
                failed: 1,
                bytes: 0,
                first_failure: Some(format!("{path}: {error:#}")),
            },
        }
    }

    /// The length of what stands there.
    async fn read(&self, path: &str) -> anyhow::Result<usize> {
        let is_object = path.ends_with("&pointer=");
        let (mut length, mut is_same) = (0, true);
        let mut answer = self.client.get(self.address(path)).send().await?;
        ensure!(answer.status() == 200, "{}", answer.status());
        while let Some(piece) = answer.chunk().await? {
            let end = length + piece.len();
            is_same &= self.document.get(length..end) == Some(&piece[..]);
            length = end;
        }
        let is_whole = is_same && length == self.document.len();
        ensure!(is_whole || !is_object, "the document is another");
        Ok(length)
    }

    fn address(&self, path: &str) -> String {
        format!("{}{}", self.origin, path.replace("{key}", &self.key))
    }
}

/// Has the reconcile stored; returns its key and its document.
pub(crate) async fn fill(place: &Place) -> anyhow::Result<(String, Vec<u8>)> {
    let server = place.start(&Kind::Spanplane, None)?;
    let mut client = InspectorClient::new(place.socket(), PATIENCE);
    let xrs = Xr::make(1, SHAPE);
    let xr = xrs.first().context("no XR")?;
    let reconcile = xr.reconcile();
    for place in 0..STEPS {
        let step = reconcile.step(place);
        for kind in [RecordKind::Request, RecordKind::Response] {
            client.emit(kind, step.message(kind)).await?;
        }
    }
    let url = StoreUrl::folder(&place.store());
    let archive = Archive::open(&url, &Variables::default(), Compression::Zstd)?;
    let begun = Instant::now();
    let key = loop {
        if let Some((key, ..)) = archive.list().await?.pop() {
            break key;
        }
        ensure!(begun.elapsed() < PATIENCE, "nothing was stored");
        sleep(Duration::from_millis(100)).await;
    };
    server.drain(false)?.context("it is not stored")?;
    server.stop()?;
    Ok((key.to_string(), archive.fetch(&key).await?))
}
