//! What the workers of all pods share.

use std::sync::Arc;

use client::{Metrics, Recorder, Store, ordered};
use stdx::clock::Clock;

use super::cri_config::dns::{self, Resolver};
use super::cri_config::memory;
use super::cri_config::resources::Limits;
use super::probes::Probes;
use super::status::writer::Writer;
use super::user_namespaces::Users;
use super::worker::Ending;
use crate::admission::{Admission, Rules};
use crate::clock;
use crate::config::Config;
use crate::images::Images;
use crate::metrics::Starts;
use crate::model::resources::amount;
use crate::node::NodeView;
use crate::objects::Objects;
use crate::resources::cgroups::Groups;
use crate::resources::managers::Managers;
use crate::resources::resize::{self, Resizes};
use crate::runtime::Runtime;
use crate::volumes::Volumes;

/// Ends a pod, by its uid, without waiting for it.
pub type End = Box<dyn Fn(&str, Ending) + Send + Sync>;

/// What workers call and read. Each part of it knows only what it needs itself.
pub struct PodContext {
    pub config: Arc<Config>,
    pub clock: Arc<dyn Clock>,
    pub recorder: Recorder,
    pub metrics: Metrics,
    pub starts: Arc<Starts>,
    pub node: NodeView,
    pub cache: Cache,
    pub runtime: Runtime,
    pub features: RuntimeFeatures,
    pub machine: MachineMemory,
    pub statuses: Arc<Writer>,
    pub images: Arc<Images>,
    pub admission: Arc<Admission>,
    pub users: Users,
    pub managers: Arc<Managers>,
    pub probes: Arc<Probes>,
    pub objects: Arc<Objects>,
    pub volumes: Arc<Volumes>,
    pub groups: Arc<Groups>,
    pub resizes: Resizes,
    /// What resizes are decided with.
    pub resizing: resize::Environment,
    pub end: End,
}

/// Objects as the API has them.
pub struct Cache {
    /// The pods of this node.
    pub pods: Arc<Store>,
    pub services: Arc<Store>,
    /// Whether the services were listed once.
    pub services_known: ordered::Receiver<bool>,
    pub runtime_classes: Arc<Store>,
}

/// What the runtime says of itself.
pub struct RuntimeFeatures {
    /// In front of container ids.
    pub name: String,
    /// The runtime makes all that is mounted below a read-only mount read-only too.
    pub recursive_read_only: bool,
}

/// Memory of the machine, and how it is kept, slowed down and written out.
pub struct MachineMemory {
    pub bytes: i64,
    /// What pods may have is read from the node each time.
    pub rules: memory::Rules,
}

/// The node's resolver configuration cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("open {}: {source}", .file.display())]
pub struct ResolverError {
    file: std::path::PathBuf,
    source: std::io::Error,
}

impl PodContext {
    /// Nanoseconds since the epoch.
    pub fn now(&self) -> i64 {
        clock::unix_nanos(&*self.clock)
    }

    pub fn limits(&self) -> Limits {
        let allocatable = amount(self.node.allocatable().at("memory"));
        Limits {
            memory: self.machine.bytes,
            cfs_quota: self.config.cpu_cfs_quota,
            cfs_period: self.config.cpu_cfs_quota_period,
            rules: memory::Rules { allocatable, ..self.machine.rules },
        }
    }

    /// What the admission of pods depends on.
    pub fn rules(&self) -> Rules {
        let (reports, node) = (self.node.reports(), self.node.object().unwrap_or_default());
        Rules {
            allowed_unsafe_sysctls: self.config.allowed_unsafe_sysctls.clone(),
            pressure: reports.pressure(),
            shuts_down: reports.shutting_down,
            has_apparmor: crate::admission::has_apparmor(),
            has_groups_policy: node.bool("status.features.supplementalGroupsPolicy"),
            given: self.managers.devices.names(),
        }
    }

    /// The node's own resolver, as it is now; a file that is configured has to be there.
    pub fn resolver(&self) -> Result<dns::Host, ResolverError> {
        let file = &self.config.resolv_conf;
        if file.as_os_str().is_empty() {
            return Ok(dns::Host::Nowhere(self.node.host_ips()));
        }
        let text = std::fs::read_to_string(file).map_err(|source| ResolverError { file: file.clone(), source })?;
        Ok(dns::Host::File(Resolver::parse(&text)))
    }
}
