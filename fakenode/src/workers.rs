//! The workers of nodes, which register and renew their leases, and of pods. Each reads the
//! informers' stores, calls a plan function, and sends at most two requests.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use api::time::Timestamp;
use client::{
    Cause, Change, DeleteOptions, Informers, Key, Patch, Queue, Result, WorkResult, index, revision_of, split, writes,
};
use stdx::sync::Mutex;

use crate::node::{self, LEASE_NAMESPACE, RENEW_SECONDS};
use crate::{LEASES, NODES, PODS, Shared, pod};

/// The time until the next sync of the key.
type NextSync = Option<Duration>;
pub(crate) type SyncFuture<'a> = Pin<Box<dyn Future<Output = Result<NextSync>> + Send + 'a>>;

pub(crate) trait Worker: Send + Sync {
    fn sync_key<'a>(&'a self, key: &'a Key) -> SyncFuture<'a>;
}

pub(crate) async fn run(queue: Arc<Queue>, work: Arc<dyn Worker>, informers: Arc<Informers>) {
    if !unless_closed(&queue, informers.synced()).await {
        return;
    }
    while let Some(key) = queue.next().await {
        let (result, written) = writes::record_writes(work.sync_key(&key)).await;
        // The next sync of this key has to see this write.
        if !unless_closed(&queue, informers.wait_for(&written)).await {
            return;
        }
        let ended = match result {
            Ok(None) => WorkResult::Done,
            Ok(Some(pause)) => WorkResult::RequeueAfter(pause),
            Err(error) => {
                tracing::debug!(key = &*key, %error, "sync failed, requeueing");
                WorkResult::Failed
            }
        };
        queue.done(key, ended);
    }
}

/// Waits; false if the queue is closed first.
async fn unless_closed(queue: &Queue, wait: impl Future<Output = ()>) -> bool {
    tokio::select! {
        biased;
        () = queue.closed() => false,
        () = wait => true,
    }
}

/// From now to a second of the wall clock.
fn until(now: Timestamp, second: i64) -> Duration {
    let left = Duration::from_secs((second - now.seconds).max(0).unsigned_abs());
    left.saturating_sub(Duration::from_nanos(now.nanos.into()))
}

impl Shared {
    pub(crate) fn node_changed(&self, change: &Change) {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        self.fleet.follow_node(&change.key, new);
        self.queues.nodes.add(change.key.clone());
        if old.is_none_or(node::is_down) && new.is_some_and(|node| !node::is_down(node)) {
            let there = self.pods.find_keys(index::NODE, &change.key);
            there.into_iter().for_each(|key| self.queues.pods.add(key));
        }
    }

    pub(crate) fn pod_changed(&self, change: &Change) {
        let Some(new) = change.new.as_deref() else {
            if let Some(old) = change.old.as_deref() {
                self.fleet.follow_pod(old, true);
            }
            return;
        };
        self.fleet.follow_pod(new, false);
        if node::number(new.str("spec.nodeName")).is_some_and(|number| number < self.count) {
            self.queues.pods.add(change.key.clone());
        }
    }
}

/// Registers each node once, and renews the leases of nodes whose objects exist.
pub(crate) struct NodeWorker {
    shared: Arc<Shared>,
    /// By number: the second in which the lease is due. A node without an entry has not registered yet.
    due: Mutex<BTreeMap<u32, i64>>,
}

impl NodeWorker {
    pub(crate) fn new(shared: Arc<Shared>) -> NodeWorker {
        NodeWorker { shared, due: Mutex::default() }
    }

    async fn sync(&self, key: &Key) -> Result<NextSync> {
        let shared = &self.shared;
        let Some(number) = node::number(key).filter(|number| *number < shared.count) else { return Ok(None) };
        let (seen, due) = (shared.nodes.get(key), self.due(number));
        // The node was deleted, or it is lost.
        if seen.is_none() && due.is_some() || seen.as_deref().is_some_and(node::is_down) {
            return Ok(None);
        }
        let (now, client) = (shared.clock.now(), &shared.clients[number as usize]);
        let response = match node::plan(number, seen.as_deref(), now.seconds) {
            node::Step::Nothing => None,
            node::Step::Create(object) => Some(client.create(NODES, "", &object).await?),
            node::Step::Report(report) => {
                Some(client.patch(NODES, "", key, "status", Patch::Strategic(&report)).await?)
            }
        };
        let uid = response.as_ref().or(seen.as_deref()).map_or("", |node| node.str("metadata.uid"));
        let next = match due {
            Some(due) if due > now.seconds => due,
            Some(_) => now.seconds + RENEW_SECONDS,
            // The first round spreads them, so that they do not all renew in the same second.
            None => now.seconds + 1 + i64::from(number) * RENEW_SECONDS / i64::from(shared.count),
        };
        if Some(next) != due {
            self.renew(number, uid, now).await?;
            self.due.lock().insert(number, next);
        }
        Ok(Some(until(now, next)))
    }

    fn due(&self, number: u32) -> Option<i64> {
        self.due.lock().get(&number).copied()
    }

    async fn renew(&self, number: u32, uid: &str, now: Timestamp) -> Result<()> {
        let client = &self.shared.clients[number as usize];
        let (name, lease) = (node::name(number), node::lease(number, uid, now));
        match client.patch(LEASES, LEASE_NAMESPACE, &name, "", Patch::Merge(&lease)).await {
            Err(error) if error.is_not_found() => client.create(LEASES, LEASE_NAMESPACE, &lease).await.map(|_| ()),
            result => result.map(|_| ()),
        }
    }
}

impl Worker for NodeWorker {
    fn sync_key<'a>(&'a self, key: &'a Key) -> SyncFuture<'a> {
        Box::pin(self.sync(key))
    }
}

/// A deleted pod is no failure. A pod that has changed meanwhile is synced again.
fn ignore_conflict(result: Result<Tree>) -> Result<()> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        result => result.map(|_| ()),
    }
}

pub(crate) struct PodWorker(pub Arc<Shared>);

impl PodWorker {
    async fn sync(&self, key: &Key) -> Result<NextSync> {
        let shared = &self.0;
        let Some(pod) = shared.pods.get(key) else { return Ok(None) };
        let number = node::number(pod.str("spec.nodeName")).filter(|number| *number < shared.count);
        // All pods of a node that has recovered are synced.
        let Some(number) = number.filter(|number| shared.fleet.is_up(*number)) else { return Ok(None) };
        let now = shared.clock.now();
        let (address, host) = (shared.fleet.address(number, &pod), node::address(number).to_string());
        let address = address.map(|address| address.to_string());
        let host = pod::Host { address: &host, pod_address: address.as_deref() };
        let plan = pod::plan(&pod, &host, now.seconds);
        let cause = Cause::object("kubelet", PODS, key, revision_of(&pod).unwrap_or_default());
        cause.scope(self.execute(key, &pod, number, plan.step)).await?;
        Ok(plan.next.map(|second| until(now, second)))
    }

    async fn execute(&self, key: &Key, pod: &Tree, number: u32, step: pod::Step) -> Result<()> {
        let client = &self.0.clients[number as usize];
        let (namespace, name) = split(key);
        let result = match step {
            pod::Step::Nothing => return Ok(()),
            pod::Step::Report(report) => client.patch(PODS, namespace, name, "status", Patch::Strategic(&report)).await,
            pod::Step::Delete => {
                let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::of(pod) };
                client.delete(PODS, namespace, name, options).await
            }
        };
        ignore_conflict(result)
    }
}

impl Worker for PodWorker {
    fn sync_key<'a>(&'a self, key: &'a Key) -> SyncFuture<'a> {
        Box::pin(self.sync(key))
    }
}
