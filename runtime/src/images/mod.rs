//! The image store: pulls, imports and builds images, stores them by digest, and provides snapshots for containers.
//!
//! [`Images`] is its only interface. It does not mount anything: it returns the directories of an overlay, which the
//! container's init process mounts in the container's mount namespace.

pub mod archive;
mod build;
pub mod cli;
mod demo;
mod digest;
mod elf;
mod error;
mod gc;
pub mod layer;
mod manifest;
pub mod progress;
mod pull;
mod records;
mod reference;
pub(crate) mod registry;
mod snapshot;
mod store;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stdx::sync::RwLock;
use tokio::sync::Semaphore;

pub use demo::NAME as DEMO_IMAGE;
pub use digest::Digest;
pub use error::{Error, Result};
pub use layer::{Limits, Usage};
pub use manifest::{Config, Platform};
pub use progress::{NoProgress, Progress};
pub use reference::Reference;
pub use registry::auth::Credentials;
pub use registry::http::Timeouts;
pub use registry::proxy::Proxies;
pub use snapshot::Rootfs;

use records::{Index, Record};
use store::Store;

/// An image in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The digest of its configuration.
    pub id: String,
    pub repo_tags: Vec<String>,
    pub repo_digests: Vec<String>,
    /// The bytes that a pull transfers.
    pub size: u64,
    pub config: Config,
    /// Whether garbage collection keeps it.
    pub pinned: bool,
    /// The chain IDs of its layers, lowest first.
    pub chain: Vec<Digest>,
}

/// The configuration of the image store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directories of registry host configurations and certificates; the first one that has a registry wins.
    pub hosts: Vec<PathBuf>,
    pub limits: Limits,
    pub timeouts: Timeouts,
    pub proxies: Proxies,
    /// The number of layers of an image that are downloaded concurrently.
    pub parallel: usize,
    /// Whether blobs are kept after their layers are unpacked: needs twice the space, and allows to export images.
    pub keep_blobs: bool,
    pub platform: Platform,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            hosts: registry::hosts::DEFAULT_DIRECTORIES.iter().map(PathBuf::from).collect(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            proxies: Proxies::from_environment(),
            parallel: 4,
            keep_blobs: true,
            platform: Platform::host(),
        }
    }
}

/// The images of one store. Cheap to clone; other processes may use the same store.
#[derive(Clone)]
pub struct Images {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<Store>,
    options: Options,
    known: RwLock<Arc<CachedIndex>>,
    /// Transfers in progress, so that a blob is not downloaded twice at the same time.
    in_flight: pull::InFlight,
    /// Limits concurrent unpacking to the number of processors.
    unpacking: Arc<Semaphore>,
}

/// The cached index.
#[derive(Default)]
struct CachedIndex {
    stamp: Option<FileVersion>,
    index: Index,
    images: BTreeMap<Digest, Arc<Image>>,
}

/// Identifies a version of the index file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileVersion(u64, i64, i64, u64);

impl Images {
    /// Opens the store in a directory, and removes what was unfinished when it was last used.
    pub fn open(root: &Path, options: Options) -> Result<Images> {
        let store = Arc::new(Store::open(root)?);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let inner = Inner {
            store,
            options,
            known: RwLock::default(),
            in_flight: pull::InFlight::default(),
            unpacking: Arc::new(Semaphore::new(processors)),
        };
        let images = Images { inner: Arc::new(inner) };
        images.remove_broken_images()?;
        images.collect_garbage()?;
        Ok(images)
    }

    /// The directory of the store.
    pub fn root(&self) -> &Path {
        self.inner.store.root()
    }

    /// Finds an image by tag, digest, ID, or a unique prefix of its ID.
    pub fn get(&self, reference_or_id: &str) -> Option<Arc<Image>> {
        if demo::is_demo(reference_or_id) {
            return self
                .demo()
                .map_err(|error| tracing::warn!(error = error.chain(), "failed to build the demo image"))
                .ok();
        }
        self.find(reference_or_id).ok().flatten()
    }

    fn find(&self, text: &str) -> Result<Option<Arc<Image>>> {
        let known = self.known()?;
        Ok(known.index.resolve(text)?.and_then(|id| known.images.get(id).cloned()))
    }

    fn require(&self, text: &str) -> Result<Arc<Image>> {
        self.find(text)?.ok_or_else(|| Error::NotFound(text.to_owned()))
    }

    /// All images.
    pub fn list(&self) -> Vec<Arc<Image>> {
        self.known().map(|known| known.images.values().cloned().collect()).unwrap_or_default()
    }

    /// Pulls an image and returns its ID.
    pub async fn pull(&self, reference: &str, auth: Option<Credentials>, progress: &dyn Progress) -> Result<String> {
        if demo::is_demo(reference) {
            let images = self.clone();
            return blocking(move || images.demo()).await.map(|image| image.id.clone());
        }
        let reference = Reference::parse(reference)?;
        let pulled = pull::pull(self, &reference, auth, progress).await;
        if matches!(&pulled, Err(Error::DiskFull { .. })) {
            // A retry could use the layers that were already downloaded, but there is no space to keep them.
            self.collect_garbage_later().await;
        }
        pulled.map(String::from)
    }

    /// Removes an image with all its names. It is not an error if the image does not exist.
    pub async fn remove(&self, reference_or_id: &str) -> Result<()> {
        let Some(image) = self.find(reference_or_id)? else { return Ok(()) };
        let id = Digest::parse(&image.id).map_err(|_| Error::NotFound(image.id.clone()))?;
        self.change(|index| index.remove(&id))?;
        self.collect_garbage_later().await;
        Ok(())
    }

    /// Pins or unpins an image. Garbage collection keeps pinned images.
    pub fn pin(&self, reference_or_id: &str, pinned: bool) -> Result<()> {
        let image = self.require(reference_or_id)?;
        self.change(|index| {
            let records = index.images.iter_mut().filter(|(id, _)| id.as_str() == image.id);
            records.for_each(|(_, record)| record.pinned = pinned);
        })
    }

    /// Removes unused images, tagged ones only if `tagged` is set, and returns their IDs.
    pub async fn prune(&self, tagged: bool) -> Result<Vec<String>> {
        let used = self.used()?;
        let mut removed = Vec::new();
        self.change(|index| {
            removed = index.unused(&used, tagged);
            removed.iter().for_each(|id| index.remove(id));
        })?;
        self.collect_garbage_later().await;
        Ok(removed.into_iter().map(String::from).collect())
    }

    async fn collect_garbage_later(&self) {
        let images = self.clone();
        if let Err(error) = blocking(move || images.collect_garbage()).await {
            tracing::warn!(error = error.chain(), "image garbage collection failed");
        }
    }

    /// The index, read again if another process has changed it.
    fn known(&self) -> Result<Arc<CachedIndex>> {
        let path = self.root().join("index.json");
        let stamp = stamp(&path)?;
        let known = self.inner.known.read().clone();
        if known.stamp == stamp {
            return Ok(known);
        }
        let index = read_index(&path)?;
        let known = Arc::new(CachedIndex { stamp, images: index.all(), index });
        *self.inner.known.write() = known.clone();
        Ok(known)
    }

    /// Changes the current version of the index, under a lock.
    fn change(&self, change: impl FnOnce(&mut Index)) -> Result<()> {
        let _lock = self.inner.store.lock()?;
        let path = self.root().join("index.json");
        let mut index = read_index(&path)?;
        change(&mut index);
        store::replace(&self.inner.store, &path, &store::to_json(&index))
    }

    fn add(&self, id: &Digest, record: Record, names: Vec<String>) -> Result<()> {
        self.change(|index| index.add(id.clone(), record, names))
    }

    /// Removes images whose layers did not survive a power failure.
    fn remove_broken_images(&self) -> Result<()> {
        let store = &self.inner.store;
        let known = self.known()?;
        let whole = |record: &Record| record.chain.iter().all(|chain| store.has_layer(chain));
        let broken: Vec<Digest> =
            known.index.images.iter().filter(|(_, record)| !whole(record)).map(|(id, _)| id.clone()).collect();
        if broken.is_empty() {
            return Ok(());
        }
        self.change(|index| broken.iter().for_each(|id| index.remove(id)))
    }
}

fn stamp(path: &Path) -> Result<Option<FileVersion>> {
    use std::os::unix::fs::MetadataExt;
    match std::fs::metadata(path) {
        Ok(meta) => Ok(Some(FileVersion(meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.len()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::at(path)(error)),
    }
}

fn read_index(path: &Path) -> Result<Index> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| Error::at(path)(error.into())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Index::default()),
        Err(error) => Err(Error::at(path)(error)),
    }
}

/// Runs blocking work outside of the async worker threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::Cancelled)?
}
