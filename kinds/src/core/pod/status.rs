//! Validation of the pod status, which kubelets write.

use api::field::{Errors, Path, Value, go_quote};
use api::{Tree, validation};

use crate::kind::{Context, keep_old};
use crate::podspec::annotations;
use crate::podspec::resources::aggregate::is_restartable;

pub(super) fn prepare(pod: &mut Tree, old: &Tree, _: &Context<'_>) {
    keep_old(pod, old, "spec");
    let metadata = pod.child("metadata");
    for key in ["deletionTimestamp", "ownerReferences", "generation"] {
        keep_old(metadata, old.at("metadata"), key);
    }
    if pod.str("status.qosClass").is_empty() {
        keep_old(pod.child("status"), old.at("status"), "qosClass");
    }
    keep_observed_generations(pod, old);
}

/// Clients that do not support observedGeneration must not remove it.
fn keep_observed_generations(pod: &mut Tree, old: &Tree) {
    let status = pod.child("status");
    if status.int("observedGeneration").unwrap_or(0) == 0 {
        keep_old(status, old.at("status"), "observedGeneration");
    }
    let before = old.list("status.conditions");
    for condition in status.list_mut("conditions") {
        if condition.int("observedGeneration").unwrap_or(0) == 0 {
            let kind = condition.str("type");
            let old = before.iter().find(|old| old.str("type") == kind);
            if let Some(generation) = old.and_then(|old| old.int("observedGeneration")) {
                condition.set("observedGeneration", generation);
            }
        }
    }
}

pub(super) fn validate(pod: &Tree, old: &Tree, errors: &mut Errors) {
    let metadata = Path::root("metadata");
    let own = pod.map("metadata.annotations");
    let at = metadata.field("annotations");
    annotations::validate_update(own, old.map("metadata.annotations"), &at, errors);
    annotations::validate(own, pod.at("spec"), &at, errors);
    validate_conditions(pod, &metadata.field("conditions"), errors);
    let path = Path::root("status");
    validate_names(pod, old, &path, errors);
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        validate_transitions(pod, old, list, &path.field(list), errors);
    }
    validate_claim_statuses(pod, &path.field("resourceClaimStatuses"), errors);
    validate_addresses(pod.list("status.podIPs"), &path.field("podIPs"), errors);
    validate_host_addresses(pod, &path.field("hostIPs"), errors);
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        validate_users(pod, list, &path.field(list), errors);
    }
    for (list, containers) in [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")] {
        validate_allocated(pod, list, containers, &path.field(list), errors);
    }
}

/// The path of the conditions is upstream's, although it is wrong.
fn validate_conditions(pod: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for (index, condition) in pod.list("status.conditions").iter().enumerate() {
        let kind = condition.str("type");
        if !["PodScheduled", "Ready", "Initialized"].contains(&kind) {
            errors.invalid_all(&path.index(index).field("Type"), kind, validation::qualified_name(kind));
        }
    }
}

fn validate_names(pod: &Tree, old: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if pod.str("spec.nodeName") != old.str("spec.nodeName") {
        errors.forbidden(&path.field("nodeName"), "may not be changed directly");
    }
    let nominated = pod.str("status.nominatedNodeName");
    if !nominated.is_empty() && nominated != old.str("status.nominatedNodeName") {
        let messages = validation::dns1123_subdomain(nominated);
        errors.invalid_all(&path.field("nominatedNodeName"), nominated, messages);
    }
    let class = pod.str("status.qosClass");
    if class != old.str("status.qosClass") {
        errors.invalid(&path.field("qosClass"), class, "field is immutable");
    }
}

/// A terminated container must not restart unless its restart policy allows it.
fn validate_transitions(pod: &Tree, old: &Tree, list: &str, path: &Path<'_>, errors: &mut Errors) {
    let now = pod.at("status").list(list);
    for (index, before) in old.at("status").list(list).iter().enumerate() {
        let Some(terminated) = before.at("state").get("terminated") else { continue };
        let name = before.str("name");
        if may_restart(old.at("spec"), list, name, terminated.int("exitCode").unwrap_or(0)) {
            continue;
        }
        for _ in now.iter().filter(|now| now.str("name") == name && !now.at("state").has("terminated")) {
            errors.forbidden(&path.index(index).field("state"), "may not be transitioned to non-terminated state");
        }
    }
}

fn may_restart(spec: &Tree, list: &str, name: &str, exit_code: i64) -> bool {
    let containers = match list {
        "containerStatuses" => spec.list("containers"),
        "initContainerStatuses" => spec.list("initContainers"),
        // Ephemeral containers are never restarted.
        _ => return false,
    };
    let container = containers.iter().find(|container| container.str("name") == name);
    let policy = spec.str("restartPolicy");
    if policy == "Always" || (policy == "OnFailure" && exit_code != 0) {
        return true;
    }
    container.is_some_and(|container| is_restartable(container) || restarts_by_itself(container, exit_code))
}

/// Containers may have their own restart policy and rules.
fn restarts_by_itself(container: &Tree, exit_code: i64) -> bool {
    let by_rule = container.list("restartPolicyRules").iter().any(|rule| {
        let listed = rule.list("exitCodes.values").iter().any(|value| value.as_int() == Some(exit_code));
        match rule.str("exitCodes.operator") {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
    });
    by_rule || (container.str("restartPolicy") == "OnFailure" && exit_code != 0)
}

fn validate_claim_statuses(pod: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let statuses = pod.list("status.resourceClaimStatuses");
    for (index, status) in statuses.iter().enumerate() {
        let at = path.index(index);
        let at = at.field("name");
        let name = status.str("name");
        if !pod.list("spec.resourceClaims").iter().any(|claim| claim.str("name") == name) {
            errors.invalid(&at, name, "must match the name of an entry in `spec.resourceClaims`");
        }
        if statuses[..index].iter().any(|other| other.str("name") == name) {
            errors.duplicate(&at, name);
        }
        if let Some(claim) = status.get("resourceClaimName").and_then(Tree::as_str) {
            errors.invalid_all(&at, claim, validation::dns1123_subdomain(claim));
        }
    }
}

/// At most one address of each IP family.
fn validate_addresses(addresses: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    let before = errors.len();
    for (index, address) in addresses.iter().enumerate() {
        let ip = address.str("ip");
        errors.invalid_all(&path.index(index), ip, validation::ip_legacy(ip, false));
    }
    // Invalid addresses have no family.
    if addresses.len() < 2 || errors.len() > before {
        return;
    }
    let parsed: Vec<_> = addresses.iter().filter_map(|address| validation::parse_ip(address.str("ip"))).collect();
    let dual = parsed.iter().any(|ip| ip.is_ipv4()) && parsed.iter().any(|ip| ip.is_ipv6());
    if !dual || addresses.len() > 2 {
        errors.invalid(path, shown(addresses), "may specify no more than one IP for each IP family");
    }
    for (index, address) in addresses.iter().enumerate() {
        if addresses[..index].contains(address) {
            errors.duplicate(&path.index(index), shown_one(address));
        }
    }
}

fn shown_one(address: &Tree) -> Value {
    Value::raw(format!("{{\"IP\":{}}}", go_quote(address.str("ip"))))
}

fn shown(addresses: &[Tree]) -> Value {
    let texts: Vec<String> = addresses.iter().map(|one| format!("{{\"IP\":{}}}", go_quote(one.str("ip")))).collect();
    Value::raw(format!("[{}]", texts.join(",")))
}

fn validate_host_addresses(pod: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let addresses = pod.list("status.hostIPs");
    let Some(first) = addresses.first() else { return };
    if first.str("ip") != pod.str("status.hostIP") {
        errors.invalid(&path.index(0).field("ip"), first.str("ip"), "must be equal to `hostIP`");
    }
    validate_addresses(addresses, path, errors);
}

fn validate_users(pod: &Tree, list: &str, path: &Path<'_>, errors: &mut Errors) {
    let windows = pod.str("spec.os.name") == "windows";
    for (index, status) in pod.at("status").list(list).iter().enumerate() {
        let Some(user) = status.at("user").get("linux") else { continue };
        let path = path.index(index);
        let path = path.field("linux");
        if windows {
            errors.forbidden(&path, "cannot be set for a windows pod");
            continue;
        }
        for key in ["uid", "gid"] {
            for message in validation::user_id(user.int(key).unwrap_or(0)) {
                errors.invalid(&path.field(key), user.int(key).unwrap_or(0), &message);
            }
        }
    }
}

const HEALTH: &[&str] = &["Healthy", "Unhealthy", "Unknown"];

/// Allocated devices must have been requested.
fn validate_allocated(pod: &Tree, list: &str, containers: &str, path: &Path<'_>, errors: &mut Errors) {
    for (index, status) in pod.at("status").list(list).iter().enumerate() {
        let at = path.index(index);
        let at = at.field("allocatedResourcesStatus");
        let container = pod.at("spec").list(containers).iter().find(|one| one.str("name") == status.str("name"));
        for (number, resource) in status.list("allocatedResourcesStatus").iter().enumerate() {
            let at = at.index(number);
            if let Some(text) = container.and_then(|container| not_asked_for(container, resource.str("name"))) {
                errors.invalid(&at.field("name"), resource.str("name"), text);
            }
            let list = at.field("resources");
            for (place, device) in resource.list("resources").iter().enumerate() {
                let health = device.str("health");
                if !HEALTH.contains(&health) {
                    errors.not_supported(&list.index(place).field("health"), health, HEALTH);
                }
            }
        }
    }
}

fn not_asked_for(container: &Tree, name: &str) -> Option<&'static str> {
    match name.strip_prefix("claim:") {
        Some(wanted) => {
            let asked = |claim: &Tree| match claim.str("request") {
                "" => claim.str("name") == wanted,
                request => wanted == format!("{}/{request}", claim.str("name")),
            };
            let text = "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' \
                        or 'claim:<claimName>' if request is empty";
            (!container.list("resources.claims").iter().any(asked)).then_some(text)
        }
        None => {
            let asked = container.map("resources.requests").contains(name);
            (!asked).then_some("must match one of the container's resource requests")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{json, tree};

    fn pod(status: &str) -> Tree {
        let spec = tree! { "restartPolicy" => "Never" };
        tree! { "spec" => spec, "status" => json::decode(status.as_bytes()).expect(status) }
    }

    fn check(old: &str, new: &str, expected: &[&str]) {
        let mut errors = Errors::new();
        validate(&pod(new), &pod(old), &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected, "{old} {new}");
    }

    #[test]
    fn validates_status_transitions() {
        let ended = r#"{"containerStatuses":[{"name":"c","state":{"terminated":{"exitCode":0}}}]}"#;
        let running = r#"{"containerStatuses":[{"name":"c","state":{"running":{}}}]}"#;
        check(running, ended, &[]);
        check(
            ended,
            running,
            &["status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"],
        );
        check(
            r#"{"qosClass":"Burstable"}"#,
            r#"{"qosClass":"Guaranteed"}"#,
            &["status.qosClass: Invalid value: \"Guaranteed\": field is immutable"],
        );
        check(
            "{}",
            r#"{"podIPs":[{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}]}"#,
            &[
                "status.podIPs: Invalid value: [{\"IP\":\"10.0.0.1\"},{\"IP\":\"10.0.0.2\"}]: may specify no more than one IP for each IP family",
            ],
        );
        check("{}", r#"{"podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}]}"#, &[]);
    }
}
