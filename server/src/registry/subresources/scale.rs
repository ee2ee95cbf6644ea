//! /scale: the replicas of an object as a Scale object.

use std::sync::{Arc, LazyLock};

use api::apply::{self, SameVersion};
use api::field::Errors;
use api::json::Strict;
use api::status::Status;
use api::{Tree, time, typed};
use kinds::Kind;
use kinds::kind::column;

use crate::call::{Call, HttpResponse};
use crate::registry::Registry;
use crate::registry::options::WriteOptions;
use crate::registry::verbs::patch::{self, Patch, PatchType};
use crate::registry::verbs::update::{check_name, check_version};
use crate::registry::verbs::{self, check_namespace};
use crate::registry::write::{Outcome, Scope};
use crate::registry::{conversion, respond, shape};
use crate::request::codec::{ExpectedType, Validation};
use crate::request::head::RequestHead;
use crate::storage::kind::Kind as StorageKind;
use crate::storage::resource::Resource;

static SCALE: Kind = Kind {
    columns: &[
        column("Name", "string", "", 0),
        column("Desired", "integer", "", 0),
        column("Available", "integer", "", 0),
        column("Age", "string", "", 0),
    ],
    cells,
    ..Kind::namespaced("autoscaling", "v1", "Scale", "scales", "scale")
};
/// The Scale of custom resources, whose table has other columns.
static CUSTOM_SCALE: Kind = Kind {
    columns: &[
        column("Name", "string", "name", 0),
        column("Desired", "integer", "", 0),
        column("Available", "integer", "", 0),
        column("Age", "date", "", 0),
    ],
    cells,
    ..Kind::namespaced("autoscaling", "v1", "Scale", "scales", "scale")
};
static SCALE_KIND: LazyLock<StorageKind> = LazyLock::new(|| StorageKind::built_in(&SCALE));
static CUSTOM_SCALE_KIND: LazyLock<StorageKind> = LazyLock::new(|| StorageKind::built_in(&CUSTOM_SCALE));
const API_VERSION: &str = "autoscaling/v1";

fn cells(scale: &Tree, now: i64) -> Vec<Tree> {
    let number = |path: &str| Tree::from(scale.int(path).unwrap_or(0));
    vec![kinds::cells::name(scale), number("spec.replicas"), number("status.replicas"), kinds::cells::age(scale, now)]
}

pub(super) async fn get(registry: &Registry, resource: &Arc<Resource>, call: &Call) -> Result<HttpResponse, Status> {
    registry.storage.wait_for_version(call.head.query.get("resourceVersion")).await?;
    let scope = verbs::scope(registry, resource, call, false)?;
    let item = scope.current(&call.head.info.name).await?;
    let object = conversion::read(registry, resource, &item).await?;
    require_replicas(resource, &object)?;
    scale_response(&call.head, resource, &object)
}

/// A custom resource without a number of replicas cannot be read as a scale, only written.
fn require_replicas(resource: &Resource, object: &Tree) -> Result<(), Status> {
    let path = resource.kind.scale().map_or("", |paths| paths.spec_replicas);
    if resource.kind.definition().is_none() || object.int(path).is_some() {
        return Ok(());
    }
    Err(Status::internal(format!("the spec replicas field \".{path}\" does not exist")))
}

pub(super) async fn update(
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    respond::accepted(&call.head)?;
    let options = WriteOptions::parse(&call.head, "UpdateOptions", false)?;
    let mut given = verbs::read_expected(call, &ExpectedType::for_kind(&SCALE), &options).await?;
    check_namespace(&mut given, resource, &call.head.info.namespace)?;
    check_name(&given, &call.head.info.name)?;
    let scope = verbs::scope(registry, resource, call, options.dry_run)?;
    let mut warnings = Vec::new();
    let written = write(&scope, &call.head, &options, &mut warnings, |_, _| Ok(given.clone())).await;
    call.warnings.append(&mut warnings);
    scale_response(&call.head, resource, &written?.tree(resource))
}

pub(super) async fn patch(
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    respond::accepted(&call.head)?;
    let ty = PatchType::of(&call.head, resource)?;
    let options = WriteOptions::parse(&call.head, "PatchOptions", ty == PatchType::Apply)?;
    let body = call.read_body().await?;
    let patch = Patch::read(ty, &body)?;
    let scope = verbs::scope(registry, resource, call, options.dry_run)?;
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    let written = match patch.applied() {
        Some(applied) => {
            patch::check_applied(applied, &scope, &call.head.info.name)?;
            let change = |live: &Tree, old: &Tree| applied_scale(&scope, live, old, applied, &options);
            write(&scope, &call.head, &options, &mut warnings, change).await
        }
        None => {
            write(&scope, &call.head, &options, &mut warnings, |live, _| {
                let patched = patch.patched(live, Some(SCALE.schema()))?;
                let mut scale = patch::shape_patched(
                    &ExpectedType::for_kind(&SCALE),
                    live,
                    patched,
                    &patch,
                    &options,
                    &mut problems,
                )?;
                patch::check_identity(&mut scale, &call.head.info.name, &scope)?;
                Ok(scale)
            })
            .await
        }
    };
    if options.validation == Validation::Warn {
        call.warnings.append(&mut problems);
    }
    call.warnings.append(&mut warnings);
    scale_response(&call.head, resource, &written?.tree(resource))
}

fn applied_scale(
    scope: &Scope<'_>,
    live: &Tree,
    old: &Tree,
    applied: &Tree,
    options: &WriteOptions,
) -> Result<Tree, Status> {
    patch::check_patch_version(scope.resource, applied, old, old.str("metadata.name"))?;
    let versions = SameVersion { api_version: API_VERSION, ty: SCALE.schema().into() };
    let request = request(scope, options, &versions);
    let mut scale = apply::apply(Some(live), applied, options.force, &request).map_err(patch::apply_status)?;
    typed::conform(&mut scale, SCALE.schema(), &mut Strict::default())
        .map_err(|error| Status::bad_request(error.to_string()))?;
    Ok(scale)
}

fn request<'a>(scope: &Scope<'_>, options: &'a WriteOptions, versions: &'a SameVersion<'a>) -> apply::Request<'a> {
    apply::Request {
        manager: &options.field_manager,
        api_version: API_VERSION,
        subresource: "scale",
        now: time::format_seconds(scope.now),
        reset: None,
        versions,
    }
}

/// Writes the parent of a scale: `change` computes it from the live scale and the live parent.
async fn write<F>(
    scope: &Scope<'_>,
    head: &RequestHead,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
    mut change: F,
) -> Result<Outcome, Status>
where
    F: FnMut(&Tree, &Tree) -> Result<Tree, Status> + Send,
{
    let name = &head.info.name;
    let is_apply = head.header(http::header::CONTENT_TYPE).is_some_and(|ty| ty.starts_with("application/apply"));
    let versions = SameVersion { api_version: API_VERSION, ty: SCALE.schema().into() };
    scope
        .update(name, warnings, |old, _| {
            let live = live_scale(scope, old)?;
            let mut scale = change(&live, old)?;
            if !is_apply {
                apply::update(Some(&live), &mut scale, &request(scope, options, &versions));
            }
            parent(scope, &scale, old, name)
        })
        .await
}

/// The scale with the managed fields that its parent's managers have in it.
fn live_scale(scope: &Scope<'_>, object: &Tree) -> Result<Tree, Status> {
    let mut scale = scale_of(scope.resource, object)?;
    let versions = versions(scope);
    let managed =
        apply::scale_from_parent(object.list("metadata.managedFields"), &paths(&versions)).map_err(Status::internal)?;
    if !managed.as_list().unwrap_or(&[]).is_empty() {
        scale.child("metadata").set("managedFields", managed);
    }
    Ok(scale)
}

/// The parent as a scale would have it.
fn parent(scope: &Scope<'_>, scale: &Tree, old: &Tree, name: &str) -> Result<Tree, Status> {
    let resource = scope.resource;
    validate_scale(resource, scale, name)?;
    check_scale_version(resource, scale, old, name)?;
    let mut object = old.clone();
    let paths_of = resource.kind.scale().ok_or_else(Status::no_resource)?;
    kinds::scale::apply_to_object(paths_of, scale, &mut object);
    let versions = versions(scope);
    let (own, scales) = (old.list("metadata.managedFields"), scale.list("metadata.managedFields"));
    let managed =
        apply::parent_from_scale(own, scales, resource.api_version(), &paths(&versions)).map_err(Status::internal)?;
    object.child("metadata").set("managedFields", managed);
    Ok(object)
}

/// Custom resources are validated as a whole, by their schema.
fn validate_scale(resource: &Resource, scale: &Tree, name: &str) -> Result<(), Status> {
    let mut errors = Errors::new();
    if resource.kind.definition().is_none() {
        kinds::scale::validate(scale, &mut errors);
    }
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(SCALE.group, SCALE.kind, name, &errors)) }
}

/// The scale of a custom resource may be written without a version, although the resource may not.
fn check_scale_version(resource: &Resource, scale: &Tree, old: &Tree, name: &str) -> Result<(), Status> {
    if resource.kind.definition().is_some() && scale.str("metadata.resourceVersion").is_empty() {
        return Ok(());
    }
    check_version(resource, scale, old, name)
}

/// Each version of the parent, and the path of its replicas.
fn versions(scope: &Scope<'_>) -> Vec<(String, String)> {
    let versions = scope.registry.storage.resources.versions_of(scope.resource);
    let path = |version: &Arc<Resource>| {
        Some((version.api_version().to_string(), version.kind.scale()?.spec_replicas.to_string()))
    };
    versions.iter().filter_map(path).collect()
}

fn paths(versions: &[(String, String)]) -> Vec<apply::ReplicasPath<'_>> {
    versions.iter().map(|(version, path)| (version.as_str(), path.as_str())).collect()
}

fn scale_of(resource: &Resource, object: &Tree) -> Result<Tree, Status> {
    let paths = resource.kind.scale().ok_or_else(Status::no_resource)?;
    Ok(kinds::scale::from_object(paths, object))
}

fn scale_response(head: &RequestHead, resource: &Resource, object: &Tree) -> Result<HttpResponse, Status> {
    let accepted = respond::accepted(head)?;
    let scale = scale_of(resource, object)?;
    let kind = if resource.kind.definition().is_some() { &CUSTOM_SCALE_KIND } else { &SCALE_KIND };
    let shaped = shape::object(kind, scale, respond::shaping(head, accepted)?)?;
    Ok(respond::encoded(200, &shaped, accepted))
}
