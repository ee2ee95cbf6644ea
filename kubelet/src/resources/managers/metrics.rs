//! Metrics of the resource managers, with upstream's names and help texts.

use client::Metric;

pub(crate) static CPU_REQUESTS: Metric = Metric::counter(
    "kubelet_cpu_manager_pinning_requests_total",
    "The number of cpu core allocations which required pinning.",
    &[],
);
pub(crate) static CPU_ERRORS: Metric = Metric::counter(
    "kubelet_cpu_manager_pinning_errors_total",
    "The number of cpu core allocations which required pinning failed.",
    &[],
);
pub(crate) static SHARED_POOL: Metric = Metric::gauge(
    "kubelet_cpu_manager_shared_pool_size_millicores",
    "The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.",
    &[],
);
pub(crate) static EXCLUSIVE_CPUS: Metric = Metric::gauge(
    "kubelet_cpu_manager_exclusive_cpu_allocation_count",
    "The total number of CPUs exclusively allocated to containers running on this node",
    &[],
);
pub(crate) static MEMORY_REQUESTS: Metric = Metric::counter(
    "kubelet_memory_manager_pinning_requests_total",
    "The number of memory pages allocations which required pinning.",
    &[],
);
pub(crate) static MEMORY_ERRORS: Metric = Metric::counter(
    "kubelet_memory_manager_pinning_errors_total",
    "The number of memory pages allocations which required pinning that failed.",
    &[],
);
pub(crate) static TOPOLOGY_REQUESTS: Metric = Metric::counter(
    "kubelet_topology_manager_admission_requests_total",
    "The number of admission requests where resources have to be aligned.",
    &[],
);
pub(crate) static TOPOLOGY_ERRORS: Metric = Metric::counter(
    "kubelet_topology_manager_admission_errors_total",
    "The number of admission request failures where resources could not be aligned.",
    &[],
);
pub(crate) static REGISTRATIONS: Metric = Metric::counter(
    "kubelet_device_plugin_registration_total",
    "Cumulative number of device plugin registrations. Broken down by resource name.",
    &["resource_name"],
);
pub(crate) static ALLOCATIONS: Metric = Metric::histogram_of(
    "kubelet_device_plugin_alloc_duration_seconds",
    "Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.",
    &["resource_name"],
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0],
);
pub(crate) static POD_RESOURCES: Metric = Metric::counter(
    "kubelet_pod_resources_endpoint_requests_total",
    "Cumulative number of requests to the PodResource endpoint. Broken down by server api version.",
    &["server_api_version"],
);
