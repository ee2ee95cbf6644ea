//! Users, groups, capabilities and profiles of containers.

use std::sync::OnceLock;

use api::Tree;
use cri::{NamespaceMode, ProfileType};

use crate::model::cpuset::CpuSet;
use crate::model::pod;

pub(crate) fn of_sandbox(
    pod: &Tree,
    users: Option<&cri::UserNamespace>,
    volume_groups: &[i64],
) -> cri::LinuxSandboxSecurityContext {
    let context = pod.at("spec.securityContext");
    let privileged = pod::containers(pod).any(|spec| spec.at("securityContext").bool("privileged"));
    cri::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(pod, "", users)),
        selinux_options: selinux(context),
        run_as_user: id(context, "runAsUser"),
        run_as_group: id(context, "runAsGroup"),
        readonly_rootfs: false,
        supplemental_groups: groups(context, volume_groups),
        supplemental_groups_policy: policy(context),
        privileged,
        seccomp: Some(cri::SecurityProfile { profile_type: ProfileType::RuntimeDefault.into(), ..Default::default() }),
        apparmor: None,
        seccomp_profile_path: String::new(),
    }
}

/// Inputs of the security context besides the pod and the container.
pub(crate) struct Security<'a> {
    /// The ID of the container whose processes are visible to an ephemeral container.
    pub(crate) target: &'a str,
    pub(crate) users: Option<&'a cri::UserNamespace>,
    pub(crate) volume_groups: &'a [i64],
    /// The directory of the node's profiles.
    pub(crate) seccomp_root: &'a str,
    pub(crate) seccomp_default: bool,
}

pub(crate) fn of_container(pod: &Tree, spec: &Tree, given: &Security<'_>) -> cri::LinuxContainerSecurityContext {
    let (of_pod, own) = (pod.at("spec.securityContext"), spec.at("securityContext"));
    let either = |key: &str| if own.has(key) { own } else { of_pod };
    let privileged = own.bool("privileged");
    let escalates = own.get("allowPrivilegeEscalation").and_then(Tree::as_bool);
    let masked = own.str("procMount") != "Unmasked" && !privileged;
    cri::LinuxContainerSecurityContext {
        capabilities: capabilities(own),
        privileged,
        namespace_options: Some(namespaces(pod, given.target, given.users)),
        selinux_options: selinux(either("seLinuxOptions")),
        run_as_user: id(either("runAsUser"), "runAsUser"),
        run_as_group: id(either("runAsGroup"), "runAsGroup"),
        readonly_rootfs: own.bool("readOnlyRootFilesystem"),
        supplemental_groups: groups(of_pod, given.volume_groups),
        supplemental_groups_policy: policy(of_pod),
        no_new_privs: escalates == Some(false),
        masked_paths: if masked { masked_paths(possible_cpus()) } else { Vec::new() },
        readonly_paths: if masked { READONLY.map(str::to_string).to_vec() } else { Vec::new() },
        seccomp: Some(seccomp(either("seccompProfile"), privileged, given)),
        apparmor: apparmor(either("appArmorProfile"), privileged),
        ..Default::default()
    }
}

const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
/// The temperature of a CPU reveals what other pods do on it.
fn masked_paths(cpus: &CpuSet) -> Vec<String> {
    let of_cpus = cpus.iter().map(|cpu| format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle"));
    MASKED.iter().map(ToString::to_string).chain(of_cpus).collect()
}

/// All that the machine can ever have, read once.
fn possible_cpus() -> &'static CpuSet {
    static POSSIBLE: OnceLock<CpuSet> = OnceLock::new();
    POSSIBLE.get_or_init(|| {
        let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
        let known = CpuSet::parse(&text).ok().filter(|cpus| !cpus.is_empty());
        known.unwrap_or_else(|| CpuSet::parse("0").unwrap_or_default())
    })
}

const READONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

fn id(context: &Tree, key: &str) -> Option<cri::Int64Value> {
    context.int(key).map(|value| cri::Int64Value { value })
}

fn groups(of_pod: &Tree, volume_groups: &[i64]) -> Vec<i64> {
    let listed = of_pod.list("supplementalGroups").iter().filter_map(Tree::as_int);
    let mut groups: Vec<i64> = of_pod.int("fsGroup").into_iter().chain(volume_groups.iter().copied()).collect();
    groups.extend(listed);
    groups
}

fn policy(of_pod: &Tree) -> i32 {
    match of_pod.str("supplementalGroupsPolicy") {
        "Strict" => cri::SupplementalGroupsPolicy::Strict.into(),
        _ => cri::SupplementalGroupsPolicy::Merge.into(),
    }
}

fn namespaces(pod: &Tree, target: &str, users: Option<&cri::UserNamespace>) -> cri::NamespaceOption {
    let mode =
        |key: &str, otherwise: NamespaceMode| if pod.at("spec").bool(key) { NamespaceMode::Node } else { otherwise };
    let shared = if pod.bool("spec.shareProcessNamespace") { NamespaceMode::Pod } else { NamespaceMode::Container };
    let pid = if target.is_empty() { mode("hostPID", shared) } else { NamespaceMode::Target };
    cri::NamespaceOption {
        network: mode("hostNetwork", NamespaceMode::Pod).into(),
        pid: pid.into(),
        ipc: mode("hostIPC", NamespaceMode::Pod).into(),
        target_id: target.to_string(),
        userns_options: users.cloned(),
    }
}

fn selinux(context: &Tree) -> Option<cri::SELinuxOption> {
    let options = context.get("seLinuxOptions")?;
    let text = |key: &str| options.str(key).to_string();
    Some(cri::SELinuxOption { user: text("user"), role: text("role"), r#type: text("type"), level: text("level") })
}

fn capabilities(own: &Tree) -> Option<cri::Capability> {
    let capabilities = own.get("capabilities")?;
    let names = |key: &str| capabilities.list(key).iter().filter_map(Tree::as_str).map(str::to_string).collect();
    Some(cri::Capability {
        add_capabilities: names("add"),
        drop_capabilities: names("drop"),
        add_ambient_capabilities: Vec::new(),
    })
}

fn seccomp(context: &Tree, privileged: bool, given: &Security<'_>) -> cri::SecurityProfile {
    let profile = context.at("seccompProfile");
    let of = |kind: ProfileType, file: String| cri::SecurityProfile { profile_type: kind.into(), localhost_ref: file };
    match profile.str("type") {
        _ if privileged => of(ProfileType::Unconfined, String::new()),
        "RuntimeDefault" => of(ProfileType::RuntimeDefault, String::new()),
        "Localhost" => {
            let file = format!("{}/{}", given.seccomp_root, profile.str("localhostProfile"));
            of(ProfileType::Localhost, file)
        }
        "" if given.seccomp_default => of(ProfileType::RuntimeDefault, String::new()),
        _ => of(ProfileType::Unconfined, String::new()),
    }
}

fn apparmor(context: &Tree, privileged: bool) -> Option<cri::SecurityProfile> {
    let profile = context.get("appArmorProfile").filter(|_| !privileged)?;
    let kind = match profile.str("type") {
        "Localhost" => ProfileType::Localhost,
        "Unconfined" => ProfileType::Unconfined,
        _ => ProfileType::RuntimeDefault,
    };
    let localhost_ref = profile.str("localhostProfile").to_string();
    Some(cri::SecurityProfile { profile_type: kind.into(), localhost_ref })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_the_temperature_of_every_cpu() {
        let paths = masked_paths(&CpuSet::parse("0-1,4").expect("a set"));
        let of = |cpu: u32| format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle");
        assert_eq!(paths[MASKED.len()..], [of(0), of(1), of(4)]);
        assert!(!possible_cpus().is_empty());
    }
}
