//! Pods that are this node's own: from files and from a URL. The API only shows them, by mirrors.

mod manifest;
pub mod mirror;
pub mod url;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::Tree;
use client::files::Files;

use crate::agent::Agent;
use crate::pod;
use crate::worker::Workers;

/// Takes the static pods that there are now.
pub fn load(workers: &Arc<Workers>, folder: &Path, node: &str) {
    read_folder(folder, node).0.into_values().for_each(|pod| workers.update(pod));
}

/// Follows the folder of static pods until it is dropped.
pub async fn follow_folder(agent: Arc<Agent>, workers: Arc<Workers>, folder: PathBuf) {
    let mut known: BTreeMap<String, Arc<Tree>> = BTreeMap::new();
    loop {
        // Watched before it is read: what comes in between is not missed.
        let files = Files::watch(std::slice::from_ref(&folder)).ok();
        let (read, problems) = read_folder(&folder, &agent.node);
        problems.iter().for_each(|why| tracing::error!("{why}"));
        apply(&workers, &mut known, read, !problems.is_empty());
        let changed = async {
            match &files {
                Some(files) => files.changed().await,
                None => std::future::pending().await,
            }
        };
        let _ = tokio::time::timeout(agent.config.file_check_frequency, changed).await;
    }
}

/// Brings the workers to what was read. A file that cannot be read is not one that is gone.
fn apply(
    workers: &Arc<Workers>,
    known: &mut BTreeMap<String, Arc<Tree>>,
    read: BTreeMap<String, Arc<Tree>>,
    is_partial: bool,
) {
    for (uid, pod) in &read {
        if !known.contains_key(uid) {
            workers.update(pod.clone());
        }
    }
    let gone: Vec<String> = known.keys().filter(|uid| !read.contains_key(*uid)).cloned().collect();
    if !is_partial {
        for uid in gone {
            workers.remove(&uid);
            known.remove(&uid);
        }
    }
    known.extend(read);
}

/// The pods of a folder by their uids, and what could not be read.
fn read_folder(folder: &Path, node: &str) -> (BTreeMap<String, Arc<Tree>>, Vec<String>) {
    let (mut pods, mut problems) = (BTreeMap::new(), Vec::new());
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return (pods, problems),
        Err(error) => return (pods, vec![format!("{}: {error}", folder.display())]),
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort_unstable();
    let is_hidden = |path: &Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    for path in paths.iter().filter(|path| path.is_file() && !is_hidden(path)) {
        let read = std::fs::read(path).map_err(|error| error.to_string());
        match read.and_then(|bytes| manifest::read(&bytes, node, "file", &path.display().to_string())) {
            Ok(pod) => drop(pods.insert(pod::uid(&pod).to_string(), Arc::new(pod))),
            Err(why) => problems.push(format!("{}: {why}", path.display())),
        }
    }
    (pods, problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_read_and_bad_files_are_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("a file");
        let good = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: a, image: i}]}}";
        write("good.yaml", good);
        write(".hidden.yaml", good);
        write("bad.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: bad}, spec: {containers: []}}");
        let (pods, problems) = read_folder(dir.path(), "node");
        assert_eq!(pods.len(), 1);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("bad.yaml") && problems[0].contains("spec.containers"), "{problems:?}");
        assert_eq!(read_folder(&dir.path().join("none"), "node").1, Vec::<String>::new());
    }
}
