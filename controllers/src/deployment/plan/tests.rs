//! Rollouts as tables: a Deployment and its ReplicaSets go in, the writes come out as text. A simulated cluster then
//! executes plans until nothing is left to do.

use api::{list, time, tree};

use super::*;

const NOW: Timestamp = Timestamp { seconds: 100_000, nanos: 0 };

fn template(image: &str) -> Tree {
    let metadata = tree! { "labels" => tree! { "app" => "web" } };
    tree! { "metadata" => metadata, "spec" => tree! { "containers" => list![tree! { "image" => image }] } }
}

fn deployment(replicas: i64, image: &str) -> Tree {
    let rolling = tree! { "maxSurge" => "25%", "maxUnavailable" => "25%" };
    tree! {
        "apiVersion" => "apps/v1",
        "kind" => "Deployment",
        "metadata" => tree! { "name" => "web", "namespace" => "x", "uid" => "d", "generation" => 1 },
        "spec" => tree! {
            "replicas" => replicas,
            "selector" => tree! { "matchLabels" => tree! { "app" => "web" } },
            "template" => template(image),
            "strategy" => tree! { "type" => "RollingUpdate", "rollingUpdate" => rolling },
            "revisionHistoryLimit" => 10,
            "progressDeadlineSeconds" => 600,
        },
    }
}

fn with(mut object: Tree, path: &str, value: impl Into<Tree>) -> Tree {
    let (parent, key) = path.rsplit_once('.').expect("a parent");
    object.child(parent).set(key, value);
    object
}

/// A cluster with one Deployment whose ReplicaSets have all their pods, some of them available.
struct World {
    deployment: Tree,
    sets: Vec<Tree>,
    now: Timestamp,
    events: Vec<String>,
    old_pods_run: bool,
}

impl World {
    fn new(deployment: Tree) -> World {
        World { deployment, sets: Vec::new(), now: NOW, events: Vec::new(), old_pods_run: false }
    }

    /// Plans and executes once. Returns false if nothing was written.
    fn step(&mut self) -> bool {
        let sets: Vec<Arc<Tree>> = self.sets.iter().cloned().map(Arc::new).collect();
        let plan = plan(&self.deployment, &sets, |_| self.old_pods_run, self.now);
        let busy = !plan.writes.is_empty();
        for write in plan.writes {
            self.execute(write);
        }
        busy
    }

    fn execute(&mut self, write: Write) {
        let name = |set: &Tree| set.str("metadata.name").to_string();
        match write {
            Write::Create { mut set, event } => {
                let created = time::format_seconds(self.now.seconds + self.sets.len() as i64);
                set.child("metadata").set("creationTimestamp", created);
                let uid = name(&set);
                set.child("metadata").set("uid", uid);
                set.child("metadata").set("generation", 1);
                set.set("status", tree! { "replicas" => 0, "terminatingReplicas" => 0 });
                self.sets.push(set);
                self.events.extend(event);
            }
            Write::Update { set, event } => {
                let at = self.sets.iter().position(|other| name(other) == name(&set)).expect("a set");
                self.sets[at] = set;
                self.events.extend(event);
            }
            Write::Delete { set } => self.sets.retain(|other| name(other) != name(&set)),
            Write::Rollback(rollback) => {
                self.deployment = rollback.deployment;
                self.events.push(rollback.event.message);
            }
            Write::Status(deployment) => self.deployment = deployment,
        }
    }

    /// Creates missing pods and makes up to `available` of all pods available, oldest first.
    fn pods(&mut self, available: i64) {
        let mut left = available;
        for set in &mut self.sets {
            let replicas = set.int("spec.replicas").unwrap_or_default();
            let served = replicas.min(left);
            left -= served;
            let status = tree! {
                "replicas" => replicas, "availableReplicas" => served, "readyReplicas" => served,
                "terminatingReplicas" => 0, "observedGeneration" => set.int("metadata.generation").unwrap_or_default(),
            };
            set.set("status", status);
        }
    }

    fn settle(&mut self) {
        for _ in 0..50 {
            self.pods(i64::MAX);
            if !self.step() {
                return;
            }
        }
        panic!("it does not settle: {:?}", self.events);
    }

    fn roll(&mut self, image: &str) {
        self.deployment.child("spec").set("template", template(image));
        let generation = self.deployment.int("metadata.generation").unwrap_or_default();
        self.deployment.child("metadata").set("generation", generation + 1);
    }

    /// Replica counts by image.
    fn sizes(&self) -> String {
        let one = |set: &Tree| {
            let image = set.list("spec.template.spec.containers")[0].str("image").to_string();
            format!("{image}:{}", set.int("spec.replicas").unwrap_or_default())
        };
        self.sets.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    fn condition(&self, kind: &str) -> String {
        let condition = self.deployment.list("status.conditions").iter().find(|one| one.str("type") == kind);
        condition.map_or(String::new(), |one| format!("{} {}", one.str("status"), one.str("reason")))
    }

    fn annotation(&self, image: &str, key: &str) -> String {
        let is_it = |set: &&Tree| set.list("spec.template.spec.containers")[0].str("image") == image;
        self.sets.iter().find(is_it).expect("a set").map("metadata.annotations").str(key).to_string()
    }
}

fn running(replicas: i64, image: &str) -> World {
    let mut world = World::new(deployment(replicas, image));
    world.settle();
    world.events.clear();
    world
}

#[test]
fn first_replica_set_gets_the_full_size() {
    let mut world = World::new(deployment(3, "a"));
    assert!(world.step());
    let set = &world.sets[0];
    let name = set.str("metadata.name").to_string();
    let hash = set.map("metadata.labels").str("pod-template-hash").to_string();
    assert_eq!(name, format!("web-{hash}"));
    assert_eq!(set.map("spec.selector.matchLabels").str("pod-template-hash"), hash);
    assert_eq!(set.map("spec.template.metadata.labels").str("pod-template-hash"), hash);
    let annotations = set.map("metadata.annotations");
    let annotated = ["revision", "desired-replicas", "max-replicas"]
        .map(|key| annotations.str(&format!("deployment.kubernetes.io/{key}")).to_string());
    assert_eq!(annotated, ["1", "3", "4"]);
    assert_eq!(world.events, [format!("Scaled up replica set {name} from 0 to 3")]);
    assert_eq!(world.condition("Progressing"), "True NewReplicaSetCreated");
    assert_eq!(world.condition("Available"), "False MinimumReplicasUnavailable");
    world.pods(0);
    assert!(world.step());
    assert_eq!(world.condition("Progressing"), "True ReplicaSetUpdated");
    world.settle();
    assert_eq!(world.condition("Progressing"), "True NewReplicaSetAvailable");
    assert_eq!(world.condition("Available"), "True MinimumReplicasAvailable");
    let status = world.deployment.at("status");
    let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "terminatingReplicas"];
    assert_eq!(counts.map(|count| status.int(count)), [3, 3, 3, 3, 0].map(Some));
    assert!(!status.has("unavailableReplicas"));
    assert_eq!(world.deployment.map("metadata.annotations").str("deployment.kubernetes.io/revision"), "1");
}

/// At no time are there too many pods or too few available ones.
#[test]
fn rolling_update_respects_surge_and_unavailable() {
    for (replicas, surge, unavailable) in [
        (3, Tree::from("25%"), Tree::from("25%")),
        (10, Tree::from(1), Tree::from(0)),
        (10, Tree::from(0), Tree::from(3)),
    ] {
        let mut world = World::new(deployment(replicas, "a"));
        let rolling = tree! { "maxSurge" => surge, "maxUnavailable" => unavailable };
        world.deployment.child("spec.strategy").set("rollingUpdate", rolling);
        world.settle();
        let state = DeploymentState::new(&world.deployment, &[], NOW);
        let (most, least) = (replicas + state.max_surge(), replicas - state.max_unavailable());
        world.roll("b");
        for _ in 0..100 {
            let busy = world.step();
            let total: i64 = world.sets.iter().map(super::super::state::replicas).sum();
            assert!(total <= most, "{} of {most}", world.sizes());
            // Unavailable pods stay unavailable for one step.
            let mut served = 0;
            for set in &mut world.sets {
                let size = super::super::state::replicas(set);
                served += set.int("status.availableReplicas").unwrap_or_default().min(size);
            }
            assert!(served >= least, "{} with {served} of {least}", world.sizes());
            world.pods(i64::MAX);
            if !busy {
                break;
            }
        }
        assert_eq!(world.sizes(), format!("a:0 b:{replicas}"));
        assert_eq!(world.condition("Progressing"), "True NewReplicaSetAvailable");
    }
}

#[test]
fn rollover_scales_down_all_old_replica_sets() {
    let mut world = running(10, "a");
    world.roll("b");
    world.step();
    world.pods(8);
    world.step();
    assert_eq!(world.sizes(), "a:8 b:5");
    world.roll("c");
    world.step();
    assert!(world.sizes().starts_with("a:8 b:") && world.sizes().ends_with(" c:0"), "{}", world.sizes());
    world.settle();
    assert_eq!(world.sizes(), "a:0 b:0 c:10");
}

#[test]
fn reused_template_gets_a_new_revision() {
    let mut world = running(2, "a");
    world.roll("b");
    world.settle();
    world.roll("a");
    world.settle();
    assert_eq!(world.sizes(), "a:2 b:0");
    assert_eq!(world.annotation("a", "deployment.kubernetes.io/revision"), "3");
    assert_eq!(world.annotation("a", "deployment.kubernetes.io/revision-history"), "1");
    assert_eq!(world.deployment.map("metadata.annotations").str("deployment.kubernetes.io/revision"), "3");
    world.roll("b");
    world.settle();
    world.roll("a");
    world.settle();
    assert_eq!(world.annotation("a", "deployment.kubernetes.io/revision-history"), "1,3");
}

#[test]
fn scales_proportionally() {
    let mut world = running(10, "a");
    world.roll("b");
    world.step();
    world.pods(8);
    world.step();
    assert_eq!(world.sizes(), "a:8 b:5");
    world.deployment.child("spec").set("replicas", 20);
    world.step();
    assert_eq!(world.sizes(), "a:15 b:10");
    assert_eq!(world.annotation("b", "deployment.kubernetes.io/max-replicas"), "25");
    assert_eq!(world.condition("Progressing"), "True ReplicaSetUpdated", "no news of the roll-out");
    world.deployment.child("spec").set("replicas", 0);
    world.step();
    assert_eq!(world.sizes(), "a:0 b:0");
    world.settle();
}

#[test]
fn recreate_waits_for_old_pods() {
    let mut world = World::new(with(deployment(2, "a"), "spec.strategy", tree! { "type" => "Recreate" }));
    world.settle();
    world.roll("b");
    world.step();
    assert_eq!(world.sizes(), "a:0");
    world.pods(0);
    world.old_pods_run = true;
    world.step();
    assert_eq!(world.sizes(), "a:0", "a pod still runs");
    world.old_pods_run = false;
    world.step();
    assert_eq!(world.sizes(), "a:0 b:2");
}

#[test]
fn paused_deployments_are_still_scaled() {
    let mut world = running(2, "a");
    world.deployment.child("spec").set("paused", true);
    world.roll("b");
    world.settle();
    assert_eq!(world.sizes(), "a:2");
    assert_eq!(world.condition("Progressing"), "Unknown DeploymentPaused");
    world.deployment.child("spec").set("replicas", 4);
    world.settle();
    assert_eq!(world.sizes(), "a:4");
    world.deployment.child("spec").set("paused", false);
    world.step();
    assert_eq!(world.condition("Progressing"), "True NewReplicaSetCreated");
    world.settle();
    assert_eq!(world.sizes(), "a:0 b:4");
}

#[test]
fn reports_exceeded_deadline() {
    let mut world = running(2, "a");
    world.roll("b");
    world.step();
    let stuck = |world: &mut World| {
        world.pods(2);
        while world.step() {}
        world.condition("Progressing")
    };
    assert_eq!(stuck(&mut world), "True ReplicaSetUpdated");
    let sets: Vec<Arc<Tree>> = world.sets.iter().cloned().map(Arc::new).collect();
    let again = plan(&world.deployment, &sets, |_| false, world.now).again;
    assert_eq!(again, Some(Duration::from_secs(601)));
    world.now.seconds += 600;
    assert_eq!(stuck(&mut world), "True ReplicaSetUpdated", "its last second");
    world.now.seconds += 1;
    assert_eq!(stuck(&mut world), "False ProgressDeadlineExceeded");
    let again = plan(&world.deployment, &sets, |_| false, world.now).again;
    assert_eq!(again, None, "the failure is already reported");
    world.settle();
    assert_eq!(world.condition("Progressing"), "True NewReplicaSetAvailable");
}

#[test]
fn deletes_replica_sets_beyond_history_limit() {
    let mut world = running(1, "a");
    world.deployment.child("spec").set("revisionHistoryLimit", 1);
    for image in ["b", "c", "d"] {
        world.roll(image);
        world.settle();
    }
    assert_eq!(world.sizes(), "c:0 d:1");
}

#[test]
fn reports_replica_failures() {
    let mut world = running(1, "a");
    let failure = tree! { "type" => "ReplicaFailure", "status" => "True", "reason" => "FailedCreate", "lastTransitionTime" => "t" };
    world.sets[0].child("status").set("conditions", list![failure]);
    world.step();
    assert_eq!(world.condition("ReplicaFailure"), "True FailedCreate");
    world.sets[0].child("status").remove("conditions");
    world.step();
    assert_eq!(world.condition("ReplicaFailure"), "");
}

#[test]
fn copies_annotations_to_the_new_replica_set() {
    let mut world = running(1, "a");
    world.deployment.child("metadata.annotations").set("kubernetes.io/change-cause", "a new broom");
    world.deployment.child("metadata.annotations").set("kubectl.kubernetes.io/last-applied-configuration", "{}");
    world.deployment.child("spec").set("minReadySeconds", 5);
    assert!(world.step());
    assert_eq!(world.annotation("a", "kubernetes.io/change-cause"), "a new broom");
    assert_eq!(world.annotation("a", "kubectl.kubernetes.io/last-applied-configuration"), "");
    assert_eq!(world.sets[0].int("spec.minReadySeconds"), Some(5));
}

#[test]
fn rolls_back_by_annotation() {
    let mut world = running(1, "a");
    world.roll("b");
    world.settle();
    world.deployment.child("metadata.annotations").set(rollback::ROLLBACK_TO, "0");
    world.step();
    assert_eq!(world.events.last().map(String::as_str), Some("Rolled back deployment \"web\" to revision 1"));
    world.settle();
    assert_eq!(world.sizes(), "a:1 b:0");
    world.deployment.child("metadata.annotations").set(rollback::ROLLBACK_TO, "77");
    world.step();
    assert_eq!(world.events.last().map(String::as_str), Some("Unable to find the revision to rollback to."));
    assert_eq!(rollback::requested_revision(&world.deployment), None);
}

#[test]
fn terminating_pods_are_only_counted() {
    let mut world = running(2, "a");
    world.roll("b");
    world.deployment.child("metadata").set("deletionTimestamp", "now");
    while world.step() {}
    assert_eq!(world.sizes(), "a:2");
    assert_eq!(world.deployment.int("status.observedGeneration"), Some(2));
}

#[test]
fn adopts_replica_sets_of_another_server() {
    let mut world = running(2, "a");
    world.sets[0].child("spec.template.metadata").set("creationTimestamp", Tree::Null);
    world.sets[0].child("spec.template.spec").set("securityContext", tree! {});
    world.settle();
    assert_eq!(world.sizes(), "a:2");
}

/// For any sequence of user changes and any speed of pods: there are never more pods than the largest size with its
/// surge allows, and finally the cluster matches the last request.
#[test]
fn random_sequences_converge() {
    for seed in 0..300 {
        let random = client::Random::seeded(seed);
        let mut world = World::new(deployment(1 + random.below(9) as i64, "a"));
        let (mut image, mut largest) = ("a".to_string(), 0);
        for _ in 0..40 {
            largest = largest.max(DeploymentState::new(&world.deployment, &[], NOW).replicas());
            match random.below(9) {
                8 => {
                    let rolling = tree! { "maxSurge" => "25%", "maxUnavailable" => "25%" };
                    let strategy = tree! { "type" => "RollingUpdate", "rollingUpdate" => rolling };
                    let recreate = tree! { "type" => "Recreate" };
                    let strategy = if random.below(2) == 0 { strategy } else { recreate };
                    world.deployment.child("spec").set("strategy", strategy);
                }
                0 => {
                    image = ["a", "b", "c", "d"][random.below(4) as usize].to_string();
                    world.roll(&image);
                }
                1 => world.deployment.child("spec").set("replicas", random.below(12) as i64),
                2 => {
                    let paused = random.below(2) == 0;
                    world.deployment.child("spec").set("paused", paused);
                }
                3 => world.now.seconds += random.below(700) as i64,
                _ => {
                    world.pods(random.below(14) as i64);
                    world.step();
                }
            }
            largest = largest.max(DeploymentState::new(&world.deployment, &[], NOW).replicas());
            let total: i64 = world.sets.iter().map(super::super::state::replicas).sum();
            assert!(total <= largest + (largest + 3) / 4, "seed {seed}: {} with {largest}", world.sizes());
        }
        world.deployment.child("spec").set("paused", false);
        world.settle();
        let replicas = world.deployment.int("spec.replicas").unwrap_or_default();
        for set in &world.sets {
            let is_new = set.list("spec.template.spec.containers")[0].str("image") == image;
            let size = super::super::state::replicas(set);
            assert_eq!(size, if is_new { replicas } else { 0 }, "seed {seed}: {}", world.sizes());
        }
        assert!(status::is_complete(&world.deployment, world.deployment.at("status")), "seed {seed}");
    }
}
