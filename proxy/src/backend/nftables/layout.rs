//! The sets and maps of a table.

use network::nft::{Kind, MapOf, Set};

use crate::model::Family;

/// A set or map whose elements belong to ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum SetId {
    /// Endpoints by group and number. First, so that no group is visible before its endpoints.
    Endpoints,
    /// The endpoints of groups with affinity.
    Members,
    /// Endpoints of clients by group and source; filled by packets.
    Affinity,
    /// Groups by cluster IP, protocol and port.
    Services,
    /// Groups of all nodes by external address, protocol and port.
    External,
    /// Groups of this node by external address, protocol and port.
    ExternalLocal,
    /// Groups of all nodes by protocol and node port.
    NodePorts,
    /// Groups of this node by protocol and node port.
    NodePortsLocal,
    /// External addresses with the policy Local.
    LocalPolicy,
    /// Node ports with the policy Local.
    LocalPolicyPorts,
    /// Addresses without endpoints.
    Reject,
    /// Addresses without endpoints on this node.
    Drop,
    /// Node ports without endpoints.
    RejectPorts,
    /// Node ports without endpoints on this node.
    DropPorts,
    /// All cluster IPs.
    ClusterIps,
    /// Endpoints of this node, as source and destination.
    Hairpin,
    /// Addresses of load balancers that only some sources may use.
    Firewalled,
    /// These sources, by address, protocol and port.
    Sources,
}

impl SetId {
    pub(super) const ALL: [SetId; 18] = {
        use SetId::*;
        [
            Endpoints,
            Members,
            Affinity,
            Services,
            External,
            ExternalLocal,
            NodePorts,
            NodePortsLocal,
            LocalPolicy,
            LocalPolicyPorts,
            Reject,
            Drop,
            RejectPorts,
            DropPorts,
            ClusterIps,
            Hairpin,
            Firewalled,
            Sources,
        ]
    };

    pub(super) fn name(self) -> &'static str {
        match self {
            SetId::Endpoints => "endpoints",
            SetId::Members => "members",
            SetId::Affinity => "affinity",
            SetId::Services => "services",
            SetId::External => "external",
            SetId::ExternalLocal => "external-local",
            SetId::NodePorts => "node-ports",
            SetId::NodePortsLocal => "node-ports-local",
            SetId::LocalPolicy => "local-policy",
            SetId::LocalPolicyPorts => "local-policy-ports",
            SetId::Reject => "reject",
            SetId::Drop => "drop",
            SetId::RejectPorts => "reject-ports",
            SetId::DropPorts => "drop-ports",
            SetId::ClusterIps => "cluster-ips",
            SetId::Hairpin => "hairpin",
            SetId::Firewalled => "firewalled",
            SetId::Sources => "sources",
        }
    }

    /// The map from count and timeout to the chain that chooses an endpoint, for maps whose values are groups.
    pub(super) fn pickers(self) -> Option<&'static str> {
        match self {
            SetId::Services => Some("pick-services"),
            SetId::External => Some("pick-external"),
            SetId::ExternalLocal => Some("pick-external-local"),
            SetId::NodePorts => Some("pick-node-ports"),
            SetId::NodePortsLocal => Some("pick-node-ports-local"),
            _ => None,
        }
    }

    /// Whether the key is protocol and port, without an address.
    pub(super) fn is_by_port(self) -> bool {
        use SetId::{DropPorts, LocalPolicyPorts, NodePorts, NodePortsLocal, RejectPorts};
        matches!(self, NodePorts | NodePortsLocal | LocalPolicyPorts | RejectPorts | DropPorts)
    }

    pub(super) fn is_map(self) -> bool {
        matches!(self, SetId::Endpoints | SetId::Affinity) || self.pickers().is_some()
    }

    /// Whether an element is a range of keys.
    pub(super) fn is_range(self) -> bool {
        self == SetId::Sources
    }
}

/// The greatest number of clients with affinity; others are not remembered.
const MOST_CLIENTS: u32 = 1 << 18;

/// Sets that depend on the node only.
pub(super) const NODE_ADDRESSES: &str = "node-addresses";
pub(super) const LOCAL_SOURCES: &str = "local-sources";
pub(super) const SERVICE_CIDRS: &str = "service-cidrs";

/// Calls `put` with each set and map of a table.
pub(super) fn each_set(family: Family, mut put: impl FnMut(&Set<'_>)) {
    use Kind::{Mark, Port, Protocol};
    let ip = match family {
        Family::V4 => Kind::Ipv4,
        Family::V6 => Kind::Ipv6,
    };
    let (address_key, port_key) = ([ip, Protocol, Port], [Protocol, Port]);
    for id in SetId::ALL {
        let key: &[Kind] = match id {
            SetId::Endpoints => &[Mark, Mark],
            SetId::Members => &[Mark, ip, Port],
            SetId::Affinity => &[Mark, ip],
            SetId::ClusterIps => &[ip],
            SetId::Hairpin => &[ip, ip],
            SetId::Sources => &[ip, Protocol, Port, ip],
            by_port if by_port.is_by_port() => &port_key,
            _ => &address_key,
        };
        let endpoint = [ip, Port];
        let data: Option<&[Kind]> = match id {
            SetId::Endpoints | SetId::Affinity => Some(&endpoint),
            group if group.pickers().is_some() => Some(&[Mark, Mark, Mark]),
            _ => None,
        };
        put(&Set {
            name: id.name(),
            key,
            data: data.map(MapOf::Values),
            interval: id.is_range(),
            dynamic: (id == SetId::Affinity).then_some(MOST_CLIENTS),
        });
        if let Some(name) = id.pickers() {
            put(&Set::verdicts(name, &[Mark, Mark]));
        }
    }
    put(&Set::of(NODE_ADDRESSES, &[ip]));
    put(&Set::intervals(LOCAL_SOURCES, &[ip]));
    put(&Set::intervals(SERVICE_CIDRS, &[ip]));
}
