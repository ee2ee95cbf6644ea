//! A pull: the manifest, the configuration, then all layers concurrently. Each layer is unpacked as soon as it is
//! downloaded, and committed after those below it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use stdx::sync::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Semaphore, mpsc};
use tokio::task::JoinSet;

use super::digest::Digest;
use super::error::{Error, Result};
use super::layer::apply::Unpacker;
use super::layer::{self, Cancel, LayerError};
use super::manifest::{self, Descriptor, Document, ImageConfig, MAX_BYTES, Manifest};
use super::progress::{Event, Progress};
use super::records::Record;
use super::reference::{Reference, Version};
use super::registry::{Client, Download, download};
use super::store::{IngestPath, LayerInfo, Store, check};
use super::{Credentials, Images, blocking};

/// Downloads in progress, by digest. A second caller waits, and then finds the blob.
#[derive(Default)]
pub(super) struct InFlight(Mutex<HashMap<Digest, Weak<AsyncMutex<()>>>>);

impl InFlight {
    fn of(&self, digest: &Digest) -> Arc<AsyncMutex<()>> {
        let mut in_flight = self.0.lock();
        in_flight.retain(|_, transfer| transfer.strong_count() > 0);
        if let Some(transfer) = in_flight.get(digest).and_then(Weak::upgrade) {
            return transfer;
        }
        let transfer = Arc::default();
        in_flight.insert(digest.clone(), Arc::downgrade(&transfer));
        transfer
    }
}

/// The manifest and configuration of an image, before its layers are downloaded.
pub(super) struct Plan {
    pub target: Descriptor,
    pub manifest_descriptor: Descriptor,
    pub manifest: Manifest,
    pub config: ImageConfig,
    pub chain: Vec<Digest>,
}

impl Plan {
    pub(super) fn id(&self) -> &Digest {
        &self.manifest.config.digest
    }

    pub(super) fn record(&self) -> Record {
        Record {
            target: self.target.clone(),
            manifest: self.manifest_descriptor.clone(),
            layers: self.manifest.layers.clone(),
            diff_ids: self.config.rootfs.diff_ids.clone(),
            chain: self.chain.clone(),
            size: self.manifest.size().saturating_add(self.manifest_descriptor.size),
            config: self.config.config.clone(),
            pinned: false,
            made_from: None,
        }
    }
}

pub(super) async fn pull(
    images: &Images,
    reference: &Reference,
    auth: Option<Credentials>,
    progress: &dyn Progress,
) -> Result<Digest> {
    let store = &images.inner.store;
    let options = &images.inner.options;
    // Garbage collection must not remove anything before the index references it.
    let busy = store.busy()?;
    let (timeouts, proxies) = (options.timeouts.clone(), options.proxies.clone());
    let client = Client::new(reference, auth, &options.hosts, timeouts, proxies)?;
    let plan = resolve(images, &client, reference).await?;
    let bytes = plan.manifest.layers.iter().map(|layer| layer.size).sum();
    progress.report(Event::Resolved { digest: &plan.target.digest, layers: plan.chain.len(), bytes });
    layers(images, Some(Arc::new(client)), &plan, progress).await?;
    let names = names(reference, &plan.target.digest);
    images.add(plan.id(), plan.record(), names)?;
    drop(busy);
    if !options.keep_blobs {
        images.collect_garbage_later().await;
    }
    // In the background: until it is done, the layers are only trusted in this boot.
    let store = store.clone();
    tokio::task::spawn_blocking(move || {
        store.sync().unwrap_or_else(|error| tracing::warn!(error = error.chain(), "failed to sync images to disk"));
    });
    Ok(plan.id().clone())
}

fn names(reference: &Reference, target: &Digest) -> Vec<String> {
    let tag = reference.tag().map(|_| reference.to_string());
    [reference.with_digest(target)].into_iter().chain(tag).collect()
}

/// Resolves an index to the image for this machine, and reads its configuration.
async fn resolve(images: &Images, client: &Client, reference: &Reference) -> Result<Plan> {
    let (what, host) = (reference.to_string(), &images.inner.options.platform);
    let store = &images.inner.store;
    let (target, bytes) = client.manifest(&reference.version).await?;
    let target = store_manifest(store, target, &bytes)?;
    let (descriptor, manifest) = match manifest::read(&what, &bytes)? {
        Document::Manifest(manifest) => (target.clone(), manifest),
        Document::Index(index) => {
            let chosen = index.choose(&what, host)?;
            let (digest, bytes) = client.manifest(&Version::Digest(chosen.digest.clone())).await?;
            match manifest::read(&what, &bytes)? {
                Document::Manifest(manifest) => (store_manifest(store, digest, &bytes)?, manifest),
                Document::Index(_) => {
                    let why = "nested indexes are not supported".to_owned();
                    return Err(Error::Manifest { what, why });
                }
            }
        }
    };
    if manifest.config.size > MAX_BYTES {
        return Err(Error::Manifest { what, why: "the configuration is too large".to_owned() });
    }
    fetch_blob(images, client, &manifest.config, &|_| {}).await?;
    let bytes = store.read_blob(&manifest.config.digest, MAX_BYTES)?;
    let config = ImageConfig::read(&what, &bytes, manifest.layers.len(), host)?;
    let chain = config.chain();
    Ok(Plan { target, manifest_descriptor: descriptor, manifest, config, chain })
}

/// Stores a manifest whose digest has been verified.
fn store_manifest(store: &Store, digest: Digest, bytes: &[u8]) -> Result<Descriptor> {
    let (temp, mut file) = store.temp_file()?;
    std::io::Write::write_all(&mut file, bytes).map_err(Error::at(temp.path()))?;
    store.commit_blob(temp, &digest)?;
    Ok(Descriptor::new(&media_type(bytes), digest, bytes.len() as u64))
}

fn media_type(bytes: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct TypedDocument {
        #[serde(default)]
        media_type: String,
    }
    let stated = serde_json::from_slice::<TypedDocument>(bytes).map(|typed| typed.media_type).unwrap_or_default();
    // OCI documents may omit their media type.
    if stated.is_empty() { manifest::OCI_MANIFEST.to_owned() } else { stated }
}

/// Downloads a blob unless it is in the store. Returns whether it was downloaded.
async fn fetch_blob(
    images: &Images,
    client: &Client,
    blob: &Descriptor,
    report: &(dyn Fn(u64) + Send + Sync),
) -> Result<bool> {
    let transfer = images.inner.in_flight.of(&blob.digest);
    let _turn = transfer.lock().await;
    if images.inner.store.has_blob(blob) {
        return Ok(false);
    }
    download(&Download { client, store: &images.inner.store, blob, report }).await?;
    Ok(true)
}

enum LayerEvent {
    Bytes { layer: usize, done: u64 },
    Downloaded(usize),
}

/// A layer that is unpacked, except for what depends on the layers below.
struct UnpackedLayer {
    temp: IngestPath,
    unpacker: Unpacker,
}

/// Downloads and commits all layers of an image. Without a client, the blobs have to be in the store already.
pub(super) async fn layers(
    images: &Images,
    client: Option<Arc<Client>>,
    plan: &Plan,
    progress: &dyn Progress,
) -> Result<()> {
    let (events, mut received) = mpsc::channel(64);
    let permits = Arc::new(Semaphore::new(images.inner.options.parallel.max(1)));
    let cancel = CancelOnDrop::default();
    let mut tasks = JoinSet::new();
    for at in 0..plan.chain.len() {
        let task = LayerTask {
            images: images.clone(),
            client: client.clone(),
            blob: plan.manifest.layers[at].clone(),
            diff_id: plan.config.rootfs.diff_ids[at].clone(),
            chain: plan.chain[at].clone(),
            at,
            permits: permits.clone(),
            events: events.clone(),
            cancel: cancel.0.clone(),
        };
        tasks.spawn(task.run());
    }
    drop(events);
    let mut pending: BTreeMap<usize, Option<UnpackedLayer>> = BTreeMap::new();
    let mut next = 0;
    while next < plan.chain.len() {
        tokio::select! {
            biased;
            Some(event) = received.recv() => report_event(plan, progress, event),
            Some(done) = tasks.join_next() => {
                let (at, unpacked) = done.map_err(|_| Error::Cancelled)??;
                pending.insert(at, unpacked);
                while let Some(unpacked) = pending.remove(&next) {
                    commit_layer(images, plan, next, unpacked, progress).await?;
                    next += 1;
                }
            }
        }
    }
    Ok(())
}

fn report_event(plan: &Plan, progress: &dyn Progress, events: LayerEvent) {
    match events {
        LayerEvent::Bytes { layer, done } => {
            let blob = &plan.manifest.layers[layer];
            progress.report(Event::Bytes { layer: &blob.digest, done, size: blob.size });
        }
        LayerEvent::Downloaded(layer) => {
            progress.report(Event::Downloaded { layer: &plan.manifest.layers[layer].digest })
        }
    }
}

/// Commits a layer on top of the committed ones below.
async fn commit_layer(
    images: &Images,
    plan: &Plan,
    at: usize,
    unpacked: Option<UnpackedLayer>,
    progress: &dyn Progress,
) -> Result<()> {
    let digest = plan.manifest.layers[at].digest.clone();
    let Some(UnpackedLayer { temp, unpacker }) = unpacked else {
        progress.report(Event::Present { layer: &digest });
        return Ok(());
    };
    let store = images.inner.store.clone();
    let chain = plan.chain[at].clone();
    let diff_id = plan.config.rootfs.diff_ids[at].clone();
    let parent = at.checked_sub(1).map(|below| plan.chain[below].clone());
    let below = if at == 0 { Vec::new() } else { store.lower(&plan.chain[..at]) };
    let layer = digest.clone();
    blocking(move || {
        let usage = unpacker.complete(&below).map_err(|source| layer_error(&layer, &store, source))?;
        store.commit_layer(temp, &chain, LayerInfo { diff_id, parent, usage, boot: None })
    })
    .await?;
    progress.report(Event::Unpacked { layer: &digest });
    Ok(())
}

fn layer_error(digest: &Digest, store: &Store, source: LayerError) -> Error {
    match source {
        LayerError::DiskFull => Error::DiskFull { path: store.root().to_owned() },
        LayerError::Cancelled => Error::Cancelled,
        source => Error::Layer { digest: digest.clone(), source },
    }
}

/// Stops the unpacking threads when the pull is dropped.
#[derive(Default)]
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The download and unpacking of one layer.
struct LayerTask {
    images: Images,
    client: Option<Arc<Client>>,
    blob: Descriptor,
    diff_id: Digest,
    chain: Digest,
    at: usize,
    permits: Arc<Semaphore>,
    events: mpsc::Sender<LayerEvent>,
    cancel: Cancel,
}

impl LayerTask {
    /// Returns None if the layer is already committed.
    async fn run(self) -> Result<(usize, Option<UnpackedLayer>)> {
        let store = &self.images.inner.store;
        let keep = self.images.inner.options.keep_blobs;
        if store.has_layer(&self.chain) && (!keep || self.client.is_none() || store.has_blob(&self.blob)) {
            return Ok((self.at, None));
        }
        let downloaded = self.fetch().await?;
        if store.has_layer(&self.chain) {
            return Ok((self.at, None));
        }
        let unpacked = match self.unpack().await {
            // A blob that was in the store may be damaged. LayerTask that was just downloaded is not.
            Err(Error::Layer { .. }) if !downloaded && self.client.is_some() && self.is_damaged().await? => {
                self.fetch().await?;
                self.unpack().await?
            }
            unpacked => unpacked?,
        };
        Ok((self.at, Some(unpacked)))
    }

    async fn fetch(&self) -> Result<bool> {
        let Some(client) = &self.client else { return Ok(false) };
        let _permit = self.permits.acquire().await.map_err(|_| Error::Cancelled)?;
        let report = |done| drop(self.events.try_send(LayerEvent::Bytes { layer: self.at, done }));
        let downloaded = fetch_blob(&self.images, client, &self.blob, &report).await?;
        if downloaded {
            // Unlike other byte counts this one must not be lost. The receiver outlives this task.
            let _ = self.events.send(LayerEvent::Bytes { layer: self.at, done: self.blob.size }).await;
            let _ = self.events.send(LayerEvent::Downloaded(self.at)).await;
        }
        Ok(downloaded)
    }

    async fn unpack(&self) -> Result<UnpackedLayer> {
        let permit = self.images.inner.unpacking.clone().acquire_owned().await.map_err(|_| Error::Cancelled)?;
        let images = self.images.clone();
        let (blob, diff_id, cancel) = (self.blob.digest.clone(), self.diff_id.clone(), self.cancel.clone());
        blocking(move || {
            let _permit = permit;
            let inner = &images.inner;
            let temp = inner.store.temp_directory()?;
            let content = layer::content(temp.path());
            std::fs::create_dir(&content).map_err(Error::at(&content))?;
            let unpacked = layer::unpack(&inner.store.blob(&blob), &content, &diff_id, &inner.options.limits, &cancel);
            let unpacker = unpacked.map_err(|source| layer_error(&blob, &inner.store, source))?;
            Ok(UnpackedLayer { temp, unpacker })
        })
        .await
    }

    /// Whether a blob does not match its digest. Removes it in that case.
    async fn is_damaged(&self) -> Result<bool> {
        let (store, digest) = (self.images.inner.store.clone(), self.blob.digest.clone());
        blocking(move || {
            let path = store.blob(&digest);
            let file = std::fs::File::open(&path).map_err(Error::at(&path))?;
            let mut hashed = super::digest::HashingReader::new(file, digest.hasher());
            std::io::copy(&mut hashed, &mut std::io::sink()).map_err(Error::at(&path))?;
            let damaged = check("blob", &digest, hashed.finish()).is_err();
            if damaged {
                store.take(&path)?;
            }
            Ok(damaged)
        })
        .await
    }
}
