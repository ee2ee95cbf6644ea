//! Kernel parameters that a pod may set: those that concern nobody else, and those that the node's owner allows.

use super::{Case, refused};
use crate::status::Problem;

const SAFE: [&str; 13] = [
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
    "net.ipv4.vs.conn_reuse_mode",
];
/// Of the namespaces that a pod has of its own, by what their names start with.
const OF_NETWORK: &str = "net.";
const OF_IPC: [&str; 5] = ["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.", "kernel.shm_rmid_forced"];

pub fn allowed(case: &Case<'_>) -> Result<(), Problem> {
    for sysctl in case.tree.list("spec.securityContext.sysctls") {
        let name = sysctl.str("name").replace('/', ".");
        if let Some(why) = objection(&name, case) {
            return refused("SysctlForbidden", format!("forbidden sysctl: {name:?} {why}"));
        }
    }
    Ok(())
}

fn objection(name: &str, case: &Case<'_>) -> Option<&'static str> {
    let is_allowed = |pattern: &String| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    };
    if !SAFE.contains(&name) && !case.rules.allowed_unsafe_sysctls.iter().any(is_allowed) {
        return Some("not allowlisted");
    }
    if name.starts_with(OF_NETWORK) && case.tree.bool("spec.hostNetwork") {
        return Some("not allowed with host net enabled");
    }
    let is_of_ipc = OF_IPC.iter().any(|prefix| name.starts_with(prefix));
    (is_of_ipc && case.tree.bool("spec.hostIPC")).then_some("not allowed with host ipc enabled")
}
