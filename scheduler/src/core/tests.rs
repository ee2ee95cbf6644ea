use api::tree;

use super::*;
use crate::plugins::list::default_profile;
use crate::queue::QueueState;
use crate::snapshot::NoObjects;
use crate::testing::{ObjectBuilder, node, pod};

fn core() -> Core {
    let profiles = ["default-scheduler", "other"].map(|name| Arc::new(default_profile(name))).to_vec();
    Core::new(profiles, Arc::new(NoObjects), Arc::new(Random::seeded(3)), Metrics::default()).expect("profiles")
}

struct TestCluster {
    core: Core,
    now: Instant,
}

impl TestCluster {
    fn new() -> TestCluster {
        TestCluster { core: core(), now: Instant::now() }
    }

    fn node(&mut self, node: ObjectBuilder) {
        let name = node.0.str("metadata.name").to_string();
        self.core.node_changed(&name, Some(&node.0), self.now);
    }

    fn pod(&mut self, pod: ObjectBuilder) {
        self.core.pod_changed(&pod.0, self.now);
    }

    fn step(&mut self) -> String {
        match self.core.step(self.now) {
            Step::Idle(_) => "idle".to_string(),
            Step::Bind(placement) => format!("{} on {}", placement.pod.name, placement.pod.node_name),
            Step::CallExtenders(asking) => format!("{} asks", asking.waiting.pod.name),
            Step::Wait(waits) => format!("{} waits for {:?}", waits.pod.name, waits.nominated),
        }
    }
}

#[tokio::test]
async fn assumed_pods_are_confirmed_once() {
    let mut world = TestCluster::new();
    world.node(node("a").allocatable("1", "1Gi", "10"));
    let one = pod("one").cpu("1");
    world.pod(one.clone());
    world.pod(pod("two").cpu("1"));
    assert_eq!(world.step(), "one on a");
    world.pod(one.clone().label("late", "1"));
    assert_eq!(world.step(), "two waits for Cleared", "the place is taken, whatever is shown of it");
    assert_eq!(world.step(), "idle");
    world.core.bound("one");
    world.pod(one.on("a"));
    assert_eq!(world.step(), "idle");
    world.core.pod_deleted("one", world.now);
    assert_eq!(world.step(), "two on a");
}

#[tokio::test]
async fn failed_bindings_release_the_node() {
    let mut world = TestCluster::new();
    world.node(node("a").allocatable("1", "1Gi", "10"));
    world.pod(pod("one").cpu("1"));
    let Step::Bind(placement) = world.core.step(world.now) else { panic!("it fits") };
    world.pod(pod("two").cpu("1"));
    assert_eq!(world.step(), "two waits for Cleared");
    world.core.not_bound(&placement, world.now);
    assert_eq!(world.step(), "two on a", "it is woken; the other pauses after its error");
    assert!(matches!(world.core.queue.get("one"), Some((_, QueueState::BackOff { is_error: true, .. }))));
}

#[tokio::test]
async fn rechecks_changed_nodes_before_binding() {
    let mut world = TestCluster::new();
    let check = |world: &mut TestCluster, change: fn(&mut TestCluster), want: bool| {
        world.node(node("a"));
        world.pod(pod("one").cpu("1"));
        let Step::Bind(placement) = world.core.step(world.now) else { panic!("it fits") };
        change(world);
        assert_eq!(world.core.still_fits(&placement), want);
        world.core.not_bound(&placement, world.now);
        world.core.pod_deleted("one", world.now);
    };
    check(&mut world, |_| {}, true);
    check(&mut world, |world| world.node(node("a").label("new", "label")), true);
    check(&mut world, |world| world.node(node("a").with("spec.unschedulable", true)), false);
    check(&mut world, |world| world.node(node("a").allocatable("500m", "1Gi", "1")), false);
    check(&mut world, |world| world.core.node_changed("a", None, world.now), false);
}

#[tokio::test]
async fn anti_affinity_ignores_the_pod_itself() {
    let mut world = TestCluster::new();
    let one_a_node = r#"[{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"app":"shy"}}}]"#;
    let shy = |name: &str| {
        let path = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution";
        pod(name).label("app", "shy").json(path, one_a_node)
    };
    world.node(node("a"));
    world.pod(shy("one"));
    let Step::Bind(placement) = world.core.step(world.now) else { panic!("it fits") };
    world.node(node("a").label("new", "label"));
    assert!(world.core.still_fits(&placement));
    world.pod(shy("two"));
    assert_eq!(world.step(), "two waits for Cleared");
}

#[tokio::test]
async fn events_requeue_only_pods_they_may_help() {
    let mut world = TestCluster::new();
    world.node(node("a").allocatable("1", "1Gi", "10").with("spec.unschedulable", true));
    world.pod(pod("one").cpu("1"));
    assert_eq!(world.step(), "one waits for Cleared");
    world.pod(pod("x").on("a"));
    world.core.pod_deleted("x", world.now);
    assert_eq!(world.step(), "idle", "the node is cordoned, whichever pod is deleted from it");
    world.node(node("a").allocatable("1", "1Gi", "10"));
    assert_eq!(world.step(), "one on a");
}

#[tokio::test]
async fn newly_rejecting_plugins_are_added() {
    let mut world = TestCluster::new();
    let tainted = || node("a").json("spec.taints", r#"[{"key":"k","effect":"NoSchedule"}]"#);
    world.node(tainted().with("spec.unschedulable", true));
    world.pod(pod("one"));
    assert_eq!(world.step(), "one waits for Cleared");
    world.node(tainted());
    assert_eq!(world.step(), "idle", "it is the taint now");
    world.node(node("a"));
    assert_eq!(world.step(), "one on a");
}

#[tokio::test]
async fn deleted_pods_requeue_only_pods_that_could_fit() {
    let mut world = TestCluster::new();
    world.node(node("a").allocatable("2", "1Gi", "10"));
    world.node(node("b").allocatable("4", "1Gi", "10"));
    for (name, cpu, node, priority) in [("low", "1", "a", 0), ("high", "1", "a", 9), ("full", "4", "b", 9)] {
        world.pod(pod(name).cpu(cpu).on(node).priority(priority));
    }
    world.pod(pod("large").cpu("3").priority(5));
    world.pod(pod("fits").cpu("2").priority(5));
    assert_eq!((world.step().as_str(), world.step().as_str()), ("large waits for Cleared", "fits waits for Cleared"));
    world.core.pod_deleted("high", world.now);
    assert!(matches!(world.core.queue.get("large"), Some((_, QueueState::Parked))), "it fits that node in no case");
    assert_eq!(world.step(), "fits waits for Set(\"a\")", "the other one there goes for it");
}

#[tokio::test]
async fn gated_pods_wait_for_their_gates() {
    let mut world = TestCluster::new();
    world.node(node("a"));
    world.pod(pod("one").json("spec.schedulingGates", r#"[{"name":"g"}]"#));
    assert_eq!(world.step(), "idle");
    world.pod(pod("one"));
    assert_eq!(world.step(), "one on a");
}

#[tokio::test]
async fn schedulers_take_their_own_pods() {
    let mut world = TestCluster::new();
    world.node(node("a"));
    world.pod(pod("one").with("spec.schedulerName", "other"));
    world.pod(pod("two").with("spec.schedulerName", "nobody"));
    assert_eq!((world.step().as_str(), world.step().as_str()), ("one on a", "idle"));
}

#[tokio::test]
async fn preemption_waits_for_victims() {
    let mut world = TestCluster::new();
    world.node(node("a").allocatable("1", "1Gi", "10"));
    world.pod(pod("low").cpu("1").on("a"));
    world.pod(pod("high").cpu("1").priority(5));
    let Step::Wait(waits) = world.core.step(world.now) else { panic!("it is full") };
    assert_eq!(waits.victims.iter().map(|victim| victim.name.as_str()).collect::<Vec<_>>(), ["low"]);
    assert_eq!(waits.nominated, NominationChange::Set("a".into()));
    world.pod(pod("mid").cpu("1").priority(3));
    assert_eq!(world.step(), "mid waits for Cleared", "the place is kept, and no other pod is preempted for it");
    world.core.pod_deleted("low", world.now);
    world.core.preemption_done("high", waits.rejected_by.clone(), world.now);
    assert_eq!(world.step(), "high on a", "what happened meanwhile is not missed");
    assert_eq!(world.step(), "mid waits for Cleared");
}

#[tokio::test]
async fn nominations_follow_the_api_and_decisions() {
    let mut world = TestCluster::new();
    let kept = |world: &TestCluster| world.core.snapshot.nominated_node("one").map(str::to_string);
    let shown = |node: &str| pod("one").with("status.nominatedNodeName", node);
    world.pod(shown("a"));
    assert_eq!(kept(&world).as_deref(), Some("a"), "another process has kept it");
    world.core.snapshot.remove_nomination("one");
    world.pod(shown("a").label("other", "change"));
    assert_eq!(kept(&world), None, "it was given up since");
    world.core.snapshot.nominate(shown("").pod(), "b");
    world.pod(shown(""));
    assert_eq!(kept(&world).as_deref(), Some("b"), "it was decided since");
    world.pod(shown("b"));
    world.pod(shown(""));
    assert_eq!(kept(&world), None, "it was cleared");
}

#[tokio::test]
async fn explanations_are_kept_until_scheduled() {
    let mut world = TestCluster::new();
    world.node(node("a").allocatable("1", "1Gi", "10"));
    world.pod(pod("one").cpu("2"));
    world.step();
    let why = world.core.records.get("default/one").expect("a record");
    let want = tree! {
        "node" => "a", "plugin" => "NodeResourcesFit", "reasons" => api::list!["Insufficient cpu"], "preemptionMayHelp" => false,
    };
    assert_eq!(why.list("nodes"), [want]);
    assert!(why.str("message").starts_with("0/1 nodes are available: 1 Insufficient cpu."));
    world.node(node("a"));
    assert_eq!(world.step(), "one on a");
    assert!(world.core.records.get("default/one").is_none());
}
