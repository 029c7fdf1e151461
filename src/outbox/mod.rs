//! What is finished and waits on local disk to go where it belongs: objects for the store
//! ([`Parcels`]) and batches of spans for the collector ([`TraceBatches`]).
//!
//! A message waits in the spool as it came; a reconcile waits here as what became of it, which is
//! far smaller. Invariant: a file that stands here under its name is whole, and its bytes
//! never change, so that sending it again after a crash changes nothing.

mod batches;
mod parcels;

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::Path,
};

pub use self::{
    batches::{BatchId, TraceBatches, WaitingBatch},
    parcels::{Label, ParcelId, ParcelReader, ParcelWriter, Parcels},
};

use crate::time::Timestamp;

/// Ending of a file that is still written to; one that an earlier process left is of no use.
const UNFINISHED: &str = "new";

/// A file that waits.
struct Found {
    name: String,
    bytes: u64,
    written_at: Timestamp,
}

/// The files in a folder that is made if need be, without those that were never finished.
fn take_up(folder: &Path) -> io::Result<Vec<Found>> {
    fs::create_dir_all(folder)?;
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == UNFINISHED) {
            fs::remove_file(&path)?;
        } else if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
            let metadata = entry.metadata()?;
            files.push(Found {
                name: name.to_owned(),
                bytes: metadata.len(),
                written_at: Timestamp::from_parts(metadata.mtime(), 0).unwrap_or_default(),
            });
        }
    }
    Ok(files)
}

/// Makes the names in a folder survive the loss of power.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Removes what was sent. If that fails it is sent again, which changes nothing.
fn remove_sent(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "cannot remove what was sent");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
