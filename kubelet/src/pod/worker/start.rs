//! Starts containers: the image, the CRI configuration, the container, its postStart hook.

use std::sync::Arc;

use api::Tree;

use super::grace_period::{self, GracePeriod};
use super::sync::{self, Updates, WorkerState};
use super::{end, files, needs, sandbox};
use crate::images::{self, ImageRequest};
use crate::metrics;
use crate::model::pod::{self, subject};
use crate::model::problem::Problem;
use crate::model::state::{PodState, keys};
use crate::pod::context::PodContext;
use crate::pod::cri_config::container;
use crate::pod::cri_config::resources::Limits;
use crate::pod::plan::{Crash, StartContainer};
use crate::pod::status::initial_reason;
use crate::volumes::{self, Mounted};

/// Why a command was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The pod is to end, so that the rest of the plan is dropped.
    Ends,
    /// The time of the next attempt is known.
    Waits,
    Failed,
}

type Result<T> = std::result::Result<T, Failure>;

/// What exists before containers are started.
pub struct Inputs<'a> {
    pub state: &'a Arc<PodState>,
    pub mounted: &'a Mounted,
    pub told: Updates<'a>,
}

/// The sandbox in which containers are started, and what they share.
pub struct StartContext {
    sandbox: String,
    config: cri::PodSandboxConfig,
    addresses: Vec<String>,
    images: needs::VolumeImages,
}

impl StartContext {
    /// `sandbox` is the ID of a sandbox that was created just now.
    pub async fn new(
        context: &Arc<PodContext>,
        pod: &Tree,
        worker: &mut WorkerState,
        inputs: &Inputs<'_>,
        sandbox: Option<String>,
    ) -> Result<StartContext> {
        let known = || inputs.state.sandbox().map(|sandbox| sandbox.id.clone()).unwrap_or_default();
        let sandbox = sandbox.unwrap_or_else(known);
        let addresses = sandbox::addresses(context, pod, &sandbox, inputs.state).await?;
        let config = sandbox::config(context, pod, worker, (0, inputs.mounted))?;
        let images = needs::volume_images(context, pod, inputs, &config).await?;
        Ok(StartContext { sandbox, config, addresses, images })
    }
}

/// Starts a container. A failure is reported as the container's problem.
pub async fn start_container(
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
        Err(problem) => Err(record_problem(context, pod, worker, start, problem)),
    }
}

async fn create_and_run(
    context: &Arc<PodContext>,
    pod: &Arc<Tree>,
    spec: &Tree,
    place: Location<'_>,
    start: &StartContainer,
) -> std::result::Result<(), Problem> {
    let id = create_container(context, pod, spec, place, start).await?;
    run_container(context, pod, spec, (&id, start.restarts), place).await
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
    problem: Problem,
) -> Failure {
    let labels = [metrics::sort(pod, &start.name), &problem.reason];
    context.metrics.count(&metrics::STARTED_CONTAINERS_ERRORS, &labels);
    let waits = is_of_image(&problem.reason);
    worker.problems.insert(start.name.clone(), problem);
    if waits { Failure::Waits } else { Failure::Failed }
}

async fn remove_older(context: &PodContext, older: &[String]) {
    for id in older {
        if let Err(status) = context.runtime.remove(id).await {
            tracing::debug!(container = id, error = status.message(), "failed to remove old container");
        }
    }
}

/// Where a container is started.
type Location<'a> = (&'a StartContext, &'a Inputs<'a>);

/// Waits for something that may take long, unless the pod is to end meanwhile.
pub async fn unless_ended<T>(told: Updates<'_>, work: impl Future<Output = T>) -> Option<T> {
    let mut told = told.clone();
    tokio::select! {
        biased;
        _ = told.wait_for(super::DesiredPod::ends) => None,
        done = work => Some(done),
    }
}

/// It is known when an image is tried again.
fn is_of_image(reason: &str) -> bool {
    matches!(reason, "ImagePullBackOff" | "ErrImagePull" | "RegistryUnavailable" | "SignatureValidationFailed")
}

async fn create_container(
    context: &Arc<PodContext>,
    pod: &Arc<Tree>,
    spec: &Tree,
    (place, inputs): Location<'_>,
    start: &StartContainer,
) -> std::result::Result<String, Problem> {
    let (image, images) = pulled(context, pod, spec, (place, inputs)).await?;
    let config_error = |message: String| failed(context, pod, &start.name, "CreateContainerConfigError", message);
    needs::check_user(pod, spec, &image).map_err(config_error)?;
    let given = context.managers.prepare(pod, spec).await.map_err(config_error)?;
    let own = needs::variables(context, pod, spec, &place.addresses, inputs.mounted).await.map_err(config_error)?;
    let of_devices = given.env.into_iter().map(|(name, value)| (name, value.into_bytes()));
    // What the pod says itself counts before what its devices bring.
    let variables: Vec<_> = of_devices.chain(own).collect();
    let users = context.users.of(pod).map_err(config_error)?;
    let seen = volumes::MountInputs {
        env: &variables,
        images: &images,
        users: users.as_ref(),
        recursive_read_only: context.features.recursive_read_only,
    };
    let volumes = volumes::mounts(&context.config, pod, spec, inputs.mounted, &seen).await.map_err(config_error)?;
    let mut mounts = files::own_mounts(context, pod, spec, &place.addresses, start).map_err(config_error)?;
    mounts.extend(volumes);
    mounts.extend(given.mounts);
    let mut devices = volumes::devices(spec, inputs.mounted).map_err(config_error)?;
    devices.extend(given.devices);
    let limits = context.limits();
    let target = container::target(spec, pod).and_then(|name| inputs.state.active(name));
    let target = target.map(|seen| seen.id.clone()).unwrap_or_default();
    let seccomp_root = context.config.root_dir.join("seccomp").display().to_string();
    let config = container::config(
        pod,
        spec,
        container::Inputs {
            restarts: start.restarts,
            image: cri::ImageSpec { image: image.id.clone(), ..images::spec(spec.str("image")) },
            env: &variables,
            mounts,
            devices,
            cdi_devices: given.cdi_devices,
            annotations: given.annotations.into_iter().chain(round(inputs.state)).collect(),
            limits: Limits { cfs_quota: limits.cfs_quota && !given.has_cpus, ..limits },
            security: container::Security {
                target: &target,
                users: users.as_ref(),
                volume_groups: &inputs.mounted.groups(pod),
                seccomp_root: &seccomp_root,
                seccomp_default: context.config.seccomp_default,
            },
            cpuset: (given.cpus.clone(), given.memory_nodes),
        },
    );
    let logs = sync::logs(context, pod).join(&start.name);
    std::fs::create_dir_all(&logs).map_err(|error| config_error(format!("{}: {error}", logs.display())))?;
    let request = cri::CreateContainerRequest {
        pod_sandbox_id: place.sandbox.to_string(),
        config: Some(config),
        sandbox_config: Some(place.config.clone()),
    };
    let answer =
        context.runtime.create(request).await.map_err(|status| {
            failed(context, pod, &start.name, "CreateContainerError", status.message().to_string())
        })?;
    context.managers.made(&answer.container_id, &given.cpus);
    context.recorder.normal(&subject(pod, &start.name), "Created", "Container created");
    Ok(answer.container_id)
}

fn round(state: &PodState) -> Option<(String, String)> {
    (state.round > 0).then(|| (keys::ROUND.to_string(), state.round.to_string()))
}

/// The container's image, and those of the volumes that it mounts.
async fn pulled(
    context: &Arc<PodContext>,
    pod: &Arc<Tree>,
    spec: &Tree,
    (place, inputs): Location<'_>,
) -> std::result::Result<(images::Present, Vec<(String, cri::ImageSpec)>), Problem> {
    let of_volumes = place.images.of(spec).inspect_err(|problem| {
        let text = format!("Error: {}", problem.message);
        context.recorder.warning(&subject(pod, spec.str("name")), "Failed", text);
    })?;
    let secrets = needs::pull_secrets(context, pod).await;
    let wanted = ImageRequest { pod, container: spec, secrets: &secrets, sandbox: Some(&place.config) };
    let image = unless_ended(inputs.told, context.images.ensure(&wanted)).await.unwrap_or_else(|| Err(ends(pod)))?;
    Ok((image, of_volumes))
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
    match unless_ended(inputs.told, crate::pod::hooks::run(&context.runtime, id, spec, hook, address)).await {
        None | Some(Ok(())) => Ok(()),
        Some(Err(why)) => {
            // What a hook has said may be a secret: it is not for events.
            context.recorder.warning(&subject(pod, name), "FailedPostStartHook", "PostStartHook failed");
            unless_ended(inputs.told, Box::pin(stop_unready(context, pod, id))).await;
            Err(Problem { reason: "PostStartHookError".into(), message: why })
        }
    }
}

/// A container whose first hook has failed ends like any other: with its last hook.
async fn stop_unready(context: &Arc<PodContext>, pod: &Tree, id: &str) {
    let state = context.runtime.pod(pod::uid(pod)).await.unwrap_or_default();
    let kill = end::Kill { message: "FailedPostStartHook", given: GracePeriod::fixed(None), runs_pre_stop: true };
    let stopped = match state.containers.iter().find(|seen| seen.id == id) {
        Some(seen) => end::stop_container(context, pod, &state, seen, kill).await,
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
