//! Writes what was decided about volumes, and waits until it has come about.

use std::time::Duration;

use api::{Tree, tree};
use client::{Error, Resource, Result};
use tokio::time::{Instant, sleep};

use super::plan::{Decision, SELECTED_NODE, is_bound};
use crate::framework::Hands;
use crate::plugins::volumes;

const VOLUMES: Resource = Resource::core("persistentvolumes");
const CLAIMS: Resource = Resource::core("persistentvolumeclaims");
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// Between looks at claims whose volumes are being made. Somebody else makes them, in seconds at best.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub async fn bind(hands: &Hands, node: &str, decision: &Decision, timeout: Duration) -> Result<()> {
    for (claim, volume) in &decision.bindings {
        let name = volume.str("metadata.name");
        hands.client.update(VOLUMES, "", name, &bound_to(volume, claim)).await?;
    }
    for claim in decision.provisions.iter().filter(|claim| selected_node(claim).is_none()) {
        let (namespace, name) = (claim.str("metadata.namespace"), claim.str("metadata.name"));
        hands.client.update(CLAIMS, namespace, name, &selecting(claim, node)).await?;
    }
    wait(hands, node, decision, timeout).await
}

/// The version stays in it: somebody who was faster is not overwritten.
fn bound_to(volume: &Tree, claim: &Tree) -> Tree {
    let mut volume = volume.clone();
    let reference = tree! {
        "kind" => "PersistentVolumeClaim",
        "apiVersion" => "v1",
        "namespace" => claim.str("metadata.namespace"),
        "name" => claim.str("metadata.name"),
        "uid" => claim.str("metadata.uid"),
        "resourceVersion" => claim.str("metadata.resourceVersion"),
    };
    let was_meant = volume.at("spec").has("claimRef");
    volume.child("spec").set("claimRef", reference);
    if !was_meant {
        annotate(&mut volume, BOUND_BY_CONTROLLER, "yes");
    }
    volume
}

fn selecting(claim: &Tree, node: &str) -> Tree {
    let mut claim = claim.clone();
    annotate(&mut claim, SELECTED_NODE, node);
    claim
}

/// Keys of annotations have dots, which are no steps of a path.
fn annotate(object: &mut Tree, key: &str, value: &str) {
    object.child("metadata").child("annotations").set(key, value);
}

fn selected_node(claim: &Tree) -> Option<&str> {
    claim.map("metadata.annotations").get(SELECTED_NODE).and_then(Tree::as_str)
}

async fn wait(hands: &Hands, node: &str, decision: &Decision, timeout: Duration) -> Result<()> {
    let deadline = Instant::now() + timeout;
    let mut pause = FIRST_PAUSE;
    while !are_bound(hands, node, decision)? {
        if Instant::now() >= deadline {
            return Err(Error::Failed("timed out waiting for the volumes to be bound".to_string()));
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Ok(())
}

fn are_bound(hands: &Hands, node: &str, decision: &Decision) -> Result<bool> {
    let to_bind = decision.bindings.iter().map(|(claim, _)| (claim, false));
    let to_make = decision.provisions.iter().map(|claim| (claim, true));
    for (claim, is_made) in to_bind.chain(to_make) {
        let (namespace, name) = (claim.str("metadata.namespace"), claim.str("metadata.name"));
        let failed = |what: &str| Err(Error::Failed(format!("persistentvolumeclaim \"{namespace}/{name}\" {what}")));
        let Some(now) = volumes::claim(&*hands.objects, namespace, name) else { return failed("is gone") };
        if is_bound(&now) {
            continue;
        }
        let is_seen = now.str("metadata.resourceVersion") != claim.str("metadata.resourceVersion");
        if is_made && is_seen && selected_node(&now) != Some(node) {
            return failed("is no longer to be provisioned for the selected node");
        }
        return Ok(false);
    }
    Ok(true)
}
