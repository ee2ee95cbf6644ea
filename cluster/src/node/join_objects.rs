//! Objects that let machines join, with kubeadm's names: permissions to request certificates, the approval of the
//! requests, and the public cluster-info.

use api::{Tree, base64, list, tree};
use client::Resource;

use super::token::GROUP;

const BINDINGS: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "clusterrolebindings");
const CLUSTER_ROLES: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "clusterroles");
const ROLES: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "roles");
const ROLE_BINDINGS: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "rolebindings");
const MAPS: Resource = Resource::core("configmaps");
/// The namespace of public objects.
pub(crate) const PUBLIC: &str = "kube-public";
const API_GROUP: &str = "rbac.authorization.k8s.io";
/// The ConfigMap that anonymous clients may read.
pub const INFO: &str = "cluster-info";
const INFO_ROLE: &str = "kubeadm:bootstrap-signer-clusterinfo";

/// Name, cluster role, and the group that has it.
const GRANTS: [(&str, &str, &str); 3] = [
    ("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", GROUP),
    ("kubeadm:node-autoapprove-bootstrap", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", GROUP),
    (
        "kubeadm:node-autoapprove-certificate-rotation",
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        "system:nodes",
    ),
];

/// Joining machines look whether their name is taken, as with kubeadm.
const GET_NODES: &str = "kubeadm:get-nodes";

fn get_nodes_role() -> Tree {
    let rule = tree! { "apiGroups" => list![""], "resources" => list!["nodes"], "verbs" => list!["get"] };
    tree! {
        "apiVersion" => "rbac.authorization.k8s.io/v1",
        "kind" => "ClusterRole",
        "metadata" => tree! { "name" => GET_NODES },
        "rules" => list![rule],
    }
}

/// Nodes may open tunnels; each only its own, which the server derives from its certificate.
const NODE_TUNNEL: &str = "tiphys:node-tunnel";
const NODES: &str = "system:nodes";

fn node_tunnel_role() -> Tree {
    tree! {
        "apiVersion" => "rbac.authorization.k8s.io/v1",
        "kind" => "ClusterRole",
        "metadata" => tree! { "name" => NODE_TUNNEL },
        "rules" => list![tree! { "nonResourceURLs" => list![tunnel::PATH], "verbs" => list!["get"] }],
    }
}

/// Each object with its resource and namespace. `server` is the URL for joining machines, `ca` the CA
/// certificate in PEM.
pub fn objects(server: &str, ca: &str) -> Vec<(Resource, &'static str, Tree)> {
    let mut objects: Vec<_> = GRANTS.iter().map(|grant| (BINDINGS, "", binding(grant))).collect();
    objects.push((CLUSTER_ROLES, "", get_nodes_role()));
    objects.push((BINDINGS, "", binding(&(GET_NODES, GET_NODES, GROUP))));
    objects.push((CLUSTER_ROLES, "", node_tunnel_role()));
    objects.push((BINDINGS, "", binding(&(NODE_TUNNEL, NODE_TUNNEL, NODES))));
    objects.push((ROLES, PUBLIC, role()));
    objects.push((ROLE_BINDINGS, PUBLIC, role_binding()));
    objects.push((MAPS, PUBLIC, info(server, ca)));
    objects
}

fn group(name: &str) -> Tree {
    tree! { "apiGroup" => API_GROUP, "kind" => "Group", "name" => name }
}

fn binding((name, role, who): &(&str, &str, &str)) -> Tree {
    tree! {
        "apiVersion" => "rbac.authorization.k8s.io/v1",
        "kind" => "ClusterRoleBinding",
        "metadata" => tree! { "name" => *name },
        "roleRef" => tree! { "apiGroup" => API_GROUP, "kind" => "ClusterRole", "name" => *role },
        "subjects" => list![group(who)],
    }
}

fn role() -> Tree {
    let rule = tree! {
        "apiGroups" => list![""], "resources" => list!["configmaps"],
        "resourceNames" => list!["cluster-info"], "verbs" => list!["get"],
    };
    tree! {
        "apiVersion" => "rbac.authorization.k8s.io/v1",
        "kind" => "Role",
        "metadata" => tree! { "name" => INFO_ROLE, "namespace" => PUBLIC },
        "rules" => list![rule],
    }
}

/// Joining machines are anonymous.
fn role_binding() -> Tree {
    let anonymous = tree! { "apiGroup" => API_GROUP, "kind" => "User", "name" => "system:anonymous" };
    tree! {
        "apiVersion" => "rbac.authorization.k8s.io/v1",
        "kind" => "RoleBinding",
        "metadata" => tree! { "name" => INFO_ROLE, "namespace" => PUBLIC },
        "roleRef" => tree! { "apiGroup" => API_GROUP, "kind" => "Role", "name" => INFO_ROLE },
        "subjects" => list![anonymous],
    }
}

/// The public kubeconfig: the URL of the cluster and its CA certificate.
pub(crate) fn public_kubeconfig(server: &str, ca: &str) -> String {
    let cluster = tree! { "server" => server, "certificate-authority-data" => base64::encode(ca.as_bytes()) };
    let config = tree! {
        "apiVersion" => "v1",
        "kind" => "Config",
        "clusters" => list![tree! { "name" => "", "cluster" => cluster }],
        "contexts" => Tree::Null,
        "current-context" => "",
        "preferences" => tree! {},
        "users" => Tree::Null,
    };
    String::from_utf8_lossy(&api::yaml::encode(&config)).into_owned()
}

/// Whether a published cluster-info names one of these CA certificates.
pub(crate) fn has_ca(info: &Tree, ca: &str) -> bool {
    let config = api::yaml::decode(info.map("data").str("kubeconfig").as_bytes()).unwrap_or_default();
    let data = config.list("clusters").first().map_or("", |one| one.str("cluster.certificate-authority-data"));
    let published = base64::decode(data).unwrap_or_default();
    let hashes = |pem: &str| super::join::fingerprints(pem).unwrap_or_default();
    let own = hashes(ca);
    hashes(&String::from_utf8_lossy(&published)).iter().any(|hash| own.contains(hash))
}

fn info(server: &str, ca: &str) -> Tree {
    let text = public_kubeconfig(server, ca);
    tree! {
        "apiVersion" => "v1",
        "kind" => "ConfigMap",
        "metadata" => tree! { "name" => INFO, "namespace" => PUBLIC },
        "data" => tree! { "kubeconfig" => text },
    }
}
