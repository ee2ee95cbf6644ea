//! A third of the nodes is lost at once: each zone is emptied at the rate of its controller, and no pod runs twice. A zone of
//! which most nodes are silent is left alone, since the network is the likelier cause.

use std::collections::BTreeMap;
use std::time::Duration;

use api::Tree;
use client::Resource;
use testkit::sim::{Simulation, run_twice, seeds};

use super::{MINUTE, NAMESPACE, json, nodes_come_up};

const DEPLOYMENTS: Resource = Resource::new("apps", "v1", "deployments");
const NODES: u32 = 20;
const REPLICAS: usize = 40;
const ZONE: &str = "topology.kubernetes.io/zone";
/// Upstream's `--node-eviction-rate`: 0.1 nodes a second.
const PAUSE_SECONDS: i64 = 10;

fn deployment() -> Tree {
    json(&format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"web"}},
            "spec":{{"replicas":{REPLICAS},"selector":{{"matchLabels":{{"app":"web"}}}},
            "template":{{"metadata":{{"labels":{{"app":"web"}}}},
            "spec":{{"tolerations":[{{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute",
            "tolerationSeconds":5}}],"containers":[{{"name":"web","image":"web:1"}}]}}}}}}}}"#
    ))
}

fn is_ready(pod: &Tree) -> bool {
    let ready = |condition: &Tree| condition.str("type") == "Ready" && condition.str("status") == "True";
    pod.list("status.conditions").iter().any(ready) && !pod.at("metadata").has("deletionTimestamp")
}

/// When each node got the taint that evicts its pods, by zone.
fn evictions(simulation: &Simulation) -> BTreeMap<String, Vec<i64>> {
    let mut zones: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for node in simulation.objects("minions", "") {
        let taints = node.list("spec.taints").iter();
        let mut evicting = taints.filter(|taint| taint.str("effect") == "NoExecute");
        if let Some(taint) = evicting.next() {
            let added = api::time::parse(taint.str("timeAdded")).expect("a time").seconds;
            zones.entry(node.map("metadata.labels").str(ZONE).to_string()).or_default().push(added);
        }
    }
    zones.values_mut().for_each(|times| times.sort_unstable());
    zones
}

async fn set_down(simulation: &Simulation, nodes: &[u32], down: bool) {
    for &node in nodes {
        simulation.set_node_down(node, down).await;
    }
}

async fn settles(simulation: &Simulation) {
    let settled = async |simulation: &Simulation| {
        let pods = simulation.objects("pods", NAMESPACE);
        pods.len() == REPLICAS && pods.iter().all(is_ready) && simulation.ready_nodes() == NODES as usize
    };
    simulation.until("everything is there once", 15 * MINUTE, settled).await;
}

/// The pods that live on some of the nodes.
fn pods_on(simulation: &Simulation, nodes: &[u32]) -> usize {
    let names: Vec<String> = nodes.iter().map(|node| format!("fake-{node}")).collect();
    let pods = simulation.objects("pods", NAMESPACE);
    pods.iter().filter(|pod| is_ready(pod) && names.iter().any(|name| pod.str("spec.nodeName") == name)).count()
}

async fn crowd_loss(simulation: &mut Simulation) {
    nodes_come_up(simulation).await;
    simulation.admin.create(DEPLOYMENTS, NAMESPACE, &deployment()).await.expect("a Deployment");
    settles(simulation).await;
    // Two of the seven nodes of each zone.
    let lost = [0, 1, 2, 3, 4, 5];
    set_down(simulation, &lost, true).await;
    let replaced = async |simulation: &Simulation| {
        let elsewhere = simulation.objects("pods", NAMESPACE).iter().filter(|pod| is_ready(pod)).count();
        elsewhere - pods_on(simulation, &lost) >= REPLICAS
    };
    simulation.until("the pods are made elsewhere", 15 * MINUTE, replaced).await;
    let zones = evictions(simulation);
    assert_eq!(zones.values().map(Vec::len).collect::<Vec<_>>(), [2, 2, 2], "{zones:?}");
    for (zone, times) in &zones {
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= PAUSE_SECONDS), "{zone}: {times:?}");
    }
    set_down(simulation, &lost, false).await;
    settles(simulation).await;
    assert!(evictions(simulation).is_empty(), "{}", simulation.describe());

    // Six of the seven nodes of one zone, which is too small for the secondary rate.
    let zone = [0, 3, 6, 9, 12, 15];
    let before = pods_on(simulation, &zone);
    set_down(simulation, &zone, true).await;
    let silent = async |simulation: &Simulation| simulation.ready_nodes() == NODES as usize - zone.len();
    simulation.until("the zone is silent", 5 * MINUTE, silent).await;
    simulation.pass(Duration::from_secs(600)).await;
    let evicted = evictions(simulation).values().map(Vec::len).sum::<usize>();
    // One may be evicted before the others are known to be silent.
    assert!(evicted <= 1, "{evicted} of the zone were emptied\n{}", simulation.describe());
    set_down(simulation, &zone, false).await;
    settles(simulation).await;
    assert!(before > 0);
}

#[test]
fn a_third_of_the_nodes_is_lost_at_once() {
    for seed in seeds(1) {
        run_twice(seed, NODES, crowd_loss);
    }
}
