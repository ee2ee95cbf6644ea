//! Terminates a pod: its preStop hooks, its containers within their grace period, its sandbox, and everything that is
//! left of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::grace_period::{self, GracePeriod};
use super::sync::{self, SyncResult, Updates, WorkerState};
use super::{DesiredPod, drain, files};
use crate::model::pod::{self, subject};
use crate::model::state::{Container, PodState, keys};
use crate::pod::context::PodContext;
use crate::pod::plan::stop::StopCommand;
use crate::pod::plan::{self, Plan};
use crate::resources::cgroups::GroupError;

const SECOND: i64 = 1_000_000_000;

/// Syncs a pod that is to be stopped.
pub(crate) async fn sync(
    context: &Arc<PodContext>,
    wanted: &DesiredPod,
    worker: &mut WorkerState,
    state: Arc<PodState>,
    updates: Updates<'_>,
) -> SyncResult {
    let state = match stop_pod(context, wanted, worker, state, updates).await {
        Ok(state) => state,
        Err(next) => return next,
    };
    let pod = &wanted.pod;
    let is_going = wanted.is_removed || pod::is_deleted(pod);
    if !is_going {
        // The pod stays as a record, with its logs.
        return SyncResult::Idle(None);
    }
    if let Err(error) = clean_up(context, pod, &state).await {
        tracing::warn!(pod = pod::name(pod), %error, "failed to clean up pod");
        return SyncResult::Failed;
    }
    if wanted.is_removed {
        context.statuses.remove_pod(pod::uid(pod));
        return SyncResult::Gone;
    }
    context.statuses.mark_removed(pod::uid(pod));
    SyncResult::Idle(None)
}

/// Stops a pod that has completed.
pub(crate) async fn finish(
    context: &Arc<PodContext>,
    wanted: &DesiredPod,
    worker: &mut WorkerState,
    state: Arc<PodState>,
    updates: Updates<'_>,
) -> SyncResult {
    match stop_pod(context, wanted, worker, state, updates).await {
        Ok(_) => SyncResult::Idle(None),
        Err(next) => next,
    }
}

/// Stops all containers of the pod, and reports the status.
async fn stop_pod(
    context: &Arc<PodContext>,
    wanted: &DesiredPod,
    worker: &mut WorkerState,
    state: Arc<PodState>,
    updates: Updates<'_>,
) -> Result<Arc<PodState>, SyncResult> {
    let pod = &wanted.pod;
    context.probes.end(pod::uid(pod));
    if !state.is_stopped() {
        // The reason and the readiness are reported before the pod has stopped.
        report_status(context, wanted, worker, &state);
        let held_seconds = delay_for_endpoints(context, wanted, worker)?;
        if let Err(status) = stop_until_shortened(context, wanted, worker, &state, (updates, held_seconds)).await {
            let text = format!("error killing pod: {}", status.message());
            context.recorder.warning(pod, "FailedKillPod", text);
            return Err(SyncResult::Failed);
        }
    }
    context.probes.remove_pod(pod);
    context.images.remove_pod(pod::uid(pod));
    let state = sync::read_state(context, pod, worker).await.map_err(|_| SyncResult::Failed)?;
    if !state.is_stopped() {
        return Err(SyncResult::Again);
    }
    if let Err(error) = context.volumes.remove(pod::uid(pod)).await {
        tracing::warn!(pod = pod::name(pod), %error, "failed to remove volumes of terminated pod");
        return Err(SyncResult::Failed);
    }
    context.objects.unregister(pod::uid(pod));
    context.admission.release(pod::uid(pod));
    context.managers.release(pod::uid(pod));
    context.resizes.retry(&context.resizing);
    if !std::mem::replace(&mut worker.is_stopped, true)
        && let Err(error) = context.groups.remove(pod).await
    {
        // The cgroup is removed with the pod at the latest.
        tracing::debug!(pod = pod::name(pod), %error, "failed to remove cgroup of terminated pod");
    }
    worker.problems.clear();
    if !was_rejected(worker, &state) {
        report_status(context, wanted, worker, &state);
    }
    worker.is_down.send_replace(true);
    Ok(state)
}

/// Reports the status of a terminating pod, unless its object was deleted.
fn report_status(context: &PodContext, wanted: &DesiredPod, worker: &WorkerState, state: &PodState) {
    if !wanted.is_removed {
        context.statuses.set(&wanted.pod, sync::build_status(context, wanted, worker, state, &Plan::default()));
    }
}

/// Keeps the pod running while proxies may send requests to it. Returns the seconds that have passed.
fn delay_for_endpoints(context: &PodContext, wanted: &DesiredPod, worker: &mut WorkerState) -> Result<i64, SyncResult> {
    if wanted.is_removed || worker.ended.is_some() || !context.config.drain_by_proxies {
        return Ok(0);
    }
    let now = context.now();
    // A kubelet that has observed the pod before its deletion uses its own clock; one that starts uses the time of the
    // API.
    let first_seen = || if worker.is_admitted { now } else { drain::deleted_at(&wanted.pod).unwrap_or(now).min(now) };
    let since = worker.held_since.unwrap_or_else(first_seen);
    match drain::held_until(&wanted.pod, since, now) {
        Some(until) => {
            worker.held_since = Some(since);
            Err(SyncResult::Idle(Some(until)))
        }
        None => Ok(worker.held_since.map_or(0, |since| (now - since).max(0) / SECOND)),
    }
}

/// A rejected pod has its final status already.
fn was_rejected(worker: &WorkerState, state: &PodState) -> bool {
    worker.ended.is_some() && state.sandboxes.is_empty() && state.containers.is_empty()
}

/// Stops all containers, sooner if the grace period is shortened meanwhile. Probe results until then are reported.
async fn stop_until_shortened(
    context: &Arc<PodContext>,
    wanted: &DesiredPod,
    worker: &WorkerState,
    state: &Arc<PodState>,
    (updates, held_seconds): (Updates<'_>, i64),
) -> crate::runtime::Result<()> {
    let ended = worker.ended.as_ref();
    let seconds =
        grace_period::requested(wanted, ended).map(|seconds| (seconds - held_seconds).max(i64::from(seconds > 0)));
    let (hurry, given) = watch::channel(GracePeriod::now(seconds));
    let mut updates = updates.clone();
    let mut stopping = Box::pin(stop_all(context, &wanted.pod, state, &given));
    loop {
        tokio::select! {
            biased;
            done = &mut stopping => return done,
            Ok(()) = updates.changed() => {
                let seconds = grace_period::requested(&updates.borrow_and_update(), ended);
                hurry.send_if_modified(|given| given.shorten(seconds, grace_period::own(&wanted.pod)));
            }
            () = worker.wake.notified() => report_status(context, wanted, worker, state),
        }
    }
}

/// Stops all containers and sandboxes.
pub(crate) async fn stop_all(
    context: &Arc<PodContext>,
    pod: &Arc<Tree>,
    state: &Arc<PodState>,
    given: &watch::Receiver<GracePeriod>,
) -> crate::runtime::Result<()> {
    for command in plan::stop::plan(pod, state) {
        match command {
            StopCommand::StopContainers(containers) => {
                stop_concurrently(context, pod, state, containers, given).await?
            }
            StopCommand::StopSandbox { id } => context.runtime.stop_sandbox(id).await?,
        }
    }
    Ok(())
}

async fn stop_concurrently(
    context: &Arc<PodContext>,
    pod: &Arc<Tree>,
    state: &Arc<PodState>,
    containers: Vec<&Container>,
    given: &watch::Receiver<GracePeriod>,
) -> crate::runtime::Result<()> {
    let mut tasks = JoinSet::new();
    for seen in containers {
        let (context, pod, state, seen) = (context.clone(), pod.clone(), state.clone(), seen.clone());
        let kill = KillOptions { message: "", given: given.clone(), runs_pre_stop: true };
        tasks.spawn(async move { stop_container(&context, &pod, &state, &seen, kill).await });
    }
    let mut result = Ok(());
    while let Some(ended) = tasks.join_next().await {
        result = result.and(ended.unwrap_or_else(|error| Err(cri::Status::internal(error.to_string()))));
    }
    result
}

/// How a container is stopped.
pub(crate) struct KillOptions<'a> {
    /// The text of the event; "" if its pod is stopped.
    pub(crate) message: &'a str,
    /// The grace period, which may be shortened.
    pub(crate) given: watch::Receiver<GracePeriod>,
    pub(crate) runs_pre_stop: bool,
}

/// The hook first, then the signal, within one grace period.
pub(crate) async fn stop_container(
    context: &Arc<PodContext>,
    pod: &Tree,
    state: &PodState,
    seen: &Container,
    kill: KillOptions<'_>,
) -> crate::runtime::Result<()> {
    let text = match kill.message {
        "" => format!("Stopping container {}", seen.name),
        message => message.to_string(),
    };
    context.recorder.normal(&subject(pod, &seen.name), "Killing", text);
    let of_labels = seen.annotation(keys::GRACE).parse().ok();
    let own = pod.int("spec.terminationGracePeriodSeconds").or(of_labels).unwrap_or(grace_period::DEFAULT_SECONDS);
    let mut given = kill.given;
    let has_time = given.borrow().left(own) > 0;
    if let Some(hook) = pre_stop(pod, seen).filter(|_| has_time && kill.runs_pre_stop) {
        let address = address(context, state, seen);
        run_hook(context, pod, (seen, &address), &hook, (&mut given, own)).await;
    }
    loop {
        let seconds = given.borrow_and_update().for_signal(own);
        tokio::select! {
            biased;
            done = context.runtime.stop(&seen.id, seconds) => return done,
            // The grace period was shortened below the runtime's timeout: the container is stopped again.
            () = grace_period::shortened(&mut given) => {}
        }
    }
}

/// From the pod, or, if its object was deleted, from the container's annotations.
fn pre_stop(pod: &Tree, seen: &Container) -> Option<Tree> {
    if let Some(spec) = pod::container(pod, &seen.name) {
        return spec.at("lifecycle").get("preStop").cloned();
    }
    api::json::decode(seen.annotation(keys::PRE_STOP).as_bytes()).ok()
}

/// The address of a container, from the runtime: the object of the pod may not have it.
fn address(context: &PodContext, state: &PodState, seen: &Container) -> String {
    match state.sandboxes.iter().find(|sandbox| sandbox.id == seen.sandbox) {
        Some(sandbox) if sandbox.on_host_network => context.node.host_ip(),
        Some(sandbox) => sandbox.addresses.first().cloned().unwrap_or_default(),
        None => String::new(),
    }
}

async fn run_hook(
    context: &Arc<PodContext>,
    pod: &Tree,
    (seen, address): (&Container, &str),
    hook: &Tree,
    (given, own): (&mut watch::Receiver<GracePeriod>, i64),
) {
    let spec = pod::container(pod, &seen.name).cloned().unwrap_or_default();
    let mut work = Box::pin(crate::pod::hooks::run(&context.runtime, &seen.id, &spec, hook, address));
    let done = loop {
        let left = Duration::from_secs(given.borrow_and_update().left(own).max(0).unsigned_abs());
        tokio::select! {
            biased;
            done = tokio::time::timeout(left, &mut work) => break done,
            () = grace_period::shortened(given) => {}
        }
    };
    match done {
        Ok(Ok(())) => {}
        // The output of a hook may contain a secret, so that events do not have it.
        Ok(Err(_)) => {
            context.recorder.warning(&subject(pod, &seen.name), "FailedPreStopHook", "PreStopHook failed");
        }
        Err(_) => tracing::warn!(
            pod = pod::name(pod),
            container = seen.name,
            "preStop hook did not complete within the grace period"
        ),
    }
}

/// A pod that was not removed completely.
#[derive(Debug, thiserror::Error)]
enum RemoveError {
    #[error("{}", .0.message())]
    Runtime(#[from] cri::Status),
    #[error("the pod's cgroup: {0}")]
    Cgroup(#[from] GroupError),
    #[error("{} is not in {} and was not removed", .directory.display(), .parent.display())]
    Elsewhere { directory: PathBuf, parent: PathBuf },
    #[error("{}: {source}", .directory.display())]
    Io { directory: PathBuf, source: std::io::Error },
}

/// Removes what is left: containers, sandboxes, directories.
async fn clean_up(context: &Arc<PodContext>, pod: &Tree, state: &PodState) -> Result<(), RemoveError> {
    for seen in &state.containers {
        context.runtime.remove(&seen.id).await?;
        let _ = std::fs::remove_file(files::log_link(context, pod, &seen.name, &seen.id));
    }
    for sandbox in &state.sandboxes {
        context.runtime.remove_sandbox(&sandbox.id).await?;
    }
    let uid = pod::uid(pod);
    context.network_gate.pod_network_removed(uid);
    context.groups.destroy(pod).await?;
    // No record is written into a directory that is being removed.
    context.resizes.remove_pod(uid);
    // The pod's own directory is removed last: while it exists, the kubelet still has to remove the rest.
    remove_child(&context.config.pod_logs_dir, &sync::logs(context, pod))?;
    remove_child(&context.config.root_dir.join("pods"), &context.config.pod_dir(uid))?;
    context.users.release(uid);
    Ok(())
}

/// Removes a directory recursively, but only a direct child of `parent`.
fn remove_child(parent: &Path, directory: &Path) -> Result<(), RemoveError> {
    if !pod::is_child(directory, parent) {
        return Err(RemoveError::Elsewhere { directory: directory.into(), parent: parent.into() });
    }
    match std::fs::remove_dir_all(directory) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(RemoveError::Io { directory: directory.into(), source })
        }
        _ => Ok(()),
    }
}
