//! Carries out a decision: what has to be there before, then the binding.

use std::sync::Arc;
use std::time::Duration;

use client::Note;
use tokio::time::Instant;

use super::{PODS, Shared, reference};
use crate::core::Placing;
use crate::framework::Point;
use crate::metrics::Attempt;
use crate::model::Pod;
use crate::permit::WaitingPod;

/// So often is asked what became of a binding that got no clear answer, with pauses that grow from the first.
const QUESTIONS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The same for one that needs leave first.
pub async fn bind_when_allowed(shared: Arc<Shared>, waiting: Arc<WaitingPod>, placing: Placing) {
    let started = Instant::now();
    let outcome = waiting.outcome().await;
    shared.metrics.permitted(outcome.is_ok(), started.elapsed());
    match outcome {
        Ok(()) => {
            shared.waiting.remove(&placing.pod.uid);
            bind(shared, placing).await;
        }
        Err(rejected) => shared.not_permitted(&placing, &rejected),
    }
}

pub async fn bind(shared: Arc<Shared>, placing: Placing) {
    match carry_out(&shared, &placing).await {
        Ok(()) => bound(&shared, &placing).await,
        Err(why) => shared.not_bound(&placing, &why),
    }
}

async fn carry_out(shared: &Shared, placing: &Placing) -> Result<(), String> {
    check(shared, placing)?;
    let (pod, node, profile) = (&*placing.pod, placing.pod.node_name.as_str(), &placing.profile);
    let started = Instant::now();
    for (_, plugin) in profile.at(Point::PreBind) {
        if let Some(work) = plugin.pre_bind(&shared.hands, pod, node) {
            let failed =
                |error: client::Error| format!("running PreBind plugin {:?}: {}", plugin.name(), error.message());
            tokio::select! {
                biased;
                done = work => done.map_err(failed)?,
                () = gone(shared, pod) => return Err("the pod is gone".to_string()),
            }
            // That may have taken long.
            check(shared, placing)?;
        }
    }
    shared.metrics.point(Point::PreBind, &profile.scheduler_name, true, started.elapsed());
    let started = Instant::now();
    let work = profile.at(Point::Bind).find_map(|(_, plugin)| plugin.bind(&shared.hands, pod, node));
    let result = work.ok_or("no plugin of the profile binds")?.await;
    shared.metrics.point(Point::Bind, &profile.scheduler_name, result.is_ok(), started.elapsed());
    match result {
        // The place must not be given to another while this one may have it after all.
        Err(error) if !error.is_not_found() && is_there(shared, pod).await => Ok(()),
        result => result.map_err(|error| format!("binding rejected: {}", error.message())),
    }
}

/// Whether something has to come about before the binding, which may take long.
pub fn waits(shared: &Shared, placing: &Placing) -> bool {
    let (pod, profile) = (&placing.pod, &placing.profile);
    profile.at(Point::PreBind).any(|(_, plugin)| plugin.pre_bind(&shared.hands, pod, &pod.node_name).is_some())
}

/// Waits until a pod is not there any more.
async fn gone(shared: &Shared, pod: &Pod) {
    let mut changes = shared.pod_changes.of(&pod.key);
    while shared.pods.get(&pod.key).is_some_and(|now| now.str("metadata.uid") == pod.uid) {
        changes.changed().await;
    }
}

fn check(shared: &Shared, placing: &Placing) -> Result<(), String> {
    let node = placing.pod.node_name.as_str();
    let late = || format!("node {node:?} has changed since it was chosen, and does not fit the pod any more");
    if shared.core().still_fits(placing) { Ok(()) } else { Err(late()) }
}

/// Whether a pod is on its node, whatever was answered to its binding.
async fn is_there(shared: &Shared, pod: &Pod) -> bool {
    for question in 0..QUESTIONS {
        match shared.hands.client.get(PODS, &pod.namespace, &pod.name).await {
            Ok(now) => return now.str("metadata.uid") == pod.uid && now.str("spec.nodeName") == pod.node_name,
            Err(error) if error.is_not_found() => return false,
            Err(_) => tokio::time::sleep(FIRST_PAUSE * 2u32.pow(question)).await,
        }
    }
    false
}

async fn bound(shared: &Shared, placing: &Placing) {
    let (pod, profile) = (&placing.pod, &placing.profile);
    shared.core().bound(&pod.uid);
    shared.metrics.attempt(&profile.scheduler_name, Attempt::Scheduled, placing.decided.elapsed());
    let waited = placing.waiting.first_tried.unwrap_or(placing.decided).elapsed();
    shared.metrics.bound(placing.waiting.attempts, waited);
    let text = format!("Successfully assigned {}/{} to {}", pod.namespace, pod.name, pod.node_name);
    let note = Note { reason: "Scheduled", action: "Binding", related: None, text };
    for (_, plugin) in profile.at(Point::PostBind) {
        plugin.post_bind(pod, &pod.node_name);
    }
    // Bindings go on as fast as they can be told of: a burst would drown its own events otherwise.
    shared.recorder(profile).note_normal_in_turn(&reference(pod), note).await;
}
