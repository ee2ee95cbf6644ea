//! What a cluster has from its first start besides what every API server makes.

use std::sync::Arc;

use client::Resource;
use server::Server;

use crate::error::{Error, Result};
use crate::local;

const CLASSES: Resource = Resource::new("storage.k8s.io", "v1", "storageclasses");
const PROVISIONER: &str = "local-path-provisioner";

/// Makes what is missing; what a user has changed stays as it is.
pub async fn make(server: &Arc<Server>, chosen: &[String]) -> Result<()> {
    if !controllers::runs(PROVISIONER, chosen) {
        return Ok(());
    }
    match local::administrator(server).create(CLASSES, "", &controllers::default_class()).await {
        Err(error) if !error.is_already_exists() => Err(Error::Bootstrap(error.to_string())),
        _ => Ok(()),
    }
}
