//! The controllers' metrics besides those of their queues, with upstream's names, labels and help texts.

use client::Metric;

pub(crate) static JOB_SYNC_DURATION: Metric = Metric::histogram(
    "job_controller_job_sync_duration_seconds",
    "The time it took to sync a job",
    &["completion_mode", "result", "action"],
    (0.004, 2.0, 15),
);
pub(crate) static JOB_SYNCS: Metric = Metric::counter(
    "job_controller_job_syncs_total",
    "The number of job syncs",
    &["completion_mode", "result", "action"],
);
pub(crate) static JOBS_FINISHED: Metric = Metric::counter(
    "job_controller_jobs_finished_total",
    "The number of finished jobs",
    &["completion_mode", "result", "reason"],
);
pub(crate) static JOBS_BY_EXTERNAL_CONTROLLER: Metric = Metric::counter(
    "job_controller_jobs_by_external_controller_total",
    "The number of Jobs managed by an external controller",
    &["controller_name"],
);
pub(crate) static JOB_PODS_FINISHED: Metric = Metric::counter(
    "job_controller_job_pods_finished_total",
    "The number of finished Pods that are fully tracked",
    &["completion_mode", "result"],
);
pub(crate) static JOB_PODS_CREATION: Metric = Metric::counter(
    "job_controller_job_pods_creation_total",
    "The number of Pods created by the Job controller labelled with a reason for the Pod creation.\nThis metric also distinguishes between Pods created using different PodReplacementPolicy settings.\nPossible values of the \"reason\" label are:\n\"new\", \"recreate_terminating_or_failed\", \"recreate_failed\".\nPossible values of the \"status\" label are:\n\"succeeded\", \"failed\".",
    &["reason", "status"],
);
pub(crate) static JOB_FAILURES_BY_POLICY: Metric = Metric::counter(
    "job_controller_pod_failures_handled_by_failure_policy_total",
    "The number of failed Pods handled by failure policy with\n			respect to the failure policy action applied based on the matched\n			rule. Possible values of the action label correspond to the\n			possible values for the failure policy rule action, which are:\n			\"FailJob\", \"Ignore\" and \"Count\".",
    &["action"],
);
pub(crate) static JOB_TRACKED_PODS: Metric = Metric::counter(
    "job_controller_terminated_pods_tracking_finalizer_total",
    "The number of terminated pods (phase=Failed|Succeeded)\nthat have the finalizer batch.kubernetes.io/job-tracking\nThe event label can be \"add\" or \"delete\".",
    &["event"],
);
pub(crate) static JOB_FINISHED_INDEXES: Metric = Metric::counter(
    "job_controller_job_finished_indexes_total",
    "The number of finished indexes. Possible values for the\n			status label are: \"succeeded\", \"failed\". Possible values for the\n			backoffLimit label are: \"perIndex\" and \"global\"",
    &["status", "backoffLimit"],
);

pub(crate) static CRON_JOB_SKEW: Metric = Metric::histogram(
    "cronjob_controller_job_creation_skew_duration_seconds",
    "Time between when a cronjob is scheduled to be run, and when the corresponding job is created",
    &[],
    (1.0, 2.0, 10),
);
pub(crate) static TTL_DURATION: Metric = Metric::histogram(
    "ttl_after_finished_controller_job_deletion_duration_seconds",
    "The time it took to delete the job since it became eligible for deletion",
    &[],
    (0.1, 2.0, 14),
);

pub(crate) static REPLICASET_AGE_RATIO: Metric = Metric::histogram(
    "replicaset_controller_sorting_deletion_age_ratio",
    "The ratio of chosen deleted pod's ages to the current youngest pod's age (at the time). Should be <2. The intent of this metric is to measure the rough efficacy of the sorting (and deletion) of pods when a replicaset scales down. This only considers Ready pods when calculating and reporting.",
    &[],
    (0.25, 2.0, 6),
);

pub(crate) static HPA_RECONCILIATIONS: Metric = Metric::counter(
    "horizontal_pod_autoscaler_controller_reconciliations_total",
    "Number of reconciliations of HPA controller. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. Note that if both spec and internal errors happen during a reconciliation, the first one to occur is reported in `error` label.",
    &["action", "error"],
);
pub(crate) static HPA_RECONCILIATION_DURATION: Metric = Metric::histogram(
    "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds",
    "The time(seconds) that the HPA controller takes to reconcile once. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. Note that if both spec and internal errors happen during a reconciliation, the first one to occur is reported in `error` label.",
    &["action", "error"],
    (0.001, 2.0, 15),
);
pub(crate) static HPA_COMPUTATIONS: Metric = Metric::counter(
    "horizontal_pod_autoscaler_controller_metric_computation_total",
    "Number of metric computations. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. The label 'metric_type' corresponds to HPA.spec.metrics[*].type",
    &["action", "error", "metric_type"],
);
pub(crate) static HPA_COMPUTATION_DURATION: Metric = Metric::histogram(
    "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds",
    "The time(seconds) that the HPA controller takes to calculate one metric. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. The label 'error' should be either 'spec', 'internal', or 'none'. The label 'metric_type' corresponds to HPA.spec.metrics[*].type",
    &["action", "error", "metric_type"],
    (0.001, 2.0, 15),
);
pub(crate) static HPA_NUMBER: Metric = Metric::gauge(
    "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers",
    "Current number of controlled HPA objects.",
    &[],
);
pub(crate) static HPA_DESIRED: Metric = Metric::gauge(
    "horizontal_pod_autoscaler_controller_desired_replicas",
    "Current desired replica count for HPA objects.",
    &["namespace", "hpa_name"],
);

pub(crate) static ZONE_HEALTH: Metric =
    Metric::gauge("node_collector_zone_health", "Gauge measuring percentage of healthy nodes per zone.", &["zone"]);
pub(crate) static ZONE_SIZE: Metric =
    Metric::gauge("node_collector_zone_size", "Gauge measuring number of registered Nodes per zones.", &["zone"]);
pub(crate) static ZONE_UNHEALTHY: Metric = Metric::gauge(
    "node_collector_unhealthy_nodes_in_zone",
    "Gauge measuring number of not Ready Nodes per zones.",
    &["zone"],
);
pub(crate) static NODE_EVICTIONS: Metric = Metric::counter(
    "node_collector_evictions_total",
    "Number of Node evictions that happened since current instance of NodeController started.",
    &["zone"],
);
pub(crate) static NODE_HEALTH_DURATION: Metric = Metric::histogram(
    "node_collector_update_node_health_duration_seconds",
    "Duration in seconds for NodeController to update the health of a single node.",
    &[],
    (0.001, 4.0, 8),
);
pub(crate) static TAINT_DELETIONS: Metric = Metric::counter(
    "taint_eviction_controller_pod_deletions_total",
    "Total number of Pods deleted by TaintEvictionController since its start.",
    &[],
);
pub(crate) static TAINT_DELETION_DURATION: Metric = Metric::histogram_of(
    "taint_eviction_controller_pod_deletion_duration_seconds",
    "Latency, in seconds, between the time when a taint effect has been activated for the Pod and its deletion via TaintEvictionController.",
    &[],
    &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0],
);
pub(crate) static POD_GC_DELETIONS: Metric = Metric::counter(
    "pod_gc_collector_force_delete_pods_total",
    "Number of pods that are being forcefully deleted since the Pod GC Controller started.",
    &["namespace", "reason"],
);
pub(crate) static POD_GC_ERRORS: Metric = Metric::counter(
    "pod_gc_collector_force_delete_pod_errors_total",
    "Number of errors encountered when forcefully deleting the pods since the Pod GC Controller started.",
    &["namespace", "reason"],
);

pub(crate) static SLICE_CHANGES: Metric =
    Metric::counter("endpoint_slice_controller_changes", "Number of EndpointSlice changes", &["operation"]);
pub(crate) static SLICES_CHANGED: Metric = Metric::histogram_of(
    "endpoint_slice_controller_endpointslices_changed_per_sync",
    "Number of EndpointSlices changed on each Service sync",
    &["topology", "traffic_distribution"],
    // Prometheus' default buckets: upstream specifies none.
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0],
);
pub(crate) static SLICE_SYNCS: Metric =
    Metric::counter("endpoint_slice_controller_syncs", "Number of EndpointSlice syncs", &["result"]);
pub(crate) static SLICES: Metric =
    Metric::gauge("endpoint_slice_controller_num_endpoint_slices", "Number of EndpointSlices", &[]);
pub(crate) static SERVICES_BY_DISTRIBUTION: Metric = Metric::gauge(
    "endpoint_slice_controller_services_count_by_traffic_distribution",
    "Number of Services using some specific trafficDistribution",
    &["traffic_distribution"],
);

pub(crate) static GC_SYNC_ERRORS: Metric = Metric::counter(
    "garbagecollector_controller_resources_sync_error_total",
    "Number of garbage collector resources sync errors",
    &[],
);
pub(crate) static ROOT_CA_SYNCS: Metric = Metric::counter(
    "root_ca_cert_publisher_sync_total",
    "Number of namespace syncs happened in root ca cert publisher.",
    &["code"],
);
pub(crate) static ROOT_CA_DURATION: Metric = Metric::histogram(
    "root_ca_cert_publisher_sync_duration_seconds",
    "Number of namespace syncs happened in root ca cert publisher.",
    &["code"],
    (0.001, 2.0, 15),
);
pub(crate) static EPHEMERAL_CREATIONS: Metric = Metric::counter(
    "ephemeral_volume_controller_create_total",
    "Number of PersistentVolumeClaim creation requests",
    &[],
);
pub(crate) static EPHEMERAL_FAILURES: Metric = Metric::counter(
    "ephemeral_volume_controller_create_failures_total",
    "Number of PersistentVolumeClaim creation requests",
    &[],
);

pub(crate) static PV_BOUND: Metric = Metric::gauge(
    "pv_collector_bound_pv_count",
    "Gauge measuring number of persistent volume currently bound",
    &["storage_class"],
);
pub(crate) static PV_UNBOUND: Metric = Metric::gauge(
    "pv_collector_unbound_pv_count",
    "Gauge measuring number of persistent volume currently unbound",
    &["storage_class"],
);
pub(crate) static PV_TOTAL: Metric = Metric::gauge(
    "pv_collector_total_pv_count",
    "Gauge measuring total number of persistent volumes",
    &["plugin_name", "volume_mode"],
);
pub(crate) static PVC_BOUND: Metric = Metric::gauge(
    "pv_collector_bound_pvc_count",
    "Gauge measuring number of persistent volume claim currently bound",
    &["namespace", "storage_class", "volume_attributes_class"],
);
pub(crate) static PVC_UNBOUND: Metric = Metric::gauge(
    "pv_collector_unbound_pvc_count",
    "Gauge measuring number of persistent volume claim currently unbound",
    &["namespace", "storage_class", "volume_attributes_class"],
);
pub(crate) static ATTACHED: Metric = Metric::gauge(
    "attachdetach_controller_total_volumes",
    "Number of volumes in A/D Controller",
    &["plugin_name", "state"],
);
