//! Steps of the write path that differ between kinds and need the server: allocation, quota, subresources. The row of a
//! kind enables them.

use crate::storage::kind::Kind;
use std::time::Duration;

use api::Tree;
use api::field::Errors;
use api::status::Status;
use store::{Durability, Write as StoreWrite};

use crate::registry::admission::resource_quota;
use crate::registry::write::Scope;
use crate::storage::is_seen;

/// Writes that belong to an object (addresses, ports, quota), committed with it or not at all.
#[derive(Default)]
pub(crate) struct Claims {
    writes: Vec<StoreWrite>,
    /// Holds the claim in memory until the commit is published.
    _reserved: Option<crate::registry::alloc::Reservation>,
}

impl Claims {
    pub(crate) fn new(writes: Vec<StoreWrite>, reserved: Option<crate::registry::alloc::Reservation>) -> Claims {
        Claims { writes, _reserved: reserved }
    }

    /// Inserts these writes before the existing ones.
    fn behind(mut self, writes: Vec<StoreWrite>) -> Claims {
        self.writes.splice(0..0, writes);
        self
    }

    pub(crate) fn writes(&self) -> &[StoreWrite] {
        &self.writes
    }
}

/// Completes an object from the configuration of the cluster before it is validated: services get their IP families.
pub(crate) fn complete(scope: &Scope<'_>, object: &mut Tree, old: Option<&Tree>) -> Result<(), Status> {
    match scope.resource.kind.lifecycle.allocates && scope.subresource.is_empty() {
        true => crate::registry::alloc::complete(scope, object, old),
        false => Ok(()),
    }
}

/// Services claim addresses and node ports; every kind claims its share of the namespace's quotas.
pub(crate) fn claim_create(scope: &Scope<'_>, name: &str, object: &mut Tree) -> Result<Claims, Status> {
    let charges = resource_quota::claim(scope, name, object, None)?;
    let claims = match scope.resource.kind.lifecycle.allocates {
        true => crate::registry::alloc::claim(scope, name, object, None)?,
        false => Claims::default(),
    };
    Ok(claims.behind(charges))
}

pub(crate) fn claim_update(scope: &Scope<'_>, name: &str, object: &mut Tree, old: &Tree) -> Result<Claims, Status> {
    let charges = resource_quota::claim(scope, name, object, Some(old))?;
    let claims = match scope.resource.kind.lifecycle.allocates && scope.subresource.is_empty() {
        true => crate::registry::alloc::claim(scope, name, object, Some(old))?,
        false => Claims::default(),
    };
    Ok(claims.behind(charges))
}

/// The writes that release the claims of a deleted object.
pub(crate) fn release(scope: &Scope<'_>, object: &Tree) -> Vec<StoreWrite> {
    match scope.resource.kind.lifecycle.allocates {
        true => crate::registry::alloc::release(scope, object),
        false => Vec::new(),
    }
}

/// How long the response to a create waits for a controller to process the object.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(250);

/// A client that creates a definition creates its objects next: the response waits a moment until the names of the
/// definition are accepted and served. Without the controller the response is only later.
pub(crate) async fn wait_until_settled(scope: &Scope<'_>, name: &str) {
    let kind = &scope.resource.kind;
    let Some(is_settled) = kind.lifecycle.is_settled.filter(|_| !scope.dry_run) else { return };
    let storage = &scope.registry.storage;
    let is_done = || storage.object(kind.storage(), name).is_none_or(|object| is_settled(&object));
    storage.caches.until(tokio::time::Instant::now() + SETTLE_TIMEOUT, is_done).await;
}

/// The error for an existing object; it reports if the object is being deleted.
pub(crate) fn exists(there: &Tree, mut status: Status) -> Status {
    if there.at("metadata").has("deletionTimestamp") {
        status.message = format!("object is being deleted: {}", status.message);
    }
    status
}

pub(crate) fn prepare_update(scope: &Scope<'_>, object: &mut Tree, old: &Tree) -> Result<(), Status> {
    let kind = &scope.resource.kind;
    let context = scope.context();
    match scope.subresource {
        "" | "scale" => kind.prepare_update(object, old, &context),
        "status" => {
            if !kind.prepare_status(object, old, &context) {
                return Err(Status::no_resource());
            }
        }
        other => crate::registry::subresources::prepare(other, scope, object, old)?,
    }
    Ok(())
}

pub(crate) fn validate_update(scope: &Scope<'_>, object: &Tree, old: &Tree, errors: &mut Errors) {
    let (kind, deadline) = (&scope.resource.kind, scope.deadline());
    match scope.subresource {
        // The object is not visible to clients yet: an initializer may change fields that are immutable later.
        "" if !is_seen(old) => kind.validate_unseen(object, old, deadline, errors),
        "" | "scale" => kind.validate_update(object, old, deadline, errors),
        "status" => kind.validate_status(object, old, deadline, errors),
        other => crate::registry::subresources::validate(other, scope, object, old, errors),
    }
}

/// Some writes may be acknowledged before they are on disk.
pub(crate) fn durability(kind: &Kind, object: &Tree, old: Option<&Tree>) -> Durability {
    if (kind.lifecycle.is_relaxed)(object, old) { Durability::Relaxed } else { Durability::Durable }
}

/// Whether an object waits for the finalizers of its spec. It is marked at the first deletion even without any.
pub(crate) fn waits_for_finalize(kind: &Kind, object: &Tree) -> bool {
    let marked = object.at("metadata").has("deletionTimestamp");
    kind.lifecycle.spec_finalizers && (!marked || !object.list("spec.finalizers").is_empty())
}

/// Copies the labels of its template to an object without labels while field owners are determined: upstream sets them
/// by default, and they count as the client's. Returns whether it did; the server adds its own labels later.
pub(crate) fn lend_labels(kind: &Kind, object: &mut Tree) -> bool {
    let Some(path) = kind.lifecycle.labels_from else { return false };
    if !object.map("metadata.labels").is_empty() || object.map(path).is_empty() {
        return false;
    }
    let labels = object.at(path).clone();
    object.child("metadata").set("labels", labels);
    true
}
