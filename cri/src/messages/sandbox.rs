//! Pod sandboxes.

use super::*;

messages! {
    DNSConfig { servers: repeated string = 1, searches: repeated string = 2, options: repeated string = 3 }
    PortMapping {
        protocol: enumeration(Protocol) = 1,
        container_port: int32 = 2,
        host_port: int32 = 3,
        host_ip: string = 4,
    }
    LinuxSandboxSecurityContext {
        namespace_options: message(NamespaceOption) = 1,
        selinux_options: message(SELinuxOption) = 2,
        run_as_user: message(Int64Value) = 3,
        run_as_group: message(Int64Value) = 8,
        readonly_rootfs: bool = 4,
        supplemental_groups: repeated int64 = 5,
        supplemental_groups_policy: enumeration(SupplementalGroupsPolicy) = 11,
        privileged: bool = 6,
        seccomp: message(SecurityProfile) = 9,
        apparmor: message(SecurityProfile) = 10,
        seccomp_profile_path: string = 7,
    }
    LinuxPodSandboxConfig {
        cgroup_parent: string = 1,
        security_context: message(LinuxSandboxSecurityContext) = 2,
        sysctls: map(string, string) = 3,
        overhead: message(LinuxContainerResources) = 4,
        resources: message(LinuxContainerResources) = 5,
    }
    PodSandboxMetadata {
        name: string = 1,
        uid: string = 2,
        namespace: string = 3,
        attempt: uint32 = 4,
    }
    PodSandboxConfig {
        metadata: message(PodSandboxMetadata) = 1,
        hostname: string = 2,
        log_directory: string = 3,
        dns_config: message(DNSConfig) = 4,
        port_mappings: repeated message(PortMapping) = 5,
        labels: map(string, string) = 6,
        annotations: map(string, string) = 7,
        linux: message(LinuxPodSandboxConfig) = 8,
        windows: message(WindowsPodSandboxConfig) = 9,
    }
    RunPodSandboxRequest { config: message(PodSandboxConfig) = 1, runtime_handler: string = 2 }
    RunPodSandboxResponse { pod_sandbox_id: string = 1 }
    StopPodSandboxRequest { pod_sandbox_id: string = 1 }
    StopPodSandboxResponse {}
    RemovePodSandboxRequest { pod_sandbox_id: string = 1 }
    RemovePodSandboxResponse {}
    PodSandboxStatusRequest { pod_sandbox_id: string = 1, verbose: bool = 2 }
    PodIP { ip: string = 1 }
    PodSandboxNetworkStatus { ip: string = 1, additional_ips: repeated message(PodIP) = 2 }
    LinuxPodSandboxStatus { namespaces: message(Namespace) = 1 }
    PodSandboxStatus {
        id: string = 1,
        metadata: message(PodSandboxMetadata) = 2,
        state: enumeration(PodSandboxState) = 3,
        created_at: int64 = 4,
        network: message(PodSandboxNetworkStatus) = 5,
        linux: message(LinuxPodSandboxStatus) = 6,
        labels: map(string, string) = 7,
        annotations: map(string, string) = 8,
        runtime_handler: string = 9,
    }
    PodSandboxStatusResponse {
        status: message(PodSandboxStatus) = 1,
        info: map(string, string) = 2,
        containers_statuses: repeated message(ContainerStatus) = 3,
        timestamp: int64 = 4,
    }
    PodSandboxStateValue { state: enumeration(PodSandboxState) = 1 }
    PodSandboxFilter {
        id: string = 1,
        state: message(PodSandboxStateValue) = 2,
        label_selector: map(string, string) = 3,
    }
    ListPodSandboxRequest { filter: message(PodSandboxFilter) = 1 }
    PodSandbox {
        id: string = 1,
        metadata: message(PodSandboxMetadata) = 2,
        state: enumeration(PodSandboxState) = 3,
        created_at: int64 = 4,
        labels: map(string, string) = 5,
        annotations: map(string, string) = 6,
        runtime_handler: string = 7,
    }
    ListPodSandboxResponse { items: repeated message(PodSandbox) = 1 }
    StreamPodSandboxesRequest { filter: message(PodSandboxFilter) = 1 }
    StreamPodSandboxesResponse { pod_sandboxes: repeated message(PodSandbox) = 1 }
    PodSandboxAttributes {
        id: string = 1,
        metadata: message(PodSandboxMetadata) = 2,
        labels: map(string, string) = 3,
        annotations: map(string, string) = 4,
    }
    CheckpointPodRequest {
        pod_sandbox_id: string = 1,
        output_path: string = 2,
        container_ids: repeated string = 3,
        options: map(string, string) = 4,
    }
    CheckpointPodResponse {}
    RestorePodRequest {
        checkpoint_path: string = 1,
        config: message(PodSandboxConfig) = 2,
        runtime_handler: string = 3,
        options: map(string, string) = 4,
        container_configs: repeated message(ContainerConfig) = 5,
    }
    RestoredContainer { name: string = 1, container_id: string = 2 }
    RestorePodResponse { pod_sandbox_id: string = 1, restored_containers: repeated message(RestoredContainer) = 2 }
    UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: string = 1,
        overhead: message(LinuxContainerResources) = 2,
        resources: message(LinuxContainerResources) = 3,
    }
    UpdatePodSandboxResourcesResponse {}
}
