//! A plan as text, for golden files and logs.

use std::fmt;
use std::net::IpAddr;

use super::{PortPlan, Traffic};

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Traffic::Cluster => "cluster endpoints",
            Traffic::Local => "local endpoints",
            Traffic::Drop => "drop",
            Traffic::Reject => "reject",
        })
    }
}

impl fmt::Display for PortPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = self.protocol.name();
        writeln!(f, "cluster IP {} {protocol} -> {}", at(self.cluster_ip, self.port), self.internal)?;
        let source = if self.external_local { "keeps source" } else { "masquerade" };
        for address in &self.external_ips {
            writeln!(f, "external IP {} {protocol} -> {}, {source}", at(*address, self.port), self.external)?;
        }
        if let Some(port) = self.node_port {
            writeln!(f, "node port {port} {protocol} -> {}, {source}", self.external)?;
        }
        for address in &self.firewalled {
            let sources: Vec<String> = self.sources.iter().map(ToString::to_string).collect();
            writeln!(f, "only from {} to {}", sources.join(" "), at(*address, self.port))?;
        }
        if let Some(timeout) = self.affinity {
            writeln!(f, "affinity {} s", timeout.as_secs())?;
        }
        for (policy, endpoints) in [("cluster", &self.cluster), ("local", &self.local)] {
            if !endpoints.is_empty() {
                let texts: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
                writeln!(f, "{policy} endpoints {}", texts.join(" "))?;
            }
        }
        if !self.hairpin.is_empty() {
            let texts: Vec<String> = self.hairpin.iter().map(ToString::to_string).collect();
            writeln!(f, "hairpin {}", texts.join(" "))?;
        }
        Ok(())
    }
}

fn at(address: IpAddr, port: u16) -> std::net::SocketAddr {
    std::net::SocketAddr::new(address, port)
}
