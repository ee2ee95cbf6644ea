//! The flags of `kube-controller-manager`: one table. A flag is honoured, or refused by its name.

use std::net::IpAddr;
use std::path::PathBuf;

use client::election::Timing;
use controllers::Options;

use crate::apiserver::values::{boolean, cidrs, duration, list, parsed};
use crate::error::Result;
use crate::flags::{Flag, flag, switch, unfinished};
use crate::logs::{Format, Level};

/// What the flags say.
pub struct Flags {
    pub kubeconfig: Option<PathBuf>,
    pub authentication_kubeconfig: Option<PathBuf>,
    pub authorization_kubeconfig: Option<PathBuf>,
    pub always_allow_paths: Vec<String>,
    pub bind_address: IpAddr,
    pub secure_port: u16,
    pub tls_cert_file: Option<PathBuf>,
    pub tls_private_key_file: Option<PathBuf>,
    pub client_ca_file: Option<PathBuf>,
    pub proxy_ca_file: Option<PathBuf>,
    pub proxy_allowed_names: Vec<String>,
    pub proxy_headers: server::auth::request_header::Names,
    pub controllers: Vec<String>,
    pub use_service_account_credentials: bool,
    pub leader_elect: bool,
    pub timing: Timing,
    pub lease_namespace: String,
    pub lease_name: String,
    pub root_ca_file: Option<PathBuf>,
    pub service_account_private_key_file: Option<PathBuf>,
    /// For all signers, and for each alone.
    pub signing: SigningFiles,
    pub kubelet_serving: SigningFiles,
    pub kubelet_client: SigningFiles,
    pub kube_apiserver_client: SigningFiles,
    pub legacy_unknown: SigningFiles,
    pub options: Options,
    pub log_format: Format,
    pub log_level: Level,
}

/// Where a certificate and its key are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SigningFiles {
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

impl Default for Flags {
    fn default() -> Flags {
        Flags {
            kubeconfig: None,
            authentication_kubeconfig: None,
            authorization_kubeconfig: None,
            always_allow_paths: ["/healthz", "/readyz", "/livez"].map(str::to_string).into(),
            bind_address: IpAddr::from([0, 0, 0, 0]),
            secure_port: 10257,
            tls_cert_file: None,
            tls_private_key_file: None,
            client_ca_file: None,
            proxy_ca_file: None,
            proxy_allowed_names: Vec::new(),
            proxy_headers: server::auth::request_header::Names::usual(),
            controllers: vec!["*".to_string()],
            use_service_account_credentials: false,
            leader_elect: true,
            timing: Timing::default(),
            lease_namespace: "kube-system".to_string(),
            lease_name: "kube-controller-manager".to_string(),
            root_ca_file: None,
            service_account_private_key_file: None,
            signing: SigningFiles::default(),
            kubelet_serving: SigningFiles::default(),
            kubelet_client: SigningFiles::default(),
            kube_apiserver_client: SigningFiles::default(),
            legacy_unknown: SigningFiles::default(),
            options: Options::default(),
            log_format: Format::Text,
            log_level: Level::Info,
        }
    }
}

/// A flag whose value is read by a function and kept in a field.
macro_rules! field {
    ($name:literal, $help:literal, $read:path, $($place:ident).+) => {
        flag($name, $help, |flags: &mut Flags, value| {
            flags.$($place).+ = $read(value)?;
            Ok(())
        })
    };
}

macro_rules! on_off {
    ($name:literal, $help:literal, $($place:ident).+) => {
        switch($name, $help, |flags: &mut Flags, value| {
            flags.$($place).+ = boolean(value)?;
            Ok(())
        })
    };
}

macro_rules! file {
    ($name:literal, $help:literal, $($place:ident).+) => {
        flag($name, $help, |flags: &mut Flags, value| {
            flags.$($place).+ = Some(value.into()).filter(|_| !value.is_empty());
            Ok(())
        })
    };
}

fn text(value: &str) -> Result<String, String> {
    Ok(value.to_string())
}

fn texts(value: &str) -> Result<Vec<String>, String> {
    Ok(list(value))
}

fn ranges(value: &str) -> Result<Vec<String>, String> {
    Ok(cidrs(value)?.into_iter().map(|(network, bits)| format!("{network}/{bits}")).collect())
}

/// At least one.
fn count(value: &str) -> Result<usize, String> {
    match parsed(value)? {
        0 => Err("it must be at least 1".to_string()),
        count => Ok(count),
    }
}

const CLOUD: &str = "there is no cloud provider";

/// Sorted by name.
static FLAGS: &[Flag<Flags>] = &[
    on_off!(
        "allocate-node-cidrs",
        "give each node a range of addresses for its pods [false]",
        options.allocate_node_cidrs
    ),
    field!(
        "attach-detach-reconcile-sync-period",
        "between two looks at attached volumes [1m]",
        duration,
        options.attach_detach_reconcile_sync_period
    ),
    file!(
        "authentication-kubeconfig",
        "the API server that knows tokens shown to this port",
        authentication_kubeconfig
    ),
    file!("authorization-kubeconfig", "the API server that knows who may ask this port", authorization_kubeconfig),
    field!(
        "authorization-always-allow-paths",
        "what everybody may ask for [/healthz,/readyz,/livez]",
        texts,
        always_allow_paths
    ),
    field!("bind-address", "the address to listen on [0.0.0.0]", parsed, bind_address),
    file!("client-ca-file", "who signs the certificates of those who ask this port", client_ca_file),
    unfinished("cloud-config", CLOUD),
    flag("cloud-provider", "only \"\" and external: there is none here", |_, value| match value {
        "" | "external" => Ok(()),
        _ => Err(CLOUD.to_string()),
    }),
    field!("cluster-cidr", "where pods get their addresses from", ranges, options.cluster_cidr),
    field!("cluster-name", "the name of the cluster [kubernetes]", text, options.cluster_name),
    file!("cluster-signing-cert-file", "the certificate that signs those that are asked for", signing.certificate),
    field!(
        "cluster-signing-duration",
        "how long they are good for [8760h]",
        duration,
        options.cluster_signing_duration
    ),
    file!("cluster-signing-key-file", "its key", signing.key),
    file!(
        "cluster-signing-kube-apiserver-client-cert-file",
        "the same for kubernetes.io/kube-apiserver-client",
        kube_apiserver_client.certificate
    ),
    file!("cluster-signing-kube-apiserver-client-key-file", "its key", kube_apiserver_client.key),
    file!(
        "cluster-signing-kubelet-client-cert-file",
        "the same for kubernetes.io/kube-apiserver-client-kubelet",
        kubelet_client.certificate
    ),
    file!("cluster-signing-kubelet-client-key-file", "its key", kubelet_client.key),
    file!(
        "cluster-signing-kubelet-serving-cert-file",
        "the same for kubernetes.io/kubelet-serving",
        kubelet_serving.certificate
    ),
    file!("cluster-signing-kubelet-serving-key-file", "its key", kubelet_serving.key),
    file!(
        "cluster-signing-legacy-unknown-cert-file",
        "the same for kubernetes.io/legacy-unknown",
        legacy_unknown.certificate
    ),
    file!("cluster-signing-legacy-unknown-key-file", "its key", legacy_unknown.key),
    field!("concurrent-cron-job-syncs", "how many at a time [5]", count, options.concurrent_cron_job_syncs),
    field!("concurrent-daemonset-syncs", "how many at a time [2]", count, options.concurrent_daemonset_syncs),
    field!("concurrent-deployment-syncs", "how many at a time [5]", count, options.concurrent_deployment_syncs),
    field!("concurrent-endpoint-syncs", "how many at a time [5]", count, options.concurrent_endpoint_syncs),
    field!(
        "concurrent-ephemeralvolume-syncs",
        "how many at a time [5]",
        count,
        options.concurrent_ephemeralvolume_syncs
    ),
    field!("concurrent-gc-syncs", "how many at a time [20]", count, options.concurrent_gc_syncs),
    field!(
        "concurrent-horizontal-pod-autoscaler-syncs",
        "how many at a time [5]",
        count,
        options.concurrent_horizontal_pod_autoscaler_syncs
    ),
    field!("concurrent-job-syncs", "how many at a time [5]", count, options.concurrent_job_syncs),
    field!("concurrent-namespace-syncs", "how many at a time [10]", count, options.concurrent_namespace_syncs),
    field!("concurrent-rc-syncs", "how many at a time [5]", count, options.concurrent_rc_syncs),
    field!("concurrent-replicaset-syncs", "how many at a time [5]", count, options.concurrent_replicaset_syncs),
    field!("concurrent-resource-quota-syncs", "how many at a time [5]", count, options.concurrent_resource_quota_syncs),
    field!(
        "concurrent-service-endpoint-syncs",
        "how many at a time [5]",
        count,
        options.concurrent_service_endpoint_syncs
    ),
    field!("concurrent-service-syncs", "how many at a time [1]", count, options.concurrent_service_syncs),
    field!(
        "concurrent-serviceaccount-token-syncs",
        "how many at a time [5]",
        count,
        options.concurrent_serviceaccount_token_syncs
    ),
    field!("concurrent-statefulset-syncs", "how many at a time [5]", count, options.concurrent_statefulset_syncs),
    field!(
        "concurrent-ttl-after-finished-syncs",
        "how many at a time [5]",
        count,
        options.concurrent_ttl_after_finished_syncs
    ),
    field!(
        "concurrent-validating-admission-policy-status-syncs",
        "how many at a time [5]",
        count,
        options.concurrent_validating_admission_policy_status_syncs
    ),
    on_off!("configure-cloud-routes", "make routes of node ranges [true]", options.configure_cloud_routes),
    flag(
        "controllers",
        "* for all, a name for one, -name for all but it; old names too [*]",
        |flags: &mut Flags, value| {
            flags.controllers = list(value);
            controllers::check(&flags.controllers)
        },
    ),
    on_off!(
        "disable-attach-detach-reconcile-sync",
        "do not look at attached volumes again [false]",
        options.disable_attach_detach_reconcile_sync
    ),
    on_off!("enable-dynamic-provisioning", "make volumes for claims [true]", options.enable_dynamic_provisioning),
    on_off!("enable-garbage-collector", "delete what nobody owns any more [true]", options.enable_garbage_collector),
    field!(
        "endpoint-updates-batch-period",
        "how long changes of endpoints are gathered [0s]",
        duration,
        options.endpoint_updates_batch_period
    ),
    field!(
        "endpointslice-updates-batch-period",
        "the same for slices [0s]",
        duration,
        options.endpointslice_updates_batch_period
    ),
    flag("feature-gates", "only what is so already: gates cannot be turned here", |_, value| match value {
        "" => Ok(()),
        _ => Err("no feature can be turned on or off".to_string()),
    }),
    flag("flex-volume-plugin-dir", "only \"\": there are no flex volumes", |_, value| match value {
        "" => Ok(()),
        _ => Err("there are no flex volumes".to_string()),
    }),
    field!(
        "horizontal-pod-autoscaler-cpu-initialization-period",
        "CPU of young pods does not count for so long [5m]",
        duration,
        options.horizontal_pod_autoscaler_cpu_initialization_period
    ),
    field!(
        "horizontal-pod-autoscaler-downscale-stabilization",
        "how long it looks back before it scales down [5m]",
        duration,
        options.horizontal_pod_autoscaler_downscale_stabilization
    ),
    field!(
        "horizontal-pod-autoscaler-initial-readiness-delay",
        "when a pod is taken as ready at first [30s]",
        duration,
        options.horizontal_pod_autoscaler_initial_readiness_delay
    ),
    field!(
        "horizontal-pod-autoscaler-sync-period",
        "between two looks at metrics [15s]",
        duration,
        options.horizontal_pod_autoscaler_sync_period
    ),
    field!(
        "horizontal-pod-autoscaler-tolerance",
        "what change is none [0.1]",
        parsed,
        options.horizontal_pod_autoscaler_tolerance
    ),
    file!("kubeconfig", "the API server, and who we are there", kubeconfig),
    field!(
        "large-cluster-size-threshold",
        "from so many nodes on evictions go on in a bad zone [50]",
        parsed,
        options.large_cluster_size_threshold
    ),
    on_off!("leader-elect", "work only while holding the lease [true]", leader_elect),
    field!("leader-elect-lease-duration", "how long others wait for a leader [15s]", duration, timing.lease_duration),
    field!("leader-elect-renew-deadline", "how long a leader tries to stay [10s]", duration, timing.renew_deadline),
    flag("leader-elect-resource-lock", "only leases", |_, value| match value {
        "leases" => Ok(()),
        _ => Err("there are only leases".to_string()),
    }),
    field!("leader-elect-resource-name", "the lease [kube-controller-manager]", text, lease_name),
    field!("leader-elect-resource-namespace", "its namespace [kube-system]", text, lease_namespace),
    field!("leader-elect-retry-period", "between two tries [2s]", duration, timing.retry_period),
    field!(
        "legacy-service-account-token-clean-up-period",
        "how long unused tokens in secrets stay [8760h]",
        duration,
        options.legacy_service_account_token_clean_up_period
    ),
    flag("logging-format", "text or json [text]", |flags: &mut Flags, value| {
        flags.log_format = match value {
            "text" => Format::Text,
            "json" => Format::Json,
            _ => return Err(format!("unknown format {value:?}; there are text and json")),
        };
        Ok(())
    }),
    field!("max-endpoints-per-slice", "as many endpoints are in a slice [100]", count, options.max_endpoints_per_slice),
    field!(
        "mirroring-concurrent-service-endpoint-syncs",
        "how many at a time [5]",
        count,
        options.mirroring_concurrent_service_endpoint_syncs
    ),
    field!(
        "mirroring-endpointslice-updates-batch-period",
        "how long changes of endpoints are gathered [0s]",
        duration,
        options.mirroring_endpointslice_updates_batch_period
    ),
    field!(
        "mirroring-max-endpoints-per-subset",
        "as many are mirrored of a subset [1000]",
        count,
        options.mirroring_max_endpoints_per_subset
    ),
    field!("namespace-sync-period", "between two looks at namespaces [5m]", duration, options.namespace_sync_period),
    field!("node-cidr-mask-size-ipv4", "the size of a node's range [24]", parsed, options.node_cidr_mask_size_ipv4),
    field!("node-cidr-mask-size-ipv6", "the same of IPv6 [64]", parsed, options.node_cidr_mask_size_ipv6),
    field!("node-eviction-rate", "nodes a second that lose their pods [0.1]", parsed, options.node_eviction_rate),
    field!(
        "node-monitor-grace-period",
        "how long a node may be silent [50s]",
        duration,
        options.node_monitor_grace_period
    ),
    field!("node-monitor-period", "between two looks at nodes [5s]", duration, options.node_monitor_period),
    field!(
        "node-startup-grace-period",
        "the same for a node that starts [1m]",
        duration,
        options.node_startup_grace_period
    ),
    field!(
        "pvclaimbinder-sync-period",
        "between two looks at claims [15s]",
        duration,
        options.pvclaimbinder_sync_period
    ),
    field!("requestheader-allowed-names", "names of proxies; any where there are none", texts, proxy_allowed_names),
    file!("requestheader-client-ca-file", "who signs the certificates of proxies that speak for others", proxy_ca_file),
    field!(
        "requestheader-extra-headers-prefix",
        "what they name further things by [X-Remote-Extra-]",
        texts,
        proxy_headers.extra_prefixes
    ),
    field!("requestheader-group-headers", "what they name groups by [X-Remote-Group]", texts, proxy_headers.groups),
    field!("requestheader-uid-headers", "what they name uids by [X-Remote-Uid]", texts, proxy_headers.uid),
    field!("requestheader-username-headers", "what they name users by [X-Remote-User]", texts, proxy_headers.username),
    field!("resource-quota-sync-period", "between two full counts [5m]", duration, options.resource_quota_sync_period),
    file!("root-ca-file", "what verifies the API server, published in every namespace", root_ca_file),
    field!(
        "secondary-node-eviction-rate",
        "the same in a zone that is unwell [0.01]",
        parsed,
        options.secondary_node_eviction_rate
    ),
    field!("secure-port", "the port of health and metrics; 0 for none [10257]", parsed, secure_port),
    file!("service-account-private-key-file", "the key that signs tokens in secrets", service_account_private_key_file),
    field!(
        "service-cluster-ip-range",
        "where services get their addresses from",
        ranges,
        options.service_cluster_ip_range
    ),
    field!(
        "terminated-pod-gc-threshold",
        "as many ended pods stay; 0 for all [12500]",
        parsed,
        options.terminated_pod_gc_threshold
    ),
    file!("tls-cert-file", "the certificate of this port; without it one is made", tls_cert_file),
    file!("tls-private-key-file", "its key", tls_private_key_file),
    field!(
        "unhealthy-zone-threshold",
        "the part of lost nodes that makes a zone unwell [0.55]",
        parsed,
        options.unhealthy_zone_threshold
    ),
    on_off!(
        "use-service-account-credentials",
        "each controller acts as its own service account [false]",
        use_service_account_credentials
    ),
    flag("v", "how much is logged [0]", |flags: &mut Flags, value| {
        flags.log_level = Level::of_verbosity(parsed(value)?);
        Ok(())
    }),
];

pub fn parse(arguments: &[String]) -> Result<Flags> {
    crate::flags::parse(&[FLAGS], arguments)
}

pub fn help() -> String {
    crate::flags::help("kube-controller-manager", "The controllers alone, with upstream's flags", &[FLAGS])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What kubeadm writes into its static pod.
    const KUBEADM: &[&str] = &[
        "--allocate-node-cidrs=true",
        "--authentication-kubeconfig=/etc/kubernetes/controller-manager.conf",
        "--authorization-kubeconfig=/etc/kubernetes/controller-manager.conf",
        "--bind-address=127.0.0.1",
        "--client-ca-file=/etc/kubernetes/pki/ca.crt",
        "--cluster-cidr=10.244.0.0/16",
        "--cluster-name=kubernetes",
        "--cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt",
        "--cluster-signing-key-file=/etc/kubernetes/pki/ca.key",
        "--controllers=*,bootstrapsigner,tokencleaner",
        "--kubeconfig=/etc/kubernetes/controller-manager.conf",
        "--leader-elect=true",
        "--requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt",
        "--root-ca-file=/etc/kubernetes/pki/ca.crt",
        "--service-account-private-key-file=/etc/kubernetes/pki/sa.key",
        "--service-cluster-ip-range=10.96.0.0/12",
        "--use-service-account-credentials=true",
    ];

    fn read(arguments: &[&str]) -> std::result::Result<Flags, String> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        parse(&arguments).map_err(|error| error.describe())
    }

    #[test]
    fn what_kubeadm_writes_is_honoured() {
        let flags = read(KUBEADM).expect("flags");
        assert!(flags.options.allocate_node_cidrs && flags.leader_elect && flags.use_service_account_credentials);
        assert_eq!(flags.options.cluster_cidr, ["10.244.0.0/16"]);
        assert_eq!(flags.controllers.len(), 3);
        assert_eq!(flags.signing.key, Some("/etc/kubernetes/pki/ca.key".into()));
    }

    #[test]
    fn the_rest_is_refused_by_name() {
        let cases = [
            ("--no-such-flag=1", "unknown flag: --no-such-flag"),
            ("--controllers=nonsense", "--controllers cannot be honoured: \"nonsense\""),
            ("--concurrent-gc-syncs=0", "--concurrent-gc-syncs cannot be honoured: it must be at least 1"),
            ("--cloud-provider=aws", "--cloud-provider cannot be honoured: there is no cloud provider"),
            ("--cloud-config=x", "--cloud-config cannot be honoured"),
            ("--feature-gates=X=true", "--feature-gates cannot be honoured"),
            ("--node-monitor-period=5", "--node-monitor-period cannot be honoured: invalid duration"),
        ];
        for (argument, want) in cases {
            let error = read(&[argument]).err().expect("refused");
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn the_table_is_sorted_and_shown() {
        let names: Vec<&str> = FLAGS.iter().map(|flag| flag.name).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(names, sorted);
        assert!(help().contains("--use-service-account-credentials"));
    }
}
