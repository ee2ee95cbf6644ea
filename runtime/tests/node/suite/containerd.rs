//! Debian's containerd for one test: its data, its network and its mounts are nobody else's.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use cri::{ListPodSandboxRequest, RuntimeService};
use tokio::task::JoinSet;

use super::{PAUSE, Suite, password, publish};
use crate::harness::{Node, wait_for};

pub async fn start() -> Suite {
    let mut node = Node::unstarted();
    let registry = publish().await;
    let folder = node.folder.path();
    fs::write(folder.join("net.d/10-suite.conflist"), network(folder)).unwrap();
    fs::write(folder.join("config.toml"), config(folder, &registry.name(PAUSE))).unwrap();
    let log = fs::File::create(node.path("agent.log")).unwrap();
    // Its mounts are seen by itself and its children alone, and end with them.
    let agent = Command::new("unshare")
        .args(["--mount", "containerd", "--config"])
        .arg(node.path("config.toml"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("Debian's containerd is installed");
    node.agent = Some(agent);
    node.answers().await;
    let suite = Suite { node, registry };
    // Sandboxes are made from an image, for which nobody gives a password later.
    for image in [suite.registry.name(PAUSE), suite.image()] {
        suite.pull(&image, password("secret")).await.unwrap_or_else(|e| panic!("{e}\n{}", suite.node.log()));
    }
    suite
}

/// Nothing of it is left when this returns.
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
    node.kill_agent();
    wait_for("containerd's processes to end", || node.processes().is_empty());
    assert_eq!(node.remove_groups(), Vec::<String>::new(), "control groups are left");
}

/// What our own network is, too: a bridge, addresses by host-local, masquerade, host ports.
fn network(folder: &Path) -> String {
    format!(
        r#"{{"cniVersion": "0.4.0", "name": "suite", "plugins": [
            {{"type": "bridge", "bridge": "suite0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
              "ipam": {{"type": "host-local", "ranges": [[{{"subnet": "10.213.80.0/24"}}]],
                        "routes": [{{"dst": "0.0.0.0/0"}}], "dataDir": {:?}}}}},
            {{"type": "portmap", "capabilities": {{"portMappings": true}}}}]}}"#,
        folder.join("leases")
    )
}

fn config(folder: &Path, sandbox_image: &str) -> String {
    format!(
        r#"version = 2
root = {root:?}
state = {state:?}
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = {socket:?}
[plugins."io.containerd.internal.v1.opt"]
  path = {opt:?}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = {sandbox_image:?}
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = {cni:?}
"#,
        root = folder.join("root"),
        state = folder.join("state"),
        socket = folder.join("cri.sock"),
        opt = folder.join("opt"),
        cni = folder.join("net.d"),
    )
}
