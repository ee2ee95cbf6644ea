//! What went wrong below the CRI surface: what was tried, and the cause.

use std::io;

/// An attempt and why it failed. It crosses from the container's first process to the caller as text.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{0}")]
    Refused(String),
    /// What was named is not here; a caller may want to bring it.
    #[error("{0}")]
    NotFound(String),
}

pub type Result<T> = std::result::Result<T, Error>;

impl From<cgroup::Error> for Error {
    fn from(error: cgroup::Error) -> Error {
        match error {
            cgroup::Error::Io { what, source } => Error::Io { what, source },
            cgroup::Error::Refused(why) => Error::Refused(why),
        }
    }
}

/// Says what was tried beside an error of the system.
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

pub fn refused<T>(reason: impl Into<String>) -> Result<T> {
    Err(Error::Refused(reason.into()))
}
