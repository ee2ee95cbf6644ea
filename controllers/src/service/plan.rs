//! Load balancers by node addresses: the service is reachable at every node that can receive traffic. Only the status
//! is set.

use std::sync::Arc;

use api::validation::parse_ip;
use api::{Tree, tree};

use crate::support::event_message::EventMessage;
use crate::support::finalizers;
use crate::support::volumes::is_deleting;

pub(super) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// The service to write through its status, and the events before and after.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub before: Option<EventMessage>,
    pub write: Option<Tree>,
    pub after: Option<EventMessage>,
}

pub(super) fn plan(service: &Tree, nodes: &[Arc<Tree>]) -> Plan {
    if is_deleting(service) || !needs_load_balancer(service) { clean_up(service) } else { ensure(service, nodes) }
}

/// Services with a loadBalancerClass have another implementation.
pub(super) fn needs_load_balancer(service: &Tree) -> bool {
    service.str("spec.type") == "LoadBalancer" && !service.at("spec").has("loadBalancerClass")
}

fn clean_up(service: &Tree) -> Plan {
    if !finalizers::has(service, FINALIZER) {
        return Plan::default();
    }
    let mut changed = service.clone();
    finalizers::remove(&mut changed, FINALIZER);
    changed.child("status").set("loadBalancer", tree! {});
    Plan {
        before: Some(EventMessage::normal("DeletingLoadBalancer", "Deleting load balancer")),
        write: Some(changed),
        after: Some(EventMessage::normal("DeletedLoadBalancer", "Deleted load balancer")),
    }
}

fn ensure(service: &Tree, nodes: &[Arc<Tree>]) -> Plan {
    let addresses = addresses(service, nodes);
    let is_new = !finalizers::has(service, FINALIZER);
    let there: Vec<&str> = service.list("status.loadBalancer.ingress").iter().map(|entry| entry.str("ip")).collect();
    if !is_new && there == addresses {
        return Plan::default();
    }
    let mut changed = service.clone();
    finalizers::add(&mut changed, FINALIZER);
    let ingress: Vec<Tree> = addresses.iter().map(|ip| tree! { "ip" => ip, "ipMode" => "VIP" }).collect();
    let balancer = if ingress.is_empty() {
        tree! {}
    } else {
        tree! { "ingress" => ingress }
    };
    changed.child("status").set("loadBalancer", balancer);
    let text = "There are no available nodes for LoadBalancer";
    let after = match (addresses.is_empty(), is_new) {
        (true, _) => EventMessage::warning("UnAvailableLoadBalancer", text),
        (false, true) => EventMessage::normal("EnsuredLoadBalancer", "Ensured load balancer"),
        (false, false) => EventMessage::normal("UpdatedLoadBalancer", "Updated load balancer with new hosts"),
    };
    let before = is_new.then(|| EventMessage::normal("EnsuringLoadBalancer", "Ensuring load balancer"));
    Plan { before, write: Some(changed), after: Some(after) }
}

/// The addresses of nodes that can receive traffic in the service's IP families, external ones first.
fn addresses(service: &Tree, nodes: &[Arc<Tree>]) -> Vec<String> {
    let families = service.list("spec.ipFamilies");
    let mut found: Vec<String> = Vec::new();
    for family in families.iter().filter_map(Tree::as_str) {
        for node in nodes.iter().filter(|node| takes_traffic(node)) {
            let address = ["ExternalIP", "InternalIP"].iter().find_map(|kind| address(node, kind, family == "IPv6"));
            found.extend(address.filter(|address| !found.contains(address)));
        }
    }
    found
}

fn address(node: &Tree, kind: &str, v6: bool) -> Option<String> {
    let addresses = node.list("status.addresses").iter().filter(|address| address.str("type") == kind);
    let mut ips = addresses.filter_map(|address| parse_ip(address.str("address")));
    ips.find(|ip| ip.is_ipv6() == v6).map(|ip| ip.to_string())
}

/// Whether a node can receive traffic; only changes of this matter.
pub(crate) fn takes_traffic(node: &Tree) -> bool {
    let conditions = node.list("status.conditions").iter();
    let is_ready =
        conditions.filter(|condition| condition.str("type") == "Ready").any(|ready| ready.str("status") == "True");
    let is_going = node.list("spec.taints").iter().any(|taint| taint.str("key") == TO_BE_DELETED);
    let is_excluded = node.map("metadata.labels").contains(EXCLUDED);
    is_ready && !is_going && !is_excluded && !node.bool("spec.unschedulable") && !is_deleting(node)
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;

    fn node(name: &str, ip: &str, ready: bool) -> Tree {
        let status = if ready { "True" } else { "False" };
        let internal = tree! { "type" => "InternalIP", "address" => ip };
        tree! {
            "metadata" => tree! { "name" => name },
            "status" => tree! {
                "addresses" => list![internal, tree! { "type" => "InternalIP", "address" => "fd00::1" }],
                "conditions" => list![tree! { "type" => "Ready", "status" => status }],
            },
        }
    }

    fn service() -> Tree {
        tree! {
            "metadata" => tree! { "name" => "s" },
            "spec" => tree! { "type" => "LoadBalancer", "ipFamilies" => list!["IPv4"] },
            "status" => tree! { "loadBalancer" => tree! {} },
        }
    }

    fn ips(service: &Tree) -> Vec<&str> {
        service.list("status.loadBalancer.ingress").iter().map(|entry| entry.str("ip")).collect()
    }

    fn reason(event: &Option<EventMessage>) -> &str {
        event.as_ref().map_or("", |event| event.reason)
    }

    #[test]
    fn load_balancers_have_node_addresses() {
        let nodes = [Arc::new(node("a", "10.0.0.1", true)), Arc::new(node("b", "10.0.0.2", false))];
        let made = plan(&service(), &nodes);
        assert_eq!((reason(&made.before), reason(&made.after)), ("EnsuringLoadBalancer", "EnsuredLoadBalancer"));
        let made = made.write.expect("it is written");
        assert_eq!(ips(&made), ["10.0.0.1"]);
        assert!(finalizers::has(&made, FINALIZER));
        assert_eq!(plan(&made, &nodes), Plan::default());

        let more = [Arc::new(node("a", "10.0.0.1", true)), Arc::new(node("b", "10.0.0.2", true))];
        let changed = plan(&made, &more);
        assert_eq!((reason(&changed.before), reason(&changed.after)), ("", "UpdatedLoadBalancer"));
        let none = plan(&made, &[]);
        assert_eq!(reason(&none.after), "UnAvailableLoadBalancer");
        let mut dual = service();
        dual.child("spec").set("ipFamilies", list!["IPv6", "IPv4"]);
        assert_eq!(ips(&plan(&dual, &nodes).write.expect("it is written")), ["fd00::1", "10.0.0.1"]);
    }

    #[test]
    fn excludes_some_nodes() {
        let check = |path: &str, key: &str, value: Tree| {
            let mut node = node("a", "10.0.0.1", true);
            assert!(takes_traffic(&node));
            node.child(path).set(key, value);
            assert!(!takes_traffic(&node), "{key}");
        };
        check("metadata.labels", EXCLUDED, "".into());
        check("spec", "unschedulable", true.into());
        check("spec", "taints", list![tree! { "key" => TO_BE_DELETED }]);
        check("metadata", "deletionTimestamp", "2024-01-01T00:00:00Z".into());
    }

    #[test]
    fn cleans_up_unneeded_load_balancers() {
        let nodes = [Arc::new(node("a", "10.0.0.1", true))];
        let made = plan(&service(), &nodes).write.expect("it is written");
        let check = |path: &str, key: &str, value: &str| {
            let mut changed = made.clone();
            changed.child(path).set(key, value);
            let plan = plan(&changed, &nodes);
            assert_eq!((reason(&plan.before), reason(&plan.after)), ("DeletingLoadBalancer", "DeletedLoadBalancer"));
            let written = plan.write.expect("it is written");
            assert!(!finalizers::has(&written, FINALIZER) && ips(&written).is_empty());
        };
        check("spec", "type", "ClusterIP");
        check("spec", "loadBalancerClass", "example.com/lb");
        check("metadata", "deletionTimestamp", "2024-01-01T00:00:00Z");
        let mut plain = service();
        plain.child("spec").set("type", "ClusterIP");
        assert_eq!(plan(&plain, &nodes), Plan::default());
    }
}
