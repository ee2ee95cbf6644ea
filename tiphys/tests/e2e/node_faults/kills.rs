//! The agent and the runtime killed without warning while pods come and go, at moments that follow from a seed.

use std::collections::{BTreeMap, BTreeSet};

use api::Tree;

use super::world::{PODS, Process, World, condition, seeds, signal};
use super::{noting_pod, pod_path, starts};
use crate::agent::cluster::{IMAGE, prepare_containerd};

/// The image that the runtime in the house has from the beginning.
const EMBEDDED: &str = "tiphys.local/hello";
/// Pods that nobody touches.
const STEADY: u64 = 3;
/// How often somebody is killed in a run.
const ROUNDS: u64 = 3;
/// Pods made and deleted before each.
const CHURN: u64 = 4;

/// Pods as they should be.
struct Churn {
    world: World,
    image: &'static str,
    wanted: BTreeSet<String>,
    made: u64,
    /// Each container by its pod, as it was first seen to run.
    seen: BTreeMap<String, String>,
}

impl Churn {
    fn new(world: World, image: &'static str) -> Churn {
        let mut churn = Churn { world, image, wanted: BTreeSet::new(), made: 0, seen: BTreeMap::new() };
        for _ in 0..STEADY {
            churn.create();
        }
        churn.settle();
        churn
    }

    fn create(&mut self) {
        let name = format!("pod-{}", self.made);
        self.made += 1;
        self.world.create(PODS, &noting_pod(&name).replace(EMBEDDED, self.image));
        self.wanted.insert(name);
    }

    /// Some of those that were not there from the beginning.
    fn delete(&mut self) {
        let steady: BTreeSet<String> = (0..STEADY).map(|at| format!("pod-{at}")).collect();
        let others: Vec<String> = self.wanted.difference(&steady).cloned().collect();
        let Some(name) = others.get(self.world.below(others.len().max(1) as u64) as usize) else { return };
        self.world.delete(&pod_path(name));
        self.wanted.remove(name);
    }

    /// Asks for much at once, and lets a moment of it pass.
    fn stir(&mut self) {
        for _ in 0..CHURN {
            self.create();
            if self.world.below(2) == 0 {
                self.delete();
            }
        }
        self.world.pass(400);
    }

    /// All is as it was asked for, and no container has been started twice.
    fn settle(&mut self) {
        let wanted = self.wanted.clone();
        let list = self.world.until("pods as they were asked for", PODS, |list| {
            let names: BTreeSet<String> =
                list.list("items").iter().map(|pod| pod.str("metadata.name").to_string()).collect();
            names == wanted && list.list("items").iter().all(|pod| condition(pod, "Ready") == "True")
        });
        for pod in list.list("items") {
            self.check(pod);
        }
        self.check_groups(list.list("items"));
    }

    fn check(&mut self, pod: &Tree) {
        let (uid, name) = (pod.str("metadata.uid").to_string(), pod.str("metadata.name"));
        let status = &pod.list("status.containerStatuses")[0];
        assert_eq!(status.int("restartCount"), Some(0), "{name}");
        assert_eq!(starts(&self.world, &uid), 1, "{name} was started once, and its volume is whole");
        let id = status.str("containerID").to_string();
        let first = self.seen.entry(uid).or_insert_with(|| id.clone());
        assert_eq!(*first, id, "{name} has its container");
    }

    /// Each pod has its control group, and nobody else has one.
    fn check_groups(&self, pods: &[Tree]) {
        let uids: BTreeSet<String> = pods.iter().map(|pod| pod.str("metadata.uid").to_string()).collect();
        let name = |dir: &std::path::PathBuf| dir.file_name().map(|name| name.to_string_lossy().into_owned());
        let groups = self.world.cgroups().iter().filter_map(name).collect::<Vec<_>>();
        let found: BTreeSet<String> =
            groups.iter().filter_map(|name| name.strip_prefix("pod")).map(str::to_string).collect();
        assert_eq!(found, uids);
    }
}

#[test]
fn killing_the_agent_restarts_loses_and_doubles_nothing() {
    for seed in 0..seeds(1) {
        let (world, mut up) = World::up(seed, &[]);
        let mut churn = Churn::new(world, EMBEDDED);
        for _ in 0..ROUNDS {
            churn.stir();
            up.kill();
            up = churn.world.start_up(&[]);
            churn.settle();
        }
    }
}

/// What containers' processes are forked from is not needed by those that run, and is there again for the next.
#[test]
fn killing_what_shims_are_forked_from_holds_nobody_up() {
    for seed in 0..seeds(1) {
        let (world, up) = World::up(seed, &[]);
        let mut churn = Churn::new(world, EMBEDDED);
        for _ in 0..ROUNDS {
            churn.stir();
            signal("-KILL", &zygote(&up));
            churn.create();
            churn.settle();
        }
    }
}

/// Containers of containerd's run on without it. While its socket is dead the node says so.
#[test]
fn killing_containerd_restarts_loses_and_doubles_nothing() {
    for seed in 0..seeds(1) {
        let world = World::new(seed);
        prepare_containerd(world.dir.path());
        let mut containerd = start_containerd(&world);
        world.shell("ctr -a cri.sock -n k8s.io images import images.tar >/dev/null");
        let _up = world.start_up(&["--container-runtime-endpoint", &world.path("cri.sock")]);
        world.until_ready_node();
        let mut churn = Churn::new(world, IMAGE);
        for round in 0..ROUNDS {
            churn.stir();
            containerd.kill();
            if round == 0 {
                churn.world.until_node("False");
            }
            containerd = start_containerd(&churn.world);
            churn.world.until_node("True");
            churn.settle();
        }
    }
}

fn start_containerd(world: &World) -> Process {
    let process = world.start("containerd", &["--config", &world.path("config.toml")], "");
    let answers = "ctr -a cri.sock version >/dev/null 2>&1";
    world.shell(&format!("n=0; until {answers}; do n=$((n+1)); [ $n -lt 200 ]; sleep 0.1; done"));
    process
}

fn zygote(up: &Process) -> String {
    let pid = up.pid();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    let children = tasks.flatten().flat_map(|task| {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        text.split_whitespace().map(str::to_string).collect::<Vec<_>>()
    });
    let is_zygote = |pid: &String| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"runtime-zygote")
    };
    children.into_iter().find(is_zygote).expect("a zygote")
}
