//! Brings a pod down: its hooks, its containers within their grace, its sandbox, and what is left of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use tokio::time::Instant;

use super::sync::{self, Memory, Next};
use super::{Wanted, drain, files, start, subject};
use crate::agent::Agent;
use crate::plan::{self, Plan};
use crate::pod;
use crate::state::{Container, PodState, keys};

/// The least time that a container is given, whatever its hook took of it.
const LEAST: i64 = 2;
const SECOND: i64 = 1_000_000_000;

/// A pod that shall not run any more.
pub async fn sync(agent: &Arc<Agent>, wanted: &Wanted, memory: &mut Memory, state: Arc<PodState>) -> Next {
    let state = match bring_down(agent, wanted, memory, state).await {
        Ok(state) => state,
        Err(next) => return next,
    };
    let pod = &wanted.pod;
    let is_going = wanted.is_removed || pod::is_deleted(pod);
    if !is_going {
        // It stays as a record; its logs too.
        return Next::Idle(None);
    }
    if let Err(status) = clean_up(agent, pod, &state).await {
        tracing::debug!(pod = pod::name(pod), error = status.message(), "what is left of a pod could not be removed");
        return Next::Failed;
    }
    if wanted.is_removed {
        agent.statuses.forget(pod::uid(pod));
        return Next::Gone;
    }
    agent.statuses.gone(pod::uid(pod));
    Next::Idle(None)
}

/// A pod that has come to its own end.
pub async fn finish(agent: &Arc<Agent>, wanted: &Wanted, memory: &mut Memory, state: Arc<PodState>) -> Next {
    match bring_down(agent, wanted, memory, state).await {
        Ok(_) => Next::Idle(None),
        Err(next) => next,
    }
}

/// Nothing runs once this is done, and the status says so.
async fn bring_down(
    agent: &Arc<Agent>,
    wanted: &Wanted,
    memory: &mut Memory,
    state: Arc<PodState>,
) -> Result<Arc<PodState>, Next> {
    let pod = &wanted.pod;
    agent.probes.end(pod::uid(pod));
    if !state.is_stopped() {
        let held_seconds = hold(agent, wanted, memory)?;
        let grace = memory.ended.as_ref().and_then(|ending| ending.grace_seconds);
        let grace = grace.or_else(|| pod.int("metadata.deletionGracePeriodSeconds"));
        let grace = grace.map(|grace| (grace - held_seconds).max(i64::from(grace > 0)));
        if let Err(status) = stop_all(agent, pod, &state, grace).await {
            let text = format!("error killing pod: {}", status.message());
            agent.recorder.warning(pod, "FailedKillPod", text);
            return Err(Next::Failed);
        }
    }
    agent.probes.forget(pod);
    agent.images.forget(pod::uid(pod));
    let state = sync::look(agent, pod, memory).await.map_err(|_| Next::Failed)?;
    if !state.is_stopped() {
        return Err(Next::Again);
    }
    if let Err(why) = agent.volumes.remove(pod::uid(pod)).await {
        tracing::warn!(pod = pod::name(pod), error = why, "volumes of a pod that has ended could not be taken away");
        return Err(Next::Failed);
    }
    agent.objects.forget(pod::uid(pod));
    agent.admission.release(pod::uid(pod));
    agent.managers.release(pod::uid(pod));
    agent.resizes.retry(agent);
    if !std::mem::replace(&mut memory.is_stopped, true)
        && let Err(why) = agent.groups.remove(pod).await
    {
        // It goes with the pod at the latest.
        tracing::debug!(pod = pod::name(pod), error = why, "the control group of a pod that has ended stays");
    }
    memory.problems.clear();
    if !was_refused(memory, &state) && !wanted.is_removed {
        agent.statuses.set(pod, sync::make_status(agent, wanted, memory, &state, &Plan::default()));
    }
    Ok(state)
}

/// Leaves the pod as it is while proxies may send requests to it. For how many seconds it has been.
fn hold(agent: &Agent, wanted: &Wanted, memory: &mut Memory) -> Result<i64, Next> {
    if wanted.is_removed || memory.ended.is_some() || !agent.config.drain_by_proxies {
        return Ok(0);
    }
    let now = agent.now();
    let since = memory.held_since.unwrap_or(now);
    match drain::held_until(&wanted.pod, since, now) {
        Some(until) => {
            memory.held_since = Some(since);
            Err(Next::Idle(Some(until)))
        }
        None => Ok((now - since).max(0) / SECOND),
    }
}

/// One that never ran has had its last word.
fn was_refused(memory: &Memory, state: &PodState) -> bool {
    memory.ended.is_some() && state.sandboxes.is_empty() && state.containers.is_empty()
}

/// Ends all that runs: the main containers, then those beside them in reverse order, then the sandbox.
pub async fn stop_all(
    agent: &Arc<Agent>,
    pod: &Arc<Tree>,
    state: &Arc<PodState>,
    grace: Option<i64>,
) -> crate::runtime::Result<()> {
    let until = Instant::now() + Duration::from_secs(grace.unwrap_or(start::grace(pod)).max(0).unsigned_abs());
    let beside: Vec<String> = plan::sidecars(pod).map(|spec| spec.str("name").to_string()).collect();
    let (last, first): (Vec<&Container>, Vec<&Container>) =
        state.running().partition(|seen| beside.contains(&seen.name));
    stop_together(agent, pod, state, first, grace).await?;
    for name in beside.iter().rev() {
        let left = i64::try_from(until.saturating_duration_since(Instant::now()).as_secs()).unwrap_or(0);
        for seen in last.iter().filter(|seen| seen.name == *name) {
            let kill = Kill { message: "", grace: Some(left), is_sudden: false };
            stop_container(agent, pod, state, seen, &kill).await?;
        }
    }
    for sandbox in &state.sandboxes {
        agent.runtime.stop_sandbox(&sandbox.id).await?;
    }
    Ok(())
}

async fn stop_together(
    agent: &Arc<Agent>,
    pod: &Arc<Tree>,
    state: &Arc<PodState>,
    containers: Vec<&Container>,
    grace: Option<i64>,
) -> crate::runtime::Result<()> {
    let stop = |seen: &Container| {
        let (agent, pod, state, seen) = (agent.clone(), pod.clone(), state.clone(), seen.clone());
        tokio::spawn(async move {
            let kill = Kill { message: "", grace, is_sudden: false };
            stop_container(&agent, &pod, &state, &seen, &kill).await
        })
    };
    let tasks: Vec<_> = containers.into_iter().map(stop).collect();
    let mut result = Ok(());
    for task in tasks {
        let ended = task.await.unwrap_or_else(|error| Err(cri::Status::internal(error.to_string())));
        result = result.and(ended);
    }
    result
}

/// How a container is ended.
pub struct Kill<'a> {
    /// "" where its pod ends.
    pub message: &'a str,
    /// Instead of the pod's own.
    pub grace: Option<i64>,
    /// Its hook is not asked.
    pub is_sudden: bool,
}

/// The hook first, then the signal, within one grace period.
pub async fn stop_container(
    agent: &Arc<Agent>,
    pod: &Tree,
    state: &PodState,
    seen: &Container,
    kill: &Kill<'_>,
) -> crate::runtime::Result<()> {
    let text = match kill.message {
        "" => format!("Stopping container {}", seen.name),
        message => message.to_string(),
    };
    agent.recorder.normal(&subject(pod, &seen.name), "Killing", text);
    let of_labels = seen.annotation(keys::GRACE).parse().ok();
    let own = pod.int("spec.terminationGracePeriodSeconds").or(of_labels).unwrap_or(30);
    let mut grace = kill.grace.unwrap_or(own);
    if let Some(hook) = pre_stop(pod, seen).filter(|_| grace > 0 && !kill.is_sudden) {
        let begun = Instant::now();
        let address = address(agent, state, seen);
        run_hook(agent, pod, seen, &hook, (&address, grace)).await;
        grace -= i64::try_from(begun.elapsed().as_secs()).unwrap_or(0);
    }
    let floor = if kill.grace == Some(0) { 0 } else { LEAST };
    agent.runtime.stop(&seen.id, grace.max(floor)).await
}

/// Of the pod, or, where that is gone, what the container was made with.
fn pre_stop(pod: &Tree, seen: &Container) -> Option<Tree> {
    if let Some(spec) = pod::container(pod, &seen.name) {
        return spec.at("lifecycle").get("preStop").cloned();
    }
    api::json::decode(seen.annotation(keys::PRE_STOP).as_bytes()).ok()
}

/// Where a container is reached. The runtime knows it of every pod; what the API shows of one may be nothing.
fn address(agent: &Agent, state: &PodState, seen: &Container) -> String {
    match state.sandboxes.iter().find(|sandbox| sandbox.id == seen.sandbox) {
        Some(sandbox) if sandbox.on_host_network => agent.host_ip(),
        Some(sandbox) => sandbox.addresses.first().cloned().unwrap_or_default(),
        None => String::new(),
    }
}

async fn run_hook(agent: &Arc<Agent>, pod: &Tree, seen: &Container, hook: &Tree, (address, grace): (&str, i64)) {
    let spec = pod::container(pod, &seen.name).cloned().unwrap_or_default();
    let work = crate::hooks::run(agent, &seen.id, &spec, hook, address);
    let done = tokio::time::timeout(Duration::from_secs(grace.unsigned_abs()), work).await;
    match done {
        Ok(Ok(())) => {}
        // What a hook has said may be a secret: it is not for events.
        Ok(Err(_)) => {
            agent.recorder.warning(&subject(pod, &seen.name), "FailedPreStopHook", "PreStopHook failed");
        }
        Err(_) => tracing::warn!(pod = pod::name(pod), container = seen.name, grace, "a preStop hook takes too long"),
    }
}

/// Removes what is left: containers, sandboxes, folders.
async fn clean_up(agent: &Arc<Agent>, pod: &Tree, state: &PodState) -> crate::runtime::Result<()> {
    for seen in &state.containers {
        agent.runtime.remove(&seen.id).await?;
        let _ = std::fs::remove_file(files::link_of(agent, pod, &seen.name, &seen.id));
    }
    for sandbox in &state.sandboxes {
        agent.runtime.remove_sandbox(&sandbox.id).await?;
    }
    let removed = agent.groups.remove(pod).await;
    removed.map_err(|why| cri::Status::internal(format!("the pod's control group: {why}")))?;
    let uid = pod::uid(pod);
    // Nobody writes into a folder that goes.
    agent.resizes.forget(uid);
    // Its own folder last: as long as it is there, the agent knows that the rest is its to remove.
    remove_child(&agent.config.pod_logs_dir, &sync::logs(agent, pod))?;
    remove_child(&agent.config.root_dir.join("pods"), &agent.config.pod_dir(uid))?;
    agent.users.release(uid);
    Ok(())
}

/// Removes a folder with all that is in it, and none that does not stand right below the one of its kind.
fn remove_child(parent: &Path, folder: &Path) -> crate::runtime::Result<()> {
    let failed = |why: String| cri::Status::internal(format!("{}: {why}", folder.display()));
    if !pod::is_child(folder, parent) {
        return Err(failed(format!("it does not stand in {}, and is left alone", parent.display())));
    }
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(error.to_string())),
        _ => Ok(()),
    }
}
