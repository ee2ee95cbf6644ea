//! The baseline level: rejects known privilege escalations to the node.

use std::collections::BTreeSet;

use api::Tree;
use api::field::go_quote;

use super::check::{Check, Pod, Violation, bad_setters, containers, plural, quoted, run, since};

/// Rules that the restricted level replaces by stricter ones.
pub(crate) const CAPABILITIES: Check = since(0, capabilities);
pub(crate) const HOST_PATHS: Check = since(0, host_paths);
pub(crate) const SECCOMP: Check = since(0, seccomp);

/// In the order of upstream's names, in which violations are listed.
const CHECKS: &[Check] = &[
    since(0, app_armor),
    CAPABILITIES,
    since(0, host_namespaces),
    HOST_PATHS,
    since(0, host_ports),
    since(34, probe_hosts),
    since(0, privileged),
    since(0, proc_mount),
    since(0, se_linux),
    SECCOMP,
    since(0, sysctls),
    since(0, windows_host_process),
];

pub(crate) fn violations(pod: &Pod<'_>) -> Vec<Violation> {
    run(CHECKS.iter(), pod)
}

/// The rules that the restricted level keeps.
pub(super) fn kept() -> impl Iterator<Item = &'static Check> {
    let replaced = [CAPABILITIES.run, HOST_PATHS.run, SECCOMP.run];
    CHECKS.iter().filter(move |check| !replaced.iter().any(|other| std::ptr::fn_addr_eq(*other, check.run)))
}

fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    let reason = |count| plural("forbidden AppArmor profile", "forbidden AppArmor profiles", count);
    let allowed = |value: &Tree| ["RuntimeDefault", "Localhost"].contains(&value.as_str().unwrap_or(""));
    let (setters, values) = bad_setters(pod, "appArmorProfile.type", allowed);
    if !setters.is_empty() {
        let types = quoted(values.iter().map(String::as_str));
        let detail = format!("{} must not set AppArmor profile type to {types}", setters.join(" and "));
        return Violation::new(reason(values.len()), detail);
    }
    let forbidden: Vec<String> = pod
        .annotations
        .iter()
        .filter(|(key, _)| key.starts_with("container.apparmor.security.beta.kubernetes.io/"))
        .map(|(key, value)| (key, value.as_str().unwrap_or("")))
        .filter(|(_, value)| !(["", "runtime/default"].contains(value) || value.starts_with("localhost/")))
        .map(|(key, value)| format!("{key}={}", go_quote(value)))
        .collect();
    if forbidden.is_empty() { None } else { Violation::new(reason(forbidden.len()), forbidden.join(", ")) }
}

const DEFAULT_CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let detail = added_capabilities(pod, DEFAULT_CAPABILITIES)?;
    Violation::new("non-default capabilities", detail)
}

/// Which containers add other capabilities than these.
pub(crate) fn added_capabilities(pod: &Pod<'_>, allowed: &[&str]) -> Option<String> {
    let mut forbidden = BTreeSet::new();
    let names = pod.named(|container| {
        let added = container.list("securityContext.capabilities.add").iter().filter_map(Tree::as_str);
        let bad: Vec<&str> = added.filter(|capability| !allowed.contains(capability)).collect();
        forbidden.extend(bad.iter().map(ToString::to_string));
        !bad.is_empty()
    });
    let forbidden = quoted(forbidden.iter().map(String::as_str));
    (!names.is_empty())
        .then(|| format!("{} must not include {forbidden} in securityContext.capabilities.add", containers(&names)))
}

fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let set = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| pod.spec.bool(field));
    let set: Vec<String> = set.map(|field| format!("{field}=true")).collect();
    if set.is_empty() { None } else { Violation::new("host namespaces", set.join(", ")) }
}

fn host_paths(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = pod.spec.list("volumes").iter().filter(|volume| volume.has("hostPath"));
    let names: Vec<&str> = volumes.map(|volume| volume.str("name")).collect();
    let detail = format!("{} {}", plural("volume", "volumes", names.len()), quoted(names.iter().copied()));
    if names.is_empty() { None } else { Violation::new("hostPath volumes", detail) }
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let names = pod.named(|container| {
        let used = container.list("ports").iter().filter_map(|port| port.int("hostPort"));
        let used: Vec<String> = used.filter(|port| *port != 0).map(|port| port.to_string()).collect();
        let any = !used.is_empty();
        ports.extend(used);
        any
    });
    let list: Vec<&str> = ports.iter().map(String::as_str).collect();
    let detail = format!(
        "{} {} {} {}",
        containers(&names),
        plural("uses", "use", names.len()),
        plural("hostPort", "hostPorts", list.len()),
        list.join(", ")
    );
    if names.is_empty() { None } else { Violation::new("hostPort", detail) }
}

/// A probe of another host lets a pod scan the network through the kubelet.
fn probe_hosts(pod: &Pod<'_>) -> Option<Violation> {
    const HANDLERS: &[&str] =
        &["livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop"];
    let mut hosts = BTreeSet::new();
    let mut names = pod.named(|container| {
        let handlers = HANDLERS.iter().map(|handler| container.at(handler));
        let named = handlers.flat_map(|handler| [handler.str("httpGet.host"), handler.str("tcpSocket.host")]);
        let bad: Vec<&str> = named.filter(|host| !host.is_empty()).collect();
        hosts.extend(bad.iter().map(ToString::to_string));
        !bad.is_empty()
    });
    names.sort_unstable();
    let what = plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len());
    let list = quoted(hosts.iter().map(String::as_str));
    let detail = format!("{} {} {what} {list}", containers(&names), plural("uses", "use", names.len()));
    if names.is_empty() { None } else { Violation::new("probe or lifecycle host", detail) }
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let names = pod.named(|container| container.bool("securityContext.privileged"));
    let detail = format!("{} must not set securityContext.privileged=true", containers(&names));
    if names.is_empty() { None } else { Violation::new("privileged", detail) }
}

fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    if pod.version >= 35 && pod.has_user_namespace() { None } else { unmasked_proc(pod) }
}

pub(crate) fn unmasked_proc(pod: &Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let names = pod.named(|container| {
        let ty = container.str("securityContext.procMount");
        let bad = !["", "Default"].contains(&ty);
        if bad {
            types.insert(ty.to_string());
        }
        bad
    });
    let types = quoted(types.iter().map(String::as_str));
    let detail = format!("{} must not set securityContext.procMount to {types}", containers(&names));
    if names.is_empty() { None } else { Violation::new("procMount", detail) }
}

fn se_linux(pod: &Pod<'_>) -> Option<Violation> {
    const TYPES: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
    let known = if pod.version >= 31 { TYPES } else { &TYPES[..4] };
    let mut wrong: Vec<Tree> = Vec::new();
    let mut is_bad = |owner: &Tree| {
        let options = owner.at("securityContext.seLinuxOptions");
        let bad =
            !known.contains(&options.str("type")) || !options.str("user").is_empty() || !options.str("role").is_empty();
        if bad {
            wrong.push(options.clone());
        }
        bad
    };
    let mut setters = Vec::new();
    if is_bad(pod.spec) {
        setters.push("pod".to_string());
    }
    let names = pod.named(is_bad);
    if !names.is_empty() {
        setters.push(containers(&names));
    }
    let detail = format!(
        "{} set forbidden securityContext.seLinuxOptions: {}",
        setters.join(" and "),
        se_linux_complaints(&wrong, known)
    );
    if setters.is_empty() { None } else { Violation::new("seLinuxOptions", detail) }
}

fn se_linux_complaints(wrong: &[Tree], known: &[&str]) -> String {
    let types: BTreeSet<&str> = wrong.iter().map(|o| o.str("type")).filter(|ty| !known.contains(ty)).collect();
    let mut complaints = Vec::new();
    if !types.is_empty() {
        complaints.push(format!("{} {}", plural("type", "types", types.len()), quoted(types)));
    }
    for field in ["user", "role"] {
        if wrong.iter().any(|options| !options.str(field).is_empty()) {
            complaints.push(format!("{field} may not be set"));
        }
    }
    complaints.join("; ")
}

pub(crate) fn is_confined(profile: &Tree) -> bool {
    ["RuntimeDefault", "Localhost"].contains(&profile.as_str().unwrap_or(""))
}

fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if pod.version < 19 {
        return seccomp_annotations(pod);
    }
    let (setters, values) = bad_setters(pod, "seccompProfile.type", is_confined);
    let values = quoted(values.iter().map(String::as_str));
    let detail = format!("{} must not set securityContext.seccompProfile.type to {values}", setters.join(" and "));
    if setters.is_empty() { None } else { Violation::new("seccompProfile", detail) }
}

fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let mut keys = vec!["seccomp.security.alpha.kubernetes.io/pod".to_string()];
    keys.extend(pod.containers().map(|c| format!("container.seccomp.security.alpha.kubernetes.io/{}", c.str("name"))));
    let is_bad =
        |value: &str| !["runtime/default", "docker/default"].contains(&value) && !value.starts_with("localhost/");
    let forbidden: BTreeSet<String> = keys
        .iter()
        .filter(|key| pod.annotations.contains(key) && is_bad(pod.annotations.str(key)))
        .map(|key| format!("{key}={}", go_quote(pod.annotations.str(key))))
        .collect();
    let list: Vec<&str> = forbidden.iter().map(String::as_str).collect();
    let detail = format!("forbidden {} {}", plural("annotation", "annotations", list.len()), list.join(", "));
    if list.is_empty() { None } else { Violation::new("seccompProfile", detail) }
}

/// Sysctls that stay inside the pod, with the version from which they are allowed.
const SYSCTLS: &[(u32, &str)] = &[
    (0, "kernel.shm_rmid_forced"),
    (0, "net.ipv4.ip_local_port_range"),
    (0, "net.ipv4.tcp_syncookies"),
    (0, "net.ipv4.ping_group_range"),
    (0, "net.ipv4.ip_unprivileged_port_start"),
    (27, "net.ipv4.ip_local_reserved_ports"),
    (29, "net.ipv4.tcp_keepalive_time"),
    (29, "net.ipv4.tcp_fin_timeout"),
    (29, "net.ipv4.tcp_keepalive_intvl"),
    (29, "net.ipv4.tcp_keepalive_probes"),
    (32, "net.ipv4.tcp_rmem"),
    (32, "net.ipv4.tcp_wmem"),
];

fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    let is_safe = |name: &str| SYSCTLS.iter().any(|(since, safe)| *since <= pod.version && *safe == name);
    let names = pod.spec.list("securityContext.sysctls").iter().map(|sysctl| sysctl.str("name"));
    let forbidden: Vec<&str> = names.filter(|name| !is_safe(name)).collect();
    if forbidden.is_empty() { None } else { Violation::new("forbidden sysctls", forbidden.join(", ")) }
}

fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let is_host = |value: &Tree| value.as_bool() != Some(true);
    let (setters, _) = bad_setters(pod, "windowsOptions.hostProcess", is_host);
    let detail = format!("{} must not set securityContext.windowsOptions.hostProcess=true", setters.join(" and "));
    if setters.is_empty() { None } else { Violation::new("hostProcess", detail) }
}
