//! The server's part of an object's metadata: what it sets on new objects, and what no client can change.

use api::status::Status;
use api::{Tree, time};

use super::Scope;
use crate::storage::resource::Resource;

/// Sets the server's metadata of a new object. True if a name is to be generated.
pub(crate) fn begin_create(object: &mut Tree, scope: &Scope<'_>) -> Result<bool, Status> {
    let meta = object.child("metadata");
    if !meta.str("resourceVersion").is_empty() {
        return Err(Status::new(500, "", "resourceVersion should not be set on objects to be created"));
    }
    meta.remove("resourceVersion");
    if scope.resource.kind.namespaced {
        meta.set("namespace", scope.namespace);
    } else {
        meta.remove("namespace");
    }
    meta.set("uid", crate::common::ids::uid());
    meta.set("creationTimestamp", time::format_seconds(scope.now));
    Ok(meta.str("name").is_empty() && !meta.str("generateName").is_empty())
}

/// Fields that a client cannot set on a new object; they have no owner either.
pub(crate) fn wipe_system_fields(object: &mut Tree) {
    let meta = object.child("metadata");
    for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        meta.remove(key);
    }
}

/// A duplicate owner reference is removed, with a warning.
pub(crate) fn dedup_owners(object: &mut Tree, warnings: &mut Vec<String>) {
    let Some(Tree::List(owners)) = object.at_mut("metadata.ownerReferences") else { return };
    let mut twice: Vec<String> = Vec::new();
    let mut kept: Vec<Tree> = Vec::with_capacity(owners.len());
    for owner in owners.drain(..) {
        if kept.contains(&owner) {
            twice.push(owner.str("uid").to_string());
        } else {
            kept.push(owner);
        }
    }
    *owners = kept;
    if !twice.is_empty() {
        warnings.push(format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twice.join(", ")
        ));
    }
}

/// A name from `generateName`.
pub(crate) fn generate_name(object: &mut Tree) {
    let meta = object.child("metadata");
    // Names are at most 63 bytes, since they become labels and host names.
    let base: String = meta.str("generateName").chars().take(58).collect();
    meta.set("name", format!("{base}{}", crate::common::ids::suffix()));
}

/// No generated name was free.
pub(crate) fn name_timeout(resource: &Resource, status: Status) -> Status {
    let kind = &resource.kind;
    let name = status.details.as_ref().map_or("", |details| &details.name);
    Status {
        message: format!(
            "{} {name:?} already exists, the server was not able to generate a unique name for the object",
            status_resource(kind)
        ),
        ..status.clone()
    }
}

fn status_resource(kind: &crate::storage::kind::Kind) -> String {
    if kind.group().is_empty() { kind.plural().to_string() } else { format!("{}.{}", kind.plural(), kind.group()) }
}

/// Copies the immutable metadata from the stored object.
pub(crate) fn keep_system_metadata(object: &mut Tree, old: &Tree) {
    let meta = object.child("metadata");
    meta.remove("selfLink");
    if let Some(created) = old.at("metadata").get("creationTimestamp") {
        meta.set("creationTimestamp", created.clone());
    }
    if !meta.has("uid") {
        meta.set("uid", old.str("metadata.uid"));
    }
    match old.at("metadata").get("generation") {
        Some(generation) => meta.set("generation", generation.clone()),
        None => {
            meta.remove("generation");
        }
    }
    meta.set("resourceVersion", old.str("metadata.resourceVersion"));
    keep_deletion(object, old);
}

/// A deletion cannot be undone, neither by a client nor by the `prepare` of a kind.
pub(crate) fn keep_deletion(object: &mut Tree, old: &Tree) {
    let (meta, old) = (object.child("metadata"), old.at("metadata"));
    if old.has("deletionTimestamp") {
        meta.set("deletionTimestamp", old.at("deletionTimestamp").clone());
    }
    if old.has("deletionGracePeriodSeconds") {
        meta.set_default("deletionGracePeriodSeconds", old.at("deletionGracePeriodSeconds").clone());
    }
}

/// Whether an object that is being deleted has no finalizers and no grace period left.
pub(crate) fn finished(object: &Tree) -> bool {
    let meta = object.at("metadata");
    meta.has("deletionTimestamp")
        && meta.list("finalizers").is_empty()
        && meta.int("deletionGracePeriodSeconds").is_none_or(|seconds| seconds == 0)
        && object.list("spec.finalizers").is_empty()
}

/// An object that is deeper than decoders accept could not be read again. Managed fields are deeper than the object
/// that they describe, so the decoders' own limit does not suffice.
pub(super) fn check_depth(object: &Tree) -> Result<(), Status> {
    match object.exceeds_depth(api::tree::MAX_DEPTH) {
        true => Err(Status::bad_request("the object with its managed fields is nested too deeply: exceeded max depth")),
        false => Ok(()),
    }
}
