//! The consistency of clusterIP, clusterIPs, ipFamilies and ipFamilyPolicy.

use std::collections::HashSet;

use api::field::{Errors, Path};
use api::{Tree, validation};

use super::{EXTERNAL_NAME, NONE, is_headless};

const SPEC: Path<'static> = Path::root("spec");

pub(super) fn family_of(ip: &str) -> &'static str {
    if validation::parse_ip(ip).is_some_and(|address| address.is_ipv6()) { "IPv6" } else { "IPv4" }
}

/// Rules for a single service, without its stored version and the cluster.
pub(super) fn validate_cluster_ips(service: &Tree, errors: &mut Errors) {
    // External names must have none of these fields, which is checked with the type.
    if service.str("spec.type") == EXTERNAL_NAME {
        return;
    }
    validate_first(service, errors);
    validate_families(service, errors);
    if !validate_addresses(service, errors) {
        return;
    }
    let ips = service.list("spec.clusterIPs");
    if ips.len() > 1 && !is_dual_stack(ips) {
        let text = "may specify no more than one IP for each IP family";
        errors.invalid(&SPEC.field("clusterIPs"), service.at("spec.clusterIPs"), text);
    }
    if !is_headless(service) {
        validate_families_of_addresses(service, errors);
    }
}

fn validate_first(service: &Tree, errors: &mut Errors) {
    let (ip, ips) = (service.str("spec.clusterIP"), service.list("spec.clusterIPs"));
    let path = SPEC.field("clusterIPs");
    let all = service.at("spec.clusterIPs");
    match (ip, ips.first()) {
        ("", None) => {}
        ("", Some(_)) => errors.invalid(&path, all, "must be empty when `clusterIP` is not specified"),
        (_, None) => errors.required(&path, ""),
        (ip, Some(first)) if first.as_str() != Some(ip) => {
            errors.invalid(&path, all, "first value must match `clusterIP`");
        }
        _ => {}
    }
}

fn validate_families(service: &Tree, errors: &mut Errors) {
    let families = service.list("spec.ipFamilies");
    let path = SPEC.field("ipFamilies");
    let mut seen = HashSet::new();
    for (index, family) in families.iter().enumerate() {
        if !matches!(family.as_str(), Some("IPv4" | "IPv6")) {
            errors.not_supported(&path.index(index), family, &["IPv4", "IPv6"]);
        }
        if !seen.insert(family.as_str()) {
            errors.duplicate(&path.index(index), family);
        }
    }
    let policy = service.str("spec.ipFamilyPolicy");
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if service.at("spec").has("ipFamilyPolicy") && !policies.contains(&policy) {
        errors.not_supported(&SPEC.field("ipFamilyPolicy"), policy, &policies);
    }
}

/// Returns whether each entry is an address, or the only entry is "None".
fn validate_addresses(service: &Tree, errors: &mut Errors) -> bool {
    let ips = service.list("spec.clusterIPs");
    let path = SPEC.field("clusterIPs");
    let mut good = true;
    for (index, ip) in ips.iter().enumerate() {
        let ip = ip.as_str().unwrap_or("");
        if index == 0 && ip == NONE {
            if ips.len() > 1 {
                good = false;
                errors.invalid(&path, service.at("spec.clusterIPs"), "'None' must be the first and only value");
            }
            continue;
        }
        let messages = validation::ip_legacy(ip, true);
        good &= messages.is_empty();
        errors.invalid_all(&path.index(index), ip, messages);
    }
    if ips.len() > 2 {
        errors.invalid(&path, service.at("spec.clusterIPs"), "may only hold up to 2 values");
    }
    good
}

fn is_dual_stack(ips: &[Tree]) -> bool {
    let of = |family: &str| ips.iter().any(|ip| family_of(ip.as_str().unwrap_or("")) == family);
    of("IPv4") && of("IPv6")
}

fn validate_families_of_addresses(service: &Tree, errors: &mut Errors) {
    let pairs = service.list("spec.clusterIPs").iter().zip(service.list("spec.ipFamilies"));
    for (index, (ip, family)) in pairs.enumerate() {
        let (ip, family) = (ip.as_str().unwrap_or(""), family.as_str().unwrap_or(""));
        if matches!(family, "IPv4" | "IPv6") && family_of(ip) != family {
            let text = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.invalid(&SPEC.field("clusterIPs").index(index), ip, &text);
        }
    }
}

/// The first address is immutable; the second may be added, and removed with SingleStack.
pub(super) fn validate_addresses_update(service: &Tree, old: &Tree, errors: &mut Errors) {
    if is_external(service) || is_external(old) || (is_headless(service) && is_headless(old)) {
        return;
    }
    let (new_ips, old_ips) = (service.list("spec.clusterIPs"), old.list("spec.clusterIPs"));
    let path = SPEC.field("clusterIPs");
    let all = service.at("spec.clusterIPs");
    if new_ips.len() == old_ips.len() {
        for index in (0..old_ips.len()).filter(|index| new_ips[*index] != old_ips[*index]) {
            errors.invalid(&path.index(index), all, "may not change once set");
        }
        return;
    }
    if new_ips.is_empty() {
        errors.invalid(&path.index(0), all, "primary clusterIP can not be unset");
    } else if !old_ips.is_empty() && new_ips[0] != old_ips[0] {
        errors.invalid(&path.index(0), all, "may not change once set");
    }
    if old_ips.len() > new_ips.len() && new_ips.len() == 1 {
        require_single_stack(service, "clusterIP", errors);
    }
}

/// Like addresses, by IP family; headless services may change theirs.
pub(super) fn validate_families_update(service: &Tree, old: &Tree, errors: &mut Errors) {
    if is_external(service) || is_external(old) || is_headless(service) || is_headless(old) {
        return;
    }
    let (new, stored) = (service.list("spec.ipFamilies"), old.list("spec.ipFamilies"));
    let path = SPEC.field("ipFamilies").index(0).to_string();
    let path = Path::root(&path);
    if new.len() == stored.len() {
        for _ in new.iter().zip(stored).filter(|(new, old)| new != old) {
            errors.invalid(&path, service.at("spec.ipFamilies"), "may not change once set");
        }
        return;
    }
    if stored.len() > new.len() && service.list("spec.clusterIPs").is_empty() {
        errors.invalid(&path, service.at("spec.ipFamilies"), "primary ipFamily can not be unset");
    }
    if !new.is_empty() && !stored.is_empty() && new[0] != stored[0] {
        errors.invalid(&path, service.at("spec.clusterIPs"), "may not change once set");
    }
    if stored.len() > new.len() && new.len() == 1 {
        require_single_stack(service, "ipFamily", errors);
    }
}

fn require_single_stack(service: &Tree, what: &str, errors: &mut Errors) {
    if service.str("spec.ipFamilyPolicy") != "SingleStack" {
        let text = format!("must be set to 'SingleStack' when releasing the secondary {what}");
        errors.invalid(&SPEC.field("ipFamilyPolicy"), service.at("spec.ipFamilyPolicy"), &text);
    }
}

fn is_external(service: &Tree) -> bool {
    service.str("spec.type") == EXTERNAL_NAME
}
