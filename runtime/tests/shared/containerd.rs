//! The configuration of Debian's containerd, restricted to one directory.

use std::path::Path;

/// The same network as the built-in one: a bridge, addresses of host-local, masquerading, host ports.
pub fn network(directory: &Path) -> String {
    format!(
        r#"{{"cniVersion": "0.4.0", "name": "suite", "plugins": [
            {{"type": "bridge", "bridge": "suite0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
              "ipam": {{"type": "host-local", "ranges": [[{{"subnet": "10.213.80.0/24"}}]],
                        "routes": [{{"dst": "0.0.0.0/0"}}], "dataDir": {:?}}}}},
            {{"type": "portmap", "capabilities": {{"portMappings": true}}}}]}}"#,
        directory.join("leases")
    )
}

/// The configuration of a containerd whose data, state and socket are in one directory.
pub fn config(directory: &Path, sandbox_image: &str) -> String {
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
        root = directory.join("root"),
        state = directory.join("state"),
        socket = directory.join("cri.sock"),
        opt = directory.join("opt"),
        cni = directory.join("net.d"),
    )
}
