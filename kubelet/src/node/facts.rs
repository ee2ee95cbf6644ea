//! What is known of the node, as plain values: what its machine and its runtime say, and what other parts of the
//! agent report.

use std::net::IpAddr;

use crate::config::Resources;

/// What a machine is; all but the amounts stay as they are until it is started again.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Machine {
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    pub kernel_version: String,
    pub os_image: String,
    /// `amd64`, `arm64`: as Go names them.
    pub architecture: String,
    pub cores: i64,
    pub memory_bytes: i64,
    pub swap_bytes: i64,
    /// The size of a page and how many there are, sorted.
    pub huge_pages: Vec<(i64, i64)>,
    /// Of the disk that pods' directories are on; None where it cannot be read.
    pub storage_bytes: Option<i64>,
}

/// What the runtime says of itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Runtime {
    /// `tiphys://0.1.0`; empty before it answered once.
    pub version: String,
    pub health: Health,
    /// Why pods get no network, in the runtime's own words.
    pub network: Network,
    pub handlers: Vec<Handler>,
    /// None where the runtime does not say.
    pub supplemental_groups_policy: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Health {
    /// It has not answered yet.
    #[default]
    Unknown,
    /// It has not answered for a while.
    Down,
    /// It says itself that it is not ready.
    NotReady(String),
    Ready,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Network {
    #[default]
    Unknown,
    NotReady(String),
    Ready,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handler {
    pub name: String,
    pub recursive_read_only_mounts: bool,
    pub user_namespaces: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// Digests before tags.
    pub names: Vec<String>,
    pub size_bytes: i64,
}

/// Resources that device plugins manage.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Devices {
    pub capacity: Resources,
    pub allocatable: Resources,
    /// Those whose plugins are gone.
    pub removed: Vec<String>,
}

/// What other parts of the agent tell the node's status.
#[derive(Debug, Clone, Default)]
pub struct Reports {
    pub memory_pressure: bool,
    pub disk_pressure: bool,
    pub pid_pressure: bool,
    pub shutting_down: bool,
    /// Why pods cannot be run, in upstream's words, where the runtime has been silent for too long.
    pub runtime_silence: Option<String>,
    /// None until they are known after a start.
    pub volumes_in_use: Option<Vec<String>>,
    pub devices: Devices,
    pub declared_features: Vec<String>,
}

impl Reports {
    /// The conditions under which not every pod is taken, as far as they hold.
    pub fn pressure(&self) -> Vec<&'static str> {
        let all = [
            ("MemoryPressure", self.memory_pressure),
            ("DiskPressure", self.disk_pressure),
            ("PIDPressure", self.pid_pressure),
        ];
        all.into_iter().filter(|(_, holds)| *holds).map(|(name, _)| name).collect()
    }
}

#[derive(Debug, Clone)]
pub struct Facts {
    pub machine: Machine,
    /// None if the node has no usable address.
    pub addresses: Option<Vec<IpAddr>>,
    pub runtime: Runtime,
    /// The largest first.
    pub images: Vec<Image>,
    pub reports: Reports,
}
