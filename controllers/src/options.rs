//! The options of the controllers with upstream's defaults. Each field is the flag of kube-controller-manager with
//! the same name.

use std::ops::RangeInclusive;
use std::time::Duration;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Declares each option together with its default.
macro_rules! options {
    ($($(#[$doc:meta])* $name:ident: $ty:ty = $default:expr;)*) => {
        /// The options of all controllers, by the names of upstream's flags.
        #[derive(Debug, Clone)]
        pub struct Options {
            $($(#[$doc])* pub $name: $ty,)*
        }

        impl Default for Options {
            fn default() -> Options {
                Options { $($name: $default,)* }
            }
        }
    };
}

options! {
    /// The CA bundle that verifies the API server inside the cluster, in PEM.
    root_ca: String = String::new();
    /// The key that signs service account tokens, in PEM; empty if tokens are not signed.
    service_account_private_key: String = String::new();
    /// The CA of each signer.
    cluster_signing: Signers = Signers::default();
    cluster_signing_duration: Duration = seconds(8760 * 3600);
    cluster_name: String = "kubernetes".to_string();
    allocate_node_cidrs: bool = false;
    /// One CIDR for each IP family, such as `10.244.0.0/16`.
    cluster_cidr: Vec<String> = Vec::new();
    service_cluster_ip_range: Vec<String> = Vec::new();
    /// A flag of the API server, for the controllers that it runs.
    service_node_ports: RangeInclusive<u16> = 30000..=32767;
    node_cidr_mask_size_ipv4: u8 = 24;
    node_cidr_mask_size_ipv6: u8 = 64;

    concurrent_cron_job_syncs: usize = 5;
    concurrent_resource_claim_syncs: usize = 50;
    concurrent_device_taint_eviction_syncs: usize = 50;
    concurrent_daemonset_syncs: usize = 2;
    concurrent_deployment_syncs: usize = 5;
    concurrent_disruption_syncs: usize = 1;
    concurrent_disruption_stalepod_syncs: usize = 1;
    concurrent_endpoint_syncs: usize = 5;
    concurrent_ephemeralvolume_syncs: usize = 5;
    concurrent_gc_syncs: usize = 20;
    concurrent_horizontal_pod_autoscaler_syncs: usize = 5;
    concurrent_job_syncs: usize = 5;
    concurrent_namespace_syncs: usize = 10;
    concurrent_rc_syncs: usize = 5;
    concurrent_replicaset_syncs: usize = 5;
    concurrent_resource_quota_syncs: usize = 5;
    concurrent_service_endpoint_syncs: usize = 5;
    concurrent_service_syncs: usize = 1;
    concurrent_validating_admission_policy_status_syncs: usize = 5;
    concurrent_serviceaccount_token_syncs: usize = 5;
    concurrent_statefulset_syncs: usize = 5;
    concurrent_ttl_after_finished_syncs: usize = 5;
    mirroring_concurrent_service_endpoint_syncs: usize = 5;

    /// All objects are resynced from the cache at intervals between this and twice as much.
    min_resync_period: Duration = seconds(12 * 3600);
    enable_garbage_collector: bool = true;
    resource_quota_sync_period: Duration = seconds(300);
    /// Whether services of type LoadBalancer get the addresses of nodes. Off by default, since it would conflict with
    /// a cloud controller manager; not a flag of upstream, `up` turns it on.
    balance_by_nodes: bool = false;
    /// Whether kubelet serving certificates are approved if they contain only the node's own addresses. Not a flag of
    /// upstream, `up` turns it on.
    approve_kubelet_serving: bool = false;
    /// The directory of local volumes on every node; empty disables the provisioner. Only `up` has this flag.
    local_path_directory: String = String::new();
    terminated_pod_gc_threshold: i64 = 12_500;
    legacy_service_account_token_clean_up_period: Duration = seconds(8760 * 3600);

    node_monitor_grace_period: Duration = seconds(50);
    node_startup_grace_period: Duration = seconds(60);
    /// Nodes per second, in a healthy zone and in an unhealthy one.
    node_eviction_rate: f64 = 0.1;
    secondary_node_eviction_rate: f64 = 0.01;
    /// The fraction of not-ready nodes that makes a zone unhealthy, and the cluster size up to which an unhealthy
    /// zone gets no evictions.
    unhealthy_zone_threshold: f64 = 0.55;
    large_cluster_size_threshold: usize = 50;

    endpoint_updates_batch_period: Duration = Duration::ZERO;
    endpointslice_updates_batch_period: Duration = Duration::ZERO;
    max_endpoints_per_slice: usize = 100;
    mirroring_endpointslice_updates_batch_period: Duration = Duration::ZERO;
    mirroring_max_endpoints_per_subset: usize = 1000;

    horizontal_pod_autoscaler_sync_period: Duration = seconds(15);
    horizontal_pod_autoscaler_tolerance: f64 = 0.1;
    horizontal_pod_autoscaler_downscale_stabilization: Duration = seconds(300);
    horizontal_pod_autoscaler_cpu_initialization_period: Duration = seconds(300);
    horizontal_pod_autoscaler_initial_readiness_delay: Duration = seconds(30);
}

/// A CA certificate and its key, in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signer {
    pub certificate: String,
    pub key: String,
}

/// The CAs by signer; None if requests to that signer are not signed.
#[derive(Debug, Clone, Default)]
pub struct Signers {
    pub kubelet_serving: Option<Signer>,
    pub kubelet_client: Option<Signer>,
    pub kube_apiserver_client: Option<Signer>,
    pub legacy_unknown: Option<Signer>,
}

impl Signers {
    /// These signers, with missing ones taken from `others`.
    pub fn or(self, others: &Signers) -> Signers {
        Signers {
            kubelet_serving: self.kubelet_serving.or_else(|| others.kubelet_serving.clone()),
            kubelet_client: self.kubelet_client.or_else(|| others.kubelet_client.clone()),
            kube_apiserver_client: self.kube_apiserver_client.or_else(|| others.kube_apiserver_client.clone()),
            legacy_unknown: self.legacy_unknown.or_else(|| others.legacy_unknown.clone()),
        }
    }

    /// Uses one CA for every signer.
    pub fn all(signer: Signer) -> Signers {
        Signers {
            kubelet_serving: Some(signer.clone()),
            kubelet_client: Some(signer.clone()),
            kube_apiserver_client: Some(signer.clone()),
            legacy_unknown: Some(signer),
        }
    }
}
