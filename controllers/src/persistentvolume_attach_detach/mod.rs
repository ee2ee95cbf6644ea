//! Attaches the volumes of pods to their nodes through VolumeAttachments. Keys are nodes.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, tree};
use client::{
    Change, Client, DeleteOptions, Index, Key, Patch, Queue, Recorder, Resource, Result, Selection, Store, index,
};
use stdx::sync::Mutex;

use crate::metrics::ATTACHED;
use crate::support::event_message::EventMessage;
use crate::support::volumes::{BY_CLAIM, CLAIMS, VOLUMES, claim_ref, claims_of};
use crate::support::{NODES, PODS};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::{DesiredAttachment, ObservedState, Plan};

const ATTACHMENTS: Selection = Selection::all(Resource::new("storage.k8s.io", "v1", "volumeattachments"));
const DRIVERS: Selection = Selection::all(Resource::new("storage.k8s.io", "v1", "csidrivers"));
/// VolumeAttachments by volume.
const BY_VOLUME: Index =
    Index { name: "volume", values: |object| vec![object.str("spec.source.persistentVolumeName").to_string()] };

struct Controller {
    pods: Arc<Store>,
    claims: Arc<Store>,
    volumes: Arc<Store>,
    nodes: Arc<Store>,
    attachments: Arc<Store>,
    drivers: Arc<Store>,
    client: Client,
    recorder: Recorder,
    context: Context,
    state: Mutex<BTreeMap<String, NodeState>>,
}

/// The state of a node between two syncs.
#[derive(Default, Clone)]
struct NodeState {
    idle_since: BTreeMap<String, i64>,
    recorded: BTreeMap<Key, EventMessage>,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let [pods, claims, volumes, nodes, attachments, drivers] =
        [PODS, CLAIMS, VOLUMES, NODES, ATTACHMENTS, DRIVERS].map(|selection| setup.informer(selection));
    pods.index_by(index::NODE).index_by(BY_CLAIM);
    attachments.index_by(index::NODE).index_by(BY_VOLUME);
    show(context, attachments.store().clone());
    let queue = context.queue.clone();
    pods.on_change(move |change| add_nodes_of_pod(change, &queue));
    let queue = context.queue.clone();
    nodes.on_change(move |change| {
        if is_seen(change) {
            queue.add(change.key.clone());
        }
    });
    // A volume that is detached from one node may be awaited on another.
    for (informer, claim_of) in
        [(&attachments, claim_of_attachment as ClaimKeyFn), (&claims, claim_itself), (&volumes, claim_of_volume)]
    {
        let (queue, pods, volumes) = (context.queue.clone(), pods.store().clone(), volumes.store().clone());
        informer.on_change(move |change| {
            let Some(object) = change.new.as_deref().or(change.old.as_deref()) else { return };
            queue_node(&queue, object.str("spec.nodeName"));
            for pod in pods.find(BY_CLAIM, &claim_of(object, &volumes)) {
                queue_node(&queue, pod.str("spec.nodeName"));
            }
        });
    }
    Some(Box::new(Controller {
        pods: pods.store().clone(),
        claims: claims.store().clone(),
        volumes: volumes.store().clone(),
        nodes: nodes.store().clone(),
        attachments: attachments.store().clone(),
        drivers: drivers.store().clone(),
        client: context.client.clone(),
        recorder: context.recorder.named("attachdetach-controller"),
        context: context.clone(),
        state: Mutex::default(),
    }))
}

/// The key of the claim that an object belongs to.
type ClaimKeyFn = fn(&Tree, &Store) -> String;

fn claim_itself(claim: &Tree, _: &Store) -> String {
    client::key_of(claim).to_string()
}

fn claim_of_volume(volume: &Tree, _: &Store) -> String {
    claim_ref(volume)
}

fn claim_of_attachment(attachment: &Tree, volumes: &Store) -> String {
    let volume = volumes.get(attachment.str("spec.source.persistentVolumeName"));
    volume.map(|volume| claim_ref(&volume)).unwrap_or_default()
}

fn queue_node(queue: &Queue, node: &str) {
    if !node.is_empty() {
        queue.add(Key::from(node));
    }
}

fn add_nodes_of_pod(change: &Change, queue: &Queue) {
    let recorded = |pod: &Tree| (pod.str("spec.nodeName").to_string(), plan::needs_volumes(pod));
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    if old.map(recorded) == new.map(recorded) {
        return;
    }
    for pod in [old, new].into_iter().flatten().filter(|pod| !claims_of(pod).is_empty()) {
        queue_node(queue, pod.str("spec.nodeName"));
    }
}

fn is_seen(change: &Change) -> bool {
    let recorded = |node: &Tree| {
        let fields = ["status.volumesInUse", "status.volumesAttached", "spec.taints"];
        (fields.map(|field| node.at(field).clone()), plan::is_healthy(node))
    };
    change.old.as_deref().map(recorded) != change.new.as_deref().map(recorded)
}

/// Registers the gauge of attached volumes.
fn show(context: &Context, attachments: Arc<Store>) {
    context.metrics.on_collect([&ATTACHED], move |metrics| {
        let mut counts: BTreeMap<(String, &str), usize> = BTreeMap::new();
        for attachment in attachments.all() {
            let plugin = format!("kubernetes.io/csi:{}", attachment.str("spec.attacher"));
            if attachment.bool("status.attached") {
                *counts.entry((plugin.clone(), "actual_state_of_world")).or_default() += 1;
            }
            if !attachment.at("metadata").has("deletionTimestamp") {
                *counts.entry((plugin, "desired_state_of_world")).or_default() += 1;
            }
        }
        for ((plugin, state), count) in &counts {
            metrics.record(&ATTACHED, &[plugin, state], *count as f64);
        }
    });
}

impl Controller {
    async fn sync(&self, node_name: &str) -> Result<Outcome> {
        let node = self.nodes.get(node_name);
        let attachments = self.attachments_of(node_name);
        let state = self.state().get(node_name).cloned().unwrap_or_default();
        let plan = plan::plan(&ObservedState {
            node_name,
            node: node.as_deref(),
            desired: &self.desired(node_name),
            attachments: &attachments,
            volumes: &|name| self.volumes.get(name),
            idle_since: &state.idle_since,
            now: self.context.now_seconds(),
        });
        let again = plan.again_seconds;
        self.record_events(node_name, state, &plan);
        self.execute(node_name, plan).await?;
        Ok(again.map_or(Outcome::Done, |seconds| Outcome::RequeueAfter(Duration::from_secs(seconds.unsigned_abs()))))
    }

    /// Only attachments with the name that this controller would choose; others have other managers.
    fn attachments_of(&self, node: &str) -> Vec<Arc<Tree>> {
        let is_ours = |attachment: &Arc<Tree>| {
            let volume = self.volumes.get(attachment.str("spec.source.persistentVolumeName"));
            volume.is_some_and(|volume| plan::attachment_name(&volume, node) == attachment.str("metadata.name"))
        };
        self.attachments.find(index::NODE, node).into_iter().filter(is_ours).collect()
    }

    fn desired(&self, node: &str) -> Vec<DesiredAttachment> {
        let mut desired: BTreeMap<String, DesiredAttachment> = BTreeMap::new();
        for pod in self.pods.find(index::NODE, node).into_iter().filter(|pod| plan::needs_volumes(pod)) {
            for volume in claims_of(&pod).iter().filter_map(|claim| self.volume_of(claim)) {
                let name = volume.str("metadata.name").to_string();
                let fresh = || DesiredAttachment {
                    elsewhere: self.elsewhere(&volume, node),
                    volume: volume.clone(),
                    pods: Vec::new(),
                };
                desired.entry(name).or_insert_with(fresh).pods.push(pod.clone());
            }
        }
        desired.into_values().collect()
    }

    /// The volume of a bound claim if its driver attaches volumes.
    fn volume_of(&self, claim: &str) -> Option<Arc<Tree>> {
        let claim = self.claims.get(claim)?;
        let volume = self.volumes.get(claim.str("spec.volumeName"))?;
        let driver = volume.str("spec.csi.driver");
        let attaches =
            self.drivers.get(driver).is_none_or(|driver| driver.at("spec.attachRequired").as_bool() != Some(false));
        let is_bound = volume.str("spec.claimRef.uid") == claim.str("metadata.uid");
        (!driver.is_empty() && attaches && is_bound).then_some(volume)
    }

    fn elsewhere(&self, volume: &Tree, node: &str) -> Vec<(String, Vec<Arc<Tree>>)> {
        let name = volume.str("metadata.name");
        let others =
            self.attachments.find(BY_VOLUME, name).into_iter().map(|other| other.str("spec.nodeName").to_string());
        let users = |other: &str| {
            let pods = self.pods.find(BY_CLAIM, &claim_ref(volume)).into_iter();
            pods.filter(|pod| pod.str("spec.nodeName") == other && plan::needs_volumes(pod)).collect()
        };
        others.filter(|other| other != node).map(|other| (other.clone(), users(&other))).collect()
    }

    /// Records new events of each pod, and keeps the state of the node.
    fn record_events(&self, node: &str, mut state: NodeState, plan: &Plan) {
        let mut recorded = BTreeMap::new();
        for (pod, event) in &plan.events {
            let key = client::key_of(pod);
            if state.recorded.get(&key) != Some(event) {
                event.record(&self.recorder, pod);
            }
            recorded.insert(key, event.clone());
        }
        state.recorded = recorded;
        state.idle_since = plan.idle_since.clone();
        match state.recorded.is_empty() && state.idle_since.is_empty() {
            true => self.state().remove(node),
            false => self.state().insert(node.to_string(), state),
        };
    }

    async fn execute(&self, node: &str, plan: Plan) -> Result<()> {
        for attachment in &plan.create {
            match self.client.create(ATTACHMENTS.resource, "", attachment).await {
                Err(error) if !error.is_already_exists() => return Err(error),
                _ => {}
            }
        }
        if let Some(attached) = plan.attached {
            let patch = tree! { "status" => tree! { "volumesAttached" => attached } };
            self.client.patch(NODES.resource, "", node, "status", Patch::Merge(&patch)).await?;
        }
        for name in &plan.delete {
            match self.client.delete(ATTACHMENTS.resource, "", name, DeleteOptions::default()).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn state(&self) -> stdx::sync::MutexGuard<'_, BTreeMap<String, NodeState>> {
        self.state.lock()
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
