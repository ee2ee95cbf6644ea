//! Deployments that are changed repeatedly under faults.

use std::time::Duration;

use api::Tree;
use client::{Patch, Resource};
use testkit::sim::Simulation;

use super::{MINUTE, NAMESPACE, disturb, json, nodes_come_up};

const DEPLOYMENTS: Resource = Resource::new("apps", "v1", "deployments");

fn deployment(replicas: u64) -> Tree {
    json(&format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"web"}},
            "spec":{{"replicas":{replicas},"revisionHistoryLimit":2,"selector":{{"matchLabels":{{"app":"web"}}}},
            "template":{{"metadata":{{"labels":{{"app":"web"}},"annotations":{{"tiphys.io/fake-ready-seconds":"2"}}}},
            "spec":{{"containers":[{{"name":"web","image":"web:0"}}]}}}}}}}}"#
    ))
}

async fn change(simulation: &Simulation, patch: String) {
    let patched = simulation.admin.patch(DEPLOYMENTS, NAMESPACE, "web", "", Patch::Strategic(&json(&patch))).await;
    patched.expect("the Deployment is there");
}

/// The last requested state of the Deployment.
struct RequestedState {
    replicas: u64,
    image: u64,
}

async fn ask(simulation: &Simulation, asked: &mut RequestedState) {
    match simulation.random.below(3) {
        0 => {
            asked.replicas = simulation.random.between(0, 9);
            change(simulation, format!(r#"{{"spec":{{"replicas":{}}}}}"#, asked.replicas)).await;
        }
        _ => {
            asked.image += 1;
            let containers = format!(r#"[{{"name":"web","image":"web:{}"}}]"#, asked.image);
            change(simulation, format!(r#"{{"spec":{{"template":{{"spec":{{"containers":{containers}}}}}}}}}"#)).await;
        }
    }
}

async fn rollout(simulation: &mut Simulation) {
    nodes_come_up(simulation).await;
    let mut asked = RequestedState { replicas: simulation.random.between(1, 6), image: 0 };
    simulation.admin.create(DEPLOYMENTS, NAMESPACE, &deployment(asked.replicas)).await.expect("a Deployment");
    for _ in 0..4 {
        disturb(simulation, simulation.random.seconds(20, 180)).await;
        ask(simulation, &mut asked).await;
    }
    disturb(simulation, Duration::from_secs(60)).await;
    simulation.until("the rollout is complete", 15 * MINUTE, async |simulation| is_complete(simulation, &asked)).await;
    // The state stays, and no component writes any more.
    simulation.pass(2 * MINUTE).await;
    let before = simulation.trace.count("/namespaces/default/");
    simulation.pass(10 * MINUTE).await;
    assert_eq!(simulation.trace.count("/namespaces/default/"), before, "a component is still writing");
    assert!(is_complete(simulation, &asked));
}

/// The requested number of pods, all of the newest template and ready; no extra ReplicaSet, no pod without a
/// ReplicaSet.
fn is_complete(simulation: &Simulation, asked: &RequestedState) -> bool {
    let pods = simulation.objects("pods", NAMESPACE);
    let image = format!("web:{}", asked.image);
    let good = |pod: &Tree| {
        let ready = |condition: &Tree| condition.str("type") == "Ready" && condition.str("status") == "True";
        pod.list("spec.containers")[0].str("image") == image
            && !pod.at("metadata").has("deletionTimestamp")
            && pod.list("status.conditions").iter().any(ready)
    };
    let addresses: std::collections::BTreeSet<&str> = pods.iter().map(|pod| pod.str("status.podIP")).collect();
    let sets = simulation.objects("replicasets", NAMESPACE);
    let [deployment] = &simulation.objects("deployments", NAMESPACE)[..] else { return false };
    let status = |key: &str| deployment.at("status").int(key).unwrap_or(0).unsigned_abs();
    pods.len() as u64 == asked.replicas
        && pods.iter().all(good)
        && addresses.len() == pods.len()
        && sets.len() <= 3
        && status("replicas") == asked.replicas
        && status("readyReplicas") == asked.replicas
        && status("updatedReplicas") == asked.replicas
        && deployment.int("status.observedGeneration") == deployment.int("metadata.generation")
}

super::in_quarters!(3, rollout);
