//! What a running `up` writes into its data directory for `tiphys status`, `down` and `logs`: removed when it stops. The
//! lock of the data directory tells whether the process still runs.

use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use api::{Tree, tree};

use crate::error::Result;
use crate::machine::files::write_private;
use crate::machine::lock;

const FILE: &str = "run.json";

/// A running cluster, as its process describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunState {
    pub name: String,
    pub pid: u32,
    pub version: String,
    /// Seconds since 1970.
    pub started: i64,
    /// How long the start took.
    pub took_ms: i64,
    /// The address to which clients of this machine connect.
    pub address: SocketAddr,
    pub kubeconfig: PathBuf,
    /// The size of the store when the cluster was ready.
    pub store_bytes: i64,
}

impl RunState {
    pub(crate) fn write(&self, data_dir: &Path) -> Result<()> {
        let tree = tree! {
            "name" => self.name.as_str(),
            "pid" => i64::from(self.pid),
            "version" => self.version.as_str(),
            "started" => self.started,
            "tookMilliseconds" => self.took_ms,
            "address" => self.address.to_string(),
            "kubeconfig" => self.kubeconfig.to_string_lossy().into_owned(),
            "storeBytes" => self.store_bytes,
        };
        write_private(&data_dir.join(FILE), &String::from_utf8_lossy(&api::json::encode(&tree, None)))
    }

    /// The state of the process that holds the data directory; None if none does, or if it is not ready yet. The file names
    /// a kubeconfig, whose credentials are sent to its server: another user's file is not believed.
    pub(crate) fn read(data_dir: &Path) -> Option<RunState> {
        let mut file = fs::File::open(data_dir.join(FILE)).ok()?;
        if file.metadata().ok()?.uid() != rustix::process::geteuid().as_raw() {
            return None;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let state = RunState::of_tree(&api::json::decode(&bytes).ok()?)?;
        // The file of a process that was killed stays.
        (lock::holder(data_dir) == Some(state.pid)).then_some(state)
    }

    fn of_tree(tree: &Tree) -> Option<RunState> {
        Some(RunState {
            name: tree.str("name").to_string(),
            pid: u32::try_from(tree.int("pid")?).ok()?,
            version: tree.str("version").to_string(),
            started: tree.int("started")?,
            took_ms: tree.int("tookMilliseconds")?,
            address: tree.str("address").parse().ok()?,
            kubeconfig: tree.str("kubeconfig").into(),
            store_bytes: tree.int("storeBytes")?,
        })
    }

    pub(crate) fn remove(data_dir: &Path) {
        // It is ignored without its process.
        let _ = fs::remove_file(data_dir.join(FILE));
    }
}

/// The size of all files of the store.
pub(crate) fn store_bytes(data_dir: &Path) -> i64 {
    let entries = fs::read_dir(data_dir.join("store")).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| entry.metadata().ok()).filter(fs::Metadata::is_file);
    i64::try_from(files.map(|file| file.len()).sum::<u64>()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_that_of_the_process_that_holds_the_lock() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = RunState {
            name: "dev".to_string(),
            pid: std::process::id(),
            version: "0.1.0".to_string(),
            started: 7,
            took_ms: 800,
            address: SocketAddr::from(([127, 0, 0, 1], 6443)),
            kubeconfig: "/data/kubeconfig".into(),
            store_bytes: 4096,
        };
        state.write(dir.path()).expect("a file");
        assert_eq!(RunState::read(dir.path()), None, "nothing runs");
        let lock = lock::lock_data_dir(dir.path()).expect("a lock");
        assert_eq!(RunState::read(dir.path()), Some(state.clone()));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(dir.path().join(FILE), Some(1), None).expect("another owner");
            assert_eq!(RunState::read(dir.path()), None, "another user wrote it");
        }
        RunState { pid: 1, ..state }.write(dir.path()).expect("a file");
        assert_eq!(RunState::read(dir.path()), None, "another process wrote it");
        drop(lock);
        RunState::remove(dir.path());
        assert_eq!(RunState::read(dir.path()), None);
    }
}
