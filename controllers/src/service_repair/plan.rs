//! Services and IPAddress objects match: each cluster IP has an object that refers to the service, and each object
//! refers to a service with that IP.

use std::net::IpAddr;
use std::sync::Arc;

use api::validation::parse_ip;
use api::{Tree, time, tree};
use kinds::core::service::allocation::cluster_ips;
use stdx::cidr::IpNet;

use crate::support::event_message::EventMessage;

const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const MANAGER: &str = "ipallocator.k8s.io";
/// Until then the service of an address may not be visible yet, if another server writes both separately.
const GRACE_SECONDS: i64 = 60;

/// The state besides the object being checked.
pub(super) struct Lookups<'a> {
    pub ranges: &'a [IpNet],
    /// Returns the IPAddress of a name.
    pub address: &'a dyn Fn(&str) -> Option<Arc<Tree>>,
    /// Returns the service of a namespace and name.
    pub service: &'a dyn Fn(&str, &str) -> Option<Arc<Tree>>,
}

/// A problem with an address of a service, and its repair.
#[derive(Debug, PartialEq)]
pub(crate) struct Finding {
    pub event: Option<EventMessage>,
    /// The object to create, replacing an existing one of that name.
    pub create: Option<Tree>,
}

pub(crate) fn plan_service(service: &Tree, known: &Lookups<'_>) -> Vec<Finding> {
    cluster_ips(service).into_iter().filter_map(|ip| check_address(service, ip, known)).collect()
}

fn check_address(service: &Tree, text: &str, known: &Lookups<'_>) -> Option<Finding> {
    let record = |reason: &'static str, text: String| {
        Some(Finding { event: Some(EventMessage::warning(reason, text)), create: None })
    };
    let Some(ip) = parse_ip(text) else {
        return record("ClusterIPNotValid", format!("Cluster IP {text} is not a valid IP; please recreate Service"));
    };
    let family = family(ip);
    if !known.ranges.iter().any(|range| range.contains(ip)) {
        let text =
            format!("Cluster IP [{family}]: {ip} is not within any configured Service CIDR; please recreate service");
        return record("ClusterIPOutOfRange", text);
    }
    let repair = |text: Option<String>| {
        let event = text.map(|text| EventMessage::warning("ClusterIPNotAllocated", text));
        Some(Finding { event, create: Some(object(ip, service)) })
    };
    let Some(address) = (known.address)(&ip.to_string()) else {
        return repair(Some(format!("Cluster IP [{family}]: {ip} is not allocated; repairing")));
    };
    let (namespace, name) = (service.str("metadata.namespace"), service.str("metadata.name"));
    let wrong =
        || format!("the ClusterIP [{family}]: {ip} for Service {namespace}/{name} has a wrong reference; repairing");
    match parent(&address) {
        Some(parent) if parent == (namespace, name) => {}
        Some((namespace, name)) => match (known.service)(namespace, name) {
            None => return repair(Some(wrong())),
            Some(other) if cluster_ips(&other).contains(&text) => {
                let text =
                    format!("Cluster IP [{family}]:{ip} was assigned to multiple services; please recreate service");
                return record("ClusterIPAlreadyAllocated", text);
            }
            // The IPAddress without a service is deleted first.
            Some(_) => return None,
        },
        None => return repair(Some(wrong())),
    }
    let labels = address.map("metadata.labels");
    let is_marked = labels.str(FAMILY) == family && labels.str(MANAGED_BY) == MANAGER;
    if is_marked { None } else { repair(None) }
}

/// The action for an IPAddress.
#[derive(Debug, PartialEq)]
pub(crate) enum AddressAction {
    Keep,
    Wait { seconds: i64 },
    Delete(EventMessage),
}

/// `service` returns the service of a namespace and name.
pub(crate) fn plan_address(
    address: &Tree,
    service: &dyn Fn(&str, &str) -> Option<Arc<Tree>>,
    now: i64,
) -> AddressAction {
    let ip = address.str("metadata.name");
    if address.map("metadata.labels").str(MANAGED_BY) != MANAGER {
        return AddressAction::Keep;
    }
    let Some((namespace, name)) = parent(address) else {
        let reference = reference(address);
        let text =
            format!("IPAddress {ip} appears to have been modified, not referencing a Service {reference}: cleaning up");
        return AddressAction::Delete(EventMessage::warning("IPAddressNotAllocated", text));
    };
    match service(namespace, name) {
        Some(service) if cluster_ips(&service).contains(&ip) => AddressAction::Keep,
        Some(_) => {
            let text = format!("IPAddress: {ip} for Service {namespace}/{name} has a wrong reference; cleaning up");
            AddressAction::Delete(EventMessage::warning("IPAddressWrongReference", text))
        }
        None => {
            let made = time::parse(address.str("metadata.creationTimestamp")).map_or(0, |time| time.seconds);
            match made + GRACE_SECONDS - now {
                seconds if seconds >= 0 => AddressAction::Wait { seconds: seconds + 1 },
                _ => {
                    let text =
                        format!("IPAddress: {ip} for Service {namespace}/{name} appears to have leaked: cleaning up");
                    AddressAction::Delete(EventMessage::warning("IPAddressNotAllocated", text))
                }
            }
        }
    }
}

/// The service of an IPAddress, if it belongs to one.
pub(super) fn parent(address: &Tree) -> Option<(&str, &str)> {
    let parent = address.at("spec.parentRef");
    let is_service = parent.str("group").is_empty() && parent.str("resource") == "services";
    is_service.then(|| (parent.str("namespace"), parent.str("name")))
}

fn reference(address: &Tree) -> String {
    let part = |field: &str| address.at("spec.parentRef").str(field).to_string();
    let [group, resource, namespace, name] = ["group", "resource", "namespace", "name"].map(part);
    format!("&ParentReference{{Group:{group},Resource:{resource},Namespace:{namespace},Name:{name},}}")
}

fn family(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn object(ip: IpAddr, service: &Tree) -> Tree {
    let labels = tree! { FAMILY => family(ip), MANAGED_BY => MANAGER };
    let parent = tree! {
        "resource" => "services",
        "namespace" => service.str("metadata.namespace"),
        "name" => service.str("metadata.name"),
    };
    tree! {
        "apiVersion" => "networking.k8s.io/v1",
        "kind" => "IPAddress",
        "metadata" => tree! { "name" => ip.to_string(), "labels" => labels },
        "spec" => tree! { "parentRef" => parent },
    }
}

#[cfg(test)]
mod tests;
