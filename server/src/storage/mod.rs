//! Objects as they are stored: the watch cache in front of the store, encryption at rest, fencing, compaction.

pub mod cache;
pub mod compaction;
pub(crate) mod custom;
pub mod encryption;
pub mod fence;
pub mod kind;
pub mod resource;

use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use api::schema::initializers;
use api::status::{Cause, Status};
use bytes::Bytes;
use kinds::initializers::is_pending;
use store::Store;

use cache::{Caches, DecodedCache, Item};
use resource::{Resource, Resources};

/// The store, the caches in front of it, and the resources that they hold.
pub struct Storage {
    pub store: Arc<dyn Store>,
    pub caches: Arc<Caches>,
    pub resources: Resources,
    decoded: DecodedCache,
    adopt: fn(&store::Entry) -> Option<Bytes>,
    /// True if other processes write to the store too: reads then check the store's revision first.
    pub is_shared: bool,
}

/// How long a request waits for a revision that the caches have not reached yet.
const VERSION_WAIT: Duration = Duration::from_secs(3);

impl Storage {
    /// Opens the storage on a store whose sink is `caches`, and fills the caches. Encrypted values are rejected unless
    /// `is_encrypted`: without a key they would seem to be missing.
    pub async fn open(
        prefix: &str,
        store: Arc<dyn Store>,
        caches: Arc<Caches>,
        is_shared: bool,
        is_encrypted: bool,
    ) -> Result<Storage, store::Error> {
        let (entries, revision) = store.load().await?;
        if !is_encrypted {
            refuse_sealed(&entries)?;
        }
        caches.load(entries, revision);
        Ok(Storage {
            store,
            resources: Resources::new(prefix, &caches),
            caches,
            decoded: DecodedCache::default(),
            adopt: if is_shared { resource::adopt_foreign } else { resource::adopt_own },
            is_shared,
        })
    }

    /// A stored value in the form in which it is served.
    pub(crate) fn adopt(&self, entry: &store::Entry) -> Option<Bytes> {
        (self.adopt)(entry)
    }

    /// An object from the cache, by storage path and key.
    pub fn object(&self, storage: &str, key: &str) -> Option<Arc<Tree>> {
        Some(self.decoded.tree(&self.item(storage, key)?)).filter(|object| is_seen(object))
    }

    /// The same as it is stored, whether it is visible or not.
    pub fn item(&self, storage: &str, key: &str) -> Option<Arc<Item>> {
        self.caches.get(storage)?.get(key)
    }

    /// All objects of a storage path from the cache, or those of one namespace, in the order of their keys.
    pub fn objects(&self, storage: &str, namespace: &str) -> Vec<Tree> {
        let Some(cache) = self.caches.get(storage) else { return Vec::new() };
        cache.items_in(namespace).iter().map(|item| item.tree()).filter(is_seen).collect()
    }

    /// The newest state of an object. Our own store publishes before it returns, so the cache has it.
    pub(crate) async fn read(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Item>>, Status> {
        if self.is_shared {
            return self.read_stored(resource, namespace, name).await;
        }
        Ok(resource.cache()?.get(&resource.key(namespace, name)))
    }

    /// The object as the store has it.
    pub(crate) async fn read_stored(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Item>>, Status> {
        if !self.is_shared {
            return Ok(resource.cache()?.get(&resource.key(namespace, name)));
        }
        let key = resource.store_key(namespace, name);
        let entry = self.store.get(&key).await.map_err(store_status)?;
        let Some(entry) = entry else { return Ok(None) };
        let bytes = self.adopt(&entry).ok_or_else(|| Status::internal(format!("{key} cannot be read")))?;
        Ok(Some(Arc::new(Item::new(&resource.key(namespace, name), entry.revision, bytes))))
    }

    /// Waits until the caches are as new as the store is now.
    pub(crate) async fn catch_up(&self) -> Result<(), Status> {
        if !self.is_shared {
            return Ok(());
        }
        let revision = self.store.revision().await.map_err(store_status)?;
        self.wait_for_revision(revision).await
    }

    pub(crate) async fn wait_for_version(&self, version: &str) -> Result<(), Status> {
        if version.is_empty() {
            return Ok(());
        }
        let revision: u64 = version.parse().map_err(|_| Status::new(500, "", bad_version(version)))?;
        self.wait_for_revision(revision).await
    }

    pub(crate) async fn wait_for_list_version(&self, version: &str) -> Result<(), Status> {
        if version.is_empty() {
            return Ok(());
        }
        let bad = |_| Status::bad_request(format!("invalid resource version: {}", bad_version(version)));
        let revision: u64 = version.parse().map_err(bad)?;
        self.wait_for_revision(revision).await
    }

    pub(crate) async fn wait_for_revision(&self, revision: u64) -> Result<(), Status> {
        if self.caches.revision() >= revision {
            return Ok(());
        }
        let deadline = tokio::time::Instant::now() + VERSION_WAIT;
        if self.caches.until(deadline, || self.caches.revision() >= revision).await {
            return Ok(());
        }
        Err(too_large_version(revision, self.caches.revision()))
    }
}

fn refuse_sealed(entries: &[Arc<store::Entry>]) -> Result<(), store::Error> {
    match entries.iter().find(|entry| encryption::is_sealed(&entry.value)) {
        None => Ok(()),
        Some(entry) => Err(store::Error::Unavailable(format!(
            "{} is encrypted, and no --encryption-provider-config is given",
            entry.key
        ))),
    }
}

/// Whether an object is visible to the server itself: an object that waits for its initializers is hidden.
pub(crate) fn is_seen(object: &Tree) -> bool {
    !initializers::are_on() || !is_pending(object)
}

/// The status for a store error.
pub(crate) fn store_status(error: store::Error) -> Status {
    match error {
        store::Error::TooLarge { size, limit } => Status::too_large(format!(
            "Request entity too large: the object is {size} bytes, at most {limit} can be stored"
        )),
        store::Error::Refused(why) => Status::new(409, "Conflict", format!("the write is fenced off: {why}")),
        // With etcd, the reason names the commands that make room.
        store::Error::Full(why) => {
            Status::new(507, "InsufficientStorage", format!("the store is full, and nothing was written: {why}"))
        }
        store::Error::Unavailable(_) | store::Error::Closed => Status::service_unavailable(error.to_string()),
        other => Status::internal(other),
    }
}

fn bad_version(version: &str) -> String {
    let digits = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    let why = if digits { "value out of range" } else { "invalid syntax" };
    format!("resourceVersion: Invalid value: {version:?}: strconv.ParseUint: parsing {version:?}: {why}")
}

fn too_large_version(requested: u64, current: u64) -> Status {
    let mut status = Status::timeout(format!("Too large resource version: {requested}, current: {current}"), 1);
    if let Some(details) = &mut status.details {
        details.causes = vec![Cause {
            reason: "ResourceVersionTooLarge".to_string(),
            message: "Too large resource version".to_string(),
            field: String::new(),
        }];
    }
    status
}
