//! Every plugin gives the same result as the reference, on every node.

use std::sync::Arc;

use api::{Tree, tree};
use client::Random;

use super::generate::{Generator, place};
use super::object_store::{put_namespace, snapshot};
use super::seeds;
use super::settings::{args, settings};
use crate::framework::{Cycle, Plugin, PreFilter, PreScore, Slot};
use crate::plugins::list::PLUGINS;
use crate::snapshot::{NodeId, NodeState, Snapshot};
use oracle::{Case, ClusterState, Settings, Verdict};
use podmodel::{Node, Pod};

#[test]
fn plugins_match_the_reference() {
    for seed in seeds(60) {
        let random = Random::seeded(seed);
        let mut generator = Generator { random: &random, made: 0 };
        let (nodes, pods) = (1 + generator.below(9), generator.below(25));
        let mut world = generator.world(nodes, pods);
        let (mut snapshot, _) = snapshot(&world);
        let settings = settings(&generator);
        for round in 0..6 {
            let pod = generator.pod();
            let node = generator.below(world.nodes.len() as u64) as usize;
            let mut judged = ComparedPod { world: &world, settings: &settings, snapshot: &mut snapshot, pod: &pod };
            judged.check(&format!("seed {seed} round {round}"));
            judged.check_what_if(&world.nodes[node], &format!("seed {seed} round {round}"));
            change(&mut generator, &mut world, &mut snapshot);
        }
    }
}

/// Changes between two decisions; the counts must follow.
fn change(generator: &mut Generator<'_>, world: &mut ClusterState, snapshot: &mut Snapshot) {
    for _ in 0..4 {
        let nodes = world.nodes.len() as u64;
        let at = generator.below(nodes) as usize;
        match generator.below(6) {
            0 | 1 => {
                let mut pod = generator.pod();
                place(&mut pod, world.nodes[at].str("metadata.name"));
                snapshot.put_pod(Arc::new(Pod::read(&pod)));
                world.pods.push(pod);
            }
            2 if !world.pods.is_empty() => {
                let gone = world.pods.swap_remove(generator.below(world.pods.len() as u64) as usize);
                snapshot.remove_pod(gone.str("metadata.uid"));
            }
            3 if !world.pods.is_empty() => {
                let at = generator.below(world.pods.len() as u64) as usize;
                let pod = &mut world.pods[at];
                pod.child("metadata").set("deletionTimestamp", "2026-01-01T00:00:00Z");
                snapshot.put_pod(Arc::new(Pod::read(pod)));
            }
            4 => {
                let node = generator.node(world.nodes[at].str("metadata.name"));
                snapshot.put_node(Node::read(&node));
                world.nodes[at] = node;
            }
            _ => {
                let at = generator.below(world.namespaces.len() as u64) as usize;
                let namespace = generator.namespace(world.namespaces[at].str("metadata.name"));
                put_namespace(snapshot, &namespace);
                world.namespaces[at] = namespace;
            }
        }
    }
}

/// A pod in a cluster that both know.
struct ComparedPod<'a> {
    world: &'a ClusterState,
    settings: &'a Settings,
    snapshot: &'a mut Snapshot,
    pod: &'a Tree,
}

impl ComparedPod<'_> {
    fn check(&mut self, context: &str) {
        let ComparedPod { world, settings, snapshot, pod } = self;
        let (world, settings, pod) = (*world, *settings, *pod);
        let (case, args) = (Case { world, settings, pod }, args(settings));
        let read = Arc::new(Pod::read(pod));
        for listed in PLUGINS {
            let Some(wanted) = oracle::find(listed.name) else { continue };
            let plugin = (listed.make)(&args);
            snapshot.update_order();
            plugin.prepare(snapshot, &read);
            let prepared = PreparedPlugin::new(&*plugin, Cycle { snapshot, pod: &read });
            for node in world.nodes.iter().filter(|_| wanted.filter.is_some()) {
                let want = wanted.filter.map(|filter| filter(&case, node)).unwrap_or(Verdict::Fits);
                let state = snapshot.find(node.str("metadata.name")).expect("the node is known");
                assert_eq!(prepared.verdict(state), want, "{context} {} on {}: {}", listed.name, text(node), text(pod));
            }
            if let Some(score) = wanted.score {
                let nodes: Vec<&Tree> = world.nodes.iter().collect();
                let want = score(&case, &nodes).unwrap_or_else(|| vec![0; nodes.len()]);
                assert_eq!(prepared.scores(&nodes), want, "{context} {}: {}", listed.name, text(pod));
            }
        }
    }

    /// Simulates removing pods from a node, as preemption does, and adding one back.
    fn check_what_if(&mut self, node: &Tree, context: &str) {
        let ComparedPod { world, settings, snapshot, pod } = self;
        let (world, settings, pod) = (*world, *settings, *pod);
        let name = node.str("metadata.name");
        let read = Arc::new(Pod::read(pod));
        let mut less = world.clone();
        let goes = |other: &Tree| other.str("spec.nodeName") == name && other.int("spec.priority") == Some(0);
        let back = less.pods.iter().find(|other| goes(other)).cloned();
        less.pods.retain(|other| !goes(other));
        less.pods.extend(back.clone());
        let back = back.map(|back| back.str("metadata.uid").to_string());
        let (case, args) = (Case { world: &less, settings, pod }, args(settings));
        for listed in PLUGINS {
            let Some(filter) = oracle::find(listed.name).and_then(|plugin| plugin.filter) else { continue };
            let plugin = (listed.make)(&args);
            snapshot.update_order();
            plugin.prepare(snapshot, &read);
            let cycle = Cycle { snapshot, pod: &read };
            let mut prepared = PreparedPlugin::new(&*plugin, cycle);
            // A skipped plugin gets no updates.
            if prepared.slot().is_none() {
                continue;
            }
            let mut state = snapshot.find(name).expect("the node is known").clone();
            let gone: Vec<Arc<Pod>> = state.pods.iter().filter(|other| other.priority == 0).cloned().collect();
            for other in &gone {
                state.remove(&other.uid);
                prepared.slot().into_iter().for_each(|slot| plugin.remove_pod(cycle, slot, other, &state));
            }
            for other in gone.iter().filter(|other| Some(other.uid.as_str()) == back.as_deref()) {
                state.add(other.clone());
                prepared.slot().into_iter().for_each(|slot| plugin.add_pod(cycle, slot, other, &state));
            }
            let want = filter(&case, node);
            assert_eq!(
                prepared.verdict(&state),
                want,
                "{context} {} without pods of {name}: {}",
                listed.name,
                text(pod)
            );
        }
    }
}

fn text(object: &Tree) -> String {
    String::from_utf8_lossy(&api::json::encode(object, None)).into_owned()
}

/// A plugin with its PreFilter result for a pod.
pub(super) struct PreparedPlugin<'a> {
    plugin: &'a dyn Plugin,
    cycle: Cycle<'a>,
    /// None if it is skipped.
    pre_filter: Option<PreFilter>,
}

impl<'a> PreparedPlugin<'a> {
    pub(super) fn new(plugin: &'a dyn Plugin, cycle: Cycle<'a>) -> PreparedPlugin<'a> {
        let pre_filter = match plugin.pre_filter(cycle) {
            PreFilter::Skip => None,
            other => Some(other),
        };
        PreparedPlugin { plugin, cycle, pre_filter }
    }

    /// Its state for the pod, if any.
    fn slot(&mut self) -> Option<&mut Slot> {
        match &mut self.pre_filter {
            Some(PreFilter::Check(slot) | PreFilter::Only(_, slot)) => Some(slot),
            _ => None,
        }
    }

    pub(super) fn verdict(&self, node: &NodeState) -> Verdict {
        let verdict = match &self.pre_filter {
            None => Ok(()),
            Some(PreFilter::Refuse(rejection)) => Err(rejection.clone()),
            Some(PreFilter::Check(slot) | PreFilter::Only(_, slot)) => self.plugin.filter(self.cycle, slot, node),
            Some(PreFilter::Skip) => Ok(()),
        };
        match verdict {
            Ok(()) => Verdict::Fits,
            Err(rejection) => {
                let reasons = rejection.reasons.iter().map(|reason| reason.to_string()).collect();
                if rejection.is_final { Verdict::Unresolvable(reasons) } else { Verdict::Unschedulable(reasons) }
            }
        }
    }

    fn scores(&self, nodes: &[&Tree]) -> Vec<i64> {
        let states: Vec<&NodeState> =
            nodes.iter().filter_map(|node| self.cycle.snapshot.find(node.str("metadata.name"))).collect();
        let ids: Vec<NodeId> = states.iter().map(|state| state.id).collect();
        let empty = Slot::default();
        let slot = match &self.pre_filter {
            Some(PreFilter::Check(slot) | PreFilter::Only(_, slot)) => slot,
            _ => &empty,
        };
        let PreScore::Rate(slot) = self.plugin.pre_score(self.cycle, slot, &ids) else { return vec![0; ids.len()] };
        let mut scores: Vec<i64> = states.iter().map(|state| self.plugin.score(self.cycle, &slot, state)).collect();
        self.plugin.normalize(self.cycle, &slot, &ids, &mut scores);
        scores
    }
}

#[test]
fn detects_differences() {
    let mut world = ClusterState::default();
    world.nodes.push(tree! { "metadata" => tree! { "name" => "n", "uid" => "n" } });
    let (mut snapshot, _) = snapshot(&world);
    world.nodes[0].child("spec").set("unschedulable", true);
    let pod = tree! { "metadata" => tree! { "name" => "p" } };
    let settings = Settings::default();
    let mut judged = ComparedPod { world: &world, settings: &settings, snapshot: &mut snapshot, pod: &pod };
    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| judged.check("")));
    assert!(checked.is_err());
}
