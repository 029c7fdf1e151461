//! What is finished and waits on local disk to go where it belongs: objects for the store
//! ([`Parcels`]) and batches of spans for the collector ([`TraceBatches`]). What is refused there
//! goes into [`Quarantine`], and so does a message at which the process died.
//!
//! A message waits in the spool as it came; a reconcile waits here as what became of it, which is
//! far smaller. Invariant: a file that stands here under its name is whole, and its bytes
//! never change, so that sending it again after a crash changes nothing.

mod batches;
mod message_name;
mod parcel;
mod parcels;
mod precedence;
mod quarantine;

use std::{io, path::Path, sync::Arc};

pub use self::{
    batches::{BatchId, TraceBatches, WaitingBatch},
    message_name::MessageName,
    parcel::{Label, ParcelReader, ParcelWriter},
    parcels::{ParcelId, Parcels},
    quarantine::{Note, Quarantinable, Quarantine, Quarantined},
};

use crate::disk::{DirEntry, Disk, DiskFile, remove_if_there};

/// Extension of a file that is still being written; one that an earlier process left is of no use.
const UNFINISHED: &str = "new";

/// The files in a folder, which is created if necessary, without those that were never finished.
fn list_finished(disk: &dyn Disk, folder: &Path) -> io::Result<Vec<DirEntry>> {
    disk.create_folder(folder)?;
    let mut files = Vec::new();
    for entry in disk.list(folder)? {
        let path = folder.join(&entry.name);
        if path.extension().is_some_and(|ending| ending == UNFINISHED) {
            remove_if_there(disk, &path)?;
        } else if !entry.is_folder {
            files.push(entry);
        }
    }
    Ok(files)
}

/// A file in this folder that has no name, and goes with whoever holds it. No two may have the same
/// number at once.
pub fn scratch_file(disk: &dyn Disk, folder: &Path, number: u64) -> io::Result<Arc<dyn DiskFile>> {
    let path = folder.join(format!("scratch-{number}.{UNFINISHED}"));
    let file = disk.create(&path)?;
    disk.remove(&path)?;
    Ok(file)
}

/// Removes what was sent. If that fails, it is sent again, which changes nothing.
fn remove_sent(disk: &dyn Disk, path: &Path) {
    if let Err(error) = remove_if_there(disk, path) {
        tracing::warn!(path = %path.display(), %error, "cannot remove what was sent");
    }
}

#[cfg(test)]
mod tests;
