//! A store on local disk: `object_store`'s own, without its symbolic links.
//!
//! Whoever can write to the folder, or restores a backup into it, could otherwise have any file
//! that the process may read shown by the viewer, and any folder written to. Invariant: nothing
//! below the store's folder is read, listed or written through a symbolic link. The folder itself
//! may be one: somebody named it.

mod listing;
pub(super) mod within;

use std::{
    fmt,
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path as FilePath, PathBuf},
};

use chrono::DateTime;
use futures_util::{StreamExt as _, stream, stream::BoxStream};
use object_store::{
    Attributes, CopyOptions, Error, Extensions, GetOptions, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result, local::LocalFileSystem, path::Path,
};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, mkdirat, openat, statat, unlinkat},
    io::Errno,
};

use self::{
    listing::{Listing, list_folder},
    within::{open_in, open_root},
};
use super::{
    failure::{SymbolicLink, find_cause},
    staging::staged_suffix,
};
use crate::panics::go_on_with;

/// Makes a second name for a file.
type HardLink = fn(&FilePath, &FilePath) -> io::Result<()>;

/// A folder of objects.
#[derive(Debug)]
pub(super) struct LocalStore {
    folder: PathBuf,
    /// Writes, below `prefix`.
    files: LocalFileSystem,
    prefix: Path,
    link: HardLink,
}

/// The file system has no hard links, which creating an object without replacing one takes.
#[derive(Debug, thiserror::Error)]
#[error("the file system has no hard links")]
struct NoHardLinks(#[source] io::Error);

impl LocalStore {
    /// A folder that is there.
    pub(super) fn open(folder: &FilePath) -> Result<Self> {
        // The spool lets go of what was stored: it has to be on the platter.
        let files = LocalFileSystem::new_with_prefix(folder)?.with_fsync(true);
        Ok(Self {
            folder: folder.to_owned(),
            files,
            prefix: Path::default(),
            link: |from, to| fs::hard_link(from, to),
        })
    }

    /// A folder that can't be made yet; every write tries to.
    pub(super) fn open_later(folder: &FilePath) -> Result<Self> {
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        Ok(Self {
            prefix: Path::from_absolute_path(&folder)?,
            folder,
            files: LocalFileSystem::new().with_fsync(true),
            link: |from, to| fs::hard_link(from, to),
        })
    }

    /// Where the writing client has an object.
    fn within(&self, location: &Path) -> Path {
        self.prefix.parts().chain(location.parts()).collect()
    }

    /// Refuses to write through a symbolic link.
    async fn refuse_links(&self, location: &Path) -> Result<()> {
        let (folder, location) = (self.folder.clone(), location.clone());
        blocking(move || match parent_of(&folder, &location) {
            // Folders that are not there yet will be made.
            Err(Error::NotFound { .. }) => Ok(()),
            opened => opened.map(drop),
        })
        .await
    }

    /// Tells a file system that has no hard links from one that did not let us make one.
    async fn blame(&self, location: &Path, error: Error) -> Error {
        if !find_cause(&error).is_some_and(may_lack_links) {
            return error;
        }
        let (path, link) = (path_of(&self.folder, location), self.link);
        let tried = blocking(move || Ok(try_link(&path, link))).await;
        match tried {
            Ok(Err(lacking)) if may_lack_links(&lacking) => Error::NotSupported {
                source: Box::new(NoHardLinks(lacking)),
            },
            _ => error,
        }
    }
}

impl fmt::Display for LocalStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.folder.display())
    }
}

#[tonic::async_trait]
impl ObjectStore for LocalStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.refuse_links(location).await?;
        let is_new = options.mode == PutMode::Create;
        let put = self
            .files
            .put_opts(&self.within(location), payload, options)
            .await;
        match put {
            Err(error) if is_new => Err(self.blame(location, error).await),
            put => put,
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.refuse_links(location).await?;
        let location = self.within(location);
        self.files.put_multipart_opts(&location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.range.is_some() {
            return Err(self.lacks("reading a part"));
        }
        let (folder, location) = (self.folder.clone(), location.clone());
        blocking(move || {
            let file = open(&folder, &location)?;
            let metadata = file.metadata().map_err(|error| failed(&location, error))?;
            let path = path_of(&folder, &location);
            let meta = meta_of(location, &metadata);
            options.check_preconditions(&meta)?;
            Ok(GetResult {
                range: 0..meta.size,
                meta,
                payload: GetResultPayload::File(file, path),
                attributes: Attributes::default(),
                extensions: Extensions::default(),
            })
        })
        .await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let folder = self.folder.clone();
        let deleted = locations.then(move |location| {
            let folder = folder.clone();
            async move {
                let location = location?;
                blocking(move || delete(&folder, &location).map(|()| location)).await
            }
        });
        deleted.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let folder = prefix.cloned().unwrap_or_default();
        let listing = Listing::new(self.folder.clone(), folder);
        let batches = stream::unfold(Some(listing), |listing| async {
            let mut listing = listing?;
            let advanced = blocking(move || {
                let batch = listing.advance();
                Ok((listing, batch))
            });
            match advanced.await {
                Ok((_, batch)) if batch.is_empty() => None,
                Ok((listing, batch)) => Some((batch, Some(listing))),
                Err(error) => Some((vec![Err(error)], None)),
            }
        });
        batches.flat_map(stream::iter).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let (root, folder) = (self.folder.clone(), prefix.cloned().unwrap_or_default());
        blocking(move || list_folder(&root, &folder)).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(self.lacks("copying"))
    }
}

impl LocalStore {
    /// Nothing here needs it.
    fn lacks(&self, operation: &str) -> Error {
        Error::NotImplemented {
            operation: operation.to_owned(),
            implementer: self.to_string(),
        }
    }
}

/// Opens an object for reading.
fn open(root: &FilePath, location: &Path) -> Result<File> {
    let folder = parent_of(root, location)?;
    let name = location.filename().unwrap_or_default();
    // NOTE: opening a named pipe would wait for whoever writes to it.
    let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = openat(&folder, name, how, Mode::empty());
    let file = File::from(opened.map_err(|errno| told(&folder, name, location, errno))?);
    let metadata = file.metadata().map_err(|error| failed(location, error))?;
    if metadata.is_file() {
        return Ok(file);
    }
    Err(failed(location, io::ErrorKind::NotFound.into()))
}

/// Opens a file beside the objects for appending; makes it, and its folders, if need be.
pub(super) fn open_beside(root: &FilePath, location: &Path) -> Result<File> {
    fs::create_dir_all(root).map_err(|error| failed(location, error))?;
    let folder = match parent_of(root, location) {
        Err(Error::NotFound { .. }) => make_parent_of(root, location)?,
        opened => opened?,
    };
    let name = location.filename().unwrap_or_default();
    let how = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
    let how = how | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // As `File::create` has it.
    let opened = openat(&folder, name, how, Mode::from_raw_mode(0o666));
    Ok(File::from(
        opened.map_err(|errno| told(&folder, name, location, errno))?,
    ))
}

fn make_parent_of(root: &FilePath, location: &Path) -> Result<File> {
    let mut made = Path::default();
    for segment in location.parts() {
        let name = segment.as_ref().to_owned();
        made = made.join(segment);
        if made == *location {
            break;
        }
        let folder = parent_of(root, &made)?;
        match mkdirat(&folder, name.as_str(), Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(told(&folder, &name, location, errno)),
        }
    }
    parent_of(root, location)
}

/// Removes an object's name; a symbolic link goes itself, not what it leads to.
fn delete(root: &FilePath, location: &Path) -> Result<()> {
    let folder = parent_of(root, location)?;
    let name = location.filename().unwrap_or_default();
    let removed = unlinkat(&folder, name, AtFlags::empty());
    removed.map_err(|errno| told(&folder, name, location, errno))
}

/// The folder that an object is in, opened one segment after the other, so that none can be
/// exchanged for a link on the way.
fn parent_of(root: &FilePath, location: &Path) -> Result<File> {
    let mut folder = open_root(root).map_err(|errno| failed(location, errno.into()))?;
    let mut segments = location.parts().peekable();
    while let Some(segment) = segments.next() {
        if segments.peek().is_none() {
            break;
        }
        let name = segment.as_ref();
        folder = open_in(&folder, name).map_err(|errno| told(&folder, name, location, errno))?;
    }
    Ok(folder)
}

/// Why something in a folder could not be opened.
fn told(folder: &File, name: &str, location: &Path, errno: Errno) -> Error {
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    if stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink()) {
        return Error::PermissionDenied {
            path: location.to_string(),
            source: Box::new(SymbolicLink(name.to_owned())),
        };
    }
    failed(location, errno.into())
}

fn failed(location: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::NotFound {
            path: location.to_string(),
            source: Box::new(error),
        },
        _ => Error::Generic {
            store: "file",
            source: Box::new(error),
        },
    }
}

fn path_of(root: &FilePath, location: &Path) -> PathBuf {
    let mut path = root.to_owned();
    path.extend(location.parts().map(|part| part.as_ref().to_owned()));
    path
}

fn meta_of(location: Path, metadata: &fs::Metadata) -> ObjectMeta {
    let nanos = u32::try_from(metadata.mtime_nsec()).unwrap_or_default();
    ObjectMeta {
        location,
        last_modified: DateTime::from_timestamp(metadata.mtime(), nanos).unwrap_or_default(),
        size: metadata.len(),
        // NOTE: a file is replaced by renaming another one over it, which has another inode.
        e_tag: Some(format!(
            "{:x}-{:x}-{:x}",
            metadata.ino(),
            i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
            metadata.len()
        )),
        version: None,
    }
}

/// Whether this is what file systems without hard links answer. FAT and many network file systems
/// say EPERM, which can mean other things too.
fn may_lack_links(error: &io::Error) -> bool {
    let lacking = [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS, Errno::MLINK];
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    errno.is_some_and(|errno| lacking.contains(&errno))
}

/// Makes a file beside an object, and a hard link to it. A file that can't be made says nothing
/// about links.
fn try_link(object: &FilePath, link: HardLink) -> io::Result<()> {
    let Some(folder) = object.parent() else {
        return Ok(());
    };
    // If the program dies here, what is left goes as other staged files go.
    let (first, second) = (staged_suffix(1), staged_suffix(2));
    let made = tempfile::Builder::new()
        .prefix("links")
        .suffix(&first)
        .tempfile_in(folder);
    let Ok(made) = made else { return Ok(()) };
    let mut other = made.path().as_os_str().to_owned();
    other.push(second);
    link(made.path(), other.as_ref())?;
    fs::remove_file(other)
}

/// Runs what waits for the disk where it holds up nobody. A panic goes on in whoever waits for it.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let given_up = |error| Error::Generic {
        store: "file",
        source: Box::new(go_on_with(error)),
    };
    tokio::task::spawn_blocking(work).await.map_err(given_up)?
}

#[cfg(test)]
mod tests;
