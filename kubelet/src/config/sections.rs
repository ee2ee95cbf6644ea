//! Parts of what the agent is told that belong together.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{Config, Resources};

/// What is kept from pods.
#[derive(Debug, Clone)]
pub struct Allocatable {
    pub kube_reserved: Resources,
    pub system_reserved: Resources,
    /// Cores that are the system's alone: their number takes the place of what is reserved of `cpu`.
    pub reserved_cpus: Option<usize>,
    /// `pods`, `system-reserved`, `kube-reserved`; none where nothing is enforced.
    pub enforced: Vec<String>,
    pub kube_reserved_cgroup: String,
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

/// When images go that nobody uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageGc {
    pub minimum_age: Duration,
    /// None where age alone is no reason.
    pub maximum_age: Option<Duration>,
    /// Percent of the disk at which it begins, and down to which it goes.
    pub high_threshold: u8,
    pub low_threshold: u8,
}

impl Default for ImageGc {
    fn default() -> ImageGc {
        ImageGc { minimum_age: Duration::from_secs(120), maximum_age: None, high_threshold: 85, low_threshold: 80 }
    }
}

/// How long pods get when the machine goes down.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shutdown {
    pub grace_period: Duration,
    /// The part of it that is kept for critical pods.
    pub critical_grace_period: Duration,
    /// Instead of both: from which priority on, and how long.
    pub by_priority: Vec<(i64, Duration)>,
}

/// The ports of the agent, and who may ask them.
#[derive(Debug, Clone)]
pub struct Serving {
    pub enabled: bool,
    pub address: IpAddr,
    pub healthz_address: IpAddr,
    /// 0 for none.
    pub healthz_port: u16,
    pub client_ca_file: Option<PathBuf>,
    pub anonymous: bool,
    /// Tokens are shown to the API server.
    pub webhook_authentication: bool,
    pub authentication_ttl: Duration,
    /// The API server is asked who may do what; otherwise everybody who is known may do all.
    pub webhook_authorization: bool,
    pub authorized_ttl: Duration,
    pub unauthorized_ttl: Duration,
    pub debugging_handlers: bool,
    pub system_log_handler: bool,
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

/// Which certificates the agent shows, and where they come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Certificates {
    /// Where those are kept that it gets for itself; ROOT/pki unless told.
    pub dir: Option<PathBuf>,
    pub tls_cert_file: Option<PathBuf>,
    pub tls_private_key_file: Option<PathBuf>,
    /// A new client certificate is asked for before the old one ends.
    pub rotate: bool,
    /// The serving certificate is asked for too, instead of being made here.
    pub server_bootstrap: bool,
}

/// How much the API server is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Requests {
    /// A second, and how many may come at once; none are held back without a number.
    pub limit: Option<(f64, u32)>,
    pub events: Option<(u32, u32)>,
}

impl Default for Requests {
    fn default() -> Requests {
        Requests { limit: Some((50.0, 100)), events: Some((50, 100)) }
    }
}

/// What the agent asks of the kernel for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub oom_score_adj: i16,
    pub max_open_files: u64,
    /// Kernel settings that are not as they should be are an error; otherwise they are set.
    pub protect_kernel_defaults: bool,
    /// A machine with control groups of version 1 is refused.
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

/// What does not go together, and what no node could do, in upstream's words.
pub fn check(config: &Config) -> Vec<String> {
    let mut errors = Vec::new();
    let mut need = |holds: bool, why: String| {
        if !holds {
            errors.push(format!("invalid configuration: {why}"));
        }
    };
    let (allocatable, images, shutdown) = (&config.allocatable, config.image_gc, &config.shutdown);
    let nothing = allocatable.enforced.iter().all(|one| one == "none");
    need(
        config.cgroups_per_qos || nothing,
        "enforceNodeAllocatable (--enforce-node-allocatable) is not supported unless cgroupsPerQOS (--cgroups-per-qos) is set to true".to_string(),
    );
    for one in &allocatable.enforced {
        match one.as_str() {
            "pods" => {}
            "none" => need(allocatable.enforced.len() == 1, "enforceNodeAllocatable (--enforce-node-allocatable) may not contain additional enforcements when \"none\" is specified".to_string()),
            "system-reserved" => need(!allocatable.system_reserved_cgroup.is_empty(), "systemReservedCgroup (--system-reserved-cgroup) must be specified when \"system-reserved\" contained in enforceNodeAllocatable (--enforce-node-allocatable)".to_string()),
            "kube-reserved" => need(!allocatable.kube_reserved_cgroup.is_empty(), "kubeReservedCgroup (--kube-reserved-cgroup) must be specified when \"kube-reserved\" contained in enforceNodeAllocatable (--enforce-node-allocatable)".to_string()),
            other => need(false, format!("option {other:?} specified for enforceNodeAllocatable (--enforce-node-allocatable). Valid options are \"pods\", \"system-reserved\", \"kube-reserved\", or \"none\"")),
        }
    }
    need(
        allocatable.reserved_cpus.is_none() || allocatable.kube_reserved_cgroup.is_empty() && allocatable.system_reserved_cgroup.is_empty(),
        "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)".to_string(),
    );
    need(
        images.low_threshold < images.high_threshold,
        format!(
            "imageGCLowThresholdPercent (--image-gc-low-threshold) {} must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) {}",
            images.low_threshold, images.high_threshold
        ),
    );
    need(
        images.maximum_age.is_none_or(|most| most > images.minimum_age),
        "imageMaximumGCAge must be greater than imageMinimumGCAge".to_string(),
    );
    let period = config.cpu_cfs_quota_period;
    need(
        (Duration::from_micros(1)..=Duration::from_secs(1)).contains(&period),
        format!("cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {period:?} must be between 1usec and 1sec, inclusive"),
    );
    need(
        (-1000..=1000).contains(&config.process.oom_score_adj),
        format!(
            "oomScoreAdj (--oom-score-adj) {} must be between -1000 and 1000, inclusive",
            config.process.oom_score_adj
        ),
    );
    need(config.container_log_max_files > 1, "containerLogMaxFiles must be greater than 1".to_string());
    need(
        (Duration::from_secs(1)..=Duration::from_secs(300)).contains(&config.crash_loop_max),
        "crashLoopBackOff.maxContainerRestartPeriod must be between 1s and 300s".to_string(),
    );
    need(
        config.memory_throttling_factor > 0.0 && config.memory_throttling_factor <= 1.0,
        format!(
            "memoryThrottlingFactor {} must be greater than 0 and less than or equal to 1.0",
            config.memory_throttling_factor
        ),
    );
    need(
        config.user_namespace_ids_per_pod.is_multiple_of(65_536),
        "userNamespaces.idsPerPod must be a multiple of 65536".to_string(),
    );
    need(
        !(config.swap.fail_on && config.swap.limited),
        "memorySwap.swapBehavior LimitedSwap needs failSwapOn (--fail-swap-on) to be false".to_string(),
    );
    let tls = &config.certificates;
    need(
        tls.tls_cert_file.is_some() == tls.tls_private_key_file.is_some(),
        "tlsCertFile (--tls-cert-file) and tlsPrivateKeyFile (--tls-private-key-file) belong together".to_string(),
    );
    need(
        !(tls.server_bootstrap && tls.tls_cert_file.is_some()),
        "serverTLSBootstrap (--rotate-server-certificates) and tlsCertFile (--tls-cert-file) exclude each other"
            .to_string(),
    );
    errors.extend(check_shutdown(shutdown));
    errors
}

fn check_shutdown(shutdown: &Shutdown) -> Vec<String> {
    let mut errors = Vec::new();
    let (all, critical) = (shutdown.grace_period, shutdown.critical_grace_period);
    if critical > all {
        errors.push(format!(
            "invalid configuration: shutdownGracePeriodCriticalPods {critical:?} must be <= shutdownGracePeriod {all:?}"
        ));
    }
    for (name, period) in [("shutdownGracePeriod", all), ("shutdownGracePeriodCriticalPods", critical)] {
        if !period.is_zero() && period < Duration::from_secs(1) {
            errors.push(format!("invalid configuration: {name} {period:?} must be either zero or otherwise >= 1 sec"));
        }
    }
    let is_both = !(shutdown.by_priority.is_empty() || all.is_zero() && critical.is_zero());
    if is_both {
        errors.push("invalid configuration: Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time".to_string());
    }
    errors
}
