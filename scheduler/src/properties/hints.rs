//! Queueing hints are complete: if an event lets a plugin accept a node that it rejected, its hint returns true for the
//! event.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Str, Tree};
use client::Random;

use super::compare::PreparedPlugin;
use super::generate::{Generator, place};
use super::object_store::{ObjectStore, put_namespace, snapshot};
use super::seeds;
use crate::framework::{Cycle, Event};
use crate::plugins::args::Args;
use crate::plugins::list::PLUGINS;
use crate::snapshot::{Kind, Snapshot};
use oracle::{ClusterState, Verdict};
use podmodel::{Node, Pod};

#[test]
fn hints_are_complete() {
    let mut helped: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in seeds(80) {
        let random = Random::seeded(seed);
        let mut generator = Generator { random: &random, made: 0 };
        let (nodes, pods) = (1 + generator.below(5), generator.below(15));
        let world = generator.world(nodes, pods);
        let (snapshot, kept) = snapshot(&world);
        let mut cluster = Cluster { world, snapshot, kept };
        for round in 0..10 {
            let mut pod = generator.pod();
            let before = cluster.verdicts(&pod);
            let happened = cluster.happen(&mut generator, &mut pod);
            let after = cluster.verdicts(&pod);
            let read = Pod::read(&pod);
            for (listed, (before, after)) in PLUGINS.iter().zip(before.iter().zip(&after)) {
                let refused_some = before.values().any(|fits| !fits);
                let better = after.iter().any(|(node, fits)| *fits && before.get(node) != Some(&true));
                if !refused_some || !better {
                    continue;
                }
                let plugin = (listed.make)(&Args::default());
                assert!(
                    happened.tell(|event| plugin.may_help(&read, event)),
                    "seed {seed} round {round}: {} of {happened:?} for {}",
                    listed.name,
                    String::from_utf8_lossy(&api::json::encode(&pod, None))
                );
                *helped.entry(listed.name).or_default() += 1;
            }
        }
    }
    assert!(helped.len() > 8, "{helped:?}");
}

#[derive(Debug)]
enum ClusterChange {
    Placed(Pod),
    Gone(Pod),
    Changed(Pod, Pod),
    Itself(Pod, Pod),
    Added(Node),
    NodeChanged(Node, Node),
    NodeDeleted(Node),
    Namespace,
    Object(Kind, Option<Tree>, Tree),
}

impl ClusterChange {
    fn tell(&self, may_help: impl Fn(&Event) -> bool) -> bool {
        may_help(&match self {
            ClusterChange::Placed(pod) => Event::PodPlaced(pod),
            ClusterChange::Gone(pod) => Event::PodDeleted(pod),
            ClusterChange::Changed(old, new) => Event::PodChanged { old, new },
            ClusterChange::Itself(old, new) => Event::SelfChanged { old, new },
            ClusterChange::Added(node) => Event::NodeAdded(node),
            ClusterChange::NodeChanged(old, new) => Event::NodeChanged { old, new },
            ClusterChange::NodeDeleted(node) => Event::NodeDeleted(node),
            ClusterChange::Namespace => Event::NamespaceChanged,
            ClusterChange::Object(kind, old, new) => Event::Object { kind: *kind, old: old.as_ref(), new: Some(new) },
        })
    }
}

struct Cluster {
    world: ClusterState,
    snapshot: Snapshot,
    kept: Arc<ObjectStore>,
}

impl Cluster {
    /// By plugin of the list: which nodes it accepts.
    fn verdicts(&mut self, pod: &Tree) -> Vec<BTreeMap<Str, bool>> {
        let pod = Arc::new(Pod::read(pod));
        let mut all = Vec::new();
        for listed in PLUGINS {
            let plugin = (listed.make)(&Args::default());
            self.snapshot.update_order();
            plugin.prepare(&mut self.snapshot, &pod);
            let prepared = PreparedPlugin::new(&*plugin, Cycle { snapshot: &self.snapshot, pod: &pod });
            let verdict = |state: &crate::snapshot::NodeState| prepared.verdict(state) == Verdict::Fits;
            all.push(self.snapshot.nodes().map(|state| (state.node.name.clone(), verdict(state))).collect());
        }
        all
    }

    fn happen(&mut self, generator: &mut Generator<'_>, waiting: &mut Tree) -> ClusterChange {
        let at = generator.below(self.world.nodes.len() as u64) as usize;
        let has_pods = !self.world.pods.is_empty();
        match generator.below(9) {
            0 => self.pod_placed(generator, at),
            1 if has_pods => self.pod_deleted(generator),
            2 if has_pods => self.pod_changed(generator),
            3 => {
                let old = Pod::read(waiting);
                let other = generator.pod();
                waiting.child("metadata").set("labels", other.at("metadata.labels").clone());
                waiting.child("spec").set("tolerations", other.at("spec.tolerations").clone());
                ClusterChange::Itself(old, Pod::read(waiting))
            }
            4 => {
                let node = generator.node(&format!("new{}", generator.made));
                self.snapshot.put_node(Node::read(&node));
                self.world.nodes.push(node.clone());
                ClusterChange::Added(Node::read(&node))
            }
            5 if self.world.nodes.len() > 1 => {
                let node = self.world.nodes.swap_remove(at);
                self.snapshot.remove_node(node.str("metadata.name"));
                ClusterChange::NodeDeleted(Node::read(&node))
            }
            6 => {
                let index = generator.below(self.world.namespaces.len() as u64) as usize;
                let namespace = generator.namespace(self.world.namespaces[index].str("metadata.name"));
                put_namespace(&mut self.snapshot, &namespace);
                self.world.namespaces[index] = namespace;
                ClusterChange::Namespace
            }
            7 => self.claim_changed(generator, waiting),
            _ => {
                let node = generator.node(self.world.nodes[at].str("metadata.name"));
                let old = std::mem::replace(&mut self.world.nodes[at], node.clone());
                self.snapshot.put_node(Node::read(&node));
                ClusterChange::NodeChanged(Node::read(&old), Node::read(&node))
            }
        }
    }

    fn pod_placed(&mut self, generator: &mut Generator<'_>, at: usize) -> ClusterChange {
        let mut pod = generator.pod();
        place(&mut pod, self.world.nodes[at].str("metadata.name"));
        let read = Pod::read(&pod);
        self.snapshot.put_pod(Arc::new(read.clone()));
        self.world.pods.push(pod);
        ClusterChange::Placed(read)
    }

    fn pod_deleted(&mut self, generator: &Generator<'_>) -> ClusterChange {
        let gone = self.world.pods.swap_remove(generator.below(self.world.pods.len() as u64) as usize);
        self.snapshot.remove_pod(gone.str("metadata.uid"));
        ClusterChange::Gone(Pod::read(&gone))
    }

    fn pod_changed(&mut self, generator: &mut Generator<'_>) -> ClusterChange {
        let at = generator.below(self.world.pods.len() as u64) as usize;
        let old = Pod::read(&self.world.pods[at]);
        match generator.chance(50) {
            true => self.world.pods[at].child("metadata").set("deletionTimestamp", "2026-01-01T00:00:00Z"),
            false => {
                let labels = generator.pod().at("metadata.labels").clone();
                self.world.pods[at].child("metadata").set("labels", labels);
            }
        }
        let new = Pod::read(&self.world.pods[at]);
        self.snapshot.put_pod(Arc::new(new.clone()));
        ClusterChange::Changed(old, new)
    }

    /// A claim of the unscheduled pod is created or bound.
    fn claim_changed(&mut self, generator: &Generator<'_>, waiting: &Tree) -> ClusterChange {
        let namespace = waiting.str("metadata.namespace");
        let names = waiting.list("spec.volumes").iter().map(|volume| volume.str("persistentVolumeClaim.claimName"));
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("missing");
        let is_it = |claim: &&Tree| claim.str("metadata.namespace") == namespace && claim.str("metadata.name") == name;
        let old = self.world.claims.iter().find(is_it).cloned();
        let mut new = api::tree! {
            "metadata" => api::tree! { "name" => name, "namespace" => namespace, "uid" => name },
            "spec" => api::tree! { "storageClassName" => "late", "accessModes" => api::list!["ReadWriteOnce"] },
        };
        if generator.chance(50) {
            new.child("spec").set("volumeName", "vb");
            new.child("metadata").set("annotations", api::tree! { "pv.kubernetes.io/bind-completed" => "yes" });
        }
        self.world.claims.retain(|claim| !is_it(&claim));
        self.world.claims.push(new.clone());
        self.kept.put(Kind::PersistentVolumeClaim, &new);
        ClusterChange::Object(Kind::PersistentVolumeClaim, old, new)
    }
}
