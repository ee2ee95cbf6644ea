//! Status updates.

use api::Tree;
use client::{Client, Resource, Result};

/// Writes a status unless it is unchanged; a deleted object is ignored.
pub(crate) async fn write(client: &Client, resource: Resource, object: &Tree, status: Tree) -> Result<()> {
    if *object.at("status") == status {
        return Ok(());
    }
    let mut object = object.clone();
    object.set("status", status);
    let (namespace, name) = (object.str("metadata.namespace"), object.str("metadata.name"));
    match client.update_status(resource, namespace, name, &object).await {
        Err(error) if error.is_not_found() => Ok(()),
        result => result.map(drop),
    }
}
