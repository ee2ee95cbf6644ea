//! The watch cache: every stored object of a resource in memory, as bytes, with the recent changes. It receives each
//! change from the store before the writer gets its response: a client reads its own writes here. Lists hold a
//! snapshot; watchers hold a cursor into one ring.

mod chunk_cache;
mod decoded;
mod item;
mod ring;
mod view;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use imbl::OrdMap;
use stdx::sync::{Mutex, RwLock};
use tokio::sync::{Notify, watch};

pub(crate) use chunk_cache::ChunkKey;
pub(crate) use decoded::DecodedCache;
pub use item::{Item, Selection};
pub(crate) use ring::Ring;
pub use ring::{Change, Format, RingRead};
pub(crate) use view::{DerivedState, View};

/// The objects of a resource by their keys; clones share their content.
pub type Map = OrdMap<Arc<str>, Arc<Item>>;

/// A resource's objects at one revision.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub map: Map,
    pub revision: u64,
}

/// The cache of one storage path, such as `pods` or `services/specs`.
pub struct Cache {
    state: RwLock<Snapshot>,
    ring: Mutex<Ring>,
    chunks: Mutex<chunk_cache::ChunkCache>,
    /// Older snapshots that pages of a list still read, newest last.
    held: Mutex<Vec<Snapshot>>,
    /// Notified at each publication; a separate task then wakes the watchers, not the writer.
    dirty: Notify,
    wake: watch::Sender<u64>,
    global: Arc<AtomicU64>,
    /// Older revisions cannot be read any more.
    compacted: Arc<AtomicU64>,
    /// The ring's end, for readers that only check for changes.
    end: AtomicU64,
    /// Whether the writer wakes the watchers itself: caches of custom resources are created and removed, and have no
    /// task.
    wakes_directly: bool,
}

/// The number of snapshots that are kept for paginated lists.
const HELD_SNAPSHOTS: usize = 8;

impl Cache {
    fn new(global: Arc<AtomicU64>, compacted: Arc<AtomicU64>, revision: u64, history_bytes: usize) -> Cache {
        Cache {
            state: RwLock::new(Snapshot { map: Map::new(), revision }),
            ring: Mutex::new(Ring::new(revision, history_bytes)),
            chunks: Mutex::default(),
            held: Mutex::new(Vec::new()),
            dirty: Notify::new(),
            wake: watch::Sender::new(revision),
            global,
            compacted,
            end: AtomicU64::new(0),
            wakes_directly: false,
        }
    }

    /// The object with this key.
    pub fn get(&self, key: &str) -> Option<Arc<Item>> {
        self.state.read().map.get(key).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.state.read().map.len()
    }

    /// The objects of a namespace, or all if it is "", in the order of their keys.
    pub(crate) fn items_in(&self, namespace: &str) -> Vec<Arc<Item>> {
        let map = self.state.read().map.clone();
        if namespace.is_empty() {
            return map.values().cloned().collect();
        }
        let prefix = format!("{namespace}/");
        let from: Arc<str> = Arc::from(prefix.as_str());
        let found = map.range(from..).map(|(key, item)| (key, item.clone()));
        found.take_while(|(key, _)| key.starts_with(&prefix)).map(|(_, item)| item).collect()
    }

    /// The revision of the last change to these objects; derived values are valid as long as it does not change.
    pub(crate) fn changed(&self) -> u64 {
        self.state.read().revision
    }

    /// All objects, with the newest revision for which they are complete. The global revision is read first: the map
    /// contains all changes up to it.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let global = self.global.load(Ordering::Acquire);
        let mut snapshot = self.state.read().clone();
        snapshot.revision = snapshot.revision.max(global);
        snapshot
    }

    /// Keeps a snapshot for the next page of a list.
    pub(crate) fn hold(&self, snapshot: &Snapshot) {
        let mut held = self.held.lock();
        if held.iter().any(|other| other.revision == snapshot.revision) {
            return;
        }
        if held.len() >= HELD_SNAPSHOTS {
            held.remove(0);
        }
        held.push(snapshot.clone());
    }

    /// The objects at a revision, or None if that is no longer known.
    pub(crate) fn snapshot_at(&self, revision: u64) -> Option<Snapshot> {
        if revision < self.compacted.load(Ordering::Acquire) {
            return None;
        }
        if let Some(snapshot) = self.held.lock().iter().find(|snapshot| snapshot.revision == revision) {
            return Some(snapshot.clone());
        }
        let ring = self.ring.lock();
        if revision < ring.floor() {
            return None;
        }
        let mut map = self.state.read().map.clone();
        ring.undo(&mut map, revision);
        Some(Snapshot { map, revision })
    }

    /// The oldest revision from which a watch can start.
    pub(crate) fn floor(&self) -> u64 {
        self.ring.lock().floor()
    }

    /// The cursor of the next change.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Changes above a revision.
    pub(crate) fn cursor(&self, after: u64) -> Option<u64> {
        self.ring.lock().cursor(after)
    }

    /// The changes at a cursor, up to about `budget` bytes.
    pub(crate) fn read(&self, cursor: u64, budget: usize) -> RingRead {
        self.ring.lock().read(cursor, budget)
    }

    /// The chunk at a position and the cursor after it. `make` joins it if it is not cached; concurrent callers wait
    /// for it.
    pub(crate) fn joined(
        &self,
        place: ChunkKey<'_>,
        make: impl FnOnce() -> Option<(Bytes, u64)>,
    ) -> Option<(Bytes, u64)> {
        let mut joined = self.chunks.lock();
        if let Some(found) = joined.find(place) {
            return Some(found);
        }
        let (bytes, next) = make()?;
        joined.keep(place, bytes.clone(), next);
        Some((bytes, next))
    }

    /// A snapshot, and the cursor of the first change that is not in it.
    pub(crate) fn snapshot_and_cursor(&self) -> (Snapshot, u64) {
        let ring = self.ring.lock();
        (self.snapshot(), ring.end())
    }

    pub(crate) fn global_revision(&self) -> u64 {
        self.global.load(Ordering::Acquire)
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.wake.subscribe()
    }

    fn load(&self, items: impl Iterator<Item = Item>) {
        let mut state = self.state.write();
        for item in items {
            state.map.insert(item.key.clone(), Arc::new(item));
        }
    }

    /// The ring's lock is held over both: a snapshot and its cursor must match.
    fn publish(&self, versions: &[Version<'_>]) {
        let mut ring = self.ring.lock();
        let mut state = self.state.write();
        for version in versions {
            let old = match &version.item {
                Some(item) => state.map.insert(item.key.clone(), item.clone()),
                None => state.map.remove(version.key),
            };
            let Some(change) = Change::new(version.revision, old, version.item.clone()) else { continue };
            state.revision = change.revision;
            ring.push(Arc::new(change));
        }
        self.end.store(ring.end(), Ordering::Release);
        drop(state);
        drop(ring);
        if self.wakes_directly {
            self.wake_all();
        } else {
            self.dirty.notify_one();
        }
    }

    /// Wakes the watchers without a change.
    pub(crate) fn wake_all(&self) {
        self.wake.send_modify(|_| ());
    }

    /// Wakes the watchers after each publication, as long as the cache exists.
    pub(crate) async fn wake_watchers(self: Arc<Cache>) {
        loop {
            self.dirty.notified().await;
            self.wake.send_replace(self.global.load(Ordering::Acquire));
        }
    }
}

/// The caches of all resources, by storage path. The store publishes here.
pub struct Caches {
    prefix: String,
    by_path: HashMap<String, Arc<Cache>>,
    /// The caches of custom resources, created on first use.
    custom: RwLock<HashMap<String, Arc<Cache>>>,
    global: Arc<AtomicU64>,
    compacted: Arc<AtomicU64>,
    /// Changes that are published before the caches are filled; None once they are.
    early: Mutex<Option<Vec<store::Event>>>,
    /// Notified after every publication, for requests that wait for a revision.
    moved: Notify,
    /// Converts a value that another server wrote (etcd) into the served form.
    adopt: fn(&store::Entry) -> Option<bytes::Bytes>,
}

/// The history that a resource keeps for resumed watches, in bytes.
pub(crate) const HISTORY_BYTES: usize = 16 << 20;

impl Caches {
    /// `prefix` is the store's, such as `/registry`; `adopt` reads values of a shared store.
    pub fn new(
        prefix: &str,
        paths: impl Iterator<Item = String>,
        adopt: fn(&store::Entry) -> Option<bytes::Bytes>,
    ) -> Caches {
        let global = Arc::new(AtomicU64::new(0));
        let compacted = Arc::new(AtomicU64::new(0));
        let cache = || Arc::new(Cache::new(global.clone(), compacted.clone(), 0, HISTORY_BYTES));
        let by_path = paths.map(|path| (path, cache())).collect();
        Caches {
            prefix: format!("{}/", prefix.trim_end_matches('/')),
            by_path,
            custom: RwLock::default(),
            global,
            compacted,
            early: Mutex::new(Some(Vec::new())),
            moved: Notify::new(),
            adopt,
        }
    }

    /// The cache of a storage path, such as `secrets`.
    pub fn get(&self, path: &str) -> Option<Arc<Cache>> {
        self.by_path.get(path).cloned()
    }

    /// The caches of built-in kinds.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &Arc<Cache>)> {
        self.by_path.iter().map(|(path, cache)| (path.as_str(), cache))
    }

    /// The cache of a custom resource, `GROUP/PLURAL`; created if missing.
    pub(crate) fn custom(&self, path: &str) -> Arc<Cache> {
        if let Some(cache) = self.custom.read().get(path) {
            return cache.clone();
        }
        let mut custom = self.custom.write();
        if custom.len().is_power_of_two() {
            // Drops the caches of deleted definitions: they are empty, and no resource uses them.
            custom.retain(|_, cache| Arc::strong_count(cache) > 1 || cache.len() > 0);
        }
        let create = || {
            let cache = Cache::new(self.global.clone(), self.compacted.clone(), self.revision(), HISTORY_BYTES);
            Arc::new(Cache { wakes_directly: true, ..cache })
        };
        custom.entry(path.to_string()).or_insert_with(create).clone()
    }

    /// Wakes the watchers of all resources without a change.
    pub(crate) fn wake_all(&self) {
        self.by_path.values().for_each(|cache| cache.wake_all());
        self.custom.read().values().for_each(|cache| cache.wake_all());
    }

    /// The newest revision that all caches have applied.
    pub fn revision(&self) -> u64 {
        self.global.load(Ordering::Acquire)
    }

    /// Forgets how objects were before a revision; watches that resume go by the ring.
    pub(crate) fn compact(&self, revision: u64) {
        self.compacted.fetch_max(revision, Ordering::AcqRel);
        let custom: Vec<Arc<Cache>> = self.custom.read().values().cloned().collect();
        for cache in self.by_path.values().chain(&custom) {
            cache.held.lock().retain(|snapshot| snapshot.revision >= revision);
        }
    }

    /// Waits for publications until a condition is true; false once the deadline has passed.
    pub async fn until(&self, deadline: tokio::time::Instant, is_true: impl Fn() -> bool) -> bool {
        loop {
            // Subscribed before the condition is checked: a publication in between is not missed.
            let moved = self.moved.notified();
            if is_true() {
                return true;
            }
            if tokio::time::timeout_at(deadline, moved).await.is_err() {
                return false;
            }
        }
    }

    /// Splits a store key into its cache and the key inside it.
    fn locate<'a>(&self, key: &'a str) -> Option<(Arc<Cache>, &'a str)> {
        let rest = key.strip_prefix(&self.prefix)?;
        let mut end = 0;
        // A path has at most two steps: `pods`, `services/specs`, `GROUP/RESOURCE`.
        for _ in 0..2 {
            end += rest[end..].find('/')?;
            if let Some(cache) = self.by_path.get(&rest[..end]) {
                return Some((cache.clone(), &rest[end + 1..]));
            }
            end += 1;
        }
        // The group of a custom resource contains a dot, unlike any other unknown first step.
        let (path, key) = (&rest[..end - 1], &rest[end..]);
        path.split_once('/').filter(|(group, _)| group.contains('.'))?;
        Some((self.custom(path), key))
    }

    /// Fills the caches before the server serves requests.
    pub fn load(&self, entries: Vec<Arc<store::Entry>>, revision: u64) {
        let mut by_cache: HashMap<*const Cache, (Arc<Cache>, Vec<Item>)> = HashMap::new();
        for entry in entries {
            let Some((cache, key)) = self.locate(&entry.key) else { continue };
            let Some(item) = self.item(key, &entry) else { continue };
            by_cache.entry(Arc::as_ptr(&cache)).or_insert_with(|| (cache, Vec::new())).1.push(item);
        }
        for (cache, items) in by_cache.into_values() {
            cache.load(items.into_iter());
        }
        for cache in self.by_path.values().chain(self.custom.read().values()) {
            cache.start_at(revision);
        }
        self.global.store(revision, Ordering::Release);
        // The lock is held until the early events are applied: no later event can overtake them.
        let mut early = self.early.lock();
        let waiting: Vec<_> = early.take().unwrap_or_default();
        let newer: Vec<_> = waiting.into_iter().filter(|event| event.revision > revision).collect();
        self.apply(&newer);
    }

    /// Publishes consecutive events of one resource together.
    fn apply(&self, events: &[store::Event]) {
        let mut run: Option<(Arc<Cache>, Vec<Version<'_>>)> = None;
        for event in events {
            let Some((cache, key)) = self.locate(&event.key) else { continue };
            let Some(version) = self.version(key, event) else { continue };
            match &mut run {
                Some((current, versions)) if Arc::ptr_eq(current, &cache) => versions.push(version),
                _ => publish_run(run.replace((cache, vec![version]))),
            }
        }
        publish_run(run);
        if let Some(last) = events.last() {
            self.global.fetch_max(last.revision, Ordering::AcqRel);
            self.moved.notify_waiters();
        }
    }

    fn item(&self, key: &str, entry: &store::Entry) -> Option<Item> {
        let bytes = (self.adopt)(entry)?;
        Some(Item::new(key, entry.revision, bytes))
    }

    /// None for a value that cannot be read.
    fn version<'a>(&self, key: &'a str, event: &store::Event) -> Option<Version<'a>> {
        let item = match &event.entry {
            Some(entry) => Some(Arc::new(self.item(key, entry)?)),
            None => None,
        };
        Some(Version { key, revision: event.revision, item })
    }
}

/// The value of a key since a revision.
struct Version<'a> {
    key: &'a str,
    revision: u64,
    /// None if the object is deleted.
    item: Option<Arc<Item>>,
}

fn publish_run(run: Option<(Arc<Cache>, Vec<Version<'_>>)>) {
    if let Some((cache, versions)) = run {
        cache.publish(&versions);
    }
}

impl Cache {
    fn start_at(&self, revision: u64) {
        self.ring.lock().restart(revision);
        self.state.write().revision = revision;
    }
}

impl store::Sink for Caches {
    fn publish(&self, events: &[store::Event]) {
        let mut early = self.early.lock();
        match &mut *early {
            Some(waiting) => waiting.extend_from_slice(events),
            None => {
                drop(early);
                self.apply(events);
            }
        }
    }

    fn progress(&self, revision: u64) {
        self.global.fetch_max(revision, Ordering::AcqRel);
        self.moved.notify_waiters();
    }
}
