//! Accessors of pods.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::Tree;

/// The annotation for the source of a pod. The source sets it and overwrites the value of the pod's author.
pub(crate) const SOURCE: &str = "kubernetes.io/config.source";
/// On a mirror pod: the hash of the static pod that it shows.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";
/// On a static pod: its hash.
pub(crate) const HASH: &str = "kubernetes.io/config.hash";

/// Valid IDs of users and groups.
pub(crate) const IDS: std::ops::RangeInclusive<i64> = 0..=i32::MAX as i64;

pub(crate) fn uid(pod: &Tree) -> &str {
    pod.str("metadata.uid")
}

/// `metadata.name`.
pub fn name(pod: &Tree) -> &str {
    pod.str("metadata.name")
}

/// `metadata.namespace`.
pub fn namespace(pod: &Tree) -> &str {
    pod.str("metadata.namespace")
}

pub(crate) fn annotation<'a>(pod: &'a Tree, key: &str) -> &'a str {
    pod.map("metadata.annotations").str(key)
}

/// A static pod comes from a file or URL of this node; the API only has its mirror pod.
pub(crate) fn is_static(pod: &Tree) -> bool {
    !matches!(annotation(pod, SOURCE), "" | "api")
}

pub(crate) fn is_mirror(pod: &Tree) -> bool {
    pod.map("metadata.annotations").contains(MIRROR)
}

/// A pod of the API. Every client can annotate pods, so that its source and hash annotations are not trusted.
pub(crate) fn of_api(mut pod: Arc<Tree>) -> Arc<Tree> {
    let annotations = Arc::make_mut(&mut pod).child("metadata.annotations");
    annotations.set(SOURCE, "api");
    annotations.remove(HASH);
    pod
}

/// Whether directories and cgroups can be called after a pod: none of its names leads elsewhere.
pub(crate) fn has_plain_names(pod: &Tree) -> bool {
    [namespace(pod), name(pod), uid(pod)].into_iter().all(is_plain)
}

/// Whether a name is one component of a path.
pub(crate) fn is_plain(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

/// Whether a directory is a direct child of another.
pub(crate) fn is_child(directory: &Path, parent: &Path) -> bool {
    directory.parent() == Some(parent) && directory.file_name().and_then(|name| name.to_str()).is_some_and(is_plain)
}

pub(crate) fn is_over(pod: &Tree) -> bool {
    matches!(pod.str("status.phase"), "Succeeded" | "Failed")
}

pub(crate) fn is_deleted(pod: &Tree) -> bool {
    pod.at("metadata").has("deletionTimestamp")
}

/// An init container that runs beside the main containers.
pub(crate) fn is_sidecar(container: &Tree) -> bool {
    container.str("restartPolicy") == "Always"
}

/// The three lists of containers.
pub(crate) const LISTS: [&str; 3] = ["spec.initContainers", "spec.containers", "spec.ephemeralContainers"];

/// All containers, init containers first.
pub(crate) fn containers(pod: &Tree) -> impl Iterator<Item = &Tree> {
    LISTS.iter().flat_map(|list| pod.list(list))
}

pub(crate) fn container<'a>(pod: &'a Tree, name: &str) -> Option<&'a Tree> {
    containers(pod).find(|container| container.str("name") == name)
}

pub(crate) fn volume<'a>(pod: &'a Tree, name: &str) -> Option<&'a Tree> {
    pod.list("spec.volumes").iter().find(|volume| volume.str("name") == name)
}

/// A volume on the node's disk that is removed with its pod, and counts for the pod's ephemeral storage.
pub(crate) fn is_ephemeral(volume: &Tree) -> bool {
    volume.get("emptyDir").is_some_and(|directory| directory.str("medium").is_empty()) || volume.has("configMap")
}

/// Critical pods run whatever the node's condition is.
pub(crate) fn is_critical(pod: &Tree) -> bool {
    const SYSTEM: i64 = 2_000_000_000;
    is_static(pod) || pod.int("spec.priority").is_some_and(|priority| priority >= SYSTEM)
}

/// `pod_namespace(uid)`, as messages name a pod.
pub(crate) fn named(pod: &Tree) -> String {
    format!("{}_{}({})", name(pod), namespace(pod), uid(pod))
}

/// The object reference of a container for events.
pub(crate) fn subject(pod: &Tree, container: &str) -> Tree {
    let mut subject = pod.clone();
    for list in LISTS {
        if pod.list(list).iter().any(|spec| spec.str("name") == container) {
            subject.set("fieldPath", format!("{list}{{{container}}}"));
        }
    }
    subject
}

/// The directory of a pod's logs.
pub(crate) fn log_dir(root: &Path, pod: &Tree) -> PathBuf {
    root.join(format!("{}_{}_{}", namespace(pod), name(pod), uid(pod)))
}

/// The directory of termination messages below a pod's directory, by container.
pub(crate) const MESSAGES: &str = "containers";

/// The file of a container's termination message, in the pod's directory.
pub(crate) fn message_file(pod_dir: &Path, name: &str, restarts: i64) -> PathBuf {
    pod_dir.join(MESSAGES).join(name).join(format!("{restarts}.message"))
}

#[cfg(test)]
mod tests {
    use api::{tree, yaml};

    use super::*;

    #[test]
    fn pods_of_the_api_are_never_static() {
        for said in ["file", "http", "api", ""] {
            let annotations = format!("{{{SOURCE}: '{said}', {HASH}: ../x, note: a}}");
            let pod = yaml::decode(format!("metadata: {{annotations: {annotations}}}").as_bytes()).expect("YAML");
            let pod = of_api(Arc::new(pod));
            assert!(!is_static(&pod), "{said}");
            assert_eq!((annotation(&pod, SOURCE), annotation(&pod, HASH), annotation(&pod, "note")), ("api", "", "a"));
        }
    }

    #[test]
    fn rejects_names_that_leave_the_directory() {
        let cases = [
            ("default", "web", "1-2", true),
            ("default", "..", "1-2", false),
            ("default", "web", "x/../../../../etc", false),
            ("a/b", "web", "1", false),
            ("default", "web", "", false),
        ];
        for (namespace, name, uid, expected) in cases {
            let pod = tree! { "metadata" => tree! { "namespace" => namespace, "name" => name, "uid" => uid } };
            assert_eq!(has_plain_names(&pod), expected, "{namespace} {name} {uid}");
        }
        let root = Path::new("/logs");
        for (directory, expected) in [
            ("/logs/a_b_c", true),
            ("/logs/a/../../etc", false),
            ("/logs/..", false),
            ("/logs", false),
            ("/etc", false),
        ] {
            assert_eq!(is_child(Path::new(directory), root), expected, "{directory}");
        }
    }
}
