//! The fields of a KubeletConfiguration: one sorted table. A field is applied, or rejected by name if its value is not
//! supported; no field is ignored.

use api::Tree;

use super::error::InvalidValue;
use super::values::*;
use super::{Config, gates};
use super::{ImageVerification, cpu_options, topology};
use crate::model::sysctls;

pub(crate) struct Field {
    pub(crate) path: &'static str,
    /// Upstream treats zero as unset.
    pub(crate) zero_is_unset: bool,
    pub(crate) setter: FieldSetter,
}

pub(crate) enum FieldSetter {
    Set(fn(&mut Config, &Tree) -> Result<(), InvalidValue>),
    /// Only these values are supported; otherwise the reason is the error.
    Only(&'static [&'static str], &'static str),
    /// The field is read together with other fields.
    Together,
}

/// A field whose value is parsed by a function and stored in the configuration.
macro_rules! set {
    ($path:literal, $read:path, $($place:tt)+) => {
        Field { path: $path, zero_is_unset: false, setter: FieldSetter::Set(|config, value| {
            config.$($place)+ = $read(value)?;
            Ok(())
        }) }
    };
}

/// The same, if zero means upstream's default.
macro_rules! nonzero {
    ($path:literal, $read:path, $($place:tt)+) => {
        Field { zero_is_unset: true, ..set!($path, $read, $($place)+) }
    };
}

const fn only(path: &'static str, values: &'static [&'static str], why: &'static str) -> Field {
    Field { path, zero_is_unset: true, setter: FieldSetter::Only(values, why) }
}

const fn together(path: &'static str) -> Field {
    Field { path, zero_is_unset: false, setter: FieldSetter::Together }
}

const fn checked(path: &'static str, check: fn(&mut Config, &Tree) -> Result<(), InvalidValue>) -> Field {
    Field { path, zero_is_unset: true, setter: FieldSetter::Set(check) }
}

const FIXED_TLS: &str = "the safe versions and ciphers are spoken, and no others";
const NO_PROFILES: &str = "nothing is profiled";
const NO_MOVES: &str = "processes of the host are left where they are";
const NO_BITS: &str = "no marks are put on packets";

pub(crate) static FIELDS: &[Field] = &[
    nonzero!("address", address, serving.address),
    checked("allowedUnsafeSysctls", |config, value| {
        let patterns: Result<_, sysctls::PatternError> =
            texts(value)?.iter().map(|text| sysctls::pattern(text)).collect();
        config.allowed_unsafe_sysctls = patterns?;
        Ok(())
    }),
    only("apiVersion", &["kubelet.config.k8s.io/v1beta1"], "there is v1beta1 alone"),
    set!("authentication.anonymous.enabled", boolean, serving.anonymous),
    nonzero!("authentication.webhook.cacheTTL", duration, serving.authentication_ttl),
    set!("authentication.webhook.enabled", boolean, serving.webhook_authentication),
    set!("authentication.x509.clientCAFile", optional_path, serving.client_ca_file),
    checked("authorization.mode", |config, value| {
        config.serving.webhook_authorization = match text(value)?.as_str() {
            "Webhook" => true,
            "AlwaysAllow" => false,
            other => {
                return Err(InvalidValue::new(format!(
                    "invalid authorization mode {other:?}; there are Webhook and AlwaysAllow"
                )));
            }
        };
        Ok(())
    }),
    nonzero!("authorization.webhook.cacheAuthorizedTTL", duration, serving.authorized_ttl),
    nonzero!("authorization.webhook.cacheUnauthorizedTTL", duration, serving.unauthorized_ttl),
    nonzero!("cgroupDriver", driver, cgroup_driver),
    checked("cgroupRoot", |config, value| {
        let root = text(value)?;
        if !root.starts_with('/') {
            return Err(InvalidValue::new(format!("{root:?} must start with a slash")));
        }
        config.cgroup_root = root;
        Ok(())
    }),
    set!("cgroupsPerQOS", boolean, cgroups_per_qos),
    set!("clusterDNS", addresses, cluster_dns),
    set!("clusterDomain", text, cluster_domain),
    only("configMapAndSecretChangeDetectionStrategy", &["Watch"], "what pods refer to is watched"),
    nonzero!("containerLogMaxFiles", int, container_logs.max_files),
    nonzero!("containerLogMaxSize", bytes, container_logs.max_size),
    nonzero!("containerLogMaxWorkers", int, container_logs.max_workers),
    nonzero!("containerLogMonitorInterval", duration, container_logs.monitor_interval),
    nonzero!("containerRuntimeEndpoint", endpoint, runtime_endpoint),
    checked("contentType", |_, value| match text(value)?.as_str() {
        "application/json" | "application/vnd.kubernetes.protobuf" => Ok(()),
        other => Err(InvalidValue::new(format!("unknown content type {other:?}"))),
    }),
    set!("cpuCFSQuota", boolean, cpu_cfs_quota),
    nonzero!("cpuCFSQuotaPeriod", duration, cpu_cfs_quota_period),
    checked("cpuManagerPolicy", |config, value| {
        config.pinning.cpu_static = match text(value)?.as_str() {
            "none" => false,
            "static" => true,
            other => return Err(InvalidValue::new(format!("unknown policy: {other:?}; there are none and static"))),
        };
        Ok(())
    }),
    checked("cpuManagerPolicyOptions", |config, value| {
        config.pinning.cpu_options = options(value, cpu_options::Options::read)?;
        Ok(())
    }),
    nonzero!("cpuManagerReconcilePeriod", duration, pinning.cpu_reconcile_period),
    nonzero!("crashLoopBackOff.maxContainerRestartPeriod", duration, crash_loop_max),
    only("enableContentionProfiling", &["false"], NO_PROFILES),
    set!("enableControllerAttachDetach", boolean, enable_controller_attach_detach),
    only("enableDebugFlagsHandler", &["false"], NO_PROFILES),
    set!("enableDebuggingHandlers", boolean, serving.debugging_handlers),
    only("enableProfilingHandler", &["false"], NO_PROFILES),
    set!("enableServer", boolean, serving.enabled),
    set!("enableSystemLogHandler", boolean, serving.system_log_handler),
    set!("enableSystemLogQuery", boolean, serving.system_log_query),
    set!("enforceNodeAllocatable", texts, allocatable.enforced),
    together("eventBurst"),
    together("eventRecordQPS"),
    together("evictionHard"),
    set!("evictionMaxPodGracePeriod", seconds, eviction.max_pod_grace_period),
    together("evictionMinimumReclaim"),
    nonzero!("evictionPressureTransitionPeriod", duration, eviction.pressure_transition_period),
    together("evictionSoft"),
    together("evictionSoftGracePeriod"),
    set!("failCgroupV1", boolean, process.fail_cgroup_v1),
    set!("failSwapOn", boolean, swap.fail_on),
    checked("featureGates", |_, value| gates::check(value)),
    nonzero!("fileCheckFrequency", duration, file_check_frequency),
    only(
        "hairpinMode",
        &["promiscuous-bridge", "hairpin-veth", "none"],
        "it is one of these, and up to the network plugin",
    ),
    nonzero!("healthzBindAddress", address, serving.healthz_address),
    set!("healthzPort", int, serving.healthz_port),
    nonzero!("httpCheckFrequency", duration, http_check_frequency),
    set!("imageGCHighThresholdPercent", percentage, image_gc.high_threshold),
    set!("imageGCLowThresholdPercent", percentage, image_gc.low_threshold),
    set!("imageMaximumGCAge", optional_duration, image_gc.maximum_age),
    nonzero!("imageMinimumGCAge", duration, image_gc.minimum_age),
    checked("imagePullCredentialsVerificationPolicy", |config, value| {
        config.image_verification = match text(value)?.as_str() {
            "NeverVerify" => ImageVerification::NeverVerify,
            "NeverVerifyPreloadedImages" => ImageVerification::NeverVerifyPreloaded,
            "NeverVerifyAllowlistedImages" => ImageVerification::NeverVerifyListed(Vec::new()),
            "AlwaysVerify" => ImageVerification::AlwaysVerify,
            other => return Err(InvalidValue::new(format!("unknown policy {other:?}"))),
        };
        Ok(())
    }),
    nonzero!("imageServiceEndpoint", endpoint, image_endpoint),
    only("iptablesDropBit", &["15"], NO_BITS),
    only("iptablesMasqueradeBit", &["14"], NO_BITS),
    only("kernelMemcgNotification", &["false"], "memory is looked at every ten seconds"),
    only("kind", &["KubeletConfiguration"], "it must be a KubeletConfiguration"),
    together("kubeAPIBurst"),
    together("kubeAPIQPS"),
    set!("kubeReserved", reserved, allocatable.kube_reserved),
    set!("kubeReservedCgroup", text, allocatable.kube_reserved_cgroup),
    only("kubeletCgroups", &[], NO_MOVES),
    set!("localStorageCapacityIsolation", boolean, local_storage_capacity_isolation),
    only("logging.flushFrequency", &["5s", "5000000000"], "what is logged is not held back"),
    checked("logging.format", |config, value| {
        config.logs.json = match text(value)?.as_str() {
            "text" => false,
            "json" => true,
            other => return Err(InvalidValue::new(format!("unknown format {other:?}; there are text and json"))),
        };
        Ok(())
    }),
    only("logging.options.json.infoBufferSize", &["0"], "what is logged is not held back"),
    only("logging.options.json.splitStream", &["false"], "logs go to standard error"),
    only("logging.options.text.infoBufferSize", &["0"], "what is logged is not held back"),
    only("logging.options.text.splitStream", &["false"], "logs go to standard error"),
    set!("logging.verbosity", int, logs.verbosity),
    only("logging.vmodule", &[], "the whole log has one level"),
    only("makeIPTablesUtilChains", &["true", "false"], "it is true or false; no chain is needed here"),
    nonzero!("maxOpenFiles", int, process.max_open_files),
    together("maxParallelImagePulls"),
    nonzero!("maxPods", int, max_pods),
    checked("memoryManagerPolicy", |config, value| {
        config.pinning.memory_static = match text(value)?.as_str() {
            "None" => false,
            "Static" => true,
            other => return Err(InvalidValue::new(format!("unknown policy: {other:?}; there are None and Static"))),
        };
        Ok(())
    }),
    checked("memoryReservationPolicy", |config, value| {
        config.reserves_memory = match text(value)?.as_str() {
            "None" => false,
            "TieredReservation" => true,
            other => {
                return Err(InvalidValue::new(format!("{other:?}: supported values: \"None\", \"TieredReservation\"")));
            }
        };
        Ok(())
    }),
    checked("memorySwap.swapBehavior", |config, value| {
        config.swap.limited = match text(value)?.as_str() {
            "NoSwap" => false,
            "LimitedSwap" => true,
            other => {
                return Err(InvalidValue::new(format!("{other:?}: supported values: \"LimitedSwap\", \"NoSwap\"")));
            }
        };
        Ok(())
    }),
    checked("memoryThrottlingFactor", |config, value| {
        config.memory_throttling_factor = Some(number(value)?);
        Ok(())
    }),
    together("mergeDefaultEvictionSettings"),
    nonzero!("nodeLeaseDurationSeconds", seconds, node_lease_duration),
    checked("nodeStatusMaxImages", |config, value| {
        config.node_status_max_images = match int::<i64>(value)? {
            -1 => None,
            number => Some(usize::try_from(number).map_err(|_| InvalidValue::new("must be -1 or greater"))?),
        };
        Ok(())
    }),
    together("nodeStatusReportFrequency"),
    nonzero!("nodeStatusUpdateFrequency", duration, node_status_update_frequency),
    set!("oomScoreAdj", int, process.oom_score_adj),
    only("podCIDR", &[], "it is read from the Node object; standalone mode is not supported"),
    only(
        "podHousekeepingPeriod",
        &["2s"],
        "containers of unknown pods are removed at the start, and none appear later",
    ),
    nonzero!("podLogsDir", path, pod_logs_dir),
    checked("podPidsLimit", |config, value| {
        config.pod_pids_limit = int::<i64>(value)?.max(-1);
        Ok(())
    }),
    checked("podsPerCore", |config, value| {
        config.pods_per_core = Some(int(value)?);
        Ok(())
    }),
    nonzero!("port", int, port),
    checked("preloadedImagesVerificationAllowlist", |config, value| match &mut config.image_verification {
        ImageVerification::NeverVerifyListed(entries) => {
            *entries = texts(value)?;
            Ok(())
        }
        _ => {
            Err(InvalidValue::new("it needs imagePullCredentialsVerificationPolicy to be NeverVerifyAllowlistedImages"))
        }
    }),
    set!("protectKernelDefaults", boolean, process.protect_kernel_defaults),
    set!("providerID", text, provider_id),
    only("qosReserved", &[], "requests for memory are not reserved by class"),
    set!("readOnlyPort", int, read_only_port),
    set!("registerNode", boolean, register_node),
    set!("registerWithTaints", taints, register_with_taints),
    nonzero!("registryBurst", int, image_pulls.burst),
    set!("registryPullQPS", int, image_pulls.qps),
    set!("reservedMemory", reserved_memory, pinning.reserved_memory),
    set!("reservedSystemCPUs", cpus, allocatable.reserved_cpus),
    // An empty path means that the node has no DNS servers.
    set!("resolvConf", path, resolv_conf),
    set!("rotateCertificates", boolean, certificates.rotate),
    only("runOnce", &["false"], "it runs until it is stopped"),
    nonzero!("runtimeRequestTimeout", duration, runtime_request_timeout),
    set!("seccompDefault", boolean, seccomp_default),
    together("serializeImagePulls"),
    set!("serverTLSBootstrap", boolean, certificates.server_bootstrap),
    only("showHiddenMetricsForVersion", &[], "all metrics are shown as they are"),
    set!("shutdownGracePeriod", duration, shutdown.grace_period),
    together("shutdownGracePeriodByPodPriority"),
    set!("shutdownGracePeriodCriticalPods", duration, shutdown.critical_grace_period),
    set!("singleProcessOOMKill", optional_boolean, single_process_oom_kill),
    set!("staticPodPath", optional_path, static_pod_path),
    set!("staticPodURL", optional_text, static_pod_url),
    checked("staticPodURLHeader", |config, value| {
        let headers = map(value, texts)?.into_iter();
        let each = |(name, values): (String, Vec<String>)| {
            values.into_iter().map(move |value| (name.clone(), value)).collect::<Vec<_>>()
        };
        config.static_pod_url_headers = headers.flat_map(each).collect();
        Ok(())
    }),
    nonzero!("streamingConnectionIdleTimeout", duration, streaming_connection_idle_timeout),
    nonzero!("syncFrequency", duration, sync_frequency),
    only("systemCgroups", &[], NO_MOVES),
    set!("systemReserved", reserved, allocatable.system_reserved),
    set!("systemReservedCgroup", text, allocatable.system_reserved_cgroup),
    set!("tlsCertFile", optional_path, certificates.tls_cert_file),
    only("tlsCipherSuites", &[], FIXED_TLS),
    only("tlsCurvePreferences", &[], FIXED_TLS),
    only("tlsMinVersion", &["VersionTLS12"], FIXED_TLS),
    set!("tlsPrivateKeyFile", optional_path, certificates.tls_private_key_file),
    checked("topologyManagerPolicy", |config, value| {
        config.pinning.topology = match text(value)?.as_str() {
            "none" => topology::Policy::None,
            "best-effort" => topology::Policy::BestEffort,
            "restricted" => topology::Policy::Restricted,
            "single-numa-node" => topology::Policy::SingleNumaNode,
            other => {
                return Err(InvalidValue::new(format!(
                    "{other:?} must be one of: [\"none\" \"best-effort\" \"restricted\" \"single-numa-node\"]"
                )));
            }
        };
        Ok(())
    }),
    checked("topologyManagerPolicyOptions", |config, value| {
        config.pinning.topology_options = options(value, topology::Options::read)?;
        Ok(())
    }),
    checked("topologyManagerScope", |config, value| {
        config.pinning.scope = match text(value)?.as_str() {
            "container" => topology::Scope::Container,
            "pod" => topology::Scope::Pod,
            other => return Err(InvalidValue::new(format!("{other:?} must be one of: \"container\", or \"pod\""))),
        };
        Ok(())
    }),
    only("tracing", &[], "nothing is traced"),
    nonzero!("userNamespaces.idsPerPod", int, user_namespace_ids_per_pod),
    only(
        "volumePluginDir",
        &["/usr/libexec/kubernetes/kubelet-plugins/volume/exec/"],
        "there are no plugins of that kind: CSI drivers take their place",
    ),
    nonzero!("volumeStatsAggPeriod", duration_or_none, volume_stats_period),
];
