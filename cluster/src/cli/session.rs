//! The process of a cluster as its user sees it: its name, the kubeconfigs, and where its output goes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::instance::InstanceArguments;
use super::ready::Ready;
use super::{detach, say};
use crate::error::Result;
use crate::machine::address;
use crate::machine::identity::cluster_id;
use crate::machine::instance::{Directories, context};
use crate::machine::lock::Lock;
use crate::machine::run_state::{RunState, store_bytes};
use crate::node::container_runtime::STATES;
use crate::pki::kubeconfig::{Kubeconfigs, MergedKubeconfig};

/// The process of a running cluster.
pub(super) struct Session {
    name: String,
    data_dir: PathBuf,
    /// The flag that selects this cluster for other commands.
    pub(super) selector: String,
    /// The command that stops a cluster in the background.
    stop_command: Option<String>,
    pub(super) kubeconfigs: Kubeconfigs,
    /// For `tiphys list`.
    _announced: Option<Lock>,
}

impl Session {
    pub(super) fn open(
        instance: &InstanceArguments,
        data_dir: &Path,
        kubeconfig: Option<PathBuf>,
        merges: bool,
        is_background: bool,
    ) -> Result<Session> {
        let name = instance.cluster_name().to_string();
        let announced = Directories::of_user().announce(&cluster_id(data_dir, Path::new(STATES))?, &name, data_dir);
        // The cluster runs all the same; only `tiphys list` does not show it.
        let announced = announced.inspect_err(|error| tracing::warn!(error = error.describe(), "not listed")).ok();
        let merged = merges.then(|| MergedKubeconfig::of_user(context(&name))).transpose()?;
        let own = kubeconfig.unwrap_or_else(|| data_dir.join("kubeconfig"));
        Ok(Session {
            stop_command: is_background.then(|| format!("tiphys down{}", instance.flag())),
            selector: instance.flag(),
            name,
            data_dir: data_dir.to_path_buf(),
            kubeconfigs: Kubeconfigs { own, merged },
            _announced: announced,
        })
    }

    /// The context that is selected in the user's kubeconfig.
    pub(super) fn merged(&self) -> Option<&MergedKubeconfig> {
        self.kubeconfigs.merged.as_ref()
    }

    /// What stops the cluster.
    pub(super) fn stop(&self) -> String {
        self.stop_command.as_ref().map_or_else(|| "ctrl-c".to_string(), |command| format!("`{command}`"))
    }

    /// Writes what other commands have to know about this process.
    pub(super) fn write_state(&self, address: SocketAddr, took: Duration) -> Result<()> {
        let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let state = RunState {
            name: self.name.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            started: i64::try_from(seconds).unwrap_or(i64::MAX),
            took_ms: i64::try_from(took.as_millis()).unwrap_or(i64::MAX),
            address: SocketAddr::new(address::reachable(address.ip()), address.port()),
            kubeconfig: self.kubeconfigs.own.clone(),
            store_bytes: store_bytes(&self.data_dir),
        };
        state.write(&self.data_dir)
    }

    /// Shows that the cluster is ready; further output of a cluster in the background has no reader.
    pub(super) fn show(&self, ready: &Ready<'_>) -> Result<()> {
        self.write_state(ready.address, ready.took)?;
        say(&ready.text());
        if self.stop_command.is_some() {
            detach::end_output();
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        RunState::remove(&self.data_dir);
    }
}
