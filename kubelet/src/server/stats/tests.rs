use api::json;
use cri::*;

use super::*;
use crate::resources::disk::{DiskUsage, PathUsage};
use crate::resources::usage::Volume;

fn number(value: u64) -> Option<UInt64Value> {
    Some(UInt64Value { value })
}

fn usage() -> Usage {
    let cpu =
        CpuUsage { timestamp: 5_000_000_000, usage_core_nano_seconds: number(2_500_000_000), ..Default::default() };
    let memory = MemoryUsage { timestamp: 5_000_000_000, working_set_bytes: number(4096), ..Default::default() };
    let attributes = ContainerAttributes {
        id: "abc".to_string(),
        metadata: Some(ContainerMetadata { name: "c".to_string(), ..Default::default() }),
        ..Default::default()
    };
    let container = ContainerStats {
        attributes: Some(attributes),
        cpu: Some(cpu.clone()),
        memory: Some(memory.clone()),
        writable_layer: Some(FilesystemUsage { used_bytes: number(10), inodes_used: number(2), ..Default::default() }),
        ..Default::default()
    };
    let eth0 = NetworkInterfaceUsage { name: "eth0".to_string(), rx_bytes: number(7), ..Default::default() };
    let network = NetworkUsage { default_interface: Some(eth0), ..Default::default() };
    let linux = LinuxPodSandboxStats {
        cpu: Some(cpu),
        memory: Some(memory),
        network: Some(network),
        containers: vec![container],
        ..Default::default()
    };
    let pod = PodUsage {
        namespace: "n".to_string(),
        name: "p\"".to_string(),
        uid: "u".to_string(),
        started: Some(Timestamp { seconds: 1, nanos: 0 }),
        stats: PodSandboxStats { linux: Some(linux), ..Default::default() },
        containers_started: vec![("c".to_string(), Timestamp { seconds: 2, nanos: 0 })],
        files: files(),
        ephemeral: vec!["v".to_string()],
    };
    let mut machine = Machine { cores: 2, cpu_nanoseconds: 3_000_000_000, ..Default::default() };
    machine.memory.capacity = 1000;
    machine.memory.working_set = 400;
    Usage {
        node: "node".to_string(),
        at: Timestamp { seconds: 6, nanos: 500_000_000 },
        machine,
        pods: vec![pod],
        ..Default::default()
    }
}

fn files() -> Files {
    let found = |bytes| PathUsage {
        used: DiskUsage { bytes, inodes: 1 },
        whole: Filesystem { capacity: 9, ..Default::default() },
    };
    let volume = |name: &str, bytes, claim: Option<&str>| Volume {
        name: name.to_string(),
        found: found(bytes),
        claim: claim.map(str::to_string),
    };
    Files {
        volumes: vec![volume("v", 100, None), volume("data", 1000, Some("claim"))],
        logs: vec![("c".to_string(), found(20))],
        own: DiskUsage { bytes: 4, inodes: 1 },
    }
}

#[test]
fn summary_has_disk_usage() {
    let page = summary(&usage(), false);
    let pod = &page.list("pods")[0];
    let [volume, data] = pod.list("volume") else { panic!("two volumes: {pod:?}") };
    assert_eq!((volume.str("name"), volume.int("usedBytes"), volume.int("capacityBytes")), ("v", Some(100), Some(9)));
    assert_eq!((data.str("pvcRef.name"), data.str("pvcRef.namespace")), ("claim", "n"));
    assert_eq!(pod.list("containers")[0].int("logs.usedBytes"), Some(20));
    let storage = pod.at("ephemeral-storage");
    assert_eq!((storage.int("usedBytes"), storage.int("inodesUsed")), (Some(10 + 20 + 100 + 4), Some(2 + 1 + 1 + 1)));
}

#[test]
fn summary_has_pressure() {
    let mut usage = usage();
    assert!(!summary(&usage, false).at("node.cpu").has("psi"), "a kernel that does not count it");
    usage.machine.nano_cores = Some(7);
    usage.machine.pressure.cpu =
        Some(PsiStats { some: Some(PsiData { total: 5, avg10: 1.5, ..Default::default() }), full: None });
    let page = summary(&usage, false);
    assert_eq!(page.int("node.cpu.usageNanoCores"), Some(7));
    let psi = page.at("node.cpu.psi");
    assert_eq!((psi.int("some.total"), psi.int("full.total")), (Some(5), Some(0)));
    assert_eq!(psi.at("some.avg10"), &api::Tree::Float(1.5));
}

#[test]
fn summary_has_known_values_only() {
    let page = summary(&usage(), false);
    assert_eq!(page.str("node.nodeName"), "node");
    assert_eq!(page.int("node.memory.availableBytes"), Some(600));
    let pod = &page.list("pods")[0];
    assert_eq!((pod.str("podRef.namespace"), pod.str("startTime")), ("n", "1970-01-01T00:00:01Z"));
    assert_eq!(pod.int("network.rxBytes"), Some(7));
    let container = &pod.list("containers")[0];
    assert_eq!(container.int("cpu.usageCoreNanoSeconds"), Some(2_500_000_000));
    assert_eq!(container.str("cpu.time"), "1970-01-01T00:00:05Z");
    assert!(!container.at("cpu").has("usageNanoCores"), "a runtime that does not know it");
    let brief = String::from_utf8(json::encode(&summary(&usage(), true), None)).expect("text");
    assert!(brief.contains("workingSetBytes") && !brief.contains("rootfs") && !brief.contains("\"fs\""), "{brief}");
}

#[test]
fn prints_metrics_with_names_and_times() {
    let page = resource(&usage());
    for line in [
        "# TYPE container_cpu_usage_seconds_total counter",
        "container_cpu_usage_seconds_total{container=\"c\",namespace=\"n\",pod=\"p\\\"\"} 2.5 5000",
        "container_start_time_seconds{container=\"c\",namespace=\"n\",pod=\"p\\\"\"} 2",
        "pod_memory_working_set_bytes{namespace=\"n\",pod=\"p\\\"\"} 4096 5000",
        "node_cpu_usage_seconds_total 3 6500",
        "resource_scrape_error 0",
    ] {
        assert!(page.lines().any(|other| other == line), "{line} is not in\n{page}");
    }
    assert!(!page.contains("container_swap_usage_bytes"), "nothing is known of it");
    let page = cadvisor(&usage());
    for part in [
        "container_cpu_usage_seconds_total{container=\"c\",cpu=\"total\",id=\"/kubepods/podu/abc\"",
        "container_network_receive_bytes_total{interface=\"eth0\",namespace=\"n\"",
        "machine_cpu_cores 2",
    ] {
        assert!(page.contains(part), "{part} is not in\n{page}");
    }
}
