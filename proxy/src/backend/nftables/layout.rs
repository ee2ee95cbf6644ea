//! The sets and maps of a table.

use network::nft::{Kind, MapType, Set};

use crate::model::Family;

/// The names of the sets of destinations with up to 1, 2, 4 … endpoints.
macro_rules! class_names {
    ($($frontend:literal),*) => {
        [$(class_names!(@ $frontend; "1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1024", "2048", "4096",
            "8192", "16384", "32768", "65536", "131072")),*]
    };
    (@ $frontend:literal; $($size:literal),*) => { [$(concat!($frontend, "-", $size)),*] };
}

const CLASS_NAMES: [[&str; Class::COUNT]; 5] =
    class_names!["services", "external", "external-local", "node-ports", "node-ports-local"];

/// Destinations whose number of endpoints is at most a power of two, and more than half of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Class {
    pub(super) frontend: Frontend,
    /// The binary logarithm of the size.
    exponent: u8,
}

impl Class {
    const COUNT: usize = 18;

    /// The class for so many endpoints. Endpoints beyond the largest class are not used.
    pub(super) fn of(frontend: Frontend, endpoints: usize) -> Class {
        let exponent = endpoints.max(1).next_power_of_two().trailing_zeros() as usize;
        Class { frontend, exponent: exponent.min(Class::COUNT - 1) as u8 }
    }

    /// The number of endpoints that fit.
    pub(super) fn size(self) -> u32 {
        1 << self.exponent
    }

    /// The name of the set of its destinations.
    pub(super) fn set(self) -> &'static str {
        CLASS_NAMES[self.frontend as usize][usize::from(self.exponent)]
    }

    /// The name of the chain that chooses an endpoint.
    pub(super) fn chain(self) -> String {
        format!("pick-{}", self.set())
    }
}

/// A kind of destination: which chain forwards its packets, and which map has its endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Frontend {
    /// A cluster IP.
    Services,
    /// An external address, for endpoints of all nodes.
    External,
    /// An external address, for endpoints of this node.
    ExternalLocal,
    /// A node port, for endpoints of all nodes.
    NodePorts,
    /// A node port, for endpoints of this node.
    NodePortsLocal,
}

impl Frontend {
    pub(super) const ALL: [Frontend; 5] = [
        Frontend::Services,
        Frontend::External,
        Frontend::ExternalLocal,
        Frontend::NodePorts,
        Frontend::NodePortsLocal,
    ];

    /// The name of the chain that forwards packets.
    pub(super) fn chain(self) -> &'static str {
        match self {
            Frontend::Services => "forward-services",
            Frontend::External => "forward-external",
            Frontend::ExternalLocal => "forward-external-local",
            Frontend::NodePorts => "forward-node-ports",
            Frontend::NodePortsLocal => "forward-node-ports-local",
        }
    }

    /// The name of the map that leads destinations with session affinity to their chains.
    fn affinity(self) -> &'static str {
        match self {
            Frontend::Services => "services-affinity",
            Frontend::External => "external-affinity",
            Frontend::ExternalLocal => "external-local-affinity",
            Frontend::NodePorts => "node-ports-affinity",
            Frontend::NodePortsLocal => "node-ports-local-affinity",
        }
    }

    fn endpoints(self) -> &'static str {
        match self {
            Frontend::Services => "services-endpoints",
            Frontend::External => "external-endpoints",
            Frontend::ExternalLocal => "external-local-endpoints",
            Frontend::NodePorts => "node-ports-endpoints",
            Frontend::NodePortsLocal => "node-ports-local-endpoints",
        }
    }

    /// Whether the key is protocol and port, without an address.
    pub(super) fn is_by_port(self) -> bool {
        matches!(self, Frontend::NodePorts | Frontend::NodePortsLocal)
    }
}

/// A set or map whose elements belong to ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum SetId {
    /// Endpoints by destination and number.
    Endpoints(Frontend),
    /// Destinations by their number of endpoints.
    Class(Class),
    /// Chains of endpoints with session affinity, by destination.
    Affinity(Frontend),
    /// External addresses whose packets get the node's source address.
    Masquerade,
    /// Node ports whose packets get the node's source address.
    MasqueradePorts,
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
    /// All except those of frontends.
    const OTHERS: [SetId; 12] = [
        SetId::Masquerade,
        SetId::MasqueradePorts,
        SetId::LocalPolicy,
        SetId::LocalPolicyPorts,
        SetId::Reject,
        SetId::Drop,
        SetId::RejectPorts,
        SetId::DropPorts,
        SetId::ClusterIps,
        SetId::Hairpin,
        SetId::Firewalled,
        SetId::Sources,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            SetId::Endpoints(frontend) => frontend.endpoints(),
            SetId::Class(class) => class.set(),
            SetId::Affinity(frontend) => frontend.affinity(),
            SetId::Masquerade => "masquerade",
            SetId::MasqueradePorts => "masquerade-ports",
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

    /// Whether the key begins with protocol and port, without an address.
    pub(super) fn is_by_port(self) -> bool {
        match self {
            SetId::Endpoints(frontend) | SetId::Affinity(frontend) => frontend.is_by_port(),
            SetId::Class(class) => class.frontend.is_by_port(),
            SetId::MasqueradePorts | SetId::LocalPolicyPorts | SetId::RejectPorts | SetId::DropPorts => true,
            _ => false,
        }
    }
}

/// Sets that depend on the node only.
pub(super) const NODE_ADDRESSES: &str = "node-addresses";
pub(super) const LOCAL_SOURCES: &str = "local-sources";
pub(super) const SERVICE_CIDRS: &str = "service-cidrs";
/// The greatest number of clients of an endpoint with affinity; further clients have no affinity.
const MOST_CLIENTS: u32 = 1 << 16;

fn address_kind(family: Family) -> Kind {
    match family {
        Family::V4 => Kind::Ipv4,
        Family::V6 => Kind::Ipv6,
    }
}

/// Calls `put` with each set and map of a table.
pub(super) fn each_set(family: Family, mut put: impl FnMut(&Set<'_>)) {
    use Kind::{Mark, Port, Protocol};
    let ip = address_kind(family);
    let destination = |by_port: bool| destination_kinds(ip, by_port);
    for frontend in Frontend::ALL {
        let key = destination(frontend.is_by_port());
        put(&Set::verdicts(SetId::Affinity(frontend).name(), &key));
        let numbered = [key, vec![Mark]].concat();
        put(&Set::map(SetId::Endpoints(frontend).name(), &numbered, &[ip, Port]));
    }
    for id in SetId::OTHERS {
        let key = match id {
            SetId::ClusterIps => vec![ip],
            SetId::Hairpin => vec![ip, ip],
            SetId::Sources => vec![ip, Protocol, Port, ip],
            other => destination(other.is_by_port()),
        };
        put(&Set { name: id.name(), key: &key, data: None, interval: id == SetId::Sources, dynamic: None });
    }
    put(&Set::of(NODE_ADDRESSES, &[ip]));
    put(&Set::intervals(LOCAL_SOURCES, &[ip]));
    put(&Set::intervals(SERVICE_CIDRS, &[ip]));
}

/// Calls `put` with the set of a class.
pub(super) fn class_set(family: Family, class: Class, mut put: impl FnMut(&Set<'_>)) {
    put(&Set::of(class.set(), &destination_kinds(address_kind(family), class.frontend.is_by_port())));
}

fn destination_kinds(ip: Kind, by_port: bool) -> Vec<Kind> {
    if by_port { vec![Kind::Protocol, Kind::Port] } else { vec![ip, Kind::Protocol, Kind::Port] }
}

/// Calls `put` with the set of an endpoint's clients.
pub(super) fn client_set(family: Family, name: &str, mut put: impl FnMut(&Set<'_>)) {
    let (key, data) = ([address_kind(family)], None::<MapType<'_>>);
    put(&Set { name, key: &key, data, interval: false, dynamic: Some(MOST_CLIENTS) });
}
