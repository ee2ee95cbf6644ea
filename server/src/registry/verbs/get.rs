//! GET of one object.

use std::sync::Arc;

use api::status::Status;

use crate::call::{Call, HttpResponse};
use crate::registry::Registry;
use crate::registry::write::Outcome;
use crate::registry::{conversion, respond};
use crate::storage::resource::Resource;

pub(crate) async fn get(registry: &Registry, resource: &Arc<Resource>, call: &Call) -> Result<HttpResponse, Status> {
    respond::accepted(&call.head)?;
    let version = call.head.query.get("resourceVersion");
    registry.storage.wait_for_version(version).await?;
    let name = &call.head.info.name;
    let namespace = if resource.kind.namespaced { call.head.info.namespace.as_str() } else { "" };
    // A reader that names a version gets the cached object; any other gets the newest one.
    let found = if version.is_empty() {
        registry.storage.read(resource, namespace, name).await?
    } else {
        resource.cache()?.get(&resource.key(namespace, name))
    };
    let hidden = crate::registry::initializers::hides(&call.head.query);
    let seen = found.filter(|item| !hidden || item.is_initialized(resource.stored_row()));
    let item = seen.ok_or_else(|| resource.not_found(name))?;
    let outcome = conversion::show(registry, resource, Outcome::Stored(item)).await?;
    respond::outcome(call, resource, 200, &outcome)
}
