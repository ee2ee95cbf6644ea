//! The flags of the controllers' options.

use super::{Flags, count, ranges};
use crate::component::flags::text;
use crate::flags::Flag;
use crate::flags::values::{duration, parsed};

const POLLS: &str = "controllers do not poll: they watch for changes";

pub(crate) static FLAGS: &[Flag<Flags>] = &[
    on_off!("allocate-node-cidrs", "allocate a pod CIDR to each node [false]", options.allocate_node_cidrs),
    fixed!(flag, "attach-detach-reconcile-sync-period", "1m0s", POLLS),
    field!("cluster-cidr", "CIDR of pods", ranges, options.cluster_cidr),
    field!(
        "cluster-name",
        "cluster name for cloud providers; no cloud provider is built in [kubernetes]",
        text,
        options.cluster_name
    ),
    field!(
        "cluster-signing-duration",
        "maximum validity of signed certificates [8760h]",
        duration,
        options.cluster_signing_duration
    ),
    field!("concurrent-cron-job-syncs", "concurrent syncs [5]", count, options.concurrent_cron_job_syncs),
    field!("concurrent-daemonset-syncs", "concurrent syncs [2]", count, options.concurrent_daemonset_syncs),
    field!("concurrent-deployment-syncs", "concurrent syncs [5]", count, options.concurrent_deployment_syncs),
    field!(
        "concurrent-device-taint-eviction-syncs",
        "concurrent syncs [50]",
        count,
        options.concurrent_device_taint_eviction_syncs
    ),
    field!(
        "concurrent-disruption-stalepod-syncs",
        "concurrent syncs [1]",
        count,
        options.concurrent_disruption_stalepod_syncs
    ),
    field!("concurrent-disruption-syncs", "concurrent syncs [1]", count, options.concurrent_disruption_syncs),
    field!("concurrent-endpoint-syncs", "concurrent syncs [5]", count, options.concurrent_endpoint_syncs),
    field!("concurrent-ephemeralvolume-syncs", "concurrent syncs [5]", count, options.concurrent_ephemeralvolume_syncs),
    field!("concurrent-gc-syncs", "concurrent syncs [20]", count, options.concurrent_gc_syncs),
    field!(
        "concurrent-horizontal-pod-autoscaler-syncs",
        "concurrent syncs [5]",
        count,
        options.concurrent_horizontal_pod_autoscaler_syncs
    ),
    field!("concurrent-job-syncs", "concurrent syncs [5]", count, options.concurrent_job_syncs),
    field!("concurrent-namespace-syncs", "concurrent syncs [10]", count, options.concurrent_namespace_syncs),
    field!("concurrent-rc-syncs", "concurrent syncs [5]", count, options.concurrent_rc_syncs),
    field!("concurrent-replicaset-syncs", "concurrent syncs [5]", count, options.concurrent_replicaset_syncs),
    field!("concurrent-resource-quota-syncs", "concurrent syncs [5]", count, options.concurrent_resource_quota_syncs),
    field!("concurrent-resourceclaim-syncs", "concurrent syncs [50]", count, options.concurrent_resource_claim_syncs),
    field!(
        "concurrent-service-endpoint-syncs",
        "concurrent syncs [5]",
        count,
        options.concurrent_service_endpoint_syncs
    ),
    field!("concurrent-service-syncs", "concurrent syncs [1]", count, options.concurrent_service_syncs),
    field!(
        "concurrent-serviceaccount-token-syncs",
        "concurrent syncs [5]",
        count,
        options.concurrent_serviceaccount_token_syncs
    ),
    field!("concurrent-statefulset-syncs", "concurrent syncs [5]", count, options.concurrent_statefulset_syncs),
    field!(
        "concurrent-ttl-after-finished-syncs",
        "concurrent syncs [5]",
        count,
        options.concurrent_ttl_after_finished_syncs
    ),
    field!(
        "concurrent-validating-admission-policy-status-syncs",
        "concurrent syncs [5]",
        count,
        options.concurrent_validating_admission_policy_status_syncs
    ),
    fixed!(switch, "configure-cloud-routes", "true", "no cloud provider is built in"),
    fixed!(switch, "disable-attach-detach-reconcile-sync", "false", POLLS),
    fixed!(
        switch,
        "enable-dynamic-provisioning",
        "true",
        "it cannot be disabled; disable the controller local-path-provisioner instead"
    ),
    on_off!(
        "enable-garbage-collector",
        "delete objects whose owners are deleted [true]",
        options.enable_garbage_collector
    ),
    field!(
        "endpoint-updates-batch-period",
        "how long updates of endpoints are batched [0s]",
        duration,
        options.endpoint_updates_batch_period
    ),
    field!(
        "endpointslice-updates-batch-period",
        "how long updates of endpoint slices are batched [0s]",
        duration,
        options.endpointslice_updates_batch_period
    ),
    field!(
        "horizontal-pod-autoscaler-cpu-initialization-period",
        "how long CPU samples of a new pod are skipped [5m]",
        duration,
        options.horizontal_pod_autoscaler_cpu_initialization_period
    ),
    field!(
        "horizontal-pod-autoscaler-downscale-stabilization",
        "how far back recommendations are considered before scaling down [5m]",
        duration,
        options.horizontal_pod_autoscaler_downscale_stabilization
    ),
    field!(
        "horizontal-pod-autoscaler-initial-readiness-delay",
        "how long readiness changes count as initial readiness [30s]",
        duration,
        options.horizontal_pod_autoscaler_initial_readiness_delay
    ),
    field!(
        "horizontal-pod-autoscaler-sync-period",
        "interval between syncs [15s]",
        duration,
        options.horizontal_pod_autoscaler_sync_period
    ),
    field!(
        "horizontal-pod-autoscaler-tolerance",
        "minimum change of the metrics ratio that triggers scaling [0.1]",
        parsed,
        options.horizontal_pod_autoscaler_tolerance
    ),
    field!(
        "large-cluster-size-threshold",
        "number of nodes from which evictions continue in an unhealthy zone [50]",
        parsed,
        options.large_cluster_size_threshold
    ),
    field!(
        "legacy-service-account-token-clean-up-period",
        "how long unused token secrets are kept [8760h]",
        duration,
        options.legacy_service_account_token_clean_up_period
    ),
    field!("max-endpoints-per-slice", "maximum endpoints per slice [100]", count, options.max_endpoints_per_slice),
    field!(
        "min-resync-period",
        "minimum interval of informer resyncs, randomized up to twice as long; 0 for never [12h]",
        duration,
        options.min_resync_period
    ),
    field!(
        "mirroring-concurrent-service-endpoint-syncs",
        "concurrent syncs [5]",
        count,
        options.mirroring_concurrent_service_endpoint_syncs
    ),
    field!(
        "mirroring-endpointslice-updates-batch-period",
        "how long updates of endpoints are batched [0s]",
        duration,
        options.mirroring_endpointslice_updates_batch_period
    ),
    field!(
        "mirroring-max-endpoints-per-subset",
        "maximum endpoints that are mirrored per subset [1000]",
        count,
        options.mirroring_max_endpoints_per_subset
    ),
    fixed!(flag, "namespace-sync-period", "5m0s", POLLS),
    field!("node-cidr-mask-size-ipv4", "mask size of node CIDRs [24]", parsed, options.node_cidr_mask_size_ipv4),
    field!("node-cidr-mask-size-ipv6", "mask size of IPv6 node CIDRs [64]", parsed, options.node_cidr_mask_size_ipv6),
    field!("node-eviction-rate", "nodes per second whose pods are evicted [0.1]", parsed, options.node_eviction_rate),
    field!(
        "node-monitor-grace-period",
        "how long a node may not report before it is marked unhealthy [50s]",
        duration,
        options.node_monitor_grace_period
    ),
    fixed!(flag, "node-monitor-period", "5s", POLLS),
    field!(
        "node-startup-grace-period",
        "how long a new node may not report before it is marked unhealthy [1m]",
        duration,
        options.node_startup_grace_period
    ),
    fixed!(flag, "pvclaimbinder-sync-period", "15s", POLLS),
    field!(
        "resource-quota-sync-period",
        "interval between full recounts of quota usage [5m]",
        duration,
        options.resource_quota_sync_period
    ),
    field!(
        "secondary-node-eviction-rate",
        "nodes per second whose pods are evicted in an unhealthy zone [0.01]",
        parsed,
        options.secondary_node_eviction_rate
    ),
    field!("service-cluster-ip-range", "CIDR of service cluster IPs", ranges, options.service_cluster_ip_range),
    field!(
        "terminated-pod-gc-threshold",
        "terminated pods to keep; 0 for all [12500]",
        parsed,
        options.terminated_pod_gc_threshold
    ),
    field!(
        "unhealthy-zone-threshold",
        "fraction of not-ready nodes that makes a zone unhealthy [0.55]",
        parsed,
        options.unhealthy_zone_threshold
    ),
];
