//! The runtime itself: version, state, configuration, what it can do.

use super::*;

messages! {
    VersionRequest { version: string = 1 }
    VersionResponse {
        version: string = 1,
        runtime_name: string = 2,
        runtime_version: string = 3,
        runtime_api_version: string = 4,
    }
    NetworkConfig { pod_cidr: string = 1 }
    RuntimeConfig { network_config: message(NetworkConfig) = 1 }
    UpdateRuntimeConfigRequest { runtime_config: message(RuntimeConfig) = 1 }
    UpdateRuntimeConfigResponse {}
    RuntimeCondition {
        r#type: string = 1,
        status: bool = 2,
        reason: string = 3,
        message: string = 4,
    }
    RuntimeStatus { conditions: repeated message(RuntimeCondition) = 1 }
    StatusRequest { verbose: bool = 1 }
    RuntimeHandlerFeatures { recursive_read_only_mounts: bool = 1, user_namespaces: bool = 2 }
    RuntimeHandler { name: string = 1, features: message(RuntimeHandlerFeatures) = 2 }
    RuntimeFeatures {
        supplemental_groups_policy: bool = 1,
        user_namespaces_host_network: bool = 2,
        mount_options: bool = 3,
    }
    StatusResponse {
        status: message(RuntimeStatus) = 1,
        info: map(string, string) = 2,
        runtime_handlers: repeated message(RuntimeHandler) = 3,
        features: message(RuntimeFeatures) = 4,
    }
    RuntimeConfigRequest {}
    RuntimeConfigResponse { linux: message(LinuxRuntimeConfiguration) = 1 }
    LinuxRuntimeConfiguration { cgroup_driver: enumeration(CgroupDriver) = 1 }
}
