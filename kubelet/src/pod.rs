//! What is often asked of a pod.

use api::Tree;

/// Where a static pod came from; pods of the API do not have it.
pub const SOURCE: &str = "kubernetes.io/config.source";
/// On a mirror pod: the hash of the static pod that it shows.
pub const MIRROR: &str = "kubernetes.io/config.mirror";
/// On a static pod: its hash.
pub const HASH: &str = "kubernetes.io/config.hash";

pub fn uid(pod: &Tree) -> &str {
    pod.str("metadata.uid")
}

pub fn name(pod: &Tree) -> &str {
    pod.str("metadata.name")
}

pub fn namespace(pod: &Tree) -> &str {
    pod.str("metadata.namespace")
}

pub fn annotation<'a>(pod: &'a Tree, key: &str) -> &'a str {
    pod.map("metadata.annotations").str(key)
}

/// A static pod is this node's own; the API only shows its mirror.
pub fn is_static(pod: &Tree) -> bool {
    !matches!(annotation(pod, SOURCE), "" | "api")
}

pub fn is_mirror(pod: &Tree) -> bool {
    pod.map("metadata.annotations").contains(MIRROR)
}

pub fn is_over(pod: &Tree) -> bool {
    matches!(pod.str("status.phase"), "Succeeded" | "Failed")
}

pub fn is_deleted(pod: &Tree) -> bool {
    pod.at("metadata").has("deletionTimestamp")
}

/// An init container that runs beside the others.
pub fn is_sidecar(container: &Tree) -> bool {
    container.str("restartPolicy") == "Always"
}

/// The three lists of containers.
pub const LISTS: [&str; 3] = ["spec.initContainers", "spec.containers", "spec.ephemeralContainers"];

/// All containers, those that prepare first.
pub fn containers(pod: &Tree) -> impl Iterator<Item = &Tree> {
    LISTS.iter().flat_map(|list| pod.list(list))
}

pub fn container<'a>(pod: &'a Tree, name: &str) -> Option<&'a Tree> {
    containers(pod).find(|container| container.str("name") == name)
}

pub fn volume<'a>(pod: &'a Tree, name: &str) -> Option<&'a Tree> {
    pod.list("spec.volumes").iter().find(|volume| volume.str("name") == name)
}

/// A volume on the node's disk that goes with its pod, and counts for what the pod may use of the disk.
pub fn is_ephemeral(volume: &Tree) -> bool {
    volume.get("emptyDir").is_some_and(|folder| folder.str("medium").is_empty()) || volume.has("configMap")
}
