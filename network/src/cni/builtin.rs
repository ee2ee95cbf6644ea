//! The built-in network, which is used when there is no configuration. It is derived from the pod CIDRs.

use std::path::Path;

use serde_json::{Value, json};

use super::conf::NetworkList;
use crate::cidr::IpNet;
use crate::netlink::{self, Rtnl};
use crate::plugins::{guard, table};
use crate::spec::version::Version;

/// The name of the built-in network.
pub const NAME: &str = "tiphys";

/// The host names of a cluster's built-in network: each cluster of a machine has its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The bridge of the pods.
    pub bridge: String,
    /// The nftables table of masquerading and host ports.
    pub table: String,
}

impl Default for Names {
    /// The names of the first cluster. They are not the default names of any other plugin.
    fn default() -> Names {
        Names { bridge: "tiphys0".to_string(), table: table::DEFAULT.to_string() }
    }
}

/// The pods of other nodes, for the built-in network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterPods {
    /// The ranges of all pods of the cluster: packets between them keep their source addresses.
    pub cidrs: Vec<IpNet>,
    /// The MTU of pods, if packets to other nodes get another header; None for the kernel's default.
    pub mtu: Option<u32>,
}

/// A bridge with the first address of each CIDR, from which pods get their addresses.
pub fn network(cidrs: &[IpNet], names: &Names, cluster: &ClusterPods, data_dir: &Path) -> NetworkList {
    let ranges: Vec<Value> = cidrs.iter().map(|cidr| json!([{ "subnet": cidr.to_string() }])).collect();
    let default = |cidr: &IpNet| json!({ "dst": if cidr.is_ipv4() { "0.0.0.0/0" } else { "::/0" } });
    let mut routes: Vec<Value> = cidrs.iter().map(default).collect();
    routes.dedup();
    let ipam = json!({ "type": "host-local", "ranges": ranges, "routes": routes, "dataDir": data_dir });
    // A node that was created again may have got another CIDR: the bridge's address follows.
    let mut bridge = json!({
        "type": "bridge", "bridge": names.bridge, "table": names.table, "isGateway": true, "forceAddress": true, "ipMasq": true,
        "hairpinMode": true, "routed": true, "ipam": ipam,
    });
    if !cluster.cidrs.is_empty() {
        bridge["clusterCIDRs"] = cluster.cidrs.iter().map(ToString::to_string).collect();
    }
    if let Some(mtu) = cluster.mtu {
        bridge["mtu"] = mtu.into();
    }
    let plugins = vec![
        bridge,
        json!({ "type": "portmap", "table": names.table, "snat": true, "capabilities": { "portMappings": true } }),
        json!({ "type": "bandwidth", "capabilities": { "bandwidth": true } }),
    ];
    NetworkList { name: NAME.to_string(), version: Version::NEWEST, disable_check: false, disable_gc: false, plugins }
}

/// Deletes the bridge with all attached devices, and the nftables table. No pod may use the network any more; the next
/// pod creates it again.
pub fn remove(names: &Names) -> Result<(), netlink::Error> {
    let mut rtnl = Rtnl::open()?;
    if let Some(bridge) = rtnl.link(&names.bridge)? {
        // The kernel deletes the devices of pods that have just ended a little later than their namespaces.
        for attached in rtnl.links()?.iter().filter(|link| link.master == Some(bridge.index)) {
            rtnl.delete_link(&attached.name)?;
        }
        rtnl.delete_link(&names.bridge)?;
    }
    guard::remove_table(&names.table)?;
    table::remove_table(&names.table)
}

/// Why pods cannot get addresses from their networks.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum CidrsError {
    #[error("no pod CIDR")]
    Missing,
    #[error("only one pod CIDR, or one of each family, is supported")]
    Families,
    #[error("pod CIDR {0}: has host bits set")]
    HostBits(IpNet),
    #[error("pod CIDR {0}: too small to allocate addresses from")]
    TooSmall(IpNet),
}

/// Checks that pods can get addresses from these networks: one, or one of each family.
pub(crate) fn check_cidrs(cidrs: &[IpNet]) -> Result<(), CidrsError> {
    for cidr in cidrs {
        let host_bits = IpNet::host(cidr.address).prefix() - cidr.prefix();
        if *cidr != cidr.network() {
            return Err(CidrsError::HostBits(*cidr));
        }
        if host_bits < 2 {
            return Err(CidrsError::TooSmall(*cidr));
        }
    }
    match cidrs {
        [] => Err(CidrsError::Missing),
        [_] => Ok(()),
        [a, b] if a.is_ipv4() != b.is_ipv4() => Ok(()),
        _ => Err(CidrsError::Families),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugins_accept_the_network() {
        let cidrs = ["10.244.1.0/24".parse().unwrap(), "fd00:1::/64".parse().unwrap()];
        let cluster = ClusterPods { cidrs: vec!["10.244.0.0/16".parse().unwrap()], mtu: Some(1450) };
        let list = network(&cidrs, &Names::default(), &cluster, Path::new("/state/networks"));
        assert_eq!(NetworkList::parse(&list.to_bytes(), None).unwrap(), list);
        for plugin in &list.plugins {
            let kind = plugin["type"].as_str().unwrap();
            assert_eq!((crate::plugins::find(kind).unwrap().accepts)(plugin), Ok(()), "{kind}");
        }
        assert_eq!((crate::plugins::find("host-local").unwrap().accepts)(&list.plugins[0]), Ok(()));
        assert_eq!(list.plugins[0]["ipam"]["routes"], json!([{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }]));
    }

    #[test]
    fn checks_cidrs() {
        let check = |texts: &[&str]| {
            let cidrs: Vec<IpNet> = texts.iter().map(|text| text.parse().unwrap()).collect();
            check_cidrs(&cidrs).map_err(|error| error.to_string())
        };
        assert_eq!(check(&["10.0.0.0/24"]), Ok(()));
        assert_eq!(check(&["fd00::/64", "10.0.0.0/24"]), Ok(()));
        assert_eq!(check(&[]), Err("no pod CIDR".to_string()));
        assert_eq!(
            check(&["10.0.0.0/24", "10.0.1.0/24"]),
            Err("only one pod CIDR, or one of each family, is supported".to_string())
        );
        assert_eq!(check(&["10.0.0.1/24"]), Err("pod CIDR 10.0.0.1/24: has host bits set".to_string()));
        assert_eq!(
            check(&["10.0.0.0/31"]),
            Err("pod CIDR 10.0.0.0/31: too small to allocate addresses from".to_string())
        );
    }
}
