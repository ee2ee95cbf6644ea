//! Statistics of pods, containers and the machine. They are read once per request; the three pages are pure functions
//! of them.

mod cadvisor;
mod gather;
mod rates;
mod resource;
mod summary;

pub(crate) use cadvisor::page as cadvisor;
pub(crate) use gather::gather;
pub(crate) use rates::Rates;
pub(crate) use resource::page as resource;
pub(crate) use summary::page as summary;

use api::time::Timestamp;
use cri::PodSandboxStats;

use crate::resources::machine::{Filesystem, Machine};
use crate::resources::usage::{Files, container_name, value};

/// All statistics of one moment.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    pub(crate) node: String,
    pub(crate) at: Timestamp,
    pub(crate) machine: Machine,
    pub(crate) images: Option<Filesystem>,
    pub(crate) pods: Vec<PodUsage>,
    /// Whether the statistics of pods could not be read.
    pub(crate) failed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct PodUsage {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) started: Option<Timestamp>,
    pub(crate) stats: PodSandboxStats,
    /// When each container was started, by its name.
    pub(crate) containers_started: Vec<(String, Timestamp)>,
    /// Its disk usage.
    pub(crate) files: Files,
    /// Volumes that count for its ephemeral storage.
    pub(crate) ephemeral: Vec<String>,
}

impl PodUsage {
    pub(crate) fn container_started(&self, name: &str) -> Option<Timestamp> {
        self.containers_started.iter().find(|(other, _)| other == name).map(|(_, at)| *at)
    }

    pub(crate) fn containers(&self) -> &[cri::ContainerStats] {
        self.stats.linux.as_ref().map_or(&[], |linux| &linux.containers)
    }
}

#[cfg(test)]
mod tests;
