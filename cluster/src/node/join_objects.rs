//! Objects that let machines join, with kubeadm's names: permissions to request certificates, the approval of the
//! requests, and the public cluster-info.

use api::{Tree, base64, list, tree};
use client::Resource;

use super::token::GROUP;

const BINDINGS: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "clusterrolebindings");
const ROLES: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "roles");
const ROLE_BINDINGS: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "rolebindings");
const MAPS: Resource = Resource::core("configmaps");
const PUBLIC: &str = "kube-public";
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

/// Each object with its resource and namespace. `server` is the URL for joining machines, `ca` the CA
/// certificate in PEM.
pub fn objects(server: &str, ca: &str) -> Vec<(Resource, &'static str, Tree)> {
    let mut objects: Vec<_> = GRANTS.iter().map(|grant| (BINDINGS, "", binding(grant))).collect();
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

fn info(server: &str, ca: &str) -> Tree {
    let text = public_kubeconfig(server, ca);
    tree! {
        "apiVersion" => "v1",
        "kind" => "ConfigMap",
        "metadata" => tree! { "name" => INFO, "namespace" => PUBLIC },
        "data" => tree! { "kubeconfig" => text },
    }
}
