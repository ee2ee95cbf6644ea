//! Finds the handler of a call.

use std::sync::Arc;

use api::status::Status;
use http::Method;
use kinds::Verb;

use crate::aggregation::{self, ApiService};
use crate::call::{Call, HttpResponse, text};
use crate::fairness;
use crate::registry::{subresources, usage, verbs};
use crate::request::head::RequestHead;
use crate::routes::Routes;
use crate::routes::{discovery, health, history, openapi, tunnel, why};
use crate::storage::resource::Resource;

pub(crate) async fn route(routes: &Routes, call: &mut Call) -> Result<HttpResponse, Status> {
    if call.head.path.starts_with("//") {
        return Ok(page_not_found());
    }
    if call.head.path.starts_with(why::ROOT) && call.head.info.is_resource {
        return Box::pin(why::route(routes, call)).await;
    }
    if history::serves(&call.head.path) && call.head.info.is_resource {
        return Box::pin(history::route(routes, call)).await;
    }
    if let Some(service) = find_extension(routes, &call.head) {
        return Box::pin(aggregation::forward(&routes.aggregator, &service, call)).await;
    }
    if call.head.info.is_resource {
        return route_resource(routes, call).await;
    }
    if let Some(response) = discovery::route(routes, &call.head)? {
        return Ok(response);
    }
    if let Some(response) = Box::pin(openapi::route(routes, &call.head)).await? {
        return Ok(response);
    }
    if let Some(response) = Box::pin(health::route(routes, &call.head)).await {
        return Ok(response);
    }
    if let Some(response) = tunnel::route(routes, call) {
        return response;
    }
    if let Some(response) = usage::route(&routes.registry, &call.head) {
        return Ok(response);
    }
    if let Some(page) =
        fairness::dump::page(&routes.fairness, &call.head.path, &call.head.query).filter(|_| routes.is_fair)
    {
        return Ok(text(200, &page));
    }
    Ok(page_not_found())
}

pub(crate) fn page_not_found() -> HttpResponse {
    text(404, "404 page not found\n")
}

/// The extension API server of a group version, even if this server serves the same one.
fn find_extension(routes: &Routes, head: &RequestHead) -> Option<Arc<ApiService>> {
    let mut parts = head.path.strip_prefix("/apis/")?.split('/');
    let (group, version) = (parts.next()?, parts.next()?);
    routes.aggregator.find(group, version)
}

async fn route_resource(routes: &Routes, call: &mut Call) -> Result<HttpResponse, Status> {
    let info = &call.head.info;
    let resource = match routes.registry.storage.resources.find(&info.group, &info.version, &info.resource) {
        Some(resource) => resource,
        None if routes.registry.storage.resources.has_group(&info.group) => return Err(Status::no_resource()),
        None => return Ok(page_not_found()),
    };
    if let Err(status) = check_place(&resource, &call.head) {
        // Upstream's handler of custom resources passes such paths to the next handler, which has none for them.
        return if resource.kind.definition().is_some() { Ok(page_not_found()) } else { Err(status) };
    }
    call.head.untyped = resource.kind.definition().is_some() && call.head.info.subresource != "scale";
    if !call.head.info.subresource.is_empty() {
        return Box::pin(route_subresource(routes, &resource, call)).await;
    }
    let allowed = allowed_verb(&resource, &call.head);
    // A request with a method that no resource has gets no other warning.
    let warns = allowed.as_ref().map_or_else(|status| *status != Status::method_not_allowed(), |_| true);
    if warns {
        warn_deprecated(&resource, call);
    }
    let verb = allowed?;
    // The futures of writes are kilobytes: each is boxed, which keeps the future of a GET small.
    match verb {
        _ if resource.kind.storage().is_empty() => {
            Box::pin(subresources::serve_virtual(&routes.registry, &resource, call)).await
        }
        Verb::Create => Box::pin(verbs::create::create(&routes.registry, &resource, call)).await,
        Verb::Get => verbs::get::get(&routes.registry, &resource, call).await,
        Verb::List => Box::pin(verbs::list::list(&routes.registry, &resource, &call.head)).await,
        Verb::Watch => Box::pin(verbs::watch::watch(&routes.registry, &resource, call)).await,
        Verb::Update => Box::pin(verbs::update::update(&routes.registry, &resource, call)).await,
        Verb::Patch => Box::pin(verbs::patch::patch(&routes.registry, &resource, call)).await,
        Verb::Delete => Box::pin(verbs::delete::delete(&routes.registry, &resource, call)).await,
        Verb::DeleteCollection => Box::pin(verbs::delete::delete_collection(&routes.registry, &resource, call)).await,
    }
}

fn warn_deprecated(resource: &Resource, call: &mut Call) {
    if let Some(warning) = resource.kind.deprecation() {
        call.warnings.push(warning.to_string());
        call.audit.annotate("k8s.io/deprecated", "true");
    }
}

/// Checks that a namespaced object has a namespace in its path, and that a cluster-scoped object has none.
fn check_place(resource: &Resource, head: &RequestHead) -> Result<(), Status> {
    let info = &head.info;
    let of_namespaces = info.resource == "namespaces" && info.group.is_empty();
    let has_namespace = !info.namespace.is_empty() && !of_namespaces;
    if resource.kind.definition().is_some()
        && resource.kind.namespaced
        && !has_namespace
        && !matches!(info.verb, "list" | "watch")
    {
        return Err(Status::no_resource());
    }
    if info.path.contains("//") || (!resource.kind.namespaced && has_namespace) {
        return Err(Status::no_resource());
    }
    if resource.kind.namespaced && !has_namespace && !info.name.is_empty() {
        return Err(Status::no_resource());
    }
    Ok(())
}

fn allowed_verb(resource: &Resource, head: &RequestHead) -> Result<Verb, Status> {
    let collection = head.info.name.is_empty();
    let verb = match (head.info.verb, &head.method) {
        ("create", _) if collection => Verb::Create,
        ("get", &Method::GET) => Verb::Get,
        ("list", &Method::GET) => Verb::List,
        ("watch", &Method::GET) => Verb::Watch,
        ("update", _) if !collection => Verb::Update,
        ("patch", _) if !collection => Verb::Patch,
        ("delete", _) => Verb::Delete,
        ("deletecollection", _) => Verb::DeleteCollection,
        _ => return Err(Status::method_not_allowed()),
    };
    let everywhere = resource.kind.namespaced && head.info.namespace.is_empty();
    if everywhere && !matches!(verb, Verb::List | Verb::Watch) {
        return Err(Status::method_not_allowed());
    }
    if verb == Verb::Get && !resource.kind.has(Verb::Get) {
        return Err(Status::no_resource());
    }
    if verb == Verb::Watch && !resource.kind.has(Verb::Watch) && resource.kind.has(Verb::List) {
        return Err(watch_not_supported(resource));
    }
    if !resource.kind.has(verb) {
        return Err(Status::method_not_allowed());
    }
    Ok(verb)
}

fn watch_not_supported(resource: &Resource) -> Status {
    verb_not_supported("watch", "", resource.kind.plural())
}

fn verb_not_supported(verb: &str, group: &str, plural: &str) -> Status {
    let resource = if group.is_empty() { plural.to_string() } else { format!("{plural}.{group}") };
    let mut status =
        Status::new(405, "MethodNotAllowed", format!("{verb} is not supported on resources of kind {resource:?}"));
    let (group, kind) = (group.to_string(), plural.to_string());
    status.details = Some(api::status::Details { group, kind, ..Default::default() });
    status
}

async fn route_subresource(routes: &Routes, resource: &Arc<Resource>, call: &mut Call) -> Result<HttpResponse, Status> {
    let Some(sub) = resource.kind.subresource(&call.head.info.subresource) else {
        return Err(match resource.kind.definition() {
            Some(_) => resource.not_found(&call.head.info.name),
            None => Status::no_resource(),
        });
    };
    if resource.kind.definition().is_some() {
        warn_deprecated(resource, call);
    }
    if !call.head.info.rest.is_empty() && sub.name != "proxy" {
        return Err(Status::no_resource());
    }
    // A proxy passes every method on.
    if sub.name == "proxy" {
        return subresources::handle(&routes.registry, resource, call).await;
    }
    let verb = match call.head.info.verb {
        "create" => Verb::Create,
        "get" => Verb::Get,
        "update" => Verb::Update,
        "patch" => Verb::Patch,
        "delete" => Verb::Delete,
        _ => return Err(Status::method_not_allowed()),
    };
    if resource.kind.definition().is_some() && !sub.verbs.contains(&verb) {
        return Err(verb_not_supported(call.head.info.verb, resource.kind.group(), resource.kind.plural()));
    }
    if call.head.method == Method::HEAD || !sub.verbs.contains(&verb) {
        return Err(Status::method_not_allowed());
    }
    subresources::handle(&routes.registry, resource, call).await
}
