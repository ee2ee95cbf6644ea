//! Pods that are this node's own: from files and from a URL. The API only shows them, by mirrors.

mod manifest;
pub(crate) mod mirror;
pub(crate) mod url;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use client::files::Files;
use tokio::sync::watch;

use crate::model::pod;
use crate::pod::worker::Workers;

/// The limit of a file, or of a URL's response.
const MOST: usize = 10 << 20;

/// A static pod, and its file or URL.
#[derive(Debug, Clone, PartialEq)]
struct StaticPod {
    origin: String,
    pod: Arc<Tree>,
}

/// By uid.
type Pods = BTreeMap<String, StaticPod>;

/// The pods and errors of a source.
#[derive(Debug, Default)]
struct SourceContent {
    pods: Pods,
    /// Unreadable files, and why.
    problems: BTreeMap<String, ReadError>,
}

/// A file that is no static pod.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Manifest(#[from] manifest::ManifestError),
}

impl SourceContent {
    fn add(&mut self, origin: String, read: Result<Tree, ReadError>) {
        match read {
            Ok(pod) => {
                let uid = pod::uid(&pod).to_string();
                self.pods.insert(uid, StaticPod { origin, pod: Arc::new(pod) });
            }
            Err(why) => drop(self.problems.insert(origin, why)),
        }
    }
}

/// Changes of the workers.
#[derive(Debug, Default, PartialEq)]
struct Changes {
    gone: BTreeSet<String>,
    come: Vec<Arc<Tree>>,
}

/// An unreadable file does not count as removed, and blocks no other file. A pod with a UID in its file is the same pod
/// after a change.
fn changes(known: &Pods, found: &SourceContent) -> Changes {
    let is_gone = |(uid, own): &(&String, &StaticPod)| {
        !found.pods.contains_key(*uid) && !found.problems.contains_key(&own.origin)
    };
    let is_new = |(uid, own): &(&String, &StaticPod)| known.get(*uid).is_none_or(|before| before.pod != own.pod);
    Changes {
        gone: known.iter().filter(is_gone).map(|(uid, _)| uid.clone()).collect(),
        come: found.pods.iter().filter(is_new).map(|(_, own)| own.pod.clone()).collect(),
    }
}

/// Updates the workers to the pods that were read.
fn apply(workers: &Arc<Workers>, known: &mut Pods, found: SourceContent) {
    let Changes { gone, come } = changes(known, &found);
    for uid in &gone {
        workers.remove(uid);
        known.remove(uid);
    }
    come.into_iter().for_each(|pod| workers.update(pod));
    known.extend(found.pods);
}

/// Static pods by files: a directory of them, or one.
pub(crate) struct FileSource {
    path: PathBuf,
    node: String,
    known: Pods,
}

impl FileSource {
    pub(crate) fn new(path: PathBuf, node: &str) -> FileSource {
        FileSource { path, node: node.to_string(), known: Pods::new() }
    }

    /// Applies the current files; false if they cannot be listed.
    pub(crate) fn sync_pods(&mut self, workers: &Arc<Workers>) -> bool {
        match read(&self.path, &self.node) {
            Ok(found) => {
                found.problems.iter().for_each(|(file, why)| tracing::error!("{file}: {why}"));
                apply(workers, &mut self.known, found);
                true
            }
            Err(why) => {
                tracing::error!("{}: {why}", self.path.display());
                false
            }
        }
    }

    /// Watches the source until it is dropped; `known_once` becomes true once its pods are known.
    pub(crate) async fn follow(mut self, period: Duration, workers: Arc<Workers>, known_once: watch::Sender<bool>) {
        loop {
            // Watched before it is read, so that no change in between is missed.
            let files = Files::watch(std::slice::from_ref(&self.path)).ok();
            if self.sync_pods(&workers) {
                known_once.send_replace(true);
            }
            let changed = async {
                match &files {
                    Some(files) => files.changed().await,
                    None => std::future::pending().await,
                }
            };
            let _ = tokio::time::timeout(period, changed).await;
        }
    }
}

/// The pods of a directory or a file. An error if it cannot be listed.
fn read(path: &Path, node: &str) -> std::io::Result<SourceContent> {
    let mut found = SourceContent::default();
    for file in list_files(path)? {
        let origin = file.display().to_string();
        let read = match read_file(&file) {
            // Removed after the directory was read.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            read => read.map_err(ReadError::from),
        };
        found.add(origin.clone(), read.and_then(|bytes| Ok(manifest::read(&bytes, node, "file", &origin)?)));
    }
    Ok(found)
}

/// Empty if the path does not exist.
fn list_files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Ok(kind) if kind.is_file() => return Ok(vec![path.to_path_buf()]),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(path)? {
        paths.push(entry?.path());
    }
    let is_hidden = |path: &Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    paths.retain(|path| path.is_file() && !is_hidden(path));
    paths.sort_unstable();
    Ok(paths)
}

fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MOST as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MOST {
        return Err(std::io::Error::other("it is too large"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: a, image: i}]}}";
    const BAD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: bad}, spec: {containers: []}}";

    fn write(dir: &Path, name: &str, text: &str) {
        std::fs::write(dir.join(name), text).expect("a file");
    }

    #[test]
    fn reads_a_directory_and_names_invalid_files() {
        let dir = tempfile::tempdir().expect("a directory");
        write(dir.path(), "good.yaml", GOOD);
        write(dir.path(), ".hidden.yaml", GOOD);
        write(dir.path(), "bad.yaml", BAD);
        let found = read(dir.path(), "node").expect("pods");
        assert_eq!((found.pods.len(), found.problems.len()), (1, 1));
        let (file, why) = found.problems.first_key_value().expect("a problem");
        assert!(file.ends_with("bad.yaml") && why.to_string().contains("spec.containers"), "{file} {why}");
        let one = read(&dir.path().join("good.yaml"), "node").expect("a pod");
        assert_eq!(one.pods, found.pods, "a file can be named by itself");
        let none = read(&dir.path().join("none"), "node").expect("nothing");
        assert!(none.pods.is_empty() && none.problems.is_empty());
        assert!(read(Path::new("/dev/null"), "node").is_err());
    }

    #[test]
    fn files_are_independent() {
        let dir = tempfile::tempdir().expect("a directory");
        let named = |name: &str| GOOD.replace("web", name);
        for name in ["kept", "broken", "changed", "gone"] {
            write(dir.path(), name, &named(name));
        }
        write(dir.path(), "own", &named("own, uid: own"));
        let known = read(dir.path(), "node").expect("pods").pods;
        assert_eq!(changes(&Pods::new(), &read(dir.path(), "node").expect("pods")).come.len(), 5);
        assert_eq!(changes(&known, &read(dir.path(), "node").expect("pods")), Changes::default());
        write(dir.path(), "broken", BAD);
        write(dir.path(), "changed", &named("changed").replace("image: i", "image: j"));
        write(dir.path(), "own", &named("own, uid: own").replace("image: i", "image: j"));
        std::fs::remove_file(dir.path().join("gone")).expect("it goes");
        let changes = changes(&known, &read(dir.path(), "node").expect("pods"));
        let name = |uid: &String| pod::name(&known[uid].pod).to_string();
        let gone: BTreeSet<String> = changes.gone.iter().map(name).collect();
        assert_eq!(gone, BTreeSet::from(["changed-node".to_string(), "gone-node".to_string()]));
        let come: BTreeSet<&str> = changes.come.iter().map(|pod| pod::name(pod)).collect();
        assert_eq!(come, BTreeSet::from(["changed-node", "own-node"]));
    }
}
