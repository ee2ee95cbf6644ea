//! The feature gates of the scheduler.

use crate::flags::gates::Gates;

/// The feature gates of the scheduler in 1.37 with their state here. `docs/compatibility.md` lists those that are on
/// upstream and off here, and why. Two that are locked to on are included, since configurations for older releases may
/// name them.
pub(super) static GATES: Gates = &[
    ("AllAlpha", false),
    ("CompositePodGroup", false),
    ("CoordinatedLeaderElection", false),
    ("DRAAdminAccess", true),
    ("DRAConsumableCapacity", true),
    ("DRADerivedAttributes", false),
    ("DRADeviceBindingConditions", true),
    ("DRADeviceCompatibilityGroups", false),
    ("DRADeviceTaintRules", true),
    ("DRADeviceTaints", true),
    ("DRAExtendedResource", true),
    ("DRAFractionalCapacityRange", true),
    ("DRAListTypeAttributes", false),
    ("DRANodeAllocatableResources", false),
    ("DRAOptionalNodeOperations", false),
    ("DRAPartitionableDevices", true),
    ("DRAPrioritizedList", true),
    ("DRAResourceClaimDeviceStatus", true),
    ("DRASchedulerFilterTimeout", false),
    ("DRAWorkloadResourceClaims", false),
    ("DynamicResourceAllocation", true),
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
