//! What the scheduler's feature gates are.

use crate::component::gates::Gates;

/// The gates of 1.37 that the scheduler looks at, each with the state that it is in here.
pub static GATES: Gates = &[
    ("AllAlpha", false),
    ("CoordinatedLeaderElection", false),
    ("DRADeviceTaints", false),
    ("DynamicResourceAllocation", false),
    ("GangScheduling", false),
    ("GenericWorkload", false),
    ("InPlacePodVerticalScaling", true),
    ("MatchLabelKeysInPodTopologySpread", true),
    ("NodeDeclaredFeatures", true),
    ("NodeInclusionPolicyInPodTopologySpread", true),
    ("NominatedNodeNameForExpectation", false),
    ("PodLevelResources", true),
    ("SchedulerAsyncPreemption", true),
    ("SchedulerPopFromBackoffQ", false),
    ("SchedulerQueueingHints", true),
    ("SidecarContainers", true),
    ("StorageCapacityScoring", false),
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
