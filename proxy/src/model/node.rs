//! The node that the proxy runs on.

use std::net::IpAddr;

use api::{Str, Tree};
use network::cidr::IpNet;

use super::Family;

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// Cluster autoscaler's mark of a node that load balancers should stop using.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// The fields of a Node that a proxy needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// The name of the Node object.
    pub name: Str,
    /// Its zone; empty if it has none.
    pub zone: Str,
    /// Its addresses, the preferred one of each family first.
    pub addresses: Vec<IpAddr>,
    /// The ranges of its pods.
    pub pod_cidrs: Vec<IpNet>,
    /// Whether load balancers may send traffic to it.
    pub eligible: bool,
}

impl NodeInfo {
    /// Reads a Node.
    pub fn read(tree: &Tree) -> NodeInfo {
        let cidrs = tree.list("spec.podCIDRs").iter().filter_map(Tree::as_str);
        let is_deleted = tree.at("metadata").has("deletionTimestamp");
        let is_tainted = tree.list("spec.taints").iter().any(|taint| taint.str("key") == TO_BE_DELETED);
        NodeInfo {
            name: Str::new(tree.str("metadata.name")),
            zone: Str::new(tree.map("metadata.labels").str(ZONE_LABEL)),
            addresses: addresses(tree),
            pod_cidrs: cidrs.filter_map(|text| text.parse().ok()).collect(),
            eligible: !is_deleted && !is_tainted,
        }
    }

    /// The preferred address of a family.
    pub fn primary(&self, family: Family) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| Family::of(*address) == family)
    }
}

/// Internal addresses are preferred to external ones.
fn addresses(tree: &Tree) -> Vec<IpAddr> {
    let of = |kind: &'static str| {
        let listed = tree.list("status.addresses").iter().filter(move |one| one.str("type") == kind);
        listed.filter_map(|one| one.str("address").parse().ok())
    };
    of("InternalIP").chain(of("ExternalIP")).collect()
}
