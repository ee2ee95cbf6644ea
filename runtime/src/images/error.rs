//! What can go wrong with images. The cause is in `source`, never repeated in the message.

use std::io;
use std::path::{Path, PathBuf};

use super::digest::Digest;
use super::layer::LayerError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{text:?} is not a reference of an image: {why}")]
    Reference { text: String, why: &'static str },
    #[error("image {0:?} is not here")]
    NotFound(String),
    #[error("{0:?} means more than one image: give more of the id")]
    Ambiguous(String),
    #[error("{host} has no {what}")]
    Missing { host: String, what: String },
    #[error("{host} refuses {what}: {why}")]
    Denied { host: String, what: String, why: String },
    #[error("{host}: {why}")]
    Registry { host: String, why: String },
    #[error("{host} cannot be reached: {why}")]
    Unreachable { host: String, why: String },
    #[error("{what} should be {expected} and is {found}")]
    Digest { what: String, expected: Digest, found: String },
    #[error("{what} is not an image that can be run: {why}")]
    Manifest { what: String, why: String },
    #[error("{what} is not made for {wanted}, only for {offered}")]
    Platform { what: String, wanted: String, offered: String },
    #[error("layer {digest} cannot be unpacked")]
    Layer { digest: Digest, source: LayerError },
    #[error("{}: {why}", path.display())]
    Hosts { path: PathBuf, why: String },
    #[error("{what}: {why}")]
    Archive { what: String, why: String },
    #[error("{key:?} cannot be the key of a snapshot: {why}")]
    Key { key: String, why: &'static str },
    #[error("snapshot {0:?} exists")]
    Exists(String),
    #[error("image {0:?} is pinned")]
    Pinned(String),
    #[error("the disk is full at {}", path.display())]
    DiskFull { path: PathBuf },
    #[error("{}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the work was given up before its end")]
    Cancelled,
}

impl Error {
    /// Says which path an error of the system is about, and tells a full disk apart.
    pub fn at(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
        move |source| match is_full(&source) {
            true => Error::DiskFull { path: path.to_owned() },
            false => Error::Io { path: path.to_owned(), source },
        }
    }

    /// The same for system calls that answer with a bare number.
    pub fn sys(path: &Path) -> impl Fn(rustix::io::Errno) -> Error + '_ {
        move |errno| Error::at(path)(errno.into())
    }

    /// Whether it is the image that was not found, here or there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::NotFound(_) | Error::Missing { .. })
    }

    /// The message with its causes, for those who show one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

pub fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}
