//! The runtime is killed at every step of a pod's lifecycle: running pods continue, unfinished steps are undone.

use std::path::Path;

use cri::{
    ContainerState, ListContainersRequest, RemoveContainerRequest, RemovePodSandboxRequest, RunPodSandboxRequest,
    RuntimeService, Status, StopContainerRequest, StopPodSandboxRequest,
};
use runtime::service::fault;

use crate::harness::{Node, container, text, wait_for};
use crate::leaks;

#[tokio::test]
async fn containers_outlive_the_runtime() {
    let mut node = Node::start().await;
    let pod = node.sandbox_config("survivor");
    let sandbox = node.run_sandbox(&pod).await;
    let running =
        node.run(&sandbox, container("runs", "i=0; while :; do echo $i; i=$((i+1)); sleep 0.001; done"), &pod).await;
    let ending =
        node.run(&sandbox, container("ends", "while [ ! -e /tmp/go ]; do sleep 0.01; done; exit 9"), &pod).await;
    let pid = node.status(&running).await;
    node.exec(&ending, "(sleep 0.2; touch /tmp/go) >/dev/null 2>&1 &").await;
    node.kill_runtime();
    let exit_file = node.path(&format!("state/sandboxes/{sandbox}/{ending}/exit.json"));
    wait_for("the exit to be written", || exit_file.exists());
    node.start_runtime(&[]).await;
    let status = node.status(&ending).await;
    assert_eq!((status.state(), status.exit_code), (ContainerState::Exited, 9));
    let status = node.status(&running).await;
    assert_eq!((status.state(), status.started_at), (ContainerState::Running, pid.started_at));
    assert_eq!(node.exec(&running, "echo here").await, (0, "here\n".into()));
    let stop = StopContainerRequest { container_id: running.clone(), timeout: 0 };
    node.runtime.stop_container(stop).await.unwrap();
    let lines = text(Path::new(&status.log_path));
    assert!(lines.lines().enumerate().all(|(n, line)| line == n.to_string()), "a line is lost");
    node.end().await;
}

#[tokio::test]
async fn notices_a_killed_shim() {
    let node = Node::start().await;
    let pod = node.sandbox_config("shimless");
    let sandbox = node.run_sandbox(&pod).await;
    let id = node.run(&sandbox, container("main", "sleep 1000"), &pod).await;
    let shim = node.processes().into_iter().find(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "tiphys: shim")
    });
    let shim = rustix::process::Pid::from_raw(shim.unwrap()).unwrap();
    rustix::process::kill_process(shim, rustix::process::Signal::KILL).unwrap();
    let status = node.wait_exit(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (255, "Unknown"));
    node.end().await;
}

/// The lifecycle of a pod, until the first call that fails at the fault point.
async fn life(node: &Node) -> Result<(), Status> {
    let mut pod = node.networked_config("faulty");
    pod.port_mappings = vec![cri::PortMapping { host_port: 8086, container_port: 80, ..Default::default() }];
    let request = RunPodSandboxRequest { config: Some(pod.clone()), ..Default::default() };
    let sandbox = node.runtime.run_pod_sandbox(request).await?.pod_sandbox_id;
    let command = "trap 'exit 0' TERM; while :; do sleep 0.01; done";
    let id = node.create(&sandbox, container("main", command), &pod).await?;
    node.start_container(&id).await?;
    node.runtime.stop_container(StopContainerRequest { container_id: id.clone(), timeout: 5 }).await?;
    let other = node.create(&sandbox, container("other", "sleep 1000"), &pod).await?;
    node.start_container(&other).await?;
    node.runtime.stop_container(StopContainerRequest { container_id: other, timeout: 0 }).await?;
    node.runtime.remove_container(RemoveContainerRequest { container_id: id }).await?;
    node.runtime.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: sandbox.clone() }).await?;
    node.runtime.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: sandbox }).await?;
    Ok(())
}

#[tokio::test]
async fn a_crash_at_any_step_leaves_nothing_behind() {
    let mut node = Node::start().await;
    node.network().await;
    // The first pod of a network leaves the bridge and the nftables table, which stay.
    life(&node).await.unwrap();
    let before = leaks::count(&node);
    for point in fault::POINTS {
        node.kill_runtime();
        node.start_runtime(&[(fault::VARIABLE, point)]).await;
        assert!(life(&node).await.is_err(), "{point} was not reached");
        node.wait_runtime();
        node.start_runtime(&[]).await;
        for container in node.runtime.list_containers(ListContainersRequest::default()).await.unwrap().containers {
            assert_ne!(container.state(), ContainerState::Unknown, "after {point}");
            if container.state() == ContainerState::Created {
                node.start_container(&container.id).await.unwrap_or_else(|e| panic!("after {point}: {e}"));
            }
        }
        node.remove_all().await;
        let give_up = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while leaks::count(&node) != before && std::time::Instant::now() < give_up {
            tokio::task::yield_now().await;
        }
        assert_eq!(leaks::count(&node), before, "after {point}");
    }
    node.end().await;
}
