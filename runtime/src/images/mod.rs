//! Images: pulled, imported or made here, kept by their content, and stacked for containers.
//!
//! [`Images`] is all that the rest of the runtime sees. It mounts nothing: it hands out the directories of a stack, and
//! whoever runs a container stacks them in the container's own mount namespace.

pub mod archive;
pub mod build;
pub mod cli;
mod collect;
mod demo;
mod digest;
mod elf;
mod error;
pub mod layer;
pub mod manifest;
pub mod progress;
mod pull;
mod records;
mod reference;
pub mod registry;
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
pub use progress::{Progress, Silent};
pub use reference::Reference;
pub use registry::auth::Credentials;
pub use registry::http::Timeouts;
pub use registry::proxy::Proxies;
pub use snapshot::Rootfs;

use records::{Index, Record};
use store::Store;

/// An image that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The digest of its configuration.
    pub id: String,
    pub repo_tags: Vec<String>,
    pub repo_digests: Vec<String>,
    /// What of it was transferred, in bytes.
    pub size: u64,
    pub config: Config,
    /// Whether it stays when images are collected.
    pub pinned: bool,
    /// The names of its layers' stacks, lowest first.
    pub chain: Vec<Digest>,
}

#[derive(Debug, Clone)]
pub struct Options {
    /// Where registries' hosts and certificates are configured; the first directory that knows one wins.
    pub hosts: Vec<PathBuf>,
    pub limits: Limits,
    pub timeouts: Timeouts,
    pub proxies: Proxies,
    /// Layers of one image that are brought at once.
    pub parallel: usize,
    /// Whether blobs stay after their layers are unpacked: twice the disk, and images can be exported.
    pub keep_blobs: bool,
    pub platform: Platform,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            hosts: registry::hosts::DEFAULT_DIRECTORIES.iter().map(PathBuf::from).collect(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            proxies: Proxies::of_environment(),
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
    known: RwLock<Arc<Known>>,
    /// Who brings or unpacks what, so that nothing is done twice at once.
    flights: pull::Flights,
    /// Unpacking is work for processors, of which there are so many.
    unpacking: Arc<Semaphore>,
}

/// The index as it was last read.
#[derive(Default)]
struct Known {
    stamp: Option<Stamp>,
    index: Index,
    images: BTreeMap<Digest, Arc<Image>>,
}

/// Tells one version of the index file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp(u64, i64, i64, u64);

impl Images {
    /// Opens the images of a directory, and clears away what was not finished when it was last used.
    pub fn open(root: &Path, options: Options) -> Result<Images> {
        let store = Arc::new(Store::open(root)?);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let inner = Inner {
            store,
            options,
            known: RwLock::default(),
            flights: pull::Flights::default(),
            unpacking: Arc::new(Semaphore::new(processors)),
        };
        let images = Images { inner: Arc::new(inner) };
        images.forget_broken()?;
        images.collect()?;
        Ok(images)
    }

    /// The directory that everything is in.
    pub fn root(&self) -> &Path {
        self.inner.store.root()
    }

    /// An image by tag, by digest, by id, or by the beginning of its id.
    pub fn get(&self, reference_or_id: &str) -> Option<Arc<Image>> {
        if demo::is_meant(reference_or_id) {
            return self.demo().map_err(|error| tracing::warn!(error = error.chain(), "no demo image")).ok();
        }
        self.find(reference_or_id).ok().flatten()
    }

    fn find(&self, text: &str) -> Result<Option<Arc<Image>>> {
        let known = self.known()?;
        Ok(known.index.resolve(text)?.and_then(|id| known.images.get(id).cloned()))
    }

    fn need(&self, text: &str) -> Result<Arc<Image>> {
        self.find(text)?.ok_or_else(|| Error::NotFound(text.to_owned()))
    }

    pub fn list(&self) -> Vec<Arc<Image>> {
        self.known().map(|known| known.images.values().cloned().collect()).unwrap_or_default()
    }

    /// Brings an image here and answers with its id.
    pub async fn pull(&self, reference: &str, auth: Option<Credentials>, progress: &dyn Progress) -> Result<String> {
        if demo::is_meant(reference) {
            let images = self.clone();
            return blocking(move || images.demo()).await.map(|image| image.id.clone());
        }
        let reference = Reference::parse(reference)?;
        let pulled = pull::pull(self, &reference, auth, progress).await;
        if matches!(&pulled, Err(Error::DiskFull { .. })) {
            // Layers that came before the disk was full would be of use to the next try, but there is no room.
            self.collect_later().await;
        }
        pulled.map(String::from)
    }

    /// Takes an image away with all its names. One that is not here is no error.
    pub async fn remove(&self, reference_or_id: &str) -> Result<()> {
        let Some(image) = self.find(reference_or_id)? else { return Ok(()) };
        let id = Digest::parse(&image.id).map_err(|_| Error::NotFound(image.id.clone()))?;
        self.change(|index| index.remove(&id))?;
        self.collect_later().await;
        Ok(())
    }

    /// Keeps an image when images are collected, or does so no longer.
    pub fn pin(&self, reference_or_id: &str, pinned: bool) -> Result<()> {
        let image = self.need(reference_or_id)?;
        self.change(|index| {
            let records = index.images.iter_mut().filter(|(id, _)| id.as_str() == image.id);
            records.for_each(|(_, record)| record.pinned = pinned);
        })
    }

    /// Removes the images that nobody uses, those with a tag only if asked for; answers with their ids.
    pub async fn prune(&self, tagged: bool) -> Result<Vec<String>> {
        let used = self.used()?;
        let mut gone = Vec::new();
        self.change(|index| {
            gone = index.unused(&used, tagged);
            gone.iter().for_each(|id| index.remove(id));
        })?;
        self.collect_later().await;
        Ok(gone.into_iter().map(String::from).collect())
    }

    async fn collect_later(&self) {
        let images = self.clone();
        if let Err(error) = blocking(move || images.collect()).await {
            tracing::warn!(error = error.chain(), "images could not be collected");
        }
    }

    /// The index, read again if anybody has changed it.
    fn known(&self) -> Result<Arc<Known>> {
        let path = self.root().join("index.json");
        let stamp = stamp(&path)?;
        let known = self.inner.known.read().clone();
        if known.stamp == stamp {
            return Ok(known);
        }
        let index = read_index(&path)?;
        let known = Arc::new(Known { stamp, images: index.all(), index });
        *self.inner.known.write() = known.clone();
        Ok(known)
    }

    /// Changes the index as it is now, whoever wrote it.
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

    /// Images whose layers did not outlive a loss of power are not here any more.
    fn forget_broken(&self) -> Result<()> {
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

fn stamp(path: &Path) -> Result<Option<Stamp>> {
    use std::os::unix::fs::MetadataExt;
    match std::fs::metadata(path) {
        Ok(meta) => Ok(Some(Stamp(meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.len()))),
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

/// Work that waits for the disk goes to threads of its own.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::Cancelled)?
}
