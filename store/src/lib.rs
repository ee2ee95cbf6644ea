//! Revisions, ranges, compare-and-swap, watch, compaction and snapshots over keys and bytes. One interface, three
//! engines: an embedded append-only log (default), memory (tests) and etcd v3. This crate must not depend on
//! Kubernetes: a value is bytes with at most one placeholder for its revision.

#![warn(unreachable_pub)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

mod contents;
pub mod disk;
pub mod embedded;
mod entries;
pub mod error;
pub mod etcd;
mod feed;
mod history;
pub mod memory;
mod versions;

pub use contents::{Contents, Digest};
pub use entries::Entries;
pub use error::Error;
pub use history::HistoryLimits;
pub use versions::{Content, Version, VersionQuery, Versions};

/// Increases with every write and never repeats. 0 is before every write.
pub type Revision = u64;

/// A result with the error of stores.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A boxed future, so that `Store` can be a trait object.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A stored value. Immutable: a write creates a new entry, and all holders share its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: Box<str>,
    /// The value with its revision in the placeholder (embedded, memory), or as another server wrote it (etcd).
    pub value: Bytes,
    /// The revision of the write that created this entry.
    pub revision: Revision,
    /// When the entry expires, in seconds since the Unix epoch; 0 for never.
    pub expires: u64,
}

/// A value to be written: the writer inserts the revision, in decimal, at `hole`.
#[derive(Debug, Clone)]
pub struct Template {
    pub bytes: Vec<u8>,
    pub hole: Option<usize>,
}

/// The operation of a write.
#[derive(Debug, Clone)]
pub enum Op {
    Put(Template),
    Delete,
    /// Writes nothing: only checks the expectation, atomically with the other writes.
    Check,
}

/// The precondition of a write; checked against the head, including batches in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    Anything,
    Absent,
    /// The key exists with this revision.
    Revision(Revision),
}

/// Whether the writer waits for the disk. `Relaxed` writes are acknowledged once they are ordered and visible, and
/// reach the disk with a later batch (within a second); etcd treats both alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Durable,
    Relaxed,
}

/// One write of a transaction.
#[derive(Debug, Clone)]
pub struct Write {
    pub key: String,
    pub op: Op,
    pub expect: Precondition,
    pub durability: Durability,
    /// The entry is deleted after this time (embedded: an expiry is a write like any other).
    pub ttl: Option<Duration>,
    /// The cause of the write, stored in the log record and not in the value; opaque here.
    pub cause: Vec<u8>,
}

/// One change, as watchers receive it.
#[derive(Debug, Clone)]
pub struct Event {
    pub revision: Revision,
    pub key: Box<str>,
    /// None for a deletion.
    pub entry: Option<Arc<Entry>>,
    pub previous: Option<Arc<Entry>>,
}

/// The result of one write of a transaction.
#[derive(Debug, Clone)]
pub struct Committed {
    pub revision: Revision,
    pub entry: Option<Arc<Entry>>,
    pub previous: Option<Arc<Entry>>,
}

/// Keys from `start` (inclusive) to `end` (exclusive; empty for no end), in byte order.
#[derive(Debug, Clone, Default)]
pub struct Range {
    pub start: String,
    pub end: String,
    /// 0 for the newest.
    pub revision: Revision,
    /// 0 for no limit.
    pub limit: usize,
}

/// A part of a range.
#[derive(Debug, Clone)]
pub struct Page {
    pub entries: Vec<Arc<Entry>>,
    /// The revision of the page.
    pub revision: Revision,
    /// The number of keys after the last entry.
    pub remaining: u64,
}

/// Receives every change in order, before its writer is acknowledged: the server's watch cache. Called from one
/// thread; must not block. After `publish` returns, reads must see the events.
pub trait Sink: Send + Sync + 'static {
    fn publish(&self, events: &[Event]);
    /// Nothing at or below this revision will be published any more.
    fn progress(&self, revision: Revision);
}

/// An item of a watch.
#[derive(Debug, Clone)]
pub enum WatchResponse {
    Events(Vec<Event>),
    Progress(Revision),
}

/// A watch over a prefix. `next` waits; an `Err` ends it (`Error::Compacted`, `Error::Lagging`, ...).
pub trait Watch: Send {
    fn next(&mut self) -> BoxFuture<'_, Result<WatchResponse>>;
}

/// A store with revisions: every engine implements it.
pub trait Store: Send + Sync + 'static {
    /// The newest revision that readers may see.
    fn revision(&self) -> BoxFuture<'_, Result<Revision>>;
    /// Nothing older than this can be read or watched.
    fn compacted(&self) -> Revision;
    /// All entries and their revision, for initializing a cache. The sink gets every event above that revision. Some
    /// may arrive before this resolves: those at or below the revision are already in the entries, those above must
    /// be kept and applied.
    fn load(&self) -> BoxFuture<'_, Result<(Vec<Arc<Entry>>, Revision)>>;
    /// A consistent read: never older than any acknowledged write.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Arc<Entry>>>>;
    fn range(&self, range: Range) -> BoxFuture<'_, Result<Page>>;
    /// Commits all writes, with contiguous revisions (etcd: one revision for all), or none. Resolves after the sink
    /// has published them. The first failed expectation returns `Error::Conflict` with the current entry.
    fn commit(&self, writes: Vec<Write>) -> BoxFuture<'_, Result<Vec<Committed>>>;
    /// Events with a revision above `after`, of keys with this prefix.
    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>>;
    /// Drops history up to and including `revision`; the newest entry of every key stays.
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<()>>;
    /// The past versions of a key, as far as they are kept. Expiring entries have none, and of relaxed writes only some
    /// are kept.
    fn versions(&self, query: VersionQuery) -> BoxFuture<'_, Result<Versions>>;
    /// Like `range` at a revision, as long ago as versions are kept.
    fn past_range(&self, range: Range) -> BoxFuture<'_, Result<Page>>;
    /// The newest revision that was written until a time since the Unix epoch; `Error::Compacted` if that is before
    /// every version that is kept.
    fn revision_at(&self, time: Duration) -> BoxFuture<'_, Result<Revision>>;
    /// Writes the state of one revision to a checksummed file for the engine's `restore`.
    fn snapshot<'a>(&'a self, path: &'a std::path::Path) -> BoxFuture<'a, Result<Revision>>;
    /// Bytes written to disk since the store was opened; 0 if unknown.
    fn bytes_written(&self) -> u64;
    /// Flushes relaxed writes and stops; later calls return `Error::Closed`.
    fn close(&self) -> BoxFuture<'_, Result<()>>;
}
