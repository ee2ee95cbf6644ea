//! Erases directories of deleted volumes: the provisioner requests it with an annotation of the node, and the kubelet
//! responds with another one.
//!
//! Every client that may update nodes can write the annotation. So the annotation only names a directory; the volume
//! decides whether it may be erased: the volume was created by the provisioner, names the directory, is released, and
//! is to be deleted. A directory that a pod of this node still uses is not erased.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, tree};
use client::{Client, Patch, Resource};

use super::Volumes;
use crate::node::NodeView;
use crate::runtime::Runtime;

const NODES: Resource = Resource::core("nodes");
const VOLUMES: Resource = Resource::core("persistentvolumes");
const HOSTNAME: &str = "kubernetes.io/hostname";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const PROVISIONER: &str = "tiphys.io/local-path";
const TO_ERASE: &str = "tiphys.io/volumes-to-erase";
pub(crate) const ERASED: &str = "tiphys.io/volumes-erased";
/// The pause before a retry.
const PAUSE: Duration = Duration::from_secs(10);

/// Checks a directory, and erases it.
pub(crate) struct Eraser {
    pub(crate) client: Client,
    pub(crate) node: NodeView,
    pub(crate) runtime: Runtime,
    pub(crate) volumes: Arc<Volumes>,
}

/// Erases the requested directories until it is dropped.
pub(crate) async fn follow(eraser: Eraser) {
    let mut object = eraser.node.watch();
    loop {
        let node = object.borrow_and_update().clone().unwrap_or_default();
        let requested = directories(&node, TO_ERASE);
        let mut erased = Vec::new();
        for directory in &requested {
            match erase_volume(&eraser, &node, directory).await {
                Ok(()) => erased.push(directory.clone()),
                Err(error) => tracing::warn!(directory = %directory.display(), %error, "failed to erase volume"),
            }
        }
        let patched = match erase_patch(&node, &erased) {
            Some(patch) => {
                eraser.client.patch(NODES, "", &eraser.node.name, "status", Patch::Merge(&patch)).await.map(drop)
            }
            None => Ok(()),
        };
        if let Err(error) = &patched {
            tracing::debug!(%error, "failed to report erased volumes");
        }
        let changed = object.changed();
        if patched.is_err() || erased.len() < requested.len() {
            let _ = tokio::time::timeout(PAUSE, changed).await;
        } else if changed.await.is_err() {
            return;
        }
    }
}

/// The response; None if it was sent already, or if the node is not known yet.
fn erase_patch(node: &Tree, erased: &[PathBuf]) -> Option<Tree> {
    if node.is_null() || node.map("metadata.annotations").contains(ERASED) && directories(node, ERASED) == erased {
        return None;
    }
    let list: Vec<Tree> = erased.iter().map(|directory| Tree::from(directory.to_string_lossy().as_ref())).collect();
    let list = String::from_utf8_lossy(&api::json::encode(&list.into(), None)).into_owned();
    Some(tree! { "metadata" => tree! { "annotations" => tree! { ERASED => list } } })
}

fn directories(node: &Tree, annotation: &str) -> Vec<PathBuf> {
    let list = api::json::decode(node.map("metadata.annotations").str(annotation).as_bytes()).unwrap_or_default();
    list.as_list().unwrap_or(&[]).iter().filter_map(Tree::as_str).map(PathBuf::from).collect()
}

/// Why the directory of a volume is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Kept {
    #[error("is of another provisioner")]
    Provisioner,
    #[error("has another directory")]
    Directory,
    #[error("is on another node")]
    Node,
    #[error("is to be retained")]
    Retained,
    #[error("is not released")]
    InUse,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("it is not the path of a provisioned volume")]
    NotAVolume,
    #[error("failed to read the volume {0}, which is not erased: {1}")]
    Unknown(String, String),
    #[error("the volume {0} {1}")]
    NotToErase(String, Kept),
    #[error("a pod of this node uses it")]
    InUse,
    #[error("failed to list the mounts of containers: {0}")]
    Runtime(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

async fn erase_volume(eraser: &Eraser, node: &Tree, directory: &Path) -> Result<(), Error> {
    let name = volume_name(directory).ok_or(Error::NotAVolume)?;
    let volume = eraser.client.get(VOLUMES, "", &name).await;
    let volume = volume.map_err(|error| Error::Unknown(name.clone(), error.message().to_string()))?;
    check(&volume, directory, node).map_err(|why| Error::NotToErase(name, why))?;
    if eraser.volumes.uses(directory).await || is_mounted(eraser, directory).await? {
        return Err(Error::InUse);
    }
    Ok(erase(directory.to_path_buf()).await?)
}

/// Whether a volume allows a directory of this node to be erased.
fn check(volume: &Tree, directory: &Path, node: &Tree) -> Result<(), Kept> {
    let host = match node.map("metadata.labels").str(HOSTNAME) {
        "" => node.str("metadata.name"),
        hostname => hostname,
    };
    let term = volume.list("spec.nodeAffinity.required.nodeSelectorTerms").first();
    let values = term.and_then(|term| term.list("matchExpressions").first()).map(|one| one.list("values"));
    let is_here = values.is_some_and(|values| matches!(values, [value] if value.as_str() == Some(host)));
    let checks = [
        (volume.map("metadata.annotations").str(PROVISIONED_BY) == PROVISIONER, Kept::Provisioner),
        (Path::new(volume.str("spec.hostPath.path")) == directory, Kept::Directory),
        (is_here, Kept::Node),
        (volume.str("spec.persistentVolumeReclaimPolicy") == "Delete", Kept::Retained),
        (volume.str("status.phase") == "Released", Kept::InUse),
    ];
    checks.into_iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, why)| Err(why))
}

/// Whether a running container mounts the directory, or a path below it.
async fn is_mounted(eraser: &Eraser, directory: &Path) -> Result<bool, Error> {
    let failed = |status: cri::Status| Error::Runtime(status.message().to_string());
    let service = &eraser.runtime.service;
    let state = Some(cri::ContainerStateValue { state: cri::ContainerState::Running.into() });
    let filter = Some(cri::ContainerFilter { state, ..Default::default() });
    let running = service.list_containers(cri::ListContainersRequest { filter }).await.map_err(failed)?;
    for container in running.containers {
        let request = cri::ContainerStatusRequest { container_id: container.id, verbose: false };
        match service.container_status(request).await {
            Ok(answer) if answer.status.as_ref().is_some_and(|status| has_mount(status, directory)) => return Ok(true),
            Err(status) if status.code() != cri::Code::NotFound => return Err(failed(status)),
            _ => {}
        }
    }
    Ok(false)
}

fn has_mount(status: &cri::ContainerStatus, directory: &Path) -> bool {
    status.mounts.iter().any(|mount| Path::new(&mount.host_path).starts_with(directory))
}

/// The name of the volume with this directory, from `pvc-UID_NAMESPACE_CLAIM`; None for other paths.
fn volume_name(path: &Path) -> Option<String> {
    let name = path.file_name().and_then(|name| name.to_str())?;
    let (uid, rest) = name.strip_prefix("pvc-")?.split_once('_')?;
    let is_uid = uid.len() == 36 && uid.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    let goes_up =
        path.components().any(|part| !matches!(part, std::path::Component::RootDir | std::path::Component::Normal(_)));
    let is_right = path.is_absolute() && !goes_up && is_uid && rest.contains('_');
    is_right.then(|| format!("pvc-{uid}"))
}

/// Erases a directory. Symbolic links in it are removed, not followed.
async fn erase(directory: PathBuf) -> io::Result<()> {
    let work = move || match std::fs::remove_dir_all(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    };
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";

    #[test]
    fn erases_only_directories_of_volumes() {
        let good = format!("/d/volumes/pvc-{UID}_default_data");
        assert_eq!(volume_name(Path::new(&good)), Some(format!("pvc-{UID}")));
        let bad = ["/", "/etc", "/d/pvc-1_a_b", "pvc-01234567-89ab-cdef-0123-456789abcdef_a_b", "/d/pvc-x"];
        for path in
            bad.map(str::to_string).into_iter().chain([format!("/d/../pvc-{UID}_a_b"), format!("/d/pvc-{UID}_a")])
        {
            assert_eq!(volume_name(Path::new(&path)), None, "{path}");
        }
    }

    #[test]
    fn erases_only_directories_of_released_volumes() {
        let path = format!("/d/volumes/pvc-{UID}_default_data");
        let node = |text: &str| api::yaml::decode(text.as_bytes()).expect("a node");
        let named = node("metadata: {name: n, labels: {kubernetes.io/hostname: host}}");
        let good = api::yaml::decode(
            format!(
                "{{metadata: {{annotations: {{pv.kubernetes.io/provisioned-by: tiphys.io/local-path}}}},
                  spec: {{hostPath: {{path: '{path}'}}, persistentVolumeReclaimPolicy: Delete,
                         nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [
                           {{key: kubernetes.io/hostname, operator: In, values: [host]}}]}}]}}}}}},
                  status: {{phase: Released}}}}"
            )
            .as_bytes(),
        )
        .expect("a volume");
        let check = |volume: &Tree, node: &Tree, expected: Result<(), Kept>| {
            assert_eq!(super::check(volume, Path::new(&path), node), expected);
        };
        check(&good, &named, Ok(()));
        check(&good, &node("metadata: {name: host}"), Ok(()));
        check(&good, &node("metadata: {name: other}"), Err(Kept::Node));
        let changed = |at: &str, key: &str, value: &str| {
            let mut volume = good.clone();
            volume.child(at).set(key, value);
            volume
        };
        check(&changed("status", "phase", "Bound"), &named, Err(Kept::InUse));
        check(&changed("spec", "persistentVolumeReclaimPolicy", "Retain"), &named, Err(Kept::Retained));
        let mut other = good.clone();
        other.child("spec").set("hostPath", tree! { "path" => "/d/volumes/other" });
        check(&other, &named, Err(Kept::Directory));
        other = good.clone();
        other.child("metadata").set("annotations", tree! {});
        check(&other, &named, Err(Kept::Provisioner));
    }

    #[test]
    fn mounted_directories_are_in_use() {
        let check = |host_path: &str, expected: bool| {
            let mounts = vec![cri::Mount { host_path: host_path.to_string(), ..Default::default() }];
            let status = cri::ContainerStatus { mounts, ..Default::default() };
            assert_eq!(has_mount(&status, Path::new("/d/a")), expected, "{host_path}");
        };
        check("/d/a", true);
        check("/d/a/sub", true);
        check("/d/ab", false);
        check("/d", false);
    }

    #[test]
    fn reports_erased_directories_once() {
        let node = |erased: &str| tree! { "metadata" => tree! { "annotations" => tree! { ERASED => erased } } };
        let response =
            |patch: Option<Tree>| patch.map(|patch| patch.at("metadata").map("annotations").str(ERASED).to_string());
        let one = [PathBuf::from("/d/1")];
        assert_eq!(erase_patch(&Tree::Null, &[]), None);
        assert_eq!(
            response(erase_patch(&tree! { "metadata" => tree! {} }, &[])),
            Some("[]".to_string()),
            "it announces itself"
        );
        assert_eq!(response(erase_patch(&node("[]"), &[])), None);
        assert_eq!(response(erase_patch(&node("[]"), &one)), Some(r#"["/d/1"]"#.to_string()));
        assert_eq!(response(erase_patch(&node(r#"["/d/1"]"#), &one)), None);
        assert_eq!(response(erase_patch(&node(r#"["/d/1"]"#), &[])), Some("[]".to_string()));
    }
}
