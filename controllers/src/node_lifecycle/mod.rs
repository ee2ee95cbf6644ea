//! Monitors nodes: silent nodes become Unknown, taints follow conditions, and pods are evicted at the rate of their
//! zone.

mod health;
mod plan;
mod zones;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, tree};
use client::index::NODE;
use client::{Change, Metrics, Patch, Recorder, Resource, Result, Selection, Store, split};
use stdx::sync::{Mutex, MutexGuard};

use crate::metrics;
use crate::support::{batch, node_events};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use health::{GracePeriods, Health};
use plan::NoExecuteTaint;
use zones::{EvictionPermit, Rates, ZoneChange, Zones};

const NODES: Resource = Resource::core("nodes");
const PODS: Resource = Resource::core("pods");
const LEASES: Selection = Selection {
    resource: Resource::new("coordination.k8s.io", "v1", "leases"),
    query: "fieldSelector=metadata.namespace%3Dkube-node-lease",
};
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

struct Controller {
    nodes: Arc<Store>,
    pods: Arc<Store>,
    watch: Arc<NodeMonitor>,
    grace_periods: GracePeriods,
    context: Context,
}

/// The state of all nodes.
struct NodeMonitor {
    health: Mutex<BTreeMap<String, Health>>,
    zones: Mutex<Zones>,
    recorder: Recorder,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let options = &context.options;
    let rates = Rates {
        normal: options.node_eviction_rate,
        disrupted: options.secondary_node_eviction_rate,
        large_zone: options.large_cluster_size_threshold,
        threshold: options.unhealthy_zone_threshold,
    };
    let grace_periods =
        GracePeriods { monitor: options.node_monitor_grace_period, startup: options.node_startup_grace_period };
    let watch = Arc::new(NodeMonitor {
        health: Mutex::default(),
        zones: Mutex::new(Zones::new(rates)),
        recorder: context.recorder.named("node-controller"),
        context: context.clone(),
    });
    let (nodes, pods) = (setup.informer(Selection::all(NODES)), setup.informer(Selection::all(PODS)));
    pods.index_by(NODE);
    let seen = watch.clone();
    nodes.on_change(move |change| seen.record_node(change));
    let seen = watch.clone();
    setup.informer(LEASES).on_change(move |change| seen.record_lease(change));
    let zones = watch.clone();
    let gauges = [&metrics::ZONE_SIZE, &metrics::ZONE_HEALTH, &metrics::ZONE_UNHEALTHY];
    context.metrics.on_collect(gauges, move |metrics| zones.show(metrics));
    let (nodes, pods) = (nodes.store().clone(), pods.store().clone());
    Some(Box::new(Controller { nodes, pods, watch, grace_periods, context: context.clone() }))
}

impl NodeMonitor {
    fn health(&self) -> MutexGuard<'_, BTreeMap<String, Health>> {
        self.health.lock()
    }

    fn zones(&self) -> MutexGuard<'_, Zones> {
        self.zones.lock()
    }

    fn show(&self, metrics: &Metrics) {
        for (zone, ready, gone) in self.zones().counts() {
            let (zone, all) = (metric_label(zone), ready + gone);
            metrics.record(&metrics::ZONE_SIZE, &[&zone], all as f64);
            metrics.record(&metrics::ZONE_UNHEALTHY, &[&zone], gone as f64);
            metrics.record(&metrics::ZONE_HEALTH, &[&zone], 100.0 * ready as f64 / all.max(1) as f64);
        }
    }

    fn record_node(&self, change: &Change) {
        let now = self.context.now();
        let name = change.key.to_string();
        match (change.new.as_deref(), change.old.as_deref()) {
            (Some(node), _) => {
                if self.health().entry(name.clone()).or_default().record_node(node, now) {
                    let what = format!("Registered Node {name} in Controller");
                    node_events::record(&self.recorder, node, "RegisteredNode", &what);
                }
            }
            (None, old) => {
                self.health().remove(&name);
                if let Some(node) = old {
                    let what = format!("Removing Node {name} from Controller");
                    node_events::record(&self.recorder, node, "RemovingNode", &what);
                }
            }
        }
        self.context.queue.add(change.key.clone());
    }

    /// Queues nothing: the next periodic check uses the renewed lease.
    fn record_lease(&self, change: &Change) {
        let Some(lease) = change.new.as_deref() else { return };
        let now = self.context.now();
        let (_, name) = split(&change.key);
        self.health().entry(name.to_string()).or_default().record_lease(lease.at("spec.renewTime"), now);
    }
}

impl Controller {
    async fn sync(&self, name: &str) -> Result<Outcome> {
        let begun = tokio::time::Instant::now();
        let result = self.check_node(name).await;
        self.context.metrics.record(&metrics::NODE_HEALTH_DURATION, &[], begun.elapsed().as_secs_f64());
        result
    }

    async fn check_node(&self, name: &str) -> Result<Outcome> {
        let Some(node) = self.nodes.get(name) else {
            self.update_zone(name, None);
            return Ok(Outcome::Done);
        };
        let mut left = self.left(name, &node);
        if left.is_none() && !plan::is_silent(&node) {
            self.read_lease(name).await?;
            left = self.left(name, &node);
        }
        let node = if left.is_none() { self.mark_unknown(&node).await? } else { node };
        let counts = !node.map("metadata.labels").contains(EXCLUDED);
        self.update_zone(name, counts.then_some(&*node));
        if plan::is_silent(&node) {
            self.mark_pods(name).await?;
        }
        let wait = self.sync_taints(&node).await?;
        if let Some(patch) = plan::labels(&node) {
            self.context.client.patch(NODES, "", name, "", Patch::Merge(&patch)).await?;
        }
        // An unreachable node is queued again by its next event.
        let next = [left, wait].into_iter().flatten().min();
        Ok(next.map_or(Outcome::Done, Outcome::RequeueAfter))
    }

    fn left(&self, name: &str, node: &Tree) -> Option<Duration> {
        let now = self.context.now();
        self.watch.health().entry(name.to_string()).or_default().left(node, &self.grace_periods, now)
    }

    /// Reads the lease from the server before a node is marked Unknown: only the informer may be behind.
    async fn read_lease(&self, name: &str) -> Result<()> {
        match self.context.client.get(LEASES.resource, "kube-node-lease", name).await {
            Err(error) if error.is_not_found() => Ok(()),
            result => {
                let renewed = result?.at("spec.renewTime").clone();
                let now = self.context.now();
                self.watch.health().entry(name.to_string()).or_default().record_lease(&renewed, now);
                Ok(())
            }
        }
    }

    /// Marks a node that was silent for too long as Unknown.
    async fn mark_unknown(&self, node: &Arc<Tree>) -> Result<Arc<Tree>> {
        let Some(changed) = plan::silent(node, self.context.now_seconds()) else { return Ok(node.clone()) };
        let name = node.str("metadata.name");
        let written = self.context.client.update_status(NODES, "", name, &changed).await?;
        if plan::is_ready(node) {
            node_events::record_status(&self.watch.recorder, node, "NodeNotReady");
        }
        Ok(Arc::new(written))
    }

    /// Queues other nodes if the state of their zone, or of all zones, has changed.
    fn update_zone(&self, name: &str, node: Option<&Tree>) {
        let state = node.map(|node| (zone_of(node), plan::is_ready(node)));
        let shift = self.watch.zones().follow(name, state);
        if shift == ZoneChange::Recovered {
            let now = self.context.now();
            self.watch.health().values_mut().for_each(|health| health.restart_grace_period(now));
        }
        if shift != ZoneChange::None {
            self.nodes.keys().into_iter().for_each(|key| self.context.queue.add(key));
        }
    }

    /// Updates the taints from the conditions; returns how long another eviction in the zone must wait.
    async fn sync_taints(&self, node: &Tree) -> Result<Option<Duration>> {
        let (drive, wait) = self.no_execute_taint(node);
        let Some(taints) = plan::taints(node, drive, self.context.now_seconds()) else { return Ok(wait) };
        let taints = if taints.is_empty() { Tree::Null } else { Tree::from(taints) };
        let metadata = tree! { "resourceVersion" => node.str("metadata.resourceVersion") };
        let patch = tree! { "metadata" => metadata, "spec" => tree! { "taints" => taints } };
        let name = node.str("metadata.name");
        match self.context.client.patch(NODES, "", name, "", Patch::Merge(&patch)).await {
            Err(error) if error.is_not_found() => Ok(None),
            result => {
                result?;
                if matches!(drive, NoExecuteTaint::Add(_)) {
                    self.context.metrics.count(&metrics::NODE_EVICTIONS, &[&metric_label(&zone_of(node))]);
                }
                Ok(wait)
            }
        }
    }

    fn no_execute_taint(&self, node: &Tree) -> (NoExecuteTaint, Option<Duration>) {
        let mut zones = self.watch.zones();
        if zones.are_all_disrupted() {
            return (NoExecuteTaint::Remove, None);
        }
        match plan::no_execute_taint(node) {
            NoExecuteTaint::Add(key) => match zones.permit(&zone_of(node), self.context.now()) {
                EvictionPermit::Now => (NoExecuteTaint::Add(key), None),
                EvictionPermit::After(wait) => (NoExecuteTaint::Keep, Some(wait)),
                EvictionPermit::No => (NoExecuteTaint::Keep, None),
            },
            drive => (drive, None),
        }
    }

    /// Marks the pods of a silent node as not ready, since its kubelet cannot.
    async fn mark_pods(&self, node: &str) -> Result<()> {
        let now = self.context.now_seconds();
        let changed = self.pods.find(NODE, node).into_iter().filter_map(|pod| plan::unready_pod(&pod, now));
        let each: Vec<_> = changed.map(|pod| self.mark_pod(pod)).collect();
        batch::bounded(each).await.into_iter().collect()
    }

    async fn mark_pod(&self, pod: Tree) -> Result<()> {
        let (namespace, name) = (pod.str("metadata.namespace"), pod.str("metadata.name"));
        match self.context.client.update_status(PODS, namespace, name, &pod).await {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
            Ok(_) => {
                self.watch.recorder.warning(&pod, "NodeNotReady", "Node is not ready");
                Ok(())
            }
        }
    }
}

/// Nodes without labels share one zone.
fn zone_of(node: &Tree) -> String {
    let labels = node.map("metadata.labels");
    match (labels.str("topology.kubernetes.io/region"), labels.str("topology.kubernetes.io/zone")) {
        ("", "") => String::new(),
        (region, zone) => format!("{region}:\0:{zone}"),
    }
}

/// The name of a zone in metrics.
fn metric_label(zone: &str) -> String {
    zone.replace(":\0:", "_")
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
