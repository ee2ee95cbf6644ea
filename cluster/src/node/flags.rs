//! The flags of `kubelet`: one table. Flags override the same fields of the file; a flag is honoured, or rejected by
//! its name.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use kubelet::config::{ContainerGc, FlagType, Overlay};
use kubelet::node::register::FOLLOWED;

use crate::component::flags::text;
use crate::error::Result;
use crate::flags::values::unknown;
use crate::flags::{Flag, flag, unfinished};

/// The parsed flags.
#[derive(Default)]
pub struct Flags {
    pub kubeconfig: Option<PathBuf>,
    /// For requesting the first certificate.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// A KubeletConfiguration, and a directory of drop-in files that override it.
    pub config: Option<PathBuf>,
    pub config_dir: Option<PathBuf>,
    pub cert_dir: Option<PathBuf>,
    pub root_dir: Option<PathBuf>,
    pub hostname_override: String,
    pub node_ips: Vec<IpAddr>,
    pub node_labels: Vec<(String, String)>,
    pub is_unschedulable: bool,
    pub external_cloud_provider: bool,
    pub pod_infra_image: Option<String>,
    pub ignores_proxies: bool,
    pub container_gc: ContainerGc,
    pub credential_provider_config: Option<PathBuf>,
    pub credential_provider_bin_dir: Option<PathBuf>,
    /// Settings that override the file.
    pub overlay: Overlay,
}

/// A flag of a field of the configuration.
macro_rules! setting {
    ($name:literal, Bool, $path:literal) => {
        $crate::flags::switch($name, concat!("`", $path, "` of the configuration"), |flags: &mut Flags, value| {
            Ok(flags.overlay.set($path, FlagType::Bool, value)?)
        })
    };
    ($name:literal, $form:ident, $path:literal) => {
        flag($name, concat!("`", $path, "` of the configuration"), |flags: &mut Flags, value| {
            Ok(flags.overlay.set($path, FlagType::$form, value)?)
        })
    };
}

const REMOVED: &str = "upstream has removed it";

static FLAGS: &[Flag<Flags>] = &[
    setting!("address", Text, "address"),
    setting!("allowed-unsafe-sysctls", List, "allowedUnsafeSysctls"),
    setting!("anonymous-auth", Bool, "authentication.anonymous.enabled"),
    setting!("authentication-token-webhook", Bool, "authentication.webhook.enabled"),
    setting!("authentication-token-webhook-cache-ttl", Text, "authentication.webhook.cacheTTL"),
    setting!("authorization-mode", Text, "authorization.mode"),
    setting!("authorization-webhook-cache-authorized-ttl", Text, "authorization.webhook.cacheAuthorizedTTL"),
    setting!("authorization-webhook-cache-unauthorized-ttl", Text, "authorization.webhook.cacheUnauthorizedTTL"),
    file!("bootstrap-kubeconfig", "a kubeconfig for requesting the first client certificate", bootstrap_kubeconfig),
    file!("cert-dir", "directory of the kubelet's certificates [ROOT_DIR/pki]", cert_dir),
    setting!("cgroup-driver", Text, "cgroupDriver"),
    setting!("cgroup-root", Text, "cgroupRoot"),
    setting!("cgroups-per-qos", Bool, "cgroupsPerQOS"),
    setting!("client-ca-file", Text, "authentication.x509.clientCAFile"),
    unfinished("cloud-config", REMOVED),
    flag("cloud-provider", "external, or nothing", |flags: &mut Flags, value| {
        flags.external_cloud_provider = match value {
            "" => false,
            "external" => true,
            other => return Err(unknown("cloud provider", other, "external").into()),
        };
        Ok(())
    }),
    setting!("cluster-dns", List, "clusterDNS"),
    setting!("cluster-domain", Text, "clusterDomain"),
    file!("config", "a file with a KubeletConfiguration", config),
    file!(
        "config-dir",
        "a directory of drop-in files that end in .conf, merged in the order of their names",
        config_dir
    ),
    setting!("container-log-max-files", Int, "containerLogMaxFiles"),
    setting!("container-log-max-size", Text, "containerLogMaxSize"),
    flag("container-runtime", "only remote", |_, value| match value {
        "remote" => Ok(()),
        _ => Err("set --container-runtime-endpoint, or leave it out for the built-in runtime".into()),
    }),
    flag(
        "container-runtime-endpoint",
        "the socket of a CRI runtime [the built-in runtime]",
        |flags: &mut Flags, value| Ok(flags.overlay.set("containerRuntimeEndpoint", FlagType::Text, value)?),
    ),
    setting!("contention-profiling", Bool, "enableContentionProfiling"),
    setting!("cpu-cfs-quota", Bool, "cpuCFSQuota"),
    setting!("cpu-cfs-quota-period", Text, "cpuCFSQuotaPeriod"),
    setting!("cpu-manager-policy", Text, "cpuManagerPolicy"),
    setting!("cpu-manager-policy-options", Map, "cpuManagerPolicyOptions"),
    setting!("cpu-manager-reconcile-period", Text, "cpuManagerReconcilePeriod"),
    crate::flags::switch(
        "drain-by-proxies",
        "stop a deleted pod only after the service proxies that confirm have removed it from their endpoints, or \
         after half of its grace period [true]",
        |flags: &mut Flags, value| {
            flags.ignores_proxies = !crate::flags::values::boolean(value)?;
            Ok(())
        },
    ),
    setting!("enable-controller-attach-detach", Bool, "enableControllerAttachDetach"),
    setting!("enable-debugging-handlers", Bool, "enableDebuggingHandlers"),
    setting!("enable-server", Bool, "enableServer"),
    setting!("enforce-node-allocatable", List, "enforceNodeAllocatable"),
    setting!("event-burst", Int, "eventBurst"),
    setting!("event-qps", Int, "eventRecordQPS"),
    setting!("eviction-hard", Thresholds, "evictionHard"),
    setting!("eviction-max-pod-grace-period", Int, "evictionMaxPodGracePeriod"),
    setting!("eviction-minimum-reclaim", Map, "evictionMinimumReclaim"),
    setting!("eviction-pressure-transition-period", Text, "evictionPressureTransitionPeriod"),
    setting!("eviction-soft", Thresholds, "evictionSoft"),
    setting!("eviction-soft-grace-period", Map, "evictionSoftGracePeriod"),
    unfinished("exit-on-lock-contention", "lock files are not supported"),
    setting!("fail-cgroupv1", Bool, "failCgroupV1"),
    setting!("fail-swap-on", Bool, "failSwapOn"),
    setting!("feature-gates", Gates, "featureGates"),
    setting!("file-check-frequency", Text, "fileCheckFrequency"),
    setting!("hairpin-mode", Text, "hairpinMode"),
    setting!("healthz-bind-address", Text, "healthzBindAddress"),
    setting!("healthz-port", Int, "healthzPort"),
    flag("hostname-override", "the node's name [the machine's]", |flags: &mut Flags, value| {
        flags.hostname_override = text(value)?.trim().to_string();
        Ok(())
    }),
    setting!("http-check-frequency", Text, "httpCheckFrequency"),
    file!(
        "image-credential-provider-bin-dir",
        "directory of image credential provider plugins",
        credential_provider_bin_dir
    ),
    file!("image-credential-provider-config", "a file with a CredentialProviderConfig", credential_provider_config),
    setting!("image-gc-high-threshold", Int, "imageGCHighThresholdPercent"),
    setting!("image-gc-low-threshold", Int, "imageGCLowThresholdPercent"),
    setting!("image-service-endpoint", Text, "imageServiceEndpoint"),
    setting!("kernel-memcg-notification", Bool, "kernelMemcgNotification"),
    setting!("kube-api-burst", Int, "kubeAPIBurst"),
    setting!("kube-api-content-type", Text, "contentType"),
    setting!("kube-api-qps", Int, "kubeAPIQPS"),
    setting!("kube-reserved", Map, "kubeReserved"),
    setting!("kube-reserved-cgroup", Text, "kubeReservedCgroup"),
    file!("kubeconfig", "a kubeconfig of the API server", kubeconfig),
    setting!("kubelet-cgroups", Text, "kubeletCgroups"),
    setting!("local-storage-capacity-isolation", Bool, "localStorageCapacityIsolation"),
    unfinished("lock-file", "lock files are not supported"),
    setting!("logging-format", Text, "logging.format"),
    setting!("make-iptables-util-chains", Bool, "makeIPTablesUtilChains"),
    setting!("manifest-url", Text, "staticPodURL"),
    setting!("manifest-url-header", Headers, "staticPodURLHeader"),
    setting!("max-open-files", Int, "maxOpenFiles"),
    setting!("max-pods", Int, "maxPods"),
    flag(
        "maximum-dead-containers",
        "maximum dead containers on the node; -1 for no limit",
        |flags: &mut Flags, value| {
            flags.container_gc.most = number_or_any(value)?;
            Ok(())
        },
    ),
    flag(
        "maximum-dead-containers-per-container",
        "maximum dead instances per container; -1 for no limit",
        |flags: &mut Flags, value| {
            flags.container_gc.per_container = number_or_any(value)?;
            Ok(())
        },
    ),
    setting!("memory-manager-policy", Text, "memoryManagerPolicy"),
    flag(
        "minimum-container-ttl-duration",
        "minimum age of a dead container before it is removed",
        |flags: &mut Flags, value| {
            let nanos =
                api::time::parse_duration(value).map_err(|_| format!("{value:?} is not a duration such as 1m"))?;
            let nanos = u64::try_from(nanos).map_err(|_| format!("{value:?} must not be negative"))?;
            flags.container_gc.minimum_age = Duration::from_nanos(nanos);
            Ok(())
        },
    ),
    setting!("minimum-image-ttl-duration", Text, "imageMinimumGCAge"),
    flag("node-ip", "the node's IP address, or one per IP family", |flags: &mut Flags, value| {
        flags.node_ips = addresses(value)?;
        Ok(())
    }),
    flag("node-labels", "labels to register with: `a=b,c=d`", |flags: &mut Flags, value| {
        flags.node_labels.extend(labels(value)?);
        Ok(())
    }),
    setting!("node-status-max-images", Int, "nodeStatusMaxImages"),
    setting!("node-status-update-frequency", Text, "nodeStatusUpdateFrequency"),
    setting!("oom-score-adj", Int, "oomScoreAdj"),
    setting!("pod-cidr", Text, "podCIDR"),
    flag("pod-infra-container-image", "an image that garbage collection keeps", |flags: &mut Flags, value| {
        flags.pod_infra_image = Some(value.to_string()).filter(|image| !image.is_empty());
        Ok(())
    }),
    setting!("pod-manifest-path", Text, "staticPodPath"),
    setting!("pod-max-pids", Int, "podPidsLimit"),
    setting!("pods-per-core", Int, "podsPerCore"),
    setting!("port", Int, "port"),
    setting!("protect-kernel-defaults", Bool, "protectKernelDefaults"),
    setting!("provider-id", Text, "providerID"),
    setting!("qos-reserved", Map, "qosReserved"),
    setting!("read-only-port", Int, "readOnlyPort"),
    setting!("register-node", Bool, "registerNode"),
    crate::flags::switch(
        "register-schedulable",
        "register the node as schedulable [true]",
        |flags: &mut Flags, value| {
            flags.is_unschedulable = !crate::flags::values::boolean(value)?;
            Ok(())
        },
    ),
    setting!("register-with-taints", Taints, "registerWithTaints"),
    setting!("registry-burst", Int, "registryBurst"),
    setting!("registry-qps", Int, "registryPullQPS"),
    setting!("reserved-cpus", Text, "reservedSystemCPUs"),
    setting!("reserved-memory", Memory, "reservedMemory"),
    setting!("resolv-conf", Text, "resolvConf"),
    file!("root-dir", "directory of the kubelet's files [/var/lib/kubelet]", root_dir),
    setting!("rotate-certificates", Bool, "rotateCertificates"),
    setting!("rotate-server-certificates", Bool, "serverTLSBootstrap"),
    setting!("runonce", Bool, "runOnce"),
    unfinished("runtime-cgroups", "the kubelet does not move host processes"),
    setting!("runtime-request-timeout", Text, "runtimeRequestTimeout"),
    setting!("seccomp-default", Bool, "seccompDefault"),
    setting!("serialize-image-pulls", Bool, "serializeImagePulls"),
    setting!("streaming-connection-idle-timeout", Text, "streamingConnectionIdleTimeout"),
    setting!("sync-frequency", Text, "syncFrequency"),
    setting!("system-cgroups", Text, "systemCgroups"),
    setting!("system-reserved", Map, "systemReserved"),
    setting!("system-reserved-cgroup", Text, "systemReservedCgroup"),
    setting!("tls-cert-file", Text, "tlsCertFile"),
    setting!("tls-cipher-suites", List, "tlsCipherSuites"),
    setting!("tls-min-version", Text, "tlsMinVersion"),
    setting!("tls-private-key-file", Text, "tlsPrivateKeyFile"),
    setting!("topology-manager-policy", Text, "topologyManagerPolicy"),
    setting!("topology-manager-policy-options", Map, "topologyManagerPolicyOptions"),
    setting!("topology-manager-scope", Text, "topologyManagerScope"),
    setting!("v", Int, "logging.verbosity"),
    setting!("volume-plugin-dir", Text, "volumePluginDir"),
    setting!("volume-stats-agg-period", Text, "volumeStatsAggPeriod"),
];

static PARTS: &[&[Flag<Flags>]] = &[FLAGS];

/// Why a value of a flag of the kubelet is refused.
#[derive(Debug, thiserror::Error)]
pub enum NodeFlagError {
    #[error("{0:?} is not an integer")]
    Integer(String),
    #[error("{0:?} is not an IP address")]
    Address(String),
    #[error("{0:?}: expected one address, or one per IP family")]
    Families(String),
    #[error("{entry:?}: {problem}")]
    Label { entry: String, problem: String },
    #[error(
        "unknown 'kubernetes.io' or 'k8s.io' label: {0}; such labels must begin with an allowed prefix \
         (kubelet.kubernetes.io, node.kubernetes.io) or be one of {allowed}",
        allowed = FOLLOWED.join(", ")
    )]
    ReservedLabel(String),
}

/// None if the number is negative.
fn number_or_any(value: &str) -> std::result::Result<Option<usize>, NodeFlagError> {
    let number: i64 = value.parse().map_err(|_| NodeFlagError::Integer(value.to_string()))?;
    Ok(usize::try_from(number).ok())
}

/// At most one of each family.
pub fn addresses(value: &str) -> std::result::Result<Vec<IpAddr>, NodeFlagError> {
    let read = |text: &str| text.parse::<IpAddr>().map_err(|_| NodeFlagError::Address(text.to_string()));
    let addresses = value.split(',').map(str::trim).filter(|text| !text.is_empty()).map(read);
    let addresses = addresses.collect::<std::result::Result<Vec<IpAddr>, _>>()?;
    match addresses.as_slice() {
        [] | [_] => Ok(addresses),
        [one, other] if one.is_ipv4() != other.is_ipv4() => Ok(addresses),
        _ => Err(NodeFlagError::Families(value.to_string())),
    }
}

/// Labels that a node may set on itself; other reserved labels are for administrators.
pub fn labels(value: &str) -> std::result::Result<Vec<(String, String)>, NodeFlagError> {
    let mut labels = Vec::new();
    for entry in value.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (key, value) = entry.split_once('=').unwrap_or((entry, ""));
        let problems = api::validation::qualified_name(key).into_iter();
        if let Some(problem) = problems.chain(api::validation::label_value(value)).next() {
            return Err(NodeFlagError::Label { entry: entry.to_string(), problem });
        }
        if is_reserved(key) {
            return Err(NodeFlagError::ReservedLabel(key.to_string()));
        }
        labels.push((key.to_string(), value.to_string()));
    }
    Ok(labels)
}

/// Whether the admission plugin NodeRestriction forbids a node to set this label on itself.
fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let below = |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    let ours = FOLLOWED.contains(&key) || below("kubelet.kubernetes.io") || below("node.kubernetes.io");
    (below("kubernetes.io") || below("k8s.io")) && !ours
}

/// Parses the flags of the kubelet.
pub fn parse(arguments: &[String]) -> Result<Flags> {
    crate::flags::parse(PARTS, arguments)
}

/// The help of the kubelet.
pub fn help() -> String {
    crate::flags::help(super::NAME, "The kubelet alone, with upstream's flags", PARTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::testing;

    /// The flags of kubeadm's unit and its environment file, including those of older releases.
    const KUBEADM: &[&str] = &[
        "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
        "--kubeconfig=/etc/kubernetes/kubelet.conf",
        "--config=/var/lib/kubelet/config.yaml",
        "--container-runtime=remote",
        "--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
        "--pod-infra-container-image=registry.example/pause:3.10",
        "--hostname-override=n1",
        "--node-ip=10.0.0.5,fd00::5",
        "--node-labels=disk=fast,node.kubernetes.io/pool=a",
        "--register-with-taints=node-role.kubernetes.io/control-plane:NoSchedule",
        "--cgroup-driver=systemd",
        "--v=2",
    ];

    fn read(arguments: &[&str]) -> std::result::Result<Flags, String> {
        testing::read(parse, arguments)
    }

    #[test]
    fn accepts_the_flags_of_kubeadm() {
        let flags = read(KUBEADM).expect("flags");
        assert_eq!(flags.hostname_override, "n1");
        assert_eq!((flags.node_ips.len(), flags.node_labels.len()), (2, 2));
        assert_eq!(flags.pod_infra_image.as_deref(), Some("registry.example/pause:3.10"));
        let fields = &flags.overlay.0;
        assert_eq!(fields.str("cgroupDriver"), "systemd");
        assert_eq!(fields.str("containerRuntimeEndpoint"), "unix:///run/containerd/containerd.sock");
        assert_eq!(fields.list("registerWithTaints")[0].str("effect"), "NoSchedule");
        assert_eq!(fields.int("logging.verbosity"), Some(2));
    }

    #[test]
    fn rejects_other_flags_by_name() {
        let cases = [
            ("--no-such-flag=1", "unknown flag: --no-such-flag"),
            ("--network-plugin=cni", "unknown flag: --network-plugin"),
            ("--container-runtime=docker", "invalid flag --container-runtime"),
            ("--node-ip=10.0.0.1,10.0.0.2", "invalid flag --node-ip"),
            ("--node-labels=node-role.kubernetes.io/worker=", "unknown 'kubernetes.io' or 'k8s.io' label"),
            ("--node-labels=a b=c", "invalid flag --node-labels"),
            ("--register-with-taints=a", "invalid taint spec: a"),
            ("--max-pods=x", "invalid flag --max-pods: \"x\" is not an integer"),
            ("--cloud-provider=aws", "unknown cloud provider \"aws\""),
            ("--lock-file=/x", "invalid flag --lock-file: lock files are not supported"),
        ];
        testing::check_refused(parse, &cases);
    }

    #[test]
    fn flag_table_is_sorted_and_printed() {
        testing::check_sorted(&[FLAGS]);
        assert!(help().contains("--bootstrap-kubeconfig"));
    }
}
