//! Batches that are put into a store, and what is read back.

mod broken;
mod filters;
mod ids;
mod order;
mod properties;
mod queries;
mod repeated;

use std::{path::Path, time::Duration};

use futures_util::StreamExt as _;

use super::*;
use crate::{
    archive::{Compression, StoreUrl, Variables},
    line::{
        Line,
        samples::{at, line, padded, step, with_steps},
    },
    time::Timestamp,
};

fn in_memory() -> Archive {
    let url = StoreUrl::parse("memory:///a/prefix").unwrap();
    Archive::open(&url, &Variables::default(), Compression::Zstd).unwrap()
}

fn on_disk(folder: &Path) -> Archive {
    let url = StoreUrl::folder(folder);
    Archive::open(&url, &Variables::default(), Compression::Zstd).unwrap()
}

/// A batch of the hour in which `started_at` lies, of the instance that started then.
fn key(started_at: Timestamp, start: i64, sequence: u32) -> IndexKey {
    IndexKey {
        partition: Partition::of(started_at),
        instance: InstanceName::new("pod", Timestamp::from_nanos(start)),
        sequence,
    }
}

fn compressed(lines: &[u8]) -> Vec<u8> {
    zstd::encode_all(lines, 1).unwrap()
}

fn batch<'l>(lines: impl IntoIterator<Item = &'l Line>) -> Vec<u8> {
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, line).unwrap();
        text.push(b'\n');
    }
    compressed(&text)
}

async fn put(archive: &Archive, key: &IndexKey, body: Vec<u8>) {
    archive.put_index(key, body.into()).await.unwrap();
}

/// The same on local disk, as if it had been stored then.
async fn put_at(folder: &Path, key: &IndexKey, body: Vec<u8>, stored_at: Timestamp) {
    put(&on_disk(folder), key, body).await;
    let nanos = u64::try_from(stored_at.as_nanos()).unwrap();
    let file = std::fs::File::options()
        .write(true)
        .open(folder.join(key.to_string()))
        .unwrap();
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_nanos(nanos))
        .unwrap();
}

async fn read(archive: &Archive, query: Query) -> Vec<Result<Line, IndexError>> {
    archive.read_index(query).collect().await
}

/// All lines, of an index in which everything can be read.
async fn lines(archive: &Archive, query: Query) -> Vec<Line> {
    let read = read(archive, query).await.into_iter();
    read.map(Result::unwrap).collect()
}

async fn traces(archive: &Archive, query: Query) -> Vec<String> {
    let lines = lines(archive, query).await.into_iter();
    lines.map(|line| line.trace_id).collect()
}
