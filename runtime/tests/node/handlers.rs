//! RuntimeClass handlers: Debian's runc and crun create the containers, and the shim manages them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use cri::{
    ContainerState, ExecRequest, LinuxContainerResources, PodSandboxConfig, PodSandboxStatusRequest,
    RemoveContainerRequest, RunPodSandboxRequest, RuntimeService, StatusRequest, StopContainerRequest,
    UpdateContainerResourcesRequest,
};
use streaming::Transport;
use streaming::remote_command::{CommandResult, Options};

use crate::harness::{Node, container, secured, text, wait_for};
use crate::stream_client::{command, talk};

async fn run_sandbox(node: &Node, handler: &str) -> (String, PodSandboxConfig) {
    let pod = node.sandbox_config(handler);
    let request = RunPodSandboxRequest { config: Some(pod.clone()), runtime_handler: handler.into() };
    let made = node.runtime.run_pod_sandbox(request).await;
    (made.unwrap_or_else(|error| panic!("{error}\n{}", node.log())).pod_sandbox_id, pod)
}

/// The lifecycle of a container with a handler, through every call that depends on it.
async fn a_life(handler: &str, program: impl FnOnce(&Node) -> String) {
    let mut node = Node::unstarted();
    node.build_images().await;
    let program = program(&node);
    node.arguments = vec!["--handler".into(), format!("{handler}={program}")];
    node.start_runtime(&[]).await;
    let status = node.runtime.status(StatusRequest::default()).await.unwrap();
    assert!(status.runtime_handlers.iter().any(|known| known.name == handler), "{status:?}");
    let (sandbox, pod) = run_sandbox(&node, handler).await;
    let request = PodSandboxStatusRequest { pod_sandbox_id: sandbox.clone(), verbose: false };
    let shown = node.runtime.pod_sandbox_status(request).await.unwrap().status.unwrap();
    assert_eq!(shown.runtime_handler, handler);

    let mut config = container("main", "echo made; id -u; trap 'exit 5' TERM; while :; do sleep 0.01; done");
    secured(&mut config).run_as_username = "web".into();
    config.linux.as_mut().unwrap().resources = Some(memory(64));
    let id = node.run(&sandbox, config, &pod).await;
    let status = node.status(&id).await;
    assert_eq!(status.state(), ContainerState::Running);
    wait_for("its output", || text(Path::new(&status.log_path)) == "made\n33\n");
    assert_eq!(node.exec(&id, "id -u; exit 3").await, (3, "33\n".into()));
    streams(&node, &id).await;
    updates(&node, &id).await;

    node.kill_runtime();
    node.start_runtime(&[]).await;
    assert_eq!(node.status(&id).await.state(), ContainerState::Running);
    node.runtime.stop_container(StopContainerRequest { container_id: id.clone(), timeout: 20 }).await.unwrap();
    assert_eq!(node.status(&id).await.exit_code, 5, "it is asked first");
    node.runtime.remove_container(RemoveContainerRequest { container_id: id }).await.unwrap();
    others(&node, &sandbox, &pod, handler).await;
    node.end().await;
}

fn memory(mebibytes: i64) -> LinuxContainerResources {
    LinuxContainerResources { memory_limit_in_bytes: mebibytes << 20, ..Default::default() }
}

async fn streams(node: &Node, id: &str) {
    let cmd = ["sh", "-c", "cat; exit 6"].map(String::from).to_vec();
    let request = ExecRequest { container_id: id.into(), cmd, tty: false, stdin: true, stdout: true, stderr: true };
    let url = node.runtime.exec(request).await.unwrap().url;
    let options = Options { stdin: true, stdout: true, stderr: true, tty: false };
    let (out, _, ending) = talk(command(&url, Transport::Spdy, "v4.channel.k8s.io", options).await, b"typed").await;
    assert_eq!(out, "typed");
    assert!(matches!(ending, Ok(CommandResult::ExitCode { code: 6, .. })), "{ending:?}");
}

async fn updates(node: &Node, id: &str) {
    let read = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes || cat /sys/fs/cgroup/memory.max";
    assert_eq!(node.exec(id, read).await.1, format!("{}\n", 64 << 20));
    let request =
        UpdateContainerResourcesRequest { container_id: id.into(), linux: Some(memory(128)), ..Default::default() };
    node.runtime.update_container_resources(request).await.unwrap();
    assert_eq!(node.exec(id, read).await.1, format!("{}\n", 128 << 20));
}

/// Containers that are killed, exit, and fail to start.
async fn others(node: &Node, sandbox: &str, pod: &PodSandboxConfig, handler: &str) {
    let deaf = node.run(sandbox, container("deaf", "trap '' TERM; sleep 1000"), pod).await;
    node.runtime.stop_container(StopContainerRequest { container_id: deaf.clone(), timeout: 0 }).await.unwrap();
    assert_eq!(node.status(&deaf).await.exit_code, 137);
    assert_eq!(node.shell_in(sandbox, pod, container("quick", "exit 4")).await.0, 4);
    let mut missing = container("missing", "true");
    missing.command = vec!["/none".into()];
    let id = node.create(sandbox, missing, pod).await.unwrap();
    let error = node.start_container(&id).await.unwrap_err();
    assert!(error.message().contains("/none") && error.message().contains(&format!("{handler} create")), "{error}");
}

#[tokio::test]
async fn runc_creates_containers() {
    a_life("runc", |_| "/usr/sbin/runc".into()).await;
}

/// crun refuses a machine with controllers in both versions of cgroups. In its own mount namespace it only sees
/// version 1.
fn crun(node: &Node) -> String {
    let script = node.path("crun");
    let text = "#!/bin/sh\numount /sys/fs/cgroup/unified 2>/dev/null\nexec /usr/bin/crun \"$@\"\n";
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script.to_string_lossy().into_owned()
}

#[tokio::test]
async fn crun_creates_containers() {
    a_life("crun", crun).await;
}

#[tokio::test]
async fn refuses_an_unknown_handler() {
    let node = Node::start().await;
    let request = RunPodSandboxRequest { config: Some(node.sandbox_config("other")), runtime_handler: "kata".into() };
    let error = node.runtime.run_pod_sandbox(request).await.unwrap_err();
    assert!(error.message().contains("no runtime for \"kata\" is configured"), "{error}");
    node.end().await;
}
