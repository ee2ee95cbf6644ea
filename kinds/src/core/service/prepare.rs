//! Prepare functions of services.

use api::{Tree, list};

use super::allocation;
use super::{EXTERNAL_NAME, LOAD_BALANCER, NODE_PORT};
use super::{externally_accessible, kind_of, needs_cluster_ip, needs_health_check_node_port};
use crate::kind::{Context, bump_generation, keep_old};

pub(super) fn prepare_create(service: &mut Tree, _: &Context<'_>) {
    service.remove("status");
    if !service.str("spec.clusterIP").is_empty() && service.list("spec.clusterIPs").is_empty() {
        let ips = list![service.str("spec.clusterIP")];
        service.child("spec").set("clusterIPs", ips);
    }
}

pub(super) fn prepare_update(service: &mut Tree, old: &Tree, _: &Context<'_>) {
    keep_old(service, old, "status");
    bump_generation(service, old, &[]);
    allocation::keep_allocated(service, old);
    normalize_cluster_ips(service, old);
    drop_fields_of_other_type(service, old);
}

/// Supports clients that only use `clusterIP`.
fn normalize_cluster_ips(service: &mut Tree, old: &Tree) {
    let same_ip = service.str("spec.clusterIP") == old.str("spec.clusterIP");
    if service.list("spec.clusterIPs").is_empty() && same_ip && !old.list("spec.clusterIPs").is_empty() {
        let ips = old.at("spec.clusterIPs").clone();
        service.child("spec").set("clusterIPs", ips);
    }
    if same_ip || service.list("spec.clusterIPs") != old.list("spec.clusterIPs") {
        return;
    }
    if service.str("spec.clusterIP").is_empty() {
        service.remove_at("spec.clusterIPs");
    } else {
        let ips = list![service.str("spec.clusterIP")];
        service.child("spec").set("clusterIPs", ips);
    }
}

/// A change of type clears the allocations of the old type, unless the client changed them: then validation rejects
/// them.
fn drop_fields_of_other_type(service: &mut Tree, old: &Tree) {
    if needs_cluster_ip(old) && !needs_cluster_ip(service) {
        drop_if_same(service, old, &["clusterIPs", "clusterIP"]);
        drop_if_same(service, old, &["ipFamilies"]);
        drop_if_same(service, old, &["ipFamilyPolicy"]);
    }
    if may_have_node_ports(old) && !may_have_node_ports(service) && no_new_node_ports(service, old) {
        for port in service.list_mut("spec.ports") {
            port.remove("nodePort");
        }
    }
    if needs_health_check_node_port(old) && !needs_health_check_node_port(service) {
        drop_if_same(service, old, &["healthCheckNodePort"]);
    }
    if kind_of(old) == LOAD_BALANCER && kind_of(service) != LOAD_BALANCER {
        drop_if_same(service, old, &["allocateLoadBalancerNodePorts"]);
        drop_if_same(service, old, &["loadBalancerClass"]);
    }
    if externally_accessible(old) && !externally_accessible(service) {
        drop_if_same(service, old, &["externalTrafficPolicy"]);
    }
    // Upstream omits this field when it reads an external name.
    if kind_of(service) == EXTERNAL_NAME && kind_of(old) != EXTERNAL_NAME {
        drop_if_same(service, old, &["internalTrafficPolicy"]);
    }
    if kind_of(service) != LOAD_BALANCER
        && let Some(status) = service.at_mut("status")
    {
        status.set("loadBalancer", Tree::map_new());
    }
}

fn may_have_node_ports(service: &Tree) -> bool {
    matches!(kind_of(service), NODE_PORT | LOAD_BALANCER)
}

/// Removes the keys if none was changed.
fn drop_if_same(service: &mut Tree, old: &Tree, keys: &[&str]) {
    if keys.iter().all(|key| service.at("spec").at(key) == old.at("spec").at(key)) {
        for key in keys {
            service.child("spec").remove(key);
        }
    }
}

/// Whether no port requests a new node port.
fn no_new_node_ports(service: &Tree, old: &Tree) -> bool {
    let numbers = |service: &Tree| -> std::collections::BTreeSet<i64> {
        service
            .list("spec.ports")
            .iter()
            .filter_map(|port| port.int("nodePort"))
            .filter(|number| *number != 0)
            .collect()
    };
    numbers(old).is_superset(&numbers(service))
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;
    use crate::kind::User;

    fn check(spec: Tree, old: Tree, want: Tree) {
        let user = User::default();
        let mut service = tree! { "spec" => spec };
        prepare_update(&mut service, &tree! { "spec" => old }, &Context { now: 0, user: &user });
        assert_eq!(service.at("spec"), &want);
    }

    fn node_port() -> Tree {
        tree! {
            "type" => "NodePort",
            "clusterIP" => "10.0.0.1",
            "clusterIPs" => list!["10.0.0.1"],
            "externalTrafficPolicy" => "Cluster",
            "ports" => list![tree! { "port" => 80, "nodePort" => 30000 }],
        }
    }

    #[test]
    fn keeps_omitted_allocations() {
        let spec = tree! {
            "type" => "NodePort", "externalTrafficPolicy" => "Cluster", "ports" => list![tree! { "port" => 80 }],
        };
        check(spec, node_port(), node_port());
    }

    #[test]
    fn type_changes_release_allocations() {
        let mut spec = node_port();
        spec.set("type", "ClusterIP");
        let want = tree! {
            "type" => "ClusterIP",
            "clusterIP" => "10.0.0.1",
            "clusterIPs" => list!["10.0.0.1"],
            "ports" => list![tree! { "port" => 80 }],
        };
        check(spec, node_port(), want);
    }

    #[test]
    fn unknown_types_keep_the_address() {
        let mut spec = node_port();
        spec.set("type", "X");
        let mut want = spec.clone();
        want.remove("externalTrafficPolicy");
        want.set("ports", list![tree! { "port" => 80 }]);
        check(spec, node_port(), want);
    }

    #[test]
    fn type_changes_may_remove_ports() {
        let mut old = node_port();
        old.set(
            "ports",
            list![tree! { "port" => 80, "nodePort" => 30000 }, tree! { "port" => 81, "nodePort" => 30001 }],
        );
        let mut spec = node_port();
        spec.set("type", "ClusterIP");
        let mut want = spec.clone();
        want.remove("externalTrafficPolicy");
        want.set("ports", list![tree! { "port" => 80 }]);
        check(spec, old, want);
    }

    #[test]
    fn other_types_have_no_load_balancer_status() {
        let user = User::default();
        let ingress = list![tree! { "ip" => "1.2.3.4" }];
        let status = tree! { "loadBalancer" => tree! { "ingress" => ingress } };
        let old = tree! { "spec" => tree! { "type" => "LoadBalancer" }, "status" => status };
        let mut service = tree! { "spec" => tree! { "type" => "ClusterIP" } };
        prepare_update(&mut service, &old, &Context { now: 0, user: &user });
        assert_eq!(service.at("status"), &tree! { "loadBalancer" => tree! {} });
    }

    #[test]
    fn cluster_ip_updates_cluster_ips() {
        let mut spec = node_port();
        spec.set("clusterIP", "10.0.0.2");
        let mut want = spec.clone();
        want.set("clusterIPs", list!["10.0.0.2"]);
        check(spec.clone(), node_port(), want.clone());
        spec.remove("clusterIPs");
        check(spec, node_port(), want);
    }
}
