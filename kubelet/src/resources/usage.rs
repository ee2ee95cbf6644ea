//! The usage of pods: statistics of the runtime, and measurements of their files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::Tree;
use cri::{
    ContainerStats, DynRuntimeService, LinuxPodSandboxStats, ListContainerStatsRequest, ListPodSandboxStatsRequest,
    PodSandboxAttributes, PodSandboxMetadata, PodSandboxStats, Status,
};

use crate::config::Config;
use crate::model::pod;
use crate::model::state::keys;
use crate::resources::disk::{DiskUsage, Disks, Location, PathUsage};
use crate::volumes::Volumes;

/// The files of a pod, besides writable layers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    pub(crate) volumes: Vec<Volume>,
    /// By the names of containers.
    pub(crate) logs: Vec<(String, PathUsage)>,
    /// Of the kubelet itself, for the pod.
    pub(crate) own: DiskUsage,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume {
    pub name: String,
    pub(crate) found: PathUsage,
    /// The claim of the volume.
    pub(crate) claim: Option<String>,
}

/// The directories of pods, and their measurements.
#[derive(Clone)]
pub(crate) struct PodFiles {
    pub(crate) config: Arc<Config>,
    pub(crate) disks: Arc<Disks>,
    pub(crate) volumes: Arc<Volumes>,
}

/// Measures the files of pods, by UID; those not measured in time are missing.
pub(crate) async fn files(of: &PodFiles, pods: impl IntoIterator<Item = &Tree>) -> BTreeMap<String, Files> {
    let of_pod = |pod: &Tree| (pod::uid(pod).to_string(), parts(of, pod));
    let wanted: BTreeMap<String, Vec<(PodFileKind, Location)>> = pods.into_iter().map(of_pod).collect();
    let places: Vec<Location> = wanted.values().flatten().map(|(_, place)| place.clone()).collect();
    let found = of.disks.of(&places).await;
    wanted.into_iter().map(|(uid, parts)| (uid, sum_files(parts, &found))).collect()
}

enum PodFileKind {
    Volume { name: String, claim: Option<String> },
    Log(String),
    Own,
}

/// The parts of a pod to measure, and their paths.
fn parts(of: &PodFiles, pod: &Tree) -> Vec<(PodFileKind, Location)> {
    let dir = of.config.pod_dir(pod::uid(pod));
    let logs = pod::log_dir(&of.config.pod_logs_dir, pod);
    let mut parts = Vec::from(own_files(&dir).map(|path| (PodFileKind::Own, Location::Tree(path))));
    for spec in pod::containers(pod) {
        let name = spec.str("name");
        parts.push((PodFileKind::Log(name.to_string()), Location::Tree(logs.join(name))));
    }
    for (name, path) in of.volumes.places(pod::uid(pod)) {
        let Some(volume) = pod::volume(pod, &name) else { continue };
        // Paths outside of the pod's directory belong to the machine.
        if path.starts_with(&dir) {
            parts.push((PodFileKind::Volume { claim: claim(pod, volume), name }, location_of(volume, path)));
        }
    }
    parts
}

/// Files of the kubelet that containers can write to: their hosts file and termination messages. If these files did not
/// count, a container could fill the disk unnoticed.
fn own_files(pod_dir: &Path) -> [PathBuf; 2] {
    ["etc-hosts", pod::MESSAGES].map(|name| pod_dir.join(name))
}

/// Files that the kubelet writes are counted one by one.
fn location_of(volume: &Tree, path: PathBuf) -> Location {
    const OWN: [&str; 5] = ["emptyDir", "configMap", "secret", "downwardAPI", "projected"];
    if OWN.iter().any(|kind| volume.has(kind)) { Location::Tree(path) } else { Location::Mount(path) }
}

fn claim(pod: &Tree, volume: &Tree) -> Option<String> {
    if volume.has("ephemeral") {
        return Some(format!("{}-{}", pod::name(pod), volume.str("name")));
    }
    volume.get("persistentVolumeClaim").map(|claim| claim.str("claimName").to_string())
}

fn sum_files(parts: Vec<(PodFileKind, Location)>, found: &BTreeMap<Location, PathUsage>) -> Files {
    let mut files = Files::default();
    for (part, place) in parts {
        let Some(found) = found.get(&place).copied() else { continue };
        match part {
            PodFileKind::Volume { name, claim } => files.volumes.push(Volume { name, found, claim }),
            PodFileKind::Log(name) => files.logs.push((name, found)),
            PodFileKind::Own => files.own += found.used,
        }
    }
    files
}

/// The runtime's statistics of all pods.
pub(crate) async fn sandboxes(runtime: &dyn DynRuntimeService) -> Result<Vec<PodSandboxStats>, Status> {
    match runtime.list_pod_sandbox_stats(ListPodSandboxStatsRequest { filter: None }).await {
        Ok(answer) => Ok(answer.stats),
        // Older runtimes report only containers, or fail for all pods if one is just ending.
        Err(_) => {
            let answer = runtime.list_container_stats(ListContainerStatsRequest { filter: None }).await?;
            Ok(by_pods(answer.stats))
        }
    }
}

/// The runtime's statistics of one pod's containers.
pub(crate) async fn containers(runtime: &dyn DynRuntimeService, uid: &str) -> Result<Vec<ContainerStats>, Status> {
    let label_selector = BTreeMap::from([(keys::POD_UID.to_string(), uid.to_string())]);
    let filter = Some(cri::ContainerStatsFilter { label_selector, ..Default::default() });
    Ok(runtime.list_container_stats(ListContainerStatsRequest { filter }).await?.stats)
}

/// Groups containers by their pods, whose usage is the sum.
fn by_pods(all: Vec<ContainerStats>) -> Vec<PodSandboxStats> {
    let mut pods: BTreeMap<String, PodSandboxStats> = BTreeMap::new();
    for stats in all {
        let Some(attributes) = &stats.attributes else { continue };
        let label = |key: &str| attributes.labels.get(key).cloned().unwrap_or_default();
        let metadata = PodSandboxMetadata {
            name: label(keys::POD_NAME),
            uid: label(keys::POD_UID),
            namespace: label(keys::POD_NAMESPACE),
            ..Default::default()
        };
        let pod = pods.entry(metadata.uid.clone()).or_insert_with(|| PodSandboxStats {
            attributes: Some(PodSandboxAttributes { metadata: Some(metadata), ..Default::default() }),
            linux: Some(LinuxPodSandboxStats::default()),
            ..Default::default()
        });
        pod.linux.get_or_insert_default().containers.push(stats);
    }
    pods.values_mut().for_each(|pod| sum_usage(pod.linux.get_or_insert_default()));
    pods.into_values().collect()
}

fn sum_usage(pod: &mut LinuxPodSandboxStats) {
    let sum = |of: &dyn Fn(&ContainerStats) -> Option<u64>| {
        let value = pod.containers.iter().filter_map(of).sum();
        Some(cri::UInt64Value { value })
    };
    let times = pod.containers.iter().filter_map(|stats| Some(stats.cpu.as_ref()?.timestamp));
    let timestamp = times.max().unwrap_or(0);
    let cpu = cri::CpuUsage {
        timestamp,
        usage_core_nano_seconds: sum(&|stats| value(&stats.cpu.as_ref()?.usage_core_nano_seconds)),
        ..Default::default()
    };
    let memory = cri::MemoryUsage {
        timestamp,
        working_set_bytes: sum(&|stats| value(&stats.memory.as_ref()?.working_set_bytes)),
        ..Default::default()
    };
    (pod.cpu, pod.memory) = (Some(cpu), Some(memory));
}

/// A number that a runtime may not know.
pub(crate) fn value(number: &Option<cri::UInt64Value>) -> Option<u64> {
    number.as_ref().map(|number| number.value)
}

/// The name of a container in its pod.
pub(crate) fn container_name(stats: &ContainerStats) -> &str {
    let metadata = stats.attributes.as_ref().and_then(|attributes| attributes.metadata.as_ref());
    metadata.map_or("", |metadata| &metadata.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pod::message_file;

    #[test]
    fn counts_files_of_the_kubelet_that_containers_write() {
        let pod_dir = Path::new("/k/pods/u");
        let counted = own_files(pod_dir);
        assert!(counted.iter().any(|path| message_file(pod_dir, "c", 3).starts_with(path)));
        assert!(counted.contains(&pod_dir.join("etc-hosts")));
        let place = |path: &PathBuf| Location::Tree(path.clone());
        let found =
            |bytes: u64| PathUsage { used: DiskUsage { bytes, ..DiskUsage::default() }, ..PathUsage::default() };
        let measured = counted.iter().map(place).zip([found(5), found(7)]).collect();
        let files = sum_files(counted.iter().map(|path| (PodFileKind::Own, place(path))).collect(), &measured);
        assert_eq!(files.own.bytes, 12);
    }
}
