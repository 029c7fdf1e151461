//! What lies in a store on disk, counted from outside.

use std::{fs, path::Path};

use serde::Serialize;

/// What lies in a store on disk.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Stored {
    pub(crate) objects: u64,
    pub(crate) object_bytes: u64,
    /// Batches of the index, and what tells of each what it holds.
    pub(crate) index_objects: u64,
    pub(crate) index_bytes: u64,
}

impl Stored {
    pub(crate) fn count(store: &Path) -> anyhow::Result<Self> {
        let [objects, index, contents] =
            ["reconciles", "index", "contents"].map(|part| count(&store.join("v1").join(part)));
        let ((objects, object_bytes), index, contents) = (objects?, index?, contents?);
        Ok(Self {
            objects,
            object_bytes,
            index_objects: index.0 + contents.0,
            index_bytes: index.1 + contents.1,
        })
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            objects: self.objects - earlier.objects,
            object_bytes: self.object_bytes - earlier.object_bytes,
            index_objects: self.index_objects - earlier.index_objects,
            index_bytes: self.index_bytes - earlier.index_bytes,
        }
    }
}

/// Files below a folder, and their bytes; none if there is no such folder.
fn count(folder: &Path) -> anyhow::Result<(u64, u64)> {
    let mut counted = (0, 0);
    if !folder.try_exists()? {
        return Ok(counted);
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            let (files, bytes) = count(&entry.path())?;
            counted = (counted.0 + files, counted.1 + bytes);
        } else {
            counted = (counted.0 + 1, counted.1 + entry.metadata()?.len());
        }
    }
    Ok(counted)
}
