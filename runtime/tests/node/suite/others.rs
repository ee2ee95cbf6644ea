//! Calls about the runtime itself, statistics, and events.

use std::sync::Arc;

use cri::{
    CheckpointContainerRequest, CheckpointPodRequest, ContainerEventType, ContainerStats, ContainerStatsFilter,
    ContainerStatsRequest, GetEventsRequest, ListContainerStatsRequest, ListMetricDescriptorsRequest,
    ListPodSandboxMetricsRequest, ListPodSandboxStatsRequest, NetworkConfig, PodSandboxStats, PodSandboxStatsFilter,
    PodSandboxStatsRequest, RestorePodRequest, RuntimeConfig, RuntimeConfigRequest, RuntimeService, Status,
    StatusRequest, StreamContainerStatsRequest, StreamPodSandboxMetricsRequest, StreamPodSandboxStatsRequest,
    UpdateRuntimeConfigRequest, VersionRequest,
};
use tokio_stream::StreamExt;

use super::sandboxes::networked;
use super::{Suite, cases, code};
use crate::harness::Node;

const UNKNOWN: &str = "0123456789abcdef";

cases! {
    "Version: API version" => version, "0.1.0 v1";
    "Status: ready, and the network too" => status, "RuntimeReady true, NetworkReady true";
    "Status: features" => handlers, "default handler, supplemental groups";
    "Status: more with verbose" => verbose, "0, some";
    "UpdateRuntimeConfig: pod CIDR" => pod_cidr, "ok";
    "UpdateRuntimeConfig: an invalid CIDR" => bad_cidr, "Unknown";
    "RuntimeConfig: cgroup driver" => driver, "Cgroupfs";
    "ContainerStats: running" => container_stats, "main cpu memory layer";
    "ContainerStats: unknown ID" => container_stats_unknown, "NotFound";
    "ListContainerStats: running ones, by pod" => container_list, "main cpu memory layer";
    "StreamContainerStats: streams the list" => container_stream, "1";
    "PodSandboxStats: of a pod" => pod_stats, "pod-stats cpu memory network eth0 containers 1";
    "PodSandboxStats: unknown ID" => pod_stats_unknown, "NotFound";
    "ListPodSandboxStats: by id" => pod_list, "1";
    "StreamPodSandboxStats: streams the list" => pod_stream, "1";
    "GetContainerEvents: lifecycle of a container" => events, "pod Created, pod Started, Created, Started, Stopped";
    "ListMetricDescriptors: all metrics" => descriptors, "ok";
    "ListPodSandboxMetrics: all pods" => metrics, "ok";
    "StreamPodSandboxMetrics: streams the list" => metric_stream, "ok";
    "CheckpointContainer: not supported" => checkpoint, "Unimplemented";
    "CheckpointPod: not supported" => checkpoint_pod, "Unimplemented";
    "RestorePod: not supported" => restore_pod, "Unimplemented";
}

async fn version(suite: Arc<Suite>) -> String {
    let version = suite.node.runtime.version(VersionRequest::default()).await.unwrap();
    format!("{} {}", version.version, version.runtime_api_version)
}

async fn status(suite: Arc<Suite>) -> String {
    let status = suite.node.runtime.status(StatusRequest::default()).await.unwrap().status.unwrap();
    let conditions = status.conditions.iter().map(|condition| format!("{} {}", condition.r#type, condition.status));
    conditions.collect::<Vec<_>>().join(", ")
}

async fn handlers(suite: Arc<Suite>) -> String {
    let status = suite.node.runtime.status(StatusRequest::default()).await.unwrap();
    let default = status.runtime_handlers.iter().any(|handler| handler.name.is_empty());
    let groups = status.features.is_some_and(|features| features.supplemental_groups_policy);
    let results = [(default, "default handler"), (groups, "supplemental groups")];
    results.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

async fn verbose(suite: Arc<Suite>) -> String {
    let plain = suite.node.runtime.status(StatusRequest { verbose: false }).await.unwrap().info;
    let more = suite.node.runtime.status(StatusRequest { verbose: true }).await.unwrap().info;
    format!("{}, {}", plain.len(), if more.is_empty() { "none" } else { "some" })
}

pub async fn set_pod_cidr(node: &Node, cidr: &str) -> Result<(), Status> {
    let network_config = Some(NetworkConfig { pod_cidr: cidr.into() });
    let runtime_config = Some(RuntimeConfig { network_config });
    node.runtime.update_runtime_config(UpdateRuntimeConfigRequest { runtime_config }).await.map(drop)
}

async fn pod_cidr(suite: Arc<Suite>) -> String {
    code(&set_pod_cidr(&suite.node, "10.213.80.0/24").await)
}

async fn bad_cidr(suite: Arc<Suite>) -> String {
    code(&set_pod_cidr(&suite.node, "everywhere").await)
}

async fn driver(suite: Arc<Suite>) -> String {
    match suite.node.runtime.runtime_config(RuntimeConfigRequest {}).await {
        Ok(config) => format!("{:?}", config.linux.unwrap().cgroup_driver()),
        refused => code(&refused),
    }
}

fn measured(stats: &ContainerStats) -> String {
    let name = stats.attributes.clone().unwrap().metadata.unwrap().name;
    let positive = |value: &Option<cri::UInt64Value>| value.as_ref().is_some_and(|value| value.value > 0);
    let cpu = stats.cpu.as_ref().is_some_and(|cpu| positive(&cpu.usage_core_nano_seconds));
    let memory = stats.memory.as_ref().is_some_and(|memory| positive(&memory.working_set_bytes));
    let layer = stats.writable_layer.as_ref().is_some_and(|layer| layer.used_bytes.is_some());
    let has = [(true, name.as_str()), (cpu, "cpu"), (memory, "memory"), (layer, "layer")];
    has.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect::<Vec<_>>().join(" ")
}

const BUSY: &str = "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done; sleep 1000";

async fn container_stats(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("stats", BUSY).await;
    let request = ContainerStatsRequest { container_id: id };
    measured(&suite.node.runtime.container_stats(request).await.unwrap().stats.unwrap())
}

async fn container_stats_unknown(suite: Arc<Suite>) -> String {
    code(&suite.node.runtime.container_stats(ContainerStatsRequest { container_id: UNKNOWN.into() }).await)
}

async fn container_list(suite: Arc<Suite>) -> String {
    let (pod, _) = suite.running("stats-list", BUSY).await;
    let other = suite.run(&pod, suite.container("ended", "true")).await;
    suite.node.wait_exit(&other).await;
    let filter = Some(ContainerStatsFilter { pod_sandbox_id: pod.id, ..Default::default() });
    let list = suite.node.runtime.list_container_stats(ListContainerStatsRequest { filter }).await.unwrap();
    let mut results: Vec<_> = list.stats.iter().map(measured).collect();
    results.sort();
    results.join(", ")
}

async fn container_stream(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("stats-stream", "sleep 1000").await;
    let filter = Some(ContainerStatsFilter { id, ..Default::default() });
    let mut answers = match suite.node.runtime.stream_container_stats(StreamContainerStatsRequest { filter }).await {
        Ok(answers) => answers,
        refused => return code(&refused),
    };
    let mut count = 0;
    while let Some(answer) = answers.next().await {
        count += answer.unwrap().container_stats.len();
    }
    count.to_string()
}

fn measured_pod(stats: &PodSandboxStats) -> String {
    let name = stats.attributes.clone().unwrap().metadata.unwrap().name;
    let linux = stats.linux.clone().unwrap();
    let interface = linux.network.and_then(|network| network.default_interface).unwrap_or_default().name;
    let cpu = if linux.cpu.is_some() { " cpu" } else { "" };
    let memory = if linux.memory.is_some() { " memory" } else { "" };
    format!("{name}{cpu}{memory} network {interface} containers {}", linux.containers.len())
}

async fn pod_stats(suite: Arc<Suite>) -> String {
    let pod = networked(&suite, "pod-stats", |_| {}).await;
    suite.run(&pod, suite.container("main", BUSY)).await;
    let request = PodSandboxStatsRequest { pod_sandbox_id: pod.id };
    measured_pod(&suite.node.runtime.pod_sandbox_stats(request).await.unwrap().stats.unwrap())
}

async fn pod_stats_unknown(suite: Arc<Suite>) -> String {
    code(&suite.node.runtime.pod_sandbox_stats(PodSandboxStatsRequest { pod_sandbox_id: UNKNOWN.into() }).await)
}

async fn pod_list(suite: Arc<Suite>) -> String {
    let (pod, _) = suite.running("pod-list", "sleep 1000").await;
    let filter = Some(PodSandboxStatsFilter { id: pod.id, ..Default::default() });
    let list = suite.node.runtime.list_pod_sandbox_stats(ListPodSandboxStatsRequest { filter }).await.unwrap();
    list.stats.len().to_string()
}

async fn pod_stream(suite: Arc<Suite>) -> String {
    let (pod, _) = suite.running("pod-stream", "sleep 1000").await;
    let filter = Some(PodSandboxStatsFilter { id: pod.id, ..Default::default() });
    let request = StreamPodSandboxStatsRequest { filter };
    let mut answers = match suite.node.runtime.stream_pod_sandbox_stats(request).await {
        Ok(answers) => answers,
        refused => return code(&refused),
    };
    let mut count = 0;
    while let Some(answer) = answers.next().await {
        count += answer.unwrap().pod_sandbox_stats.len();
    }
    count.to_string()
}

async fn events(suite: Arc<Suite>) -> String {
    let mut events = match suite.node.runtime.get_container_events(GetEventsRequest {}).await {
        Ok(events) => events,
        refused => return code(&refused),
    };
    let (pod, id) = suite.running("events", "exit 4").await;
    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        let event = event.unwrap();
        let kind = event.container_event_type();
        // Events of other cases arrive too.
        if event.container_id == pod.id {
            seen.push(format!("pod {kind:?}"));
        } else if event.container_id == id {
            seen.push(format!("{kind:?}"));
            if kind == ContainerEventType::Stopped {
                break;
            }
        }
    }
    seen.join(", ")
}

async fn descriptors(suite: Arc<Suite>) -> String {
    code(&suite.node.runtime.list_metric_descriptors(ListMetricDescriptorsRequest {}).await)
}

async fn metrics(suite: Arc<Suite>) -> String {
    code(&suite.node.runtime.list_pod_sandbox_metrics(ListPodSandboxMetricsRequest {}).await)
}

async fn metric_stream(suite: Arc<Suite>) -> String {
    code(&suite.node.runtime.stream_pod_sandbox_metrics(StreamPodSandboxMetricsRequest::default()).await)
}

async fn checkpoint(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("checkpoint", "sleep 1000").await;
    let request = CheckpointContainerRequest { container_id: id, ..Default::default() };
    code(&suite.node.runtime.checkpoint_container(request).await)
}

async fn checkpoint_pod(suite: Arc<Suite>) -> String {
    code(&suite.node.runtime.checkpoint_pod(CheckpointPodRequest::default()).await)
}

async fn restore_pod(suite: Arc<Suite>) -> String {
    code(&suite.node.runtime.restore_pod(RestorePodRequest::default()).await)
}
