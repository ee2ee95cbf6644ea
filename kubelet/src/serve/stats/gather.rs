//! Asks the runtime and the kernel.

use std::collections::BTreeMap;
use std::path::Path;

use api::Tree;
use api::time;
use cri::{
    Code, ContainerStats, ImageFsInfoRequest, LinuxPodSandboxStats, ListContainerStatsRequest,
    ListPodSandboxStatsRequest, PodSandboxAttributes, PodSandboxMetadata, PodSandboxStats, Status,
};

use super::{Filesystem, PodUsage, Usage, machine, value};
use crate::serve::Host;

const POD_NAME: &str = "io.kubernetes.pod.name";
const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
const POD_UID: &str = "io.kubernetes.pod.uid";

pub async fn gather(host: &dyn Host) -> Usage {
    let sandboxes = sandboxes(host).await;
    let failed = sandboxes.is_err();
    if let Err(error) = &sandboxes {
        tracing::warn!(%error, "the runtime does not say what its pods use");
    }
    let known = host.pods();
    let pods = sandboxes.unwrap_or_default().into_iter().filter_map(|stats| usage(stats, &known)).collect();
    let root = host.root_dir();
    Usage {
        node: host.node_name().to_string(),
        at: host.clock().now(),
        machine: tokio::task::spawn_blocking(move || machine::read(&root)).await.unwrap_or_default(),
        images: images(host).await,
        pods,
        failed,
    }
}

async fn sandboxes(host: &dyn Host) -> Result<Vec<PodSandboxStats>, Status> {
    let runtime = host.runtime();
    match runtime.list_pod_sandbox_stats(ListPodSandboxStatsRequest { filter: None }).await {
        Ok(answer) => Ok(answer.stats),
        // Older runtimes know of containers alone.
        Err(status) if status.code() == Code::Unimplemented => {
            let answer = runtime.list_container_stats(ListContainerStatsRequest { filter: None }).await?;
            Ok(together(answer.stats))
        }
        Err(status) => Err(status),
    }
}

/// Containers put together by their pods, whose use is the sum of theirs.
fn together(all: Vec<ContainerStats>) -> Vec<PodSandboxStats> {
    let mut pods: BTreeMap<String, PodSandboxStats> = BTreeMap::new();
    for stats in all {
        let Some(attributes) = &stats.attributes else { continue };
        let label = |key: &str| attributes.labels.get(key).cloned().unwrap_or_default();
        let metadata = PodSandboxMetadata {
            name: label(POD_NAME),
            uid: label(POD_UID),
            namespace: label(POD_NAMESPACE),
            ..Default::default()
        };
        let pod = pods.entry(metadata.uid.clone()).or_insert_with(|| PodSandboxStats {
            attributes: Some(PodSandboxAttributes { metadata: Some(metadata), ..Default::default() }),
            linux: Some(LinuxPodSandboxStats::default()),
            ..Default::default()
        });
        pod.linux.get_or_insert_default().containers.push(stats);
    }
    for pod in pods.values_mut() {
        pod.linux.get_or_insert_default().sum_up();
    }
    pods.into_values().collect()
}

trait SumUp {
    fn sum_up(&mut self);
}

impl SumUp for LinuxPodSandboxStats {
    fn sum_up(&mut self) {
        let sum = |of: &dyn Fn(&ContainerStats) -> Option<u64>| {
            let value = self.containers.iter().filter_map(of).sum();
            Some(cri::UInt64Value { value })
        };
        let cpu = cri::CpuUsage {
            timestamp: self
                .containers
                .iter()
                .filter_map(|stats| Some(stats.cpu.as_ref()?.timestamp))
                .max()
                .unwrap_or(0),
            usage_core_nano_seconds: sum(&|stats| value(&stats.cpu.as_ref()?.usage_core_nano_seconds)),
            ..Default::default()
        };
        let memory = cri::MemoryUsage {
            timestamp: cpu.timestamp,
            working_set_bytes: sum(&|stats| value(&stats.memory.as_ref()?.working_set_bytes)),
            ..Default::default()
        };
        (self.cpu, self.memory) = (Some(cpu), Some(memory));
    }
}

fn usage(stats: PodSandboxStats, known: &[Tree]) -> Option<PodUsage> {
    let metadata = stats.attributes.as_ref()?.metadata.clone()?;
    let pod = known.iter().find(|pod| crate::pod::uid(pod) == metadata.uid);
    let time = |text: &str| time::parse(text).ok();
    let lists = ["status.containerStatuses", "status.initContainerStatuses", "status.ephemeralContainerStatuses"];
    let statuses = pod.into_iter().flat_map(|pod| lists.iter().flat_map(|list| pod.list(list)));
    let started = |status: &Tree| Some((status.str("name").to_string(), time(status.str("state.running.startedAt"))?));
    Some(PodUsage {
        namespace: metadata.namespace,
        name: metadata.name,
        uid: metadata.uid,
        started: pod.and_then(|pod| time(pod.str("status.startTime"))),
        containers_started: statuses.filter_map(started).collect(),
        stats,
    })
}

/// The file system that images are on, and how much of it is theirs.
async fn images(host: &dyn Host) -> Option<Filesystem> {
    let answer = host.images().image_fs_info(ImageFsInfoRequest {}).await.ok()?;
    let usage = answer.image_filesystems.into_iter().next()?;
    let of = machine::filesystem(Path::new(&usage.fs_id.unwrap_or_default().mountpoint)).unwrap_or_default();
    let used = value(&usage.used_bytes).unwrap_or(0);
    let inodes_used = value(&usage.inodes_used).unwrap_or(0);
    Some(Filesystem { used, inodes_used, ..of })
}
