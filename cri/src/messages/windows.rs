//! Messages about Windows containers. They are decoded so that calls that use them can be rejected.

use super::*;

messages! {
    WindowsPodSandboxStats {
        cpu: message(WindowsCpuUsage) = 1,
        memory: message(WindowsMemoryUsage) = 2,
        network: message(WindowsNetworkUsage) = 3,
        process: message(WindowsProcessUsage) = 4,
        containers: repeated message(WindowsContainerStats) = 5,
    }
    WindowsNetworkUsage {
        timestamp: int64 = 1,
        default_interface: message(WindowsNetworkInterfaceUsage) = 2,
        interfaces: repeated message(WindowsNetworkInterfaceUsage) = 3,
    }
    WindowsNetworkInterfaceUsage {
        name: string = 1,
        rx_bytes: message(UInt64Value) = 2,
        rx_packets_dropped: message(UInt64Value) = 3,
        tx_bytes: message(UInt64Value) = 4,
        tx_packets_dropped: message(UInt64Value) = 5,
    }
    WindowsProcessUsage { timestamp: int64 = 1, process_count: message(UInt64Value) = 2 }
    WindowsNamespaceOption { network: enumeration(NamespaceMode) = 1 }
    WindowsSandboxSecurityContext {
        run_as_username: string = 1,
        credential_spec: string = 2,
        host_process: bool = 3,
        namespace_options: message(WindowsNamespaceOption) = 4,
    }
    WindowsPodSandboxConfig { security_context: message(WindowsSandboxSecurityContext) = 1 }
    WindowsContainerSecurityContext {
        run_as_username: string = 1,
        credential_spec: string = 2,
        host_process: bool = 3,
    }
    WindowsContainerConfig {
        resources: message(WindowsContainerResources) = 1,
        security_context: message(WindowsContainerSecurityContext) = 2,
    }
    WindowsContainerResources {
        cpu_shares: int64 = 1,
        cpu_count: int64 = 2,
        cpu_maximum: int64 = 3,
        memory_limit_in_bytes: int64 = 4,
        rootfs_size_in_bytes: int64 = 5,
        affinity_cpus: repeated message(WindowsCpuGroupAffinity) = 6,
    }
    WindowsCpuGroupAffinity { cpu_mask: uint64 = 1, cpu_group: uint32 = 2 }
    WindowsFilesystemUsage {
        timestamp: int64 = 1,
        fs_id: message(FilesystemIdentifier) = 2,
        used_bytes: message(UInt64Value) = 3,
    }
    WindowsContainerStats {
        attributes: message(ContainerAttributes) = 1,
        cpu: message(WindowsCpuUsage) = 2,
        memory: message(WindowsMemoryUsage) = 3,
        writable_layer: message(WindowsFilesystemUsage) = 4,
    }
    WindowsCpuUsage {
        timestamp: int64 = 1,
        usage_core_nano_seconds: message(UInt64Value) = 2,
        usage_nano_cores: message(UInt64Value) = 3,
    }
    WindowsMemoryUsage {
        timestamp: int64 = 1,
        working_set_bytes: message(UInt64Value) = 2,
        available_bytes: message(UInt64Value) = 3,
        page_faults: message(UInt64Value) = 4,
        commit_memory_bytes: message(UInt64Value) = 5,
    }
}
