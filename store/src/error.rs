//! What can go wrong in a store. The cause is in `source`, not in the message.

use std::sync::Arc;

use crate::{Entry, Revision};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An expectation does not hold; `write` is its place in the transaction.
    #[error("the entry has changed")]
    Conflict { write: usize, current: Option<Arc<Entry>> },
    /// What the writer asked to hold besides the writes does not; nothing was written.
    #[error("{0}")]
    Refused(String),
    /// The revision asked for is older than the history that is kept.
    #[error("revision {asked} has been compacted; the oldest is {oldest}")]
    Compacted { asked: Revision, oldest: Revision },
    /// The revision asked for has not happened yet.
    #[error("revision {asked} is in the future; the newest is {newest}")]
    Future { asked: Revision, newest: Revision },
    /// The watcher did not keep up and was dropped.
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
    /// The remote store cannot be reached or refused the call.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    #[error("the store is closed")]
    Closed,
}
