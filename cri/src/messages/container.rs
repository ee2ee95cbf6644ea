//! Messages about containers.

use super::*;

messages! {
    Mount {
        container_path: string = 1,
        host_path: string = 2,
        readonly: bool = 3,
        selinux_relabel: bool = 4,
        propagation: enumeration(MountPropagation) = 5,
        uid_mappings: repeated message(IDMapping) = 6,
        gid_mappings: repeated message(IDMapping) = 7,
        recursive_read_only: bool = 8,
        image: message(ImageSpec) = 9,
        image_sub_path: string = 10,
        mount_options: repeated string = 11,
    }
    IDMapping { host_id: uint32 = 1, container_id: uint32 = 2, length: uint32 = 3 }
    UserNamespace {
        mode: enumeration(NamespaceMode) = 1,
        uids: repeated message(IDMapping) = 2,
        gids: repeated message(IDMapping) = 3,
    }
    NamespaceOption {
        network: enumeration(NamespaceMode) = 1,
        pid: enumeration(NamespaceMode) = 2,
        ipc: enumeration(NamespaceMode) = 3,
        target_id: string = 4,
        userns_options: message(UserNamespace) = 5,
    }
    Int64Value { value: int64 = 1 }
    SecurityProfile { profile_type: enumeration(ProfileType) = 1, localhost_ref: string = 2 }
    Namespace { options: message(NamespaceOption) = 2 }
    KeyValue { key: string = 1, value: bytes = 2 }
    LinuxContainerResources {
        cpu_period: int64 = 1,
        cpu_quota: int64 = 2,
        cpu_shares: int64 = 3,
        memory_limit_in_bytes: int64 = 4,
        oom_score_adj: int64 = 5,
        cpuset_cpus: string = 6,
        cpuset_mems: string = 7,
        hugepage_limits: repeated message(HugepageLimit) = 8,
        unified: map(string, string) = 9,
        memory_swap_limit_in_bytes: int64 = 10,
    }
    HugepageLimit { page_size: string = 1, limit: uint64 = 2 }
    SELinuxOption {
        user: string = 1,
        role: string = 2,
        r#type: string = 3,
        level: string = 4,
    }
    Capability {
        add_capabilities: repeated string = 1,
        drop_capabilities: repeated string = 2,
        add_ambient_capabilities: repeated string = 3,
    }
    LinuxContainerSecurityContext {
        capabilities: message(Capability) = 1,
        privileged: bool = 2,
        namespace_options: message(NamespaceOption) = 3,
        selinux_options: message(SELinuxOption) = 4,
        run_as_user: message(Int64Value) = 5,
        run_as_group: message(Int64Value) = 12,
        run_as_username: string = 6,
        readonly_rootfs: bool = 7,
        supplemental_groups: repeated int64 = 8,
        supplemental_groups_policy: enumeration(SupplementalGroupsPolicy) = 17,
        no_new_privs: bool = 11,
        masked_paths: repeated string = 13,
        readonly_paths: repeated string = 14,
        seccomp: message(SecurityProfile) = 15,
        apparmor: message(SecurityProfile) = 16,
        apparmor_profile: string = 9,
        seccomp_profile_path: string = 10,
    }
    LinuxContainerConfig {
        resources: message(LinuxContainerResources) = 1,
        security_context: message(LinuxContainerSecurityContext) = 2,
    }
    LinuxContainerUser { uid: int64 = 1, gid: int64 = 2, supplemental_groups: repeated int64 = 3 }
    ContainerMetadata { name: string = 1, attempt: uint32 = 2 }
    Device { container_path: string = 1, host_path: string = 2, permissions: string = 3 }
    CDIDevice { name: string = 1 }
    ContainerConfig {
        metadata: message(ContainerMetadata) = 1,
        image: message(ImageSpec) = 2,
        command: repeated string = 3,
        args: repeated string = 4,
        working_dir: string = 5,
        envs: repeated message(KeyValue) = 6,
        mounts: repeated message(Mount) = 7,
        devices: repeated message(Device) = 8,
        labels: map(string, string) = 9,
        annotations: map(string, string) = 10,
        log_path: string = 11,
        stdin: bool = 12,
        stdin_once: bool = 13,
        tty: bool = 14,
        linux: message(LinuxContainerConfig) = 15,
        windows: message(WindowsContainerConfig) = 16,
        cdi_devices: repeated message(CDIDevice) = 17,
        stop_signal: enumeration(Signal) = 18,
    }
    CreateContainerRequest {
        pod_sandbox_id: string = 1,
        config: message(ContainerConfig) = 2,
        sandbox_config: message(PodSandboxConfig) = 3,
    }
    CreateContainerResponse { container_id: string = 1 }
    StartContainerRequest { container_id: string = 1 }
    StartContainerResponse {}
    StopContainerRequest { container_id: string = 1, timeout: int64 = 2 }
    StopContainerResponse {}
    RemoveContainerRequest { container_id: string = 1 }
    RemoveContainerResponse {}
    ContainerStateValue { state: enumeration(ContainerState) = 1 }
    ContainerFilter {
        id: string = 1,
        state: message(ContainerStateValue) = 2,
        pod_sandbox_id: string = 3,
        label_selector: map(string, string) = 4,
    }
    ListContainersRequest { filter: message(ContainerFilter) = 1 }
    Container {
        id: string = 1,
        pod_sandbox_id: string = 2,
        metadata: message(ContainerMetadata) = 3,
        image: message(ImageSpec) = 4,
        image_ref: string = 5,
        state: enumeration(ContainerState) = 6,
        created_at: int64 = 7,
        labels: map(string, string) = 8,
        annotations: map(string, string) = 9,
        image_id: string = 10,
    }
    ListContainersResponse { containers: repeated message(Container) = 1 }
    StreamContainersRequest { filter: message(ContainerFilter) = 1 }
    StreamContainersResponse { containers: repeated message(Container) = 1 }
    ContainerStatusRequest { container_id: string = 1, verbose: bool = 2 }
    ContainerStatus {
        id: string = 1,
        metadata: message(ContainerMetadata) = 2,
        state: enumeration(ContainerState) = 3,
        created_at: int64 = 4,
        started_at: int64 = 5,
        finished_at: int64 = 6,
        exit_code: int32 = 7,
        image: message(ImageSpec) = 8,
        image_ref: string = 9,
        reason: string = 10,
        message: string = 11,
        labels: map(string, string) = 12,
        annotations: map(string, string) = 13,
        mounts: repeated message(Mount) = 14,
        log_path: string = 15,
        resources: message(ContainerResources) = 16,
        image_id: string = 17,
        user: message(ContainerUser) = 18,
        stop_signal: enumeration(Signal) = 19,
    }
    ContainerStatusResponse { status: message(ContainerStatus) = 1, info: map(string, string) = 2 }
    ContainerResources {
        linux: message(LinuxContainerResources) = 1,
        windows: message(WindowsContainerResources) = 2,
    }
    ContainerUser { linux: message(LinuxContainerUser) = 1 }
    UpdateContainerResourcesRequest {
        container_id: string = 1,
        linux: message(LinuxContainerResources) = 2,
        windows: message(WindowsContainerResources) = 3,
        annotations: map(string, string) = 4,
    }
    UpdateContainerResourcesResponse {}
    ExecSyncRequest { container_id: string = 1, cmd: repeated string = 2, timeout: int64 = 3 }
    ExecSyncResponse { stdout: bytes = 1, stderr: bytes = 2, exit_code: int32 = 3 }
    ExecRequest {
        container_id: string = 1,
        cmd: repeated string = 2,
        tty: bool = 3,
        stdin: bool = 4,
        stdout: bool = 5,
        stderr: bool = 6,
    }
    ExecResponse { url: string = 1 }
    AttachRequest {
        container_id: string = 1,
        stdin: bool = 2,
        tty: bool = 3,
        stdout: bool = 4,
        stderr: bool = 5,
    }
    AttachResponse { url: string = 1 }
    PortForwardRequest { pod_sandbox_id: string = 1, port: repeated int32 = 2 }
    PortForwardResponse { url: string = 1 }
    UInt64Value { value: uint64 = 1 }
    ContainerAttributes {
        id: string = 1,
        metadata: message(ContainerMetadata) = 2,
        labels: map(string, string) = 3,
        annotations: map(string, string) = 4,
    }
    ReopenContainerLogRequest { container_id: string = 1 }
    ReopenContainerLogResponse {}
    CheckpointContainerRequest { container_id: string = 1, location: string = 2, timeout: int64 = 3 }
    CheckpointContainerResponse {}
    GetEventsRequest {}
    ContainerEventResponse {
        container_id: string = 1,
        container_event_type: enumeration(ContainerEventType) = 2,
        created_at: int64 = 3,
        pod_sandbox_status: message(PodSandboxStatus) = 4,
        containers_statuses: repeated message(ContainerStatus) = 5,
    }
}
