//! The state that a node leaves on its machine outside of its data directory: mounts, the pod network, cgroups, and the
//! state of the built-in runtime. A record in the data directory lets `reset` find it after a crash too.

use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use api::{Tree, tree};
use cgroup::Hierarchies;
use network::cidr::IpNet;
use network::cni::builtin::Names;
use rustix::mount::{UnmountFlags, unmount};
use stdx::mountinfo::mounts_below;

use crate::error::{Error, Result};
use crate::machine::files::write_private;
use crate::machine::loopback;

const FILE: &str = "node.json";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostState {
    /// The kubelet's directory, below which volumes are mounted.
    pub root_dir: PathBuf,
    pub pod_logs_dir: PathBuf,
    pub cgroup_root: String,
    /// The socket of another runtime; None for the built-in one.
    pub runtime_endpoint: Option<PathBuf>,
    /// The names of the built-in pod network; None if this node uses another one.
    pub pod_network: Option<Names>,
    /// Addresses of the loopback device: of the API server for pods, and of the DNS.
    pub addresses: Vec<IpAddr>,
    /// The nftables table of the service proxy; None without one.
    pub proxy_table: Option<String>,
    /// The nftables table of network policies; None if they are not enforced.
    pub policy_table: Option<String>,
    /// The ranges of the cluster's pods, if this node has routes to other nodes.
    pub pod_ranges: Vec<IpNet>,
}

impl HostState {
    pub(crate) fn write(&self, data_dir: &Path) -> Result<()> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let object = tree! {
            "rootDir" => text(&self.root_dir),
            "podLogsDir" => text(&self.pod_logs_dir),
            "cgroupRoot" => self.cgroup_root.clone(),
            "runtimeEndpoint" => self.runtime_endpoint.as_deref().map(text).unwrap_or_default(),
            "bridge" => self.pod_network.as_ref().map(|names| names.bridge.clone()).unwrap_or_default(),
            "table" => self.pod_network.as_ref().map(|names| names.table.clone()).unwrap_or_default(),
            "addresses" => self.addresses.iter().map(|ip| Tree::from(ip.to_string())).collect::<Vec<_>>(),
            "proxyTable" => self.proxy_table.clone().unwrap_or_default(),
            "policyTable" => self.policy_table.clone().unwrap_or_default(),
            "podRanges" => self.pod_ranges.iter().map(|range| Tree::from(range.to_string())).collect::<Vec<_>>(),
        };
        write_private(&data_dir.join(FILE), &String::from_utf8_lossy(&api::json::encode(&object, None)))
    }

    /// None where no pod ever ran from this data directory.
    pub(crate) fn read(data_dir: &Path) -> Result<Option<HostState>> {
        let path = data_dir.join(FILE);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(Error::file(&path))?,
        };
        let object: Tree =
            api::json::decode(&bytes).map_err(|error| Error::Flags(vec![format!("{}: {error}", path.display())]))?;
        Ok(Some(HostState {
            root_dir: object.str("rootDir").into(),
            pod_logs_dir: object.str("podLogsDir").into(),
            cgroup_root: object.str("cgroupRoot").to_string(),
            runtime_endpoint: Some(object.str("runtimeEndpoint")).filter(|path| !path.is_empty()).map(PathBuf::from),
            pod_network: pod_network(&object),
            addresses: object.list("addresses").iter().filter_map(|ip| ip.as_str()?.parse().ok()).collect(),
            proxy_table: Some(object.str("proxyTable")).filter(|name| !name.is_empty()).map(str::to_string),
            policy_table: Some(object.str("policyTable")).filter(|name| !name.is_empty()).map(str::to_string),
            pod_ranges: object.list("podRanges").iter().filter_map(|range| range.as_str()?.parse().ok()).collect(),
        }))
    }

    /// Removes the state that no pod uses any more, and returns what could not be removed. `state` is the directory of
    /// the built-in runtime, whose processes have ended.
    pub(crate) fn remove(&self, state: Option<&Path>) -> Vec<String> {
        let mut problems = unmount_below(&self.root_dir);
        for address in &self.addresses {
            if let Err(error) = loopback::remove(*address) {
                problems.push(format!("failed to remove the address {address}: {error}"));
            }
        }
        if let Some(table) = &self.proxy_table {
            problems.extend(remove_proxy_rules(table));
        }
        if let Some(Err(error)) = self.policy_table.as_deref().map(networkpolicy::cleanup) {
            problems.push(format!("failed to remove the rules of network policies: {error}"));
        }
        if let Some(names) = &self.pod_network
            && let Err(error) = overlay::cleanup(&names.bridge, &self.pod_ranges)
        {
            problems.push(format!("failed to remove the routes to other nodes: {error}"));
        }
        if let Some(names) = &self.pod_network
            && let Err(error) = network::cni::builtin::remove(names)
        {
            problems.push(format!("failed to remove the pod network: {error}"));
        }
        problems.extend(self.remove_cgroups());
        if let Some(state) = state {
            let removed = fs::remove_dir_all(state).or_else(|error| match error.kind() {
                ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            });
            problems.extend(removed.err().map(|error| format!("{}: {error}", state.display())));
            // Other clusters may have their directories beside it.
            let _ = state.parent().map(fs::remove_dir);
        }
        problems
    }

    /// Removes only empty cgroups: another node may use the same root.
    fn remove_cgroups(&self) -> Option<String> {
        let hierarchies = Hierarchies::detect().ok()?;
        let root = self.cgroup_root.trim_end_matches('/');
        let pods = ["/kubepods/burstable", "/kubepods/besteffort", "/kubepods", "/tiphys-shims", ""];
        let is_empty = |path: &String| {
            !path.is_empty() && hierarchies.children(path).is_empty() && hierarchies.processes(path).is_empty()
        };
        let failed = |path: String| hierarchies.remove(&path).err().map(|error| error.to_string());
        pods.iter().map(|below| format!("{root}{below}")).filter(is_empty).find_map(failed)
    }
}

fn remove_proxy_rules(table: &str) -> Option<String> {
    let configuration = proxy::config::Configuration { table: table.to_string(), ..Default::default() };
    let removed = proxy::runner::cleanup(&configuration);
    removed
        .err()
        .map(|error| format!("failed to remove the rules of the service proxy: {}", stdx::error::chain(&error)))
}

fn pod_network(object: &Tree) -> Option<Names> {
    match (object.str("bridge"), object.str("table")) {
        // Earlier versions had one network for all clusters.
        ("", _) => object.bool("ownsPodNetwork").then(Names::default),
        (bridge, table) => Some(Names { bridge: bridge.to_string(), table: table.to_string() }),
    }
}

/// Unmounts what is mounted below a directory, the innermost first.
fn unmount_below(dir: &Path) -> Vec<String> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mut problems = Vec::new();
    for path in mounts_below(&table, dir).into_iter().filter(|path| path != dir) {
        if let Err(error) = unmount(&path, UnmountFlags::DETACH) {
            problems.push(format!("failed to unmount {}: {error}", path.display()));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_the_host_state() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(HostState::read(dir.path()).expect("nothing"), None);
        let host_state = HostState {
            root_dir: "/data/kubelet".into(),
            pod_logs_dir: "/var/log/pods".into(),
            cgroup_root: "/".to_string(),
            runtime_endpoint: None,
            pod_network: Some(Names::default()),
            addresses: vec!["10.42.255.254".parse().expect("an address")],
            proxy_table: Some("tiphys-proxy".to_string()),
            policy_table: Some("tiphys-policy".to_string()),
            pod_ranges: vec!["10.42.0.0/16".parse().expect("a range")],
        };
        for runtime_endpoint in [None, Some("/run/containerd.sock".into())] {
            let host_state = HostState { runtime_endpoint, ..host_state.clone() };
            host_state.write(dir.path()).expect("a file");
            assert_eq!(HostState::read(dir.path()).expect("a file"), Some(host_state));
        }
    }
}
