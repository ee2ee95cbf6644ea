//! The error of the runtime below CRI: what was attempted, and the cause.

use std::io;

/// A failed operation. The container's init process sends it to the runtime as text.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{0}")]
    Refused(String),
    /// The requested object does not exist.
    #[error("{0}")]
    NotFound(String),
}

/// The result of an operation of the runtime.
pub type Result<T> = std::result::Result<T, Error>;

impl From<cgroup::Error> for Error {
    fn from(error: cgroup::Error) -> Error {
        match error {
            cgroup::Error::Io { what, source } => Error::Io { what, source },
            cgroup::Error::Refused(why) => Error::Refused(why),
        }
    }
}

/// Adds what was attempted to a system error.
pub trait Context<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
    fn at(self, what: &str) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { what: what(), source: source.into() })
    }

    fn at(self, what: &str) -> Result<T> {
        self.context(|| what.to_string())
    }
}

/// An error without a system error as its cause.
pub fn refused<T>(reason: impl Into<String>) -> Result<T> {
    Err(Error::Refused(reason.into()))
}
