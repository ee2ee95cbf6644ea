//! What pods, containers and the machine use. It is gathered once for each question; the three pages are pure
//! functions of it.

mod cadvisor;
mod exposition;
mod gather;
mod rates;
mod resource;
mod summary;

pub use cadvisor::page as cadvisor;
pub use gather::gather;
pub use rates::Rates;
pub use resource::page as resource;
pub use summary::page as summary;

use api::time::Timestamp;
use cri::PodSandboxStats;

use crate::resources::machine::{Filesystem, Machine};
use crate::resources::usage::{Files, container_name, value};

/// All that is known at one moment.
#[derive(Debug, Default)]
pub struct Usage {
    pub node: String,
    pub at: Timestamp,
    pub machine: Machine,
    pub images: Option<Filesystem>,
    pub pods: Vec<PodUsage>,
    /// Why pods are missing, where they are.
    pub failed: bool,
}

#[derive(Debug, Default)]
pub struct PodUsage {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub started: Option<Timestamp>,
    pub stats: PodSandboxStats,
    /// When each container was started, by its name.
    pub containers_started: Vec<(String, Timestamp)>,
    /// What it has on disk.
    pub files: Files,
    /// Volumes that count for what it may use of the disk.
    pub ephemeral: Vec<String>,
}

impl PodUsage {
    pub fn container_started(&self, name: &str) -> Option<Timestamp> {
        self.containers_started.iter().find(|(other, _)| other == name).map(|(_, at)| *at)
    }

    pub fn containers(&self) -> &[cri::ContainerStats] {
        self.stats.linux.as_ref().map_or(&[], |linux| &linux.containers)
    }
}

#[cfg(test)]
mod tests;
