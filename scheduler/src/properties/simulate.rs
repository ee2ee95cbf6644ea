//! Whole decisions in random clusters: the reference checks each of them and the resulting cluster.

use std::sync::Arc;

use api::Tree;
use client::Random;

use super::generate::{Generator, place};
use super::object_store::{ObjectStore, snapshot};
use super::seeds;
use crate::cycle::{Decision, Preemption, SchedulingAlgorithm};
use crate::framework::Point;
use crate::plugins::list::default_profile;
use crate::snapshot::{Kind, Snapshot};
use oracle::{Case, ClusterState, Settings};
use podmodel::Pod;

#[test]
fn decisions_are_correct_and_deterministic() {
    let mut all = Vec::new();
    for seed in seeds(30) {
        let (judged, again) = (run(seed, true), run(seed, false));
        assert_eq!(judged, again, "seed {seed}");
        all.extend(judged);
    }
    for what in [" on ", " waits", " go from "] {
        let count = all.iter().filter(|line| line.contains(what)).count();
        assert!(count > 0, "no pod{what}");
    }
}

/// The result for each pod.
fn run(seed: u64, is_judged: bool) -> Vec<String> {
    let random = Random::seeded(seed);
    let mut generator = Generator { random: &random, made: 0 };
    let nodes = 2 + generator.below(10);
    let world = generator.world(nodes, 0);
    let (snapshot, kept) = snapshot(&world);
    let algorithm = SchedulingAlgorithm::new(Arc::new(default_profile("default-scheduler")));
    let mut cluster = Cluster { world, snapshot, kept, algorithm, random: &random, is_judged, log: Vec::new() };
    for round in 0..40 {
        let mut pod = generator.pod();
        bind_at_once_only(&mut pod);
        let context = format!("seed {seed} round {round}");
        cluster.schedule(pod, &context);
        if !cluster.world.pods.is_empty() && generator.chance(15) {
            let at = generator.below(cluster.world.pods.len() as u64) as usize;
            let gone = cluster.world.pods.swap_remove(at);
            cluster.snapshot.remove_pod(gone.str("metadata.uid"));
        }
    }
    if is_judged {
        cluster.check_distances(&format!("seed {seed}"));
    }
    cluster.log
}

/// Claims with delayed binding need a controller that does not run here; they are replaced.
fn bind_at_once_only(pod: &mut Tree) {
    for volume in pod.list_mut("spec.volumes") {
        if matches!(volume.str("persistentVolumeClaim.claimName"), "local" | "large") {
            volume.child("persistentVolumeClaim").set("claimName", "late");
        }
    }
}

struct Cluster<'a> {
    world: ClusterState,
    snapshot: Snapshot,
    kept: Arc<ObjectStore>,
    algorithm: SchedulingAlgorithm,
    random: &'a Random,
    /// Whether the reference checks each step.
    is_judged: bool,
    log: Vec<String>,
}

impl Cluster<'_> {
    fn schedule(&mut self, pod: Tree, context: &str) {
        let read = Arc::new(Pod::read(&pod));
        let decided = self.algorithm.decide(&mut self.snapshot, &read, self.random);
        let name = pod.str("metadata.name").to_string();
        match decided.decision {
            Decision::Place { node, .. } => {
                let state = self.snapshot.node(node).expect("the node is there");
                let node = state.name().to_string();
                let cycle = crate::framework::Cycle { snapshot: &self.snapshot, pod: &read };
                for (position, plugin) in self.algorithm.profile.at(Point::Reserve) {
                    plugin.reserve(cycle, &decided.slots[position], state).expect("what was chosen can be had");
                    plugin.unreserve(&read, &node);
                }
                self.check_place(&pod, &node, context);
                self.log.push(format!("{name} on {node}"));
                self.place(pod, &node);
            }
            Decision::Wait { preemption, .. } => {
                self.check_wait(&pod, context);
                self.log.push(format!("{name} waits"));
                if let Some(preemption) = preemption {
                    self.preempt(pod, preemption, context);
                }
            }
        }
    }

    fn case<'b>(&'b self, settings: &'b Settings, pod: &'b Tree) -> Case<'b> {
        Case { world: &self.world, settings, pod }
    }

    /// The node is feasible, and none scores higher.
    fn check_place(&self, pod: &Tree, node: &str, context: &str) {
        if !self.is_judged {
            return;
        }
        let settings = Settings::default();
        let case = self.case(&settings, pod);
        let rejection = self.world.node(node).and_then(|node| case.rejection(node));
        assert_eq!(rejection, None, "{context}: {node} for {pod:?}");
        assert!(case.best().contains(&node), "{context}: {node} is not among {:?} for {pod:?}", case.best());
    }

    /// No node is feasible.
    fn check_wait(&self, pod: &Tree, context: &str) {
        if !self.is_judged {
            return;
        }
        let settings = Settings::default();
        let feasible = self.case(&settings, pod).feasible();
        assert!(feasible.is_empty(), "{context}: {:?} for {pod:?}", feasible[0].str("metadata.name"));
    }

    /// No victim is as important as the pod, and none is needless.
    fn check_preemption(&self, pod: &Tree, node: &str, victims: &[String], context: &str) {
        let wrong = oracle::find_wrong_victims(&self.world, pod, victims);
        assert!(wrong.is_empty() && !victims.is_empty(), "{context}: {wrong:?} of {victims:?}");
        let needless = oracle::find_needless_victims(&self.world, &Settings::default(), pod, node, victims);
        assert!(needless.is_empty(), "{context}: {needless:?} of {victims:?} from {node} for {pod:?}");
    }

    fn preempt(&mut self, pod: Tree, preemption: Preemption, context: &str) {
        let victims: Vec<String> = preemption.victims.iter().map(|victim| victim.key.to_string()).collect();
        let node = self.snapshot.node(preemption.node).expect("the node is there").name().to_string();
        if self.is_judged {
            self.check_preemption(&pod, &node, &victims, context);
        }
        self.log.push(format!("{victims:?} go from {node}"));
        for victim in &preemption.victims {
            self.snapshot.remove_pod(&victim.uid);
            self.world.pods.retain(|other| other.str("metadata.uid") != victim.uid);
        }
        self.schedule(pod, context);
    }

    fn place(&mut self, mut pod: Tree, node: &str) {
        place(&mut pod, node);
        self.snapshot.assume(Arc::new(Pod::read(&pod)));
        for volume in pod.list("spec.volumes") {
            self.select_node(pod.str("metadata.namespace"), volume.str("persistentVolumeClaim.claimName"), node);
        }
        self.world.pods.push(pod);
        if self.is_judged {
            self.check_room(node, &format!("{:?}", self.log.last()));
        }
    }

    /// As the scheduler writes it for a volume to be provisioned.
    fn select_node(&mut self, namespace: &str, name: &str, node: &str) {
        let is_it =
            |claim: &&mut Tree| claim.str("metadata.namespace") == namespace && claim.str("metadata.name") == name;
        let late = self.world.claims.iter_mut().filter(|claim| claim.str("spec.storageClassName") == "late");
        for claim in late.into_iter().filter_map(|claim| Some(claim).filter(is_it)) {
            let old = claim.clone();
            claim.child("metadata").child("annotations").set("volume.kubernetes.io/selected-node", node);
            self.kept.put(Kind::PersistentVolumeClaim, claim);
            self.snapshot.object_changed(Kind::PersistentVolumeClaim, Some(&old), Some(claim));
        }
    }

    /// No node is overcommitted.
    fn check_room(&self, node: &str, context: &str) {
        let settings = Settings::default();
        let case = self.case(&settings, &Tree::Null);
        let node = self.world.node(node).expect("the node is there");
        let room = oracle::allocatable(node);
        for (resource, used) in oracle::used(&case, node) {
            let room = room.get(&resource).copied().unwrap_or(0);
            assert!(used <= room, "{context}: {used} of {room} {resource} on {}", node.str("metadata.name"));
        }
    }

    /// All anti-affinity terms hold, in any order of arrival.
    fn check_distances(&self, context: &str) {
        let settings = Settings::default();
        let filter = oracle::find("InterPodAffinity").and_then(|plugin| plugin.filter).expect("it filters");
        let mut world = self.world.clone();
        world.pods.iter_mut().for_each(|pod| drop(pod.child("spec.affinity").remove("podAffinity")));
        for _ in 0..world.pods.len() {
            let pod = world.pods.remove(0);
            let case = Case { world: &world, settings: &settings, pod: &pod };
            let node = world.node(pod.str("spec.nodeName")).expect("the node is there");
            assert_eq!(filter(&case, node), oracle::Verdict::Fits, "{context}: {pod:?}");
            world.pods.push(pod);
        }
    }
}
