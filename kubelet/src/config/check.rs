//! Settings that contradict each other or are impossible, in upstream's words.

use std::time::Duration;

use super::topology;
use super::{Config, Shutdown};

/// All errors of a configuration.
#[derive(Default)]
struct Errors(Vec<String>);

impl Errors {
    fn require(&mut self, holds: bool, why: impl Into<String>) {
        if !holds {
            self.0.push(format!("invalid configuration: {}", why.into()));
        }
    }
}

pub(crate) fn check(config: &Config) -> Vec<String> {
    let mut errors = Errors::default();
    allocatable(config, &mut errors);
    images(config, &mut errors);
    containers(config, &mut errors);
    certificates(config, &mut errors);
    shutdown(&config.shutdown, &mut errors);
    pinning(config, &mut errors);
    errors.0
}

fn allocatable(config: &Config, errors: &mut Errors) {
    let allocatable = &config.allocatable;
    let nothing = allocatable.enforced.iter().all(|one| one == "none");
    errors.require(
        config.cgroups_per_qos || nothing,
        "enforceNodeAllocatable (--enforce-node-allocatable) is not supported unless cgroupsPerQOS \
         (--cgroups-per-qos) is set to true",
    );
    for one in &allocatable.enforced {
        match one.as_str() {
            "pods" => {}
            "none" => errors.require(
                allocatable.enforced.len() == 1,
                "enforceNodeAllocatable (--enforce-node-allocatable) may not contain additional enforcements when \
                 \"none\" is specified",
            ),
            "system-reserved" | "system-reserved-compressible" => errors.require(
                !allocatable.system_reserved_cgroup.is_empty(),
                format!(
                    "systemReservedCgroup (--system-reserved-cgroup) must be specified when {one:?} contained in \
                     enforceNodeAllocatable (--enforce-node-allocatable)"
                ),
            ),
            "kube-reserved" | "kube-reserved-compressible" => errors.require(
                !allocatable.kube_reserved_cgroup.is_empty(),
                format!(
                    "kubeReservedCgroup (--kube-reserved-cgroup) must be specified when {one:?} contained in \
                     enforceNodeAllocatable (--enforce-node-allocatable)"
                ),
            ),
            other => errors.require(
                false,
                format!(
                    "option {other:?} specified for enforceNodeAllocatable (--enforce-node-allocatable). Valid options \
                     are \"pods\", \"system-reserved\", \"system-reserved-compressible\", \"kube-reserved\", \
                     \"kube-reserved-compressible\", or \"none\""
                ),
            ),
        }
    }
    for part in ["system-reserved", "kube-reserved"] {
        let has = |name: &str| allocatable.enforced.iter().any(|one| one == name);
        let cpu_alone = format!("{part}-compressible");
        errors.require(
            !(has(part) && has(&cpu_alone)),
            format!(
                "both {part:?} and {cpu_alone:?} cannot be specified in enforceNodeAllocatable \
                 (--enforce-node-allocatable)"
            ),
        );
    }
    let has_groups = !(allocatable.kube_reserved_cgroup.is_empty() && allocatable.system_reserved_cgroup.is_empty());
    errors.require(
        allocatable.reserved_cpus.is_none() || !has_groups,
        "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) or \
         kubeReservedCgroup (--kube-reserved-cgroup)",
    );
}

fn images(config: &Config, errors: &mut Errors) {
    let (images, logs) = (config.image_gc, config.container_logs.max_files);
    errors.require(
        images.low_threshold < images.high_threshold,
        format!(
            "imageGCLowThresholdPercent (--image-gc-low-threshold) {} must be less than imageGCHighThresholdPercent \
             (--image-gc-high-threshold) {}",
            images.low_threshold, images.high_threshold
        ),
    );
    errors.require(
        images.maximum_age.is_none_or(|most| most > images.minimum_age),
        "imageMaximumGCAge must be greater than imageMinimumGCAge",
    );
    errors.require(logs > 1, "containerLogMaxFiles must be greater than 1");
}

fn containers(config: &Config, errors: &mut Errors) {
    let (period, most, factor) = (config.cpu_cfs_quota_period, config.crash_loop_max, config.memory_throttling_factor);
    errors.require(
        (Duration::from_micros(1)..=Duration::from_secs(1)).contains(&period),
        format!("cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {period:?} must be between 1usec and 1sec, inclusive"),
    );
    errors.require(
        (Duration::from_secs(1)..=Duration::from_secs(300)).contains(&most),
        "crashLoopBackOff.maxContainerRestartPeriod must be between 1s and 300s",
    );
    let shown = factor.unwrap_or(1.0);
    errors.require(
        shown > 0.0 && shown <= 1.0,
        format!("memoryThrottlingFactor {shown} must be greater than 0 and less than or equal to 1.0"),
    );
    errors.require(
        config.user_namespace_ids_per_pod.is_multiple_of(65_536),
        "userNamespaces.idsPerPod must be a multiple of 65536",
    );
    errors.require(
        !(config.swap.fail_on && config.swap.limited),
        "memorySwap.swapBehavior LimitedSwap needs failSwapOn (--fail-swap-on) to be false",
    );
    let score = config.process.oom_score_adj;
    errors.require(
        (-1000..=1000).contains(&score),
        format!("oomScoreAdj (--oom-score-adj) {score} must be between -1000 and 1000, inclusive"),
    );
}

fn certificates(config: &Config, errors: &mut Errors) {
    let tls = &config.certificates;
    errors.require(
        tls.tls_cert_file.is_some() == tls.tls_private_key_file.is_some(),
        "tlsCertFile (--tls-cert-file) and tlsPrivateKeyFile (--tls-private-key-file) must be set together",
    );
    errors.require(
        !(tls.server_bootstrap && tls.tls_cert_file.is_some()),
        "serverTLSBootstrap (--rotate-server-certificates) and tlsCertFile (--tls-cert-file) exclude each other",
    );
}

fn shutdown(shutdown: &Shutdown, errors: &mut Errors) {
    let (all, critical) = (shutdown.grace_period, shutdown.critical_grace_period);
    errors.require(
        critical <= all,
        format!("shutdownGracePeriodCriticalPods {critical:?} must be <= shutdownGracePeriod {all:?}"),
    );
    for (name, period) in [("shutdownGracePeriod", all), ("shutdownGracePeriodCriticalPods", critical)] {
        errors.require(
            period.is_zero() || period >= Duration::from_secs(1),
            format!("{name} {period:?} must be either zero or otherwise >= 1 sec"),
        );
    }
    errors.require(
        shutdown.by_priority.is_empty() || all.is_zero() && critical.is_zero(),
        "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time",
    );
}

fn pinning(config: &Config, errors: &mut Errors) {
    let pinning = &config.pinning;
    errors.require(
        pinning.cpu_static || pinning.cpu_options == Default::default(),
        "cpuManagerPolicyOptions (--cpu-manager-policy-options) need cpuManagerPolicy (--cpu-manager-policy) static",
    );
    errors.require(
        pinning.memory_static || pinning.reserved_memory.is_empty(),
        "reservedMemory (--reserved-memory) needs memoryManagerPolicy (--memory-manager-policy) Static",
    );
    errors.require(
        !(pinning.cpu_options.align_by_socket && pinning.topology == topology::Policy::SingleNumaNode),
        "topologyManagerPolicy (--topology-manager-policy) single-numa-node is incompatible with the option \
         align-by-socket of cpuManagerPolicyOptions (--cpu-manager-policy-options)",
    );
}
