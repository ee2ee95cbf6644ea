//! A pull: manifest, configuration, then all layers beside each other, each unpacked as soon as it is here, and
//! given its place when those below it have theirs.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use stdx::sync::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Semaphore, mpsc};
use tokio::task::JoinSet;

use super::digest::Digest;
use super::error::{Error, Result};
use super::layer::apply::Unpacker;
use super::layer::{self, Cancel, LayerError};
use super::manifest::{self, Descriptor, Document, ImageConfig, MOST_BYTES, Manifest};
use super::progress::{Event, Progress};
use super::records::Record;
use super::reference::{Reference, Version};
use super::registry::{Client, Download, download};
use super::store::{LayerInfo, Store, Temp, check};
use super::{Credentials, Images, blocking};

/// What is being brought, by digest: whoever comes second waits, and finds it there.
#[derive(Default)]
pub struct Flights(Mutex<HashMap<Digest, Weak<AsyncMutex<()>>>>);

impl Flights {
    fn of(&self, digest: &Digest) -> Arc<AsyncMutex<()>> {
        let mut flights = self.0.lock();
        flights.retain(|_, flight| flight.strong_count() > 0);
        if let Some(flight) = flights.get(digest).and_then(Weak::upgrade) {
            return flight;
        }
        let flight = Arc::default();
        flights.insert(digest.clone(), Arc::downgrade(&flight));
        flight
    }
}

/// What is known of an image before its layers are here.
pub struct Plan {
    pub target: Descriptor,
    pub manifest_descriptor: Descriptor,
    pub manifest: Manifest,
    pub config: ImageConfig,
    pub chain: Vec<Digest>,
}

impl Plan {
    pub fn id(&self) -> &Digest {
        &self.manifest.config.digest
    }

    pub fn record(&self) -> Record {
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

pub async fn pull(
    images: &Images,
    reference: &Reference,
    auth: Option<Credentials>,
    progress: &dyn Progress,
) -> Result<Digest> {
    let store = &images.inner.store;
    let options = &images.inner.options;
    // Nothing that comes now is collected before the index names it.
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
        images.collect_later().await;
    }
    // Not waited for: until it is done, a layer is only trusted as long as the machine runs.
    let store = store.clone();
    tokio::task::spawn_blocking(move || {
        store.sync().unwrap_or_else(|error| tracing::warn!(error = error.chain(), "images are not on disk yet"));
    });
    Ok(plan.id().clone())
}

fn names(reference: &Reference, target: &Digest) -> Vec<String> {
    let tag = reference.tag().map(|_| reference.to_string());
    [reference.with_digest(target)].into_iter().chain(tag).collect()
}

/// Follows a list to the image for this machine, and reads what that one is made of.
async fn resolve(images: &Images, client: &Client, reference: &Reference) -> Result<Plan> {
    let (what, host) = (reference.to_string(), &images.inner.options.platform);
    let store = &images.inner.store;
    let (target, bytes) = client.manifest(&reference.version).await?;
    let target = stored(store, target, &bytes)?;
    let (descriptor, manifest) = match manifest::read(&what, &bytes)? {
        Document::Manifest(manifest) => (target.clone(), manifest),
        Document::Index(index) => {
            let chosen = index.choose(&what, host)?;
            let (digest, bytes) = client.manifest(&Version::Digest(chosen.digest.clone())).await?;
            match manifest::read(&what, &bytes)? {
                Document::Manifest(manifest) => (stored(store, digest, &bytes)?, manifest),
                Document::Index(_) => {
                    let why = "its list holds another list".to_owned();
                    return Err(Error::Manifest { what, why });
                }
            }
        }
    };
    if manifest.config.size > MOST_BYTES {
        return Err(Error::Manifest { what, why: "its configuration is too long".to_owned() });
    }
    bring(images, client, &manifest.config, &|_| {}).await?;
    let bytes = store.read_blob(&manifest.config.digest, MOST_BYTES)?;
    let config = ImageConfig::read(&what, &bytes, manifest.layers.len(), host)?;
    let chain = config.chain();
    Ok(Plan { target, manifest_descriptor: descriptor, manifest, config, chain })
}

/// Keeps a manifest, whose digest has been checked.
fn stored(store: &Store, digest: Digest, bytes: &[u8]) -> Result<Descriptor> {
    let (temp, mut file) = store.temp_file()?;
    std::io::Write::write_all(&mut file, bytes).map_err(Error::at(temp.path()))?;
    store.commit_blob(temp, &digest)?;
    Ok(Descriptor::new(&media_type(bytes), digest, bytes.len() as u64))
}

fn media_type(bytes: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Typed {
        #[serde(default)]
        media_type: String,
    }
    let stated = serde_json::from_slice::<Typed>(bytes).map(|typed| typed.media_type).unwrap_or_default();
    // OCI's documents need not say what they are.
    if stated.is_empty() { manifest::OCI_MANIFEST.to_owned() } else { stated }
}

/// Brings a blob, unless it is here; answers whether it had to come.
async fn bring(
    images: &Images,
    client: &Client,
    blob: &Descriptor,
    report: &(dyn Fn(u64) + Send + Sync),
) -> Result<bool> {
    let flight = images.inner.flights.of(&blob.digest);
    let _turn = flight.lock().await;
    if images.inner.store.has_blob(blob) {
        return Ok(false);
    }
    download(&Download { client, store: &images.inner.store, blob, report }).await?;
    Ok(true)
}

enum News {
    Bytes { layer: usize, done: u64 },
    Downloaded(usize),
}

/// A layer whose content is complete, but for what it takes from those below.
struct Ready {
    temp: Temp,
    unpacker: Unpacker,
}

/// Brings all layers of an image to their places; without a client, their blobs are here already.
pub async fn layers(images: &Images, client: Option<Arc<Client>>, plan: &Plan, progress: &dyn Progress) -> Result<()> {
    let (news, mut heard) = mpsc::channel(64);
    let permits = Arc::new(Semaphore::new(images.inner.options.parallel.max(1)));
    let cancel = CancelOnDrop::default();
    let mut tasks = JoinSet::new();
    for at in 0..plan.chain.len() {
        let one = One {
            images: images.clone(),
            client: client.clone(),
            blob: plan.manifest.layers[at].clone(),
            diff_id: plan.config.rootfs.diff_ids[at].clone(),
            chain: plan.chain[at].clone(),
            at,
            permits: permits.clone(),
            news: news.clone(),
            cancel: cancel.0.clone(),
        };
        tasks.spawn(one.run());
    }
    drop(news);
    let mut waiting: BTreeMap<usize, Option<Ready>> = BTreeMap::new();
    let mut next = 0;
    while next < plan.chain.len() {
        tokio::select! {
            biased;
            Some(event) = heard.recv() => tell(plan, progress, event),
            Some(done) = tasks.join_next() => {
                let (at, ready) = done.map_err(|_| Error::Cancelled)??;
                waiting.insert(at, ready);
                while let Some(ready) = waiting.remove(&next) {
                    place(images, plan, next, ready, progress).await?;
                    next += 1;
                }
            }
        }
    }
    Ok(())
}

fn tell(plan: &Plan, progress: &dyn Progress, news: News) {
    match news {
        News::Bytes { layer, done } => {
            let blob = &plan.manifest.layers[layer];
            progress.report(Event::Bytes { layer: &blob.digest, done, size: blob.size });
        }
        News::Downloaded(layer) => progress.report(Event::Downloaded { layer: &plan.manifest.layers[layer].digest }),
    }
}

/// Gives a layer its place, on top of those that have theirs.
async fn place(images: &Images, plan: &Plan, at: usize, ready: Option<Ready>, progress: &dyn Progress) -> Result<()> {
    let digest = plan.manifest.layers[at].digest.clone();
    let Some(Ready { temp, unpacker }) = ready else {
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
        let usage = unpacker.settle(&below).map_err(|source| layer_error(&layer, &store, source))?;
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

/// Threads that unpack do not hear that nobody waits for them any more.
#[derive(Default)]
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// One layer on its way.
struct One {
    images: Images,
    client: Option<Arc<Client>>,
    blob: Descriptor,
    diff_id: Digest,
    chain: Digest,
    at: usize,
    permits: Arc<Semaphore>,
    news: mpsc::Sender<News>,
    cancel: Cancel,
}

impl One {
    /// Answers with nothing where the layer has its place already.
    async fn run(self) -> Result<(usize, Option<Ready>)> {
        let store = &self.images.inner.store;
        let keep = self.images.inner.options.keep_blobs;
        if store.has_layer(&self.chain) && (!keep || self.client.is_none() || store.has_blob(&self.blob)) {
            return Ok((self.at, None));
        }
        let came = self.fetch().await?;
        if store.has_layer(&self.chain) {
            return Ok((self.at, None));
        }
        let ready = match self.unpack().await {
            // What was here may have been damaged since; what has just come cannot.
            Err(Error::Layer { .. }) if !came && self.client.is_some() && self.is_damaged().await? => {
                self.fetch().await?;
                self.unpack().await?
            }
            unpacked => unpacked?,
        };
        Ok((self.at, Some(ready)))
    }

    async fn fetch(&self) -> Result<bool> {
        let Some(client) = &self.client else { return Ok(false) };
        let _permit = self.permits.acquire().await.map_err(|_| Error::Cancelled)?;
        let report = |done| drop(self.news.try_send(News::Bytes { layer: self.at, done }));
        let came = bring(&self.images, client, &self.blob, &report).await?;
        if came {
            // Told without fail, unlike single bytes; the receiver lives as long as this task.
            let _ = self.news.send(News::Bytes { layer: self.at, done: self.blob.size }).await;
            let _ = self.news.send(News::Downloaded(self.at)).await;
        }
        Ok(came)
    }

    async fn unpack(&self) -> Result<Ready> {
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
            Ok(Ready { temp, unpacker })
        })
        .await
    }

    /// Removes a blob that is not what its name says.
    async fn is_damaged(&self) -> Result<bool> {
        let (store, digest) = (self.images.inner.store.clone(), self.blob.digest.clone());
        blocking(move || {
            let path = store.blob(&digest);
            let file = std::fs::File::open(&path).map_err(Error::at(&path))?;
            let mut hashed = super::digest::Hashed::new(file, digest.hasher());
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
