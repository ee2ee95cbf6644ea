//! The proxy's configuration: plain values, and how a KubeProxyConfiguration is read into them.

mod fields;
mod gates;
mod read;

use std::net::SocketAddr;
use std::time::Duration;

use network::cidr::IpNet;

use crate::model::Family;

pub use gates::GATES;
pub use read::{ClientConnection, Document, bind_address, read};

/// How packets are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By nftables.
    Nftables,
    /// By iptables.
    Iptables,
    /// By sockets of the proxy, to which rules redirect.
    Userspace,
}

impl Mode {
    /// The name in flags, files and `/proxyMode`.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Nftables => "nftables",
            Mode::Iptables => "iptables",
            Mode::Userspace => "userspace",
        }
    }

    /// The mode of a name.
    pub fn parse(name: &str) -> Option<Mode> {
        [Mode::Nftables, Mode::Iptables, Mode::Userspace].into_iter().find(|mode| mode.name() == name)
    }
}

/// How traffic of the node's pods is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalMode {
    /// By the ranges of all pods.
    ClusterCidr(Vec<IpNet>),
    /// By the ranges of this node's pods.
    NodeCidr,
    /// By the bridge.
    BridgeInterface(String),
    /// By the names of the pods' devices.
    InterfaceNamePrefix(String),
}

/// Addresses at which node ports are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePortAddress {
    /// The preferred addresses of the Node.
    Primary,
    /// Loopback.
    Localhost,
    /// All addresses.
    All,
    /// Addresses of the machine in this range.
    Cidr(IpNet),
}

impl NodePortAddress {
    /// Reads a keyword or a range.
    pub fn parse(text: &str) -> Option<NodePortAddress> {
        match text {
            "primary" => Some(NodePortAddress::Primary),
            "localhost" => Some(NodePortAddress::Localhost),
            "all" => Some(NodePortAddress::All),
            cidr => cidr.parse().ok().map(NodePortAddress::Cidr),
        }
    }

    /// Whether the value applies to a family.
    pub fn covers(&self, family: Family) -> bool {
        match self {
            NodePortAddress::Cidr(cidr) => Family::of(cidr.address) == family,
            _ => true,
        }
    }
}

/// Limits of connection tracking. Zero leaves a value as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conntrack {
    /// Entries for each CPU.
    pub max_per_core: u32,
    /// The least number of entries.
    pub min: u32,
    /// The timeout of established TCP connections.
    pub tcp_established: Duration,
    /// The timeout of TCP connections that one side has closed.
    pub tcp_close_wait: Duration,
    /// Whether packets outside of the window are accepted.
    pub tcp_be_liberal: bool,
    /// The timeout of UDP without a reply.
    pub udp: Duration,
    /// The timeout of UDP with replies.
    pub udp_stream: Duration,
}

impl Default for Conntrack {
    fn default() -> Conntrack {
        Conntrack {
            max_per_core: 32 * 1024,
            min: 128 * 1024,
            tcp_established: Duration::from_secs(24 * 3600),
            tcp_close_wait: Duration::from_secs(3600),
            tcp_be_liberal: false,
            udp: Duration::ZERO,
            udp_stream: Duration::ZERO,
        }
    }
}

/// The configuration of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The name of the Node object of this machine.
    pub node_name: String,
    /// None to choose what the kernel supports.
    pub mode: Option<Mode>,
    /// The name of the proxy's nftables tables, and the prefix of its iptables chains. Proxies of different clusters on
    /// one machine need different names.
    pub table: String,
    /// None for the default of the mode: the Node's preferred addresses, or all addresses in the mode iptables.
    pub node_port_addresses: Option<Vec<NodePortAddress>>,
    /// How traffic of pods is recognised.
    pub local_mode: LocalMode,
    /// Whether all traffic to cluster IPs gets the node's source address.
    pub masquerade_all: bool,
    /// The bit of a packet's mark that requests masquerading.
    pub masquerade_bit: u8,
    /// Whether node ports are served at 127.0.0.1 too, in the mode iptables.
    pub localhost_node_ports: bool,
    /// The least time between two syncs; None for the default of the mode.
    pub min_sync_period: Option<Duration>,
    /// How often rules are verified where the kernel does not report changes: with iptables.
    pub verify_period: Duration,
    /// The address of `/healthz` and `/livez`; None if they are not served.
    pub healthz_address: Option<SocketAddr>,
    /// The address of `/metrics` and `/proxyMode`; None if they are not served.
    pub metrics_address: Option<SocketAddr>,
    /// Whether an address that cannot be bound is an error.
    pub bind_hard_fail: bool,
    /// Limits of connection tracking; None to leave all as they are.
    pub conntrack: Option<Conntrack>,
    /// The proxy's score for the OOM killer; None to leave it as it is.
    pub oom_score_adj: Option<i32>,
    /// Whether the proxy confirms to kubelets, by an annotation of its Node, which endpoints it has applied.
    pub confirm_endpoints: bool,
    /// Whether rules are deleted when the proxy stops.
    pub cleanup_on_stop: bool,
}

impl Default for Configuration {
    fn default() -> Configuration {
        Configuration {
            node_name: String::new(),
            mode: None,
            table: "tiphys-proxy".to_string(),
            node_port_addresses: None,
            local_mode: LocalMode::ClusterCidr(Vec::new()),
            masquerade_all: false,
            masquerade_bit: 14,
            localhost_node_ports: true,
            min_sync_period: None,
            verify_period: Duration::from_secs(5),
            healthz_address: Some(SocketAddr::from(([0, 0, 0, 0], 10256))),
            metrics_address: Some(SocketAddr::from(([127, 0, 0, 1], 10249))),
            bind_hard_fail: false,
            conntrack: Some(Conntrack::default()),
            oom_score_adj: None,
            confirm_endpoints: true,
            cleanup_on_stop: false,
        }
    }
}

impl Configuration {
    /// The least time between two syncs. A change is applied at once if the last one is longer ago; a burst is batched.
    pub fn min_sync_period(&self, mode: Mode) -> Duration {
        self.min_sync_period.unwrap_or(match mode {
            Mode::Nftables | Mode::Userspace => Duration::from_millis(5),
            Mode::Iptables => Duration::from_secs(1),
        })
    }

    /// The addresses of node ports, by upstream's default of the mode.
    pub fn node_port_addresses(&self, mode: Mode) -> Vec<NodePortAddress> {
        self.node_port_addresses.clone().unwrap_or_else(|| match mode {
            Mode::Nftables => vec![NodePortAddress::Primary],
            Mode::Iptables | Mode::Userspace => vec![NodePortAddress::All],
        })
    }
}
