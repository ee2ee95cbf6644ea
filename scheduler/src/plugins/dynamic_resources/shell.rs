//! Writes allocations and reservations into claims, and waits until their devices are attached.

use std::sync::Arc;
use std::time::Duration;

use api::{Str, Tree, list, tree};
use client::{DeleteOptions, Error, Patch, Resource, Result};
use devices::{Claim, EXTENDED_RESOURCE_CLAIM, ExtendedRequests, FINALIZER, is_ready_for_binding};

use super::pending::{Reservation, ReservedClaim, WrittenClaim, version_of};
use crate::framework::Handle;
use crate::snapshot::Kind;
use podmodel::Pod;

const CLAIMS: Resource = Resource::new("resource.k8s.io", "v1", "resourceclaims");
const PODS: Resource = Resource::core("pods");
/// How often a write is tried if the claim changes meanwhile.
const ATTEMPTS: usize = 5;

/// Allocates and reserves all claims of a pod.
pub(super) async fn bind(
    handle: &Handle,
    pod: &Pod,
    reservation: &Reservation,
    timeout: Duration,
) -> Result<Vec<WrittenClaim>> {
    let mut written = Vec::with_capacity(reservation.claims.len() + 1);
    for one in &reservation.claims {
        if !one.claim.is_reserved_for(&pod.uid) {
            written.push(bind_claim(handle, pod, one).await?);
        }
    }
    if let Some((allocation, extended)) = &reservation.extended {
        written.push(bind_extended(handle, pod, allocation, extended).await?);
    }
    wait_until_attached(handle, &written, timeout).await?;
    Ok(written)
}

async fn bind_claim(handle: &Handle, pod: &Pod, one: &ReservedClaim) -> Result<WrittenClaim> {
    let claim = &one.claim;
    let known = handle.objects.get(Kind::ResourceClaim, &claim.key).map(|object| Tree::clone(&object));
    let mut object = known.filter(|object| object.str("metadata.uid") == claim.uid);
    for _ in 1..ATTEMPTS {
        let current = match object.take() {
            Some(object) => object,
            None => handle.client.get(CLAIMS, &claim.namespace, &claim.name).await?,
        };
        match write(handle, pod, current, &claim.uid, one.allocation.as_ref()).await {
            Err(error) if error.is_conflict() => {}
            result => return result,
        }
    }
    Err(Error::failed(format!("claim {} changes too often", claim.key)))
}

/// Adds the finalizer, and then the allocation and the reservation.
async fn write(
    handle: &Handle,
    pod: &Pod,
    mut claim: Tree,
    uid: &str,
    allocation: Option<&Tree>,
) -> Result<WrittenClaim> {
    let (namespace, name) = (claim.str("metadata.namespace").to_string(), claim.str("metadata.name").to_string());
    let failed = |what: &str| Err(Error::failed(format!("claim {namespace}/{name} {what} in the meantime")));
    if claim.str("metadata.uid") != uid || claim.at("metadata").has("deletionTimestamp") {
        return failed("got deleted");
    }
    let is_allocated = claim.get("status").is_some_and(|status| status.has("allocation"));
    match allocation {
        Some(_) if is_allocated => return failed("got allocated elsewhere"),
        None if !is_allocated => return failed("got deallocated elsewhere"),
        Some(allocation) => {
            let has_finalizer = claim.list("metadata.finalizers").iter().any(|one| one.as_str() == Some(FINALIZER));
            if !has_finalizer {
                let mut finalizers = claim.list("metadata.finalizers").to_vec();
                finalizers.push(Tree::from(FINALIZER));
                claim.child("metadata").set("finalizers", finalizers);
                claim = handle.client.update(CLAIMS, &namespace, &name, &claim).await?;
            }
            claim.child("status").set("allocation", allocation.clone());
        }
        None => {}
    }
    let status = claim.child("status");
    if status.str("allocation.allocationTimestamp").is_empty() {
        let now = api::time::format_seconds(handle.clock.now().seconds);
        status.child("allocation").set("allocationTimestamp", now);
    }
    let mut consumers = status.list("reservedFor").to_vec();
    if !consumers.iter().any(|consumer| consumer.str("uid") == pod.uid) {
        consumers.push(tree! { "resource" => "pods", "name" => pod.name.clone(), "uid" => pod.uid.clone() });
    }
    status.set("reservedFor", consumers);
    let written = handle.client.update_status(CLAIMS, &namespace, &name, &claim).await?;
    Ok(WrittenClaim {
        namespace: Str::from(namespace),
        name: Str::from(name),
        uid: Str::new(uid),
        version: version_of(written.str("metadata.resourceVersion")),
    })
}

/// Creates the claim for extended resources, and shows it in the pod's status.
async fn bind_extended(
    handle: &Handle,
    pod: &Pod,
    allocation: &Tree,
    extended: &ExtendedRequests,
) -> Result<WrittenClaim> {
    let owner = tree! {
        "apiVersion" => "v1", "kind" => "Pod", "name" => pod.name.clone(), "uid" => pod.uid.clone(), "controller" => true,
    };
    let mut annotations = tree! {};
    annotations.set(EXTENDED_RESOURCE_CLAIM, "true");
    let claim = tree! {
        "apiVersion" => "resource.k8s.io/v1",
        "kind" => "ResourceClaim",
        "metadata" => tree! {
            "generateName" => format!("{}-extended-resources-", pod.name),
            "namespace" => pod.namespace.clone(),
            "annotations" => annotations,
            "ownerReferences" => list![owner],
        },
        "spec" => tree! { "devices" => tree! { "requests" => extended.requests.clone() } },
    };
    let created = handle.client.create(CLAIMS, &pod.namespace, &claim).await?;
    let uid = created.str("metadata.uid").to_string();
    let written = write(handle, pod, created, &uid, Some(allocation)).await?;
    let mappings = extended.mappings.iter().map(|one| {
        tree! {
            "containerName" => one.container.clone(),
            "resourceName" => one.resource.clone(),
            "requestName" => one.request.clone(),
        }
    });
    let status = tree! {
        "requestMappings" => mappings.collect::<Vec<_>>(),
        "resourceClaimName" => written.name.clone(),
    };
    let patch = tree! {
        "metadata" => tree! { "uid" => pod.uid.clone() },
        "status" => tree! { "extendedResourceClaimStatus" => status },
    };
    handle.client.patch(PODS, &pod.namespace, &pod.name, "status", Patch::Strategic(&patch)).await?;
    Ok(written)
}

/// Waits for the binding conditions of the devices.
async fn wait_until_attached(handle: &Handle, written: &[WrittenClaim], timeout: Duration) -> Result<()> {
    let late = |_| Err(Error::failed("device binding timeout".to_string()));
    let wait = async {
        for claim in written {
            let key = format!("{}/{}", claim.namespace, claim.name);
            // Subscribes before the first check, so that no change is missed.
            let mut changes = handle.changes.of(&key);
            while !is_attached(handle, &key, claim)? {
                changes.changed().await;
            }
        }
        Ok(())
    };
    tokio::time::timeout(timeout, wait).await.unwrap_or_else(late)
}

/// Whether the devices of a claim are attached. A claim that is not observed yet has no status of its devices either.
fn is_attached(handle: &Handle, key: &str, written: &WrittenClaim) -> Result<bool> {
    let Some(object) = handle.objects.get(Kind::ResourceClaim, key) else { return Ok(false) };
    let claim = Claim::read(&object);
    if claim.uid != written.uid {
        return Err(Error::failed(format!("claim {key} got deleted in the meantime")));
    }
    if version_of(&claim.version) < written.version {
        return Ok(false);
    }
    is_ready_for_binding(&claim).map_err(|failure| Error::failed(failure.to_string()))
}

/// Deallocates a claim that its pod cannot use, or deletes it if it was created for extended resources.
pub(super) async fn release(handle: &Handle, claim: &Arc<Claim>) -> Result<()> {
    let (namespace, name) = (&claim.namespace, &claim.name);
    let mut object = handle.client.get(CLAIMS, namespace, name).await?;
    if object.str("metadata.uid") != claim.uid {
        return Ok(());
    }
    if !claim.is_for_extended_resources {
        let status = object.child("status");
        ["allocation", "reservedFor", "devices"].iter().for_each(|field| drop(status.remove(field)));
        return handle.client.update_status(CLAIMS, namespace, name, &object).await.map(drop);
    }
    let others = object.list("metadata.finalizers").iter().filter(|one| one.as_str() != Some(FINALIZER)).cloned();
    let others: Vec<Tree> = others.collect();
    object.child("metadata").set("finalizers", others);
    handle.client.update(CLAIMS, namespace, name, &object).await?;
    match handle.client.delete(CLAIMS, namespace, name, DeleteOptions::default()).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
