//! The fields of objects that the index keeps.

use std::net::IpAddr;
use std::sync::Arc;

use api::Tree;

use crate::message::Name;

/// The label of an EndpointSlice that names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// A label of a name has at most so many bytes.
const MAX_LABEL: usize = 63;

/// `name.namespace`, as in the DNS.
pub(super) fn service_key(namespace: &str, name: &str) -> Arc<str> {
    Arc::from(format!("{name}.{namespace}"))
}

/// A Service.
#[derive(Debug, PartialEq, Eq)]
pub struct Service {
    /// `name.namespace`.
    pub key: Arc<str>,
    /// How its name resolves.
    pub kind: ServiceKind,
    /// The ports that have SRV records.
    pub ports: Box<[Port]>,
}

/// How the name of a Service resolves.
#[derive(Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// To its cluster IPs.
    ClusterIp(Box<[IpAddr]>),
    /// To the addresses of its endpoints.
    Headless,
    /// None if the name is invalid or an address, which has no CNAME.
    ExternalName(Option<Name>),
}

/// A port of a Service or of a slice's endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The name of the port, or "".
    pub name: Box<str>,
    /// In lower case.
    pub protocol: &'static str,
    /// None if the endpoints have no port.
    pub number: Option<u16>,
}

impl Port {
    fn read(port: &Tree) -> Port {
        let number = port.int("port").and_then(|number| u16::try_from(number).ok());
        Port { name: port.str("name").into(), protocol: protocol(port.str("protocol")), number }
    }

    /// An object without ports has records, but no SRV records.
    fn read_all(ports: &[Tree]) -> Box<[Port]> {
        match ports {
            [] => [Port { name: "".into(), protocol: "", number: None }].into(),
            ports => ports.iter().map(Port::read).collect(),
        }
    }
}

fn protocol(text: &str) -> &'static str {
    match text {
        "UDP" => "udp",
        "SCTP" => "sctp",
        _ => "tcp",
    }
}

impl Service {
    /// Reads a Service.
    pub fn read(namespace: &str, name: &str, object: &Tree) -> Service {
        let spec = object.at("spec");
        let kind = match spec.str("type") {
            "ExternalName" => ServiceKind::ExternalName(external_name(spec.str("externalName"))),
            _ => cluster_ips(spec),
        };
        Service { key: service_key(namespace, name), kind, ports: Port::read_all(spec.list("ports")) }
    }

    /// The cluster IPs; none of other Services.
    pub fn cluster_ips(&self) -> &[IpAddr] {
        match &self.kind {
            ServiceKind::ClusterIp(addresses) => addresses,
            ServiceKind::Headless | ServiceKind::ExternalName(_) => &[],
        }
    }
}

fn external_name(text: &str) -> Option<Name> {
    let is_name = !text.is_empty() && text.parse::<IpAddr>().is_err();
    is_name.then(|| Name::parse(text).ok()).flatten()
}

/// A Service whose address is not allocated yet is treated as headless, as CoreDNS does.
fn cluster_ips(spec: &Tree) -> ServiceKind {
    let listed = spec.list("clusterIPs").iter().filter_map(Tree::as_str);
    let addresses: Box<[IpAddr]> = match spec.list("clusterIPs") {
        [] => spec.str("clusterIP").parse().ok().into_iter().collect(),
        _ => listed.filter_map(|address| address.parse().ok()).collect(),
    };
    if addresses.is_empty() { ServiceKind::Headless } else { ServiceKind::ClusterIp(addresses) }
}

/// The ready endpoints of an EndpointSlice.
#[derive(Debug, PartialEq, Eq)]
pub struct Slice {
    /// The key of the Service.
    pub service: Arc<str>,
    /// The ready endpoints.
    pub endpoints: Box<[Endpoint]>,
    /// The ports of the endpoints.
    pub ports: Box<[Port]>,
}

/// A ready endpoint.
#[derive(Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub address: IpAddr,
    /// Its hostname, if it has one.
    pub hostname: Option<Box<str>>,
    /// The name of its pod, if it is needed and short enough for a label.
    pub target: Option<Box<str>>,
}

impl Slice {
    /// None if it belongs to no Service.
    pub fn read(namespace: &str, object: &Tree, with_pod_names: bool) -> Option<Slice> {
        let service = object.map("metadata.labels").get(SERVICE_NAME).and_then(Tree::as_str)?;
        let ready = object.list("endpoints").iter().filter(|endpoint| is_ready(endpoint));
        let endpoints = ready.flat_map(|endpoint| Endpoint::read(endpoint, with_pod_names));
        Some(Slice {
            service: service_key(namespace, service),
            endpoints: endpoints.collect(),
            ports: Port::read_all(object.list("ports")),
        })
    }
}

/// The controller sets ready for Services with publishNotReadyAddresses too; an unknown state counts as ready.
fn is_ready(endpoint: &Tree) -> bool {
    endpoint.at("conditions.ready").as_bool().unwrap_or(true)
}

impl Endpoint {
    fn read(endpoint: &Tree, with_pod_names: bool) -> Vec<Endpoint> {
        let text = |path: &str| Some(endpoint.str(path)).filter(|text| !text.is_empty() && text.len() <= MAX_LABEL);
        let addresses = endpoint.list("addresses").iter().filter_map(Tree::as_str);
        let of = |address: IpAddr| Endpoint {
            address,
            hostname: text("hostname").map(Into::into),
            target: text("targetRef.name").filter(|_| with_pod_names).map(Into::into),
        };
        addresses.filter_map(|address| address.parse().ok()).map(of).collect()
    }

    /// The first label of the endpoint's name.
    pub fn label(&self, with_pod_names: bool) -> String {
        let target = self.target.as_ref().filter(|_| with_pod_names);
        match self.hostname.as_ref().or(target) {
            Some(name) => name.to_string(),
            None => dashed(self.address),
        }
    }

    /// Whether a label of a question is the endpoint's.
    pub fn has_label(&self, label: &str, with_pod_names: bool) -> bool {
        let target = self.target.as_ref().filter(|_| with_pod_names);
        match self.hostname.as_ref().or(target) {
            Some(name) => **name == *label,
            None => undashed(label) == Some(self.address) && dashed(self.address) == label,
        }
    }
}

/// `10-0-0-1`, or `fd00--1`; a label does not end in a dash.
fn dashed(address: IpAddr) -> String {
    let text = address.to_string().replace(['.', ':'], "-");
    if text.ends_with('-') { text + "0" } else { text }
}

/// The address in a label.
pub(super) fn undashed(label: &str) -> Option<IpAddr> {
    let is_v4 = label.bytes().filter(|byte| *byte == b'-').count() == 3 && !label.contains("--");
    match is_v4 {
        true => label.replace('-', ".").parse().ok(),
        false => label.replace('-', ":").parse().ok(),
    }
}

/// A pod with an address of its own.
#[derive(Debug, PartialEq, Eq)]
pub struct Pod {
    /// The namespace of the pod.
    pub namespace: Arc<str>,
    /// Its addresses.
    pub addresses: Box<[IpAddr]>,
    /// Whether its search path is the usual one of its namespace.
    pub is_cluster_first: bool,
}

impl Pod {
    /// None without addresses, after the pod has ended, or on the host's network.
    pub fn read(namespace: &str, object: &Tree) -> Option<Pod> {
        let (spec, status) = (object.at("spec"), object.at("status"));
        if spec.bool("hostNetwork") || matches!(status.str("phase"), "Succeeded" | "Failed") {
            return None;
        }
        let addresses = status.list("podIPs").iter().map(|entry| entry.str("ip"));
        let addresses: Box<[IpAddr]> = addresses.filter_map(|address| address.parse().ok()).collect();
        let is_cluster_first = matches!(spec.str("dnsPolicy"), "" | "ClusterFirst") && !spec.has("dnsConfig");
        (!addresses.is_empty()).then(|| Pod { namespace: Arc::from(namespace), addresses, is_cluster_first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_labels() {
        let check = |address: &str, want: &str| {
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(dashed(address), want);
            let endpoint = Endpoint { address, hostname: None, target: Some("pod".into()) };
            assert!(endpoint.has_label(want, false) && !endpoint.has_label("pod", false), "{want}");
            assert!(endpoint.has_label("pod", true) && !endpoint.has_label(want, true), "{want}");
            assert_eq!(endpoint.label(false), want);
        };
        check("10.244.0.5", "10-244-0-5");
        check("fd00::5", "fd00--5");
        check("fd00:0:0:1::", "fd00-0-0-1--0");
        let endpoint = Endpoint { address: [10, 0, 0, 1].into(), hostname: Some("db-0".into()), target: None };
        assert!(endpoint.has_label("db-0", true) && !endpoint.has_label("10-0-0-1", true));
        assert_eq!((undashed("x"), undashed("10-0-0"), undashed("1-2-3-4")), (None, None, Some([1, 2, 3, 4].into())));
    }
}
