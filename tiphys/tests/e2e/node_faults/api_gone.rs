//! The agent as a process of its own, and no API server for a while.

use std::fs;
use std::time::{Duration, Instant};

use super::world::{PODS, World, condition};
use super::{UNDEFENDED, noting_pod, pod_path, shell_pod, starts};
use crate::support::BINARY;

#[test]
#[allow(clippy::disallowed_methods, reason = "a test that waits for a process may block")]
fn without_the_api_server_pods_run_on_and_are_cared_for() {
    let world = World::new(1);
    let server = world.start_up(&["--disable-agent"]);
    fs::create_dir_all(world.dir.path().join("data/kubelet")).expect("a folder");
    let config = format!(
        "{UNDEFENDED}cgroupRoot: {}\n\
         authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, x509: {{clientCAFile: {ca}}}}}\n",
        world.cgroup(),
        ca = world.path("data/pki/ca.crt"),
    );
    fs::write(world.path("kubelet.yaml"), config).expect("a file");
    let (root, kubeconfig, config) =
        (world.path("data/kubelet"), world.path("data/kubeconfig"), world.path("kubelet.yaml"));
    let words = ["kubelet", "--kubeconfig", &kubeconfig, "--config", &config, "--hostname-override", "node"];
    let _agent = world.start(BINARY, &[&words[..], &["--root-dir", &root, "--node-ip", "192.0.2.10"]].concat(), "");
    world.until_ready_node();

    world.create(PODS, &noting_pod("steady"));
    // It is well until somebody takes its file away.
    let script = "echo start >> /data/starts; /host/busybox touch /data/well; trap 'exit 0' TERM; /host/busybox sleep 1000000 & wait";
    let probe = "livenessProbe: {exec: {command: [/host/busybox, test, -e, /data/well]}, periodSeconds: 1, failureThreshold: 1, terminationGracePeriodSeconds: 1}";
    world.create(PODS, &shell_pod("unwell", script, probe));
    let steady = world.until_ready("steady");
    let uid = world.until_ready("unwell").str("metadata.uid").to_string();
    server.kill();
    fs::remove_file(root_of(&world, &uid).join("well")).expect("the file is there");
    let deadline = Instant::now() + Duration::from_secs(60);
    while starts(&world, &uid) < 2 {
        assert!(Instant::now() < deadline, "the container is not started again: {}", world.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    let _server = world.start_up(&["--disable-agent"]);
    world.until("what happened meanwhile", &pod_path("unwell"), |pod| {
        condition(pod, "Ready") == "True" && pod.list("status.containerStatuses")[0].int("restartCount") == Some(1)
    });
    let after = world.until_ready("steady");
    let id = |pod: &api::Tree| pod.list("status.containerStatuses")[0].str("containerID").to_string();
    assert_eq!(id(&steady), id(&after));
    world.delete(&pod_path("unwell"));
    world.until_gone("unwell");
}

fn root_of(world: &World, uid: &str) -> std::path::PathBuf {
    world.dir.path().join("data/kubelet/pods").join(uid).join("volumes/kubernetes.io~empty-dir/data")
}
