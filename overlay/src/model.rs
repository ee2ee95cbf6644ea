//! Nodes as plain values.

use std::net::IpAddr;

use api::{Map, Str, Tree};
use network::netlink::{Mac, mac_text, parse_mac};
use stdx::cidr::IpNet;

use crate::config::Backend;

/// flannel's annotations, without their prefix, of IPv4 and of IPv6.
const PREFIX: &str = "flannel.alpha.coreos.com/";
const PUBLIC_IP: [&str; 2] = ["public-ip", "public-ipv6"];
const BACKEND_DATA: [&str; 2] = ["backend-data", "backend-v6-data"];
const BACKEND_TYPE: &str = "backend-type";
const MANAGED: &str = "kube-subnet-manager";

/// A node of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The range of the node's pods.
    pub pod_cidr: IpNet,
    /// The address at which other nodes reach it.
    pub host: IpAddr,
    /// The MAC address of its VXLAN device; None until the node has reported it.
    pub mac: Option<Mac>,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: Str,
    /// When it was created. What two nodes claim belongs to the older one.
    pub created: Str,
    /// For each family that it has pods and an address of.
    pub endpoints: Vec<Endpoint>,
}

fn slot(is_ipv4: bool) -> usize {
    usize::from(!is_ipv4)
}

impl Peer {
    /// Reads a Node.
    pub fn read(node: &Tree) -> Peer {
        let cidrs = node.list("spec.podCIDRs").iter().filter_map(|cidr| cidr.as_str()?.parse::<IpNet>().ok());
        let endpoint = |pod_cidr: IpNet| {
            let is_ipv4 = pod_cidr.is_ipv4();
            Some(Endpoint { pod_cidr: pod_cidr.network(), host: host_address(node, is_ipv4)?, mac: mac(node, is_ipv4) })
        };
        Peer {
            name: node.str("metadata.name").into(),
            created: node.str("metadata.creationTimestamp").into(),
            endpoints: cidrs.filter_map(endpoint).collect(),
        }
    }

    /// The endpoint of a family.
    pub fn endpoint(&self, is_ipv4: bool) -> Option<&Endpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.pod_cidr.is_ipv4() == is_ipv4)
    }
}

fn annotation<'a>(node: &'a Tree, name: &str) -> &'a str {
    node.map("metadata.annotations").str(&format!("{PREFIX}{name}"))
}

/// The address that flannel has published, or else the node's internal one.
fn host_address(node: &Tree, is_ipv4: bool) -> Option<IpAddr> {
    let parse = |text: &str| text.parse::<IpAddr>().ok().filter(|address| address.is_ipv4() == is_ipv4);
    parse(annotation(node, PUBLIC_IP[slot(is_ipv4)])).or_else(|| {
        let addresses = node.list("status.addresses").iter();
        let mut internal = addresses.filter(|address| address.str("type") == "InternalIP");
        internal.find_map(|address| parse(address.str("address")))
    })
}

fn mac(node: &Tree, is_ipv4: bool) -> Option<Mac> {
    let data: Tree = api::json::decode(annotation(node, BACKEND_DATA[slot(is_ipv4)]).as_bytes()).ok()?;
    parse_mac(data.str("VtepMAC"))
}

/// The MAC address of a node's VXLAN device: it stays the same when the device is created again.
pub fn own_mac(node: &str, vni: u32, is_ipv4: bool) -> Mac {
    let family = if is_ipv4 { "4" } else { "6" };
    let text = format!("{node}/{vni}/{family}");
    let hash = stdx::fnv::fnv1a_64(text.bytes()).to_be_bytes();
    // Locally administered, and not a group.
    [(hash[0] & 0xfc) | 0x02, hash[1], hash[2], hash[3], hash[4], hash[5]]
}

/// The annotations by which other nodes find this one; None where the Node has them.
pub fn annotations(node: &Tree, backend: Backend) -> Option<Map> {
    let own = Peer::read(node);
    let mut wanted = Map::new();
    let kind = if backend == Backend::HostGw { "host-gw" } else { "vxlan" };
    let mut set = |name: &str, value: String| drop(wanted.insert(format!("{PREFIX}{name}"), value));
    set(BACKEND_TYPE, kind.to_string());
    set(MANAGED, "true".to_string());
    for endpoint in &own.endpoints {
        let is_ipv4 = endpoint.pod_cidr.is_ipv4();
        let at = slot(is_ipv4);
        // The address that the kubelet reports now, not an annotation of an earlier start.
        let mut plain = node.clone();
        plain.child("metadata").remove("annotations");
        let Some(host) = host_address(&plain, is_ipv4) else { continue };
        set(PUBLIC_IP[at], host.to_string());
        let data = match backend {
            Backend::HostGw => "null".to_string(),
            Backend::Vxlan { vni, .. } => {
                let mac = mac_text(own_mac(node.str("metadata.name"), vni, is_ipv4));
                format!("{{\"VNI\":{vni},\"VtepMAC\":\"{mac}\"}}")
            }
        };
        set(BACKEND_DATA[at], data);
    }
    let known = node.map("metadata.annotations");
    let is_missing = wanted.iter().any(|(name, value)| known.str(name) != value.as_str().unwrap_or_default());
    is_missing.then_some(wanted)
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    fn node(annotations: impl Into<Tree>) -> Tree {
        let annotations: Tree = annotations.into();
        tree! {
            "metadata" => tree! {
                "name" => "n1", "creationTimestamp" => "2026-01-01T00:00:00Z", "annotations" => annotations,
            },
            "spec" => tree! { "podCIDRs" => list!["10.42.3.0/24", "fd00:42:0:3::/64", "nonsense"] },
            "status" => tree! { "addresses" => list![
                tree! { "type" => "Hostname", "address" => "n1" },
                tree! { "type" => "InternalIP", "address" => "192.0.2.3" },
            ] },
        }
    }

    #[test]
    fn reads_nodes_with_and_without_annotations() {
        let plain = Peer::read(&node(tree! {}));
        assert_eq!((plain.name.as_str(), plain.endpoints.len()), ("n1", 1), "the other family has no address");
        let endpoint = plain.endpoint(true).expect("an endpoint");
        assert_eq!((endpoint.host.to_string().as_str(), endpoint.mac), ("192.0.2.3", None));
        let of_flannel = Peer::read(&node(tree! {
            "flannel.alpha.coreos.com/public-ip" => "198.51.100.3",
            "flannel.alpha.coreos.com/backend-data" => r#"{"VNI":1,"VtepMAC":"0a:0b:0c:0d:0e:0f"}"#,
        }));
        let endpoint = of_flannel.endpoint(true).expect("an endpoint");
        assert_eq!(endpoint.host.to_string(), "198.51.100.3");
        assert_eq!(endpoint.mac, Some([10, 11, 12, 13, 14, 15]));
    }

    #[test]
    fn publishes_what_other_nodes_need_once() {
        let backend = Backend::Vxlan { vni: 1, port: 8472, direct: false };
        let wanted = annotations(&node(tree! {}), backend).expect("annotations");
        assert_eq!(wanted.str("flannel.alpha.coreos.com/public-ip"), "192.0.2.3");
        assert_eq!(wanted.str("flannel.alpha.coreos.com/backend-type"), "vxlan");
        let published = node(wanted.clone());
        assert_eq!(annotations(&published, backend), None);
        let read = Peer::read(&published);
        assert_eq!(read.endpoint(true).and_then(|endpoint| endpoint.mac), Some(own_mac("n1", 1, true)));
        // The machine has another address since.
        let mut moved = wanted;
        moved.insert("flannel.alpha.coreos.com/public-ip", "192.0.2.9");
        let renewed = annotations(&node(moved), backend).expect("annotations");
        assert_eq!(renewed.str("flannel.alpha.coreos.com/public-ip"), "192.0.2.3");
    }

    #[test]
    fn device_addresses_are_local_and_differ() {
        let (one, other) = (own_mac("n1", 1, true), own_mac("n2", 1, true));
        assert_ne!(one, other);
        assert_ne!(one, own_mac("n1", 1, false));
        assert_eq!(one[0] & 3, 2, "locally administered, not a group");
    }
}
