//! Objects that `up` creates in a new cluster besides those of every API server.

use std::net::IpAddr;
use std::sync::Arc;

use api::{Tree, list, tree};
use client::{Client, Resource};
use server::Server;

use super::in_process;
use crate::error::{Error, Result};
use crate::machine::network::ClusterNetwork;
use crate::node::join::is_loopback;
use crate::node::join_objects;
use crate::node::options::Options;
use crate::node::pod_network;
use crate::node::services::{self, Dns};
use crate::pki::subjects::KUBELET_CLIENT_USER;

const MAPS: Resource = Resource::core("configmaps");
const PUBLIC: &str = "kube-public";
const SYSTEM: &str = "kube-system";
const SERVICES: Resource = Resource::core("services");
const NAMESPACED_ROLES: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "roles");
const NAMESPACED_BINDINGS: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "rolebindings");
const NODE_SERVICES: &str = "tiphys:node-services";
const CLASSES: Resource = Resource::new("storage.k8s.io", "v1", "storageclasses");
const BINDINGS: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "clusterrolebindings");
const ROLES: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "clusterroles");
const SERVING_APPROVER: &str = "tiphys:kubelet-serving-approver";
const PROVISIONER: &str = "local-path-provisioner";

/// Creates missing objects; objects that a user has changed stay. Joining machines use `url` and trust the CA
/// `ca`.
pub async fn create(server: &Arc<Server>, chosen: &[String], url: &str, ca: &str) -> Result<()> {
    let client = in_process::administrator(server);
    if controllers::runs(PROVISIONER, chosen) {
        ensure(&client, CLASSES, "", &controllers::default_class()).await?;
        ensure(&client, ROLES, "", &provisioner_role()).await?;
        ensure(&client, BINDINGS, "", &provisioner_binding()).await?;
    }
    ensure(&client, ROLES, "", &serving_approver_role()).await?;
    ensure(&client, BINDINGS, "", &serving_approver_binding()).await?;
    grant_kubelet_access(server).await?;
    create_join_objects(server, url, ca).await
}

/// The DNS that the nodes of a cluster serve.
pub struct NodeDns {
    /// None if it is turned off.
    pub address: Option<IpAddr>,
    pub domain: String,
}

impl NodeDns {
    /// The DNS of this machine's node.
    pub fn of(options: &Options) -> NodeDns {
        let address = match options.services.dns {
            Dns::At(address) => Some(address),
            Dns::Disabled | Dns::Deployed(_) | Dns::OfCluster => None,
        };
        NodeDns { address, domain: options.config.cluster_domain.clone() }
    }

    /// The usual DNS of a cluster.
    pub fn at(network: &ClusterNetwork) -> NodeDns {
        NodeDns { address: services::cluster_dns_address(&network.service_cidrs), domain: "cluster.local".to_string() }
    }
}

/// Creates the Service and the ConfigMap of a DNS that nodes serve, and the RBAC of nodes for it and for their service
/// proxies. If the DNS is turned off, its Service is deleted, and another DNS can use the name.
pub async fn create_node_services(server: &Arc<Server>, dns: Option<NodeDns>) -> Result<()> {
    let client = in_process::administrator(server);
    grant_node_services(server).await?;
    match dns {
        Some(NodeDns { address: Some(address), domain }) => {
            ensure(&client, MAPS, SYSTEM, &services::dns_config_map(&domain)).await?;
            ensure_dns_service(&client, address).await
        }
        Some(NodeDns { address: None, .. }) => {
            let failed = |error: client::Error| Error::Bootstrap(error.to_string());
            services::delete_dns_service(&client).await.map_err(failed)
        }
        None => Ok(()),
    }
}

/// Publishes the network between nodes, and lets nodes read it.
pub async fn create_pod_network(server: &Arc<Server>, network: &overlay::Config) -> Result<()> {
    let client = in_process::administrator(server);
    for (resource, namespace, object) in pod_network::grants() {
        ensure(&client, resource, namespace, &object).await?;
    }
    pod_network::publish(&client, network).await.map_err(|error| Error::Bootstrap(error.to_string()))
}

/// Another object may have the name or the address, for instance that of a chart. It is kept.
async fn ensure_dns_service(client: &Client, address: IpAddr) -> Result<()> {
    let dns = services::dns_service(address);
    // The address is allocated before the name: creating an existing Service would fail because its address is in use.
    if client.get(SERVICES, SYSTEM, dns.str("metadata.name")).await.is_ok() {
        return Ok(());
    }
    match client.create(SERVICES, SYSTEM, &dns).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_already_exists() => Ok(()),
        Err(error) => {
            tracing::warn!(%error, "failed to create the Service of the DNS; it is served without one");
            Ok(())
        }
    }
}

/// Grants nodes the access that their DNS and their service proxies need.
pub async fn grant_node_services(server: &Arc<Server>) -> Result<()> {
    let client = in_process::administrator(server);
    ensure(&client, ROLES, "", &node_services_role()).await?;
    let nodes = tree! { "apiGroup" => "rbac.authorization.k8s.io", "kind" => "Group", "name" => "system:nodes" };
    ensure(&client, BINDINGS, "", &binding(NODE_SERVICES, NODE_SERVICES, nodes.clone())).await?;
    ensure(&client, NAMESPACED_ROLES, SYSTEM, &corefile_role()).await?;
    ensure(&client, NAMESPACED_BINDINGS, SYSTEM, &corefile_binding(nodes)).await
}

/// Lets nodes read the Corefile, and no ConfigMap of that name in another namespace.
fn corefile_role() -> Tree {
    let rule = tree! {
        "apiGroups" => list![""], "resources" => list!["configmaps"], "resourceNames" => list!["coredns"],
        "verbs" => list!["get", "list", "watch"],
    };
    tree! {
        "apiVersion" => "rbac.authorization.k8s.io/v1",
        "kind" => "Role",
        "metadata" => tree! { "name" => NODE_SERVICES, "namespace" => SYSTEM },
        "rules" => list![rule],
    }
}

fn corefile_binding(nodes: Tree) -> Tree {
    let mut binding = binding(NODE_SERVICES, NODE_SERVICES, nodes);
    binding.set("kind", "RoleBinding");
    binding.child("metadata").set("namespace", SYSTEM);
    binding.child("roleRef").set("kind", "Role");
    binding
}

fn node_services_role() -> Tree {
    let read = |group: &str, resources: &[&str]| {
        let resources: Vec<Tree> = resources.iter().map(|resource| Tree::from(*resource)).collect();
        tree! { "apiGroups" => list![group], "resources" => resources, "verbs" => list!["get", "list", "watch"] }
    };
    tree! {
        "apiVersion" => "rbac.authorization.k8s.io/v1",
        "kind" => "ClusterRole",
        "metadata" => tree! { "name" => NODE_SERVICES },
        "rules" => list![
            read("", &["services", "namespaces"]),
            read("discovery.k8s.io", &["endpointslices"]),
            // For network policies, as the agents of other pod networks have it.
            read("", &["pods"]),
            read("networking.k8s.io", &["servicecidrs", "networkpolicies"]),
        ],
    }
}

/// Grants the API server's kubelet client certificate access to kubelets.
pub(crate) async fn grant_kubelet_access(server: &Arc<Server>) -> Result<()> {
    ensure(&in_process::administrator(server), BINDINGS, "", &kubelet_api_admin()).await
}

/// Creates the objects for machines that join at `url` and trust the CA `ca`.
pub(crate) async fn create_join_objects(server: &Arc<Server>, url: &str, ca: &str) -> Result<()> {
    let client = in_process::administrator(server);
    for (resource, namespace, object) in join_objects::objects(url, ca) {
        ensure(&client, resource, namespace, &object).await?;
    }
    refresh_cluster_info(&client, url, ca).await
}

/// Replaces an object that an earlier start published with an address that other machines do not reach, or another CA.
async fn refresh_cluster_info(client: &Client, url: &str, ca: &str) -> Result<()> {
    let failed = |error: client::Error| Error::Bootstrap(error.to_string());
    let mut found = client.get(MAPS, PUBLIC, join_objects::INFO).await.map_err(failed)?;
    let wanted = join_objects::public_kubeconfig(url, ca);
    let published = api::yaml::decode(found.map("data").str("kubeconfig").as_bytes()).unwrap_or_default();
    let cluster = published.list("clusters").first().map(|one| one.at("cluster").clone()).unwrap_or_default();
    let is_ours = cluster.str("certificate-authority-data") == api::base64::encode(ca.as_bytes());
    if is_ours && (cluster.str("server") == url || !is_loopback(cluster.str("server"))) {
        return Ok(());
    }
    found.child("data").set("kubeconfig", wanted);
    client.update(MAPS, PUBLIC, join_objects::INFO, &found).await.map(drop).map_err(failed)
}

async fn ensure(client: &Client, resource: Resource, namespace: &str, object: &Tree) -> Result<()> {
    match client.create(resource, namespace, object).await {
        Err(error) if !error.is_already_exists() => Err(Error::Bootstrap(error.to_string())),
        _ => Ok(()),
    }
}

/// The provisioner requests the erasure of volumes with annotations of nodes.
pub fn provisioner_role() -> Tree {
    let rule = tree! { "apiGroups" => list![""], "resources" => list!["nodes/status"], "verbs" => list!["patch"] };
    tree! {
        "apiVersion" => "rbac.authorization.k8s.io/v1",
        "kind" => "ClusterRole",
        "metadata" => tree! { "name" => "tiphys:local-path-provisioner" },
        "rules" => list![rule],
    }
}

/// The role binding of the built-in volume provisioner.
pub fn provisioner_binding() -> Tree {
    let subject = tree! {
        "kind" => "ServiceAccount",
        "name" => "persistent-volume-binder",
        "namespace" => "kube-system",
    };
    binding("tiphys:local-path-provisioner", "tiphys:local-path-provisioner", subject)
}

/// The controller that approves the certificates of nodes may do so for the signer of their ports too.
fn serving_approver_role() -> Tree {
    let rule = tree! {
        "apiGroups" => list!["certificates.k8s.io"], "resources" => list!["signers"],
        "resourceNames" => list!["kubernetes.io/kubelet-serving"], "verbs" => list!["approve"],
    };
    tree! {
        "apiVersion" => "rbac.authorization.k8s.io/v1",
        "kind" => "ClusterRole",
        "metadata" => tree! { "name" => SERVING_APPROVER },
        "rules" => list![rule],
    }
}

fn serving_approver_binding() -> Tree {
    let subject = tree! {
        "kind" => "ServiceAccount",
        "name" => "certificate-controller",
        "namespace" => "kube-system",
    };
    binding(SERVING_APPROVER, SERVING_APPROVER, subject)
}

/// The API server reads logs and the like from kubelets with its own client certificate.
pub fn kubelet_api_admin() -> Tree {
    let subject = tree! { "apiGroup" => "rbac.authorization.k8s.io", "kind" => "User", "name" => KUBELET_CLIENT_USER };
    binding("tiphys:kubelet-api-admin", "system:kubelet-api-admin", subject)
}

fn binding(name: &str, role: &str, subject: Tree) -> Tree {
    let group = "rbac.authorization.k8s.io";
    tree! {
        "apiVersion" => "rbac.authorization.k8s.io/v1",
        "kind" => "ClusterRoleBinding",
        "metadata" => tree! { "name" => name },
        "roleRef" => tree! { "apiGroup" => group, "kind" => "ClusterRole", "name" => role },
        "subjects" => list![subject],
    }
}
