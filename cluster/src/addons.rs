//! What a cluster has from its first start besides what every API server makes.

use std::sync::Arc;

use api::{Tree, list, tree};
use client::Resource;
use server::Server;

use crate::components::KUBELET_CLIENT_USER;
use crate::error::{Error, Result};
use crate::local;

const CLASSES: Resource = Resource::new("storage.k8s.io", "v1", "storageclasses");
const BINDINGS: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "clusterrolebindings");
const PROVISIONER: &str = "local-path-provisioner";

/// Makes what is missing; what a user has changed stays as it is.
pub async fn make(server: &Arc<Server>, chosen: &[String]) -> Result<()> {
    let mut all = vec![(BINDINGS, kubelet_api_admin())];
    if controllers::runs(PROVISIONER, chosen) {
        all.push((CLASSES, controllers::default_class()));
    }
    let administrator = local::administrator(server);
    for (resource, object) in all {
        match administrator.create(resource, "", &object).await {
            Err(error) if !error.is_already_exists() => return Err(Error::Bootstrap(error.to_string())),
            _ => {}
        }
    }
    Ok(())
}

/// The API server asks kubelets for logs and the like by a certificate of its own.
pub fn kubelet_api_admin() -> Tree {
    tree! {
        "apiVersion" => "rbac.authorization.k8s.io/v1",
        "kind" => "ClusterRoleBinding",
        "metadata" => tree! { "name" => "tiphys:kubelet-api-admin" },
        "roleRef" => tree! {
            "apiGroup" => "rbac.authorization.k8s.io",
            "kind" => "ClusterRole",
            "name" => "system:kubelet-api-admin",
        },
        "subjects" => list![tree! {
            "apiGroup" => "rbac.authorization.k8s.io",
            "kind" => "User",
            "name" => KUBELET_CLIENT_USER,
        }],
    }
}
