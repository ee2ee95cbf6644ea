//! Errors of stores. The cause is in `source`, not in the message.

use std::sync::Arc;

use crate::{Entry, Revision};

/// Why an operation of a store failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An expectation does not hold; `write` is its index in the transaction.
    #[error("the entry has changed")]
    Conflict { write: usize, current: Option<Arc<Entry>> },
    /// A precondition besides the writes does not hold; nothing was written.
    #[error("{0}")]
    Refused(String),
    /// The requested revision is older than the history.
    #[error("revision {asked} has been compacted; the oldest is {oldest}")]
    Compacted { asked: Revision, oldest: Revision },
    /// Old versions are not kept, or not by this engine.
    #[error("the store keeps no history")]
    NoHistory,
    /// The requested revision does not exist yet.
    #[error("revision {asked} is in the future; the newest is {newest}")]
    Future { asked: Revision, newest: Revision },
    /// The watcher was too slow and was dropped.
    #[error("the watcher is too slow")]
    Lagging,
    #[error("the value is too large: {size} bytes, at most {limit}")]
    TooLarge { size: usize, limit: usize },
    /// The disk is full: nothing was written, and nothing is lost.
    #[error("no space left on the device of the store")]
    Full(#[source] std::io::Error),
    /// A file is damaged. The store does not open.
    #[error("{file} is damaged at offset {offset}: {what}")]
    Damaged { file: String, offset: u64, what: String },
    #[error("{what}")]
    Io {
        what: String,
        #[source]
        source: std::io::Error,
    },
    /// The remote store is unreachable or rejected the call.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    #[error("the store is closed")]
    Closed,
}
