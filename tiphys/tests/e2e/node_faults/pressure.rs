//! A node whose disk runs full, on a real runtime: which pods are evicted, which stay, and recovery.

use api::Tree;

use super::world::{PODS, World, condition};
use super::{noting_pod, pod_path, shell_pod};

const CONFIG: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
evictionHard: {nodefs.available: 24Mi}
evictionPressureTransitionPeriod: 1s
imageGCHighThresholdPercent: 100
";
const TAINT: &str = "node.kubernetes.io/disk-pressure";

fn has_pressure(node: &Tree) -> Option<bool> {
    let tainted = node.list("spec.taints").iter().any(|taint| taint.str("key") == TAINT);
    match (condition(node, "DiskPressure"), tainted) {
        ("True", true) => Some(true),
        ("False", false) => Some(false),
        _ => None,
    }
}

fn evicted(world: &World, name: &str) -> Tree {
    let pod = world.until(name, &pod_path(name), |pod| pod.str("status.phase") == "Failed");
    assert_eq!(pod.str("status.reason"), "Evicted", "{}", pod.str("status.message"));
    pod
}

fn container_of(pod: &Tree) -> String {
    pod.list("status.containerStatuses")[0].str("containerID").to_string()
}

#[test]
fn full_disk_evicts_the_largest_pod_and_recovers() {
    let world = World::new(1);
    world.shell("mkdir -p small && mount -t tmpfs -o size=64m none small");
    std::fs::write(world.path("kubelet.yaml"), CONFIG).expect("a file");
    let _up = world.start_up(&["--root-dir", &world.path("small"), "--kubelet-config", &world.path("kubelet.yaml")]);
    world.until_ready_node();
    world.create(PODS, &noting_pod("modest"));
    let modest = container_of(&world.until_ready("modest"));
    let fill = "/host/busybox dd if=/dev/zero of=/data/big bs=1M count=50; trap 'exit 0' TERM; /host/busybox sleep 100000 & wait";
    world.create(PODS, &shell_pod("greedy", fill, ""));
    let greedy = evicted(&world, "greedy");
    assert_eq!(condition(&greedy, "DisruptionTarget"), "True");
    let message = greedy.str("status.message");
    let begin = "The node was low on resource: ephemeral-storage. Threshold quantity: 24Mi, available: ";
    assert!(message.starts_with(begin) && message.contains("Container main was using "), "{message}");
    world.until("pressure", "/api/v1/nodes/node", |node| has_pressure(node) == Some(true));
    world.until("the events", "/api/v1/events", |events| {
        let is_there = |reason: &str| events.list("items").iter().any(|event| event.str("reason") == reason);
        ["EvictionThresholdMet", "Evicted", "NodeHasDiskPressure"].into_iter().all(is_there)
    });
    // The files of the evicted pod are deleted with it.
    world.until("no pressure", "/api/v1/nodes/node", |node| has_pressure(node) == Some(false));
    world.create(PODS, &noting_pod("after"));
    world.until_ready("after");
    assert_eq!(container_of(&world.until_ready("modest")), modest, "no other pod was evicted");

    let write =
        "/host/busybox dd if=/dev/zero of=/big bs=1M count=20; trap 'exit 0' TERM; /host/busybox sleep 100000 & wait";
    world.create(PODS, &shell_pod("limited", write, "resources: {limits: {ephemeral-storage: 5Mi}}"));
    let limited = evicted(&world, "limited");
    // Only the pod itself exceeded its limit.
    assert_eq!(condition(&limited, "DisruptionTarget"), "");
    let message = limited.str("status.message");
    assert_eq!(message, "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. ");
}
