//! What the controllers' feature gates are.

use crate::component::gates::Gates;

/// The gates of 1.37 that the controllers look at, each with the state that they are in here.
pub static GATES: Gates = &[
    ("AllAlpha", false),
    ("ClusterTrustBundle", true),
    ("CoordinatedLeaderElection", false),
    ("DRADeviceTaints", false),
    ("DeploymentReplicaSetTerminatingReplicas", true),
    ("DynamicResourceAllocation", false),
    ("HPAConfigurableTolerance", true),
    ("HPAScaleToZero", true),
    ("HonorPVReclaimPolicy", false),
    ("JobBackoffLimitPerIndex", true),
    ("JobManagedBy", true),
    ("JobPodReplacementPolicy", true),
    ("JobSuccessPolicy", true),
    ("LogarithmicScaleDown", true),
    ("MaxUnavailableStatefulSet", true),
    ("MultiCIDRServiceAllocator", true),
    ("OrderedNamespaceDeletion", true),
    ("PersistentVolumeClaimUnusedSinceTime", true),
    ("PodCertificateRequest", true),
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
    ("StaleControllerConsistencyJob", true),
    ("StaleControllerConsistencyReplicaSet", true),
    ("StaleControllerConsistencyStatefulSet", true),
    ("StatefulSetAutoDeletePVC", true),
    ("StorageVersionMigrator", false),
    ("TopologyAwareHints", false),
    ("VolumeAttributesClass", true),
    ("WatchListClient", false),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted() {
        assert!(GATES.is_sorted());
    }
}
