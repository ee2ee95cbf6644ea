//! Pods.

use std::net::IpAddr;

use api::{Str, Tree};
use podmodel::Labels;

use super::Protocol;

/// The annotation of a mirror pod: the UID of the static pod that it shows.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// The fields of a pod that policies need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: Str,
    /// Its name.
    pub name: Str,
    /// Its UID.
    pub uid: Str,
    /// Its labels.
    pub labels: Labels,
    /// Its addresses, of both families.
    pub ips: Vec<IpAddr>,
    /// The node that it runs on; empty if it is not scheduled.
    pub node: Str,
    /// Whether the pod has the addresses of its node: then policies neither select it nor match it as a peer.
    pub host_network: bool,
    /// Whether all its containers have ended, so that it has no network any more.
    pub finished: bool,
    /// Whether the pod is being deleted. Policies stay in force.
    pub terminating: bool,
    /// When it was created, in the API's text, which sorts by time.
    pub created: Str,
    /// The UID of the static pod that this mirror pod shows; empty for other pods.
    pub mirror_of: Str,
    /// The named ports of its containers.
    pub ports: Vec<NamedPort>,
}

/// A port of a container that has a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedPort {
    /// The name.
    pub name: Str,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub port: u16,
}

impl Pod {
    /// Reads a Pod.
    pub fn read(tree: &Tree) -> Pod {
        let text = |path: &str| Str::new(tree.str(path));
        Pod {
            namespace: text("metadata.namespace"),
            name: text("metadata.name"),
            uid: text("metadata.uid"),
            labels: Labels::read(tree.map("metadata.labels")),
            ips: addresses(tree.at("status")),
            node: text("spec.nodeName"),
            host_network: tree.bool("spec.hostNetwork"),
            finished: matches!(tree.str("status.phase"), "Succeeded" | "Failed"),
            terminating: tree.at("metadata").has("deletionTimestamp"),
            created: text("metadata.creationTimestamp"),
            mirror_of: Str::new(tree.map("metadata.annotations").str(MIRROR_ANNOTATION)),
            ports: NamedPort::read_all(tree.at("spec")),
        }
    }
}

impl NamedPort {
    /// The named ports of a pod's spec: of its containers and sidecars.
    pub fn read_all(spec: &Tree) -> Vec<NamedPort> {
        let is_sidecar = |container: &&Tree| container.str("restartPolicy") == "Always";
        let sidecars = spec.list("initContainers").iter().filter(is_sidecar);
        let containers = spec.list("containers").iter().chain(sidecars);
        let mut ports: Vec<NamedPort> =
            containers.flat_map(|container| container.list("ports")).filter_map(NamedPort::read).collect();
        ports.sort();
        ports.dedup();
        ports
    }

    fn read(port: &Tree) -> Option<NamedPort> {
        let name = Some(port.str("name")).filter(|name| !name.is_empty())?;
        let number = port.int("containerPort").and_then(|number| u16::try_from(number).ok())?;
        Some(NamedPort { name: Str::new(name), protocol: Protocol::parse(port.str("protocol"))?, port: number })
    }
}

fn addresses(status: &Tree) -> Vec<IpAddr> {
    let listed = status.list("podIPs").iter().map(|entry| entry.str("ip"));
    let mut ips: Vec<IpAddr> = listed.chain([status.str("podIP")]).filter_map(|ip| ip.parse().ok()).collect();
    ips.sort();
    ips.dedup();
    ips
}
