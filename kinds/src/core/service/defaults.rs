//! Defaults of a service.

use api::{Tree, list, tree};

use super::{CLUSTER_IP, EXTERNAL_NAME, LOAD_BALANCER, NODE_PORT, externally_accessible};

const CLIENT_IP_TIMEOUT_SECONDS: i64 = 10_800;

pub(super) fn set_defaults(service: &mut Tree) {
    let spec = service.child("spec");
    set_session_affinity(spec);
    if spec.str("type").is_empty() {
        spec.set("type", CLUSTER_IP);
    }
    spec.list_mut("ports").iter_mut().for_each(set_port);
    if externally_accessible(service) && service.str("spec.externalTrafficPolicy").is_empty() {
        service.child("spec").set("externalTrafficPolicy", "Cluster");
    }
    let spec = service.child("spec");
    if matches!(spec.str("type"), CLUSTER_IP | NODE_PORT | LOAD_BALANCER) {
        spec.set_default("internalTrafficPolicy", "Cluster");
    }
    if spec.str("type") != EXTERNAL_NAME {
        set_ip_families(spec);
    }
    if spec.str("type") == LOAD_BALANCER {
        spec.set_default("allocateLoadBalancerNodePorts", true);
        service.list_mut("status.loadBalancer.ingress").iter_mut().for_each(set_ingress);
    }
}

fn set_session_affinity(spec: &mut Tree) {
    if spec.str("sessionAffinity").is_empty() {
        spec.set("sessionAffinity", "None");
    }
    match spec.str("sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" if spec.at("sessionAffinityConfig.clientIP.timeoutSeconds").is_null() => {
            let config = tree! { "clientIP" => tree! { "timeoutSeconds" => CLIENT_IP_TIMEOUT_SECONDS } };
            spec.set("sessionAffinityConfig", config);
        }
        _ => {}
    }
}

fn set_port(port: &mut Tree) {
    if port.str("protocol").is_empty() {
        port.set("protocol", "TCP");
    }
    let target = port.at("targetPort");
    if target.is_null() || target.as_int() == Some(0) || target.as_str() == Some("") {
        let number = port.int("port").unwrap_or(0);
        port.set("targetPort", number);
    }
}

/// Only what does not depend on the cluster; `families` sets the rest.
fn set_ip_families(spec: &mut Tree) {
    if !spec.has("ipFamilyPolicy") && (spec.list("clusterIPs").len() == 2 || spec.list("ipFamilies").len() == 2) {
        spec.set("ipFamilyPolicy", "RequireDualStack");
    }
    if spec.str("ipFamilyPolicy") == "RequireDualStack"
        && let [family] = spec.list("ipFamilies")
    {
        let other = if family.as_str() == Some("IPv4") { "IPv6" } else { "IPv4" };
        let families = list![family.clone(), other];
        spec.set("ipFamilies", families);
    }
}

fn set_ingress(ingress: &mut Tree) {
    if !ingress.str("ip").is_empty() {
        ingress.set_default("ipMode", "VIP");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_service_defaults() {
        let mut service = tree! { "spec" => tree! { "ports" => list![tree! { "port" => 80 }] } };
        set_defaults(&mut service);
        let want = tree! {
            "type" => "ClusterIP",
            "sessionAffinity" => "None",
            "internalTrafficPolicy" => "Cluster",
            "ports" => list![tree! { "port" => 80, "protocol" => "TCP", "targetPort" => 80 }],
        };
        assert_eq!(service.at("spec"), &want);
    }

    #[test]
    fn external_services_get_a_traffic_policy() {
        let mut service = tree! { "spec" => tree! { "externalIPs" => list!["192.0.2.1"] } };
        set_defaults(&mut service);
        assert_eq!(service.str("spec.externalTrafficPolicy"), "Cluster");
    }
}
