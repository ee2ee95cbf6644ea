//! Creates the sandbox of a pod.

use std::sync::Arc;

use api::Tree;

use super::start::Failure;
use super::sync::WorkerState;
use crate::metrics;
use crate::model::pod;
use crate::model::state::PodState;
use crate::pod::context::PodContext;
use crate::pod::cri_config::{dns, hostname, resources, sandbox};
use crate::volumes::MountedVolumes;

type Result<T> = std::result::Result<T, Failure>;

pub(crate) async fn create(
    context: &Arc<PodContext>,
    pod: &Arc<Tree>,
    worker: &mut WorkerState,
    which: (u32, &MountedVolumes),
) -> Result<String> {
    let config = config(context, pod, worker, which)?;
    if let Err(error) = super::container::create_log_dir(context, pod, "") {
        return Err(failed(context, pod, &format!("{}: {}", config.log_directory, error.source)));
    }
    let request = cri::RunPodSandboxRequest { config: Some(config), runtime_handler: handler(context, pod)? };
    context.metrics.count(&metrics::STARTED_PODS, &[]);
    match context.runtime.run_sandbox(request).await {
        Ok(answer) => Ok(answer.pod_sandbox_id),
        Err(status) => {
            context.metrics.count(&metrics::STARTED_PODS_ERRORS, &[]);
            Err(failed(context, pod, status.message()))
        }
    }
}

/// Waits until the network policies of the pod are in force. A pod in the network of the host has none.
pub(crate) async fn pass_gate(context: &PodContext, pod: &Tree, addresses: &[String]) -> Result<()> {
    if pod.bool("spec.hostNetwork") {
        return Ok(());
    }
    let ips = addresses.iter().filter_map(|address| address.parse().ok()).collect();
    let passed = context.network_gate.pod_network_ready(pod, ips).await;
    passed.map_err(|error| {
        context.recorder.warning(pod, "FailedCreatePodSandBox", format!("Failed to create pod sandbox: {error}"));
        Failure::Failed
    })
}

fn failed(context: &PodContext, pod: &Tree, why: &str) -> Failure {
    let text = format!("Failed to create pod sandbox: rpc error: {why}");
    context.recorder.warning(pod, "FailedCreatePodSandBox", text);
    Failure::Failed
}

/// The runtime handler of the pod's RuntimeClass; a missing class fails the pod.
fn handler(context: &PodContext, pod: &Tree) -> Result<String> {
    let name = pod.str("spec.runtimeClassName");
    if name.is_empty() {
        return Ok(String::new());
    }
    match context.cache.runtime_classes.get(name) {
        Some(class) => Ok(class.str("handler").to_string()),
        None => Err(failed(context, pod, &format!("RuntimeClass {name:?} not found"))),
    }
}

/// The CRI configuration, for an attempt and the pod's volumes.
pub(crate) fn config(
    context: &PodContext,
    pod: &Tree,
    worker: &mut WorkerState,
    (attempt, mounted): (u32, &MountedVolumes),
) -> Result<cri::PodSandboxConfig> {
    let config = &context.config;
    let refused = |error: &dyn std::error::Error| {
        context.recorder.warning(pod, "FailedCreatePodSandBox", format!("Failed to create pod sandbox: {error}"));
        Failure::Failed
    };
    let cluster = dns::Cluster { servers: &config.cluster_dns, domain: &config.cluster_domain };
    let (resolver, warnings) = dns::pod_resolver(pod, &cluster, &context.resolver().map_err(|error| refused(&error))?);
    if !std::mem::replace(&mut worker.warned, true) {
        warnings.iter().for_each(|warning| record_dns_warning(context, pod, warning));
    }
    let hostname = hostname::for_kernel(pod, &config.cluster_domain).map_err(|error| refused(&error))?;
    let users = context.users.of(pod).map_err(|error| failed(context, pod, &error.to_string()))?;
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

/// The event is for the pod; a missing setting of the node is also an event of the node.
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

/// The addresses of a sandbox, which may be new.
pub(crate) async fn addresses(
    context: &PodContext,
    pod: &Tree,
    sandbox: &str,
    state: &PodState,
) -> Result<Vec<String>> {
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
