//! The embedded engine: every read is served from memory, every write goes to an append-only log, and all pending
//! writes are made durable with one sync.

mod archive;
mod batch;
mod compaction;
mod expiries;
mod files;
mod format;
mod inline;
mod load;
mod log;
pub mod offline;
mod past;
mod plan;
mod queue;
mod scan;
mod state;
mod writer;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use stdx::sync::Mutex;
use tokio::sync::{Semaphore, oneshot};

use crate::disk::{Disk, RealDisk};
use crate::entries::Entries;
use crate::feed::Feed;
use crate::history::HistoryLimits;
use crate::{
    BoxFuture, Committed, Entry, Error, Page, Range, Result, Revision, Sink, Store, VersionQuery, Versions, Watch,
    Write,
};
use stdx::clock::{Clock, SystemClock};

pub use archive::Retention;
pub use format::Record;
pub use load::{check_and_copy, history};
pub(crate) use plan::{is_satisfied, refuse_duplicates};

/// Terminates the process with a reason. Replaced in tests.
pub(crate) type Fatal = Arc<dyn Fn(&str) + Send + Sync>;

/// The configuration of the embedded engine.
#[derive(Clone)]
pub struct Config {
    pub dir: PathBuf,
    /// The maximum size of a log segment.
    pub segment_bytes: u64,
    /// The allocation step of log segments.
    pub allocate_bytes: u64,
    /// A log below this size is never compacted.
    pub compact_bytes: u64,
    pub history: HistoryLimits,
    /// How much of the past is kept after the log was compacted.
    pub retention: Retention,
    /// The maximum delay of a relaxed write before it is on disk.
    pub relaxed_delay: Duration,
    /// The number of revisions that relaxed writes may use before another reservation must be on disk.
    pub reserve: u64,
    pub max_value_bytes: usize,
    /// The progress interval of a watch without events.
    pub progress_interval: Duration,
    pub clock: Arc<dyn Clock>,
    pub fatal: Fatal,
    /// How the writer runs.
    pub writer_mode: WriterMode,
}

/// The threads that write batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterMode {
    /// On its own thread, for real disks.
    Thread,
    /// In the calling threads, before each call returns: nothing happens behind a simulated clock, and runs are
    /// reproducible. For disks that never block.
    Inline,
}

impl Config {
    /// The defaults for a store in a directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            segment_bytes: 64 << 20,
            allocate_bytes: 4 << 20,
            compact_bytes: 16 << 20,
            history: HistoryLimits::default(),
            retention: Retention::default(),
            relaxed_delay: Duration::from_secs(1),
            reserve: 10_000,
            max_value_bytes: 8 << 20,
            progress_interval: Duration::from_secs(5),
            clock: Arc::new(SystemClock),
            fatal: Arc::new(abort),
            writer_mode: WriterMode::Thread,
        }
    }
}

fn abort(reason: &str) {
    tracing::error!("{reason}");
    // The log may no longer be written; standard error is.
    eprintln!("{reason}");
    std::process::abort();
}

/// Opens the store in `config.dir`, creating it if needed. Blocks while it reads the log.
pub fn open(config: Config, disk: Arc<dyn Disk>, sink: Arc<dyn Sink>) -> Result<EmbeddedStore> {
    EmbeddedStore::open(config, disk, sink)
}

/// Opens the store in a directory of the local file system.
pub fn open_dir(dir: impl Into<PathBuf>, sink: Arc<dyn Sink>) -> Result<EmbeddedStore> {
    EmbeddedStore::open(Config::new(dir), Arc::new(RealDisk), sink)
}

/// Creates a data directory from a snapshot; it must not contain a store. Returns the initial revision, which is far
/// above every revision after the snapshot.
pub fn restore(snapshot: &Path, dir: &Path) -> Result<Revision> {
    state::restore(snapshot, dir, &RealDisk)
}

/// An open store. Dropping it closes it.
pub struct EmbeddedStore {
    queue: Arc<queue::Queue>,
    feed: Arc<Feed>,
    written: Arc<AtomicU64>,
    archive: Arc<archive::Archive>,
    /// Readers of the past read one after the other: waiting ones must not take threads that block.
    readers: Arc<Semaphore>,
    /// One of the two is set.
    thread: Mutex<Option<JoinHandle<()>>>,
    inline: Option<Arc<inline::Inline>>,
}

impl EmbeddedStore {
    fn open(config: Config, disk: Arc<dyn Disk>, sink: Arc<dyn Sink>) -> Result<Self> {
        let dir = &config.dir;
        disk.create_dir(dir).map_err(|error| files::failed("create", dir, error))?;
        let lock = files::lock(&*disk, dir)?;
        let listing = files::list(&*disk, dir)?;
        let id = files::identity(&*disk, dir, &listing)?;
        let loaded = load::load(&*disk, dir, id, &listing, config.history)?;
        load::remove_remains(&*disk, dir, &listing, &loaded.end)?;
        let log = log::Log::new(disk, dir.clone(), id, &loaded.end, &config);
        Self::start(config, log, loaded, lock, sink)
    }

    fn start(
        config: Config,
        log: log::Log,
        loaded: load::LoadedStore,
        lock: Box<dyn Send + Sync>,
        sink: Arc<dyn Sink>,
    ) -> Result<Self> {
        let load::LoadedStore { entries, history, revision, .. } = loaded;
        let queue = Arc::new(queue::Queue::default());
        let feed = Feed::new(entries.clone(), revision, history, config.progress_interval);
        let written = log.written.clone();
        let archive = Arc::new(archive::Archive::of(&log, &config));
        archive.prune()?;
        let clock = config.clock.clone();
        let writer_mode = config.writer_mode;
        let writer = writer::Writer {
            queue: queue.clone(),
            feed: feed.clone(),
            sink,
            log,
            builder: format::Builder::new(),
            expiries: expiries::Expiries::of(&entries),
            live_bytes: entries.iter().map(|entry| format::record_size(entry)).sum(),
            head: plan::Head { entries, revision },
            waiting: VecDeque::new(),
            flush_at: None,
            refused: None,
            broken: None,
            compaction: None,
            archive: archive.clone(),
            compact_above: config.compact_bytes,
            lock,
            config,
        };
        let mut store = Self {
            queue,
            feed,
            written,
            archive,
            readers: Arc::new(Semaphore::new(1)),
            thread: Mutex::default(),
            inline: None,
        };
        match writer_mode {
            WriterMode::Inline => store.inline = Some(inline::Inline::start(writer, &clock)),
            WriterMode::Thread => store.thread = Mutex::new(Some(spawn(writer, &clock)?)),
        }
        Ok(store)
    }

    fn push(&self, request: queue::Request) -> Result<()> {
        self.queue.push(request)?;
        if let Some(inline) = &self.inline {
            inline.run_pending();
        }
        Ok(())
    }

    /// The current entries and revision, without copying.
    pub fn state(&self) -> (Entries, Revision) {
        self.feed.state()
    }

    /// Reads the past on a thread that may block.
    fn read_past<T: Send + 'static>(
        &self,
        read: impl FnOnce(&archive::Archive) -> Result<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        let (is_closed, archive, readers) = (self.feed.is_closed(), self.archive.clone(), self.readers.clone());
        Box::pin(async move {
            if is_closed {
                return Err(Error::Closed);
            }
            if !archive.retention.is_on() {
                return Err(Error::NoHistory);
            }
            let _permit = readers.acquire_owned().await.map_err(|_| Error::Closed)?;
            tokio::task::spawn_blocking(move || read(&archive)).await.map_err(|_| Error::Closed)?
        })
    }

    fn open_or_closed<T>(&self, read: impl FnOnce(&Feed) -> Result<T>) -> Result<T> {
        if self.feed.is_closed() { Err(Error::Closed) } else { read(&self.feed) }
    }
}

fn spawn(writer: writer::Writer, clock: &Arc<dyn Clock>) -> Result<JoinHandle<()>> {
    let queue = writer.queue.clone();
    clock.on_advance(Arc::new(move || queue.wake_writer()));
    let thread = std::thread::Builder::new().name("store-writer".to_owned());
    let thread = thread.spawn(move || writer.run());
    thread.map_err(|source| Error::Io { what: "cannot start the store thread".to_owned(), source })
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        // The queue may already be closed.
        let _ = self.push(queue::Request::Close(None));
        let thread = self.thread.lock().take();
        // The writer itself may drop the last reference through its sink: it cannot join itself.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

fn ready<T: Send + 'static>(value: T) -> BoxFuture<'static, T> {
    Box::pin(std::future::ready(value))
}

impl Store for EmbeddedStore {
    fn revision(&self) -> BoxFuture<'_, Result<Revision>> {
        ready(self.open_or_closed(|feed| Ok(feed.revision())))
    }

    fn compacted(&self) -> Revision {
        self.feed.compacted()
    }

    fn load(&self) -> BoxFuture<'_, Result<(Vec<Arc<Entry>>, Revision)>> {
        ready(self.open_or_closed(|feed| {
            let (entries, revision) = feed.state();
            Ok((entries.iter().cloned().collect(), revision))
        }))
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Arc<Entry>>>> {
        ready(self.open_or_closed(|feed| Ok(feed.get(key))))
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<Page>> {
        ready(self.open_or_closed(|feed| feed.range(&range)))
    }

    fn commit(&self, writes: Vec<Write>) -> BoxFuture<'_, Result<Vec<Committed>>> {
        let (reply, answer) = oneshot::channel();
        let pushed = self.push(queue::Request::Commit { writes, reply });
        Box::pin(async move {
            pushed?;
            answer.await.map_err(|_| Error::Closed)?
        })
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>> {
        self.feed.watch(prefix, after)
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<()>> {
        let compacted = self.open_or_closed(|feed| feed.compact(revision));
        if !self.archive.retention.is_on() {
            return ready(compacted);
        }
        // Compaction by time is the occasion to remove what has become too old.
        self.read_past(move |archive| compacted.and_then(|()| archive.prune()))
    }

    fn versions(&self, query: VersionQuery) -> BoxFuture<'_, Result<Versions>> {
        self.read_past(move |archive| archive.versions(&query))
    }

    fn past_range(&self, range: Range) -> BoxFuture<'_, Result<Page>> {
        match self.open_or_closed(|feed| feed.range(&range)) {
            Err(Error::Compacted { .. }) => {
                let now = self.feed.state().0;
                self.read_past(move |archive| archive.range(&range, &now))
            }
            result => ready(result),
        }
    }

    fn revision_at(&self, time: Duration) -> BoxFuture<'_, Result<Revision>> {
        self.read_past(move |archive| archive.revision_at(time))
    }

    fn snapshot<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Revision>> {
        let state = self.open_or_closed(|feed| Ok(feed.state()));
        let path = path.to_owned();
        Box::pin(async move {
            let (entries, revision) = state?;
            let write = tokio::task::spawn_blocking(move || state::snapshot(&path, &entries, revision));
            write.await.map_err(|_| Error::Closed)?
        })
    }

    fn bytes_written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        let (reply, answer) = oneshot::channel();
        let pushed = self.push(queue::Request::Close(Some(reply)));
        Box::pin(async move {
            pushed?;
            answer.await.map_err(|_| Error::Closed)?
        })
    }
}
