//! Names of chains. iptables allows 28 characters.

use std::net::SocketAddr;

use crate::model::PortName;

/// The names of one proxy.
pub(super) struct Names {
    prefix: String,
}

/// A rule of a built-in chain that leads to one of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Jump {
    pub(super) table: &'static str,
    pub(super) from: &'static str,
    /// The rule, as iptables prints it.
    pub(super) rule: String,
}

impl Jump {
    /// The chain and the rule.
    pub(super) fn text(&self) -> String {
        format!("{} {}", self.from, self.rule)
    }
}

impl Names {
    /// Different tables have different prefixes, so that proxies of several clusters do not touch each other.
    pub(super) fn new(table: &str) -> Names {
        Names { prefix: format!("TP-{:08X}-", stdx::fnv::fnv1a_32(table.bytes())) }
    }

    pub(super) fn is_own(&self, chain: &str) -> bool {
        chain.starts_with(&self.prefix)
    }

    /// A chain that all ports share.
    pub(super) fn shared(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// A chain of a port.
    pub(super) fn port(&self, kind: &str, name: &PortName) -> String {
        let text = format!("{name}/{}/{}", name.protocol.name(), name.family.name());
        self.hashed(kind, &text)
    }

    /// The chain of an endpoint of a port.
    pub(super) fn endpoint(&self, name: &PortName, endpoint: SocketAddr) -> String {
        let text = format!("{name}/{}/{endpoint}", name.protocol.name());
        self.hashed("SEP", &text)
    }

    /// 48 bits of a hash: a collision within one cluster is less likely than a broken machine.
    fn hashed(&self, kind: &str, text: &str) -> String {
        let hash = stdx::fnv::fnv1a_64(text.bytes());
        format!("{}{kind}{:012X}", self.prefix, hash ^ (hash >> 48) & 0xffff_ffff_ffff).chars().take(28).collect()
    }

    /// The rules of built-in chains.
    pub(super) fn jumps(&self) -> Vec<Jump> {
        let jump = |table, from, condition: &str, to: &str| {
            let rule = format!("{condition} -j {}", self.shared(to)).trim_start().to_string();
            Jump { table, from, rule }
        };
        let new = "-m conntrack --ctstate NEW";
        vec![
            jump("nat", "PREROUTING", "", "SERVICES"),
            jump("nat", "OUTPUT", "", "SERVICES"),
            jump("nat", "POSTROUTING", "", "POSTROUTING"),
            jump("filter", "INPUT", new, "FILTER"),
            jump("filter", "FORWARD", new, "FILTER"),
            jump("filter", "OUTPUT", new, "FILTER"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Family, Protocol};

    #[test]
    fn names_fit_and_differ() {
        let names = Names::new("tiphys-proxy");
        let port = PortName {
            service: "a-namespace-with-a-long-name/and-a-service".into(),
            port: "http".into(),
            protocol: Protocol::Tcp,
            family: Family::V4,
        };
        let udp = PortName { protocol: Protocol::Udp, ..port.clone() };
        let endpoint = |text: &str| names.endpoint(&port, text.parse().unwrap());
        let all = [
            names.port("SVC", &port),
            names.port("SVL", &port),
            names.port("SVC", &udp),
            endpoint("10.0.0.1:80"),
            endpoint("10.0.0.2:80"),
            names.shared("POSTROUTING"),
            names.shared("MARK-MASQ"),
        ];
        for (index, name) in all.iter().enumerate() {
            assert!(name.len() <= 28 && names.is_own(name), "{name}");
            assert!(!all[..index].contains(name), "{name}");
        }
        assert!(!Names::new("another").is_own(&all[0]));
    }
}
