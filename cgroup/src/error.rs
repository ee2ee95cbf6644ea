//! Errors of cgroup operations.

use std::io;

/// A failed operation on a cgroup.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{0}")]
    Refused(String),
}

/// The result of an operation on a cgroup.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds what was attempted to a system error.
pub(crate) trait Context<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { what: what(), source: source.into() })
    }
}

pub(crate) fn refused<T>(reason: impl Into<String>) -> Result<T> {
    Err(Error::Refused(reason.into()))
}
