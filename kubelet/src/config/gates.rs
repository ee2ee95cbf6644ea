//! The kubelet's feature gates. None can be changed: only the value that is in effect is accepted.

use api::Tree;

use super::error::InvalidValue;

/// The feature gates of a kubelet of 1.37, each with its state here. Gates of stable features are included:
/// configurations of older releases may still name them.
static GATES: &[(&str, bool)] = &[
    ("AllAlpha", false),
    ("AppArmor", true),
    ("AppArmorFields", true),
    ("CPUCFSQuotaPeriod", true),
    ("CPUManager", true),
    ("CPUManagerPolicyAlphaOptions", true),
    ("CPUManagerPolicyBetaOptions", true),
    ("CPUManagerPolicyOptions", true),
    ("ClusterTrustBundleProjection", true),
    ("ContainerCheckpoint", false),
    ("ContainerRestartRules", true),
    ("CustomCPUCFSQuotaPeriod", true),
    ("DevicePluginCDIDevices", true),
    ("DisableCPUQuotaWithExclusiveCPUs", true),
    ("DynamicResourceAllocation", false),
    ("EnvFiles", true),
    ("EventedPLEG", true),
    ("ExecProbeTimeout", true),
    ("GracefulNodeShutdown", true),
    ("GracefulNodeShutdownBasedOnPodPriority", true),
    ("HPAScaleToZero", true),
    ("ImageMaximumGCAge", true),
    ("ImageVolume", true),
    ("InPlacePodLevelResourcesVerticalScaling", true),
    ("InPlacePodVerticalScaling", true),
    ("InPlacePodVerticalScalingExclusiveCPUs", false),
    ("InPlacePodVerticalScalingExclusiveMemory", false),
    ("InPlacePodVerticalScalingInitContainers", false),
    ("KubeletCgroupDriverFromCRI", true),
    ("KubeletCrashLoopBackOffMax", true),
    ("KubeletEnsureSecretPulledImages", true),
    ("KubeletFineGrainedAuthz", true),
    ("KubeletInUserNamespace", false),
    ("KubeletPSI", true),
    ("KubeletPodResources", true),
    ("KubeletPodResourcesDynamicResources", false),
    ("KubeletPodResourcesGet", true),
    ("KubeletPodResourcesGetAllocatable", true),
    ("KubeletPodResourcesListUseActivePods", true),
    ("KubeletSeparateDiskGC", false),
    ("KubeletTracing", false),
    ("LocalStorageCapacityIsolation", true),
    ("LocalStorageCapacityIsolationFSQuotaMonitoring", false),
    ("MemoryManager", true),
    ("MemoryQoS", true),
    ("NodeLogQuery", true),
    ("NodeSwap", true),
    ("PodCertificateRequest", true),
    ("PodLevelResources", true),
    ("PodLifecycleSleepAction", true),
    ("PodReadyToStartContainersCondition", true),
    ("ProcMountType", true),
    ("RecursiveReadOnlyMounts", true),
    ("ResourceHealthStatus", true),
    ("RotateKubeletClientCertificate", true),
    ("RotateKubeletServerCertificate", true),
    ("SeccompDefault", true),
    ("SidecarContainers", true),
    ("SupplementalGroupsPolicy", true),
    ("TopologyManager", true),
    ("TopologyManagerPolicyAlphaOptions", true),
    ("TopologyManagerPolicyBetaOptions", true),
    ("TopologyManagerPolicyOptions", true),
    ("UserNamespacesSupport", true),
    ("WindowsHostNetwork", false),
];

pub(crate) fn check(gates: &Tree) -> Result<(), InvalidValue> {
    for (name, requested) in super::values::map(gates, super::values::boolean)? {
        client::gates::check(GATES, &name, requested).map_err(|error| InvalidValue::new(error.to_string()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_sorted() {
        assert!(GATES.is_sorted());
    }
}
