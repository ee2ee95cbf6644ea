//! Node affinity and access modes of persistent volumes, checked before anything is mounted. The scheduler checks both
//! too, but a pod may be bound without it.

use api::Tree;
use podmodel::{Labels, NodeSelector};

use super::plan::{Failure, Step};

/// A volume that this pod cannot have here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DemandError {
    #[error("no matching NodeSelectorTerms")]
    OtherNode,
    #[error("volume uses the ReadWriteOncePod access mode and is already in use by another pod")]
    InUse,
}

/// Whether the volume has a node affinity.
pub(crate) fn has_nodes(volume: &Tree) -> bool {
    volume.at("spec.nodeAffinity").has("required")
}

/// Checks that this node can access the volume.
pub(crate) fn check_node_affinity(volume: &Tree, node: &Tree) -> Result<(), Failure> {
    let desired = NodeSelector::read(volume.at("spec.nodeAffinity.required"));
    let labels = node.map("metadata.labels").iter();
    let labels = Labels::from_iter(labels.map(|(key, value)| (key, value.as_str().unwrap_or_default())));
    if !has_nodes(volume) || desired.matches(node.str("metadata.name"), &labels) {
        return Ok(());
    }
    let step = if is_block(volume) { Step::MapAffinity } else { Step::MountAffinity };
    Err(Failure::at(step, DemandError::OtherNode))
}

/// Whether only one pod may use the volume. With several access modes, the mode that a pod means is unknown.
pub(crate) fn is_exclusive(volume: &Tree) -> bool {
    matches!(volume.list("spec.accessModes"), [mode] if mode.as_str() == Some("ReadWriteOncePod"))
}

/// The failure of a second pod.
pub(crate) fn already_in_use(volume: &Tree) -> Failure {
    let step = if is_block(volume) { Step::SetUpDevice } else { Step::SetUp };
    Failure::at(step, DemandError::InUse)
}

fn is_block(volume: &Tree) -> bool {
    volume.str("spec.volumeMode") == "Block"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_node_affinity() {
        let node = api::yaml::decode(b"metadata: {name: n1, labels: {zone: a}}").unwrap();
        let by = |key: &str, value: &str| {
            format!(
                "nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: {key}, operator: In, values: [{value}]}}]}}]}}}}"
            )
        };
        let cases = [
            ("{}".to_string(), None),
            (format!("{{{}}}", by("zone", "a")), None),
            (format!("{{{}}}", by("zone", "b")), Some("MountVolume.NodeAffinity check")),
            (format!("{{volumeMode: Block, {}}}", by("disk", "x")), Some("MapVolume.NodeAffinity check")),
        ];
        for (spec, desired) in cases {
            let volume = api::tree! { "spec" => api::yaml::decode(spec.as_bytes()).unwrap() };
            let failed = check_node_affinity(&volume, &node).err();
            assert_eq!(failed.as_ref().map(|failure| failure.step.operation()), desired, "{spec}");
            assert!(failed.is_none_or(|failure| failure.source.to_string() == "no matching NodeSelectorTerms"));
        }
    }

    #[test]
    fn read_write_once_pod_is_exclusive() {
        let cases =
            [("[ReadWriteOncePod]", true), ("[ReadWriteOnce]", false), ("[ReadWriteOncePod, ReadOnlyMany]", false)];
        for (modes, desired) in cases {
            let volume = format!("spec: {{accessModes: {modes}}}");
            assert_eq!(is_exclusive(&api::yaml::decode(volume.as_bytes()).unwrap()), desired, "{modes}");
        }
    }
}
