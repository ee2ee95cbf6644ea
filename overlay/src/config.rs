//! The network of a cluster, as flannel's `net-conf.json` describes it.

use api::{Tree, tree};
use stdx::cidr::IpNet;

/// The UDP port that Linux uses for VXLAN by default, and flannel with it.
const DEFAULT_PORT: u16 = 8472;
const DEFAULT_VNI: u32 = 1;
const MAX_VNI: i64 = (1 << 24) - 1;

/// How packets get from node to node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// In VXLAN packets. With `direct`, nodes that share a link route to each other without them.
    Vxlan {
        /// The VXLAN network identifier.
        vni: u32,
        /// The UDP port.
        port: u16,
        /// Whether nodes of the same link use plain routes.
        direct: bool,
    },
    /// By plain routes; all nodes must share a link.
    HostGw,
}

/// The network of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The ranges of all pods: one, or one of each family.
    pub pod_cidrs: Vec<IpNet>,
    /// How packets get from node to node.
    pub backend: Backend,
}

/// A network that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It is no JSON.
    #[error("not valid JSON: {0}")]
    Json(String),
    /// A field is wrong.
    #[error("{field}: {reason}")]
    Field {
        /// The path of the field.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

fn invalid(field: &'static str, reason: impl Into<String>) -> ConfigError {
    ConfigError::Field { field, reason: reason.into() }
}

impl Config {
    /// A network with the default backend.
    pub fn vxlan(pod_cidrs: Vec<IpNet>, vni: u32) -> Config {
        Config { pod_cidrs, backend: Backend::Vxlan { vni, port: DEFAULT_PORT, direct: false } }
    }

    /// Reads `net-conf.json`.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let tree: Tree = api::json::decode(text.as_bytes()).map_err(|error| ConfigError::Json(error.to_string()))?;
        let mut pod_cidrs = Vec::new();
        for (field, is_ipv4) in [("Network", true), ("IPv6Network", false)] {
            match tree.str(field) {
                "" => {}
                cidr => pod_cidrs.push(parse_cidr(field, cidr, is_ipv4)?),
            }
        }
        if pod_cidrs.is_empty() {
            return Err(invalid("Network", "a CIDR is required"));
        }
        Ok(Config { pod_cidrs, backend: parse_backend(&tree)? })
    }

    /// As `net-conf.json`.
    pub fn to_json(&self) -> String {
        let mut object = tree! {};
        for cidr in &self.pod_cidrs {
            object.set(if cidr.is_ipv4() { "Network" } else { "IPv6Network" }, cidr.to_string());
        }
        object.set("EnableIPv4", self.pod_cidrs.iter().any(IpNet::is_ipv4));
        object.set("EnableIPv6", self.pod_cidrs.iter().any(|cidr| !cidr.is_ipv4()));
        object.set(
            "Backend",
            match self.backend {
                Backend::HostGw => tree! { "Type" => "host-gw" },
                Backend::Vxlan { vni, port, direct } => tree! {
                    "Type" => "vxlan", "VNI" => i64::from(vni), "Port" => i64::from(port), "DirectRouting" => direct,
                },
            },
        );
        String::from_utf8_lossy(&api::json::encode(&object, None)).into_owned()
    }

    /// The bytes that a packet between nodes has more than a packet between pods.
    pub fn overhead(&self, is_ipv4: bool) -> u32 {
        match (self.backend, is_ipv4) {
            (Backend::HostGw, _) => 0,
            // Ethernet, VXLAN, UDP and IP.
            (Backend::Vxlan { .. }, true) => 14 + 8 + 8 + 20,
            (Backend::Vxlan { .. }, false) => 14 + 8 + 8 + 40,
        }
    }

    /// The range of the cluster that has an address.
    pub fn range_of(&self, cidr: &IpNet) -> Option<&IpNet> {
        self.pod_cidrs.iter().find(|range| range.contains_net(cidr))
    }
}

fn parse_cidr(field: &'static str, text: &str, is_ipv4: bool) -> Result<IpNet, ConfigError> {
    let cidr: IpNet = text.parse().map_err(|_| invalid(field, format!("{text:?} is not a CIDR")))?;
    if cidr.is_ipv4() != is_ipv4 {
        return Err(invalid(field, format!("{text} is of the other family")));
    }
    Ok(cidr.network())
}

fn parse_backend(tree: &Tree) -> Result<Backend, ConfigError> {
    let backend = tree.at("Backend");
    match backend.str("Type") {
        "host-gw" => Ok(Backend::HostGw),
        "" | "vxlan" => {
            let vni = match backend.int("VNI") {
                None => DEFAULT_VNI,
                Some(vni @ 1..=MAX_VNI) => vni as u32,
                Some(other) => return Err(invalid("Backend.VNI", format!("{other} is not between 1 and {MAX_VNI}"))),
            };
            let port = match backend.int("Port") {
                None | Some(0) => DEFAULT_PORT,
                Some(port) => u16::try_from(port).map_err(|_| invalid("Backend.Port", format!("{port} is no port")))?,
            };
            Ok(Backend::Vxlan { vni, port, direct: backend.bool("DirectRouting") })
        }
        other => Err(invalid("Backend.Type", format!("{other:?} is not supported; supported: vxlan, host-gw"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_flannels_form() {
        let read = |text: &str| Config::parse(text).map_err(|error| error.to_string());
        let cidr = |text: &str| text.parse::<IpNet>().expect("a CIDR");
        let plain = Config::vxlan(vec![cidr("10.244.0.0/16")], 1);
        assert_eq!(read(r#"{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan"}}"#), Ok(plain.clone()));
        assert_eq!(read(r#"{"Network": "10.244.0.0/16"}"#), Ok(plain));
        let both = r#"{"Network": "10.1.0.0/16", "IPv6Network": "fd00::/48", "Backend": {"Type": "host-gw"}}"#;
        let both = read(both).expect("a network");
        assert_eq!(both, Config { pod_cidrs: vec![cidr("10.1.0.0/16"), cidr("fd00::/48")], backend: Backend::HostGw });
        assert_eq!(read(&both.to_json()), Ok(both));
        let direct = r#"{"Network": "10.1.0.0/16", "Backend": {"VNI": 7, "Port": 4789, "DirectRouting": true}}"#;
        let direct = read(direct).expect("a network");
        assert_eq!(direct.backend, Backend::Vxlan { vni: 7, port: 4789, direct: true });
        assert_eq!(read(&direct.to_json()), Ok(direct));
        for (text, want) in [
            ("{", "not valid JSON"),
            ("{}", "Network: a CIDR is required"),
            (r#"{"Network": "x"}"#, "Network: \"x\" is not a CIDR"),
            (r#"{"Network": "fd00::/48"}"#, "Network: fd00::/48 is of the other family"),
            (r#"{"Network": "10.0.0.0/8", "Backend": {"Type": "udp"}}"#, "Backend.Type: \"udp\" is not supported"),
            (r#"{"Network": "10.0.0.0/8", "Backend": {"VNI": 0}}"#, "Backend.VNI: 0 is not between"),
            (r#"{"Network": "10.0.0.0/8", "Backend": {"Port": 65536}}"#, "Backend.Port: 65536 is no port"),
        ] {
            let why = read(text).expect_err("refused");
            assert!(why.contains(want), "{text}: {why}");
        }
    }
}
