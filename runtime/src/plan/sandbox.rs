//! The spec of a pod's sandbox.

use std::collections::BTreeMap;

use cri::{NamespaceMode, PodSandboxConfig};

use super::{host_ipc, host_network, namespaces, userns};
use crate::error::{Result, refused};
use crate::spec::SandboxSpec;
use cgroup::parent_path;

/// The cgroup parent of pods whose client sets none.
pub(crate) const DEFAULT_CGROUP_PARENT: &str = "/tiphys";
const SHM_BYTES: u64 = 64 << 20;
/// The pause process is one of the last to be killed by the OOM killer, because the pod ends with it.
const PAUSE_OOM_SCORE: i32 = -998;

pub(crate) fn sandbox_cgroup(config: &PodSandboxConfig) -> String {
    let parent = config.linux.as_ref().map(|l| l.cgroup_parent.as_str()).unwrap_or_default();
    if parent.is_empty() { DEFAULT_CGROUP_PARENT.into() } else { parent_path(parent) }
}

pub(crate) fn sandbox(id: &str, config: &PodSandboxConfig) -> Result<SandboxSpec> {
    if config.metadata.is_none() {
        return refused("sandbox config must include metadata");
    }
    let options = namespaces(config);
    if options.ipc() == NamespaceMode::Container || options.network() == NamespaceMode::Container {
        return refused("linux.security_context.namespace_options: network and ipc must be POD or NODE");
    }
    let network = !host_network(config);
    if config.hostname.len() > 64 {
        return refused(format!("hostname {:?} is longer than 64 bytes", config.hostname));
    }
    let (sysctls, userns) = (sysctls(config)?, userns(config)?);
    Ok(SandboxSpec {
        id: id.into(),
        hostname: network.then(|| config.hostname.clone()),
        network,
        ipc: !host_ipc(config),
        pid: options.pid() == NamespaceMode::Pod,
        default_sysctls: default_sysctls(network, userns.is_some(), &sysctls),
        sysctls,
        shm_bytes: SHM_BYTES,
        oom_score_adj: Some(PAUSE_OOM_SCORE),
        cgroup: format!("{}/{id}", sandbox_cgroup(config)),
        userns,
    })
}

/// The same defaults as in other runtimes: in a pod's own network namespace, low ports and ping need no capability. The
/// range of groups cannot be set in a user namespace that does not map all of them.
fn default_sysctls(network: bool, userns: bool, own: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let defaults = [
        ("net.ipv4.ip_unprivileged_port_start", "0", network),
        ("net.ipv4.ping_group_range", "0 2147483647", network && !userns),
    ];
    let requested = defaults.into_iter().filter(|(name, _, requested)| *requested && !own.contains_key(*name));
    requested.map(|(name, value, _)| (name.to_string(), value.to_string())).collect()
}

/// Only sysctls of the pod's own namespaces: any other would affect the whole machine.
fn sysctls(config: &PodSandboxConfig) -> Result<BTreeMap<String, String>> {
    const IPC: [&str; 9] = [
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
        "kernel.shm_next_id",
    ];
    let Some(linux) = &config.linux else { return Ok(BTreeMap::new()) };
    let mut found = BTreeMap::new();
    for (name, value) in &linux.sysctls {
        let name = name.replace('/', ".");
        let ipc = IPC.contains(&name.as_str()) || name.starts_with("fs.mqueue.");
        let net = name.starts_with("net.") && !name.contains("..");
        match (ipc, net) {
            (true, _) if host_ipc(config) => {
                return refused(format!("sysctl {name} is not allowed with the host's IPC namespace"));
            }
            (_, true) if host_network(config) => {
                return refused(format!("sysctl {name} is not allowed with the host's network"));
            }
            (false, false) => return refused(format!("sysctl {name} is not namespaced")),
            _ => {}
        }
        found.insert(name, value.clone());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cri::{LinuxPodSandboxConfig, LinuxSandboxSecurityContext, NamespaceOption, PodSandboxMetadata};

    fn config(options: NamespaceOption, sysctls: &[(&str, &str)]) -> PodSandboxConfig {
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata::default()),
            hostname: "web".into(),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: "/kubepods/pod1".into(),
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(options),
                    ..Default::default()
                }),
                sysctls: sysctls.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn node() -> NamespaceOption {
        let node = NamespaceMode::Node as i32;
        NamespaceOption { network: node, pid: node, ipc: node, ..Default::default() }
    }

    #[test]
    fn pod_namespaces() {
        let spec = sandbox("s1", &config(NamespaceOption::default(), &[("net.ipv4.ip_unprivileged_port_start", "0")]));
        let spec = spec.unwrap();
        assert!(spec.network && spec.ipc && spec.pid);
        assert_eq!(spec.hostname.as_deref(), Some("web"));
        assert_eq!(spec.cgroup, "/kubepods/pod1/s1");
        assert_eq!(spec.sysctls["net.ipv4.ip_unprivileged_port_start"], "0");
    }

    #[test]
    fn host_namespaces() {
        let spec = sandbox("s1", &config(node(), &[])).unwrap();
        assert!(!spec.network && !spec.ipc && !spec.pid && spec.hostname.is_none());
    }

    #[test]
    fn refuses_sysctls_that_are_not_namespaced() {
        let refused = |options, name| sandbox("s", &config(options, &[(name, "1")])).unwrap_err().to_string();
        assert_eq!(
            refused(node(), "net.core.somaxconn"),
            "sysctl net.core.somaxconn is not allowed with the host's network"
        );
        assert_eq!(refused(NamespaceOption::default(), "vm.swappiness"), "sysctl vm.swappiness is not namespaced");
        assert_eq!(refused(node(), "kernel.sem"), "sysctl kernel.sem is not allowed with the host's IPC namespace");
    }
}
