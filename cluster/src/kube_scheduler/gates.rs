//! What the scheduler's feature gates are.

use crate::flags::gates::Gates;

/// The gates that the scheduler of 1.37 looks at, each with the state that it is in here: `docs/compatibility.md` says
/// which of those that are on upstream are not, and why. Two that are always on since long are among them, since what
/// was written for an older release may still name them.
pub static GATES: Gates = &[
    ("AllAlpha", false),
    ("CompositePodGroup", false),
    ("CoordinatedLeaderElection", false),
    ("DRAAdminAccess", false),
    ("DRAConsumableCapacity", false),
    ("DRADerivedAttributes", false),
    ("DRADeviceBindingConditions", false),
    ("DRADeviceCompatibilityGroups", false),
    ("DRADeviceTaintRules", false),
    ("DRADeviceTaints", false),
    ("DRAExtendedResource", false),
    ("DRAFractionalCapacityRange", false),
    ("DRAListTypeAttributes", false),
    ("DRANodeAllocatableResources", false),
    ("DRAOptionalNodeOperations", false),
    ("DRAPartitionableDevices", false),
    ("DRAPrioritizedList", false),
    ("DRAResourceClaimDeviceStatus", false),
    ("DRASchedulerFilterTimeout", false),
    ("DRAWorkloadResourceClaims", false),
    ("DynamicResourceAllocation", false),
    ("GenericWorkload", false),
    ("InPlacePodLevelResourcesVerticalScaling", true),
    ("InPlacePodVerticalScaling", true),
    ("InPlacePodVerticalScalingSchedulerPreemption", false),
    ("InterPodAffinityHostnameFastPath", false),
    ("MatchLabelKeysInPodTopologySpread", true),
    ("NodeDeclaredFeatures", true),
    ("NodeInclusionPolicyInPodTopologySpread", true),
    ("NominatedNodeNameForExpectation", false),
    ("OpportunisticBatching", true),
    ("PodGroupPreemptionPolicy", false),
    ("PodLevelResources", true),
    ("SchedulerAsyncAPICalls", true),
    ("SchedulerAsyncPreemption", true),
    ("SchedulerPopFromBackoffQ", true),
    ("SchedulerPreQueueingHints", false),
    ("SchedulerQueueingHints", true),
    ("SidecarContainers", true),
    ("StorageCapacityScoring", false),
    ("TaintTolerationComparisonOperators", true),
    ("TopologyAwareWorkloadScheduling", false),
    ("VolumeAttributesClass", true),
    ("VolumeLimitScaling", true),
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
