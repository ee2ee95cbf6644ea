//! Watches the metadata of all objects in the cluster, with one follower per served resource. It stores only the
//! discovery information.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::Tree;
use api::tree::Str;
use client::ordered as watch;
use client::{Client, Follower, Informers, Metrics, Random, Resource, Result, Selection};
use stdx::sync::{Mutex, MutexGuard, RwLock};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::discovery::{self, Discovery, ServedResource};

/// Changes of these may change discovery.
const SOURCES: [Resource; 2] = [
    Resource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
    Resource::new("apiregistration.k8s.io", "v1", "apiservices"),
];
/// Events expire by themselves and are many.
const IGNORED: [&str; 2] = ["", "events.k8s.io"];
/// Discovery may lag behind a definition: it is read again after these delays.
const LATER: [Duration; 3] = [Duration::from_millis(300), Duration::from_secs(3), Duration::from_secs(30)];
/// A resource that cannot be listed must not block other resources forever.
const LONGEST_SYNC: Duration = Duration::from_secs(30);

/// Receives every object. Implementations must not block.
pub(crate) trait Listener: Send + Sync {
    fn put(&self, of: &ServedResource, object: &Tree);
    fn deleted(&self, of: &ServedResource, object: &Tree);
    /// `uids` are all objects of the resource.
    fn listed(&self, of: &ServedResource, uids: &BTreeSet<Str>);
}

pub(crate) struct MetadataMonitor {
    client: Client,
    random: Arc<Random>,
    metrics: Metrics,
    listeners: RwLock<Vec<Arc<dyn Listener>>>,
    /// Incremented by each listener that is added after the start: every resource is then listed again.
    relist: watch::Sender<u64>,
    followed: Mutex<BTreeMap<ServedResource, FollowerTask>>,
    served: watch::Sender<Option<Arc<Discovery>>>,
    /// Something has changed since discovery was last read.
    dirty: AtomicBool,
    changed: Arc<Notify>,
    task: Mutex<Option<JoinHandle<()>>>,
}

struct FollowerTask {
    task: JoinHandle<()>,
    synced: watch::Receiver<Option<u64>>,
}

impl MetadataMonitor {
    pub(crate) fn new(client: Client, random: Arc<Random>, metrics: Metrics) -> Arc<MetadataMonitor> {
        Arc::new(MetadataMonitor {
            client,
            random,
            metrics,
            listeners: RwLock::default(),
            relist: watch::Sender::default(),
            followed: Mutex::default(),
            served: watch::Sender::new(None),
            dirty: AtomicBool::new(true),
            changed: Arc::default(),
            task: Mutex::default(),
        })
    }

    /// Adds a listener. A listener that is added after `start` causes a relist of every resource, so that it also
    /// receives the complete lists; other listeners then receive each object again.
    pub(crate) fn listen(&self, listener: Arc<dyn Listener>) {
        let mut listeners = self.listeners.write();
        listeners.push(listener);
        // Under the lock, so that each listener waits for its own generation.
        let generation = *self.relist.borrow() + 1;
        self.relist.send_replace(generation);
    }

    /// Starts watching all resources if there is a listener. Called once all controllers are created, since a
    /// listener added later needs a relist.
    pub(crate) fn start(self: &Arc<MetadataMonitor>, informers: &Informers) {
        let mut task = self.task.lock();
        if task.is_some() || self.listeners.read().is_empty() {
            return;
        }
        for resource in SOURCES {
            let this = Arc::downgrade(self);
            informers.informer(Selection::all(resource)).on_change(move |_| touch(&this));
        }
        *task = Some(tokio::spawn(keep_discovery_current(Arc::downgrade(self))));
    }

    /// The current discovery information; waits for known changes to be read.
    pub(crate) async fn discovery(&self) -> Arc<Discovery> {
        let mut served = self.served.subscribe();
        loop {
            if let Some(found) = served.borrow_and_update().clone()
                && !self.dirty.load(Ordering::SeqCst)
            {
                return found;
            }
            if served.changed().await.is_err() {
                return Arc::default();
            }
        }
    }

    /// The discovery information known so far.
    pub(crate) fn known(&self) -> Arc<Discovery> {
        self.served.borrow().clone().unwrap_or_default()
    }

    /// Waits until every current listener has received every object.
    pub(crate) async fn synced(&self) {
        let generation = *self.relist.borrow();
        let all = async {
            self.discovery().await;
            let waiting: Vec<_> = self.followed().values().map(|followed| followed.synced.clone()).collect();
            for mut synced in waiting {
                let _ = synced.wait_for(|synced| *synced >= Some(generation)).await;
            }
        };
        if tokio::time::timeout(LONGEST_SYNC, all).await.is_err() {
            tracing::warn!("timed out waiting for all resources to be listed, continuing without them");
        }
    }

    pub(crate) fn is_followed(&self, served: &ServedResource) -> bool {
        self.followed().contains_key(served)
    }

    async fn rediscover(self: &Arc<MetadataMonitor>) -> Result<()> {
        self.dirty.store(false, Ordering::SeqCst);
        let found = discovery::fetch(&self.client).await;
        let found = found.inspect_err(|_| self.dirty.store(true, Ordering::SeqCst))?;
        self.sync_followers(&found);
        self.served.send_replace(Some(Arc::new(found)));
        Ok(())
    }

    /// Starts followers of new resources and stops those of removed ones. Resources of unavailable API services are
    /// kept.
    fn sync_followers(self: &Arc<MetadataMonitor>, found: &Discovery) {
        let desired: BTreeSet<&ServedResource> =
            found.resources.iter().filter(|served| is_followable(served)).collect();
        let mut followed = self.followed();
        let gone = |served: &ServedResource| !desired.contains(served) && !found.is_stale(&served.group);
        let gone: Vec<ServedResource> = followed.keys().filter(|served| gone(served)).cloned().collect();
        for served in gone {
            if let Some(ended) = followed.remove(&served) {
                ended.task.abort();
                // Another version of the same objects takes over, if any.
                if found.find_kind(&served.group, &served.kind).is_none() {
                    self.notify(|listener| listener.listed(&served, &BTreeSet::new()));
                }
            }
        }
        for served in desired {
            if !followed.contains_key(served) {
                followed.insert(served.clone(), self.start_follower(served.clone()));
            }
        }
    }

    fn start_follower(self: &Arc<MetadataMonitor>, served: ServedResource) -> FollowerTask {
        let (sender, synced) = watch::channel(None);
        let follower = Follower {
            client: self.client.clone(),
            resource: served.resource(),
            random: self.random.clone(),
            listener: Box::new(Forwarder { metadata_monitor: Arc::downgrade(self), served }),
            relist: self.relist.subscribe(),
            synced: sender,
        };
        FollowerTask { task: tokio::spawn(follower.run()), synced }
    }

    fn notify(&self, notify: impl Fn(&dyn Listener)) {
        let listeners = self.listeners.read();
        listeners.iter().for_each(|listener| notify(&**listener));
    }

    fn followed(&self) -> MutexGuard<'_, BTreeMap<ServedResource, FollowerTask>> {
        self.followed.lock()
    }

    pub(crate) fn stop(&self) {
        self.task.lock().take().iter().for_each(JoinHandle::abort);
        std::mem::take(&mut *self.followed()).values().for_each(|followed| followed.task.abort());
    }
}

impl Drop for MetadataMonitor {
    fn drop(&mut self) {
        self.stop();
    }
}

fn is_followable(served: &ServedResource) -> bool {
    let ignored = served.plural == "events" && IGNORED.contains(&served.group.as_str());
    served.supports(&["list", "watch", "delete"]) && !ignored
}

fn touch(metadata_monitor: &Weak<MetadataMonitor>) {
    if let Some(metadata_monitor) = metadata_monitor.upgrade() {
        metadata_monitor.dirty.store(true, Ordering::SeqCst);
        metadata_monitor.changed.notify_one();
    }
}

/// Reads discovery at the start, after each change, and a few more times since it may lag behind.
async fn keep_discovery_current(metadata_monitor: Weak<MetadataMonitor>) {
    let mut later = LATER.iter();
    loop {
        let Some(strong) = metadata_monitor.upgrade() else { return };
        let begin = Instant::now();
        let result = strong.rediscover().await;
        let cost = begin.elapsed();
        if let Err(error) = &result {
            strong.metrics.count(&crate::metrics::GC_SYNC_ERRORS, &[]);
            tracing::debug!(%error, "discovery failed");
        }
        let is_settled = result.is_ok() && strong.known().stale.is_empty();
        let pause = later.next().or((!is_settled).then_some(&LATER[2]));
        let pause = pause.map(|pause| strong.random.jitter(*pause, 0.2));
        let changed = strong.changed.clone();
        // A weak reference must not keep the monitor alive while waiting.
        drop(strong);
        let heard = match pause {
            Some(pause) => tokio::time::timeout(pause, changed.notified()).await.is_ok(),
            None => {
                changed.notified().await;
                true
            }
        };
        if heard {
            later = LATER.iter();
            // With thousands of resources a read is slow: changes that arrive meanwhile share the next read.
            tokio::time::sleep(cost).await;
        }
    }
}

/// Forwards the events of a follower.
struct Forwarder {
    metadata_monitor: Weak<MetadataMonitor>,
    served: ServedResource,
}

impl Forwarder {
    fn notify(&self, notify: impl Fn(&dyn Listener)) {
        if let Some(metadata_monitor) = self.metadata_monitor.upgrade() {
            metadata_monitor.notify(notify);
        }
    }
}

impl client::Listener for Forwarder {
    fn put(&self, object: &Tree) {
        self.notify(|listener| listener.put(&self.served, object));
    }

    fn deleted(&self, object: &Tree) {
        self.notify(|listener| listener.deleted(&self.served, object));
    }

    fn listed(&self, uids: &BTreeSet<Str>) {
        self.notify(|listener| listener.listed(&self.served, uids));
    }
}

#[cfg(test)]
mod tests;
