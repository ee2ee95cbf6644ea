//! Past versions of a key: what history shows besides the values of a range at a revision.

use std::time::Duration;

use bytes::Bytes;

use crate::Revision;

/// Selects the versions of one key.
#[derive(Debug, Clone, Default)]
pub struct VersionQuery {
    pub key: String,
    /// Versions after this revision.
    pub after: Revision,
    /// Versions up to this revision; 0 for the newest.
    pub until: Revision,
    /// The number of versions, of which the newest are kept; 0 for no limit.
    pub limit: usize,
}

impl VersionQuery {
    pub(crate) fn selects(&self, revision: Revision) -> bool {
        revision > self.after && (self.until == 0 || revision <= self.until)
    }
}

/// The versions of a key, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Versions {
    pub versions: Vec<Version>,
    /// Writes up to this revision are not known any more.
    pub floor: Revision,
    /// Older versions were left out because of the limit.
    pub is_limited: bool,
}

/// One write of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub revision: Revision,
    /// When it was written, since the Unix epoch; zero if that is not known.
    pub time: Duration,
    /// As `Write::cause`; empty if it is not known.
    pub cause: Bytes,
    pub content: Content,
}

/// What a write has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Value(Bytes),
    Deleted,
    /// There was a value; the text says why it cannot be read any more.
    Unreadable(String),
}
