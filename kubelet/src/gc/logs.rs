//! Logs of removed containers. Several kubelets may share the directories: only logs of known pods and containers are
//! removed.

use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::logs::files::{self, LogDir};
use crate::logs::rotation::rotated;
use crate::runtime::Runtime;

/// Removes a log and its rotated files.
pub(crate) fn remove(log: &Path) {
    let Ok(dir) = LogDir::of(log) else { return };
    for name in rotated::rotated_names(log).into_iter().chain([files::name(log)]) {
        let _ = dir.remove(&name);
    }
}

/// Removes the log directories of removed pods, by their UIDs.
pub(crate) fn remove_of_pods(dir: &Path, uids: &[String]) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let uid = name.to_str().and_then(|name| name.rsplit_once('_')).map(|(_, uid)| uid);
        if uid.is_some_and(|uid| uids.iter().any(|other| other == uid))
            && let Err(error) = std::fs::remove_dir_all(entry.path())
        {
            tracing::warn!(%error, directory = %entry.path().display(), "failed to remove logs of deleted pod");
        }
    }
}

fn links(config: &Config) -> PathBuf {
    config.pod_logs_dir.parent().unwrap_or(Path::new("/")).join("containers")
}

/// Removes the symbolic link of a removed container.
pub(crate) fn remove_link(config: &Config, id: &str) {
    for link in all(&links(config)).into_iter().filter(|link| container_id(link) == Some(id)) {
        let _ = std::fs::remove_file(link);
    }
}

/// Links that lead nowhere, of containers that do not run. While a log is rotated its link leads nowhere too.
pub(crate) async fn find_dead_links(config: &Config, runtime: &Runtime) -> Vec<PathBuf> {
    let mut dead = Vec::new();
    for link in all(&links(config)).into_iter().filter(|link| is_dangling(link)) {
        if is_of_removed_pod(&link) || has_ended(runtime, container_id(&link).unwrap_or_default()).await {
            dead.push(link);
        }
    }
    dead
}

async fn has_ended(runtime: &Runtime, id: &str) -> bool {
    let request = cri::ContainerStatusRequest { container_id: id.to_string(), verbose: false };
    let status = runtime.service.container_status(request).await.ok().and_then(|answer| answer.status);
    status.is_some_and(|status| status.state() == cri::ContainerState::Exited)
}

fn all(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut links: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    links.retain(|link| link.is_symlink() && link.extension().is_some_and(|end| end == "log"));
    links.sort();
    links
}

fn is_dangling(link: &Path) -> bool {
    !link.exists()
}

/// The whole directory of the pod's logs does not exist any more.
fn is_of_removed_pod(link: &Path) -> bool {
    let target = std::fs::read_link(link).unwrap_or_default();
    target.parent().and_then(Path::parent).is_some_and(|pod| !pod.exists())
}

/// `POD_NAMESPACE_CONTAINER-ID.log`
fn container_id(link: &Path) -> Option<&str> {
    link.file_stem()?.to_str()?.rsplit_once('-').map(|(_, id)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_a_log_with_its_rotated_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str| std::fs::write(dir.path().join(name), "x").expect("a file");
        ["0.log", "0.log.20260102-030405", "0.log.20260102-030405.gz", "1.log", "10.log"].into_iter().for_each(write);
        remove(&dir.path().join("0.log"));
        let mut left: Vec<_> =
            std::fs::read_dir(dir.path()).expect("a directory").flatten().map(|e| e.file_name()).collect();
        left.sort();
        assert_eq!(left, ["1.log", "10.log"]);
    }

    #[test]
    fn removes_directories_of_removed_pods() {
        let dir = tempfile::tempdir().expect("a directory");
        let make = |name: &str| std::fs::create_dir_all(dir.path().join(name).join("c")).expect("a directory");
        ["n_p_u1", "n_q_u2", "n_r_u11"].into_iter().for_each(make);
        remove_of_pods(dir.path(), &["u1".to_string()]);
        let there = |name: &str| dir.path().join(name).exists();
        assert_eq!(["n_p_u1", "n_q_u2", "n_r_u11"].map(there), [false, true, true], "others share the directory");
    }

    #[test]
    fn link_is_dead_once_its_pod_is_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let link = |name: &str, target: &str| {
            let link = dir.path().join(name);
            std::os::unix::fs::symlink(dir.path().join(target), &link).expect("a link");
            link
        };
        std::fs::create_dir_all(dir.path().join("pods/n_p_u/c")).expect("a directory");
        let rotating = link("p_n_c-1.log", "pods/n_p_u/c/0.log");
        let gone = link("q_n_c-2.log", "pods/n_q_u/c/0.log");
        assert_eq!(all(dir.path()), [rotating.clone(), gone.clone()]);
        assert!(is_dangling(&rotating) && !is_of_removed_pod(&rotating));
        assert!(is_dangling(&gone) && is_of_removed_pod(&gone));
        assert_eq!(container_id(&gone), Some("2"));
    }
}
