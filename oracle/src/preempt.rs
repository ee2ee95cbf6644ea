//! Invariants of a preemption.

use api::Tree;

use super::{Case, ClusterState, Settings};

fn priority(pod: &Tree) -> i64 {
    pod.int("spec.priority").unwrap_or(0)
}

fn is(pod: &Tree, key: &str) -> bool {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    pod.str("metadata.namespace") == namespace && pod.str("metadata.name") == name
}

/// Victims, by `namespace/name`, that are as important as the pod.
pub fn find_wrong_victims(world: &ClusterState, pod: &Tree, victims: &[String]) -> Vec<String> {
    let keeps = |other: &&Tree| priority(other) >= priority(pod);
    let important = |key: &&String| world.pods.iter().filter(keeps).any(|other| is(other, key));
    victims.iter().filter(important).cloned().collect()
}

/// Victims that could have stayed: the pod also fits without evicting them. A pod that does not fit even without all
/// of them needs none.
pub fn find_needless_victims(
    world: &ClusterState,
    settings: &Settings,
    pod: &Tree,
    node: &str,
    victims: &[String],
) -> Vec<String> {
    let fits_without = |gone: &[String]| {
        let mut world = world.clone();
        world.pods.retain(|other| !gone.iter().any(|key| is(other, key)));
        let case = Case { world: &world, settings, pod };
        world.node(node).is_some_and(|node| case.fits(node))
    };
    if !fits_without(victims) {
        return victims.to_vec();
    }
    let spared = |key: &&String| {
        let others: Vec<String> = victims.iter().filter(|other| other != key).cloned().collect();
        fits_without(&others)
    };
    victims.iter().filter(spared).cloned().collect()
}
