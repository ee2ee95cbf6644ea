//! The feature gates of the scheduler.

use crate::flags::gates::Gates;

/// The feature gates of the scheduler in 1.37 with their state here. `docs/compatibility.md` lists those that are on
/// upstream and off here, and why. Two that are locked to on are included, since configurations for older releases may
/// name them.
pub(super) static GATES: Gates = &[
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
    fn list_is_sorted() {
        assert!(GATES.is_sorted());
    }
}
