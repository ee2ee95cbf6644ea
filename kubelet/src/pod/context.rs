//! What all parts of the agent share.

use std::net::IpAddr;
use std::sync::Arc;

use api::Tree;
use client::{Client, Metrics, Recorder, Store, ordered};
use stdx::clock::Clock;
use tokio::sync::watch;

use crate::admission::{Admission, Rules};
use crate::config::Config;
use crate::images::Images;
use crate::liveness::Pulse;
use crate::metrics::Starts;
use crate::node;
use crate::node::facts::Reports;
use crate::objects::Objects;
use crate::pod::cri_config::dns::{self, Resolver};
use crate::pod::cri_config::memory;
use crate::pod::cri_config::resources::{Limits, amount};
use crate::pod::probes::Probes;
use crate::pod::status::writer::Writer;
use crate::pod::user_namespaces::Users;
use crate::pod::worker::Ending;
use crate::resources::cgroups::Groups;
use crate::resources::disk::Disks;
use crate::resources::managers::Managers;
use crate::resources::resize::Resizes;
use crate::runtime::Runtime;
use crate::volumes::Volumes;

const SECOND: i64 = 1_000_000_000;

/// Ends a pod, by its uid, without waiting for it.
pub type End = Box<dyn Fn(&str, Ending) + Send + Sync>;

pub struct Agent {
    pub node: String,
    pub client: Client,
    pub runtime: Runtime,
    /// How the runtime calls itself.
    pub runtime_name: String,
    /// The runtime makes all that is mounted below a read-only mount read-only too.
    pub recursive_read_only: bool,
    pub config: Arc<Config>,
    pub clock: Arc<dyn Clock>,
    pub recorder: Recorder,
    pub statuses: Arc<Writer>,
    pub images: Images,
    pub admission: Admission,
    pub users: Users,
    pub managers: Arc<Managers>,
    pub probes: Arc<Probes>,
    pub objects: Arc<Objects>,
    pub volumes: Volumes,
    pub disks: Arc<Disks>,
    /// The pods of this node, services and runtime classes, as the API has them.
    pub pods: Arc<Store>,
    pub services: Arc<Store>,
    /// Whether the services were listed once.
    pub services_known: ordered::Receiver<bool>,
    pub classes: Arc<Store>,
    /// What the node is told of itself.
    pub reports: watch::Receiver<Reports>,
    /// The node itself.
    pub object: watch::Receiver<Option<Arc<Tree>>>,
    /// Bytes of memory of the machine.
    pub memory: i64,
    /// How memory is kept, slowed down and written out; what pods may have is asked for each time.
    pub memory_rules: memory::Rules,
    pub groups: Arc<Groups>,
    pub resizes: Resizes,
    pub metrics: Metrics,
    pub starts: Arc<Starts>,
    /// When the loops of the agent and the runtime were last seen to go on.
    pub pulse: Pulse,
    pub end: End,
}

impl Agent {
    /// Nanoseconds since the epoch.
    pub fn now(&self) -> i64 {
        let now = self.clock.now();
        now.seconds * SECOND + i64::from(now.nanos)
    }

    pub fn limits(&self) -> Limits {
        Limits {
            memory: self.memory,
            cfs_quota: self.config.cpu_cfs_quota,
            cfs_period: self.config.cpu_cfs_quota_period,
            rules: memory::Rules { allocatable: self.allocatable_memory(), ..self.memory_rules },
        }
    }

    /// What holds on the node for pods that come.
    pub fn rules(&self) -> Rules {
        let (reports, node) = (self.reports.borrow(), self.node_object().unwrap_or_default());
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
    pub fn resolver(&self) -> Result<dns::Host, String> {
        let file = &self.config.resolv_conf;
        if file.as_os_str().is_empty() {
            return Ok(dns::Host::Nowhere(self.host_ips()));
        }
        let text = std::fs::read_to_string(file).map_err(|error| format!("open {}: {error}", file.display()))?;
        Ok(dns::Host::File(Resolver::parse(&text)))
    }

    /// What the node has for pods; null while that is not known.
    pub fn allocatable(&self) -> Tree {
        self.node_object().map(|node| node.at("status.allocatable").clone()).unwrap_or_default()
    }

    fn allocatable_memory(&self) -> i64 {
        amount(self.allocatable().at("memory"))
    }

    /// The node, as events name it.
    pub fn reference(&self) -> Tree {
        node::reference(&self.node)
    }

    /// The node's own addresses, as it has told them.
    pub fn host_ips(&self) -> Vec<IpAddr> {
        let node = self.node_object().unwrap_or_default();
        let inner = node.list("status.addresses").iter().filter(|address| address.str("type") == "InternalIP");
        inner.filter_map(|address| address.str("address").parse().ok()).collect()
    }

    /// The first of them; "" while none is known.
    pub fn host_ip(&self) -> String {
        self.host_ips().first().map(ToString::to_string).unwrap_or_default()
    }

    pub fn node_object(&self) -> Option<Arc<Tree>> {
        self.object.borrow().clone()
    }
}
