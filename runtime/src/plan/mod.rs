//! Translates CRI requests into specs, with pure functions.

mod container;
mod mounts;
mod sandbox;
mod security;
pub(crate) mod signal;

pub(crate) use container::{ContainerInput, Defaults, container, context, log_path};
pub(crate) use sandbox::{sandbox, sandbox_cgroup};
pub(crate) use security::{Seccomp, capabilities, has_selinux_options};

use cri::{LinuxContainerResources, NamespaceMode, NamespaceOption, PodSandboxConfig};

use crate::error::{Result, refused};
use crate::spec::{IdMap, IdMaps};
use cgroup::Resources;

/// The capabilities of the machine, detected once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Host {
    /// The capabilities of the runtime process: a container gets no others.
    pub capabilities: u64,
    pub apparmor: bool,
    pub selinux: bool,
    pub unified_cgroups: bool,
}

pub(crate) fn namespaces(config: &PodSandboxConfig) -> NamespaceOption {
    let context = config.linux.as_ref().and_then(|l| l.security_context.as_ref());
    context.and_then(|c| c.namespace_options.clone()).unwrap_or_default()
}

pub(crate) fn host_network(config: &PodSandboxConfig) -> bool {
    namespaces(config).network() == NamespaceMode::Node
}

pub(crate) fn host_ipc(config: &PodSandboxConfig) -> bool {
    namespaces(config).ipc() == NamespaceMode::Node
}

/// The pod's user namespace, if it has its own.
pub(crate) fn userns(config: &PodSandboxConfig) -> Result<Option<IdMaps>> {
    let options = namespaces(config);
    let Some(requested) = options.userns_options.as_ref().filter(|u| u.mode() == NamespaceMode::Pod) else {
        return Ok(None);
    };
    if options.network() == NamespaceMode::Node {
        return refused("linux.security_context.namespace_options: a user namespace needs the pod's own network");
    }
    if requested.uids.is_empty() || requested.gids.is_empty() {
        return refused("linux.security_context.namespace_options.userns_options: uids and gids must be mapped");
    }
    Ok(Some(IdMaps { uids: maps(&requested.uids), gids: maps(&requested.gids) }))
}

pub(crate) fn maps(maps: &[cri::IDMapping]) -> Vec<IdMap> {
    maps.iter().map(|m| IdMap { container: m.container_id, host: m.host_id, length: m.length }).collect()
}

/// Zero and empty mean "not set".
pub(crate) fn resources(requested: Option<&LinuxContainerResources>) -> Resources {
    let Some(requested) = requested else { return Resources::default() };
    let non_zero = |value: i64| (value != 0).then_some(value);
    let text = |value: &str| (!value.is_empty()).then(|| value.to_string());
    Resources {
        cpu_shares: non_zero(requested.cpu_shares).map(|v| v.max(2) as u64),
        cpu_quota: non_zero(requested.cpu_quota),
        cpu_period: non_zero(requested.cpu_period).map(|v| v.max(0) as u64),
        cpuset_cpus: text(&requested.cpuset_cpus),
        cpuset_mems: text(&requested.cpuset_mems),
        memory: non_zero(requested.memory_limit_in_bytes),
        memory_swap: non_zero(requested.memory_swap_limit_in_bytes),
        pids: None,
        hugepages: requested.hugepage_limits.iter().map(|h| (h.page_size.clone(), h.limit)).collect(),
        unified: requested.unified.clone(),
    }
}

/// Merges an update of limits: what it does not set stays.
pub(crate) fn merge(now: &mut Resources, change: Resources) {
    now.cpu_shares = change.cpu_shares.or(now.cpu_shares);
    now.cpu_quota = change.cpu_quota.or(now.cpu_quota);
    now.cpu_period = change.cpu_period.or(now.cpu_period);
    now.cpuset_cpus = change.cpuset_cpus.or(now.cpuset_cpus.take());
    now.cpuset_mems = change.cpuset_mems.or(now.cpuset_mems.take());
    now.memory = change.memory.or(now.memory);
    now.memory_swap = change.memory_swap.or(now.memory_swap);
    now.hugepages.extend(change.hugepages);
    now.unified.extend(change.unified);
}

/// The same for the resources in a container's status.
pub(crate) fn merged(now: LinuxContainerResources, change: LinuxContainerResources) -> LinuxContainerResources {
    let number = |new: i64, old: i64| if new != 0 { new } else { old };
    let text = |new: String, old: String| if new.is_empty() { old } else { new };
    LinuxContainerResources {
        cpu_period: number(change.cpu_period, now.cpu_period),
        cpu_quota: number(change.cpu_quota, now.cpu_quota),
        cpu_shares: number(change.cpu_shares, now.cpu_shares),
        memory_limit_in_bytes: number(change.memory_limit_in_bytes, now.memory_limit_in_bytes),
        oom_score_adj: number(change.oom_score_adj, now.oom_score_adj),
        cpuset_cpus: text(change.cpuset_cpus, now.cpuset_cpus),
        cpuset_mems: text(change.cpuset_mems, now.cpuset_mems),
        hugepage_limits: if change.hugepage_limits.is_empty() { now.hugepage_limits } else { change.hugepage_limits },
        unified: now.unified.into_iter().chain(change.unified).collect(),
        memory_swap_limit_in_bytes: number(change.memory_swap_limit_in_bytes, now.memory_swap_limit_in_bytes),
    }
}
