//! PUT of an object, or of its status.

use std::sync::Arc;

use api::Tree;
use api::field::{Errors, Path};
use api::status::Status;

use super::{check_namespace, read_object, scope};
use crate::call::{Call, HttpResponse};
use crate::registry::Registry;
use crate::registry::options::WriteOptions;
use crate::registry::respond;
use crate::registry::write::{MODIFIED, Outcome};
use crate::storage::resource::Resource;

pub(crate) async fn update(
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    respond::accepted(&call.head)?;
    let options = WriteOptions::parse(&call.head, "UpdateOptions", false)?;
    let mut object = read_object(call, resource, &options).await?;
    check_namespace(&mut object, resource, &call.head.info.namespace)?;
    check_name(&object, &call.head.info.name)?;
    let mut warnings = Vec::new();
    let updated = put(registry, resource, call, object, &options, &mut warnings).await;
    call.warnings.append(&mut warnings);
    let (code, outcome) = updated?;
    respond::outcome(call, resource, code, &outcome)
}

pub(crate) fn check_name(object: &Tree, name: &str) -> Result<(), Status> {
    match object.str("metadata.name") {
        "" => Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        given if given != name => Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        ))),
        _ => Ok(()),
    }
}

async fn put(
    registry: &Registry,
    resource: &Resource,
    call: &Call,
    object: Tree,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> Result<(u16, Outcome), Status> {
    let scope = scope(registry, resource, call, options.dry_run)?;
    let name = &call.head.info.name;
    let changed = scope
        .update(name, warnings, |old, _| {
            check_version(resource, &object, old, name)?;
            let mut object = object.clone();
            scope.own_fields(Some(old), &mut object, options);
            Ok(object)
        })
        .await;
    match changed {
        Err(status)
            if status.code == 404 && resource.kind.create_on_update && call.head.info.subresource.is_empty() =>
        {
            let mut object = object;
            object.child("metadata").remove("resourceVersion");
            Ok((201, scope.create(object, options, warnings).await?))
        }
        Err(status) => Err(status),
        Ok(outcome) => Ok((200, outcome)),
    }
}

/// The client's resourceVersion and uid, if set, must be those of the stored object.
pub(crate) fn check_version(resource: &Resource, object: &Tree, old: &Tree, name: &str) -> Result<(), Status> {
    let kind = &resource.kind;
    let uid = object.str("metadata.uid");
    if !uid.is_empty() && uid != old.str("metadata.uid") {
        return Err(wrong_uid(resource, uid, old, name));
    }
    let version = object.str("metadata.resourceVersion");
    if version.is_empty() || version == "0" {
        return if kind.unconditional_update { Ok(()) } else { Err(version_required(resource, name)) };
    }
    if version != old.str("metadata.resourceVersion") {
        if version.parse::<u64>().is_err() {
            return Err(invalid_version(version));
        }
        return Err(Status::conflict(kind.group(), kind.plural(), name, MODIFIED));
    }
    Ok(())
}

/// The words of upstream's store.
pub(crate) fn wrong_uid(resource: &Resource, uid: &str, old: &Tree, name: &str) -> Status {
    let key = resource.store_key(old.str("metadata.namespace"), name);
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
        old.str("metadata.uid")
    );
    Status::conflict(resource.kind.group(), resource.kind.plural(), name, &why)
}

fn version_required(resource: &Resource, name: &str) -> Status {
    let mut errors = Errors::new();
    let path = Path::root("metadata");
    errors.invalid(&path.field("resourceVersion"), 0, "must be specified for an update");
    Status::invalid(resource.kind.group(), resource.kind.plural(), name, &errors)
}

/// Upstream's store fails before any validation.
fn invalid_version(version: &str) -> Status {
    Status::new(500, "", format!("strconv.ParseUint: parsing {version:?}: invalid syntax"))
}
