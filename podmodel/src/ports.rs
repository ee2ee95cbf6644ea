//! Host ports of containers.

use api::{Str, Tree};

/// A port that a pod reserves on its node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    pub protocol: Str,
    /// `0.0.0.0` for all addresses.
    pub ip: Str,
    pub port: i64,
}

const ALL: &str = "0.0.0.0";

impl HostPort {
    /// Reads a container port; None without a host port.
    pub fn read(port: &Tree) -> Option<HostPort> {
        let number = port.int("hostPort").filter(|number| *number > 0)?;
        let or = |text: &str, default: &'static str| {
            if text.is_empty() { Str::const_new(default) } else { Str::new(text) }
        };
        let (protocol, ip) = (or(port.str("protocol"), "TCP"), or(port.str("hostIP"), ALL));
        Some(HostPort { protocol, ip, port: number })
    }

    /// Whether both cannot be used at once: a port of all addresses conflicts with that of each address.
    pub fn conflicts_with(&self, other: &HostPort) -> bool {
        let same_address = self.ip == other.ip || self.ip == ALL || other.ip == ALL;
        self.port == other.port && self.protocol == other.protocol && same_address
    }
}
