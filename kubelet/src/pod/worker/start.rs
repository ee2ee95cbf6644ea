//! Brings a pod up: its sandbox, then its containers, one after the other.

use std::path::Path;
use std::sync::Arc;

use api::Tree;

use super::grace_period::{self, GracePeriod};
use super::sync::{self, Updates, WorkerState};
use super::{end, files, needs};
use crate::images::{self, ImageRequest};
use crate::logs::files as log_files;
use crate::metrics;
use crate::model::pod::{self, subject};
use crate::model::problem::Problem;
use crate::model::state::{PodState, Stage, keys};
use crate::pod::context::PodContext;
use crate::pod::cri_config::resources::{self, Limits};
use crate::pod::cri_config::{container, dns, hostname, sandbox};
use crate::pod::plan::{Kill, Plan, Start, Why};
use crate::pod::status::initial_reason;
use crate::volumes::{self, Mounted};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The pod is to end: what was begun is not gone on with.
    Ends,
    /// It is known when to try again.
    Waits,
    Failed,
}

type Result<T> = std::result::Result<T, Failure>;

/// What is there already.
pub struct Inputs<'a> {
    pub state: &'a Arc<PodState>,
    pub mounted: &'a Mounted,
    pub told: Updates<'a>,
}

/// Does what was decided.
pub async fn carry_out(
    context: &Arc<PodContext>,
    pod: &Arc<Tree>,
    worker: &mut WorkerState,
    given: &Inputs<'_>,
    plan: &Plan,
) -> Result<()> {
    let (state, told) = (given.state, given.told);
    if plan.sandbox.is_some() && state.sandbox().is_some() {
        let text = "Pod sandbox changed, it will be killed and re-created.";
        context.recorder.normal(pod, "SandboxChanged", text);
    }
    if plan.kill_pod {
        let given = GracePeriod::fixed(None);
        let stopped =
            unless_ended(told, Box::pin(end::stop_all(context, pod, state, &given))).await.ok_or(Failure::Ends)?;
        stopped.map_err(|_| Failure::Failed)?;
    }
    kill(context, pod, state, &plan.kills, told).await?;
    let sandbox = match plan.sandbox {
        Some(attempt) => create_sandbox(context, pod, worker, (attempt, given.mounted)).await?,
        None => state.sandbox().map(|sandbox| sandbox.id.clone()).unwrap_or_default(),
    };
    if plan.starts.is_empty() {
        return Ok(());
    }
    let addresses = addresses(context, pod, &sandbox, state).await?;
    let config = sandbox_config(context, pod, worker, (0, given.mounted))?;
    let images = needs::volume_images(context, pod, given, &config).await?;
    let place = StartContext { sandbox: &sandbox, config: &config, addresses: &addresses, images: &images, given };
    let mut result = Ok(());
    for start in &plan.starts {
        if told.borrow().ends() {
            return Err(Failure::Ends);
        }
        // One that cannot be started does not hold up the others.
        if let Err(failure) = start_container(context, pod, worker, &place, start).await {
            result = Err(failure);
        }
    }
    result
}

/// Ends single containers, each for its own reason. Where the pod is to end meanwhile, that ends them in its own time.
pub async fn kill(
    context: &Arc<PodContext>,
    pod: &Arc<Tree>,
    state: &PodState,
    kills: &[Kill],
    told: Updates<'_>,
) -> Result<()> {
    for kill in kills {
        let seen = state.containers.iter().find(|seen| seen.id == kill.id);
        let grace = match kill.why {
            Why::Probe(field) => {
                pod::container(pod, &kill.name).and_then(|spec| spec.at(field).int("terminationGracePeriodSeconds"))
            }
            Why::Changed | Why::Round => None,
        };
        if let Some(seen) = seen {
            let kill = end::Kill {
                message: &kill.message,
                given: GracePeriod::fixed(grace),
                is_sudden: kill.why == Why::Round,
            };
            let stopped = unless_ended(told, Box::pin(end::stop_container(context, pod, state, seen, kill)))
                .await
                .ok_or(Failure::Ends)?;
            stopped.map_err(|_| Failure::Failed)?;
        }
    }
    Ok(())
}

/// Where containers are started.
struct StartContext<'a> {
    sandbox: &'a str,
    config: &'a cri::PodSandboxConfig,
    addresses: &'a [String],
    images: &'a needs::VolumeImages,
    given: &'a Inputs<'a>,
}

/// Waits for something that may take long, unless the pod is to end meanwhile.
pub async fn unless_ended<T>(told: Updates<'_>, work: impl Future<Output = T>) -> Option<T> {
    let mut told = told.clone();
    tokio::select! {
        biased;
        _ = told.wait_for(super::DesiredPod::ends) => None,
        done = work => Some(done),
    }
}

async fn create_sandbox(
    context: &Arc<PodContext>,
    pod: &Arc<Tree>,
    worker: &mut WorkerState,
    which: (u32, &Mounted),
) -> Result<String> {
    let config = sandbox_config(context, pod, worker, which)?;
    if let Err(error) = create_log_dir(context, pod, "") {
        return Err(failed_sandbox(context, pod, &format!("{}: {error}", config.log_directory)));
    }
    let request = cri::RunPodSandboxRequest { config: Some(config), runtime_handler: handler(context, pod)? };
    context.metrics.count(&metrics::STARTED_PODS, &[]);
    match context.runtime.run_sandbox(request).await {
        Ok(answer) => Ok(answer.pod_sandbox_id),
        Err(status) => {
            context.metrics.count(&metrics::STARTED_PODS_ERRORS, &[]);
            Err(failed_sandbox(context, pod, status.message()))
        }
    }
}

/// The directory of a container's logs, or of the pod's without a name.
fn create_log_dir(context: &PodContext, pod: &Tree, container: &str) -> std::io::Result<()> {
    let below = pod::log_dir(Path::new(""), pod).join(container);
    log_files::create_dir(&context.config.pod_logs_dir, &below)
}

fn failed_sandbox(context: &PodContext, pod: &Tree, why: &str) -> Failure {
    let text = format!("Failed to create pod sandbox: rpc error: {why}");
    context.recorder.warning(pod, "FailedCreatePodSandBox", text);
    Failure::Failed
}

/// The runtime's name for the pod's class; one that does not exist fails the pod.
fn handler(context: &PodContext, pod: &Tree) -> Result<String> {
    let name = pod.str("spec.runtimeClassName");
    if name.is_empty() {
        return Ok(String::new());
    }
    match context.cache.runtime_classes.get(name) {
        Some(class) => Ok(class.str("handler").to_string()),
        None => Err(failed_sandbox(context, pod, &format!("RuntimeClass {name:?} not found"))),
    }
}

/// Which attempt it is, and what there is of volumes.
fn sandbox_config(
    context: &PodContext,
    pod: &Tree,
    worker: &mut WorkerState,
    (attempt, mounted): (u32, &Mounted),
) -> Result<cri::PodSandboxConfig> {
    let config = &context.config;
    let refused = |why: String| {
        context.recorder.warning(pod, "FailedCreatePodSandBox", format!("Failed to create pod sandbox: {why}"));
        Failure::Failed
    };
    let cluster = dns::Cluster { servers: &config.cluster_dns, domain: &config.cluster_domain };
    let (resolver, warnings) = dns::of(pod, &cluster, &context.resolver().map_err(refused)?);
    if !std::mem::replace(&mut worker.warned, true) {
        warnings.iter().for_each(|warning| record_dns_warning(context, pod, warning));
    }
    let hostname = hostname::for_kernel(pod, &config.cluster_domain).map_err(refused)?;
    let users = context.users.of(pod).map_err(|why| failed_sandbox(context, pod, &why))?;
    let (resources, overhead) = resources::of_sandbox(pod, context.limits());
    Ok(sandbox::config(
        pod,
        sandbox::Inputs {
            attempt,
            logs: &config.pod_logs_dir,
            hostname,
            resolver: &resolver,
            cgroup_parent: crate::resources::cgroups::names::parent(config, pod),
            users: users.as_ref(),
            overhead,
            resources: Some(resources),
            volume_groups: &mounted.groups(pod),
        },
    ))
}

/// The pod's owner is told, and of what the node lacks the node's too.
fn record_dns_warning(context: &PodContext, pod: &Tree, warning: &dns::Warning) {
    match warning {
        dns::Warning::NoCluster => {
            context.recorder.warning(&context.node.reference(), "MissingClusterDNS", dns::NO_CLUSTER);
            let text = format!("pod: {:?}. {}", pod::named(pod), dns::NO_CLUSTER);
            context.recorder.warning(pod, "MissingClusterDNS", text);
        }
        dns::Warning::Forming(text) => context.recorder.warning(pod, "DNSConfigForming", text.as_str()),
    }
}

/// The addresses of a sandbox that may have been made just now.
async fn addresses(context: &PodContext, pod: &Tree, sandbox: &str, state: &PodState) -> Result<Vec<String>> {
    if pod.bool("spec.hostNetwork") {
        return Ok(context.node.host_ips().iter().map(ToString::to_string).collect());
    }
    if let Some(known) = state.sandboxes.iter().find(|known| known.id == sandbox) {
        return Ok(known.addresses.clone());
    }
    let fresh = context.runtime.pod(pod::uid(pod)).await.map_err(|_| Failure::Failed)?;
    let made = fresh.sandboxes.into_iter().find(|made| made.id == sandbox);
    Ok(made.map(|made| made.addresses).unwrap_or_default())
}

async fn start_container(
    context: &Arc<PodContext>,
    pod: &Arc<Tree>,
    worker: &mut WorkerState,
    place: &StartContext<'_>,
    start: &Start,
) -> Result<()> {
    let state = place.given.state;
    let Some(spec) = pod::container(pod, &start.name) else { return Ok(()) };
    let start = &Start { restarts: number(context, pod, state, start), ..start.clone() };
    let ended = state.container(&start.name).filter(|seen| seen.stage == Stage::Exited);
    let sort = metrics::sort(pod, &start.name);
    context.metrics.count(&metrics::STARTED_CONTAINERS, &[sort]);
    remove_unstarted(context, state, &start.name).await?;
    let made = create_container(context, pod, spec, place, start).await;
    let started = match made {
        Ok(id) => run_container(context, pod, spec, (&id, start.restarts), place).await,
        Err(problem) => Err(problem),
    };
    // What the runtime has forgotten, in a reboot for example, did not crash.
    if start.restarts > 0 && state.container(&start.name).is_some() {
        let ended_at = ended.map_or(context.now(), |ended| ended.finished_at);
        worker.backoffs.started_again(&start.name, ended_at, context.now());
    }
    match started {
        Ok(()) => {
            worker.problems.remove(&start.name);
            context.resizes.follows(pod::uid(pod), &start.name);
            remove_older(context, state, &start.name).await;
            Ok(())
        }
        Err(problem) => {
            context.metrics.count(&metrics::STARTED_CONTAINERS_ERRORS, &[sort, &problem.reason]);
            let waits = is_of_image(&problem.reason);
            worker.problems.insert(start.name.clone(), problem);
            Err(if waits { Failure::Waits } else { Failure::Failed })
        }
    }
}

/// A static pod has no status here that could tell how often a container was started before the runtime forgot it:
/// the logs tell it.
fn number(context: &PodContext, pod: &Tree, state: &PodState, start: &Start) -> i64 {
    if !pod::is_static(pod) || state.container(&start.name).is_some() {
        return start.restarts;
    }
    start.restarts.max(files::next_log(&sync::logs(context, pod).join(&start.name)))
}

/// It is known when an image is tried again.
fn is_of_image(reason: &str) -> bool {
    matches!(reason, "ImagePullBackOff" | "ErrImagePull" | "RegistryUnavailable" | "SignatureValidationFailed")
}

/// A container that was created and never started blocks its successor, which gets the same number.
async fn remove_unstarted(context: &PodContext, state: &PodState, name: &str) -> Result<()> {
    for seen in state.containers.iter().filter(|seen| seen.name == name && seen.stage == Stage::Created) {
        context.runtime.remove(&seen.id).await.map_err(|_| Failure::Failed)?;
    }
    Ok(())
}

/// Of a container that is started again, only the last one is kept beside the new one.
async fn remove_older(context: &PodContext, state: &PodState, name: &str) {
    let older = state.containers.iter().filter(|seen| seen.name == name && !seen.is_running()).skip(1);
    for seen in older {
        if let Err(status) = context.runtime.remove(&seen.id).await {
            tracing::debug!(container = seen.id, error = status.message(), "failed to remove old container");
        }
    }
}

async fn create_container(
    context: &Arc<PodContext>,
    pod: &Arc<Tree>,
    spec: &Tree,
    place: &StartContext<'_>,
    start: &Start,
) -> std::result::Result<String, Problem> {
    let (image, images) = pulled(context, pod, spec, place).await?;
    let config_error = |message: String| failed(context, pod, &start.name, "CreateContainerConfigError", message);
    needs::check_user(pod, spec, &image).map_err(config_error)?;
    let given = context.managers.prepare(pod, spec).await.map_err(config_error)?;
    let own = needs::variables(context, pod, spec, place.addresses, place.given.mounted).await.map_err(config_error)?;
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
    let volumes =
        volumes::mounts(&context.config, pod, spec, place.given.mounted, &seen).await.map_err(config_error)?;
    let mut mounts = files::own_mounts(context, pod, spec, place.addresses, start).map_err(config_error)?;
    mounts.extend(volumes);
    mounts.extend(given.mounts);
    let mut devices = volumes::devices(spec, place.given.mounted).map_err(config_error)?;
    devices.extend(given.devices);
    let limits = context.limits();
    let target = container::target(spec, pod).and_then(|name| place.given.state.active(name));
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
            annotations: given.annotations.into_iter().chain(round(place.given.state)).collect(),
            limits: Limits { cfs_quota: limits.cfs_quota && !given.has_cpus, ..limits },
            security: container::Security {
                target: &target,
                users: users.as_ref(),
                volume_groups: &place.given.mounted.groups(pod),
                seccomp_root: &seccomp_root,
                seccomp_default: context.config.seccomp_default,
            },
            cpuset: (given.cpus.clone(), given.memory_nodes),
        },
    );
    let logs = sync::logs(context, pod).join(&start.name);
    create_log_dir(context, pod, &start.name).map_err(|error| config_error(format!("{}: {error}", logs.display())))?;
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
    place: &StartContext<'_>,
) -> std::result::Result<(images::Present, Vec<(String, cri::ImageSpec)>), Problem> {
    let of_volumes = place.images.of(spec).inspect_err(|problem| {
        let text = format!("Error: {}", problem.message);
        context.recorder.warning(&subject(pod, spec.str("name")), "Failed", text);
    })?;
    let secrets = needs::pull_secrets(context, pod).await;
    let wanted = ImageRequest { pod, container: spec, secrets: &secrets, sandbox: Some(place.config) };
    let image =
        unless_ended(place.given.told, context.images.ensure(&wanted)).await.unwrap_or_else(|| Err(ends(pod)))?;
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
    place: &StartContext<'_>,
) -> std::result::Result<(), Problem> {
    let name = spec.str("name");
    if let Err(status) = context.runtime.start(id).await {
        return Err(failed(context, pod, name, "RunContainerError", status.message().to_string()));
    }
    context.recorder.normal(&subject(pod, name), "Started", "Container started");
    files::link_log(context, pod, name, id, restarts);
    let Some(hook) = spec.at("lifecycle").get("postStart") else { return Ok(()) };
    let address = place.addresses.first().map_or("", String::as_str);
    match unless_ended(place.given.told, crate::pod::hooks::run(&context.runtime, id, spec, hook, address)).await {
        None | Some(Ok(())) => Ok(()),
        Some(Err(why)) => {
            // What a hook has said may be a secret: it is not for events.
            context.recorder.warning(&subject(pod, name), "FailedPostStartHook", "PostStartHook failed");
            unless_ended(place.given.told, Box::pin(stop_unready(context, pod, id))).await;
            Err(Problem { reason: "PostStartHookError".into(), message: why })
        }
    }
}

/// A container whose first hook has failed ends like any other: with its last hook.
async fn stop_unready(context: &Arc<PodContext>, pod: &Tree, id: &str) {
    let state = context.runtime.pod(pod::uid(pod)).await.unwrap_or_default();
    let kill = end::Kill { message: "FailedPostStartHook", given: GracePeriod::fixed(None), is_sudden: false };
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
