//! The IP families of a service, given those of the cluster.

use api::field::{Errors, Path};
use api::{Tree, list};

use super::cluster_ips::{family_of, validate_cluster_ips};
use super::{EXTERNAL_NAME, NONE};

const SPEC: Path<'static> = Path::root("spec");
const SINGLE_STACK: &str = "SingleStack";
const REQUIRE_DUAL_STACK: &str = "RequireDualStack";
const PREFER_DUAL_STACK: &str = "PreferDualStack";

/// Sets missing ipFamilyPolicy and ipFamilies, or reports why it cannot. `cluster` lists the cluster's families, the
/// default first; `old` is null for a new service. Called before allocation and validation; its errors are returned
/// alone.
pub fn set_families(service: &mut Tree, old: &Tree, cluster: &[&str], errors: &mut Errors) {
    if service.str("spec.type") == EXTERNAL_NAME || keeps_preference(service, old) {
        return;
    }
    set_policy(service, old);
    validate_cluster_ips(service, errors);
    if !errors.is_empty() {
        return;
    }
    if !old.is_null() {
        follow_downgrade(service, old, errors);
    }
    check_policy(service, errors);
    add_families_of_addresses(service, cluster, errors);
    if !errors.is_empty() {
        return;
    }
    if is_headless_without_selector(service) {
        return complete(service, cluster, true);
    }
    check_cluster(service, cluster, errors);
    if errors.is_empty() {
        complete(service, cluster, cluster.len() == 2);
    }
}

/// A service with PreferDualStack keeps its families when the cluster changes.
fn keeps_preference(service: &Tree, old: &Tree) -> bool {
    let same = |key: &str| service.at("spec").at(key) == old.at("spec").at(key);
    !old.is_null()
        && old.str("spec.type") != EXTERNAL_NAME
        && old.str("spec.ipFamilyPolicy") == PREFER_DUAL_STACK
        && same("ipFamilyPolicy")
        && same("clusterIPs")
        && same("ipFamilies")
}

fn set_policy(service: &mut Tree, old: &Tree) {
    if service.at("spec").has("ipFamilyPolicy") {
        return;
    }
    let policy = match old.str("spec.ipFamilyPolicy") {
        "" if is_headless_without_selector(service) => REQUIRE_DUAL_STACK,
        "" => SINGLE_STACK,
        policy => policy,
    };
    service.child("spec").set("ipFamilyPolicy", policy);
}

fn is_headless_without_selector(service: &Tree) -> bool {
    service.str("spec.clusterIP") == NONE && service.map("spec.selector").is_empty()
}

/// SingleStack releases the second family; other policies must keep it.
fn follow_downgrade(service: &mut Tree, old: &Tree, errors: &mut Errors) {
    let single = service.str("spec.ipFamilyPolicy") == SINGLE_STACK;
    for (key, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let (new, old) = (service.at("spec").list(key), old.at("spec").list(key));
        if single && new == old && new.len() > 1 {
            let first = list![new[0].clone()];
            service.child("spec").set(key, first);
        } else if !single && reduced(new, old) {
            let policy = service.str("spec.ipFamilyPolicy");
            let text = format!("must be 'SingleStack' to release the secondary {what}");
            errors.invalid(&SPEC.field("ipFamilyPolicy"), policy, &text);
        }
    }
}

fn reduced(new: &[Tree], old: &[Tree]) -> bool {
    matches!((new, old), ([first], [old_first, _]) if first == old_first)
}

fn check_policy(service: &Tree, errors: &mut Errors) {
    if service.str("spec.ipFamilyPolicy") != SINGLE_STACK {
        return;
    }
    for (key, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if service.at("spec").list(key).len() == 2 {
            let text = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            errors.invalid(&SPEC.field("ipFamilyPolicy"), SINGLE_STACK, &text);
        }
    }
}

fn add_families_of_addresses(service: &mut Tree, cluster: &[&str], errors: &mut Errors) {
    let ips: Vec<Tree> = service.list("spec.clusterIPs").to_vec();
    for (index, ip) in ips.iter().enumerate() {
        let ip = ip.as_str().unwrap_or("");
        if ip == NONE {
            return;
        }
        if index < service.list("spec.ipFamilies").len() {
            continue;
        }
        let family = family_of(ip);
        if cluster.contains(&family) {
            service.child("spec").list_entry("ipFamilies").push(Tree::from(family));
        } else {
            let text = format!("{family} is not configured on this cluster");
            errors.invalid(&SPEC.field("clusterIPs").index(index), service.at("spec.clusterIPs"), &text);
        }
    }
}

fn check_cluster(service: &Tree, cluster: &[&str], errors: &mut Errors) {
    if service.str("spec.ipFamilyPolicy") == REQUIRE_DUAL_STACK && cluster.len() < 2 {
        let text = "this cluster is not configured for dual-stack services";
        errors.invalid(&SPEC.field("ipFamilyPolicy"), REQUIRE_DUAL_STACK, text);
    }
    for (index, family) in service.list("spec.ipFamilies").iter().enumerate() {
        if !cluster.contains(&family.as_str().unwrap_or("")) {
            errors.invalid(&SPEC.field("ipFamilies").index(index), family, "not configured on this cluster");
        }
    }
}

/// The cluster's first family if none was requested, and the second for dual-stack services.
fn complete(service: &mut Tree, cluster: &[&str], both: bool) {
    let single = service.str("spec.ipFamilyPolicy") == SINGLE_STACK;
    let families = service.child("spec").list_entry("ipFamilies");
    if families.is_empty() {
        families.push(Tree::from(cluster.first().copied().unwrap_or("IPv4")));
    }
    if !single && both && families.len() == 1 {
        let other = if families[0].as_str() == Some("IPv4") { "IPv6" } else { "IPv4" };
        families.push(Tree::from(other));
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    fn check(spec: Tree, old: Tree, cluster: &[&str], want: Result<(&str, &[&str]), &str>) {
        let mut service = tree! { "spec" => spec };
        let mut errors = Errors::new();
        let old = if old.is_null() {
            old
        } else {
            tree! { "spec" => old }
        };
        set_families(&mut service, &old, cluster, &mut errors);
        let text = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        match want {
            Err(want) => assert_eq!(text, want),
            Ok((policy, families)) => {
                assert_eq!(text, "");
                assert_eq!(service.str("spec.ipFamilyPolicy"), policy);
                let found: Vec<&str> = service.list("spec.ipFamilies").iter().filter_map(Tree::as_str).collect();
                assert_eq!(found, families);
            }
        }
    }

    #[test]
    fn new_services() {
        let headless = || tree! { "type" => "ClusterIP", "clusterIP" => "None", "clusterIPs" => list!["None"] };
        let with = |key: &str, value: &str| tree! { "type" => "ClusterIP", key => value };
        check(tree! { "type" => "ClusterIP" }, Tree::Null, &["IPv4"], Ok(("SingleStack", &["IPv4"])));
        check(headless(), Tree::Null, &["IPv4"], Ok(("RequireDualStack", &["IPv4", "IPv6"])));
        check(with("ipFamilyPolicy", "PreferDualStack"), Tree::Null, &["IPv4"], Ok(("PreferDualStack", &["IPv4"])));
        check(
            with("ipFamilyPolicy", "PreferDualStack"),
            Tree::Null,
            &["IPv6", "IPv4"],
            Ok(("PreferDualStack", &["IPv6", "IPv4"])),
        );
        check(
            with("ipFamilyPolicy", "RequireDualStack"),
            Tree::Null,
            &["IPv4"],
            Err(
                "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
            ),
        );
        check(
            tree! { "type" => "ClusterIP", "ipFamilies" => list!["IPv6"] },
            Tree::Null,
            &["IPv4"],
            Err("spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster"),
        );
    }

    #[test]
    fn only_single_stack_releases_the_second_family() {
        let dual = |policy: &str| {
            tree! {
                "type" => "ClusterIP",
                "ipFamilyPolicy" => policy,
                "clusterIP" => "10.0.0.1",
                "clusterIPs" => list!["10.0.0.1", "fd00::1"],
                "ipFamilies" => list!["IPv4", "IPv6"],
            }
        };
        let cluster = &["IPv4", "IPv6"];
        check(dual("SingleStack"), dual("RequireDualStack"), cluster, Ok(("SingleStack", &["IPv4"])));
        let mut released = dual("RequireDualStack");
        released.set("clusterIPs", list!["10.0.0.1"]);
        let text = "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": must be 'SingleStack' to release the secondary cluster IP";
        check(released, dual("RequireDualStack"), cluster, Err(text));
    }
}
