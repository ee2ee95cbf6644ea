//! Owners that are deleted around a restart of the controllers. Objects from before the start have to be collected too,
//! in whichever order the garbage collector receives owners and dependents.

use std::time::Duration;

use api::Tree;
use client::{DeleteOptions, Resource};
use testkit::sim::Simulation;

use super::{MINUTE, NAMESPACE, json, nodes_come_up};

const DEPLOYMENTS: Resource = Resource::new("apps", "v1", "deployments");
const OWNERS: u64 = 3;

fn deployment(name: &str, replicas: u64) -> Tree {
    json(&format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"{name}"}},
            "spec":{{"replicas":{replicas},"selector":{{"matchLabels":{{"app":"{name}"}}}},
            "template":{{"metadata":{{"labels":{{"app":"{name}"}}}},
            "spec":{{"containers":[{{"name":"web","image":"web:0"}}]}}}}}}}}"#
    ))
}

/// The objects of a Deployment: its ReplicaSets and their pods.
fn dependents(simulation: &Simulation, name: &str) -> usize {
    let is_its = |object: &Tree| object.str("metadata.labels.app") == name;
    let count = |storage: &str| simulation.objects(storage, NAMESPACE).into_iter().filter(is_its).count();
    count("replicasets") + count("pods")
}

fn ready_pods(simulation: &Simulation, name: &str) -> u64 {
    let is_ready = |condition: &Tree| condition.str("type") == "Ready" && condition.str("status") == "True";
    let pods = simulation.objects("pods", NAMESPACE);
    let its = pods.iter().filter(|pod| pod.str("metadata.labels.app") == name);
    its.filter(|pod| pod.list("status.conditions").iter().any(is_ready)).count() as u64
}

async fn delete(simulation: &Simulation, name: &str) {
    let deleted = simulation.admin.delete(DEPLOYMENTS, NAMESPACE, name, DeleteOptions::default()).await;
    deleted.expect("the Deployment is there");
}

/// Deletes one Deployment just before the controllers are killed, one around their first lists, and one later.
async fn restart_and_delete(simulation: &mut Simulation, names: &[String]) {
    let down = simulation.random.seconds(1, 20);
    delete(simulation, &names[0]).await;
    simulation.restart_controllers(down).await;
    simulation.pass(Duration::from_millis(simulation.random.below(500))).await;
    delete(simulation, &names[1]).await;
    simulation.pass(simulation.random.seconds(1, 60)).await;
    delete(simulation, &names[2]).await;
}

async fn garbage(simulation: &mut Simulation) {
    nodes_come_up(simulation).await;
    for round in 0..2 {
        let names: Vec<String> = (0..OWNERS).map(|number| format!("web-{round}-{number}")).collect();
        let replicas = simulation.random.between(1, 3);
        for name in &names {
            simulation.admin.create(DEPLOYMENTS, NAMESPACE, &deployment(name, replicas)).await.expect("a Deployment");
        }
        let all_run = async |simulation: &Simulation| names.iter().all(|name| ready_pods(simulation, name) == replicas);
        simulation.until("all pods are ready", 5 * MINUTE, all_run).await;
        // In the second round requests fail as well.
        simulation.faults.set(round > 0);
        restart_and_delete(simulation, &names).await;
        simulation.faults.set(false);
        let none_left = async |simulation: &Simulation| names.iter().all(|name| dependents(simulation, name) == 0);
        simulation.until("all dependents are deleted", 5 * MINUTE, none_left).await;
    }
}

super::in_quarters!(2, garbage);
