//! Folders of volumes that are gone: the provisioner asks for them to be erased by an annotation of the node, and is
//! answered by another.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, tree};
use client::{Patch, Resource};

use crate::agent::Agent;

const NODES: Resource = Resource::core("nodes");
const TO_ERASE: &str = "tiphys.io/volumes-to-erase";
pub const ERASED: &str = "tiphys.io/volumes-erased";
/// Before another try.
const PAUSE: Duration = Duration::from_secs(10);

/// Erases what is asked for, until it is dropped.
pub async fn follow(agent: Arc<Agent>) {
    let mut object = agent.object.clone();
    loop {
        let node = object.borrow_and_update().clone().unwrap_or_default();
        let asked = folders(&node, TO_ERASE);
        let mut erased = Vec::new();
        for folder in asked.iter().filter(|folder| is_of_volume(folder)) {
            match erase(folder.clone()).await {
                Ok(()) => erased.push(folder.clone()),
                Err(error) => tracing::warn!(folder = %folder.display(), %error, "a volume could not be erased"),
            }
        }
        let told = match answer(&node, &erased) {
            Some(patch) => agent.client.patch(NODES, "", &agent.node, "status", Patch::Merge(&patch)).await.map(drop),
            None => Ok(()),
        };
        if let Err(error) = &told {
            tracing::debug!(%error, "what was erased could not be told");
        }
        let changed = object.changed();
        if told.is_err() || erased.len() < asked.len() {
            let _ = tokio::time::timeout(PAUSE, changed).await;
        } else if changed.await.is_err() {
            return;
        }
    }
}

/// What has to be told; None where it was, or where the node is not known yet.
fn answer(node: &Tree, erased: &[PathBuf]) -> Option<Tree> {
    if node.is_null() || node.map("metadata.annotations").contains(ERASED) && folders(node, ERASED) == erased {
        return None;
    }
    let list: Vec<Tree> = erased.iter().map(|folder| Tree::from(folder.to_string_lossy().as_ref())).collect();
    let list = String::from_utf8_lossy(&api::json::encode(&list.into(), None)).into_owned();
    Some(tree! { "metadata" => tree! { "annotations" => tree! { ERASED => list } } })
}

fn folders(node: &Tree, annotation: &str) -> Vec<PathBuf> {
    let list = api::json::decode(node.map("metadata.annotations").str(annotation).as_bytes()).unwrap_or_default();
    list.as_list().unwrap_or(&[]).iter().filter_map(Tree::as_str).map(PathBuf::from).collect()
}

/// Whether a path can be a volume's folder, by its name alone: nothing else is erased, whoever asks for it.
fn is_of_volume(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some((uid, rest)) = name.strip_prefix("pvc-").and_then(|name| name.split_once('_')) else { return false };
    let is_uid = uid.len() == 36 && uid.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    let goes_up =
        path.components().any(|part| !matches!(part, std::path::Component::RootDir | std::path::Component::Normal(_)));
    path.is_absolute() && !goes_up && is_uid && rest.contains('_')
}

/// Links in it are removed, not followed.
async fn erase(folder: PathBuf) -> io::Result<()> {
    let work = move || match std::fs::remove_dir_all(&folder) {
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
    fn only_folders_of_volumes_are_erased() {
        let good = format!("/d/volumes/pvc-{UID}_default_data");
        assert!(is_of_volume(Path::new(&good)));
        let bad = ["/", "/etc", "/d/pvc-1_a_b", "pvc-01234567-89ab-cdef-0123-456789abcdef_a_b", "/d/pvc-x"];
        for path in
            bad.map(str::to_string).into_iter().chain([format!("/d/../pvc-{UID}_a_b"), format!("/d/pvc-{UID}_a")])
        {
            assert!(!is_of_volume(Path::new(&path)), "{path}");
        }
    }

    #[test]
    fn what_was_erased_is_told_once() {
        let node = |erased: &str| tree! { "metadata" => tree! { "annotations" => tree! { ERASED => erased } } };
        let said =
            |patch: Option<Tree>| patch.map(|patch| patch.at("metadata").map("annotations").str(ERASED).to_string());
        let one = [PathBuf::from("/d/1")];
        assert_eq!(answer(&Tree::Null, &[]), None);
        assert_eq!(said(answer(&tree! { "metadata" => tree! {} }, &[])), Some("[]".to_string()), "it announces itself");
        assert_eq!(said(answer(&node("[]"), &[])), None);
        assert_eq!(said(answer(&node("[]"), &one)), Some(r#"["/d/1"]"#.to_string()));
        assert_eq!(said(answer(&node(r#"["/d/1"]"#), &one)), None);
        assert_eq!(said(answer(&node(r#"["/d/1"]"#), &[])), Some("[]".to_string()));
    }
}
