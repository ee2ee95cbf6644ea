//! What the controllers are told: each flag is a field of their options.

use super::{Flags, count, ranges};
use crate::component::flags::text;
use crate::flags::values::{duration, parsed};
use crate::flags::{Flag, unfinished};

const POLLS: &str = "nothing is looked at by time: changes are seen at once";

pub static FLAGS: &[Flag<Flags>] = &[
    on_off!(
        "allocate-node-cidrs",
        "give each node a range of addresses for its pods [false]",
        options.allocate_node_cidrs
    ),
    fixed!(flag, "attach-detach-reconcile-sync-period", "1m0s", POLLS),
    field!("cluster-cidr", "where pods get their addresses from", ranges, options.cluster_cidr),
    field!(
        "cluster-name",
        "names what a cloud provider makes, and there is none [kubernetes]",
        text,
        options.cluster_name
    ),
    field!(
        "cluster-signing-duration",
        "how long they are good for [8760h]",
        duration,
        options.cluster_signing_duration
    ),
    field!("concurrent-cron-job-syncs", "how many at a time [5]", count, options.concurrent_cron_job_syncs),
    field!("concurrent-daemonset-syncs", "how many at a time [2]", count, options.concurrent_daemonset_syncs),
    field!("concurrent-deployment-syncs", "how many at a time [5]", count, options.concurrent_deployment_syncs),
    field!(
        "concurrent-disruption-stalepod-syncs",
        "how many at a time [1]",
        count,
        options.concurrent_disruption_stalepod_syncs
    ),
    field!("concurrent-disruption-syncs", "how many at a time [1]", count, options.concurrent_disruption_syncs),
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
    unfinished("concurrent-validating-admission-policy-status-syncs", "there are no admission policies yet"),
    fixed!(switch, "configure-cloud-routes", "true", "there is no cloud provider"),
    fixed!(switch, "disable-attach-detach-reconcile-sync", "false", POLLS),
    fixed!(
        switch,
        "enable-dynamic-provisioning",
        "true",
        "it cannot be turned off; -local-path-provisioner among the controllers can"
    ),
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
    field!(
        "large-cluster-size-threshold",
        "from so many nodes on evictions go on in a bad zone [50]",
        parsed,
        options.large_cluster_size_threshold
    ),
    field!(
        "legacy-service-account-token-clean-up-period",
        "how long unused tokens in secrets stay [8760h]",
        duration,
        options.legacy_service_account_token_clean_up_period
    ),
    field!("max-endpoints-per-slice", "as many endpoints are in a slice [100]", count, options.max_endpoints_per_slice),
    field!(
        "min-resync-period",
        "after so long, up to twice as long, all objects are looked at again from memory; 0 for never [12h]",
        duration,
        options.min_resync_period
    ),
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
    fixed!(flag, "namespace-sync-period", "5m0s", POLLS),
    field!("node-cidr-mask-size-ipv4", "the size of a node's range [24]", parsed, options.node_cidr_mask_size_ipv4),
    field!("node-cidr-mask-size-ipv6", "the same of IPv6 [64]", parsed, options.node_cidr_mask_size_ipv6),
    field!("node-eviction-rate", "nodes a second that lose their pods [0.1]", parsed, options.node_eviction_rate),
    field!(
        "node-monitor-grace-period",
        "how long a node may be silent [50s]",
        duration,
        options.node_monitor_grace_period
    ),
    fixed!(flag, "node-monitor-period", "5s", POLLS),
    field!(
        "node-startup-grace-period",
        "the same for a node that starts [1m]",
        duration,
        options.node_startup_grace_period
    ),
    fixed!(flag, "pvclaimbinder-sync-period", "15s", POLLS),
    field!("resource-quota-sync-period", "between two full counts [5m]", duration, options.resource_quota_sync_period),
    field!(
        "secondary-node-eviction-rate",
        "the same in a zone that is unwell [0.01]",
        parsed,
        options.secondary_node_eviction_rate
    ),
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
    field!(
        "unhealthy-zone-threshold",
        "the part of lost nodes that makes a zone unwell [0.55]",
        parsed,
        options.unhealthy_zone_threshold
    ),
];
