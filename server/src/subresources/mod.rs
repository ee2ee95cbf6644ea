//! The parts of resources that are no plain object: scale, binding, eviction, token, proxies and more.

use std::sync::Arc;

use api::Tree;
use api::field::Errors;
use api::status::Status;

use crate::Server;
use crate::call::{Answer, Call};
use crate::resource::Resource;
use crate::verbs;
use crate::write::Scope;

/// A request to a subresource, by its name.
pub async fn handle(server: &Server, resource: &Arc<Resource>, call: &mut Call) -> Result<Answer, Status> {
    match (call.info.subresource.as_str(), call.info.verb) {
        (_, "get") => verbs::get::get(server, resource, call).await,
        (_, "update") => verbs::update::update(server, resource, call).await,
        (_, "patch") => verbs::patch::patch(server, resource, call).await,
        _ => Err(Status::method_not_allowed()),
    }
}

/// Kinds that are answered and never stored: reviews and bindings.
pub async fn answer_only(_server: &Server, _resource: &Arc<Resource>, _call: &mut Call) -> Result<Answer, Status> {
    Err(Status::method_not_allowed())
}

/// Prepares an object that is written through one of the subresources of its own kind.
pub fn prepare(_name: &str, _scope: &Scope<'_>, _object: &mut Tree, _old: &Tree) -> Result<(), Status> {
    Err(Status::no_resource())
}

pub fn validate(_name: &str, _scope: &Scope<'_>, _object: &Tree, _old: &Tree, _errors: &mut Errors) {}
