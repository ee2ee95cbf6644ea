//! The kubelet as a separate process, while the API server is unreachable.

use std::fs;
use std::time::Duration;

use stdx::wait::{LazyDescription, until_ok};

use super::world::{PODS, World, condition, size};
use super::{noting_pod, pod_path, shell_pod, start_kubelet, starts};

#[test]
fn pods_keep_running_without_the_api_server() {
    let world = World::new(1);
    let server = world.start_up(&["--disable-agent"]);
    let _agent = start_kubelet(&world, "");
    world.create(PODS, &noting_pod("steady"));
    // The container is healthy until its file is removed.
    let script = "echo start >> /data/starts; /host/busybox touch /data/well; trap 'exit 0' TERM; /host/busybox sleep 1000000 & wait";
    let probe = "livenessProbe: {exec: {command: [/host/busybox, test, -e, /data/well]}, periodSeconds: 1, failureThreshold: 1, terminationGracePeriodSeconds: 1}";
    world.create(PODS, &shell_pod("unwell", script, probe));
    let steady = world.until_ready("steady");
    let uid = world.until_ready("unwell").str("metadata.uid").to_string();
    server.kill();
    // The backoff of the container grows each time: the full size takes minutes.
    let rounds = size(1, 4);
    for round in 1..=rounds {
        wait(&world, || fs::remove_file(root_of(&world, &uid).join("well")).is_ok());
        wait(&world, || starts(&world, &uid) > round);
    }
    let _server = world.start_up(&["--disable-agent"]);
    world.until("what happened meanwhile", &pod_path("unwell"), |pod| {
        condition(pod, "Ready") == "True"
            && pod.list("status.containerStatuses")[0].int("restartCount") == Some(rounds as i64)
    });
    let after = world.until_ready("steady");
    let id = |pod: &api::Tree| pod.list("status.containerStatuses")[0].str("containerID").to_string();
    assert_eq!(id(&steady), id(&after));
    world.delete(&pod_path("unwell"));
    world.until_gone("unwell");
}

fn wait(world: &World, is_right: impl Fn() -> bool) {
    let look = || if is_right() { Ok(()) } else { Err(LazyDescription(|| world.log())) };
    until_ok("the container is started again", Duration::from_secs(120), look);
}

fn root_of(world: &World, uid: &str) -> std::path::PathBuf {
    world.dir.path().join("data/kubelet/pods").join(uid).join("volumes/kubernetes.io~empty-dir/data")
}
