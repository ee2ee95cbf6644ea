//! Nothing happens in a namespace that does not exist.

use api::Tree;
use api::status::Status;

use super::{Attributes, Operation};

pub(super) fn validate(
    attributes: &Attributes<'_>,
    _: Option<&Tree>,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    let inside = attributes.resource.kind.namespaced && !attributes.namespace.is_empty();
    if !inside || attributes.operation == Operation::Connect {
        return Ok(());
    }
    match attributes.registry.storage.object("namespaces", attributes.namespace) {
        Some(_) => Ok(()),
        None => Err(Status::not_found("", "namespaces", attributes.namespace)),
    }
}
