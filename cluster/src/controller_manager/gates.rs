//! What the controllers' feature gates are.

use crate::flags::gates::Gates;

/// The gates that the controllers of 1.37 look at, each with the state that they are in here. Those of features
/// that are always on since long are among them: what was written for an older release may still name them.
pub(super) static GATES: Gates = &[
    ("AllAlpha", false),
    ("ClusterTrustBundle", true),
    ("ControllerManagerReleaseLeaderElectionLockOnExit", true),
    ("CoordinatedLeaderElection", false),
    ("DRADeviceTaintRules", false),
    ("DRADeviceTaints", false),
    ("DRAWorkloadResourceClaims", false),
    ("DeploymentReplicaSetTerminatingReplicas", true),
    ("DynamicResourceAllocation", false),
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
    ("StorageVersionMigrator", false),
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
