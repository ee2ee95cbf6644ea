//! Preemption: sets the DisruptionTarget condition of each victim and deletes it.

use std::sync::Arc;

use api::{Tree, list, tree};
use client::{DeleteOptions, EventDetails, Patch, Result};
use tokio::time::Instant;

use super::{PODS, Shared, reference};
use crate::core::{NominationChange, Unschedulable};
use podmodel::Pod;

pub(super) async fn preempt(shared: Arc<Shared>, waits: Unschedulable) {
    let mut result = Ok(());
    for victim in &waits.victims {
        result = shared.cause(&waits.pod).scope(evict(&shared, &waits, victim)).await;
        if result.is_err() {
            break;
        }
    }
    let (mut core, uid, now) = (shared.core(), &waits.pod.uid, Instant::now());
    match result {
        Ok(()) => core.preemption_done(uid, waits.rejected_by.clone(), now),
        Err(error) => {
            tracing::warn!(pod = &*waits.pod.key, %error, "preemption failed, requeueing pod");
            core.preemption_failed(uid, now);
            shared.statuses.request(&waits.pod, None, NominationChange::Cleared);
        }
    }
    drop(core);
    shared.moved.notify_one();
}

/// A victim that is already deleted is not an error.
async fn evict(shared: &Shared, waits: &Unschedulable, victim: &Pod) -> Result<()> {
    let (client, uid) = (&shared.handle.client, victim.uid.as_str());
    let generation = shared.pods.get(&victim.key).and_then(|pod| pod.int("metadata.generation"));
    let patch = patch(waits, victim, generation.unwrap_or_default(), shared.handle.clock.now().seconds);
    let marked = client.patch(PODS, &victim.namespace, &victim.name, "status", Patch::Strategic(&patch)).await;
    if is_gone(&marked) {
        return Ok(());
    }
    marked?;
    let options = DeleteOptions { uid: Some(uid), ..DeleteOptions::default() };
    let deleted = client.delete(PODS, &victim.namespace, &victim.name, options).await;
    if is_gone(&deleted) {
        return Ok(());
    }
    deleted?;
    let node = &victim.node_name;
    let text = format!("Preempted by pod {} on node {node}", waits.pod.uid);
    let preemptor = reference(&waits.pod);
    let note = EventDetails { reason: "Preempted", action: "Preempting", related: Some(&preemptor), text };
    shared.recorder(&waits.profile).record_normal(&reference(victim), note);
    Ok(())
}

/// A conflict does not mean that the pod is deleted: another client may have written at the same time. If it was
/// another pod of the same name, the next decision detects that.
fn is_gone(result: &Result<Tree>) -> bool {
    result.as_ref().is_err_and(|error| error.is_not_found())
}

fn patch(waits: &Unschedulable, victim: &Pod, generation: i64, now: i64) -> Tree {
    let message = format!("{}: preempting to accommodate a higher priority pod", waits.pod.scheduler_name);
    let condition = tree! {
        "type" => "DisruptionTarget",
        "observedGeneration" => generation,
        "status" => "True",
        "reason" => "PreemptionByScheduler",
        "message" => message,
        "lastTransitionTime" => api::time::format_seconds(now),
    };
    tree! {
        "metadata" => tree! { "uid" => victim.uid.clone() },
        "status" => tree! { "conditions" => list![condition] },
    }
}
