//! What is below a folder of the store.
//!
//! Invariant: symbolic links are neither listed nor followed; a folder that is not there holds
//! nothing.

use std::{
    fs, io,
    path::{Path as FilePath, PathBuf},
};

use object_store::{
    Error, Extensions, ListResult, ObjectMeta, Result,
    path::{Path, PathPart},
};

use super::{failed, meta_of, parent_of, path_of};
use crate::archive::staging::is_staged;

/// Files that are listed before others get a turn.
const LISTED_AT_ONCE: usize = 1024;

/// A folder's entry.
enum Entry {
    Object(ObjectMeta),
    Folder(Path),
    /// Not the store's.
    Stranger,
}

/// What is below a folder, a batch at a time.
pub(super) struct Listing {
    root: PathBuf,
    unopened: Vec<Path>,
    open: Option<(Path, fs::ReadDir)>,
}

impl Listing {
    pub(super) fn new(root: PathBuf, folder: Path) -> Self {
        Self {
            root,
            unopened: vec![folder],
            open: None,
        }
    }

    /// Some more; nothing if that was all.
    pub(super) fn advance(&mut self) -> Vec<Result<ObjectMeta>> {
        let mut listed = Vec::new();
        while listed.len() < LISTED_AT_ONCE {
            let Some((folder, entries)) = &mut self.open else {
                let Some(folder) = self.unopened.pop() else {
                    break;
                };
                match open_folder(&self.root, &folder) {
                    Ok(entries) => self.open = entries.map(|entries| (folder, entries)),
                    Err(error) => listed.push(Err(error)),
                }
                continue;
            };
            let Some(entry) = entries.next() else {
                self.open = None;
                continue;
            };
            match look_at(folder, entry) {
                Ok(Entry::Object(object)) => listed.push(Ok(object)),
                Ok(Entry::Folder(folder)) => self.unopened.push(folder),
                Ok(Entry::Stranger) => {}
                Err(error) => listed.push(Err(error)),
            }
        }
        listed
    }
}

/// The objects and folders in a folder.
pub(super) fn list_folder(root: &FilePath, folder: &Path) -> Result<ListResult> {
    let mut listed = ListResult {
        common_prefixes: Vec::new(),
        objects: Vec::new(),
        extensions: Extensions::default(),
    };
    for entry in open_folder(root, folder)?.into_iter().flatten() {
        match look_at(folder, entry)? {
            Entry::Object(object) => listed.objects.push(object),
            Entry::Folder(folder) => listed.common_prefixes.push(folder),
            Entry::Stranger => {}
        }
    }
    Ok(listed)
}

/// `None` if it is not there.
fn open_folder(root: &FilePath, folder: &Path) -> Result<Option<fs::ReadDir>> {
    // Finds links on the way. Swapping a folder for a link behind it gets names, and nothing else.
    let within = folder.clone().join(PathPart::from("any"));
    let read = parent_of(root, &within).and_then(|_| {
        let read = fs::read_dir(path_of(root, folder));
        read.map_err(|error| failed(folder, error))
    });
    match read {
        Ok(entries) => Ok(Some(entries)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn look_at(folder: &Path, entry: io::Result<fs::DirEntry>) -> Result<Entry> {
    let looked = entry.and_then(|entry| {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| !is_staged(name)) else {
            return Ok(Entry::Stranger);
        };
        let location = folder.clone().join(PathPart::from(name));
        // NOTE: of the link, if it is one.
        let metadata = entry.metadata()?;
        Ok(if metadata.is_dir() {
            Entry::Folder(location)
        } else if metadata.is_file() {
            Entry::Object(meta_of(location, &metadata))
        } else {
            Entry::Stranger
        })
    });
    match looked {
        // It went while we looked.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Entry::Stranger),
        looked => looked.map_err(|error| failed(folder, error)),
    }
}
