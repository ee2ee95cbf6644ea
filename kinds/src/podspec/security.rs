//! Security contexts of pods and containers.

mod windows;

use api::Tree;
use api::field::{Errors, Path};

use super::check;
use super::small_set::SmallSet;
use crate::internal;
pub(crate) use windows::{validate_host_process, validate_os};

/// The security context of a pod; `spec` has the host namespaces it shares.
pub(crate) fn validate_pod(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let Some(context) = spec.get("securityContext") else { return };
    let path = &path.field("securityContext");
    for key in ["fsGroup", "runAsUser", "runAsGroup"] {
        check::id(context, key, path, errors);
    }
    let groups = path.field("supplementalGroups");
    for (index, group) in context.list("supplementalGroups").iter().enumerate() {
        validate_id(group, &groups.index(index), errors);
    }
    validate_sysctls(spec, context, &path.field("sysctls"), errors);
    check::one_of(context, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], path, errors);
    validate_profiles(context, path, errors);
    check::one_of(context, "supplementalGroupsPolicy", &["Merge", "Strict"], path, errors);
    check::one_of(context, "seLinuxChangePolicy", &["MountOption", "Recursive"], path, errors);
}

pub(crate) fn validate_shared_processes(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if spec.bool("shareProcessNamespace") && spec.bool("hostPID") {
        let text = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&path.field("shareProcessNamespace"), true, text);
    }
}

fn validate_id(value: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let high = i64::from(i32::MAX);
    if let Some(number) = value.as_int().filter(|number| !(0..=high).contains(number)) {
        errors.invalid(path, number, &check::range_text(0, high));
    }
}

/// Seccomp, Windows and AppArmor options, which pods and containers share.
fn validate_profiles(context: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if let Some(profile) = context.get("seccompProfile") {
        validate_seccomp(profile, &path.field("seccompProfile"), errors);
    }
    if let Some(options) = context.get("windowsOptions") {
        windows::validate_options(options, &path.field("windowsOptions"), errors);
    }
    if let Some(profile) = context.get("appArmorProfile") {
        validate_app_armor(profile, &path.field("appArmorProfile"), errors);
    }
}

pub(crate) fn validate_container(context: &Tree, host_users: bool, path: &Path<'_>, errors: &mut Errors) {
    for key in ["runAsUser", "runAsGroup"] {
        check::id(context, key, path, errors);
    }
    if host_users && context.str("procMount") == "Unmasked" {
        let text = "`hostUsers` must be false to use `Unmasked`";
        errors.invalid(&path.field("procMount"), "Unmasked", text);
    }
    check::one_of(context, "procMount", &["Default", "Unmasked"], path, errors);
    if let Some(profile) = context.get("seccompProfile") {
        validate_seccomp(profile, &path.field("seccompProfile"), errors);
    }
    validate_escalation(context, path, errors);
    if let Some(options) = context.get("windowsOptions") {
        windows::validate_options(options, &path.field("windowsOptions"), errors);
    }
    if let Some(profile) = context.get("appArmorProfile") {
        validate_app_armor(profile, &path.field("appArmorProfile"), errors);
    }
}

/// A privileged container cannot disallow privilege escalation.
fn validate_escalation(context: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if context.at("allowPrivilegeEscalation").as_bool() != Some(false) {
        return;
    }
    if context.bool("privileged") {
        let text = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.invalid(path, internal::shown(context, "SecurityContext"), text);
    }
    for _ in context.list("capabilities.add").iter().filter(|cap| cap.as_str() == Some("CAP_SYS_ADMIN")) {
        let text = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        errors.invalid(path, internal::shown(context, "SecurityContext"), text);
    }
}

fn validate_seccomp(profile: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let types = &["Localhost", "RuntimeDefault", "Unconfined"];
    match profile.str("type") {
        "" => errors.required(&path.field("type"), "type is required when seccompProfile is set"),
        kind if !types.contains(&kind) => errors.not_supported(&path.field("type"), kind, types),
        _ => {}
    }
    let at = path.field("localhostProfile");
    match (profile.str("type"), profile.get("localhostProfile").and_then(Tree::as_str)) {
        ("Localhost", None) => errors.required(&at, "must be set when seccomp type is Localhost"),
        ("Localhost", Some(file)) => check::local_descending(file, &at, errors),
        (_, Some(_)) => {
            let shown = internal::shown(profile, "SeccompProfile");
            errors.invalid(&at, shown, "can only be set when seccomp type is Localhost");
        }
        (_, None) => {}
    }
}

const MAX_PATH: usize = 4095;

fn validate_app_armor(profile: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("localhostProfile");
    let local = profile.get("localhostProfile").and_then(Tree::as_str);
    match (profile.str("type"), local) {
        ("Localhost", None | Some("")) => errors.required(&at, "must be set when AppArmor type is Localhost"),
        ("Localhost", Some(name)) => {
            if name.trim() != name {
                errors.invalid(&at, name, "must not be padded with whitespace");
            }
            if name.len() > MAX_PATH {
                errors.too_long(&at, MAX_PATH);
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            errors.invalid(&at, name, "can only be set when AppArmor type is Localhost");
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => errors.required(&path.field("type"), "type is required when appArmorProfile is set"),
        (kind, _) => {
            errors.not_supported(&path.field("type"), kind, &["Localhost", "RuntimeDefault", "Unconfined"]);
        }
    }
}

const SYSCTL: &str = r"must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

fn validate_sysctls(spec: &Tree, context: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = SmallSet::new();
    for (index, sysctl) in context.list("sysctls").iter().enumerate() {
        let path = path.index(index);
        let path = path.field("name");
        let name = sysctl.str("name");
        if name.is_empty() {
            errors.required(&path, "");
        } else if !is_sysctl(name) {
            errors.invalid(&path, name, SYSCTL);
        } else if !seen.insert(name) {
            errors.duplicate(&path, name);
        }
        match sysctl_namespace(name) {
            "net" if spec.bool("hostNetwork") => {
                errors.invalid(&path, name, "may not be specified when 'hostNetwork' is true");
            }
            "ipc" if spec.bool("hostIPC") => {
                errors.invalid(&path, name, "may not be specified when 'hostIPC' is true");
            }
            _ => {}
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let alnum = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let segment = |part: &str| {
        let bytes = part.as_bytes();
        bytes.first().is_some_and(alnum)
            && bytes.last().is_some_and(alnum)
            && bytes.iter().all(|b| alnum(b) || matches!(b, b'-' | b'_'))
    };
    name.len() <= 253 && name.split(['.', '/']).all(segment)
}

/// The kernel namespace of a sysctl.
fn sysctl_namespace(name: &str) -> &'static str {
    let starts = |prefix: &str| {
        name.len() >= prefix.len() && name.bytes().zip(prefix.bytes()).all(|(a, b)| a == b || (a == b'/' && b == b'.'))
    };
    if starts("net.") {
        "net"
    } else if ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|prefix| starts(prefix))
        || (starts("kernel.sem") && name.len() == "kernel.sem".len())
    {
        "ipc"
    } else {
        ""
    }
}
