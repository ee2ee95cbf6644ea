//! Everything that lives in the cluster, by its metadata: one follower for each resource that is served,
//! as they come and go. It keeps nothing but what is served.

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

use super::discovery::{self, Discovery, Served};

/// What is served changes with these.
const SOURCES: [Resource; 2] = [
    Resource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
    Resource::new("apiregistration.k8s.io", "v1", "apiservices"),
];
/// Events come and go by themselves, and are many.
const IGNORED: [&str; 2] = ["", "events.k8s.io"];
/// Discovery may follow a definition late: it is asked again after these.
const LATER: [Duration; 3] = [Duration::from_millis(300), Duration::from_secs(3), Duration::from_secs(30)];
/// One resource that cannot be listed does not hold up the rest for ever.
const LONGEST_SYNC: Duration = Duration::from_secs(30);

/// Hears of every object. Nothing may block here.
pub trait Listener: Send + Sync {
    fn put(&self, of: &Served, object: &Tree);
    fn deleted(&self, of: &Served, object: &Tree);
    /// These are all objects of the resource that there are.
    fn listed(&self, of: &Served, uids: &BTreeSet<Str>);
}

pub struct Everything {
    client: Client,
    random: Arc<Random>,
    metrics: Metrics,
    listeners: RwLock<Vec<Arc<dyn Listener>>>,
    /// Grows with each listener that comes after the start: every resource is then listed once more.
    relist: watch::Sender<u64>,
    followed: Mutex<BTreeMap<Served, Followed>>,
    served: watch::Sender<Option<Arc<Discovery>>>,
    /// Something has changed since discovery was asked last.
    dirty: AtomicBool,
    changed: Arc<Notify>,
    task: Mutex<Option<JoinHandle<()>>>,
}

struct Followed {
    task: JoinHandle<()>,
    synced: watch::Receiver<Option<u64>>,
}

impl Everything {
    pub fn new(client: Client, random: Arc<Random>, metrics: Metrics) -> Arc<Everything> {
        Arc::new(Everything {
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

    /// Adds a listener. One that comes after `start` causes a relist of every resource, so that it also
    /// receives the complete lists; the other listeners then hear of each object once more.
    pub fn listen(&self, listener: Arc<dyn Listener>) {
        let mut listeners = self.listeners.write();
        listeners.push(listener);
        // Under the lock: each listener has a generation of its own to wait for.
        let generation = *self.relist.borrow() + 1;
        self.relist.send_replace(generation);
    }

    /// Starts to follow all resources, where anything listens. It comes once all controllers are made: what
    /// has been reported before a listener is registered would have to be listed again.
    pub fn start(self: &Arc<Everything>, informers: &Informers) {
        let mut task = self.task.lock();
        if task.is_some() || self.listeners.read().is_empty() {
            return;
        }
        for resource in SOURCES {
            let this = Arc::downgrade(self);
            informers.informer(Selection::all(resource)).on_change(move |_| touch(&this));
        }
        *task = Some(tokio::spawn(keep(Arc::downgrade(self))));
    }

    /// What is served, as of now: a change that is known of is waited for.
    pub async fn discovery(&self) -> Arc<Discovery> {
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

    /// What is served, as far as it is known.
    pub fn known(&self) -> Arc<Discovery> {
        self.served.borrow().clone().unwrap_or_default()
    }

    /// Waits until every object has been reported once to every listener that there is now.
    pub async fn synced(&self) {
        let generation = *self.relist.borrow();
        let all = async {
            self.discovery().await;
            let waiting: Vec<_> = self.followed().values().map(|followed| followed.synced.clone()).collect();
            for mut synced in waiting {
                let _ = synced.wait_for(|synced| *synced >= Some(generation)).await;
            }
        };
        if tokio::time::timeout(LONGEST_SYNC, all).await.is_err() {
            tracing::warn!("some resources cannot be listed; the work goes on without");
        }
    }

    pub fn is_followed(&self, served: &Served) -> bool {
        self.followed().contains_key(served)
    }

    async fn rediscover(self: &Arc<Everything>) -> Result<()> {
        self.dirty.store(false, Ordering::SeqCst);
        let found = discovery::ask(&self.client).await;
        let found = found.inspect_err(|_| self.dirty.store(true, Ordering::SeqCst))?;
        self.follow(&found);
        self.served.send_replace(Some(Arc::new(found)));
        Ok(())
    }

    /// Follows what is new and lets go what is no more. What a server that does not answer serves stays.
    fn follow(self: &Arc<Everything>, found: &Discovery) {
        let wanted: BTreeSet<&Served> = found.resources.iter().filter(|served| is_wanted(served)).collect();
        let mut followed = self.followed();
        let gone = |served: &Served| !wanted.contains(served) && !found.is_stale(&served.group);
        let gone: Vec<Served> = followed.keys().filter(|served| gone(served)).cloned().collect();
        for served in gone {
            if let Some(ended) = followed.remove(&served) {
                ended.task.abort();
                // Another version of the same objects takes over where there is one.
                if found.of_kind(&served.group, &served.kind).is_none() {
                    self.tell(|listener| listener.listed(&served, &BTreeSet::new()));
                }
            }
        }
        for served in wanted {
            if !followed.contains_key(served) {
                followed.insert(served.clone(), self.start_follower(served.clone()));
            }
        }
    }

    fn start_follower(self: &Arc<Everything>, served: Served) -> Followed {
        let (sender, synced) = watch::channel(None);
        let follower = Follower {
            client: self.client.clone(),
            resource: served.resource(),
            random: self.random.clone(),
            listener: Box::new(Ear { everything: Arc::downgrade(self), served }),
            relist: self.relist.subscribe(),
            synced: sender,
        };
        Followed { task: tokio::spawn(follower.run()), synced }
    }

    fn tell(&self, tell: impl Fn(&dyn Listener)) {
        let listeners = self.listeners.read();
        listeners.iter().for_each(|listener| tell(&**listener));
    }

    fn followed(&self) -> MutexGuard<'_, BTreeMap<Served, Followed>> {
        self.followed.lock()
    }

    pub fn stop(&self) {
        self.task.lock().take().iter().for_each(JoinHandle::abort);
        std::mem::take(&mut *self.followed()).values().for_each(|followed| followed.task.abort());
    }
}

impl Drop for Everything {
    fn drop(&mut self) {
        self.stop();
    }
}

fn is_wanted(served: &Served) -> bool {
    let ignored = served.plural == "events" && IGNORED.contains(&served.group.as_str());
    served.can(&["list", "watch", "delete"]) && !ignored
}

fn touch(everything: &Weak<Everything>) {
    if let Some(everything) = everything.upgrade() {
        everything.dirty.store(true, Ordering::SeqCst);
        everything.changed.notify_one();
    }
}

/// Asks at the start and after each change, and some more times since discovery may lag behind.
async fn keep(everything: Weak<Everything>) {
    let mut later = LATER.iter();
    loop {
        let Some(strong) = everything.upgrade() else { return };
        let result = strong.rediscover().await;
        if let Err(error) = &result {
            strong.metrics.count(&crate::meters::GC_SYNC_ERRORS, &[]);
            tracing::debug!(%error, "discovery does not answer");
        }
        let is_settled = result.is_ok() && strong.known().stale.is_empty();
        let pause = later.next().or((!is_settled).then_some(&LATER[2]));
        let pause = pause.map(|pause| strong.random.jitter(*pause, 0.2));
        let changed = strong.changed.clone();
        // Whoever waits here does not keep alive what it waits for.
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
        }
    }
}

/// What a follower tells.
struct Ear {
    everything: Weak<Everything>,
    served: Served,
}

impl Ear {
    fn tell(&self, tell: impl Fn(&dyn Listener)) {
        if let Some(everything) = self.everything.upgrade() {
            everything.tell(tell);
        }
    }
}

impl client::Listener for Ear {
    fn put(&self, object: &Tree) {
        self.tell(|listener| listener.put(&self.served, object));
    }

    fn deleted(&self, object: &Tree) {
        self.tell(|listener| listener.deleted(&self.served, object));
    }

    fn listed(&self, uids: &BTreeSet<Str>) {
        self.tell(|listener| listener.listed(&self.served, uids));
    }
}

#[cfg(test)]
mod tests;
