//! Has drivers attach the volumes of pods to their nodes. Keys are nodes.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, tree};
use client::{
    Change, Client, DeleteOptions, Index, Key, Patch, Queue, Recorder, Resource, Result, Selection, Store, index,
};
use stdx::sync::Mutex;

use crate::meters::ATTACHED;
use crate::support::note::Note;
use crate::support::volumes::{BY_CLAIM, CLAIMS, VOLUMES, claim_ref, claims_of};
use crate::support::{NODES, PODS};
use crate::{Context, Outcome, Reconcile, Reconciling, Setup};
use plan::{Observed, Plan, Wanted};

const ATTACHMENTS: Selection = Selection::all(Resource::new("storage.k8s.io", "v1", "volumeattachments"));
const DRIVERS: Selection = Selection::all(Resource::new("storage.k8s.io", "v1", "csidrivers"));
/// Attachments by the volume that they are of.
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
    memory: Mutex<BTreeMap<String, Memory>>,
}

/// What is kept of a node from one look to the next.
#[derive(Default, Clone)]
struct Memory {
    idle_since: BTreeMap<String, i64>,
    told: BTreeMap<Key, Note>,
}

pub fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
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
    // A volume that is let go on one node may be waited for on another.
    for (informer, claim_of) in
        [(&attachments, claim_of_attachment as ClaimOf), (&claims, claim_itself), (&volumes, claim_of_volume)]
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
        memory: Mutex::default(),
    }))
}

/// The key of the claim that an object has to do with.
type ClaimOf = fn(&Tree, &Store) -> String;

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
    let told = |pod: &Tree| (pod.str("spec.nodeName").to_string(), plan::needs_volumes(pod));
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    if old.map(told) == new.map(told) {
        return;
    }
    for pod in [old, new].into_iter().flatten().filter(|pod| !claims_of(pod).is_empty()) {
        queue_node(queue, pod.str("spec.nodeName"));
    }
}

fn is_seen(change: &Change) -> bool {
    let told = |node: &Tree| {
        let fields = ["status.volumesInUse", "status.volumesAttached", "spec.taints"];
        (fields.map(|field| node.at(field).clone()), plan::is_well(node))
    };
    change.old.as_deref().map(told) != change.new.as_deref().map(told)
}

/// What there is, for whoever asks.
fn show(context: &Context, attachments: Arc<Store>) {
    context.metrics.on_look([&ATTACHED], move |metrics| {
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
    async fn bring(&self, node_name: &str) -> Result<Outcome> {
        let node = self.nodes.get(node_name);
        let attachments = self.attachments_of(node_name);
        let memory = self.memory().get(node_name).cloned().unwrap_or_default();
        let plan = plan::plan(&Observed {
            node_name,
            node: node.as_deref(),
            wanted: &self.wanted(node_name),
            attachments: &attachments,
            volumes: &|name| self.volumes.get(name),
            idle_since: &memory.idle_since,
            now: self.context.now_seconds(),
        });
        let again = plan.again_seconds;
        self.tell(node_name, memory, &plan);
        self.carry_out(node_name, plan).await?;
        Ok(again.map_or(Outcome::Done, |seconds| Outcome::Again(Duration::from_secs(seconds.unsigned_abs()))))
    }

    /// Those whose name is what this controller would have given them; others have others to care for them.
    fn attachments_of(&self, node: &str) -> Vec<Arc<Tree>> {
        let is_ours = |attachment: &Arc<Tree>| {
            let volume = self.volumes.get(attachment.str("spec.source.persistentVolumeName"));
            volume.is_some_and(|volume| plan::attachment_name(&volume, node) == attachment.str("metadata.name"))
        };
        self.attachments.find(index::NODE, node).into_iter().filter(is_ours).collect()
    }

    fn wanted(&self, node: &str) -> Vec<Wanted> {
        let mut wanted: BTreeMap<String, Wanted> = BTreeMap::new();
        for pod in self.pods.find(index::NODE, node).into_iter().filter(|pod| plan::needs_volumes(pod)) {
            for volume in claims_of(&pod).iter().filter_map(|claim| self.volume_of(claim)) {
                let name = volume.str("metadata.name").to_string();
                let fresh =
                    || Wanted { elsewhere: self.elsewhere(&volume, node), volume: volume.clone(), pods: Vec::new() };
                wanted.entry(name).or_insert_with(fresh).pods.push(pod.clone());
            }
        }
        wanted.into_values().collect()
    }

    /// The volume of a bound claim, where its driver attaches.
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

    /// Says what is new of each pod, and remembers the rest.
    fn tell(&self, node: &str, mut memory: Memory, plan: &Plan) {
        let mut told = BTreeMap::new();
        for (pod, note) in &plan.notes {
            let key = client::key_of(pod);
            if memory.told.get(&key) != Some(note) {
                note.tell(&self.recorder, pod);
            }
            told.insert(key, note.clone());
        }
        memory.told = told;
        memory.idle_since = plan.idle_since.clone();
        match memory.told.is_empty() && memory.idle_since.is_empty() {
            true => self.memory().remove(node),
            false => self.memory().insert(node.to_string(), memory),
        };
    }

    async fn carry_out(&self, node: &str, plan: Plan) -> Result<()> {
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

    fn memory(&self) -> stdx::sync::MutexGuard<'_, BTreeMap<String, Memory>> {
        self.memory.lock()
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> Reconciling<'a> {
        Box::pin(self.bring(key))
    }
}
