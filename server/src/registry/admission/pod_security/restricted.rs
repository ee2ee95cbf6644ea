//! The restricted level: baseline plus hardening.

use std::collections::BTreeSet;

use api::Tree;

use super::baseline::{self, added_capabilities, is_confined};
use super::check::{Check, Pod, Violation, bad_setters, containers, plural, quoted, run, since};

const CAPABILITIES: Check = since(22, capabilities);
const SECCOMP: Check = since(19, seccomp);

/// In the order of upstream's names.
const CHECKS: &[Check] = &[
    since(8, privilege_escalation),
    CAPABILITIES,
    since(35, baseline::unmasked_proc),
    since(0, volumes),
    since(0, run_as_non_root),
    since(23, run_as_user),
    SECCOMP,
];

pub(crate) fn violations(pod: &Pod<'_>) -> Vec<Violation> {
    let mut all = run(baseline::kept(), pod);
    // Before the version of the stricter rule, the baseline rule applies.
    for (strict, base) in [(&CAPABILITIES, &baseline::CAPABILITIES), (&SECCOMP, &baseline::SECCOMP)] {
        if pod.version < strict.since {
            all.extend(run(std::iter::once(base), pod));
        }
    }
    all.extend(run(CHECKS.iter(), pod));
    all
}

fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    let path = "securityContext.allowPrivilegeEscalation";
    let names = pod.named(|container| container.at(path).as_bool() != Some(false));
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&names));
    if names.is_empty() || pod.is_windows() {
        return None;
    }
    Violation::new("allowPrivilegeEscalation != false", detail)
}

fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let drops_all = |container: &Tree| {
        container.list("securityContext.capabilities.drop").iter().any(|dropped| dropped.as_str() == Some("ALL"))
    };
    let names = pod.named(|container| !drops_all(container));
    let mut details = Vec::new();
    if !names.is_empty() {
        details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers(&names)));
    }
    details.extend(added_capabilities(pod, &["NET_BIND_SERVICE"]));
    if details.is_empty() { None } else { Violation::new("unrestricted capabilities", details.join("; ")) }
}

const VOLUMES: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

fn volumes(pod: &Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let mut names = Vec::new();
    for volume in pod.spec.list("volumes") {
        if VOLUMES.iter().any(|ty| volume.has(ty)) {
            continue;
        }
        names.push(volume.str("name"));
        let ty = volume.as_map().into_iter().flat_map(api::Map::keys).find(|key| *key != "name");
        types.insert(ty.unwrap_or("unknown").to_string());
    }
    let detail = format!(
        "{} {} {} {} {}",
        plural("volume", "volumes", names.len()),
        quoted(names.iter().copied()),
        plural("uses", "use", names.len()),
        plural("restricted volume type", "restricted volume types", types.len()),
        quoted(types.iter().map(String::as_str))
    );
    if names.is_empty() { None } else { Violation::new("restricted volume types", detail) }
}

fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    if pod.version >= 35 && pod.has_user_namespace() {
        return None;
    }
    let (setters, _) = bad_setters(pod, "runAsNonRoot", |value| value.as_bool() == Some(true));
    if !setters.is_empty() {
        return Violation::new(
            REASON,
            format!("{} must not set securityContext.runAsNonRoot=false", setters.join(" and ")),
        );
    }
    let names = unset(pod, "runAsNonRoot");
    let detail = format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&names));
    if names.is_empty() { None } else { Violation::new(REASON, detail) }
}

/// Containers without a field that the pod does not set either.
fn unset<'a>(pod: &Pod<'a>, field: &str) -> Vec<&'a str> {
    let is_set = |owner: &Tree| !owner.at("securityContext").at(field).is_null();
    if is_set(pod.spec) { Vec::new() } else { pod.named(|container| !is_set(container)) }
}

fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    if pod.version >= 35 && pod.has_user_namespace() {
        return None;
    }
    let (setters, _) = bad_setters(pod, "runAsUser", |value| value.as_int() != Some(0));
    let detail = format!("{} must not set runAsUser=0", setters.join(" and "));
    if setters.is_empty() { None } else { Violation::new("runAsUser=0", detail) }
}

fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    const REASON: &str = "seccompProfile";
    if pod.is_windows() {
        return None;
    }
    let (setters, values) = bad_setters(pod, "seccompProfile.type", is_confined);
    if !setters.is_empty() {
        let values = quoted(values.iter().map(String::as_str));
        let detail = format!("{} must not set securityContext.seccompProfile.type to {values}", setters.join(" and "));
        return Violation::new(REASON, detail);
    }
    let names = unset(pod, "seccompProfile.type");
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        containers(&names)
    );
    if names.is_empty() { None } else { Violation::new(REASON, detail) }
}
