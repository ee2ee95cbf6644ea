//! Starts containers: the image, the CRI configuration, the container, its postStart hook.

use std::sync::Arc;

use api::Tree;

use super::grace_period::{self, GracePeriod};
use super::sync::{Updates, WorkerState};
use super::{container, dependencies, files, sandbox, terminate};
use crate::images::{self, ImageError, ImageRequest};
use crate::metrics;
use crate::model::pod::{self, subject};
use crate::model::problem::Problem;
use crate::model::state::PodState;
use crate::pod::context::PodContext;
use crate::pod::plan::{Crash, StartContainer};
use crate::pod::status::initial_reason;
use crate::volumes::MountedVolumes;

/// Why a command was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The pod is to end, so that the rest of the plan is dropped.
    Ends,
    /// The time of the next attempt is known.
    Waits,
    Failed,
}

type Result<T> = std::result::Result<T, Failure>;

/// State that exists before containers are started.
pub(crate) struct Inputs<'a> {
    pub(crate) state: &'a Arc<PodState>,
    pub(crate) mounted: &'a MountedVolumes,
    pub(crate) updates: Updates<'a>,
}

/// The sandbox in which containers are started, and their shared state.
pub(crate) struct StartContext {
    sandbox: String,
    config: cri::PodSandboxConfig,
    addresses: Vec<String>,
    images: dependencies::VolumeImages,
}

impl StartContext {
    /// `sandbox` is the ID of a sandbox that was created just now.
    pub(crate) async fn new(
        context: &Arc<PodContext>,
        pod: &Tree,
        worker: &mut WorkerState,
        inputs: &Inputs<'_>,
        sandbox: Option<String>,
    ) -> Result<StartContext> {
        let known = || inputs.state.sandbox().map(|sandbox| sandbox.id.clone()).unwrap_or_default();
        let sandbox = sandbox.unwrap_or_else(known);
        let addresses = sandbox::addresses(context, pod, &sandbox, inputs.state).await?;
        sandbox::pass_gate(context, pod, &addresses).await?;
        let config = sandbox::config(context, pod, worker, (0, inputs.mounted))?;
        let images = dependencies::volume_images(context, pod, inputs, &config).await?;
        Ok(StartContext { sandbox, config, addresses, images })
    }
}

/// Starts a container. A failure is reported as the container's problem.
pub(crate) async fn start_container(
    context: &Arc<PodContext>,
    pod: &Arc<Tree>,
    worker: &mut WorkerState,
    place: Location<'_>,
    start: &StartContainer,
) -> Result<()> {
    let Some(spec) = pod::container(pod, &start.name) else { return Ok(()) };
    context.metrics.count(&metrics::STARTED_CONTAINERS, &[metrics::sort(pod, &start.name)]);
    for id in &start.unstarted {
        context.runtime.remove(id).await.map_err(|_| Failure::Failed)?;
    }
    let started = create_and_run(context, pod, spec, place, start).await;
    record_restart(context, worker, start);
    match started {
        Ok(()) => {
            worker.problems.remove(&start.name);
            context.resizes.follows(pod::uid(pod), &start.name);
            remove_older(context, &start.older).await;
            Ok(())
        }
        Err(error) => Err(record_problem(context, pod, worker, start, error)),
    }
}

async fn create_and_run(
    context: &Arc<PodContext>,
    pod: &Arc<Tree>,
    spec: &Tree,
    place: Location<'_>,
    start: &StartContainer,
) -> std::result::Result<(), StartError> {
    let id = create_container(context, pod, spec, place, start).await?;
    Ok(run_container(context, pod, spec, (&id, start.restarts), place).await?)
}

fn record_restart(context: &PodContext, worker: &mut WorkerState, start: &StartContainer) {
    let now = context.now();
    match start.crash {
        Crash::None => {}
        Crash::At(ended_at) => worker.backoffs.started_again(&start.name, ended_at, now),
        Crash::Now => worker.backoffs.started_again(&start.name, now, now),
    }
}

fn record_problem(
    context: &PodContext,
    pod: &Tree,
    worker: &mut WorkerState,
    start: &StartContainer,
    StartError { problem, is_scheduled }: StartError,
) -> Failure {
    let labels = [metrics::sort(pod, &start.name), &problem.reason];
    context.metrics.count(&metrics::STARTED_CONTAINERS_ERRORS, &labels);
    worker.problems.insert(start.name.clone(), problem);
    if is_scheduled { Failure::Waits } else { Failure::Failed }
}

async fn remove_older(context: &PodContext, older: &[String]) {
    for id in older {
        if let Err(status) = context.runtime.remove(id).await {
            tracing::debug!(container = id, error = status.message(), "failed to remove old container");
        }
    }
}

/// The context and the inputs of a start.
type Location<'a> = (&'a StartContext, &'a Inputs<'a>);

/// Waits for a slow operation, unless the pod is to end meanwhile.
pub(crate) async fn unless_ended<T>(updates: Updates<'_>, work: impl Future<Output = T>) -> Option<T> {
    let mut updates = updates.clone();
    tokio::select! {
        biased;
        _ = updates.wait_for(super::DesiredPod::ends) => None,
        done = work => Some(done),
    }
}

/// Why a container was not started.
struct StartError {
    problem: Problem,
    /// The time of the next attempt is known.
    is_scheduled: bool,
}

impl From<Problem> for StartError {
    fn from(problem: Problem) -> StartError {
        StartError { problem, is_scheduled: false }
    }
}

impl From<ImageError> for StartError {
    fn from(error: ImageError) -> StartError {
        StartError { problem: error.problem, is_scheduled: error.is_scheduled }
    }
}

async fn create_container(
    context: &Arc<PodContext>,
    pod: &Arc<Tree>,
    spec: &Tree,
    (place, inputs): Location<'_>,
    start: &StartContainer,
) -> std::result::Result<String, StartError> {
    let (image, images) = pulled(context, pod, spec, (place, inputs)).await?;
    let addresses = &place.addresses;
    let parts = container::ConfigSources { spec, image, images, addresses, inputs, start };
    let (config, cpus) = container::config(context, pod, parts)
        .await
        .map_err(|error| failed(context, pod, &start.name, "CreateContainerConfigError", error.to_string()))?;
    let request = cri::CreateContainerRequest {
        pod_sandbox_id: place.sandbox.to_string(),
        config: Some(config),
        sandbox_config: Some(place.config.clone()),
    };
    let answer =
        context.runtime.create(request).await.map_err(|status| {
            failed(context, pod, &start.name, "CreateContainerError", status.message().to_string())
        })?;
    context.managers.record_cpus(&answer.container_id, &cpus);
    context.recorder.normal(&subject(pod, &start.name), "Created", "Container created");
    Ok(answer.container_id)
}

/// The container's image, and those of the volumes that it mounts.
async fn pulled(
    context: &Arc<PodContext>,
    pod: &Arc<Tree>,
    spec: &Tree,
    (place, inputs): Location<'_>,
) -> std::result::Result<(images::LocalImage, Vec<(String, cri::ImageSpec)>), StartError> {
    let of_volumes = place.images.of(spec).inspect_err(|error| {
        let text = format!("Error: {}", error.problem.message);
        context.recorder.warning(&subject(pod, spec.str("name")), "Failed", text);
    })?;
    let secrets = dependencies::pull_secrets(context, pod).await;
    let wanted = ImageRequest { pod, container: spec, secrets: &secrets, sandbox: Some(&place.config) };
    let ensured = unless_ended(inputs.updates, context.images.ensure(&wanted)).await;
    Ok((ensured.ok_or_else(|| ends(pod))??, of_volumes))
}

fn ends(pod: &Tree) -> Problem {
    Problem { reason: initial_reason(pod).into(), message: String::new() }
}

fn failed(context: &PodContext, pod: &Tree, name: &str, reason: &'static str, message: String) -> Problem {
    context.recorder.warning(&subject(pod, name), "Failed", format!("Error: {message}"));
    Problem { reason: reason.into(), message }
}

async fn run_container(
    context: &Arc<PodContext>,
    pod: &Arc<Tree>,
    spec: &Tree,
    (id, restarts): (&str, i64),
    (place, inputs): Location<'_>,
) -> std::result::Result<(), Problem> {
    let name = spec.str("name");
    if let Err(status) = context.runtime.start(id).await {
        return Err(failed(context, pod, name, "RunContainerError", status.message().to_string()));
    }
    context.recorder.normal(&subject(pod, name), "Started", "Container started");
    files::link_log(context, pod, name, id, restarts);
    let Some(hook) = spec.at("lifecycle").get("postStart") else { return Ok(()) };
    let address = place.addresses.first().map_or("", String::as_str);
    match unless_ended(inputs.updates, crate::pod::hooks::run(&context.runtime, id, spec, hook, address)).await {
        None | Some(Ok(())) => Ok(()),
        Some(Err(why)) => {
            // The output of a hook may contain a secret, so that events do not have it.
            context.recorder.warning(&subject(pod, name), "FailedPostStartHook", "PostStartHook failed");
            unless_ended(inputs.updates, Box::pin(stop_unready(context, pod, id))).await;
            Err(Problem { reason: "PostStartHookError".into(), message: why.to_string() })
        }
    }
}

/// A container whose postStart hook has failed is stopped like any other, with its preStop hook.
async fn stop_unready(context: &Arc<PodContext>, pod: &Tree, id: &str) {
    let state = context.runtime.pod(pod::uid(pod)).await.unwrap_or_default();
    let kill =
        terminate::KillOptions { message: "FailedPostStartHook", given: GracePeriod::fixed(None), runs_pre_stop: true };
    let stopped = match state.containers.iter().find(|seen| seen.id == id) {
        Some(seen) => terminate::stop_container(context, pod, &state, seen, kill).await,
        None => context.runtime.stop(id, grace_period::own(pod)).await,
    };
    if let Err(status) = stopped {
        tracing::warn!(
            container = id,
            error = status.message(),
            "failed to stop container after its postStart hook failed"
        );
    }
}
