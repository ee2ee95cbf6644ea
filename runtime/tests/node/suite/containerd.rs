//! Debian's containerd for one test, with its own data, network and mounts.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;

use cri::{ListPodSandboxRequest, RuntimeService};
use tokio::task::JoinSet;

use super::{PAUSE, Suite, password, publish};
use crate::debian_containerd::{config, network};
use crate::harness::{Node, wait_for};

pub async fn start() -> Suite {
    let mut node = Node::unstarted();
    let registry = publish().await;
    let directory = node.directory.path();
    fs::write(directory.join("net.d/10-suite.conflist"), network(directory)).unwrap();
    fs::write(directory.join("config.toml"), config(directory, &registry.name(PAUSE))).unwrap();
    let log = fs::File::create(node.path("daemon.log")).unwrap();
    // Its mounts are only visible to itself and its children, and are removed with them.
    let daemon = Command::new("unshare")
        .args(["--mount", "containerd", "--config"])
        .arg(node.path("config.toml"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("Debian's containerd is installed");
    node.daemon = Some(daemon);
    node.wait_ready().await;
    let suite = Suite { node, registry };
    // Sandboxes need an image, which has to be pulled with a password in advance.
    for image in [suite.registry.name(PAUSE), suite.image()] {
        suite.pull(&image, password("secret")).await.unwrap_or_else(|e| panic!("{e}\n{}", suite.node.log()));
    }
    suite
}

/// Removes everything of it.
pub async fn end(suite: Suite) {
    let node = Arc::new(suite.node);
    let list = node.runtime.list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap();
    let mut going = JoinSet::new();
    for sandbox in list.items {
        let node = node.clone();
        going.spawn(async move { node.remove_sandbox(&sandbox.id).await });
    }
    going.join_all().await;
    let mut node = Arc::into_inner(node).expect("all are removed");
    node.kill_runtime();
    wait_for("containerd's processes to end", || node.processes().is_empty());
    assert_eq!(node.remove_cgroups(), Vec::<String>::new(), "cgroups are left");
}
