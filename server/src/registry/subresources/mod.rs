//! The subresources that are not plain objects: scale, binding, eviction, token, proxies and more.

mod binding;
pub(crate) mod component_status;
mod connect;
mod eviction;
pub(crate) mod node;
pub(crate) mod proxy;
mod reviews;
mod scale;
mod token;

use std::sync::Arc;

use api::field::Errors;
use api::status::Status;
use api::{Tree, tree};
use kinds::certificates::certificate_signing_request::APPROVAL;
use kinds::core::namespace;
use kinds::core::pod::{ephemeral_containers, resize};

use crate::call::{Call, HttpResponse};
use crate::registry::Registry;
use crate::registry::write::Scope;
use crate::registry::{respond, verbs};
use crate::request::head::RequestHead;
use crate::storage::resource::Resource;

/// A request to a subresource, by its name.
pub(crate) async fn handle(
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    if matches!(call.head.info.subresource.as_str(), "exec" | "attach" | "portforward" | "proxy") {
        connect::admit(registry, resource, call).await?;
    }
    match (call.head.info.subresource.as_str(), call.head.info.verb) {
        ("scale", "get") => scale::get(registry, resource, call).await,
        ("scale", "update") => scale::update(registry, resource, call).await,
        ("scale", "patch") => scale::patch(registry, resource, call).await,
        ("binding", "create") => binding::create(registry, resource, call).await,
        ("eviction", "create") => eviction::create(registry, resource, call).await,
        ("token", "create") => token::create(registry, resource, call).await,
        ("log", _) => connect::log(registry, resource, call).await,
        ("exec" | "attach", _) => connect::run(registry, resource, call).await,
        ("portforward", _) => connect::port_forward(registry, resource, call).await,
        ("proxy", _) => proxy::handle(registry, resource, call).await,
        (_, "get") => verbs::get::get(registry, resource, call).await,
        (_, "update") => verbs::update::update(registry, resource, call).await,
        (_, "patch") => verbs::patch::patch(registry, resource, call).await,
        _ => Err(Status::method_not_allowed()),
    }
}

/// Kinds that are never stored: reviews, bindings and the health of components.
pub(crate) async fn serve_virtual(
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    match resource.kind.kind() {
        "Binding" => binding::create(registry, resource, call).await,
        "ComponentStatus" => component_status::read(registry, resource, call).await,
        _ => reviews::create(registry, resource, call).await,
    }
}

/// Prepares an object that is written through one of the subresources of its own kind.
pub(crate) fn prepare(name: &str, scope: &Scope<'_>, object: &mut Tree, old: &Tree) -> Result<(), Status> {
    let context = scope.context();
    match name {
        "ephemeralcontainers" => ephemeral_containers::prepare(object, old, &context),
        "resize" => resize::prepare(object, old, &context),
        "finalize" => namespace::prepare_finalize(object, old, &context),
        "approval" => (APPROVAL.prepare)(object, old, &context),
        _ => return Err(Status::no_resource()),
    }
    Ok(())
}

pub(crate) fn validate(name: &str, _: &Scope<'_>, object: &Tree, old: &Tree, errors: &mut Errors) {
    match name {
        "ephemeralcontainers" => ephemeral_containers::validate(object, old, errors),
        "resize" => resize::validate(object, old, errors),
        "finalize" => namespace::validate_finalize(object, old, errors),
        "approval" => (APPROVAL.validate)(object, old, errors),
        _ => {}
    }
}

/// The response of writes that return no object.
fn success(head: &RequestHead, code: u16) -> Result<HttpResponse, Status> {
    let status = tree! {
        "kind" => "Status",
        "apiVersion" => "v1",
        "metadata" => tree! {},
        "status" => "Success",
        "code" => i64::from(code),
    };
    Ok(respond::encoded(code, &status, respond::accepted(head)?))
}
