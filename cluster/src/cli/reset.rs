//! `tiphys reset`: removes all host state of a data directory, whatever its last process left.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ::network::cni::builtin::Names;
use cgroup::Hierarchies;

use super::instance::InstanceArguments;
use crate::error::{Error, Result};
use crate::machine::host_state::HostState;
use crate::machine::{lock, network, pods};
use crate::node::container_runtime::{self, BuiltinRuntime, RuntimeChoice};
use crate::up::hosts::NodeLink;

/// The arguments of `tiphys reset`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub(crate) instance: InstanceArguments,
    /// Do not ask for confirmation
    #[arg(long)]
    pub force: bool,
}

impl Arguments {
    /// Those of a data directory.
    pub(super) fn of(data_dir: PathBuf, force: bool) -> Arguments {
        Arguments { instance: InstanceArguments::of(data_dir), force }
    }
}

/// The entries that tiphys creates in a data directory. Other files there are the user's.
const ENTRIES: [&str; 20] = [
    "bootstrap-kubelet.conf",
    "cluster-id",
    "cni",
    "kubeconfig",
    "kubelet",
    "kubelet.conf",
    "logs",
    "network.json",
    "node.json",
    "nodes",
    "pki",
    "run.json",
    "runtime",
    "server.json",
    "servers.json",
    SNAPSHOTS,
    "store",
    "version",
    "volumes",
    "lock",
];
/// Snapshots that are saved without `--snapshot-dir`. Those of another directory are kept.
const SNAPSHOTS: &str = "snapshots";
/// Entries that identify a data directory.
const SIGNS: [&str; 5] = ["cluster-id", "store", "pki", "node.json", "nodes/link.json"];
/// The entries that the kubelet creates in its directory.
const KUBELET_ENTRIES: [&str; 3] = ["pods", "plugins", "plugins_registry"];
const CLASSES: [&str; 3] = ["", "/burstable", "/besteffort"];

/// The data directory as `reset` names it to the user, with the snapshots that it removes too.
pub fn describe(data_dir: &Path) -> String {
    match names_in(&data_dir.join(SNAPSHOTS)).len() {
        0 => data_dir.display().to_string(),
        1 => format!("{} with a snapshot of the store", data_dir.display()),
        count => format!("{} with {count} snapshots of the store", data_dir.display()),
    }
}

/// The canonical path, if it is a data directory that no process uses; the lock keeps other processes out.
pub fn open(path: &Path) -> Result<(PathBuf, lock::Lock)> {
    let data_dir = fs::canonicalize(path).map_err(Error::file(path))?;
    if !SIGNS.iter().any(|sign| data_dir.join(sign).exists()) {
        let why = format!("--data-dir: {} is not a data directory of tiphys", data_dir.display());
        return Err(Error::Flags(vec![why]));
    }
    let lock = lock::lock_data_dir(&data_dir)?;
    Ok((data_dir, lock))
}

/// Removes pods, their host state, and the data directory. Returns what could not be removed.
pub async fn reset(data_dir: &Path) -> Result<Vec<String>> {
    let link = NodeLink::read(data_dir)?.filter(|link| !is_link_of_other(data_dir, link));
    if link.is_some() && !rustix::process::geteuid().is_root() {
        return Err(Error::Flags(vec!["nodes ran from this data directory: removing them needs root".to_string()]));
    }
    let left = tokio::task::spawn_blocking(move || link.map(|link| link.remove()).unwrap_or_default()).await;
    if let Some(problems) = left.ok().filter(|problems| !problems.is_empty()) {
        return Ok(problems);
    }
    let mut problems = match HostState::read(data_dir)? {
        Some(host_state) => remove_node(data_dir, &host_state).await?,
        None => Vec::new(),
    };
    if problems.is_empty() {
        problems = remove_entries(data_dir, &ENTRIES);
    }
    Ok(problems)
}

/// Whether another cluster has the names of a link by now.
fn is_link_of_other(data_dir: &Path, link: &NodeLink) -> bool {
    let names = Names { bridge: link.bridge().to_string(), ..Names::default() };
    network::is_claimed_by_other(data_dir, Path::new(container_runtime::STATES), &names)
}

async fn remove_node(data_dir: &Path, host_state: &HostState) -> Result<Vec<String>> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Flags(vec!["pods ran from this data directory: removing them needs root".to_string()]));
    }
    let choice = match &host_state.runtime_endpoint {
        Some(socket) => RuntimeChoice::Socket(socket.clone()),
        None => RuntimeChoice::Builtin(BuiltinRuntime {
            data_dir: data_dir.to_path_buf(),
            cgroup_root: host_state.cgroup_root.clone(),
            names: host_state.pod_network.clone().unwrap_or_default(),
            cluster: Default::default(),
        }),
    };
    let mut host_state = host_state.clone();
    // Another cluster may use the names by now.
    let states = Path::new(container_runtime::STATES);
    host_state.pod_network =
        host_state.pod_network.filter(|names| !network::is_claimed_by_other(data_dir, states, names));
    let opened = container_runtime::open(choice).await?;
    let failed = |error: pods::PodsError| Error::Node(error.to_string());
    let mut uids = names_in(&host_state.root_dir.join("pods"));
    if opened.builtin.is_some() {
        // All its containers belong to this cluster.
        uids.extend(pods::list(&opened.runtime).await.map_err(failed)?.into_iter().map(|(_, uid)| uid));
    }
    pods::remove(&opened.runtime, &uids).await.map_err(failed)?;
    let state = opened.close();
    let removed = tokio::task::spawn_blocking(move || {
        remove_pod_cgroups(&host_state.cgroup_root, &uids);
        let mut problems = host_state.remove(state.as_deref());
        remove_logs(&host_state.pod_logs_dir, &uids);
        if problems.is_empty() {
            problems = remove_entries(&host_state.root_dir, &KUBELET_ENTRIES);
        }
        problems
    });
    let problems = removed.await.map_err(|error| Error::Node(error.to_string()))?;
    if problems.is_empty() {
        network::release(data_dir, states);
    }
    Ok(problems)
}

fn names_in(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn remove_pod_cgroups(root: &str, uids: &BTreeSet<String>) {
    let Ok(hierarchies) = Hierarchies::detect() else { return };
    for uid in uids {
        for class in CLASSES {
            let path = format!("{}/kubepods{class}/pod{uid}", root.trim_end_matches('/'));
            // A cgroup that cannot be removed keeps its parents, which is reported.
            let _ = hierarchies.remove(&path);
        }
    }
}

/// The logs of pods are called `NAMESPACE_NAME_UID`; symbolic links to them are in another directory.
fn remove_logs(dir: &Path, uids: &BTreeSet<String>) {
    let is_theirs = |name: &str| name.rsplit_once('_').is_some_and(|(_, uid)| uids.contains(uid));
    for name in names_in(dir).into_iter().filter(|name| is_theirs(name)) {
        let _ = fs::remove_dir_all(dir.join(name));
    }
    let links = dir.with_file_name("containers");
    for name in names_in(&links) {
        let link = links.join(name);
        // A dangling link pointed to one of them.
        if fs::read_link(&link).is_ok_and(|target| target.starts_with(dir)) && !link.exists() {
            let _ = fs::remove_file(link);
        }
    }
}

/// Removes entries of a directory, and the directory if it is empty then.
fn remove_entries(dir: &Path, entries: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    for path in entries.iter().map(|name| dir.join(name)) {
        let removed = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(&path),
            Ok(_) => fs::remove_file(&path),
            Err(error) => Err(error),
        };
        if let Err(error) = removed
            && error.kind() != ErrorKind::NotFound
        {
            problems.push(format!("{}: {error}", path.display()));
        }
    }
    let _ = fs::remove_dir(dir);
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn removes_only_own_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("data");
        fs::create_dir_all(data.join("store")).expect("a directory");
        fs::write(data.join("kubeconfig"), "x").expect("a file");
        fs::write(data.join("notes"), "x").expect("a file");
        let error = open(dir.path()).err().expect("refused").describe();
        assert!(error.contains("is not a data directory"), "{error}");

        let (path, held) = open(&data).expect("a data directory");
        assert!(open(&data).is_err(), "another process uses it");
        assert_eq!(reset(&path).await.expect("a reset"), [""; 0]);
        drop(held);
        assert_eq!(names_in(&data), BTreeSet::from(["notes".to_string()]));
        fs::remove_file(data.join("notes")).expect("a file");
        fs::create_dir(data.join("pki")).expect("a directory");
        let (path, _held) = open(&data).expect("a data directory");
        reset(&path).await.expect("a reset");
        assert!(!data.exists(), "nothing else was in it");
    }

    #[tokio::test]
    async fn snapshots_of_the_data_directory_are_removed_and_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let (data, elsewhere) = (dir.path().join("data"), dir.path().join("elsewhere"));
        for directory in [data.join("store"), data.join("snapshots"), elsewhere.clone()] {
            fs::create_dir_all(directory).expect("a directory");
        }
        assert_eq!(describe(&data), data.display().to_string());
        for file in [data.join("snapshots/a"), elsewhere.join("a")] {
            fs::write(file, "x").expect("a file");
        }
        assert_eq!(describe(&data), format!("{} with a snapshot of the store", data.display()));
        let (path, _held) = open(&data).expect("a data directory");
        assert_eq!(reset(&path).await.expect("a reset"), [""; 0]);
        assert!(!data.exists() && elsewhere.join("a").exists());
    }

    #[test]
    fn removes_logs_of_the_the_clusters_pods() {
        let dir = tempfile::tempdir().expect("a directory");
        let (pods, links) = (dir.path().join("pods"), dir.path().join("containers"));
        for (pod, link) in [("default_a_1", "a.log"), ("default_b_2", "b.log")] {
            fs::create_dir_all(pods.join(pod).join("main")).expect("a directory");
            fs::create_dir_all(&links).expect("a directory");
            std::os::unix::fs::symlink(pods.join(pod).join("main"), links.join(link)).expect("a link");
        }
        remove_logs(&pods, &BTreeSet::from(["1".to_string()]));
        assert_eq!(names_in(&pods), BTreeSet::from(["default_b_2".to_string()]));
        assert_eq!(names_in(&links), BTreeSet::from(["b.log".to_string()]));
    }
}
