//! `/stats/summary`.

use api::time::{Timestamp, format_seconds};
use api::{Tree, list, tree};
use cri::{
    ContainerStats, CpuUsage, FilesystemUsage, IoUsage, MemoryUsage, NetworkInterfaceUsage, NetworkUsage, PsiData,
    PsiStats, SwapUsage,
};

use super::{Filesystem, PodUsage, Usage, container_name, value};
use crate::resources::disk::{DiskUsage, PathUsage};
use crate::resources::machine::{Interface, Machine};
use crate::resources::usage::Volume;

/// `brief` is cpu and memory alone.
pub(crate) fn page(usage: &Usage, brief: bool) -> Tree {
    let pods: Vec<Tree> = usage.pods.iter().map(|pod| self::pod(pod, usage, brief)).collect();
    tree! { "node" => node(usage, brief), "pods" => pods }
}

fn time(at: Timestamp) -> Tree {
    Tree::from(format_seconds(at.seconds).as_str())
}

/// A time of the runtime in nanoseconds since the Unix epoch; without it, the time of the request.
fn moment(nanoseconds: i64, usage: &Usage) -> Tree {
    let known = nanoseconds > 0;
    time(if known { Timestamp { seconds: nanoseconds / 1_000_000_000, nanos: 0 } } else { usage.at })
}

/// An object with the known numbers.
fn known(at: Tree, numbers: &[(&str, Option<u64>)]) -> Tree {
    let mut page = tree! { "time" => at };
    for (name, number) in numbers {
        if let Some(number) = number {
            page.set(name, i64::try_from(*number).unwrap_or(i64::MAX));
        }
    }
    page
}

fn node(usage: &Usage, brief: bool) -> Tree {
    let Machine { memory, cpu_nanoseconds, .. } = &usage.machine;
    let at = || time(usage.at);
    let mut node = tree! {
        "nodeName" => usage.node.as_str(),
        "startTime" => format_seconds(usage.machine.started_seconds).as_str(),
        "cpu" => known(at(), &[
            ("usageNanoCores", usage.machine.nano_cores),
            ("usageCoreNanoSeconds", Some(*cpu_nanoseconds)),
        ]),
        "memory" => known(at(), &[
            ("availableBytes", Some(memory.capacity.saturating_sub(memory.working_set))),
            ("usageBytes", Some(memory.usage)),
            ("workingSetBytes", Some(memory.working_set)),
            ("rssBytes", Some(memory.rss)),
            ("pageFaults", Some(memory.page_faults)),
            ("majorPageFaults", Some(memory.major_page_faults)),
        ]),
    };
    let pressure = &usage.machine.pressure;
    set_psi(node.child("cpu"), pressure.cpu.as_ref());
    set_psi(node.child("memory"), pressure.memory.as_ref());
    if brief {
        return node;
    }
    if let Some(io) = &pressure.io {
        node.set("io", tree! { "time" => at(), "psi" => psi(io) });
    }
    node.set("fs", filesystem(at(), &usage.machine.filesystem));
    node.set("network", node_network(usage));
    node.set(
        "swap",
        known(
            at(),
            &[("swapAvailableBytes", Some(memory.swap_available)), ("swapUsageBytes", Some(memory.swap_usage))],
        ),
    );
    if let Some(images) = &usage.images {
        let images = filesystem(at(), images);
        node.set("runtime", tree! { "imageFs" => images.clone(), "containerFs" => images });
    }
    let processes = [("maxpid", Some(usage.machine.max_pid)), ("curproc", Some(usage.machine.processes))];
    node.set("rlimit", known(at(), &processes));
    node
}

fn filesystem(at: Tree, of: &Filesystem) -> Tree {
    known(
        at,
        &[
            ("availableBytes", Some(of.available)),
            ("capacityBytes", Some(of.capacity)),
            ("usedBytes", Some(of.used)),
            ("inodesFree", Some(of.inodes_free)),
            ("inodes", Some(of.inodes)),
            ("inodesUsed", Some(of.inodes_used)),
        ],
    )
}

fn node_network(usage: &Usage) -> Tree {
    let interface = |of: &Interface| {
        tree! {
            "name" => of.name.as_str(),
            "rxBytes" => of.rx_bytes as i64,
            "rxErrors" => of.rx_errors as i64,
            "txBytes" => of.tx_bytes as i64,
            "txErrors" => of.tx_errors as i64,
        }
    };
    let all: Vec<Tree> = usage.machine.interfaces.iter().map(interface).collect();
    let mut network = all.first().cloned().unwrap_or_else(|| tree! {});
    network.set("time", time(usage.at));
    network.set("interfaces", all);
    network
}

fn pod(pod: &PodUsage, usage: &Usage, brief: bool) -> Tree {
    let containers: Vec<Tree> = pod.containers().iter().map(|stats| container(stats, pod, usage, brief)).collect();
    let mut page = tree! {
        "podRef" => tree! {
            "name" => pod.name.as_str(),
            "namespace" => pod.namespace.as_str(),
            "uid" => pod.uid.as_str(),
        },
        "containers" => containers,
    };
    if let Some(started) = pod.started {
        page.set("startTime", time(started));
    }
    let linux = pod.stats.linux.as_ref();
    let parts = [
        ("cpu", linux.and_then(|linux| linux.cpu.as_ref()).map(|of| cpu(of, usage))),
        ("memory", linux.and_then(|linux| linux.memory.as_ref()).map(|of| memory(of, usage))),
    ];
    set_all(&mut page, parts);
    if !brief {
        let process = linux.and_then(|linux| value(&linux.process.as_ref()?.process_count));
        let process = process.map(|count| tree! { "process_count" => count as i64 });
        let network = linux.and_then(|linux| linux.network.as_ref()).map(|of| network(of, usage));
        let io = linux.and_then(|linux| linux.io.as_ref()).and_then(|of| io(of, usage));
        set_all(
            &mut page,
            [("network", network), ("process_stats", process), ("io", io), ("swap", pod_swap(pod, usage))],
        );
        page.set("ephemeral-storage", ephemeral(pod, usage));
        let volumes: Vec<Tree> = pod.files.volumes.iter().map(|volume| self::volume(volume, pod, usage)).collect();
        if !volumes.is_empty() {
            page.set("volume", volumes);
        }
    }
    page
}

fn set_all<const N: usize>(page: &mut Tree, parts: [(&str, Option<Tree>); N]) {
    for (name, part) in parts {
        if let Some(part) = part {
            page.set(name, part);
        }
    }
}

fn container(stats: &ContainerStats, pod: &PodUsage, usage: &Usage, brief: bool) -> Tree {
    let name = container_name(stats);
    let mut page = tree! { "name" => name };
    if let Some(started) = pod.container_started(name) {
        page.set("startTime", time(started));
    }
    set_all(
        &mut page,
        [
            ("cpu", stats.cpu.as_ref().map(|of| cpu(of, usage))),
            ("memory", stats.memory.as_ref().map(|of| memory(of, usage))),
        ],
    );
    if !brief {
        set_all(
            &mut page,
            [
                ("rootfs", stats.writable_layer.as_ref().map(|of| written(of, usage))),
                ("logs", logs(name, pod, usage)),
                ("io", stats.io.as_ref().and_then(|of| io(of, usage))),
                ("swap", stats.swap.as_ref().map(|of| swap(of, usage))),
            ],
        );
    }
    page
}

fn cpu(of: &CpuUsage, usage: &Usage) -> Tree {
    let mut page = known(
        moment(of.timestamp, usage),
        &[
            ("usageNanoCores", value(&of.usage_nano_cores)),
            ("usageCoreNanoSeconds", value(&of.usage_core_nano_seconds)),
        ],
    );
    set_psi(&mut page, of.psi.as_ref());
    page
}

/// Pressure stall information.
fn psi(of: &PsiStats) -> Tree {
    let data = |of: Option<&PsiData>| {
        let of = of.cloned().unwrap_or_default();
        tree! {
            "total" => i64::try_from(of.total).unwrap_or(i64::MAX),
            "avg10" => Tree::Float(of.avg10),
            "avg60" => Tree::Float(of.avg60),
            "avg300" => Tree::Float(of.avg300),
        }
    };
    tree! { "full" => data(of.full.as_ref()), "some" => data(of.some.as_ref()) }
}

fn set_psi(page: &mut Tree, of: Option<&PsiStats>) {
    if let Some(of) = of {
        page.set("psi", psi(of));
    }
}

fn io(of: &IoUsage, usage: &Usage) -> Option<Tree> {
    Some(tree! { "time" => moment(of.timestamp, usage), "psi" => psi(of.psi.as_ref()?) })
}

fn memory(of: &MemoryUsage, usage: &Usage) -> Tree {
    let mut page = known(
        moment(of.timestamp, usage),
        &[
            ("availableBytes", value(&of.available_bytes)),
            ("usageBytes", value(&of.usage_bytes)),
            ("workingSetBytes", value(&of.working_set_bytes)),
            ("rssBytes", value(&of.rss_bytes)),
            ("pageFaults", value(&of.page_faults)),
            ("majorPageFaults", value(&of.major_page_faults)),
        ],
    );
    set_psi(&mut page, of.psi.as_ref());
    page
}

/// The swap usage of the pod's containers; None if it is not measured.
fn pod_swap(pod: &PodUsage, usage: &Usage) -> Option<Tree> {
    let counted = pod.containers().iter().filter_map(|stats| value(&stats.swap.as_ref()?.swap_usage_bytes));
    let sum = counted.reduce(|sum, bytes| sum + bytes)?;
    Some(known(time(usage.at), &[("swapUsageBytes", Some(sum))]))
}

fn swap(of: &SwapUsage, usage: &Usage) -> Tree {
    known(
        moment(of.timestamp, usage),
        &[("swapAvailableBytes", value(&of.swap_available_bytes)), ("swapUsageBytes", value(&of.swap_usage_bytes))],
    )
}

/// Writable layers of a container, on the image file system.
fn written(of: &FilesystemUsage, usage: &Usage) -> Tree {
    let images = usage.images.as_ref();
    known(
        moment(of.timestamp, usage),
        &[
            ("availableBytes", images.map(|images| images.available)),
            ("capacityBytes", images.map(|images| images.capacity)),
            ("usedBytes", value(&of.used_bytes)),
            ("inodesFree", images.map(|images| images.inodes_free)),
            ("inodes", images.map(|images| images.inodes)),
            ("inodesUsed", value(&of.inodes_used)),
        ],
    )
}

/// The part of a file system that is used.
fn part(at: Tree, found: &PathUsage) -> Tree {
    filesystem(at, &Filesystem { used: found.used.bytes, inodes_used: found.used.inodes, ..found.whole })
}

fn logs(container: &str, pod: &PodUsage, usage: &Usage) -> Option<Tree> {
    let (_, found) = pod.files.logs.iter().find(|(name, _)| name == container)?;
    Some(part(time(usage.at), found))
}

fn volume(volume: &Volume, pod: &PodUsage, usage: &Usage) -> Tree {
    let mut page = part(time(usage.at), &volume.found);
    page.set("name", volume.name.as_str());
    if let Some(claim) = &volume.claim {
        page.set("pvcRef", tree! { "name" => claim.as_str(), "namespace" => pod.namespace.as_str() });
    }
    page
}

/// All that the pod has on the node's disk and may have a limit for.
fn ephemeral(pod: &PodUsage, usage: &Usage) -> Tree {
    let mut sum = pod.files.own;
    for layer in pod.containers().iter().filter_map(|stats| stats.writable_layer.as_ref()) {
        let number = |of: &Option<cri::UInt64Value>| value(of).unwrap_or(0);
        sum += DiskUsage { bytes: number(&layer.used_bytes), inodes: number(&layer.inodes_used) };
    }
    pod.files.logs.iter().for_each(|(_, found)| sum += found.used);
    let counts = |volume: &&Volume| pod.ephemeral.contains(&volume.name);
    pod.files.volumes.iter().filter(counts).for_each(|volume| sum += volume.found.used);
    part(time(usage.at), &PathUsage { used: sum, whole: usage.machine.filesystem })
}

fn network(of: &NetworkUsage, usage: &Usage) -> Tree {
    let interface = |of: &NetworkInterfaceUsage| {
        let mut page = tree! { "name" => of.name.as_str() };
        let numbers = [
            ("rxBytes", &of.rx_bytes),
            ("rxErrors", &of.rx_errors),
            ("txBytes", &of.tx_bytes),
            ("txErrors", &of.tx_errors),
        ];
        for (name, number) in numbers {
            page.set(name, value(number).unwrap_or(0) as i64);
        }
        page
    };
    let mut page = of.default_interface.as_ref().map_or_else(|| tree! {}, interface);
    page.set("time", moment(of.timestamp, usage));
    let first = of.default_interface.iter().map(interface);
    let all: Vec<Tree> = first.chain(of.interfaces.iter().map(interface)).collect();
    page.set("interfaces", if all.is_empty() { list![] } else { Tree::List(all) });
    page
}
