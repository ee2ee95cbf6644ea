//! The network between the pods of different nodes. Its configuration is a ConfigMap that every node reads, so that all
//! nodes of a cluster agree.

use std::net::IpAddr;

use ::overlay::config::Backend;
use ::overlay::{Config as OverlayConfig, Environment, Handle};
use api::{Tree, list, tree};
use client::{Client, Resource};
use network::cni::builtin::ClusterPods;
use network::netlink::Rtnl;

use crate::error::{Error, Result};

const MAPS: Resource = Resource::core("configmaps");
const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "tiphys-network";
/// flannel's name.
const KEY: &str = "net-conf.json";
const ROLE: &str = "tiphys:node-network";
const API_GROUP: &str = "rbac.authorization.k8s.io";

/// How packets get from node to node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum NetworkBackend {
    /// In VXLAN packets, as flannel has it
    #[default]
    Vxlan,
    /// By plain routes; all nodes must share a link
    HostGw,
}

/// The network between a node's pods and those of other nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodNetwork {
    /// No network: this is the only node, or the user installs another network.
    Disabled,
    /// This one.
    Config(OverlayConfig),
    /// The network of the cluster's ConfigMap; none without the ConfigMap.
    OfCluster,
}

/// The network of a cluster whose first node is on this machine. Clusters of a machine differ by their index.
pub fn configuration(network: &crate::machine::network::ClusterNetwork, backend: NetworkBackend) -> OverlayConfig {
    let config = OverlayConfig::vxlan(network.pod_cidrs.clone(), network.index + 1);
    match backend {
        NetworkBackend::Vxlan => config,
        NetworkBackend::HostGw => OverlayConfig { backend: Backend::HostGw, ..config },
    }
}

/// The configuration to use; None without a network between nodes.
pub(crate) async fn find(client: &Client, network: PodNetwork) -> Result<Option<OverlayConfig>> {
    match network {
        PodNetwork::Disabled => Ok(None),
        PodNetwork::Config(config) => Ok(Some(config)),
        PodNetwork::OfCluster => match client.get(MAPS, NAMESPACE, CONFIG_MAP).await {
            Ok(map) => {
                let wrong = |why| Error::Node(format!("the ConfigMap {NAMESPACE}/{CONFIG_MAP}: {KEY}: {why}"));
                OverlayConfig::parse(map.map("data").str(KEY)).map(Some).map_err(wrong)
            }
            // A control plane without this network does not let nodes read the ConfigMap either.
            Err(error) if error.is_not_found() || error.is_forbidden() => {
                tracing::warn!(
                    "the cluster has no ConfigMap {NAMESPACE}/{CONFIG_MAP}: pods of this node cannot reach pods of \
                     other nodes, unless another pod network is installed"
                );
                Ok(None)
            }
            Err(error) => Err(Error::Node(format!("failed to read the ConfigMap {NAMESPACE}/{CONFIG_MAP}: {error}"))),
        },
    }
}

/// The configuration of the built-in network for pods of other nodes. `host` is the address of this node.
pub(crate) fn cluster_pods(config: &OverlayConfig, host: IpAddr) -> ClusterPods {
    let device = Rtnl::open().map_err(::overlay::kernel::Error::from);
    let device = device.and_then(|mut rtnl| ::overlay::kernel::device_of(&mut rtnl, host));
    let has_ipv6 = config.pod_cidrs.iter().any(|cidr| !cidr.is_ipv4());
    let mtu = match device {
        Ok((link, _)) => Some(link.mtu.saturating_sub(config.overhead(!has_ipv6))),
        Err(error) => {
            tracing::warn!(%error, "failed to find the MTU of the node's device; pods get the kernel's default");
            None
        }
    };
    ClusterPods { cidrs: config.pod_cidrs.clone(), mtu }
}

/// Starts to route to other nodes.
pub(crate) fn start(client: &Client, config: OverlayConfig, node_name: &str, bridge: &str) -> Result<Handle> {
    let environment =
        Environment { client: client.clone(), config, node_name: node_name.to_string(), bridge: bridge.to_string() };
    let hint = "`--disable network` runs this node without routes to the pods of other nodes";
    ::overlay::start(environment).map_err(|error| Error::Node(format!("{}; {hint}", stdx::error::chain(&error))))
}

/// The ConfigMap with the network of a cluster.
pub fn config_map(config: &OverlayConfig) -> Tree {
    tree! {
        "apiVersion" => "v1",
        "kind" => "ConfigMap",
        "metadata" => tree! { "name" => CONFIG_MAP, "namespace" => NAMESPACE },
        "data" => tree! { KEY => config.to_json() },
    }
}

/// Creates the ConfigMap, or replaces one with another network.
pub(crate) async fn publish(client: &Client, config: &OverlayConfig) -> client::Result<()> {
    match client.create(MAPS, NAMESPACE, &config_map(config)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_already_exists() => {
            let found = client.get(MAPS, NAMESPACE, CONFIG_MAP).await?;
            if OverlayConfig::parse(found.map("data").str(KEY)).as_ref() == Ok(config) {
                return Ok(());
            }
            let mut renewed = found;
            renewed.set("data", config_map(config).at("data").clone());
            client.update(MAPS, NAMESPACE, CONFIG_MAP, &renewed).await.map(drop)
        }
        Err(error) => Err(error),
    }
}

/// Lets nodes read the network of the cluster, and each other's ranges and addresses.
pub(crate) fn grants() -> [(Resource, &'static str, Tree); 4] {
    let resource = |name| Resource::new(API_GROUP, "v1", name);
    let nodes = || list![tree! { "apiGroup" => API_GROUP, "kind" => "Group", "name" => "system:nodes" }];
    let object = |kind: &str, namespace: &str| {
        let mut metadata = tree! { "name" => ROLE };
        if !namespace.is_empty() {
            metadata.set("namespace", namespace);
        }
        tree! { "apiVersion" => "rbac.authorization.k8s.io/v1", "kind" => kind, "metadata" => metadata }
    };
    let reference = |kind: &str| tree! { "apiGroup" => API_GROUP, "kind" => kind, "name" => ROLE };
    let verbs = || list!["get", "list", "watch"];
    let mut cluster_role = object("ClusterRole", "");
    let read_nodes = tree! { "apiGroups" => list![""], "resources" => list!["nodes"], "verbs" => verbs() };
    cluster_role.set("rules", list![read_nodes]);
    let mut role = object("Role", NAMESPACE);
    let read_map = tree! {
        "apiGroups" => list![""], "resources" => list!["configmaps"], "resourceNames" => list![CONFIG_MAP],
        "verbs" => verbs(),
    };
    role.set("rules", list![read_map]);
    let mut cluster_binding = object("ClusterRoleBinding", "");
    cluster_binding.set("roleRef", reference("ClusterRole"));
    cluster_binding.set("subjects", nodes());
    let mut binding = object("RoleBinding", NAMESPACE);
    binding.set("roleRef", reference("Role"));
    binding.set("subjects", nodes());
    [
        (resource("clusterroles"), "", cluster_role),
        (resource("clusterrolebindings"), "", cluster_binding),
        (resource("roles"), NAMESPACE, role),
        (resource("rolebindings"), NAMESPACE, binding),
    ]
}
