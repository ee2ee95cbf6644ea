//! Executes a decision: PreBind, then the binding.

use std::sync::Arc;
use std::time::Duration;

use client::EventDetails;
use stdx::backoff::Backoff;
use thiserror::Error;
use tokio::time::Instant;

use super::{PODS, Shared, reference};
use crate::core::Placement;
use crate::framework::{Point, WaitingPod};
use crate::metrics::Attempt;
use podmodel::Pod;

/// How often the state of a binding without a clear response is checked, with growing delays.
const CHECKS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Why a pod was not bound.
#[derive(Debug, Error)]
enum BindError {
    #[error("node {0:?} has changed since it was selected and no longer fits the pod")]
    NodeChanged(String),
    #[error("running PreBind plugin {plugin:?}: {}", source.message())]
    PreBind { plugin: &'static str, source: client::Error },
    #[error("the pod was deleted")]
    PodDeleted,
    #[error("the profile has no bind plugin")]
    NoBindPlugin,
    #[error("binding rejected: {}", .0.message())]
    Rejected(#[source] client::Error),
}

/// Waits for Permit, then binds.
pub(crate) async fn bind_when_allowed(shared: Arc<Shared>, waiting: Arc<WaitingPod>, placement: Placement) {
    let started = Instant::now();
    let outcome = waiting.outcome().await;
    shared.metrics.permitted(outcome.is_ok(), started.elapsed());
    match outcome {
        Ok(()) => {
            shared.waiting.remove(&placement.pod.uid);
            bind(shared, placement).await;
        }
        Err(rejected) => shared.not_permitted(&placement, &rejected),
    }
}

pub(super) async fn bind(shared: Arc<Shared>, placement: Placement) {
    match shared.cause(&placement.pod).scope(execute(&shared, &placement)).await {
        Ok(()) => bound(&shared, &placement).await,
        Err(why) => shared.not_bound(&placement, &why.to_string()),
    }
}

async fn execute(shared: &Shared, placement: &Placement) -> Result<(), BindError> {
    check(shared, placement)?;
    let (pod, node, profile) = (&*placement.pod, placement.pod.node_name.as_str(), &placement.profile);
    let started = Instant::now();
    for (_, plugin) in profile.at(Point::PreBind) {
        if let Some(work) = plugin.pre_bind(&shared.handle, pod, node) {
            let failed = |source| BindError::PreBind { plugin: plugin.name(), source };
            tokio::select! {
                biased;
                done = work => done.map_err(failed)?,
                () = pod_deleted(shared, pod) => return Err(BindError::PodDeleted),
            }
            // PreBind may have taken long.
            check(shared, placement)?;
        }
    }
    shared.metrics.point(Point::PreBind, &profile.scheduler_name, true, started.elapsed());
    let started = Instant::now();
    let work = profile.at(Point::Bind).find_map(|(_, plugin)| plugin.bind(&shared.handle, pod, node));
    let result = work.ok_or(BindError::NoBindPlugin)?.await;
    shared.metrics.point(Point::Bind, &profile.scheduler_name, result.is_ok(), started.elapsed());
    match result {
        // The node must not be released while the binding may have succeeded.
        Err(error) if !error.is_not_found() && is_bound(shared, pod).await => Ok(()),
        result => result.map_err(BindError::Rejected),
    }
}

/// Whether PreBind has something to wait for, which may take long.
pub(super) fn waits(shared: &Shared, placement: &Placement) -> bool {
    let (pod, profile) = (&placement.pod, &placement.profile);
    profile.at(Point::PreBind).any(|(_, plugin)| plugin.pre_bind(&shared.handle, pod, &pod.node_name).is_some())
}

/// Waits until a pod is deleted.
async fn pod_deleted(shared: &Shared, pod: &Pod) {
    let mut changes = shared.pod_changes.of(&pod.key);
    while shared.pods.get(&pod.key).is_some_and(|now| now.str("metadata.uid") == pod.uid) {
        changes.changed().await;
    }
}

fn check(shared: &Shared, placement: &Placement) -> Result<(), BindError> {
    if shared.core().still_fits(placement) {
        return Ok(());
    }
    Err(BindError::NodeChanged(placement.pod.node_name.to_string()))
}

/// Whether a pod is on its node, whatever the response to its binding was.
async fn is_bound(shared: &Shared, pod: &Pod) -> bool {
    let mut backoff = Backoff::new(FIRST_PAUSE, Duration::MAX);
    for _ in 0..CHECKS {
        match shared.handle.client.get(PODS, &pod.namespace, &pod.name).await {
            Ok(now) => return now.str("metadata.uid") == pod.uid && now.str("spec.nodeName") == pod.node_name,
            Err(error) if error.is_not_found() => return false,
            Err(_) => tokio::time::sleep(backoff.next_pause()).await,
        }
    }
    false
}

async fn bound(shared: &Shared, placement: &Placement) {
    let (pod, profile) = (&placement.pod, &placement.profile);
    shared.core().bound(&pod.uid);
    shared.metrics.attempt(&profile.scheduler_name, Attempt::Scheduled, placement.decided.elapsed());
    let waited = placement.waiting.first_tried.unwrap_or(placement.decided).elapsed();
    shared.metrics.bound(placement.waiting.attempts, waited);
    let text = format!("Successfully assigned {}/{} to {}", pod.namespace, pod.name, pod.node_name);
    let note = EventDetails { reason: "Scheduled", action: "Binding", related: None, text };
    for (_, plugin) in profile.at(Point::PostBind) {
        plugin.post_bind(pod, &pod.node_name);
    }
    // Bindings are as fast as their events can be written: otherwise a burst would drop its own events.
    shared.recorder(profile).queue_normal_event(&reference(pod), note).await;
}
