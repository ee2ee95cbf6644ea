//! Writes the decided bindings and waits until they are complete.

use std::sync::Arc;
use std::time::Duration;

use api::{Tree, tree};
use client::{Error, Resource, Result};

use super::plan::Decision;
use crate::framework::Handle;
use crate::snapshot::Kind;
use podmodel::storage::{Claim, PersistentVolume, SELECTED_NODE};

const VOLUMES: Resource = Resource::core("persistentvolumes");
const CLAIMS: Resource = Resource::core("persistentvolumeclaims");
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

pub(super) async fn bind(handle: &Handle, node: &str, decision: &Decision, timeout: Duration) -> Result<()> {
    for (claim, volume) in &decision.bindings {
        let object = unchanged_object(handle, Kind::PersistentVolume, &volume.name, &volume.version)?;
        handle.client.update(VOLUMES, "", &volume.name, &bound_to(&object, volume, claim)).await?;
    }
    for claim in decision.provisions.iter().filter(|claim| claim.selected_node.is_none()) {
        let object = unchanged_object(handle, Kind::PersistentVolumeClaim, &claim.key, &claim.version)?;
        handle.client.update(CLAIMS, &claim.namespace, &claim.name, &selecting(&object, node)).await?;
    }
    let wait = wait(handle, node, decision);
    let late = |_| Err(Error::failed("timed out waiting for the volumes to be bound".to_string()));
    tokio::time::timeout(timeout, wait).await.unwrap_or_else(late)
}

/// The object of the decision with its version, so that concurrent changes are not overwritten.
fn unchanged_object(handle: &Handle, kind: Kind, key: &str, version: &str) -> Result<Arc<Tree>> {
    let is_same = |object: &Arc<Tree>| object.str("metadata.resourceVersion") == version;
    let changed = || Error::failed(format!("{kind:?} {key:?} has changed since the decision"));
    handle.objects.get(kind, key).filter(is_same).ok_or_else(changed)
}

fn bound_to(object: &Tree, volume: &PersistentVolume, claim: &Claim) -> Tree {
    let mut object = object.clone();
    let reference = tree! {
        "kind" => "PersistentVolumeClaim",
        "apiVersion" => "v1",
        "namespace" => claim.namespace.clone(),
        "name" => claim.name.clone(),
        "uid" => claim.uid.clone(),
        "resourceVersion" => claim.version.clone(),
    };
    object.child("spec").set("claimRef", reference);
    if volume.claim.is_none() {
        annotate(&mut object, BOUND_BY_CONTROLLER, "yes");
    }
    object
}

fn selecting(claim: &Tree, node: &str) -> Tree {
    let mut claim = claim.clone();
    annotate(&mut claim, SELECTED_NODE, node);
    claim
}

/// Annotation keys contain dots, which are not path separators.
fn annotate(object: &mut Tree, key: &str, value: &str) {
    object.child("metadata").child("annotations").set(key, value);
}

/// The binder and provisioners complete the bindings: each change of a claim is checked.
async fn wait(handle: &Handle, node: &str, decision: &Decision) -> Result<()> {
    let to_bind = decision.bindings.iter().map(|(claim, _)| (claim, false));
    let to_make = decision.provisions.iter().map(|claim| (claim, true));
    for (claim, is_made) in to_bind.chain(to_make) {
        // Subscribes before the first check, so that no change is missed.
        let mut changes = handle.changes.of(&claim.key);
        while !is_bound(handle, node, claim, is_made)? {
            changes.changed().await;
        }
    }
    Ok(())
}

fn is_bound(handle: &Handle, node: &str, claim: &Claim, is_made: bool) -> Result<bool> {
    let failed = |what: &str| Err(Error::failed(format!("persistentvolumeclaim \"{}\" {what}", claim.key)));
    let Some(now) = handle.objects.get(Kind::PersistentVolumeClaim, &claim.key) else { return failed("is gone") };
    let now = Claim::read(&now);
    if now.uid != claim.uid {
        return failed("is another one by now");
    }
    let is_seen = now.version != claim.version;
    if !now.is_bound && is_made && is_seen && now.selected_node.as_deref() != Some(node) {
        return failed("is no longer to be provisioned for the selected node");
    }
    Ok(now.is_bound)
}
