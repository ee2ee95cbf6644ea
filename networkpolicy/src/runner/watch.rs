//! Watches of the API. Pods and Namespaces are watched only while there are policies: a cache of all pods costs memory
//! on every node.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Tree, tree};
use client::{Change, Client, Informers, Key, Random, Recorder, Resource, Selection, ordered};
use podmodel::Labels;
use stdx::sync::Mutex;

use super::shared::Shared;
use crate::model::{Pod, Policy};

const POLICIES: Resource = Resource::new("networking.k8s.io", "v1", "networkpolicies");
const PODS: Resource = Resource::core("pods");
const NAMESPACES: Resource = Resource::core("namespaces");
/// Pods that have finished have no network.
const UNFINISHED: &str = "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed";

fn informers(client: &Client) -> Informers {
    Informers::new(client.clone(), Arc::new(Random::seeded(Random::fresh_seed())))
}

/// The watch of NetworkPolicies.
pub(super) struct PolicyWatch {
    informers: Informers,
    synced: ordered::Receiver<bool>,
}

impl PolicyWatch {
    pub(super) fn start(client: &Client, shared: &Arc<Shared>, recorder: Recorder) -> PolicyWatch {
        let informers = informers(client);
        let policies = informers.informer(Selection::all(POLICIES));
        let shared = shared.clone();
        policies.on_change(move |change| update_policy(&shared, &recorder, change));
        let synced = policies.synced();
        informers.start();
        PolicyWatch { informers, synced }
    }

    /// Waits for the first list.
    pub(super) async fn synced(&mut self) {
        // The informer exists as long as the watch.
        let _ = self.synced.wait_for(|synced| *synced).await;
    }

    pub(super) fn stop(&self) {
        self.informers.stop();
    }
}

fn update_policy(shared: &Shared, recorder: &Recorder, change: &Change) {
    let mut policies = shared.policies.lock();
    match change.new.as_deref() {
        Some(new) => {
            let policy = Policy::read(new);
            let is_same = change.old.as_deref().map(client::revision_of) == Some(client::revision_of(new));
            if !policy.problems.is_empty() && !is_same {
                report_problems(recorder, &policy);
            }
            policies.insert(change.key.clone(), Arc::new(policy));
        }
        None => drop(policies.remove(&change.key)),
    }
    drop(policies);
    shared.notify();
}

/// The rest of the policy is in force.
fn report_problems(recorder: &Recorder, policy: &Policy) {
    let Policy { namespace, name, uid, problems, .. } = policy;
    let text = problems.join("; ");
    tracing::warn!(%namespace, %name, problems = text, "parts of a network policy are invalid and allow nothing");
    let object: Tree = tree! {
        "apiVersion" => "networking.k8s.io/v1", "kind" => "NetworkPolicy",
        "metadata" => tree! { "namespace" => namespace.clone(), "name" => name.clone(), "uid" => uid.clone() },
    };
    recorder.warning(&object, "InvalidNetworkPolicy", format!("invalid parts allow nothing: {text}"));
}

/// The watch of Pods and Namespaces.
pub(super) struct PeerWatch {
    informers: Informers,
    synced: [ordered::Receiver<bool>; 2],
    peers: Arc<Peers>,
}

/// The objects that policies refer to. Changes after the end of a watch go to a value that is not used any more.
#[derive(Default)]
struct Peers {
    pods: Mutex<BTreeMap<Key, Arc<Pod>>>,
    namespaces: Mutex<BTreeMap<Key, Arc<Labels>>>,
}

impl PeerWatch {
    pub(super) fn start(client: &Client, shared: &Arc<Shared>) -> PeerWatch {
        let informers = informers(client);
        let peers = Arc::new(Peers::default());
        let pods = informers.informer(Selection { resource: PODS, query: UNFINISHED });
        let namespaces = informers.informer(Selection::all(NAMESPACES));
        let synced = [pods.synced(), namespaces.synced()];
        let (kept, notified) = (peers.clone(), shared.clone());
        pods.on_change(move |change| {
            // In the network of its node, a pod is neither selected nor a peer.
            let pod = change.new.as_deref().map(Pod::read).filter(|pod| !pod.host_network);
            if update(&kept.pods, &change.key, pod) {
                notified.notify();
            }
        });
        let (kept, notified) = (peers.clone(), shared.clone());
        namespaces.on_change(move |change| {
            let labels = change.new.as_deref().map(|tree| Labels::read(tree.map("metadata.labels")));
            if update(&kept.namespaces, &change.key, labels) {
                notified.notify();
            }
        });
        informers.start();
        PeerWatch { informers, synced, peers }
    }

    /// Whether the first lists are complete.
    pub(super) fn is_synced(&self) -> bool {
        self.synced.iter().all(|synced| *synced.borrow())
    }

    /// Waits for the first lists.
    pub(super) async fn synced(&mut self) {
        for synced in &mut self.synced {
            // The informers live as long as the watch.
            let _ = synced.wait_for(|synced| *synced).await;
        }
    }

    pub(super) fn pods(&self) -> BTreeMap<Key, Arc<Pod>> {
        self.peers.pods.lock().clone()
    }

    pub(super) fn namespaces(&self) -> BTreeMap<Key, Arc<Labels>> {
        self.peers.namespaces.lock().clone()
    }
}

impl Drop for PeerWatch {
    fn drop(&mut self) {
        self.informers.stop();
    }
}

/// Sets or removes a value; returns whether that changes anything.
fn update<T: PartialEq>(map: &Mutex<BTreeMap<Key, Arc<T>>>, key: &Key, value: Option<T>) -> bool {
    let mut map = map.lock();
    match value {
        Some(value) if map.get(key).is_some_and(|old| **old == value) => false,
        Some(value) => {
            map.insert(key.clone(), Arc::new(value));
            true
        }
        None => map.remove(key).is_some(),
    }
}
