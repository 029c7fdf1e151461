//! The Unix socket: bound, with the right mode from the first moment on, and taken away again.
//!
//! Invariant: only a socket that nobody listens on is ever replaced; any other file stays. The
//! socket appears under its name only once it listens and has its mode.

use std::{
    fs, io,
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

/// Why the socket can't be had.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("cannot use {path:?}: another process listens on it")]
    InUse { path: PathBuf },
    #[error(
        "cannot use {path:?}: there is a file that is no socket; remove it or choose another path"
    )]
    NoSocket { path: PathBuf },
    #[error("cannot create the folder {path:?}")]
    CreateFolder { path: PathBuf, source: io::Error },
    #[error("cannot look at {path:?}")]
    Inspect { path: PathBuf, source: io::Error },
    #[error("cannot listen on {path:?}")]
    Listen { path: PathBuf, source: io::Error },
}

/// A socket that listens. Its file goes when it is dropped.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    inode: u64,
}

impl Socket {
    /// Listens on `path`.
    pub fn bind(path: &Path, mode: u32) -> Result<(Self, UnixListener), BindError> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|source| BindError::CreateFolder {
                path: folder.to_owned(),
                source,
            })?;
        }
        refuse_unless_stale(path)?;
        let failed = |source| BindError::Listen {
            path: path.to_owned(),
            source,
        };
        // NOTE: bound under another name, since between binding and the change of its mode the
        // socket has whatever mode the umask leaves.
        let fresh = path.with_extension(format!("{}.new", std::process::id()));
        remove_if_there(&fresh).map_err(failed)?;
        let listener = UnixListener::bind(&fresh).map_err(failed)?;
        let placed = fs::set_permissions(&fresh, fs::Permissions::from_mode(mode))
            .and_then(|()| listener.set_nonblocking(true))
            .and_then(|()| fs::rename(&fresh, path))
            .and_then(|()| fs::symlink_metadata(path));
        match placed {
            Ok(metadata) => Ok((
                Self {
                    path: path.to_owned(),
                    inode: metadata.ino(),
                },
                listener,
            )),
            Err(source) => {
                drop(fs::remove_file(&fresh));
                Err(failed(source))
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Another process may have taken the name meanwhile.
        let is_ours =
            fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode);
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

fn refuse_unless_stale(path: &Path) -> Result<(), BindError> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(BindError::Inspect {
                path: path.to_owned(),
                source,
            });
        }
    };
    if !metadata.file_type().is_socket() {
        return Err(BindError::NoSocket {
            path: path.to_owned(),
        });
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A full backlog or a mode that keeps us out: somebody is there.
        Ok(_) | Err(_) => Err(BindError::InUse {
            path: path.to_owned(),
        }),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode_of(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_missing_folder_is_made_and_the_mode_is_the_one_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/inspector/socket");
        let (socket, _listener) = Socket::bind(&path, 0o660).unwrap();
        assert_eq!(mode_of(&path), 0o660);
        UnixStream::connect(&path).unwrap();
        drop(socket);
        assert!(!path.try_exists().unwrap());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    }

    #[test]
    fn a_stale_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.try_exists().unwrap());
        let (_socket, _listener) = Socket::bind(&path, 0o600).unwrap();
        assert_eq!(mode_of(&path), 0o600);
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn a_live_socket_is_refused_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _live = UnixListener::bind(&path).unwrap();
        assert!(matches!(
            Socket::bind(&path, 0o660),
            Err(BindError::InUse { .. })
        ));
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn any_other_file_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(
            Socket::bind(&path, 0o660),
            Err(BindError::NoSocket { .. })
        ));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(
            Socket::bind(&link, 0o660),
            Err(BindError::NoSocket { .. })
        ));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn a_socket_taken_over_by_another_process_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (socket, listener) = Socket::bind(&path, 0o660).unwrap();
        drop(listener);
        let (_other, _other_listener) = Socket::bind(&path, 0o660).unwrap();
        drop(socket);
        UnixStream::connect(&path).unwrap();
    }
}
