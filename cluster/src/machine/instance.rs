//! The clusters of this machine: data directories by name, and the clusters that run.
//!
//! A running `up` has a file in a directory that all clusters of a user share, locked as long as the process lives: so
//! `tiphys list` finds it, wherever its data directory is.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::machine::lock::{self, Lock};

/// The name of the cluster in `./data`, without `--name`.
pub(crate) const DEFAULT_NAME: &str = "tiphys";
const MAX_NAME: usize = 40;

/// The directories that the clusters of a user share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directories {
    /// A directory for each named cluster.
    pub clusters: PathBuf,
    /// A locked file for each running cluster.
    pub running: PathBuf,
}

impl Directories {
    /// Those below `TIPHYS_HOME`. Otherwise root's are those of the machine, and other users have their own, by the XDG
    /// base directory specification.
    pub(crate) fn of_user() -> Directories {
        Directories::of(rustix::process::geteuid().is_root(), |name| {
            std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
        })
    }

    fn of(is_root: bool, variable: impl Fn(&str) -> Option<PathBuf>) -> Directories {
        if let Some(home) = variable("TIPHYS_HOME") {
            return Directories { clusters: home.join("clusters"), running: home.join("running") };
        }
        if is_root {
            return Directories { clusters: "/var/lib/tiphys/clusters".into(), running: "/run/tiphys-clusters".into() };
        }
        let home = variable("HOME").unwrap_or_else(|| PathBuf::from("/"));
        let data = variable("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share")).join("tiphys");
        let running =
            variable("XDG_RUNTIME_DIR").map_or_else(|| data.join("running"), |dir| dir.join("tiphys-clusters"));
        Directories { clusters: data.join("clusters"), running }
    }

    /// The data directory of a named cluster.
    pub(crate) fn data_dir(&self, name: &str) -> Result<PathBuf> {
        check_name(name)?;
        Ok(self.clusters.join(name))
    }

    /// The named clusters, running or not.
    pub(crate) fn named(&self) -> Vec<(String, PathBuf)> {
        let mut named: Vec<(String, PathBuf)> = entries(&self.clusters)
            .filter(|path| path.is_dir())
            .filter_map(|path| Some((path.file_name()?.to_str()?.to_string(), path)))
            .filter(|(name, _)| check_name(name).is_ok())
            .collect();
        named.sort();
        named
    }

    /// Announces that the cluster of a data directory runs, until the lock is dropped.
    pub(crate) fn announce(&self, id: &str, name: &str, data_dir: &Path) -> Result<Lock> {
        create_private(&self.running)?;
        // Removes what killed processes have left, so that it does not grow until a user lists the clusters.
        let _ = self.running();
        lock::lock_claim(&self.running.join(id), data_dir, name)
    }

    /// The clusters that run. Files of processes that were killed are removed.
    pub(crate) fn running(&self) -> Vec<RunningInstance> {
        let mut running = Vec::new();
        for path in entries(&self.running) {
            match lock::read_claim(&path) {
                Some(claim) if claim.is_locked => {
                    running.push(RunningInstance { name: claim.text, data_dir: claim.data_dir.into() });
                }
                Some(_) => drop(fs::remove_file(&path)),
                None => {}
            }
        }
        running.sort_by(|a, b| (&a.name, &a.data_dir).cmp(&(&b.name, &b.data_dir)));
        running
    }
}

/// The data directory of the cluster that `TIPHYS_DATA_DIR` or `TIPHYS_NAME` selects, for commands that talk to a cluster.
pub(crate) fn selected_data_dir() -> Result<Option<PathBuf>> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    match (variable("TIPHYS_DATA_DIR"), variable("TIPHYS_NAME")) {
        (Some(directory), _) => Ok(Some(directory.into())),
        (None, Some(name)) => Directories::of_user().data_dir(&name).map(Some),
        (None, None) => Ok(None),
    }
}

/// A cluster that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunningInstance {
    pub name: String,
    pub data_dir: PathBuf,
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn create_private(directory: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(Error::file(directory))
}

/// A name becomes part of paths and of a kubeconfig's context.
fn check_name(name: &str) -> Result<()> {
    let is_label = (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        && !name.starts_with('-')
        && !name.ends_with('-');
    match is_label {
        true => Ok(()),
        false => Err(Error::Flags(vec![format!(
            "--name: {name:?} is not a name of a cluster: use up to {MAX_NAME} lower case letters, digits and dashes"
        )])),
    }
}

/// The context of a cluster in a merged kubeconfig: `tiphys`, or `tiphys-NAME`.
pub(crate) fn context(name: &str) -> String {
    match name {
        DEFAULT_NAME => DEFAULT_NAME.to_string(),
        name => format!("{DEFAULT_NAME}-{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_follow_the_user() {
        let variables = |known: &'static [(&'static str, &'static str)]| {
            move |name: &str| known.iter().find(|(key, _)| *key == name).map(|(_, value)| PathBuf::from(value))
        };
        let clusters = |is_root, known| Directories::of(is_root, variables(known));
        let path = |text: &str| PathBuf::from(text);
        assert_eq!(clusters(true, &[("HOME", "/root")]).clusters, path("/var/lib/tiphys/clusters"));
        let own = clusters(true, &[("TIPHYS_HOME", "/t")]);
        assert_eq!((own.clusters, own.running), (path("/t/clusters"), path("/t/running")));
        let user = clusters(false, &[("HOME", "/h/u")]);
        assert_eq!(user.clusters, path("/h/u/.local/share/tiphys/clusters"));
        assert_eq!(user.running, path("/h/u/.local/share/tiphys/running"));
        let user = clusters(false, &[("HOME", "/h"), ("XDG_DATA_HOME", "/d"), ("XDG_RUNTIME_DIR", "/r")]);
        assert_eq!((user.clusters, user.running), (path("/d/tiphys/clusters"), path("/r/tiphys-clusters")));
    }

    #[test]
    fn names_cannot_leave_the_directory() {
        let dirs = Directories { clusters: "/c".into(), running: "/r".into() };
        assert_eq!(dirs.data_dir("dev-1").expect("a name"), Path::new("/c/dev-1"));
        for name in ["", "..", "a/b", "Dev", "-a", "a-", &"a".repeat(41)] {
            let error = dirs.data_dir(name).expect_err("refused").describe();
            assert!(error.contains("--name"), "{error}");
        }
    }

    #[test]
    fn lists_running_clusters_and_forgets_killed_ones() {
        let dir = tempfile::tempdir().expect("a directory");
        let dirs = Directories { clusters: dir.path().join("clusters"), running: dir.path().join("running") };
        assert!(dirs.running().is_empty() && dirs.named().is_empty());
        let lock = dirs.announce("0123", "dev", Path::new("/data")).expect("a lock");
        let want = RunningInstance { name: "dev".to_string(), data_dir: "/data".into() };
        assert_eq!(dirs.running(), [want]);
        // As after a kill: the file is left, but not locked.
        lock.keep_file();
        assert!(dirs.running().is_empty());
        assert!(!dirs.running.join("0123").exists());
        fs::create_dir_all(dirs.clusters.join("b")).expect("a directory");
        fs::create_dir_all(dirs.clusters.join("No name")).expect("a directory");
        assert_eq!(dirs.named(), [("b".to_string(), dirs.clusters.join("b"))]);
    }
}
