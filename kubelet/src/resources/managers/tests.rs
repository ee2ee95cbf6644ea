//! All managers together, on a fake machine with its files.

use api::tree;
use stdx::clock::SystemClock;

use super::*;
use crate::config::Pinning;

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    std::fs::write(path, text).expect("a file");
}

/// Two sockets with a node each, of two cores.
fn make_machine(root: &Path) {
    for cpu in 0..4 {
        write(root, &format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"), &cpu.to_string());
        write(root, &format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"), &(cpu / 2).to_string());
    }
    write(root, "sys/devices/system/cpu/online", "0-3");
    write(root, "sys/devices/system/node/online", "0-1");
    for node in 0..2 {
        write(root, &format!("sys/devices/system/node/node{node}/cpulist"), ["0-1", "2-3"][node]);
        write(root, &format!("sys/devices/system/node/node{node}/meminfo"), "Node 0 MemTotal: 4194304 kB");
    }
}

fn config(root: &Path, pinning: Pinning) -> Config {
    let mut config = Config { root_dir: root.join("kubelet"), pinning, ..Config::default() };
    config.allocatable.reserved_cpus = Some([0].into_iter().collect());
    config.eviction.thresholds.clear();
    config
        .allocatable
        .kube_reserved
        .insert("memory".to_string(), api::quantity::Quantity::parse("1Gi").expect("a quantity"));
    config
}

fn all(topology: Policy, scope: Scope) -> Pinning {
    Pinning {
        cpu_static: true,
        memory_static: true,
        reserved_memory: BTreeMap::from([(0, BTreeMap::from([("memory".to_string(), 1 << 30)]))]),
        topology,
        scope,
        ..Pinning::default()
    }
}

fn open(root: &Path, config: Config) -> Result<Managers, OpenError> {
    Managers::open(Arc::new(config), root, Arc::new(SystemClock), Metrics::default())
}

fn pod(uid: &str, containers: &[(&str, u32, &str)]) -> Tree {
    let container = |(name, cpus, memory): &(&str, u32, &str)| {
        let amounts = tree! { "cpu" => cpus.to_string(), "memory" => *memory };
        tree! { "name" => *name, "resources" => tree! { "requests" => amounts.clone(), "limits" => amounts } }
    };
    let containers: Vec<Tree> = containers.iter().map(container).collect();
    tree! {
        "metadata" => tree! { "uid" => uid, "name" => uid },
        "spec" => tree! { "containers" => containers },
    }
}

async fn given(managers: &Managers, pod: &Tree, container: &str) -> (String, String, bool) {
    let spec = crate::model::pod::container(pod, container).expect("a container");
    let given = managers.prepare(pod, spec).await.expect("given");
    (given.cpus, given.memory_nodes, given.has_cpus)
}

fn text(cpus: &str, nodes: &str, own: bool) -> (String, String, bool) {
    (cpus.to_string(), nodes.to_string(), own)
}

#[tokio::test]
async fn aligns_cpus_and_memory_and_survives_restarts() {
    let dir = tempfile::tempdir().expect("a directory");
    make_machine(dir.path());
    let settings = || config(dir.path(), all(Policy::SingleNumaNode, Scope::Container));
    let managers = open(dir.path(), settings()).expect("managers");
    let (first, burstable) = (pod("a", &[("c", 2, "1Gi")]), pod("b", &[("c", 0, "1Gi")]));
    managers.admit(&first).await.expect("taken");
    assert_eq!(given(&managers, &first, "c").await, text("2-3", "1", true));
    assert_eq!(given(&managers, &burstable, "c").await, text("0-1", "", false));
    let wide = managers.admit(&pod("c", &[("c", 2, "1Gi")])).await.expect_err("too wide");
    assert_eq!(wide.reason, "TopologyAffinityError");
    assert_eq!(wide.message, "Resources cannot be allocated with Topology locality");
    managers.admit(&pod("d", &[("c", 1, "1Gi")])).await.expect("taken");
    drop(managers);
    let managers = open(dir.path(), settings()).expect("managers");
    assert_eq!(given(&managers, &first, "c").await, text("2-3", "1", true));
    assert_eq!(given(&managers, &burstable, "c").await, text("0", "", false));
    managers.keep(|uid| uid != "d");
    assert_eq!(given(&managers, &burstable, "c").await, text("0-1", "", false));
    managers.release("a");
    assert_eq!(given(&managers, &burstable, "c").await, text("0-3", "", false));
}

#[tokio::test]
async fn rejected_pod_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a directory");
    make_machine(dir.path());
    let managers = open(dir.path(), config(dir.path(), all(Policy::None, Scope::Container))).expect("managers");
    let refused = managers.admit(&pod("a", &[("c", 1, "1Gi"), ("d", 3, "1Gi")])).await.expect_err("too many");
    assert_eq!(refused.reason, "UnexpectedAdmissionError");
    let why = "not enough cpus available to satisfy request: requested=3, available=2";
    assert_eq!(refused.message, format!("Allocate failed due to {why}, which is unexpected"));
    assert!(!managers.held().cpus.given.contains_key("a"));
    managers.admit(&pod("b", &[("c", 3, "1Gi")])).await.expect("all are free");
}

#[tokio::test]
async fn pod_scope_aligns_all_containers() {
    let dir = tempfile::tempdir().expect("a directory");
    make_machine(dir.path());
    for (scope, want) in [(Scope::Container, ["1", "2"]), (Scope::Pod, ["2", "3"])] {
        let _ = std::fs::remove_dir_all(dir.path().join("kubelet"));
        let managers = open(dir.path(), config(dir.path(), all(Policy::SingleNumaNode, scope))).expect("managers");
        let both = pod("a", &[("c", 1, "1Gi"), ("d", 1, "1Gi")]);
        managers.admit(&both).await.expect("taken");
        let cpus = ["c", "d"].map(|name| managers.own_cpus("a", name).to_string());
        assert_eq!(cpus, want.map(str::to_string), "{scope:?}");
    }
}

#[tokio::test]
async fn unfit_checkpoint_stops_the_start() {
    let dir = tempfile::tempdir().expect("a directory");
    make_machine(dir.path());
    let settings = || config(dir.path(), all(Policy::None, Scope::Container));
    open(dir.path(), settings()).expect("managers");
    let why = open(dir.path(), config(dir.path(), Pinning::default())).err().expect("refused").to_string();
    let file = dir.path().join("kubelet/cpu_manager_state");
    let want = format!(
        "could not restore state from checkpoint: configured policy \"none\" differs from state checkpoint policy \
         \"static\", please drain this node and delete the CPU manager checkpoint file {:?} before restarting Kubelet",
        file.display().to_string()
    );
    assert_eq!(why, want);
    let mut other = settings();
    other.allocatable.reserved_cpus = Some([9].into_iter().collect());
    assert_eq!(
        open(dir.path(), other).err().expect("refused").to_string(),
        "cpuManagerPolicy: there are no CPUs 9 to reserve"
    );
    write(dir.path(), "sys/devices/system/cpu/online", "0-2");
    let why = open(dir.path(), settings()).err().expect("refused").to_string();
    assert!(why.contains("current set of available CPUs \"0-2\" doesn't match with CPUs in state \"0-3\""), "{why}");
    write(dir.path(), "sys/devices/system/cpu/online", "0-3");
    std::fs::write(&file, "{}").expect("a file");
    let why = open(dir.path(), settings()).err().expect("refused").to_string();
    assert!(why.contains("checkpoint is corrupted") && why.contains("cpu_manager_state"), "{why}");
}

#[tokio::test]
async fn serves_the_pod_resources_api() {
    use pod_resources::wire::{AllocatableResponse, Empty, GetRequest, GetResponse, ListResponse};
    let dir = tempfile::tempdir().expect("a directory");
    make_machine(dir.path());
    let managers = open(dir.path(), config(dir.path(), all(Policy::SingleNumaNode, Scope::Container)));
    let managers = Arc::new(managers.expect("managers"));
    let mut there = pod("a", &[("c", 2, "1Gi")]);
    there.child("metadata").set("namespace", "default");
    managers.admit(&there).await.expect("taken");
    let there = Arc::new(there);
    let (service, place) = (managers.clone(), dir.path().join("pod-resources"));
    let socket = place.join("kubelet.sock");
    let pods: pod_resources::Pods = Arc::new(move || vec![there.clone()]);
    let task = tokio::spawn(async move { pod_resources::serve_once(&service, &pods, &place).await });
    while !socket.exists() {
        tokio::task::yield_now().await;
    }
    let channel = cri::grpc::dial(&socket);
    let list: ListResponse = cri::grpc::call(&channel, "/v1.PodResourcesLister/List", Empty {}).await.expect("a list");
    let has = &list.pod_resources[0].containers[0];
    assert_eq!((has.name.as_str(), has.cpu_ids.as_slice(), has.memory[0].size), ("c", &[2, 3][..], 1 << 30));
    assert_eq!(has.memory[0].topology.as_ref().map(|at| at.nodes[0].id), Some(1));
    let old: ListResponse =
        cri::grpc::call(&channel, "/v1alpha1.PodResourcesLister/List", Empty {}).await.expect("a list");
    assert!(old.pod_resources[0].containers[0].cpu_ids.is_empty(), "the first version knew of devices only");
    let get = async |name: &str| -> Result<GetResponse, cri::Status> {
        let request = GetRequest { pod_name: name.to_string(), pod_namespace: "default".to_string() };
        cri::grpc::call(&channel, "/v1.PodResourcesLister/Get", request).await
    };
    assert_eq!(get("a").await.expect("a pod").pod_resources.as_ref(), list.pod_resources.first());
    assert_eq!(get("b").await.expect_err("none").message(), "pod b in namespace default not found");
    let path = "/v1.PodResourcesLister/GetAllocatableResources";
    let all: AllocatableResponse = cri::grpc::call(&channel, path, Empty {}).await.expect("an answer");
    assert_eq!((all.cpu_ids.as_slice(), all.memory.len()), (&[1, 2, 3][..], 2));
    task.abort();
}
