//! Usage and metrics of containers, pods and file systems.

use super::*;

messages! {
    PodSandboxStatsRequest { pod_sandbox_id: string = 1 }
    PodSandboxStatsResponse { stats: message(PodSandboxStats) = 1 }
    PodSandboxStatsFilter { id: string = 1, label_selector: map(string, string) = 2 }
    ListPodSandboxStatsRequest { filter: message(PodSandboxStatsFilter) = 1 }
    ListPodSandboxStatsResponse { stats: repeated message(PodSandboxStats) = 1 }
    StreamPodSandboxStatsRequest { filter: message(PodSandboxStatsFilter) = 1 }
    StreamPodSandboxStatsResponse { pod_sandbox_stats: repeated message(PodSandboxStats) = 1 }
    PodSandboxStats {
        attributes: message(PodSandboxAttributes) = 1,
        linux: message(LinuxPodSandboxStats) = 2,
        windows: message(WindowsPodSandboxStats) = 3,
    }
    LinuxPodSandboxStats {
        cpu: message(CpuUsage) = 1,
        memory: message(MemoryUsage) = 2,
        network: message(NetworkUsage) = 3,
        process: message(ProcessUsage) = 4,
        containers: repeated message(ContainerStats) = 5,
        io: message(IoUsage) = 6,
    }
    NetworkUsage {
        timestamp: int64 = 1,
        default_interface: message(NetworkInterfaceUsage) = 2,
        interfaces: repeated message(NetworkInterfaceUsage) = 3,
    }
    NetworkInterfaceUsage {
        name: string = 1,
        rx_bytes: message(UInt64Value) = 2,
        rx_errors: message(UInt64Value) = 3,
        tx_bytes: message(UInt64Value) = 4,
        tx_errors: message(UInt64Value) = 5,
    }
    ProcessUsage { timestamp: int64 = 1, process_count: message(UInt64Value) = 2 }
    FilesystemUsage {
        timestamp: int64 = 1,
        fs_id: message(FilesystemIdentifier) = 2,
        used_bytes: message(UInt64Value) = 3,
        inodes_used: message(UInt64Value) = 4,
    }
    ContainerStatsRequest { container_id: string = 1 }
    ContainerStatsResponse { stats: message(ContainerStats) = 1 }
    ListContainerStatsRequest { filter: message(ContainerStatsFilter) = 1 }
    ContainerStatsFilter { id: string = 1, pod_sandbox_id: string = 2, label_selector: map(string, string) = 3 }
    ListContainerStatsResponse { stats: repeated message(ContainerStats) = 1 }
    StreamContainerStatsRequest { filter: message(ContainerStatsFilter) = 1 }
    StreamContainerStatsResponse { container_stats: repeated message(ContainerStats) = 1 }
    ContainerStats {
        attributes: message(ContainerAttributes) = 1,
        cpu: message(CpuUsage) = 2,
        memory: message(MemoryUsage) = 3,
        writable_layer: message(FilesystemUsage) = 4,
        swap: message(SwapUsage) = 5,
        io: message(IoUsage) = 6,
    }
    PsiStats { full: message(PsiData) = 1, some: message(PsiData) = 2 }
    PsiData {
        total: uint64 = 1,
        avg10: double = 2,
        avg60: double = 3,
        avg300: double = 4,
    }
    CpuUsage {
        timestamp: int64 = 1,
        usage_core_nano_seconds: message(UInt64Value) = 2,
        usage_nano_cores: message(UInt64Value) = 3,
        psi: message(PsiStats) = 4,
    }
    MemoryUsage {
        timestamp: int64 = 1,
        working_set_bytes: message(UInt64Value) = 2,
        available_bytes: message(UInt64Value) = 3,
        usage_bytes: message(UInt64Value) = 4,
        rss_bytes: message(UInt64Value) = 5,
        page_faults: message(UInt64Value) = 6,
        major_page_faults: message(UInt64Value) = 7,
        psi: message(PsiStats) = 8,
    }
    IoUsage { timestamp: int64 = 1, psi: message(PsiStats) = 2 }
    SwapUsage {
        timestamp: int64 = 1,
        swap_available_bytes: message(UInt64Value) = 2,
        swap_usage_bytes: message(UInt64Value) = 3,
    }
    ListMetricDescriptorsRequest {}
    ListMetricDescriptorsResponse { descriptors: repeated message(MetricDescriptor) = 1 }
    MetricDescriptor { name: string = 1, help: string = 2, label_keys: repeated string = 3 }
    ListPodSandboxMetricsRequest {}
    ListPodSandboxMetricsResponse { pod_metrics: repeated message(PodSandboxMetrics) = 1 }
    StreamPodSandboxMetricsRequest {}
    StreamPodSandboxMetricsResponse { pod_sandbox_metrics: repeated message(PodSandboxMetrics) = 1 }
    PodSandboxMetrics {
        pod_sandbox_id: string = 1,
        metrics: repeated message(Metric) = 2,
        container_metrics: repeated message(ContainerMetrics) = 3,
    }
    ContainerMetrics { container_id: string = 1, metrics: repeated message(Metric) = 2 }
    Metric {
        name: string = 1,
        timestamp: int64 = 2,
        metric_type: enumeration(MetricType) = 3,
        label_values: repeated string = 4,
        value: message(UInt64Value) = 5,
    }
}
