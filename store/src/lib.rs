//! Revisions, ranges, compare-and-swap, watch, compaction and snapshots over keys and bytes.
//! One interface, three engines: an append log of our own (default), memory (tests) and etcd v3.
//! This crate must not know Kubernetes: a value is bytes with at most one hole for its revision.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub mod disk;
pub mod embedded;
mod entries;
pub mod error;
pub mod etcd;
mod feed;
mod history;
pub mod memory;

pub use entries::Entries;
pub use error::Error;
pub use history::HistoryLimits;

/// Grows by at least one with every write; never goes back, never repeats. 0 is "before everything".
pub type Revision = u64;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A future behind a pointer, so that `Store` can be a trait object.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A stored value. Immutable: a new write is a new entry, and everyone who holds one shares its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: Box<str>,
    /// The value with its revision filled into the hole (embedded, memory), or as another server
    /// wrote it (etcd).
    pub value: Bytes,
    /// The write that made this entry.
    pub revision: Revision,
    /// When the entry expires, in seconds since the Unix epoch; 0 for never.
    pub expires: u64,
}

/// A value that is still to be written: the engine's writer puts the revision, in decimal, at `hole`.
#[derive(Debug, Clone)]
pub struct Template {
    pub bytes: Vec<u8>,
    pub hole: Option<usize>,
}

#[derive(Debug, Clone)]
pub enum Op {
    Put(Template),
    Delete,
    /// Nothing is written: the expectation alone counts, in the same moment as the other writes.
    Check,
}

/// What must hold of the key for a write to be made; judged against the head, batches in flight included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Anything,
    Absent,
    /// The key exists and its last write has this revision.
    Revision(Revision),
}

/// Whether the writer waits for the disk. `Relaxed` is answered once it is in order and visible,
/// and reaches the disk with a later batch (within a second); etcd treats both alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Durable,
    Relaxed,
}

#[derive(Debug, Clone)]
pub struct Write {
    pub key: String,
    pub op: Op,
    pub expect: Expect,
    pub durability: Durability,
    /// The entry deletes itself after this time (embedded: an expiry is a write like any other).
    pub ttl: Option<Duration>,
    /// What caused the write, kept in the log record and not in the value; opaque here.
    pub cause: Vec<u8>,
}

/// One change, as every watcher sees it.
#[derive(Debug, Clone)]
pub struct Event {
    pub revision: Revision,
    pub key: Box<str>,
    /// None for a deletion.
    pub entry: Option<Arc<Entry>>,
    pub previous: Option<Arc<Entry>>,
}

/// The outcome of one write of a transaction.
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

#[derive(Debug, Clone)]
pub struct Page {
    pub entries: Vec<Arc<Entry>>,
    /// The revision that the page shows.
    pub revision: Revision,
    /// Keys of the range behind the last entry.
    pub remaining: u64,
}

/// Where every change goes, in order, before the writer that made it is answered: the server's watch
/// cache. Called from one thread; must not block. After `publish` returns, reads must see the events.
pub trait Sink: Send + Sync + 'static {
    fn publish(&self, events: &[Event]);
    /// Nothing below or at this revision will be published any more.
    fn progress(&self, revision: Revision);
}

/// What a watch yields.
#[derive(Debug, Clone)]
pub enum Notice {
    Events(Vec<Event>),
    Progress(Revision),
}

/// A watch over a prefix. `next` waits; an `Err` ends it (`Error::Compacted`, `Error::Lagging`, ...).
pub trait Watch: Send {
    fn next(&mut self) -> BoxFuture<'_, Result<Notice>>;
}

pub trait Store: Send + Sync + 'static {
    /// The newest revision that readers may see.
    fn revision(&self) -> BoxFuture<'_, Result<Revision>>;
    /// Nothing older than this can be read or watched.
    fn compacted(&self) -> Revision;
    /// Everything there is, and its revision, for a cache to start from. The sink gets every event
    /// above that revision. Some may come before this resolves: those at or below the revision are in
    /// the entries already, those above have to be kept and applied.
    fn load(&self) -> BoxFuture<'_, Result<(Vec<Arc<Entry>>, Revision)>>;
    /// A consistent read: never older than any acknowledged write of anyone.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Arc<Entry>>>>;
    fn range(&self, range: Range) -> BoxFuture<'_, Result<Page>>;
    /// All writes are made, with contiguous revisions (etcd: one revision for all), or none is.
    /// Resolves after the sink has published them. The first expectation that does not hold gives
    /// `Error::Conflict`, with the entry that is there.
    fn commit(&self, writes: Vec<Write>) -> BoxFuture<'_, Result<Vec<Committed>>>;
    /// Events with a revision above `after`, of keys with this prefix.
    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>>;
    /// Forgets history up to and including `revision`; the newest entry of every key stays.
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<()>>;
    /// Writes the state of one revision to a file, checksummed, which `restore` of the engine reads.
    fn snapshot<'a>(&'a self, path: &'a std::path::Path) -> BoxFuture<'a, Result<Revision>>;
    /// Bytes that the engine has written to disk since it was opened; 0 where it cannot know.
    fn bytes_written(&self) -> u64;
    /// Flushes what is relaxed and stops; later calls give `Error::Closed`.
    fn close(&self) -> BoxFuture<'_, Result<()>>;
}
