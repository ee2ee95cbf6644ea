use api::tree;

use super::*;
use crate::plugins::list::default_profile;
use crate::snapshot::Kind;
use crate::testing::{FixedObjects, ObjectBuilder, TestCluster, node, pod};

fn algorithm() -> SchedulingAlgorithm {
    SchedulingAlgorithm::new(Arc::new(default_profile("default-scheduler")))
}

fn name_of(world: &TestCluster, id: NodeId) -> String {
    world.snapshot.node(id).expect("a node").name().to_string()
}

/// The node, or the message and the victims.
fn decided(world: &mut TestCluster, algorithm: &mut SchedulingAlgorithm, pod: ObjectBuilder) -> String {
    let random = Random::seeded(1);
    match algorithm.decide(&mut world.snapshot, &pod.pod(), &random).decision {
        Decision::Place { node, .. } => name_of(world, node),
        Decision::Wait { failure, preemption: None, .. } => failure.message(),
        Decision::Wait { preemption: Some(Preemption { node, victims }), .. } => {
            let victims: Vec<&str> = victims.iter().map(|victim| victim.name.as_str()).collect();
            format!("{} by {}", name_of(world, node), victims.join(" "))
        }
    }
}

fn check(world: &mut TestCluster, pod: ObjectBuilder, want: &str) {
    assert_eq!(decided(world, &mut algorithm(), pod.clone()), want, "{:?}", pod.0);
}

fn placed(name: &str, cpu: &str, node: &str, priority: i64) -> ObjectBuilder {
    pod(name).cpu(cpu).on(node).priority(priority)
}

#[test]
fn prefers_the_least_allocated_node() {
    let mut world = TestCluster::new();
    world.node(node("a"));
    world.node(node("b"));
    world.placed(placed("x", "1", "a", 0));
    check(&mut world, pod("p").cpu("1"), "b");
    world.node(node("b").with("spec.unschedulable", true));
    check(&mut world, pod("p").cpu("1"), "a");
    let nowhere = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. preemption: 0/2 nodes \
                   are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling.";
    check(&mut world, pod("p").cpu("4"), nowhere);
}

#[test]
fn host_ports_are_exclusive() {
    let mut world = TestCluster::new();
    world.node(node("a"));
    world.placed(pod("x").host_port(80).on("a"));
    check(&mut world, pod("p").host_port(81), "a");
    let taken = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. preemption: \
                 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    check(&mut world, pod("p").host_port(80), taken);
}

#[test]
fn cache_follows_changes() {
    let mut world = TestCluster::new();
    let mut algorithm = algorithm();
    world.node(node("a").allocatable("1", "1Gi", "10"));
    let pending = pod("p").cpu("1");
    assert_eq!(decided(&mut world, &mut algorithm, pending.clone()), "a");
    world.placed(placed("x", "500m", "a", 0));
    assert!(decided(&mut world, &mut algorithm, pending.clone()).contains("1 Insufficient cpu"));
    world.node(node("a").allocatable("2", "1Gi", "10"));
    assert_eq!(decided(&mut world, &mut algorithm, pending.clone()), "a");
    world.snapshot.remove_node("a");
    assert_eq!(decided(&mut world, &mut algorithm, pending.clone()), "no nodes available to schedule pods");
    world.node(node("b").with("spec.unschedulable", true));
    assert!(
        decided(&mut world, &mut algorithm, pending).contains("were unschedulable"),
        "the slot is another node's now"
    );
}

#[test]
fn nominated_nodes_are_reserved() {
    let mut world = TestCluster::new();
    world.node(node("a").allocatable("1", "1Gi", "10"));
    world.snapshot.nominate(pod("first").cpu("1").priority(5).pod(), "a");
    assert!(decided(&mut world, &mut algorithm(), pod("p").cpu("1")).contains("Insufficient cpu"));
    check(&mut world, pod("p").cpu("1").priority(6), "a");
    check(&mut world, pod("first").cpu("1").priority(5), "a");
}

#[test]
fn preempts_as_little_as_possible() {
    let mut world = TestCluster::new();
    for name in ["a", "b", "c"] {
        world.node(node(name).allocatable("2", "8Gi", "10"));
    }
    world.placed(placed("a1", "1", "a", 1));
    world.placed(placed("a2", "1", "a", 2));
    world.placed(placed("b1", "1", "b", 3));
    world.placed(placed("b2", "1", "b", 3));
    world.placed(placed("c1", "2", "c", 10));
    check(&mut world, pod("p").cpu("1").priority(5), "a by a1");
    check(&mut world, pod("p").cpu("2").priority(5), "a by a2 a1");
    check(
        &mut world,
        pod("p").cpu("2").priority(2),
        "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 1 Insufficient cpu, 2 No preemption victims found for incoming pod.",
    );
    let never = pod("p").cpu("2").priority(5).with("spec.preemptionPolicy", "Never");
    check(
        &mut world,
        never,
        "0/3 nodes are available: 3 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never.",
    );
}

#[test]
fn preemption_respects_disruption_budgets() {
    let mut objects = FixedObjects::default();
    objects.put(
        Kind::PodDisruptionBudget,
        tree! {
            "metadata" => tree! { "namespace" => "default", "name" => "b" },
            "spec" => tree! { "selector" => tree! { "matchLabels" => tree! { "app" => "guarded" } } },
            "status" => tree! { "disruptionsAllowed" => 0 },
        },
    );
    let mut world = TestCluster::with(objects);
    world.node(node("a").allocatable("1", "8Gi", "10"));
    world.node(node("b").allocatable("1", "8Gi", "10"));
    world.placed(placed("low", "1", "a", 0).label("app", "guarded"));
    world.placed(placed("high", "1", "b", 4));
    check(&mut world, pod("p").cpu("1").priority(5), "b by high");
    world.snapshot.remove_node("b");
    check(&mut world, pod("p").cpu("1").priority(5), "a by low");
}

#[test]
fn waits_for_terminating_victims() {
    let mut world = TestCluster::new();
    world.node(node("a").allocatable("1", "8Gi", "10"));
    let reason = r#"[{"type":"DisruptionTarget","status":"True","reason":"PreemptionByScheduler"}]"#;
    let ending = placed("x", "1", "a", 0).with("metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
    world.placed(ending.json("status.conditions", reason));
    let pending = pod("p").cpu("1").priority(5).with("status.nominatedNodeName", "a");
    check(
        &mut world,
        pending,
        "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to a terminating pod on the nominated node.",
    );
}

#[test]
fn number_of_scored_nodes_matches_upstream() {
    let cases = [
        (10, None, 10),
        (100, None, 100),
        (1000, None, 420),
        (5000, None, 500),
        (6000, None, 300),
        (5000, Some(30), 1500),
        (5000, Some(100), 5000),
        (150, Some(1), 100),
    ];
    for (nodes, percentage, want) in cases {
        assert_eq!(feasible_nodes_to_find(nodes, percentage), want, "{nodes} {percentage:?}");
    }
}

#[test]
fn search_rotates_and_is_deterministic() {
    let run = || {
        let mut world = TestCluster::new();
        (0..300).for_each(|number| world.node(node(&format!("n{number}"))));
        let (mut algorithm, random) = (algorithm(), Random::seeded(7));
        let mut used = Vec::new();
        for number in 0..300 {
            let pending = pod(&format!("p{number}")).cpu("1").pod();
            let Decision::Place { node, .. } = algorithm.decide(&mut world.snapshot, &pending, &random).decision else {
                panic!("it fits");
            };
            let name = name_of(&world, node);
            world.placed(pod(&format!("p{number}")).cpu("1").on(&name));
            used.push(name);
        }
        used
    };
    let used = run();
    assert_eq!(used, run());
    let count = used.iter().collect::<BTreeSet<_>>().len();
    assert!(count > 280, "{count}: an empty node is nearly always among those that are rated");
}

/// A pod of one of a few templates.
fn of_template(number: u64, name: &str) -> ObjectBuilder {
    let cpu = ["500m", "1", "2"][number as usize % 3];
    let pending = pod(name).cpu(cpu).priority(number as i64 % 4 * 10);
    let pending = if number.is_multiple_of(5) { pending.host_port(80) } else { pending };
    if number.is_multiple_of(7) { pending.json("spec.nodeSelector", r#"{"disk":"ssd"}"#) } else { pending }
}

fn change(world: &mut TestCluster, random: &Random, placed: &mut Vec<String>) {
    let name = format!("n{}", random.below(8));
    match random.below(6) {
        0 => world.snapshot.remove_node(&name),
        1 => world.node(node(&name).with("spec.unschedulable", true)),
        2 => world.node(node(&name).allocatable("2", "8Gi", "4")),
        3 => world.node(node(&name).label("disk", "ssd")),
        4 if !placed.is_empty() => {
            let gone = placed.swap_remove(random.below(placed.len() as u64) as usize);
            world.snapshot.remove_pod(&gone);
        }
        _ => world.node(node(&name)),
    }
}

#[test]
fn cache_does_not_change_decisions() {
    let (mut places, mut preemptions) = (0, 0);
    for seed in 0..20 {
        let (random, mut world, mut specs) = (Random::seeded(seed), TestCluster::new(), crate::specs::Specs::default());
        let (mut remembers, mut forgets, mut placed) = (algorithm(), algorithm(), Vec::new());
        for step in 0..150 {
            change(&mut world, &random, &mut placed);
            let pending = of_template(random.below(30), &format!("p{step}"));
            let pending = specs.intern(Pod::read(&pending.0));
            let one = remembers.decide(&mut world.snapshot, &pending, &Random::seeded(step)).decision;
            forgets.forget();
            let other = forgets.decide(&mut world.snapshot, &pending, &Random::seeded(step)).decision;
            assert_eq!(one, other, "seed {seed} step {step}");
            let node = match one {
                Decision::Place { node, .. } => node,
                Decision::Wait { preemption: Some(way), .. } => {
                    way.victims.iter().for_each(|victim| world.snapshot.remove_pod(&victim.uid));
                    placed.retain(|uid| way.victims.iter().all(|victim| victim.uid != uid.as_str()));
                    preemptions += 1;
                    way.node
                }
                Decision::Wait { .. } => continue,
            };
            places += 1;
            placed.push(pending.uid.to_string());
            let node_name = world.snapshot.node(node).expect("a node").node.name.clone();
            world.snapshot.assume(Arc::new(Pod { node_name, ..Pod::clone(&pending) }));
        }
    }
    assert!(places > 500 && preemptions > 50, "{places} {preemptions}");
}
