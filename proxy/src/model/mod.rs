//! Services, EndpointSlices and the Node as plain values. Nothing here depends on how packets are forwarded.

mod endpoint;
mod node;
mod service;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use api::Str;

pub use endpoint::{Endpoint, Slice, SlicePort, has_left};
pub use node::NodeInfo;
pub use service::{Service, ServicePort};

/// `NAMESPACE/NAME` of a Service.
pub type ServiceKey = Arc<str>;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both, IPv4 first.
    pub const ALL: [Family; 2] = [Family::V4, Family::V6];

    /// The family of an address.
    pub fn of(address: IpAddr) -> Family {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// Upstream's name, also the value of the metric label `ip_family`.
    pub fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }
}

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
    /// Reads upstream's name; TCP if it is empty.
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

    /// The name in lower case, as tools write it.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        }
    }
}

/// A port of a Service in one address family: what endpoints are chosen for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortName {
    /// The Service.
    pub service: ServiceKey,
    /// The name of the port; empty if it has none.
    pub port: Str,
    /// Ports of different protocols may have the same number and no name.
    pub protocol: Protocol,
    /// The family of the Service's address.
    pub family: Family,
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.service)?;
        if !self.port.is_empty() {
            write!(f, ":{}", self.port)?;
        }
        Ok(())
    }
}
