//! Sysctls that a pod may set: the safe ones, and those that the administrator allows.

use super::{PodAdmitAttributes, refused};
use crate::model::problem::Problem;
use crate::model::sysctls::{dotted, is_of_ipc, is_of_network};

const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

pub(crate) fn allowed(attributes: &PodAdmitAttributes<'_>) -> Result<(), Problem> {
    for sysctl in attributes.tree.list("spec.securityContext.sysctls") {
        let name = dotted(sysctl.str("name"));
        if let Some(why) = find_rejection(&name, attributes) {
            return refused("SysctlForbidden", format!("forbidden sysctl: {name:?} {why}"));
        }
    }
    Ok(())
}

fn find_rejection(name: &str, attributes: &PodAdmitAttributes<'_>) -> Option<&'static str> {
    let is_allowed = |pattern: &String| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    };
    if !SAFE.contains(&name) && !attributes.rules.allowed_unsafe_sysctls.iter().any(is_allowed) {
        return Some("not allowlisted");
    }
    if is_of_network(name) && attributes.tree.bool("spec.hostNetwork") {
        return Some("not allowed with host net enabled");
    }
    (is_of_ipc(name) && attributes.tree.bool("spec.hostIPC")).then_some("not allowed with host ipc enabled")
}
