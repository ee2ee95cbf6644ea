//! State that the workers of all pods share.

use std::sync::Arc;

use client::{Metrics, Recorder, Store, ordered};
use stdx::clock::Clock;

use super::cri_config::dns::{self, Resolver};
use super::cri_config::memory;
use super::cri_config::resources::Limits;
use super::probes::Probes;
use super::status::writer::Writer;
use super::user_namespaces::UsernsManager;
use super::worker::Termination;
use crate::admission::{Admission, Rules};
use crate::clock;
use crate::config::Config;
use crate::images::Images;
use crate::metrics::Starts;
use crate::model::resources::amount;
use crate::network_gate::NetworkGate;
use crate::node::NodeView;
use crate::objects::Objects;
use crate::resources::cgroups::CgroupManager;
use crate::resources::managers::Managers;
use crate::resources::resize::{self, Resizes};
use crate::runtime::Runtime;
use crate::volumes::Volumes;

/// Terminates a pod, by its UID, without waiting for it.
pub(crate) type PodTerminator = Box<dyn Fn(&str, Termination) + Send + Sync>;

/// The services and caches that workers use.
pub(crate) struct PodContext {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) starts: Arc<Starts>,
    pub(crate) node: NodeView,
    pub(crate) cache: Cache,
    pub(crate) runtime: Runtime,
    pub(crate) network_gate: Arc<dyn NetworkGate>,
    pub(crate) features: RuntimeFeatures,
    pub(crate) machine: MachineMemory,
    pub(crate) statuses: Arc<Writer>,
    pub(crate) images: Arc<Images>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) users: UsernsManager,
    pub(crate) managers: Arc<Managers>,
    pub(crate) probes: Arc<Probes>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) groups: Arc<CgroupManager>,
    pub(crate) resizes: Resizes,
    /// Decides about resizes.
    pub(crate) resizing: resize::Environment,
    pub(crate) end: PodTerminator,
}

/// Objects as the API has them.
pub(crate) struct Cache {
    /// The pods of this node.
    pub(crate) pods: Arc<Store>,
    pub(crate) services: Arc<Store>,
    /// Whether the services were listed once.
    pub(crate) services_known: ordered::Receiver<bool>,
    pub(crate) runtime_classes: Arc<Store>,
}

/// Features of the runtime.
pub(crate) struct RuntimeFeatures {
    /// In front of container ids.
    pub(crate) name: String,
    /// The runtime supports recursive read-only mounts.
    pub(crate) recursive_read_only: bool,
}

/// Memory of the machine, and the rules for protection, throttling and swap.
pub(crate) struct MachineMemory {
    pub(crate) bytes: i64,
    /// Allocatable memory is read from the node each time.
    pub(crate) rules: memory::Rules,
}

/// The node's resolver configuration cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("open {}: {source}", .file.display())]
pub(crate) struct ResolverError {
    file: std::path::PathBuf,
    source: std::io::Error,
}

impl PodContext {
    /// Nanoseconds since the epoch.
    pub(crate) fn now(&self) -> i64 {
        clock::unix_nanos(&*self.clock)
    }

    pub(crate) fn limits(&self) -> Limits {
        let allocatable = amount(self.node.allocatable().at("memory"));
        Limits {
            memory: self.machine.bytes,
            cfs_quota: self.config.cpu_cfs_quota,
            cfs_period: self.config.cpu_cfs_quota_period,
            rules: memory::Rules { allocatable, ..self.machine.rules },
        }
    }

    /// The settings and facts for admission.
    pub(crate) fn rules(&self) -> Rules {
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

    /// The node's current resolver configuration; a configured file has to exist.
    pub(crate) fn resolver(&self) -> Result<dns::Host, ResolverError> {
        let file = &self.config.resolv_conf;
        if file.as_os_str().is_empty() {
            return Ok(dns::Host::Nowhere(self.node.host_ips()));
        }
        let text = std::fs::read_to_string(file).map_err(|source| ResolverError { file: file.clone(), source })?;
        Ok(dns::Host::File(Resolver::parse(&text)))
    }
}
