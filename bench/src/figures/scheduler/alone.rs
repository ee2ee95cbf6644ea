//! Decisions without an API: what a pod costs the scheduler itself, and what it costs the plain reference.

use std::sync::Arc;
use std::time::Instant;

use api::Tree;
use client::Random;
use oracle::{Case, ClusterState, Settings};
use podmodel::{Node, Pod};
use scheduler::cycle::{Decision, SchedulingAlgorithm};
use scheduler::snapshot::{NoObjects, Snapshot};

use super::Size;
use super::workloads::{BASIC, OTHERS, Workload, node};
use crate::Result;
use crate::figure::{BenchmarkResult, Goal, Report};

/// Microseconds a decision: 10,000 a second, 3,000 and 500.
const BASIC_AIM: f64 = 100.0;
const OTHERS_AIM: f64 = 333.0;
const PREEMPTION_AIM: f64 = 2_000.0;
/// Against the plain reference.
const MUST: f64 = 1.0 / 200.0;
const FEW_NODES: u64 = 500;
/// After so many decisions a node changes, where nodes do.
const CHURN: u64 = 10;

pub(super) fn run(size: &Size, report: &mut Report) -> Result<()> {
    let basic = decisions(size.nodes, size, &BASIC, false)?;
    let us = |name: &'static str, value: f64, limit: f64, goal: Goal| BenchmarkResult {
        name,
        value,
        unit: "us",
        limit,
        goal,
    };
    report.add(&us("a decision, basic", basic, BASIC_AIM, Goal::Aim(1.0)));
    report.add(&us("a decision, beside the reference", basic, reference(size)?, Goal::AtMost(MUST)));
    let few = decisions(size.nodes / 10, size, &BASIC, false)?;
    report.add(&us("a decision, beside a tenth of the nodes", basic, few, Goal::Nothing));
    let churned = decisions(size.nodes, size, &BASIC, true)?;
    report.add(&us("a decision, basic with churn", churned, BASIC_AIM, Goal::Aim(1.0)));
    for workload in &OTHERS {
        let value = decisions(size.nodes, size, workload, false)?;
        report.add(&us(workload.name, value, OTHERS_AIM, Goal::Aim(1.0)));
    }
    report.add(&us("a decision, preemption", preemptions(size)?, PREEMPTION_AIM, Goal::Aim(1.0)));
    Ok(())
}

fn read(text: &str) -> Result<Tree> {
    api::json::decode(text.as_bytes()).map_err(|error| error.to_string().into())
}

fn cluster(nodes: u64) -> Result<Snapshot> {
    let mut snapshot = Snapshot::new(Arc::new(NoObjects));
    for number in 0..nodes {
        snapshot.put_node(Node::read(&read(&node(number, 0))?));
    }
    Ok(snapshot)
}

fn pod(workload: &Workload, name: &str, cpu: &str, priority: i64) -> Result<Pod> {
    let mut tree = read(&workload.pod(name, cpu, priority))?;
    tree.child("metadata").set("uid", name);
    Ok(Pod::read(&tree))
}

/// Equal pods, which share what is derived from their spec as those of an informer do.
fn pods(workload: &Workload, kind: &str, count: u64, cpu: &str, priority: i64) -> Result<Vec<Arc<Pod>>> {
    let spec = pod(workload, kind, cpu, priority)?.spec;
    let one = |number: u64| {
        Ok(Arc::new(Pod { spec: spec.clone(), ..pod(workload, &format!("{kind}-{number}"), cpu, priority)? }))
    };
    (0..count).map(one).collect()
}

fn place_pod(snapshot: &mut Snapshot, pod: &Pod, node: scheduler::snapshot::NodeId) {
    let Some(node_name) = snapshot.node(node).map(|state| state.node.name.clone()) else { return };
    snapshot.assume(Arc::new(Pod { node_name, ..pod.clone() }));
}

/// Microseconds a decision, on top of the pods that are there before.
fn decisions(nodes: u64, size: &Size, workload: &Workload, churn: bool) -> Result<f64> {
    let mut snapshot = cluster(nodes)?;
    let mut algorithm = SchedulingAlgorithm::new(Arc::new(scheduler::default_profile()));
    let random = Random::seeded(1);
    // Nodes must not become full: a tenth stays free if every pod needs a node of its own.
    let most = if workload.is_alone { nodes * 9 / 10 } else { nodes * 30 };
    let count = (size.before + size.pods).min(most);
    let before = size.before.min(count / 2);
    let waiting = pods(workload, "p", count, "100m", 0)?;
    let mut began = Instant::now();
    for (number, pod) in (0..).zip(&waiting) {
        if number == before {
            began = Instant::now();
        }
        if churn && number % CHURN == 0 {
            snapshot.put_node(Node::read(&read(&node(number % nodes, number))?));
        }
        match algorithm.decide(&mut snapshot, pod, &random).decision {
            Decision::Place { node, .. } => place_pod(&mut snapshot, pod, node),
            Decision::Wait { .. } => return Err(format!("{}: pod {number} found no node", workload.name).into()),
        }
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / (count - before) as f64)
}

/// The same for a few pods by the plain rules, on so few nodes that it ends in time: it grows by their square.
fn reference(size: &Size) -> Result<f64> {
    let mut world = ClusterState::default();
    let nodes = size.nodes.min(FEW_NODES);
    for number in 0..nodes {
        world.nodes.push(read(&node(number, 0))?);
    }
    let on_node = |number: u64| {
        let mut pod = read(&BASIC.pod(&format!("before-{number}"), "100m", 0))?;
        pod.child("spec").set("nodeName", format!("node-{}", number % nodes));
        Ok::<_, crate::Failure>(pod)
    };
    for number in 0..size.before {
        world.pods.push(on_node(number)?);
    }
    let settings = Settings::default();
    let began = Instant::now();
    for number in 0..size.reference {
        let mut pod = read(&BASIC.pod(&format!("p-{number}"), "100m", 0))?;
        let best = Case { world: &world, settings: &settings, pod: &pod }.best();
        let node = best.first().ok_or("the reference finds no node")?.to_string();
        pod.child("spec").set("nodeName", node);
        world.pods.push(pod);
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / size.reference as f64)
}

/// All nodes are full of pods of low priority; each new pod preempts some.
fn preemptions(size: &Size) -> Result<f64> {
    const EACH: u64 = 4;
    let mut snapshot = cluster(size.nodes)?;
    for (number, pod) in (0u64..).zip(pods(&BASIC, "low", size.nodes * EACH, "900m", 0)?) {
        let node_name = format!("node-{}", number / EACH).into();
        snapshot.put_pod(Arc::new(Pod { node_name, ..Pod::clone(&pod) }));
    }
    let mut algorithm = SchedulingAlgorithm::new(Arc::new(scheduler::default_profile()));
    let random = Random::seeded(1);
    let count = (size.nodes / 5).min(1_000);
    let waiting = pods(&BASIC, "high", count, "3", 10)?;
    let began = Instant::now();
    for pod in &waiting {
        let decided = algorithm.decide(&mut snapshot, pod, &random).decision;
        let Decision::Wait { preemption: Some(way), .. } = decided else {
            return Err("preemption: no room could be made".into());
        };
        way.victims.iter().for_each(|victim| snapshot.remove_pod(&victim.uid));
        place_pod(&mut snapshot, pod, way.node);
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / count as f64)
}
