//! What a cluster has from its first start besides what every API server makes.

use std::sync::Arc;

use api::Tree;
use client::{Client, Resource};
use server::Server;

use crate::error::{Error, Result};
use crate::local;
use crate::node::joining;

const CLASSES: Resource = Resource::new("storage.k8s.io", "v1", "storageclasses");
const PROVISIONER: &str = "local-path-provisioner";

/// Makes what is missing; what a user has changed stays as it is. Machines that join reach it at `url`, and believe
/// `authority`.
pub async fn make(server: &Arc<Server>, chosen: &[String], url: &str, authority: &str) -> Result<()> {
    let client = local::administrator(server);
    if controllers::runs(PROVISIONER, chosen) {
        ensure(&client, CLASSES, "", &controllers::default_class()).await?;
    }
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
