//! The feature gates of the controllers.

use crate::flags::gates::Gates;

/// The feature gates of the controllers in 1.37, each with its state here. Gates of stable features are included:
/// configurations of older releases may still name them.
pub(super) static GATES: Gates = &[
    ("AllAlpha", false),
    ("ClusterTrustBundle", true),
    ("ControllerManagerReleaseLeaderElectionLockOnExit", true),
    ("CoordinatedLeaderElection", false),
    ("DRADeviceTaintRules", true),
    ("DRADeviceTaints", true),
    ("DRAWorkloadResourceClaims", false),
    ("DeploymentReplicaSetTerminatingReplicas", true),
    ("DynamicResourceAllocation", true),
    ("EvictionRequestAPI", false),
    ("GenericWorkload", false),
    ("HPAConfigurableTolerance", true),
    ("HPAGeneration", true),
    ("HPAScaleToZero", true),
    ("HonorPVReclaimPolicy", true),
    ("JobBackoffLimitPerIndex", true),
    ("JobManagedBy", true),
    ("JobPodReplacementPolicy", true),
    ("JobSuccessPolicy", true),
    ("LogarithmicScaleDown", true),
    ("MaxUnavailableStatefulSet", true),
    ("MultiCIDRServiceAllocator", true),
    ("NodeControllerLeaseCircuitBreaker", true),
    ("OrderedNamespaceDeletion", true),
    ("PersistentVolumeClaimUnusedSinceTime", true),
    ("PodCertificateRequest", true),
    ("PodDeletionCost", true),
    ("PodIndexLabel", true),
    ("PodLevelResources", true),
    ("PreferSameTrafficDistribution", true),
    ("RecoverVolumeExpansionFailure", true),
    ("RotateKubeletServerCertificate", true),
    ("SELinuxChangePolicy", false),
    ("SELinuxMount", false),
    ("SeparateTaintEvictionController", true),
    ("ServiceTrafficDistribution", true),
    ("StaleControllerConsistencyDaemonSet", true),
    ("StaleControllerConsistencyHPA", true),
    ("StaleControllerConsistencyJob", true),
    ("StaleControllerConsistencyReplicaSet", true),
    ("StaleControllerConsistencyStatefulSet", true),
    ("StatefulSetAutoDeletePVC", true),
    ("StatefulSetRecreateStrategy", false),
    ("StatefulSetSemanticRevisionComparison", true),
    ("StorageVersionMigrator", true),
    ("TaintTolerationComparisonOperators", true),
    ("TopologyAwareHints", true),
    ("VolumeAttributesClass", true),
    ("WatchListClient", false),
    ("WorkloadWithJob", false),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_sorted() {
        assert!(GATES.is_sorted());
    }
}
