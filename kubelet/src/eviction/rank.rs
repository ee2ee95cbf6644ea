//! The order of eviction. Pure: from requests, priorities and usage of pods.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use api::Tree;
use podmodel::requests;

use super::signal::{Resource, Signal};
use crate::model::pod;
use crate::resources::disk::DiskUsage;

/// The usage of a pod, as far as it was measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) memory: u64,
    pub(crate) processes: u64,
    pub(crate) containers: Vec<ContainerUsage>,
    /// By the names of the volumes.
    pub(crate) volumes: Vec<(String, DiskUsage)>,
    /// Usage by files that the kubelet keeps for the pod.
    pub(crate) files: DiskUsage,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ContainerUsage {
    pub(crate) name: String,
    pub(crate) memory: Option<u64>,
    /// Its writable layer.
    pub(crate) root: Option<DiskUsage>,
    pub(crate) logs: Option<DiskUsage>,
}

pub(crate) struct Candidate {
    pub(crate) pod: Arc<Tree>,
    /// None if it is unknown: such a pod comes first.
    pub(crate) usage: Option<Usage>,
}

/// On how many disks the node's files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One file system for all.
    One,
    /// Images and writable layers have their own file system.
    Images,
    /// Images alone have their own.
    Split,
}

/// Which files of a pod are on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FsStatsSet {
    root: bool,
    logs: bool,
    volumes: bool,
}

impl Layout {
    fn measured(self, signal: Signal) -> FsStatsSet {
        let of_images = matches!(signal, Signal::ImageFs | Signal::ImageFsInodes);
        let of_node = matches!(signal, Signal::NodeFs | Signal::NodeFsInodes);
        match self {
            Layout::One => FsStatsSet { root: true, logs: true, volumes: true },
            Layout::Images => FsStatsSet { root: !of_node, logs: of_node, volumes: of_node },
            Layout::Split => FsStatsSet { root: !of_images, logs: !of_images, volumes: !of_images },
        }
    }

    /// Whether removing dead containers and unused images helps, in that order.
    pub(crate) fn reclaims(self, signal: Signal) -> (bool, bool) {
        if !matches!(signal.resource(), Resource::Storage | Resource::Inodes) {
            return (false, false);
        }
        let of_images = matches!(signal, Signal::ImageFs | Signal::ImageFsInodes);
        let of_node = matches!(signal, Signal::NodeFs | Signal::NodeFsInodes);
        match self {
            Layout::One => (true, true),
            Layout::Images => (!of_node, !of_node),
            Layout::Split => (!of_images, of_images),
        }
    }
}

/// Sorts candidates, the first to be evicted in front.
pub(crate) fn rank(candidates: &mut [Candidate], signal: Signal, layout: Layout) {
    match signal.resource() {
        Resource::Memory => candidates.sort_by_cached_key(|one| {
            let requested = requests(&one.pod).memory;
            key(one, requested, requested, |usage| number(usage.memory))
        }),
        Resource::Storage => candidates.sort_by_cached_key(|one| {
            let requested = requests(&one.pod).ephemeral_storage;
            key(one, requested, requested, |usage| number(disk(usage, &one.pod, layout.measured(signal)).bytes))
        }),
        // There are no requests for inodes; upstream subtracts the request for bytes all the same.
        Resource::Inodes => candidates.sort_by_cached_key(|one| {
            let requested = requests(&one.pod).ephemeral_storage;
            key(one, 0, requested, |usage| number(disk(usage, &one.pod, layout.measured(signal)).inodes))
        }),
        Resource::Pids => candidates.sort_by(by_processes),
    }
}

type Key = (bool, bool, i64, Reverse<i64>);

/// Pods with unknown usage, pods above their request, pods of lower priority, pods that exceed their request most.
fn key(one: &Candidate, requested: i64, taken_off: i64, used: impl Fn(&Usage) -> i64) -> Key {
    let Some(usage) = &one.usage else { return (false, false, priority(&one.pod), Reverse(0)) };
    let used = used(usage);
    (true, used <= requested, priority(&one.pod), Reverse(used.saturating_sub(taken_off)))
}

fn by_processes(a: &Candidate, b: &Candidate) -> Ordering {
    let known = |one: &Candidate| (one.usage.is_some(), Reverse(one.usage.as_ref().map_or(0, |usage| usage.processes)));
    priority(&a.pod).cmp(&priority(&b.pod)).then_with(|| known(a).cmp(&known(b)))
}

fn priority(pod: &Tree) -> i64 {
    pod.int("spec.priority").unwrap_or(0)
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn disk(usage: &Usage, pod: &Tree, measured: FsStatsSet) -> DiskUsage {
    let mut sum = DiskUsage::default();
    for container in &usage.containers {
        sum += container.root.filter(|_| measured.root).unwrap_or_default();
        sum += container.logs.filter(|_| measured.logs).unwrap_or_default();
    }
    let local = |name: &str| pod::volume(pod, name).is_some_and(is_local);
    for (_, used) in usage.volumes.iter().filter(|(name, _)| measured.volumes && local(name)) {
        sum += *used;
    }
    sum
}

fn is_local(volume: &Tree) -> bool {
    volume.has("hostPath") || pod::is_ephemeral(volume)
}

#[cfg(test)]
mod tests {
    use api::{json, tree};

    use super::*;

    fn candidate(name: &str, priority: i64, memory: &str, usage: Option<Usage>) -> Candidate {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"priority":{priority},"volumes":[{{"name":"v","emptyDir":{{}}}},
            {{"name":"m","emptyDir":{{"medium":"Memory"}}}}],
            "containers":[{{"name":"c","resources":{{"requests":{{"memory":"{memory}","ephemeral-storage":"{memory}"}}}}}}]}}}}"#
        );
        Candidate { pod: Arc::new(json::decode(text.as_bytes()).expect("JSON")), usage }
    }

    fn check(mut candidates: Vec<Candidate>, signal: Signal, layout: Layout, want: &[&str]) {
        rank(&mut candidates, signal, layout);
        let got: Vec<&str> = candidates.iter().map(|one| pod::name(&one.pod)).collect();
        assert_eq!(got, want, "{}", signal.name());
    }

    #[test]
    fn ranks_by_memory_above_request_then_priority_then_amount() {
        let uses = |memory| Some(Usage { memory, ..Usage::default() });
        let all = vec![
            candidate("within", 0, "100", uses(100)),
            candidate("little", 0, "100", uses(101)),
            candidate("much", 0, "100", uses(900)),
            candidate("matters", 5, "0", uses(5000)),
            candidate("unknown", 9, "0", None),
            candidate("half", 0, "1000", uses(500)),
        ];
        let want = ["unknown", "much", "little", "matters", "within", "half"];
        check(all, Signal::Memory, Layout::One, &want);
    }

    #[test]
    fn ranks_by_usage_of_the_full_disk() {
        let used = |bytes| DiskUsage { bytes, inodes: bytes / 10 };
        let uses = |root, logs, volume, in_memory| {
            let (root, logs) = (Some(used(root)), Some(used(logs)));
            let containers = vec![ContainerUsage { name: "c".to_string(), root, logs, memory: None }];
            let volumes = vec![("v".to_string(), used(volume)), ("m".to_string(), used(in_memory))];
            Some(Usage { containers, volumes, ..Usage::default() })
        };
        let all = || {
            vec![
                candidate("root", 0, "0", uses(1000, 0, 0, 0)),
                candidate("logs", 0, "0", uses(0, 400, 0, 0)),
                candidate("volume", 0, "0", uses(0, 0, 700, 0)),
                candidate("memory", 0, "0", uses(10, 0, 0, 9000)),
            ]
        };
        check(all(), Signal::NodeFs, Layout::One, &["root", "volume", "logs", "memory"]);
        check(all(), Signal::NodeFs, Layout::Images, &["volume", "logs", "root", "memory"]);
        check(all(), Signal::ImageFs, Layout::Images, &["root", "memory", "logs", "volume"]);
        check(all(), Signal::ContainerFsInodes, Layout::Split, &["root", "volume", "logs", "memory"]);
    }

    #[test]
    fn ranks_by_priority_then_processes() {
        let uses = |processes| Some(Usage { processes, ..Usage::default() });
        let all = vec![
            candidate("few", 0, "0", uses(3)),
            candidate("many", 0, "0", uses(300)),
            candidate("matters", 1, "0", uses(3000)),
            candidate("unknown", 0, "0", None),
        ];
        check(all, Signal::Pid, Layout::One, &["unknown", "many", "few", "matters"]);
    }

    #[test]
    fn reclaims_depend_on_the_disk_layout() {
        let cases = [
            (Layout::One, Signal::NodeFs, (true, true)),
            (Layout::Images, Signal::NodeFsInodes, (false, false)),
            (Layout::Images, Signal::ContainerFs, (true, true)),
            (Layout::Split, Signal::ImageFs, (false, true)),
            (Layout::Split, Signal::NodeFs, (true, false)),
            (Layout::One, Signal::Memory, (false, false)),
            (Layout::One, Signal::Pid, (false, false)),
        ];
        for (layout, signal, want) in cases {
            assert_eq!(layout.reclaims(signal), want, "{layout:?} {signal:?}");
        }
        assert!(is_local(&tree! { "hostPath" => tree! {} }));
    }
}
