//! The records of a question, by the specification and, where that is silent, as CoreDNS' kubernetes plugin answers.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use super::index::Index;
use super::objects::{Endpoint, Port, Service, ServiceKind, undashed};
use super::request::{Part, Request};
use super::{PodMode, reverse};
use crate::message::{Name, Question, Record, Soa, Srv, Type};

/// The version of the specification, and how long it may be cached.
const SCHEMA_VERSION: (&str, u32) = ("1.1.0", 28800);
/// The Service of the cluster DNS, which is the name server of the zone.
const DNS_SERVICE: (&str, &str) = ("kube-dns", "kube-system");
/// A SOA record is not cached for longer.
const MAX_SOA_TTL: u32 = 300;

/// How the names of a cluster are answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// All zones, such as `cluster.local` and `in-addr.arpa`.
    pub origins: Vec<Name>,
    /// Which pod addresses are answered.
    pub pods: PodMode,
    /// The TTL of records, in seconds.
    pub ttl: u32,
    /// The only namespaces that exist, if there are any.
    pub namespaces: BTreeSet<Box<str>>,
    /// Whether endpoints without a hostname are named after their pods.
    pub with_pod_names: bool,
    /// Whether EndpointSlices are watched.
    pub with_endpoints: bool,
    /// Whether Services without ready endpoints do not exist.
    pub ignores_empty_services: bool,
}

impl Default for Zone {
    fn default() -> Zone {
        Zone {
            origins: Vec::new(),
            pods: PodMode::Disabled,
            ttl: 5,
            namespaces: BTreeSet::new(),
            with_pod_names: false,
            with_endpoints: true,
            ignores_empty_services: false,
        }
    }
}

/// The response to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Records.
    Records { answers: Vec<Record>, additionals: Vec<Record> },
    /// The name is an alias: the CNAME record, and the name to resolve next.
    Alias(Record, Name),
    /// The name exists, but has no record of this type.
    NoData,
    /// The name does not exist.
    NameError,
    /// The question is not answered here.
    Refused,
}

/// The addresses of a name.
enum LookupResult<'a> {
    Nothing,
    /// The name exists without addresses.
    Empty,
    Alias(Option<&'a Name>),
    Hosts(Vec<Host<'a>>),
}

/// An address, with the requested ports.
struct Host<'a> {
    address: IpAddr,
    endpoint: Option<&'a Endpoint>,
    ports: Vec<&'a Port>,
}

impl Zone {
    /// The longest zone that a name is in.
    pub fn origin_of(&self, name: &Name) -> Option<&Name> {
        let within = self.origins.iter().filter(|origin| name.is_within(origin));
        within.max_by_key(|origin| origin.as_wire().len())
    }

    /// The first zone that is no reverse zone: all names of the cluster are in it.
    pub fn primary(&self) -> Option<&Name> {
        self.origins.iter().find(|origin| !is_reverse(origin))
    }

    /// The SOA record of a zone.
    pub fn soa(&self, origin: &Name, index: &Index) -> Record {
        let below = |labels: &[&str]| Name::below(labels.iter().copied(), origin).unwrap_or_else(|| origin.clone());
        let soa = Soa {
            mname: below(&["ns", "dns"]),
            rname: below(&["hostmaster"]),
            serial: index.modified(),
            refresh: 7200,
            retry: 1800,
            expire: 86400,
            minimum: self.ttl,
        };
        Record::soa(origin.clone(), self.ttl.min(MAX_SOA_TTL), soa)
    }

    fn has_namespace(&self, index: &Index, namespace: &str) -> bool {
        (self.namespaces.is_empty() || self.namespaces.contains(namespace)) && index.has_namespace(namespace)
    }
}

pub(super) fn is_reverse(origin: &Name) -> bool {
    let lower = origin.to_lower();
    lower.to_string().ends_with(".arpa.")
}

/// Answers a question about a name in one of the zones; `servers` are the addresses of this server.
pub fn answer(zone: &Zone, origin: &Name, index: &Index, servers: &[IpAddr], question: &Question) -> Answer {
    let (name, ttl) = (&question.name, zone.ttl);
    if matches!(question.qtype, Type::AXFR | Type::IXFR) {
        return Answer::Refused;
    }
    if is_reverse(origin) {
        return answer_reverse(zone, origin, index, question);
    }
    let lower = name.to_lower();
    let labels = lower.labels_within(origin).unwrap_or_default();
    let labels: Option<Vec<&str>> = labels.into_iter().map(|label| std::str::from_utf8(label).ok()).collect();
    let request = labels.as_deref().map_or(Request::Nothing, Request::parse);
    match (&request, question.qtype) {
        (Request::Empty, Type::SOA) if name.matches(origin) => records(vec![zone.soa(origin, index)]),
        (Request::Empty, Type::NS) if name.matches(origin) => name_servers(zone, origin, index, servers, name),
        (Request::Version, Type::TXT) => records(vec![Record::txt(name.clone(), SCHEMA_VERSION.1, SCHEMA_VERSION.0)]),
        (Request::NameServer, qtype) => {
            let (_, addresses) = server_addresses(origin, index, servers);
            records_of_family(addresses.into_iter(), qtype, name, ttl)
        }
        _ => answer_found(zone, origin, find(zone, index, &request), question),
    }
}

fn answer_found(zone: &Zone, origin: &Name, found: LookupResult, question: &Question) -> Answer {
    let name = &question.name;
    match (found, question.qtype) {
        (LookupResult::Nothing | LookupResult::Alias(None), _) => Answer::NameError,
        (LookupResult::Alias(Some(target)), Type::CNAME) => {
            records(vec![Record::cname(name.clone(), zone.ttl, target.clone())])
        }
        (LookupResult::Alias(Some(target)), _) if !target.matches(name) => {
            Answer::Alias(Record::cname(name.clone(), zone.ttl, target.clone()), target.clone())
        }
        (LookupResult::Empty | LookupResult::Alias(_), _) => Answer::NoData,
        (LookupResult::Hosts(hosts), Type::SRV) => srv_records(zone, origin, &hosts, question),
        (LookupResult::Hosts(hosts), qtype) => {
            records_of_family(hosts.iter().map(|host| host.address), qtype, name, zone.ttl)
        }
    }
}

/// Records, or their absence.
fn records(answers: Vec<Record>) -> Answer {
    match answers.is_empty() {
        true => Answer::NoData,
        false => Answer::Records { answers, additionals: Vec::new() },
    }
}

/// The addresses of the family of the requested type, each once.
fn records_of_family(addresses: impl Iterator<Item = IpAddr>, qtype: Type, name: &Name, ttl: u32) -> Answer {
    let is_requested = |address: &IpAddr| match qtype {
        Type::A => address.is_ipv4(),
        Type::AAAA => address.is_ipv6(),
        _ => false,
    };
    let mut seen = HashSet::new();
    let addresses = addresses.filter(|address| is_requested(address) && seen.insert(*address));
    records(addresses.map(|address| Record::address(name.clone(), ttl, address)).collect())
}

fn find<'a>(zone: &Zone, index: &'a Index, request: &Request) -> LookupResult<'a> {
    match request {
        Request::Empty => LookupResult::Empty,
        Request::Namespace(namespace) if zone.has_namespace(index, namespace) => LookupResult::Empty,
        Request::Pod { namespace, label } if zone.has_namespace(index, namespace) => {
            find_pod(zone, index, namespace, label)
        }
        Request::Service { namespace, service, part } if zone.has_namespace(index, namespace) => {
            find_service(zone, index, &format!("{service}.{namespace}"), *part)
        }
        _ => LookupResult::Nothing,
    }
}

fn find_pod<'a>(zone: &Zone, index: &Index, namespace: &str, label: &str) -> LookupResult<'a> {
    let Some(address) = undashed(label) else { return LookupResult::Nothing };
    let exists = match zone.pods {
        PodMode::Disabled => false,
        PodMode::Insecure => true,
        PodMode::Verified => index.pods_at(&address).iter().any(|pod| *pod.namespace == *namespace),
    };
    match exists {
        true => LookupResult::Hosts(vec![Host { address, endpoint: None, ports: Vec::new() }]),
        false => LookupResult::Nothing,
    }
}

fn find_service<'a>(zone: &Zone, index: &'a Index, key: &str, part: Part) -> LookupResult<'a> {
    let Some(service) = index.service(key) else { return LookupResult::Nothing };
    let is_empty = || index.slices(key).all(|slice| slice.endpoints.is_empty());
    let hosts = match (&service.kind, part) {
        (ServiceKind::ExternalName(target), Part::Whole) => return LookupResult::Alias(target.as_ref()),
        (ServiceKind::ExternalName(_), _) => return LookupResult::Nothing,
        (ServiceKind::ClusterIp(_), _) if zone.ignores_empty_services && is_empty() => return LookupResult::Nothing,
        (ServiceKind::Headless, _) | (_, Part::Endpoint(_)) => endpoint_hosts(zone, index, key, part),
        (ServiceKind::ClusterIp(_), _) => cluster_ip_hosts(service, part),
    };
    if hosts.is_empty() { LookupResult::Nothing } else { LookupResult::Hosts(hosts) }
}

fn cluster_ip_hosts<'a>(service: &'a Service, part: Part) -> Vec<Host<'a>> {
    let ports = matching(&service.ports, part);
    if ports.is_empty() {
        return Vec::new();
    }
    let host = |address: &IpAddr| Host { address: *address, endpoint: None, ports: ports.clone() };
    service.cluster_ips().iter().map(host).collect()
}

fn endpoint_hosts<'a>(zone: &Zone, index: &'a Index, key: &str, part: Part) -> Vec<Host<'a>> {
    let mut hosts = Vec::new();
    let slices = index.slices(key).filter(|_| zone.with_endpoints);
    for slice in slices {
        let ports = matching(&slice.ports, part);
        let is_requested = |endpoint: &&Endpoint| match part {
            Part::Endpoint(label) => endpoint.has_label(label, zone.with_pod_names),
            Part::Whole | Part::Port { .. } => !ports.is_empty(),
        };
        let requested = slice.endpoints.iter().filter(is_requested);
        hosts.extend(requested.map(|endpoint| Host {
            address: endpoint.address,
            endpoint: Some(endpoint),
            ports: ports.clone(),
        }));
    }
    hosts
}

fn matching<'a>(ports: &'a [Port], part: Part) -> Vec<&'a Port> {
    ports.iter().filter(|port| part.has_port(&port.name, port.protocol)).collect()
}

/// One SRV record for each target and port, and the addresses of the targets.
fn srv_records(zone: &Zone, origin: &Name, hosts: &[Host], question: &Question) -> Answer {
    let count: usize = hosts.iter().map(|host| host.ports.len()).sum();
    let weight = u16::try_from(100 / count.max(1)).unwrap_or(1).max(1);
    let (mut answers, mut additionals) = (Vec::new(), Vec::new());
    let (mut targets, mut addresses) = (HashSet::new(), HashSet::new());
    let service = service_name(origin, &question.name);
    for host in hosts {
        let label = host.endpoint.map(|endpoint| endpoint.label(zone.with_pod_names));
        let target = label.map_or_else(|| Some(service.clone()), |label| Name::below([label.as_str()], &service));
        let Some(target) = target else { continue };
        let numbers = host.ports.iter().filter_map(|port| port.number);
        let before = answers.len();
        for port in numbers {
            if targets.insert((target.clone(), port)) {
                let srv = Srv { priority: 0, weight, port, target: target.clone() };
                answers.push(Record::srv(question.name.clone(), zone.ttl, srv));
            }
        }
        let is_used = answers.len() > before || targets.iter().any(|(other, _)| *other == target);
        if is_used && addresses.insert((target.clone(), host.address)) {
            additionals.push(Record::address(target, zone.ttl, host.address));
        }
    }
    if answers.is_empty() { Answer::NoData } else { Answer::Records { answers, additionals } }
}

/// `SERVICE.NAMESPACE.svc.ZONE` of a name below it.
fn service_name(origin: &Name, name: &Name) -> Name {
    let extra = name.label_count().saturating_sub(origin.label_count() + 3);
    (0..extra).fold(name.clone(), |name, _| name.parent().unwrap_or(name))
}

/// The name and the addresses of the server: those of its Service, or its own.
fn server_addresses(origin: &Name, index: &Index, servers: &[IpAddr]) -> (Option<Name>, Vec<IpAddr>) {
    let (name, namespace) = DNS_SERVICE;
    let service = index.service(&format!("{name}.{namespace}")).filter(|service| !service.cluster_ips().is_empty());
    match service {
        Some(service) => (Name::below([name, namespace, "svc"], origin), service.cluster_ips().to_vec()),
        None => (Name::below(["ns", "dns"], origin), servers.to_vec()),
    }
}

fn name_servers(zone: &Zone, origin: &Name, index: &Index, servers: &[IpAddr], name: &Name) -> Answer {
    let (Some(server), addresses) = server_addresses(origin, index, servers) else { return Answer::NoData };
    let additionals = addresses.iter().map(|address| Record::address(server.clone(), zone.ttl, *address)).collect();
    Answer::Records { answers: vec![Record::ns(name.clone(), zone.ttl, server)], additionals }
}

fn answer_reverse(zone: &Zone, origin: &Name, index: &Index, question: &Question) -> Answer {
    let name = &question.name;
    if name.matches(origin) {
        let is_soa = question.qtype == Type::SOA;
        return records(is_soa.then(|| zone.soa(origin, index)).into_iter().collect());
    }
    let Some(address) = reverse::address_of(name) else { return Answer::NameError };
    let targets = names_of_address(zone, index, &address);
    match (targets.is_empty(), question.qtype) {
        (true, _) => Answer::NameError,
        (false, Type::PTR) => {
            records(targets.into_iter().map(|target| Record::ptr(name.clone(), zone.ttl, target)).collect())
        }
        (false, _) => Answer::NoData,
    }
}

/// The names of an address: of the Service, or else of all endpoints.
fn names_of_address(zone: &Zone, index: &Index, address: &IpAddr) -> Vec<Name> {
    let Some(svc) = zone.primary().and_then(|primary| Name::below(["svc"], primary)) else { return Vec::new() };
    let is_shown = |key: &str| {
        let namespace = key.split_once('.').map_or("", |(_, namespace)| namespace);
        zone.namespaces.is_empty() || zone.has_namespace(index, namespace)
    };
    if let Some(key) = index.services_at(address).iter().find(|key| is_shown(key)) {
        return Name::below(key.split('.'), &svc).into_iter().collect();
    }
    let mut names = Vec::new();
    let keys: BTreeSet<_> = index.endpoints_at(address).iter().filter(|key| is_shown(key)).collect();
    for key in keys {
        let endpoints = index.slices(key).flat_map(|slice| &slice.endpoints);
        for endpoint in endpoints.filter(|endpoint| endpoint.address == *address) {
            let label = endpoint.label(zone.with_pod_names);
            names.extend(Name::below(std::iter::once(label.as_str()).chain(key.split('.')), &svc));
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}
