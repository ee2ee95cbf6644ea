//! RuntimeClass handlers: Debian's runc makes the containers, the shim keeps them.

use cri::{ContainerState, RunPodSandboxRequest, RuntimeService, StopContainerRequest};

use crate::harness::{Node, container, secured, text, wait_for};

#[tokio::test]
async fn runc_makes_a_container() {
    let mut node = Node::start().await;
    let pod = node.sandbox_config("runc");
    let request = RunPodSandboxRequest { config: Some(pod.clone()), runtime_handler: "runc".into() };
    let sandbox = node.runtime.run_pod_sandbox(request).await.unwrap().pod_sandbox_id;
    let mut config = container("main", "echo made; id -u; exec sleep 1000");
    secured(&mut config).run_as_username = "web".into();
    let id = node.run(&sandbox, config, &pod).await;
    let status = node.status(&id).await;
    assert_eq!(status.state(), ContainerState::Running);
    let log = status.log_path.clone();
    wait_for("its output", || text(std::path::Path::new(&log)) == "made\n33\n");
    assert_eq!(node.exec(&id, "cat /proc/1/comm").await, (0, "sleep\n".into()));
    node.kill_agent();
    node.start_agent(&[]).await;
    assert_eq!(node.status(&id).await.state(), ContainerState::Running);
    node.runtime.stop_container(StopContainerRequest { container_id: id.clone(), timeout: 0 }).await.unwrap();
    assert_eq!(node.status(&id).await.exit_code, 137);
    let (code, _) = node.shell_in(&sandbox, &pod, container("quick", "exit 4")).await;
    assert_eq!(code, 4);
    let wrong = node.create(&sandbox, container("wrong", "true"), &pod).await.unwrap();
    node.start_container(&wrong).await.unwrap();
    let mut missing = container("missing", "true");
    missing.command = vec!["/none".into()];
    let id = node.create(&sandbox, missing, &pod).await.unwrap();
    let error = node.start_container(&id).await.unwrap_err();
    assert!(error.message().contains("/none") && error.message().contains("runc create"), "{error}");
    let request = RunPodSandboxRequest { config: Some(node.sandbox_config("other")), runtime_handler: "kata".into() };
    let error = node.runtime.run_pod_sandbox(request).await.unwrap_err();
    assert!(error.message().contains("no runtime for \"kata\" is configured"), "{error}");
    node.end().await;
}
