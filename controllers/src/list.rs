//! The list of all controllers. They start in this order and stop in the reverse order.

use crate::framework::{Descriptor, StartFn};
use crate::options::Options;
use crate::{
    bootstrap_tokens, certificates, cluster_role_aggregation, cron_job, custom_resource_definition, daemonset,
    deployment, device_taint_eviction, disruption, endpoint_drain, endpoints, endpointslice, endpointslice_mirroring,
    ephemeral_volume, garbage_collector, horizontal_pod_autoscaler, job, local_path, namespace, node_ipam,
    node_lifecycle, persistentvolume_attach_detach, persistentvolume_binder, persistentvolume_expander,
    persistentvolume_protection, persistentvolumeclaim_protection, pod_certificate_requests, pod_garbage_collector,
    replicaset, resource_claim, resource_quota, root_ca, service, service_account, service_account_token, service_cidr,
    service_repair, statefulset, storage_version_migrator, taint_eviction, trust_bundle, ttl, ttl_after_finished,
    validating_admission_policy_status, volumeattributesclass_protection,
};

const fn one(_: &Options) -> usize {
    1
}

/// A controller that is on by default and has one worker.
const fn plain(name: &'static str, alias: &'static str, account: &'static str, start: StartFn) -> Descriptor {
    Descriptor { name, alias, account, resource: None, on_by_default: true, workers: one, start }
}

impl Descriptor {
    const fn workers(self, workers: fn(&Options) -> usize) -> Descriptor {
        Descriptor { workers, ..self }
    }

    /// Its keys are those of this resource, for the causes of its writes.
    const fn of(self, group: &'static str, plural: &'static str) -> Descriptor {
        Descriptor { resource: Some((group, plural)), ..self }
    }

    const fn off_by_default(self) -> Descriptor {
        Descriptor { on_by_default: false, ..self }
    }
}

pub(crate) static CONTROLLERS: &[Descriptor] = &[
    // Roles first: other controllers may need the aggregated rules.
    plain(
        "clusterrole-aggregation-controller",
        "clusterrole-aggregation",
        "clusterrole-aggregation-controller",
        cluster_role_aggregation::start,
    )
    .of("rbac.authorization.k8s.io", "clusterroles"),
    plain("serviceaccount-controller", "serviceaccount", "service-account-controller", service_account::start)
        .of("", "namespaces"),
    plain(
        "root-ca-certificate-publisher-controller",
        "root-ca-cert-publisher",
        "root-ca-cert-publisher",
        root_ca::start,
    )
    .of("", "namespaces"),
    // Acts as the manager itself, like upstream's controller.
    plain("serviceaccount-token-controller", "serviceaccount-token", "", service_account_token::start)
        .workers(|options| options.concurrent_serviceaccount_token_syncs),
    plain(
        "legacy-serviceaccount-token-cleaner-controller",
        "legacy-service-account-token-cleaner",
        "legacy-service-account-token-cleaner",
        service_account_token::start_legacy_cleaner,
    ),
    plain(
        "kube-apiserver-serving-clustertrustbundle-publisher-controller",
        "",
        "kube-apiserver-serving-clustertrustbundle-publisher",
        trust_bundle::start,
    ),
    plain("bootstrap-signer-controller", "bootstrapsigner", "bootstrap-signer", bootstrap_tokens::start_signer)
        .off_by_default(),
    plain("token-cleaner-controller", "tokencleaner", "token-cleaner", bootstrap_tokens::start_cleaner)
        .off_by_default(),
    plain(
        "podcertificaterequest-cleaner-controller",
        "",
        "podcertificaterequestcleaner",
        pod_certificate_requests::start,
    ),
    plain(
        "certificatesigningrequest-signing-controller",
        "csrsigning",
        "certificate-controller",
        certificates::start_signing,
    )
    .of("certificates.k8s.io", "certificatesigningrequests")
    .workers(|_| 5),
    plain(
        "certificatesigningrequest-approving-controller",
        "csrapproving",
        "certificate-controller",
        certificates::start_approving,
    )
    .of("certificates.k8s.io", "certificatesigningrequests")
    .workers(|_| 5),
    plain(
        "certificatesigningrequest-cleaner-controller",
        "csrcleaner",
        "certificate-controller",
        certificates::start_cleaner,
    )
    .of("certificates.k8s.io", "certificatesigningrequests"),
    plain("ttl-controller", "ttl", "ttl-controller", ttl::start).of("", "nodes"),
    plain("node-ipam-controller", "nodeipam", "node-controller", node_ipam::start).of("", "nodes"),
    plain("node-lifecycle-controller", "nodelifecycle", "node-controller", node_lifecycle::start)
        .of("", "nodes")
        .workers(|_| 8),
    plain("taint-eviction-controller", "", "node-controller", taint_eviction::start).workers(|_| 8),
    plain("device-taint-eviction-controller", "", "device-taint-eviction-controller", device_taint_eviction::start)
        .workers(|options| options.concurrent_device_taint_eviction_syncs),
    plain("endpointslice-controller", "endpointslice", "endpointslice-controller", endpointslice::start)
        .of("", "services")
        .workers(|options| options.concurrent_service_endpoint_syncs),
    plain("endpoints-controller", "endpoint", "endpoint-controller", endpoints::start)
        .of("", "services")
        .workers(|options| options.concurrent_endpoint_syncs),
    plain(
        "endpointslice-mirroring-controller",
        "endpointslicemirroring",
        "endpointslicemirroring-controller",
        endpointslice_mirroring::start,
    )
    .of("", "endpoints")
    .workers(|options| options.mirroring_concurrent_service_endpoint_syncs),
    // Confirms endpoint changes to kubelets on behalf of the proxies, with the rights of the node controller.
    plain("endpoint-drain-controller", "", "node-controller", endpoint_drain::start).workers(|_| 4),
    plain("service-lb-controller", "service", "service-controller", service::start)
        .of("", "services")
        .workers(|options| options.concurrent_service_syncs),
    plain("service-cidr-controller", "", "service-cidrs-controller", service_cidr::start),
    plain(
        "persistentvolume-binder-controller",
        "persistentvolume-binder",
        "persistent-volume-binder",
        persistentvolume_binder::start,
    ),
    // Creates volumes as an external provisioner would, with the rights of the binder.
    plain("local-path-provisioner", "", "persistent-volume-binder", local_path::start),
    plain(
        "persistentvolume-attach-detach-controller",
        "attachdetach",
        "attachdetach-controller",
        persistentvolume_attach_detach::start,
    ),
    plain(
        "persistentvolume-expander-controller",
        "persistentvolume-expander",
        "expand-controller",
        persistentvolume_expander::start,
    )
    .of("", "persistentvolumeclaims"),
    plain(
        "persistentvolumeclaim-protection-controller",
        "pvc-protection",
        "pvc-protection-controller",
        persistentvolumeclaim_protection::start,
    )
    .of("", "persistentvolumeclaims"),
    plain(
        "persistentvolume-protection-controller",
        "pv-protection",
        "pv-protection-controller",
        persistentvolume_protection::start,
    )
    .of("", "persistentvolumes"),
    plain(
        "volumeattributesclass-protection-controller",
        "",
        "volumeattributesclass-protection-controller",
        volumeattributesclass_protection::start,
    ),
    plain("ephemeral-volume-controller", "ephemeral-volume", "ephemeral-volume-controller", ephemeral_volume::start)
        .of("", "pods")
        .workers(|options| options.concurrent_ephemeralvolume_syncs),
    plain("resourceclaim-controller", "resource-claim-controller", "resource-claim-controller", resource_claim::start)
        .workers(|options| options.concurrent_resource_claim_syncs),
    plain("deployment-controller", "deployment", "deployment-controller", deployment::start)
        .of("apps", "deployments")
        .workers(|options| options.concurrent_deployment_syncs),
    plain("replicaset-controller", "replicaset", "replicaset-controller", replicaset::start_replica_sets)
        .of("apps", "replicasets")
        .workers(|options| options.concurrent_replicaset_syncs),
    plain(
        "replicationcontroller-controller",
        "replicationcontroller",
        "replication-controller",
        replicaset::start_replication_controllers,
    )
    .of("", "replicationcontrollers")
    .workers(|options| options.concurrent_rc_syncs),
    plain("statefulset-controller", "statefulset", "statefulset-controller", statefulset::start)
        .of("apps", "statefulsets")
        .workers(|options| options.concurrent_statefulset_syncs),
    plain("daemonset-controller", "daemonset", "daemon-set-controller", daemonset::start)
        .of("apps", "daemonsets")
        .workers(|options| options.concurrent_daemonset_syncs),
    plain("job-controller", "job", "job-controller", job::start)
        .of("batch", "jobs")
        .workers(|options| options.concurrent_job_syncs),
    plain("cronjob-controller", "cronjob", "cronjob-controller", cron_job::start)
        .of("batch", "cronjobs")
        .workers(|options| options.concurrent_cron_job_syncs),
    plain(
        "ttl-after-finished-controller",
        "ttl-after-finished",
        "ttl-after-finished-controller",
        ttl_after_finished::start,
    )
    .of("batch", "jobs")
    .workers(|options| options.concurrent_ttl_after_finished_syncs),
    // Budgets and stale pods share one queue.
    plain("disruption-controller", "disruption", "disruption-controller", disruption::start)
        .of("policy", "poddisruptionbudgets")
        .workers(|options| options.concurrent_disruption_syncs + options.concurrent_disruption_stalepod_syncs),
    plain(
        "horizontal-pod-autoscaler-controller",
        "horizontalpodautoscaling",
        "horizontal-pod-autoscaler",
        horizontal_pod_autoscaler::start,
    )
    .of("autoscaling", "horizontalpodautoscalers")
    .workers(|options| options.concurrent_horizontal_pod_autoscaler_syncs),
    plain("resourcequota-controller", "resourcequota", "resourcequota-controller", resource_quota::start)
        .of("", "resourcequotas")
        .workers(|options| options.concurrent_resource_quota_syncs),
    plain(
        "storage-version-migrator-controller",
        "svm",
        "storage-version-migrator-controller",
        storage_version_migrator::start,
    )
    .workers(|_| 5),
    plain("pod-garbage-collector-controller", "podgc", "pod-garbage-collector", pod_garbage_collector::start),
    plain("namespace-controller", "namespace", "namespace-controller", namespace::start)
        .of("", "namespaces")
        .workers(|options| options.concurrent_namespace_syncs),
    plain(
        "validatingadmissionpolicy-status-controller",
        "validatingadmissionpolicy-status",
        "validatingadmissionpolicy-status-controller",
        validating_admission_policy_status::start,
    )
    .of("admissionregistration.k8s.io", "validatingadmissionpolicies")
    .workers(|options| options.concurrent_validating_admission_policy_status_syncs),
    // Starts last and stops first: it acts on what all other controllers have done.
    plain("garbage-collector-controller", "garbagecollector", "generic-garbage-collector", garbage_collector::start)
        .workers(|options| options.concurrent_gc_syncs),
];

/// Controllers that every API server runs as itself, always on, as upstream's server does.
pub(crate) static OF_SERVER: &[Descriptor] = &[
    // One worker: two definitions must not accept the same name.
    plain("customresourcedefinition-controller", "", "", custom_resource_definition::start)
        .of("apiextensions.k8s.io", "customresourcedefinitions"),
    plain("ipallocator-repair-controller", "", "", service_repair::start_addresses).workers(|_| 5),
    plain("portallocator-repair-controller", "", "", service_repair::start_ports),
];
