//! The kubelet and the runtime are killed while pods start and stop, at moments from a seed.

use std::collections::{BTreeMap, BTreeSet};

use api::Tree;

use super::world::{PODS, Process, World, condition, seeds, signal, size};
use super::{NOTING, UNDEFENDED, pod_path, shell_pod, starts};
use crate::agent::cluster::{IMAGE, prepare_containerd};

/// The image that the built-in runtime has from the beginning.
const EMBEDDED: &str = "tiphys.local/hello";
/// How often a process is killed in a run.
const ROUNDS: u64 = 3;

/// Pods that are not deleted, those created before each kill, and the maximum number.
#[derive(Clone, Copy)]
struct PodCounts {
    steady: usize,
    made: usize,
    most: usize,
}

impl PodCounts {
    fn chosen() -> PodCounts {
        PodCounts { steady: size(3, 40), made: size(4, 40), most: size(12, 100) }
    }
}

/// The desired pods.
struct PodChurn {
    world: World,
    image: &'static str,
    wanted: BTreeSet<String>,
    made: u64,
    /// The first container of each pod, and how often the pod had started one by then.
    seen: BTreeMap<String, (String, i64)>,
    /// The millicores that pods request after a resize.
    resized: BTreeMap<String, u64>,
    numbers: PodCounts,
}

impl PodChurn {
    fn new(world: World, image: &'static str) -> PodChurn {
        let (wanted, seen, resized) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        let mut churn = PodChurn { world, image, wanted, made: 0, seen, resized, numbers: PodCounts::chosen() };
        for _ in 0..churn.numbers.steady {
            churn.create();
        }
        churn.settle();
        churn
    }

    fn create(&mut self) {
        let name = format!("pod-{}", self.made);
        self.made += 1;
        let pod = shell_pod(&name, NOTING, "resources: {requests: {cpu: 10m}}");
        self.world.create(PODS, &pod.replace(EMBEDDED, self.image));
        self.wanted.insert(name);
    }

    /// Deletes a random pod that did not exist from the beginning.
    fn delete(&mut self) {
        let steady: BTreeSet<String> = (0..self.numbers.steady).map(|at| format!("pod-{at}")).collect();
        let others: Vec<String> = self.wanted.difference(&steady).cloned().collect();
        let Some(name) = others.get(self.world.below(others.len().max(1) as u64) as usize) else { return };
        self.world.delete(&pod_path(name));
        self.wanted.remove(name);
        self.resized.remove(name);
    }

    /// Resizes the CPU request of a random pod.
    fn resize(&mut self) {
        let at = self.world.below(self.wanted.len() as u64) as usize;
        let Some(name) = self.wanted.iter().nth(at).cloned() else { return };
        let millis = 11 + self.world.below(20);
        let mut pod = self.world.get(&pod_path(&name));
        pod.child("metadata").remove("resourceVersion");
        let mut container = pod.list("spec.containers")[0].clone();
        container.child("resources").child("requests").set("cpu", format!("{millis}m"));
        pod.child("spec").set("containers", vec![container]);
        let body = String::from_utf8_lossy(&api::json::encode(&pod, None)).into_owned();
        let (code, answer) = self.world.call("PUT", &format!("{}/resize", pod_path(&name)), &body).expect("an answer");
        assert_eq!(code, 200, "{}", answer.str("message"));
        self.resized.insert(name, millis);
    }

    /// Makes many changes at once, and waits a moment.
    fn stir(&mut self) {
        for _ in 0..self.numbers.made {
            self.create();
            if self.world.below(2) == 0 || self.wanted.len() > self.numbers.most {
                self.delete();
            }
            if self.world.below(3) == 0 {
                self.resize();
            }
        }
        self.world.pass(400);
    }

    /// Waits until all pods are as desired, and checks that no container has been started twice.
    fn settle(&mut self) {
        let (wanted, resized) = (self.wanted.clone(), self.resized.clone());
        let list = self.world.until("pods as they were asked for", PODS, |list| {
            let names: BTreeSet<String> =
                list.list("items").iter().map(|pod| pod.str("metadata.name").to_string()).collect();
            let is_so = |pod: &Tree| condition(pod, "Ready") == "True" && has_its_share(pod, &resized);
            names == wanted && list.list("items").iter().all(is_so)
        });
        for pod in list.list("items") {
            self.check(pod);
        }
        self.check_groups(list.list("items"));
    }

    fn check(&mut self, pod: &Tree) {
        let (uid, name) = (pod.str("metadata.uid").to_string(), pod.str("metadata.name"));
        let status = &pod.list("status.containerStatuses")[0];
        let restarts = status.int("restartCount").unwrap_or_default();
        let started = starts(&self.world, &uid) as i64;
        let id = status.str("containerID").to_string();
        match self.seen.get(&uid) {
            Some(first) => assert_eq!(*first, (id.clone(), started), "{name} has its container and its volume"),
            // A killed containerd loses the containers that it was starting; still, no pod runs twice.
            None if self.image == IMAGE => assert!(restarts < 2 && started <= restarts + 1, "{name}: {started}"),
            None => assert_eq!((restarts, started), (0, 1), "{name} was started once, and its volume is whole"),
        }
        self.seen.insert(uid, (id, started));
    }

    /// Each pod has its cgroup, and there are no other cgroups.
    fn check_groups(&self, pods: &[Tree]) {
        let uids: BTreeSet<String> = pods.iter().map(|pod| pod.str("metadata.uid").to_string()).collect();
        let name = |dir: &std::path::PathBuf| dir.file_name().map(|name| name.to_string_lossy().into_owned());
        let groups = self.world.cgroups().iter().filter_map(name).collect::<Vec<_>>();
        let found: BTreeSet<String> =
            groups.iter().filter_map(|name| name.strip_prefix("pod")).map(str::to_string).collect();
        assert_eq!(found, uids);
    }
}

fn has_its_share(pod: &Tree, resized: &BTreeMap<String, u64>) -> bool {
    let millis = resized.get(pod.str("metadata.name")).copied().unwrap_or(10);
    let status = &pod.list("status.containerStatuses")[0];
    status.str("resources.requests.cpu") == format!("{millis}m")
}

#[test]
fn killing_the_kubelet_restarts_loses_and_doubles_nothing() {
    for seed in 0..seeds(1) {
        let (world, mut up) = World::up(seed, &[]);
        let mut churn = PodChurn::new(world, EMBEDDED);
        for _ in 0..ROUNDS {
            churn.stir();
            up.kill();
            up = churn.world.start_up(&[]);
            churn.settle();
        }
    }
}

/// Running pods do not need the zygote, from which processes of containers are forked; a new one is started for the
/// next pod.
#[test]
fn killing_the_zygote_blocks_no_pod() {
    for seed in 0..seeds(1) {
        let (world, up) = World::up(seed, &[]);
        let mut churn = PodChurn::new(world, EMBEDDED);
        for _ in 0..ROUNDS {
            churn.stir();
            signal("-KILL", &zygote(&up));
            churn.create();
            churn.settle();
        }
    }
}

/// Containers keep running without containerd. While its socket is dead, the node is not ready.
#[test]
fn killing_containerd_restarts_loses_and_doubles_nothing() {
    for seed in 0..seeds(1) {
        let world = World::new(seed);
        prepare_containerd(world.dir.path());
        let mut containerd = start_containerd(&world);
        world.shell("ctr -a cri.sock -n k8s.io images import images.tar >/dev/null");
        // A killed containerd does not respond to every call in flight.
        std::fs::write(world.path("kubelet.yaml"), format!("{UNDEFENDED}runtimeRequestTimeout: 15s\n"))
            .expect("a file");
        let flags = ["--container-runtime-endpoint", &world.path("cri.sock")];
        let _up = world.start_up(&[&flags[..], &["--kubelet-config", &world.path("kubelet.yaml")]].concat());
        world.until_ready_node();
        let mut churn = PodChurn::new(world, IMAGE);
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
    world.shell(&format!("n=0; until {answers}; do n=$((n+1)); [ $n -lt 200 ] || exit 1; sleep 0.1; done"));
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
        line.starts_with(b"tiphys: zygote")
    };
    children.into_iter().find(is_zygote).expect("a zygote")
}
