//! A node is lost for long: its pods are evicted and replaced, and when it returns no pod runs twice.

use std::time::Duration;

use api::Tree;
use client::Resource;
use testkit::sim::Simulation;

use super::{MINUTE, NAMESPACE, json, nodes_come_up};

const DEPLOYMENTS: Resource = Resource::new("apps", "v1", "deployments");
const REPLICAS: usize = 6;

fn ready(pod: &Tree) -> bool {
    let ready = |condition: &Tree| condition.str("type") == "Ready" && condition.str("status") == "True";
    pod.list("status.conditions").iter().any(ready) && !pod.at("metadata").has("deletionTimestamp")
}

/// Ready pods that are not on a node.
fn elsewhere(simulation: &Simulation, node: &str) -> usize {
    let pods = simulation.objects("pods", NAMESPACE);
    pods.iter().filter(|pod| ready(pod) && pod.str("spec.nodeName") != node).count()
}

fn deployment() -> Tree {
    json(&format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"web"}},
            "spec":{{"replicas":{REPLICAS},"selector":{{"matchLabels":{{"app":"web"}}}},
            "template":{{"metadata":{{"labels":{{"app":"web"}}}},
            "spec":{{"containers":[{{"name":"web","image":"web:1"}}]}}}}}}}}"#
    ))
}

async fn node_loss(simulation: &mut Simulation) {
    nodes_come_up(simulation).await;
    simulation.admin.create(DEPLOYMENTS, NAMESPACE, &deployment()).await.expect("a Deployment");
    let all = async |simulation: &Simulation| elsewhere(simulation, "") == REPLICAS;
    simulation.until("all pods are ready", 5 * MINUTE, all).await;
    let lost = simulation.random.below(simulation.node_count.into()) as u32;
    let name = format!("fake-{lost}");
    assert!(elsewhere(simulation, &name) < REPLICAS, "the node has pods");
    simulation.faults.set(true);
    simulation.set_node_down(lost, true).await;
    simulation.pass(simulation.random.seconds(1, 300)).await;
    simulation.restart_controllers(simulation.random.seconds(0, 20)).await;
    // Fifty seconds until it is thought lost, five minutes for which pods bear it, and what faults add.
    let replaced = async |simulation: &Simulation| elsewhere(simulation, &name) >= REPLICAS;
    simulation.until("the pods are made elsewhere", 25 * MINUTE, replaced).await;
    simulation.faults.set(false);
    simulation.set_node_down(lost, false).await;
    let settled = async |simulation: &Simulation| {
        let pods = simulation.objects("pods", NAMESPACE);
        pods.len() == REPLICAS && pods.iter().all(ready) && simulation.ready_nodes() == simulation.node_count as usize
    };
    simulation.until("nothing is there twice", 15 * MINUTE, settled).await;
    simulation.pass(Duration::from_secs(120)).await;
    assert!(settled(simulation).await, "it stays so\n{}", simulation.describe());
    let tainted = |node: &Tree| !node.list("spec.taints").is_empty();
    assert!(!simulation.objects("minions", "").iter().any(tainted), "{}", simulation.describe());
}

super::in_quarters!(3, node_loss);
