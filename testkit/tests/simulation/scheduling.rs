//! More pods than fit, of two priorities, under faults: no node is ever assigned more than it has, and in the end no
//! pod is pending that fits.

use api::Tree;
use api::quantity::Quantity;
use client::Resource;
use testkit::sim::{Simulation, run_twice, seeds};

use super::{MINUTE, NAMESPACE, disturb, json, nodes_come_up};

const DEPLOYMENTS: Resource = Resource::new("apps", "v1", "deployments");
const CLASSES: Resource = Resource::new("scheduling.k8s.io", "v1", "priorityclasses");

const IMPORTANT: usize = 4;

fn deployment(name: &str, replicas: usize, cpu: &str, class: &str) -> Tree {
    json(&format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"{name}"}},
            "spec":{{"replicas":{replicas},"selector":{{"matchLabels":{{"app":"{name}"}}}},
            "template":{{"metadata":{{"labels":{{"app":"{name}"}}}},
            "spec":{{"priorityClassName":"{class}","containers":[{{"name":"c","image":"i",
            "resources":{{"requests":{{"cpu":"{cpu}"}}}}}}]}}}}}}}}"#
    ))
}

fn milli_cpu(pod: &Tree) -> i64 {
    let amount =
        |container: &Tree| Quantity::parse(container.str("resources.requests.cpu")).map_or(0, |one| one.milli_value());
    pod.list("spec.containers").iter().map(amount).sum()
}

fn lives(pod: &Tree) -> bool {
    !matches!(pod.str("status.phase"), "Succeeded" | "Failed")
}

/// The free capacity of each node.
fn left(simulation: &Simulation) -> Vec<i64> {
    let pods = simulation.objects("pods", "");
    let of = |node: &Tree| {
        let name = node.str("metadata.name");
        let offered = Quantity::parse(node.str("status.allocatable.cpu")).map_or(0, |one| one.milli_value());
        let there = pods.iter().filter(|pod| pod.str("spec.nodeName") == name && lives(pod));
        offered - there.map(milli_cpu).sum::<i64>()
    };
    simulation.objects("minions", "").iter().map(of).collect()
}

fn no_pod_waits_in_vain(simulation: &Simulation) -> bool {
    let pods = simulation.objects("pods", NAMESPACE);
    let waits = |pod: &&Tree| pod.str("spec.nodeName").is_empty();
    let most = left(simulation).into_iter().max().unwrap_or(0);
    let important = |pod: &&Tree| pod.str("metadata.labels.app") == "important" && pod.str("status.phase") == "Running";
    pods.iter().filter(waits).all(|pod| milli_cpu(pod) > most) && pods.iter().filter(important).count() == IMPORTANT
}

async fn crowd(simulation: &mut Simulation) {
    nodes_come_up(simulation).await;
    for (name, value) in [("low", 1), ("high", 100)] {
        let class = json(&format!(
            r#"{{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{{"name":"{name}"}},"value":{value}}}"#
        ));
        simulation.admin.create(CLASSES, "", &class).await.expect("a class");
    }
    let many = deployment("many", 12, "20", "low");
    simulation.admin.create(DEPLOYMENTS, NAMESPACE, &many).await.expect("a Deployment");
    disturb(simulation, simulation.random.seconds(20, 120)).await;
    let important = deployment("important", IMPORTANT, "30", "high");
    simulation.admin.create(DEPLOYMENTS, NAMESPACE, &important).await.expect("a Deployment");
    for _ in 0..3 {
        disturb(simulation, simulation.random.seconds(20, 120)).await;
        assert!(left(simulation).iter().all(|left| *left >= 0), "{}", simulation.describe());
    }
    let settled = async |simulation: &Simulation| no_pod_waits_in_vain(simulation);
    simulation.until("no pod is pending that fits", 15 * MINUTE, settled).await;
    simulation.pass(2 * MINUTE).await;
    assert!(settled(simulation).await, "it stays so\n{}", simulation.describe());
    assert!(left(simulation).iter().all(|left| *left >= 0), "{}", simulation.describe());
}

#[test]
fn nodes_are_never_overfilled_and_fitting_pods_are_bound() {
    for seed in seeds(2) {
        run_twice(seed, 3, crowd);
    }
}
