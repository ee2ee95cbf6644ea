//! All controllers, in one list. They start in this order and end in the reverse one.

use crate::framework::{Descriptor, Start};
use crate::options::Options;
use crate::{
    cluster_role_aggregation, cron_job, daemonset, deployment, disruption, garbage_collector,
    horizontal_pod_autoscaler, job, namespace, pod_garbage_collector, replicaset, resource_quota, root_ca,
    service_account, statefulset, ttl_after_finished,
};

const fn one(_: &Options) -> usize {
    1
}

/// On unless it is turned off, with one worker.
const fn plain(name: &'static str, alias: &'static str, account: &'static str, start: Start) -> Descriptor {
    Descriptor { name, alias, account, on_by_default: true, workers: one, start }
}

impl Descriptor {
    const fn workers(self, workers: fn(&Options) -> usize) -> Descriptor {
        Descriptor { workers, ..self }
    }

    #[allow(dead_code)]
    const fn off_by_default(self) -> Descriptor {
        Descriptor { on_by_default: false, ..self }
    }
}

pub static CONTROLLERS: &[Descriptor] = &[
    // Roles first: the others may need what is gathered.
    plain(
        "clusterrole-aggregation-controller",
        "clusterrole-aggregation",
        "clusterrole-aggregation-controller",
        cluster_role_aggregation::start,
    ),
    plain("serviceaccount-controller", "serviceaccount", "service-account-controller", service_account::start),
    plain(
        "root-ca-certificate-publisher-controller",
        "root-ca-cert-publisher",
        "root-ca-cert-publisher",
        root_ca::start,
    ),
    plain("deployment-controller", "deployment", "deployment-controller", deployment::start)
        .workers(|options| options.concurrent_deployment_syncs),
    plain("replicaset-controller", "replicaset", "replicaset-controller", replicaset::start_replica_sets)
        .workers(|options| options.concurrent_replicaset_syncs),
    plain(
        "replicationcontroller-controller",
        "replicationcontroller",
        "replication-controller",
        replicaset::start_replication_controllers,
    )
    .workers(|options| options.concurrent_rc_syncs),
    plain("statefulset-controller", "statefulset", "statefulset-controller", statefulset::start)
        .workers(|options| options.concurrent_statefulset_syncs),
    plain("daemonset-controller", "daemonset", "daemon-set-controller", daemonset::start)
        .workers(|options| options.concurrent_daemonset_syncs),
    plain("job-controller", "job", "job-controller", job::start).workers(|options| options.concurrent_job_syncs),
    plain("cronjob-controller", "cronjob", "cronjob-controller", cron_job::start)
        .workers(|options| options.concurrent_cron_job_syncs),
    plain(
        "ttl-after-finished-controller",
        "ttl-after-finished",
        "ttl-after-finished-controller",
        ttl_after_finished::start,
    )
    .workers(|options| options.concurrent_ttl_after_finished_syncs),
    plain("disruption-controller", "disruption", "disruption-controller", disruption::start),
    plain(
        "horizontal-pod-autoscaler-controller",
        "horizontalpodautoscaling",
        "horizontal-pod-autoscaler",
        horizontal_pod_autoscaler::start,
    )
    .workers(|options| options.concurrent_horizontal_pod_autoscaler_syncs),
    plain("resourcequota-controller", "resourcequota", "resourcequota-controller", resource_quota::start)
        .workers(|options| options.concurrent_resource_quota_syncs),
    plain("pod-garbage-collector-controller", "podgc", "pod-garbage-collector", pod_garbage_collector::start),
    plain("namespace-controller", "namespace", "namespace-controller", namespace::start)
        .workers(|options| options.concurrent_namespace_syncs),
    // Last to start and first to end: it acts on what all others have done.
    plain("garbage-collector-controller", "garbagecollector", "generic-garbage-collector", garbage_collector::start)
        .workers(|options| options.concurrent_gc_syncs),
];
