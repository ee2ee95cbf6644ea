//! The inputs of the node's status, as plain values: facts of the machine and the runtime, and reports of other parts
//! of the kubelet.

use std::net::IpAddr;

use crate::config::Resources;

/// Facts of the machine; only amounts can change until a reboot.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Machine {
    pub(crate) machine_id: String,
    pub(crate) system_uuid: String,
    pub(crate) boot_id: String,
    pub(crate) kernel_version: String,
    pub(crate) os_image: String,
    /// `amd64`, `arm64`: as Go names them.
    pub(crate) architecture: String,
    pub(crate) cores: i64,
    pub(crate) memory_bytes: i64,
    pub(crate) swap_bytes: i64,
    /// The size of a page and how many there are, sorted.
    pub(crate) huge_pages: Vec<(i64, i64)>,
    /// The capacity of the disk with the pods' directories; None if it cannot be read.
    pub(crate) storage_bytes: Option<i64>,
}

/// The status of the runtime.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Runtime {
    /// `tiphys://0.1.0`; empty before the first response.
    pub(crate) version: String,
    pub(crate) health: Health,
    /// Why pods have no network, as reported by the runtime.
    pub(crate) network: Network,
    pub(crate) handlers: Vec<Handler>,
    /// None if the runtime does not report it.
    pub(crate) supplemental_groups_policy: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Health {
    /// There was no response yet.
    #[default]
    Unknown,
    /// There was no response for a while.
    Down,
    /// The runtime reports that it is not ready.
    NotReady(String),
    Ready,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Network {
    #[default]
    Unknown,
    NotReady(String),
    Ready,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Handler {
    pub(crate) name: String,
    pub(crate) recursive_read_only_mounts: bool,
    pub(crate) user_namespaces: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Image {
    /// Digests before tags.
    pub(crate) names: Vec<String>,
    pub(crate) size_bytes: i64,
}

/// Resources that device plugins manage.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Devices {
    pub(crate) capacity: Resources,
    pub(crate) allocatable: Resources,
    /// Resources whose plugins have disappeared.
    pub(crate) removed: Vec<String>,
}

/// Reports of other parts of the kubelet for the node's status.
#[derive(Debug, Clone, Default)]
pub struct Reports {
    pub(crate) memory_pressure: bool,
    pub disk_pressure: bool,
    pub(crate) pid_pressure: bool,
    pub(crate) shutting_down: bool,
    /// Why pods cannot run, in upstream's words, if the runtime has not responded for too long.
    pub(crate) runtime_silence: Option<String>,
    /// None until they are known after a start of the kubelet.
    pub(crate) volumes_in_use: Option<Vec<String>>,
    pub(crate) devices: Devices,
    pub declared_features: Vec<String>,
}

impl Reports {
    /// The conditions that are true and under which some pods are rejected.
    pub(crate) fn pressure(&self) -> Vec<&'static str> {
        let all = [
            ("MemoryPressure", self.memory_pressure),
            ("DiskPressure", self.disk_pressure),
            ("PIDPressure", self.pid_pressure),
        ];
        all.into_iter().filter(|(_, holds)| *holds).map(|(name, _)| name).collect()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct StatusInput {
    pub(crate) machine: Machine,
    /// None if the node has no usable address.
    pub(crate) addresses: Option<Vec<IpAddr>>,
    pub(crate) runtime: Runtime,
    /// The largest first.
    pub(crate) images: Vec<Image>,
    pub(crate) reports: Reports,
}
