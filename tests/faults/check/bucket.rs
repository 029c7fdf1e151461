//! Everything that is in the store, read without the program's own reader.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    io::Read as _,
    path::Path,
};

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::{ObjectStoreExt as _, path::Path as Location};
use serde::Deserialize;
use serde_json::value::RawValue;
use spanplane::reconcile::PayloadHash;

use crate::{payload::holds_canary, store::Reader};

const FETCHES_AT_ONCE: usize = 8;

/// What the store holds.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    /// By trace, in the order of their batches.
    pub(crate) entries: HashMap<String, Vec<Entry>>,
    /// By key.
    pub(crate) objects: BTreeMap<String, Object>,
    /// Where secrets are.
    pub(crate) leaks: Vec<String>,
    pub(crate) unreadable: Vec<String>,
    pub(crate) bytes: u64,
}

/// An index entry, as far as the checks need it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Entry {
    pub(crate) trace_id: String,
    #[serde(default)]
    pub(crate) revision: u64,
    pub(crate) object: EntryObject,
    pub(crate) steps: Vec<EntryStep>,
    /// The line, and where it is.
    #[serde(skip)]
    pub(crate) line: String,
    #[serde(skip)]
    pub(crate) batch: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct EntryObject {
    pub(crate) key: String,
    pub(crate) state: String,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(crate) struct EntryStep {
    pub(crate) index: u64,
    pub(crate) iteration: u64,
    pub(crate) name: String,
    pub(crate) function: String,
    pub(crate) span_id: String,
    pub(crate) duration_ms: Option<f64>,
    pub(crate) error: Option<String>,
    pub(crate) error_type: Option<String>,
    pub(crate) request: Option<EntryPayload>,
    pub(crate) response: Option<EntryPayload>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(crate) struct EntryPayload {
    pub(crate) pointer: String,
    pub(crate) sha256: String,
}

/// A reconcile's object.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) trace_id: String,
    /// By pointer.
    pub(crate) payloads: HashMap<String, PayloadHash>,
    /// Errors of steps, by span id.
    pub(crate) errors: HashMap<String, String>,
}

/// What a key leads to.
enum Found {
    Entries(Vec<Entry>),
    Object(Object),
    Other,
}

impl Bucket {
    /// Reads everything. The index is also copied to a folder, for programs that query it.
    pub(crate) async fn read(reader: &Reader, index_copy: &Path) -> anyhow::Result<Self> {
        let listed: Vec<_> = reader
            .client
            .list(Some(&reader.prefix))
            .try_collect()
            .await?;
        let mut bucket = Self::default();
        let mut fetches = stream::iter(listed)
            .map(async |meta| {
                let bytes = reader.client.get(&meta.location).await?.bytes().await?;
                anyhow::Ok((meta.location, bytes))
            })
            .buffered(FETCHES_AT_ONCE);
        while let Some((location, bytes)) = fetches.try_next().await? {
            let key = key_of(&reader.prefix, &location).context("listed outside of the prefix")?;
            bucket.bytes += bytes.len() as u64;
            if key.starts_with("v1/index/") {
                let copy = index_copy.join(&key);
                fs::create_dir_all(copy.parent().context("no folder")?)?;
                fs::write(copy, &bytes)?;
            }
            let found = match decompress(&key, &bytes) {
                Ok(content) => {
                    if holds_canary(&content) {
                        bucket.leaks.push(key.clone());
                    }
                    parse(&key, &content)
                }
                Err(error) => Err(error),
            };
            match found {
                Ok(Found::Entries(entries)) => {
                    for entry in entries {
                        let entries = bucket.entries.entry(entry.trace_id.clone());
                        entries.or_default().push(entry);
                    }
                }
                Ok(Found::Object(object)) => {
                    bucket.objects.insert(key, object);
                }
                Ok(Found::Other) => {}
                Err(error) => bucket.unreadable.push(format!("{key}: {error:#}")),
            }
        }
        Ok(bucket)
    }

    /// The entry that readers take: the one with the highest revision.
    pub(crate) fn entry(&self, trace_id: &str) -> Option<&Entry> {
        let entries = self.entries.get(trace_id)?;
        entries.iter().max_by_key(|entry| entry.revision)
    }

    /// Of all traces.
    pub(crate) fn latest(&self) -> impl Iterator<Item = &Entry> {
        self.entries.keys().filter_map(|trace| self.entry(trace))
    }
}

fn key_of(prefix: &Location, location: &Location) -> Option<String> {
    let parts = location.prefix_match(prefix)?;
    Some(parts.collect::<Location>().to_string())
}

fn decompress(key: &str, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut content = Vec::new();
    match key.rsplit('.').next() {
        Some("zst") => content = zstd::stream::decode_all(bytes)?,
        Some("gz") => {
            flate2::read::GzDecoder::new(bytes).read_to_end(&mut content)?;
        }
        _ => content.extend_from_slice(bytes),
    }
    Ok(content)
}

fn parse(key: &str, content: &[u8]) -> anyhow::Result<Found> {
    if key.starts_with("v1/index/") {
        let text = std::str::from_utf8(content)?;
        let entries = text.lines().map(|line| {
            let mut entry: Entry = serde_json::from_str(line)?;
            line.clone_into(&mut entry.line);
            key.clone_into(&mut entry.batch);
            anyhow::Ok(entry)
        });
        return Ok(Found::Entries(entries.collect::<Result<_, _>>()?));
    }
    if key.starts_with("v1/reconciles/") {
        return Ok(Found::Object(parse_object(content)?));
    }
    Ok(Found::Other)
}

fn parse_object(content: &[u8]) -> anyhow::Result<Object> {
    #[derive(Deserialize)]
    struct Document<'d> {
        trace_id: String,
        #[serde(borrow)]
        steps: Vec<HashMap<&'d str, &'d RawValue>>,
    }

    let document: Document<'_> = serde_json::from_slice(content)?;
    let mut object = Object {
        trace_id: document.trace_id,
        payloads: HashMap::new(),
        errors: HashMap::new(),
    };
    for (place, step) in document.steps.iter().enumerate() {
        for member in ["request", "response", "request_text", "response_text"] {
            let Some(value) = step.get(member).filter(|value| value.get() != "null") else {
                continue;
            };
            let hash = if member.ends_with("_text") {
                let text: String = serde_json::from_str(value.get())?;
                PayloadHash::of(text.as_bytes())
            } else {
                PayloadHash::of(value.get().as_bytes())
            };
            object
                .payloads
                .insert(format!("/steps/{place}/{member}"), hash);
        }
        let text = |member| {
            let value = step.get(member)?;
            serde_json::from_str::<Option<String>>(value.get()).ok()?
        };
        if let (Some(span_id), Some(error)) = (text("span_id"), text("error")) {
            object.errors.insert(span_id, error);
        }
    }
    Ok(object)
}
