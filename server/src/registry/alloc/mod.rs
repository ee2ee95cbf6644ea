//! Cluster addresses and node ports of services. An IPAddress object claims an address; it is written in the same
//! commit as the service, and two services can never hold one address. Node ports have no object of their own; an index
//! over the services records the holder of each port.

mod ports;
mod ranges;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use api::field::{Errors, Path};
use api::status::Status;
use api::{Tree, tree};
use kinds::core::service::{self, allocation, families};
use store::{Precondition, Write as StoreWrite};
use thiserror::Error;

use crate::common::users::system_user;
use crate::registry::hooks::Claims;
use crate::registry::options::WriteOptions;
use crate::registry::write::Scope;
use crate::registry::{Config, Registry};
use crate::request::codec::Validation;

pub(crate) use ports::Reservation;
use ports::{Claim, PortError};
use ranges::Range;

const SPEC: Path<'static> = Path::root("spec");

pub(crate) struct Allocator {
    /// The ranges that the server was started with, the default family first.
    ranges: Vec<Range>,
    ports: ports::Ports,
}

impl Allocator {
    pub(crate) fn new(config: &Config) -> Allocator {
        let ranges = config.service_cidrs.iter().filter_map(Range::new);
        Allocator { ranges: ranges.collect(), ports: ports::Ports::new(config.node_ports.clone()) }
    }

    /// The families of the cluster, the default one first.
    fn families(&self) -> Vec<&'static str> {
        self.ranges.iter().map(|range| family(range.is_ipv4())).collect()
    }
}

fn family(ipv4: bool) -> &'static str {
    if ipv4 { "IPv4" } else { "IPv6" }
}

/// Completes a service's IP families before it is validated, and checks whether the named addresses and families are
/// available. Such an error is reported alone, as upstream does.
pub(crate) fn complete(scope: &Scope<'_>, object: &mut Tree, old: Option<&Tree>) -> Result<(), Status> {
    let old = old.unwrap_or(&Tree::Null);
    let mut errors = Errors::new();
    families::set_families(object, old, &scope.registry.alloc.families(), &mut errors);
    refuse(scope, object, &errors)?;
    take_named_addresses(scope, object, old)?;
    let name = object.str("metadata.name").to_string();
    let claim = begin_ports(scope, &name, object, old)?;
    if old.is_null() && allocation::has_duplicate_ports(object) {
        show_node_ports(object, claim)?;
    }
    Ok(())
}

/// Upstream allocates node ports before it validates: the error for a duplicate port names the node port that both
/// would have. Validation rejects such a service, so the numbers are shown and not stored.
fn show_node_ports(object: &mut Tree, mut claim: Claim<'_>) -> Result<(), Status> {
    while let Some(index) = allocation::missing_node_ports(object).first().copied() {
        let number = match allocation::node_port_of_same_port(object, index) {
            Some(number) => number,
            None => next_port(&mut claim)?,
        };
        object.child("spec").list_mut("ports")[index].set("nodePort", number);
    }
    Ok(())
}

fn next_port(claim: &mut Claim<'_>) -> Result<i64, Status> {
    claim.take_next().map_err(|why| Status::internal(format!("failed to allocate a nodePort: {why}")))
}

fn refuse(scope: &Scope<'_>, object: &Tree, errors: &Errors) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    let kind = &scope.resource.kind;
    Err(Status::invalid(kind.group(), kind.kind(), object.str("metadata.name"), errors))
}

/// Allocates the addresses and ports that a service names or lacks; unused ones of the old object are released.
pub(crate) fn claim(scope: &Scope<'_>, name: &str, object: &mut Tree, old: Option<&Tree>) -> Result<Claims, Status> {
    let before = old.unwrap_or(&Tree::Null);
    let taken = claim_addresses(scope, object, before)?;
    let ports = claim_ports(scope, name, object, before)?;
    if scope.dry_run {
        return Ok(Claims::default());
    }
    let mut writes = Vec::new();
    for ip in taken {
        writes.push(address_write(scope, ip, name)?);
    }
    let released = allocation::released(before, object);
    writes.extend(released.cluster_ips.iter().filter_map(|ip| address_delete(scope, ip, name)));
    Ok(Claims::new(writes, Some(ports)))
}

/// The writes that release a deleted service's addresses.
pub(crate) fn release(scope: &Scope<'_>, object: &Tree) -> Vec<StoreWrite> {
    let name = object.str("metadata.name");
    let released = allocation::released(object, &Tree::Null);
    released.cluster_ips.iter().filter_map(|ip| address_delete(scope, ip, name)).collect()
}

/// The addresses that are new to this service.
fn claim_addresses(scope: &Scope<'_>, object: &mut Tree, old: &Tree) -> Result<Vec<IpAddr>, Status> {
    let mut taken = take_named_addresses(scope, object, old)?;
    let missing: Vec<bool> = allocation::missing_cluster_ips(object).iter().map(|family| *family == "IPv4").collect();
    if missing.is_empty() {
        return Ok(taken);
    }
    let pool = Pool::new(scope.registry);
    for ipv4 in missing {
        let address = pool
            .take_next(ipv4, scope.dry_run)
            .ok_or_else(|| Status::internal("failed to allocate a serviceIP: range is full"))?;
        allocation::add_cluster_ip(object, &address.to_string());
        taken.push(address);
    }
    Ok(taken)
}

fn take_named_addresses(scope: &Scope<'_>, object: &Tree, old: &Tree) -> Result<Vec<IpAddr>, Status> {
    let held = allocation::cluster_ips(old);
    let mut taken = Vec::new();
    let mut named = allocation::cluster_ips(object);
    named.retain(|ip| !held.contains(ip));
    // Validation rejects a change of a set value, with a better error text.
    if named.is_empty() || !held.is_empty() && held.len() == allocation::cluster_ips(object).len() {
        return Ok(Vec::new());
    }
    let pool = Pool::new(scope.registry);
    for ip in named {
        match pool.take(ip, scope.dry_run) {
            Ok(address) => taken.push(address),
            Err(why) => {
                let mut errors = Errors::new();
                let text = format!("failed to allocate IP {ip}: {why}");
                errors.invalid(&SPEC.field("clusterIPs"), object.at("spec.clusterIPs"), &text);
                refuse(scope, object, &errors)?;
            }
        }
    }
    Ok(taken)
}

/// Why an address that a service names cannot be allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
enum AddressError {
    #[error("the provided network does not match the current range")]
    OutOfRange,
    #[error("provided IP is already allocated")]
    Allocated,
}

/// The current ranges and addresses.
struct Pool<'a> {
    registry: &'a Registry,
    ranges: Vec<Range>,
}

impl Pool<'_> {
    fn new(registry: &Registry) -> Pool<'_> {
        let mut ranges = registry.alloc.ranges.clone();
        for range in ready_ranges(registry) {
            if !ranges.contains(&range) {
                ranges.push(range);
            }
        }
        Pool { registry, ranges }
    }

    fn is_taken(&self, ip: IpAddr) -> bool {
        self.registry.storage.caches.get("ipaddresses").is_some_and(|cache| cache.get(&ip.to_string()).is_some())
    }

    fn take(&self, ip: &str, dry_run: bool) -> Result<IpAddr, AddressError> {
        let address = api::validation::parse_ip(ip).filter(|ip| self.ranges.iter().any(|range| range.contains(*ip)));
        let address = address.ok_or(AddressError::OutOfRange)?;
        if !dry_run && self.is_taken(address) {
            return Err(AddressError::Allocated);
        }
        Ok(address)
    }

    /// A dry run returns the network's address: any other might be allocated before the real request.
    fn take_next(&self, ipv4: bool, dry_run: bool) -> Option<IpAddr> {
        let mut ranges = self.ranges.iter().filter(|range| range.is_ipv4() == ipv4);
        if dry_run {
            return ranges.next().map(Range::network);
        }
        let cache = self.registry.storage.caches.get("ipaddresses")?;
        let addresses = cache.snapshot().map;
        ranges.find_map(|range| {
            range.pick(crate::common::ids::below, |ip| addresses.contains_key(ip.to_string().as_str()))
        })
    }
}

/// The ranges of ServiceCIDR objects. One without a condition is ready: its controller may not run.
fn ready_ranges(registry: &Registry) -> Vec<Range> {
    let Some(cache) = registry.storage.caches.get("servicecidrs") else { return Vec::new() };
    let is_ready = |object: &Tree| {
        let ready = object.list("status.conditions").iter().find(|condition| condition.str("type") == "Ready");
        let ready = ready.is_none_or(|condition| condition.str("status") == "True");
        ready && !object.at("metadata").has("deletionTimestamp")
    };
    let objects: Vec<Tree> = cache.snapshot().map.values().map(|item| item.tree()).filter(is_ready).collect();
    let cidrs = objects.iter().flat_map(|object| object.list("spec.cidrs")).filter_map(Tree::as_str);
    cidrs.filter_map(api::validation::parse_cidr).filter_map(|cidr| Range::new(&cidr)).collect()
}

/// Begins a claim with the named ports.
fn begin_ports<'a>(scope: &Scope<'a>, name: &str, object: &Tree, old: &Tree) -> Result<Claim<'a>, Status> {
    let services = scope.resource.cache()?;
    let mut claim = scope.registry.alloc.ports.begin(services, &scope.resource.key(scope.namespace, name));
    claim_named_ports(scope, object, &held_ports(old), &mut claim)?;
    Ok(claim)
}

fn held_ports(old: &Tree) -> Vec<i64> {
    allocation::node_ports(old).iter().map(|port| port.number).collect()
}

fn claim_ports(scope: &Scope<'_>, name: &str, object: &mut Tree, old: &Tree) -> Result<Reservation, Status> {
    let mut claim = begin_ports(scope, name, object, old)?;
    while let Some(index) = allocation::missing_node_ports(object).first().copied() {
        let number = match allocation::shared_node_port(object, index).filter(|_| old.is_null()) {
            Some(number) => number,
            None => next_port(&mut claim)?,
        };
        object.child("spec").list_mut("ports")[index].set("nodePort", number);
    }
    claim_health_check_port(object, &held_ports(old), &mut claim)?;
    Ok(claim.finish())
}

/// Named ports, in their order. A number may appear twice if the port is the same and the protocol is not.
fn claim_named_ports(scope: &Scope<'_>, object: &Tree, held: &[i64], claim: &mut Claim<'_>) -> Result<(), Status> {
    // Validation rejects a node port in a service type without node ports.
    if !matches!(object.str("spec.type"), "NodePort" | "LoadBalancer") {
        return Ok(());
    }
    let mut seen: Vec<(i64, i64)> = Vec::new();
    for (index, port) in object.list("spec.ports").iter().enumerate() {
        let Some(number) = port.int("nodePort").filter(|number| *number != 0) else { continue };
        let pair = (port.int("port").unwrap_or(0), number);
        if held.contains(&number) || seen.contains(&pair) {
            continue;
        }
        seen.push(pair);
        if let Err(why) = claim.take(number) {
            let mut errors = Errors::new();
            errors.invalid(&SPEC.field("ports").index(index).field("nodePort"), number, &why.to_string());
            refuse(scope, object, &errors)?;
        }
    }
    Ok(())
}

fn claim_health_check_port(object: &mut Tree, held: &[i64], claim: &mut Claim<'_>) -> Result<(), Status> {
    if allocation::needs_new_health_check_node_port(object) {
        let failed = |why: PortError| Status::internal(format!("failed to allocate a HealthCheck NodePort 0: {why}"));
        let number = claim.take_next().map_err(failed)?;
        object.child("spec").set("healthCheckNodePort", number);
        return Ok(());
    }
    let named = object.int("spec.healthCheckNodePort").filter(|number| *number != 0 && !held.contains(number));
    let Some(number) = named.filter(|_| service::needs_health_check_node_port(object)) else { return Ok(()) };
    claim
        .take(number)
        .map_err(|why| Status::internal(format!("failed to allocate requested HealthCheck NodePort {number}: {why}")))
}

/// The IPAddress object of an address.
fn address_write(scope: &Scope<'_>, ip: IpAddr, service: &str) -> Result<StoreWrite, Status> {
    let name = ip.to_string();
    let resource = scope
        .registry
        .storage
        .resources
        .find("networking.k8s.io", "v1", "ipaddresses")
        .ok_or_else(|| Status::internal("IPAddress is not served"))?;
    let user = system_user();
    let mut object = address_object(scope, &name, family(ip.is_ipv4()), service);
    let scope = Scope { resource: &resource, user: &user, namespace: "", subresource: "", ..*scope };
    let options = WriteOptions {
        dry_run: false,
        field_manager: "kube-apiserver".to_string(),
        validation: Validation::Ignore,
        force: false,
    };
    scope.own_fields(None, &mut object, &options);
    Ok(scope.put(&name, &object, Precondition::Absent))
}

fn address_object(scope: &Scope<'_>, name: &str, family: &str, service: &str) -> Tree {
    tree! {
        "kind" => "IPAddress",
        "apiVersion" => "networking.k8s.io/v1",
        "metadata" => tree! {
            "name" => name,
            "uid" => crate::common::ids::uid(),
            "creationTimestamp" => api::time::format_seconds(scope.now),
            "labels" => tree! {
                "ipaddress.kubernetes.io/ip-family" => family,
                "ipaddress.kubernetes.io/managed-by" => "ipallocator.k8s.io",
            },
        },
        "spec" => tree! {
            "parentRef" => tree! { "resource" => "services", "namespace" => scope.namespace, "name" => service },
        },
    }
}

/// The deletion of an address's object, if it is this service's.
fn address_delete(scope: &Scope<'_>, ip: &str, service: &str) -> Option<StoreWrite> {
    let name = api::validation::parse_ip(ip)?.to_string();
    let resource = scope.registry.storage.resources.find("networking.k8s.io", "v1", "ipaddresses")?;
    let item = resource.cache.as_ref()?.get(&name)?;
    let object = item.tree();
    let parent = object.at("spec.parentRef");
    if parent.str("namespace") != scope.namespace || parent.str("name") != service {
        return None;
    }
    let scope = Scope { resource: &resource, namespace: "", subresource: "", ..*scope };
    Some(scope.bare(&name, Precondition::Revision(item.revision)))
}
