//! Where a kind needs more of the server than its pure functions can give: one small function for each
//! occasion, which says what it does for which kind. Everything else is the one path.

use std::time::Duration;

use api::Tree;
use api::field::Errors;
use api::status::Status;
use kinds::Kind;
use store::{Durability, Write as StoreWrite};

use crate::registry::Registry;
use crate::registry::admission::resource_quota;
use crate::registry::write::Scope;
use crate::storage::is_seen;

/// What an object claims beside itself (addresses, ports), committed with it or not at all.
#[derive(Default)]
pub struct Claims {
    writes: Vec<StoreWrite>,
    /// Holds what is claimed in memory until the commit is published.
    _reserved: Option<crate::registry::alloc::Reservation>,
}

impl Claims {
    pub fn new(writes: Vec<StoreWrite>, reserved: Option<crate::registry::alloc::Reservation>) -> Claims {
        Claims { writes, _reserved: reserved }
    }

    /// These, before the others.
    fn behind(mut self, writes: Vec<StoreWrite>) -> Claims {
        self.writes.splice(0..0, writes);
        self
    }

    pub fn writes(&self) -> &[StoreWrite] {
        &self.writes
    }
}

/// What the cluster adds to an object before it is judged: services learn their IP families.
pub fn complete(scope: &Scope<'_>, object: &mut Tree, old: Option<&Tree>) -> Result<(), Status> {
    match scope.resource.kind.kind {
        "Service" if scope.subresource.is_empty() => crate::registry::alloc::complete(scope, object, old),
        _ => Ok(()),
    }
}

/// Whether a claim writes what it got into the object itself.
pub fn claims_change(kind: &Kind) -> bool {
    kind.kind == "Service"
}

/// Services claim addresses and node ports; every kind claims its share of the namespace's quotas.
pub fn claim_create(scope: &Scope<'_>, name: &str, object: &mut Tree) -> Result<Claims, Status> {
    let charges = resource_quota::claim(scope, name, object, None)?;
    let claims = match scope.resource.kind.kind {
        "Service" => crate::registry::alloc::claim(scope, name, object, None)?,
        _ => Claims::default(),
    };
    Ok(claims.behind(charges))
}

pub fn claim_update(scope: &Scope<'_>, name: &str, object: &mut Tree, old: &Tree) -> Result<Claims, Status> {
    let charges = resource_quota::claim(scope, name, object, Some(old))?;
    let claims = match scope.resource.kind.kind {
        "Service" if scope.subresource.is_empty() => crate::registry::alloc::claim(scope, name, object, Some(old))?,
        _ => Claims::default(),
    };
    Ok(claims.behind(charges))
}

/// What goes with a deleted object.
pub fn release(scope: &Scope<'_>, object: &Tree) -> Vec<StoreWrite> {
    match scope.resource.kind.kind {
        "Service" => crate::registry::alloc::release(scope, object),
        _ => Vec::new(),
    }
}

/// Kinds with a missing engine are refused; a Local APIService needs none.
pub fn is_refused(kind: &Kind, object: &Tree) -> bool {
    kind.kind != "APIService" || object.at("spec").has("service")
}

/// An object that is going says so.
pub fn exists(there: &Tree, mut status: Status) -> Status {
    if there.at("metadata").has("deletionTimestamp") {
        status.message = format!("object is being deleted: {}", status.message);
    }
    status
}

pub fn prepare_update(scope: &Scope<'_>, object: &mut Tree, old: &Tree) -> Result<(), Status> {
    let kind = scope.resource.kind;
    let context = scope.context();
    match scope.subresource {
        "" | "scale" => (kind.prepare_update)(object, old, &context),
        "status" => {
            let rules = kind.status.ok_or_else(Status::no_resource)?;
            (rules.prepare)(object, old, &context);
        }
        other => crate::registry::subresources::prepare(other, scope, object, old)?,
    }
    Ok(())
}

pub fn validate_update(scope: &Scope<'_>, object: &Tree, old: &Tree, errors: &mut Errors) {
    let kind = scope.resource.kind;
    match scope.subresource {
        // Nobody has seen it yet: an initializer may change what nobody may change later.
        "" if !is_seen(old) => (kind.validate)(object, errors),
        "" | "scale" => (kind.validate_update)(object, old, errors),
        "status" => {
            if let Some(rules) = kind.status {
                (rules.validate)(object, old, errors);
            }
        }
        other => crate::registry::subresources::validate(other, scope, object, old, errors),
    }
}

/// Events, and leases that were only renewed, may be answered before they are on disk.
pub fn durability(kind: &Kind, object: &Tree, old: Option<&Tree>) -> Durability {
    let relaxed = match (kind.kind, old) {
        ("Event", _) => true,
        ("Lease", Some(old)) => only_renewed(object, old),
        _ => false,
    };
    if relaxed { Durability::Relaxed } else { Durability::Durable }
}

fn only_renewed(object: &Tree, old: &Tree) -> bool {
    let without_time = |tree: &Tree| {
        let mut tree = tree.clone();
        tree.remove_at("spec.renewTime");
        tree.remove_at("metadata.managedFields");
        tree.remove_at("metadata.resourceVersion");
        tree
    };
    without_time(object) == without_time(old)
}

pub fn ttl(registry: &Registry, kind: &Kind) -> Option<Duration> {
    (kind.kind == "Event").then_some(registry.config.event_ttl)
}

/// Kinds whose deletion answers with the object rather than with a Status.
pub fn returns_deleted(kind: &Kind) -> bool {
    matches!(
        kind.kind,
        "Pod"
            | "PodTemplate"
            | "Service"
            | "ServiceAccount"
            | "PersistentVolume"
            | "PersistentVolumeClaim"
            | "ResourceQuota"
            | "Namespace"
            | "StorageClass"
            | "CSIDriver"
            | "CSINode"
            | "VolumeAttachment"
            | "VolumeAttributesClass"
            | "ResourceClaim"
            | "ResourceClaimTemplate"
            | "DeviceClass"
            | "ResourceSlice"
    )
}

/// A namespace waits for its own finalizers in the spec, and is marked at the first deletion even where
/// it has none.
pub fn waits_for_finalize(kind: &Kind, object: &Tree) -> bool {
    let marked = object.at("metadata").has("deletionTimestamp");
    kind.kind == "Namespace" && (!marked || !object.list("spec.finalizers").is_empty())
}

/// A namespace that waits shows no grace period.
pub fn waits_without_grace(kind: &Kind) -> bool {
    kind.kind == "Namespace"
}

/// What else happens to an object that is marked for deletion.
pub fn on_mark(kind: &Kind, object: &mut Tree) {
    if kind.kind == "Namespace" {
        object.child("status").set("phase", "Terminating");
    }
}

/// Gives a job without labels those of its template while it is decided who owns its fields: upstream has
/// them by default, so that they count as the client's. The server adds its own to them later.
pub fn lend_labels(kind: &Kind, object: &mut Tree) -> bool {
    let is_job = kind.group == "batch" && kind.kind == "Job";
    if !is_job || !object.map("metadata.labels").is_empty() || object.map("spec.template.metadata.labels").is_empty() {
        return false;
    }
    let labels = object.at("spec.template.metadata.labels").clone();
    object.child("metadata").set("labels", labels);
    true
}

pub fn is_graceful(kind: &Kind) -> bool {
    kind.kind == "Pod"
}

/// The seconds that a pod gets: what is asked for, else its own, and none where nothing runs.
pub fn grace_period(pod: &Tree, asked: Option<i64>) -> i64 {
    let own = pod.int("spec.terminationGracePeriodSeconds").unwrap_or(30);
    let seconds = asked.unwrap_or(own);
    let done = matches!(pod.str("status.phase"), "Failed" | "Succeeded");
    if pod.str("spec.nodeName").is_empty() || done {
        return 0;
    }
    // A negative period means the shortest that is not "now".
    if seconds < 0 { 1 } else { seconds }
}

/// Kinds of old whose dependents stay unless asked otherwise.
pub fn orphans_by_default(kind: &Kind) -> bool {
    matches!((kind.group, kind.kind), ("", "ReplicationController") | ("batch", "Job"))
}

/// Events own nothing: the garbage collector does not look at them.
pub fn has_dependents(kind: &Kind) -> bool {
    kind.kind != "Event"
}

/// What every request to a kind that is on its way out is told.
pub fn deprecation(kind: &Kind) -> Option<&'static str> {
    match (kind.group, kind.kind) {
        ("", "Endpoints") => Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        ("", "ComponentStatus") => Some("v1 ComponentStatus is deprecated in v1.19+"),
        _ => None,
    }
}
