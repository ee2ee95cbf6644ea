//! NetworkPolicies, Pods and Namespaces as plain values. Nothing here depends on how packets are filtered.

mod cluster;
mod pod;
mod policy;

pub use cluster::{Cluster, Endpoint};
pub use pod::{NamedPort, Pod};
pub use policy::{Direction, Peer, PeerNamespaces, Peers, Policy, Port, PortNumbers, Ports, Rule};

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Reads Kubernetes' name; TCP if it is empty.
    pub fn parse(text: &str) -> Option<Protocol> {
        match text {
            "" | "TCP" => Some(Protocol::Tcp),
            "UDP" => Some(Protocol::Udp),
            "SCTP" => Some(Protocol::Sctp),
            _ => None,
        }
    }

    /// The number in IP headers.
    pub fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
            Protocol::Sctp => 132,
        }
    }
}
