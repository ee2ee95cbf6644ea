//! Sections of the configuration.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::Resources;
use super::{cpu_options, topology};
use crate::model::cpuset::CpuSet;

/// Resources that are not for pods.
#[derive(Debug, Clone)]
pub struct Allocatable {
    /// `kubeReserved`.
    pub kube_reserved: Resources,
    /// `systemReserved`.
    pub system_reserved: Resources,
    /// CPUs of the system: their number replaces the reserved `cpu`.
    pub reserved_cpus: Option<CpuSet>,
    /// `pods`, `system-reserved`, `kube-reserved`, the latter two with `-compressible` for CPU only; empty if nothing
    /// is enforced.
    pub enforced: Vec<String>,
    /// `kubeReservedCgroup`.
    pub kube_reserved_cgroup: String,
    /// `systemReservedCgroup`.
    pub system_reserved_cgroup: String,
}

impl Default for Allocatable {
    fn default() -> Allocatable {
        Allocatable {
            kube_reserved: Resources::new(),
            system_reserved: Resources::new(),
            reserved_cpus: None,
            enforced: vec!["pods".to_string()],
            kube_reserved_cgroup: String::new(),
            system_reserved_cgroup: String::new(),
        }
    }
}

/// How images are pulled.
#[derive(Debug, Clone)]
pub struct ImagePulls {
    /// `serializeImagePulls`.
    pub serialize: bool,
    /// `maxParallelImagePulls`; None without a limit.
    pub max_parallel: Option<u32>,
    /// `registryPullQPS`.
    pub qps: u32,
    /// `registryBurst`.
    pub burst: u32,
}

impl Default for ImagePulls {
    fn default() -> ImagePulls {
        ImagePulls { serialize: true, max_parallel: None, qps: 5, burst: 10 }
    }
}

/// The size and the rotation of the logs of containers.
#[derive(Debug, Clone)]
pub struct ContainerLogs {
    /// `containerLogMaxSize`.
    pub max_size: u64,
    /// `containerLogMaxFiles`.
    pub max_files: u32,
    /// `containerLogMaxWorkers`.
    pub max_workers: u32,
    /// `containerLogMonitorInterval`.
    pub monitor_interval: Duration,
}

impl Default for ContainerLogs {
    fn default() -> ContainerLogs {
        ContainerLogs { max_size: 10 << 20, max_files: 5, max_workers: 1, monitor_interval: Duration::from_secs(10) }
    }
}

/// Exclusive resources of containers.
#[derive(Debug, Clone)]
pub struct Pinning {
    /// Containers of Guaranteed pods that request whole CPUs get exclusive ones.
    pub cpu_static: bool,
    pub(crate) cpu_options: cpu_options::Options,
    /// How often the CPUs of containers are reconciled without a change.
    pub(crate) cpu_reconcile_period: Duration,
    /// Containers of Guaranteed pods get memory of some NUMA nodes.
    pub(crate) memory_static: bool,
    /// Kept from pods, by NUMA node.
    pub(crate) reserved_memory: BTreeMap<u32, BTreeMap<String, u64>>,
    pub(crate) topology: topology::Policy,
    pub(crate) scope: topology::Scope,
    pub(crate) topology_options: topology::Options,
}

impl Default for Pinning {
    fn default() -> Pinning {
        Pinning {
            cpu_static: false,
            cpu_options: cpu_options::Options::default(),
            cpu_reconcile_period: Duration::from_secs(10),
            memory_static: false,
            reserved_memory: BTreeMap::new(),
            topology: topology::Policy::None,
            scope: topology::Scope::Container,
            topology_options: topology::Options::default(),
        }
    }
}

/// When unused images are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageGc {
    pub(crate) minimum_age: Duration,
    /// None if images are not removed for their age.
    pub(crate) maximum_age: Option<Duration>,
    /// Percent of the disk at which garbage collection starts, and at which it stops.
    pub(crate) high_threshold: u8,
    pub(crate) low_threshold: u8,
}

impl Default for ImageGc {
    fn default() -> ImageGc {
        ImageGc { minimum_age: Duration::from_secs(120), maximum_age: None, high_threshold: 85, low_threshold: 80 }
    }
}

/// When dead containers go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerGc {
    pub minimum_age: Duration,
    /// How many are kept of each container of a pod, and of all; None for any number.
    pub per_container: Option<usize>,
    /// `--maximum-dead-containers`: None without a limit.
    pub most: Option<usize>,
}

impl Default for ContainerGc {
    fn default() -> ContainerGc {
        ContainerGc { minimum_age: Duration::ZERO, per_container: Some(1), most: None }
    }
}

/// Grace periods of pods when the machine shuts down.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shutdown {
    pub(crate) grace_period: Duration,
    /// The part of the grace period that is reserved for critical pods.
    pub(crate) critical_grace_period: Duration,
    /// Instead of both: from which priority on, and how long.
    pub(crate) by_priority: Vec<(i64, Duration)>,
}

/// The kubelet's ports, and who may use them.
#[derive(Debug, Clone)]
pub struct Serving {
    /// `enableServer`.
    pub enabled: bool,
    /// `address`.
    pub address: IpAddr,
    /// `healthzBindAddress`.
    pub healthz_address: IpAddr,
    /// 0 for none.
    pub healthz_port: u16,
    /// `authentication.x509.clientCAFile`.
    pub client_ca_file: Option<PathBuf>,
    /// `authentication.anonymous.enabled`.
    pub anonymous: bool,
    /// Tokens are shown to the API server.
    pub webhook_authentication: bool,
    /// `authentication.webhook.cacheTTL`.
    pub authentication_ttl: Duration,
    /// Requests are authorized by the API server; otherwise every authenticated client may do everything.
    pub webhook_authorization: bool,
    /// `authorization.webhook.cacheAuthorizedTTL`.
    pub authorized_ttl: Duration,
    /// `authorization.webhook.cacheUnauthorizedTTL`.
    pub unauthorized_ttl: Duration,
    /// `enableDebuggingHandlers`.
    pub debugging_handlers: bool,
    /// `enableSystemLogHandler`.
    pub system_log_handler: bool,
    /// `enableSystemLogQuery`.
    pub system_log_query: bool,
}

impl Default for Serving {
    fn default() -> Serving {
        Serving {
            enabled: true,
            address: IpAddr::from([0, 0, 0, 0]),
            healthz_address: IpAddr::from([127, 0, 0, 1]),
            healthz_port: 10248,
            client_ca_file: None,
            anonymous: false,
            webhook_authentication: true,
            authentication_ttl: Duration::from_secs(120),
            webhook_authorization: true,
            authorized_ttl: Duration::from_secs(300),
            unauthorized_ttl: Duration::from_secs(30),
            debugging_handlers: true,
            system_log_handler: true,
            system_log_query: false,
        }
    }
}

/// The kubelet's certificates, and where they come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Certificates {
    /// The directory of certificates that the kubelet requests; ROOT/pki by default.
    pub dir: Option<PathBuf>,
    pub tls_cert_file: Option<PathBuf>,
    pub tls_private_key_file: Option<PathBuf>,
    /// The client certificate is renewed before it expires.
    pub rotate: bool,
    /// The serving certificate is requested from the API server instead of being self-signed.
    pub server_bootstrap: bool,
}

/// Rate limits of requests to the API server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Requests {
    /// Requests per second, and the burst; None without a limit.
    pub limit: Option<(f64, u32)>,
    pub(crate) events: Option<(u32, u32)>,
}

impl Default for Requests {
    fn default() -> Requests {
        Requests { limit: Some((50.0, 100)), events: Some((50, 100)) }
    }
}

/// Settings of the kubelet's own process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub oom_score_adj: i16,
    pub max_open_files: u64,
    /// Whether kernel settings with other values are an error; otherwise the kubelet sets them.
    pub protect_kernel_defaults: bool,
    /// A machine with cgroups of version 1 is refused.
    pub fail_cgroup_v1: bool,
}

impl Default for Process {
    fn default() -> Process {
        Process {
            oom_score_adj: -999,
            max_open_files: 1_000_000,
            protect_kernel_defaults: false,
            fail_cgroup_v1: false,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Logs {
    pub json: bool,
    pub verbosity: u8,
}
