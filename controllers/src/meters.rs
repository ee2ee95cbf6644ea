//! What controllers count beside their queues, under upstream's names and with its labels: one list.

use client::Meter;

pub static JOB_SYNC_DURATION: Meter = Meter::histogram(
    "job_controller_job_sync_duration_seconds",
    "How long looks at Jobs took.",
    &["completion_mode", "result", "action"],
    (0.004, 2.0, 15),
);
pub static JOB_SYNCS: Meter =
    Meter::counter("job_controller_job_syncs_total", "Looks at Jobs.", &["completion_mode", "result", "action"]);
pub static JOBS_FINISHED: Meter =
    Meter::counter("job_controller_jobs_finished_total", "Jobs that ended.", &["completion_mode", "result", "reason"]);
pub static JOBS_BY_EXTERNAL_CONTROLLER: Meter = Meter::counter(
    "job_controller_jobs_by_external_controller_total",
    "Jobs that somebody else manages.",
    &["controller_name"],
);
pub static JOB_PODS_FINISHED: Meter = Meter::counter(
    "job_controller_job_pods_finished_total",
    "Ended pods that are counted.",
    &["completion_mode", "result"],
);
pub static JOB_PODS_CREATION: Meter =
    Meter::counter("job_controller_job_pods_creation_total", "Pods that were made, by why.", &["reason", "status"]);
pub static JOB_FAILURES_BY_POLICY: Meter = Meter::counter(
    "job_controller_pod_failures_handled_by_failure_policy_total",
    "Failed pods that a rule speaks of, by what it says.",
    &["action"],
);
pub static JOB_TRACKED_PODS: Meter = Meter::counter(
    "job_controller_terminated_pods_tracking_finalizer_total",
    "Ended pods with the finalizer of tracking: that came, and that are let go.",
    &["event"],
);
pub static JOB_FINISHED_INDEXES: Meter =
    Meter::counter("job_controller_job_finished_indexes_total", "Indexes that ended.", &["status", "backoffLimit"]);

pub static CRON_JOB_SKEW: Meter = Meter::histogram(
    "cronjob_controller_job_creation_skew_duration_seconds",
    "Between the time of a schedule and its Job.",
    &[],
    (1.0, 2.0, 10),
);
pub static TTL_DURATION: Meter = Meter::histogram(
    "ttl_after_finished_controller_job_deletion_duration_seconds",
    "Between the end of a Job's time and its deletion.",
    &[],
    (0.1, 2.0, 14),
);

pub static REPLICASET_AGE_RATIO: Meter = Meter::histogram(
    "replicaset_controller_sorting_deletion_age_ratio",
    "The age of a ready pod that was chosen to go, against that of the youngest.",
    &[],
    (0.25, 2.0, 6),
);

pub static HPA_RECONCILIATIONS: Meter = Meter::counter(
    "horizontal_pod_autoscaler_controller_reconciliations_total",
    "Looks at autoscalers.",
    &["action", "error"],
);
pub static HPA_RECONCILIATION_DURATION: Meter = Meter::histogram(
    "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds",
    "How long they took.",
    &["action", "error"],
    (0.001, 2.0, 15),
);
pub static HPA_COMPUTATIONS: Meter = Meter::counter(
    "horizontal_pod_autoscaler_controller_metric_computation_total",
    "Metrics that were asked for.",
    &["action", "error", "metric_type"],
);
pub static HPA_COMPUTATION_DURATION: Meter = Meter::histogram(
    "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds",
    "How long that took.",
    &["action", "error", "metric_type"],
    (0.001, 2.0, 15),
);
pub static HPA_NUMBER: Meter = Meter::gauge(
    "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers",
    "Autoscalers that there are.",
    &[],
);
pub static HPA_DESIRED: Meter = Meter::gauge(
    "horizontal_pod_autoscaler_controller_desired_replicas",
    "What autoscalers want.",
    &["namespace", "hpa_name"],
);

pub static ZONE_HEALTH: Meter =
    Meter::gauge("node_collector_zone_health", "The percentage of a zone's nodes that are well.", &["zone"]);
pub static ZONE_SIZE: Meter = Meter::gauge("node_collector_zone_size", "The nodes of a zone.", &["zone"]);
pub static ZONE_UNHEALTHY: Meter =
    Meter::gauge("node_collector_unhealthy_nodes_in_zone", "Those that are not ready.", &["zone"]);
pub static NODE_EVICTIONS: Meter =
    Meter::counter("node_collector_evictions_total", "Nodes that were given up.", &["zone"]);
pub static NODE_HEALTH_DURATION: Meter = Meter::histogram(
    "node_collector_update_node_health_duration_seconds",
    "How long a look at the health of a node took.",
    &[],
    (0.001, 4.0, 8),
);
pub static TAINT_DELETIONS: Meter =
    Meter::counter("taint_eviction_controller_pod_deletions_total", "Pods that taints drove away.", &[]);
pub static TAINT_DELETION_DURATION: Meter = Meter::histogram_of(
    "taint_eviction_controller_pod_deletion_duration_seconds",
    "Between the time that a pod has to go and its deletion.",
    &[],
    &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0],
);
pub static POD_GC_DELETIONS: Meter = Meter::counter(
    "pod_gc_collector_force_delete_pods_total",
    "Pods that were deleted by force.",
    &["namespace", "reason"],
);
pub static POD_GC_ERRORS: Meter =
    Meter::counter("pod_gc_collector_force_delete_pod_errors_total", "Where that failed.", &["namespace", "reason"]);

pub static SLICE_CHANGES: Meter =
    Meter::counter("endpoint_slice_controller_changes", "Writes of slices.", &["operation"]);
pub static SLICES_CHANGED: Meter = Meter::histogram_of(
    "endpoint_slice_controller_endpointslices_changed_per_sync",
    "Slices that one look at a service wrote.",
    &["topology", "traffic_distribution"],
    // Upstream names none, and these are those of Prometheus itself.
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0],
);
pub static SLICE_SYNCS: Meter = Meter::counter("endpoint_slice_controller_syncs", "Looks at services.", &["result"]);
pub static SLICES: Meter = Meter::gauge("endpoint_slice_controller_num_endpoint_slices", "Slices that there are.", &[]);
pub static SERVICES_BY_DISTRIBUTION: Meter = Meter::gauge(
    "endpoint_slice_controller_services_count_by_traffic_distribution",
    "Services that ask for a distribution.",
    &["traffic_distribution"],
);

pub static GC_SYNC_ERRORS: Meter = Meter::counter(
    "garbagecollector_controller_resources_sync_error_total",
    "Failures to learn what resources there are.",
    &[],
);
pub static ROOT_CA_SYNCS: Meter =
    Meter::counter("root_ca_cert_publisher_sync_total", "Looks at namespaces.", &["code"]);
pub static ROOT_CA_DURATION: Meter = Meter::histogram(
    "root_ca_cert_publisher_sync_duration_seconds",
    "How long they took.",
    &["code"],
    (0.001, 2.0, 15),
);
pub static EPHEMERAL_CREATIONS: Meter =
    Meter::counter("ephemeral_volume_controller_create_total", "Claims that were made for pods.", &[]);
pub static EPHEMERAL_FAILURES: Meter =
    Meter::counter("ephemeral_volume_controller_create_failures_total", "Where that failed.", &[]);

pub static PV_BOUND: Meter = Meter::gauge("pv_collector_bound_pv_count", "Volumes that are bound.", &["storage_class"]);
pub static PV_UNBOUND: Meter =
    Meter::gauge("pv_collector_unbound_pv_count", "Volumes that are not.", &["storage_class"]);
pub static PV_TOTAL: Meter =
    Meter::gauge("pv_collector_total_pv_count", "All volumes.", &["plugin_name", "volume_mode"]);
pub static PVC_BOUND: Meter = Meter::gauge(
    "pv_collector_bound_pvc_count",
    "Claims that are bound.",
    &["namespace", "storage_class", "volume_attributes_class"],
);
pub static PVC_UNBOUND: Meter = Meter::gauge(
    "pv_collector_unbound_pvc_count",
    "Claims that are not.",
    &["namespace", "storage_class", "volume_attributes_class"],
);
pub static ATTACHED: Meter = Meter::gauge(
    "attachdetach_controller_total_volumes",
    "Volumes that are attached, and that should be.",
    &["plugin_name", "state"],
);
