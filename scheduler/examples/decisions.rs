//! How many decisions a second: the scheduler alone, without any API, on nodes and pods of the shapes that
//! upstream's performance tests have. `cargo run --release -p scheduler --example decisions -- 5000`

use std::sync::Arc;
use std::time::Instant;

use api::Tree;
use client::Random;
use scheduler::cycle::{Decider, Decision};
use scheduler::model::{Node, Pod};
use scheduler::snapshot::{NoObjects, Snapshot};

const PODS: usize = 10_000;
const BEFORE: usize = 1_000;

/// What pods of a workload ask for besides CPU and memory: labels, and more of the spec.
const WORKLOADS: [(&str, &str, &str); 6] = [
    ("basic", r#"{"app":"basic"}"#, ""),
    (
        "node affinity",
        r#"{"app":"na"}"#,
        r#","affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
        {"matchExpressions":[{"key":"topology.kubernetes.io/zone","operator":"In","values":["zone-0","zone-1"]}]}]}}}"#,
    ),
    (
        "spreading",
        r#"{"app":"spread"}"#,
        r#","topologySpreadConstraints":[{"maxSkew":5,"topologyKey":"topology.kubernetes.io/zone",
        "whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"app":"spread"}}}]"#,
    ),
    (
        "preferred affinity",
        r#"{"app":"pref"}"#,
        r#","affinity":{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"podAffinityTerm":
        {"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"app":"pref"}}}}]}}"#,
    ),
    (
        "required affinity",
        r#"{"app":"near"}"#,
        r#","affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
        {"topologyKey":"topology.kubernetes.io/zone","labelSelector":{"matchLabels":{"app":"near"}}}]}}"#,
    ),
    (
        "anti-affinity",
        r#"{"color":"green"}"#,
        r#","affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
        {"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"color":"green"}}}]}}"#,
    ),
];

fn json(text: &str) -> Tree {
    api::json::decode(text.as_bytes()).expect("JSON")
}

fn nodes(count: usize) -> Snapshot {
    let mut snapshot = Snapshot::new(Arc::new(NoObjects));
    for number in 0..count {
        snapshot.put_node(Node::read(&json(&format!(
            r#"{{"metadata":{{"name":"node-{number}","labels":{{"kubernetes.io/hostname":"node-{number}",
            "topology.kubernetes.io/zone":"zone-{}"}}}},
            "status":{{"allocatable":{{"cpu":"4","memory":"32Gi","pods":"110"}}}}}}"#,
            number % 10
        ))));
    }
    snapshot
}

fn pod(name: usize, workload: &str, labels: &str, more: &str, cpu: &str, priority: i32) -> Pod {
    Pod::read(&json(&format!(
        r#"{{"metadata":{{"name":"{workload}-{name}","namespace":"default","uid":"{workload}-{name}","labels":{labels}}},
        "spec":{{"priority":{priority},"schedulerName":"default-scheduler","containers":[{{"name":"c","image":"pause",
        "resources":{{"requests":{{"cpu":"{cpu}","memory":"500Mi"}}}}}}]{more}}}}}"#
    )))
}

/// Places pods one after the other; how many found a node, and how long the decisions took.
fn run(count: usize, workload: (&str, &str, &str)) -> (usize, f64) {
    let (name, labels, more) = workload;
    let mut snapshot = nodes(count);
    let mut decider = Decider::new(Arc::new(scheduler::default_profile()));
    let random = Random::seeded(1);
    let spec = Arc::new(pod(0, name, labels, more, "100m", 0)).spec.clone();
    let pods = if name == "anti-affinity" { count - 100 } else { PODS + BEFORE };
    let waiting: Vec<Arc<Pod>> = (0..pods)
        .map(|number| Arc::new(Pod { spec: spec.clone(), ..pod(number, name, labels, more, "100m", 0) }))
        .collect();
    let (mut placed, mut began) = (0, Instant::now());
    for (number, pod) in waiting.iter().enumerate() {
        if number == BEFORE {
            (placed, began) = (0, Instant::now());
        }
        if let Decision::Place { node, .. } = decider.decide(&mut snapshot, pod, &random).decision {
            let node_name = snapshot.node(node).expect("a node").node.name.clone();
            snapshot.assume(Arc::new(Pod { node_name, ..Pod::clone(pod) }));
            placed += 1;
        }
    }
    (placed, began.elapsed().as_secs_f64() / (pods - BEFORE) as f64)
}

/// All nodes are full of what may go; each pod makes room for itself.
fn preempt(count: usize) -> (usize, f64) {
    let mut snapshot = nodes(count);
    let low = pod(0, "low", "{}", "", "900m", 0).spec;
    for number in 0..count * 4 {
        let node_name = format!("node-{}", number / 4).into();
        let one = pod(number, "low", "{}", "", "900m", 0);
        snapshot.put_pod(Arc::new(Pod { spec: low.clone(), node_name, ..one }));
    }
    let mut decider = Decider::new(Arc::new(scheduler::default_profile()));
    let (random, high) = (Random::seeded(1), pod(0, "high", "{}", "", "3", 10).spec);
    let pods = 1000;
    let (mut made, began) = (0, Instant::now());
    for number in 0..pods {
        let one = Arc::new(Pod { spec: high.clone(), ..pod(number, "high", "{}", "", "3", 10) });
        if let Decision::Wait { preemption: Some(way), .. } = decider.decide(&mut snapshot, &one, &random).decision {
            way.victims.iter().for_each(|victim| snapshot.remove_pod(&victim.uid));
            let node_name = snapshot.node(way.node).expect("a node").node.name.clone();
            snapshot.assume(Arc::new(Pod { node_name, ..Pod::clone(&one) }));
            made += 1;
        }
    }
    (made, began.elapsed().as_secs_f64() / pods as f64)
}

fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5000);
    let told = |name: &str, (done, seconds): (usize, f64)| {
        println!("{name:20} {:9.0} decisions/s  {:7.1} µs  {done} placed", 1.0 / seconds, seconds * 1e6);
    };
    WORKLOADS.iter().for_each(|workload| told(workload.0, run(count, *workload)));
    told("preemption", preempt(count));
}
