//! Folders of a store, opened one segment after the other.
//!
//! Invariant: no symbolic link below the store's folder is followed, also if a folder is exchanged
//! for one meanwhile. Nothing here knows what an object is.

use std::{ffi::OsStr, fs::File, io, path::Path};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, openat, unlinkat},
    io::Errno,
};

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// The store's own folder, which may be a link: somebody named it.
pub(super) fn open_root(root: &Path) -> Result<File, Errno> {
    Ok(File::from(openat(CWD, root, FOLDER, Mode::empty())?))
}

/// A folder in a folder; a link is none.
pub(super) fn open_in(folder: &File, name: impl AsRef<OsStr>) -> Result<File, Errno> {
    let how = FOLDER | OFlags::NOFOLLOW;
    let opened = openat(folder, name.as_ref(), how, Mode::empty());
    Ok(File::from(opened?))
}

/// A folder of the store, by its path below the store's own.
pub(in crate::archive) fn open_folder(root: &Path, folder: &Path) -> io::Result<File> {
    let mut opened = open_root(root)?;
    for segment in folder {
        opened = open_in(&opened, segment)?;
    }
    Ok(opened)
}

/// Removes a file, by its path below the store's folder; a link goes itself.
pub(in crate::archive) fn remove_file(root: &Path, path: &Path) -> io::Result<()> {
    remove(root, path, AtFlags::empty())
}

/// Removes a folder, if there is nothing in it.
pub(in crate::archive) fn remove_folder(root: &Path, path: &Path) -> io::Result<()> {
    remove(root, path, AtFlags::REMOVEDIR)
}

fn remove(root: &Path, path: &Path, what: AtFlags) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    Ok(unlinkat(open_folder(root, folder)?, name, what)?)
}
