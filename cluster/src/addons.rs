//! What a cluster has from its first start besides what every API server makes.

use std::sync::Arc;

use api::{Tree, list, tree};
use client::{Client, Resource};
use server::Server;

use crate::components::KUBELET_CLIENT_USER;
use crate::error::{Error, Result};
use crate::local;
use crate::node::joining;

const CLASSES: Resource = Resource::new("storage.k8s.io", "v1", "storageclasses");
const BINDINGS: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "clusterrolebindings");
const ROLES: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "clusterroles");
const PROVISIONER: &str = "local-path-provisioner";

/// Makes what is missing; what a user has changed stays as it is. Machines that join reach it at `url`, and believe
/// `authority`.
pub async fn make(server: &Arc<Server>, chosen: &[String], url: &str, authority: &str) -> Result<()> {
    let client = local::administrator(server);
    if controllers::runs(PROVISIONER, chosen) {
        ensure(&client, CLASSES, "", &controllers::default_class()).await?;
        ensure(&client, ROLES, "", &provisioner_role()).await?;
        ensure(&client, BINDINGS, "", &provisioner_binding()).await?;
    }
    reaches_kubelets(server).await?;
    can_be_joined(server, url, authority).await
}

/// Gives the certificate that this server shows to kubelets its rights there.
pub async fn reaches_kubelets(server: &Arc<Server>) -> Result<()> {
    ensure(&local::administrator(server), BINDINGS, "", &kubelet_api_admin()).await
}

/// What machines need that join at `url` and believe `authority`.
pub async fn can_be_joined(server: &Arc<Server>, url: &str, authority: &str) -> Result<()> {
    let client = local::administrator(server);
    for (resource, namespace, object) in joining::objects(url, authority) {
        ensure(&client, resource, namespace, &object).await?;
    }
    Ok(())
}

async fn ensure(client: &Client, resource: Resource, namespace: &str, object: &Tree) -> Result<()> {
    match client.create(resource, namespace, object).await {
        Err(error) if !error.is_already_exists() => Err(Error::Bootstrap(error.to_string())),
        _ => Ok(()),
    }
}

/// Nodes are asked to erase volumes by annotations of theirs.
pub fn provisioner_role() -> Tree {
    let rule = tree! { "apiGroups" => list![""], "resources" => list!["nodes/status"], "verbs" => list!["patch"] };
    tree! {
        "apiVersion" => "rbac.authorization.k8s.io/v1",
        "kind" => "ClusterRole",
        "metadata" => tree! { "name" => "tiphys:local-path-provisioner" },
        "rules" => list![rule],
    }
}

pub fn provisioner_binding() -> Tree {
    let subject = tree! {
        "kind" => "ServiceAccount",
        "name" => "persistent-volume-binder",
        "namespace" => "kube-system",
    };
    binding("tiphys:local-path-provisioner", "tiphys:local-path-provisioner", subject)
}

/// The API server asks kubelets for logs and the like by a certificate of its own.
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
