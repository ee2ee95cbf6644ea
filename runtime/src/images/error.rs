//! Errors of the image store. The cause is in `source`, and not repeated in the message.

use std::io;
use std::path::{Path, PathBuf};

use super::digest::Digest;
use super::layer::LayerError;
use super::reference::InvalidReference;

/// The result of an operation of the image store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the image store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("invalid image reference {text:?}: {why}")]
    Reference { text: String, why: InvalidReference },
    #[error("several clusters run pods on this machine: choose one by --data-dir")]
    SeveralClusters,
    #[error("image {0:?} is not present")]
    NotFound(String),
    #[error("{0:?} matches more than one image: use more digits of the ID")]
    Ambiguous(String),
    #[error("{host} has no {what}")]
    Missing { host: String, what: String },
    #[error("{host} denied access to {what}: {why}")]
    Denied { host: String, what: String, why: String },
    #[error("{host}: {why}")]
    Registry { host: String, why: String },
    #[error("failed to reach {host}: {why}")]
    Unreachable { host: String, why: String },
    #[error("{what}: expected digest {expected}, found {found}")]
    Digest { what: String, expected: Digest, found: String },
    #[error("{what} is not a runnable image: {why}")]
    Manifest { what: String, why: String },
    #[error("{what} has no image for {wanted}, only for {offered}")]
    Platform { what: String, wanted: String, offered: String },
    #[error("failed to unpack layer {digest}")]
    Layer { digest: Digest, source: LayerError },
    #[error("{}: {why}", path.display())]
    Hosts { path: PathBuf, why: String },
    #[error("{what}: {why}")]
    Archive { what: String, why: String },
    #[error("invalid snapshot key {key:?}: {why}")]
    Key { key: String, why: &'static str },
    #[error("snapshot {0:?} already exists")]
    Exists(String),
    #[error("image {0:?} is pinned")]
    Pinned(String),
    #[error("no space left on device at {}", path.display())]
    DiskFull { path: PathBuf },
    #[error("{}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("cancelled")]
    Cancelled,
}

impl Error {
    /// Adds the path to a system error, and recognizes a full disk.
    pub fn at(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
        move |source| match is_full(&source) {
            true => Error::DiskFull { path: path.to_owned() },
            false => Error::Io { path: path.to_owned(), source },
        }
    }

    /// The same for an errno.
    pub fn sys(path: &Path) -> impl Fn(rustix::io::Errno) -> Error + '_ {
        move |errno| Error::at(path)(errno.into())
    }

    /// Whether the image does not exist, neither here nor at the registry.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::NotFound(_) | Error::Missing { .. })
    }

    /// The message with its causes, on one line.
    pub fn chain(&self) -> String {
        stdx::error::chain(self)
    }
}

pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}
