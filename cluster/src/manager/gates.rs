//! The feature gates of the controllers. None can be turned here: one is taken where it says what is so, and
//! refused by its name where it does not.

use crate::apiserver::values::boolean;

/// The gates that the controllers of 1.37 look at, each with the state that they are in here. Those of features
/// that are always on since long are among them: what was written for an older release may still name them.
static GATES: &[(&str, bool)] = &[
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

/// Checks `Name=true,Other=false`, and each entry by itself.
pub fn check(text: &str) -> Result<(), String> {
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (name, value) = entry.split_once('=').ok_or_else(|| format!("missing bool value for {entry}"))?;
        let (name, value) = (name.trim(), value.trim());
        let asked = boolean(value).map_err(|_| format!("invalid value of {name}={value}, it is true or false"))?;
        if name == "AllBeta" {
            return Err("AllBeta cannot be turned: each feature is on or off by itself".to_string());
        }
        match GATES.iter().find(|(known, _)| *known == name) {
            None => return Err(format!("unrecognized feature gate: {name}")),
            Some((_, state)) if *state != asked => {
                let state = if *state { "on" } else { "off" };
                return Err(format!("{name} is {state} here and cannot be turned"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_may_say_what_is_so() {
        for text in ["", "JobManagedBy=true", "AllAlpha=false, ServiceTrafficDistribution=true,"] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        let refused = |text: &str, want: &str| assert_eq!(check(text), Err(want.to_string()), "{text}");
        refused("JobManagedBy=false", "JobManagedBy is on here and cannot be turned");
        refused("AllAlpha=true", "AllAlpha is off here and cannot be turned");
        refused("JobManagedBy", "missing bool value for JobManagedBy");
        refused("JobManagedBy=x", "invalid value of JobManagedBy=x, it is true or false");
        refused("AllBeta=false", "AllBeta cannot be turned: each feature is on or off by itself");
        refused("Nonsense=true", "unrecognized feature gate: Nonsense");
        assert!(GATES.is_sorted(), "the list is sorted");
    }
}
