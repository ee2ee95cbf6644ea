//! Recovery after a restart: adopts running pods, reads recorded exits, and undoes unfinished creations and removals.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use cri::ContainerState;
use stdx::sync::Mutex;

use super::Service;
use super::containers::new_container;
use super::lifecycle::recorded_exit;
use super::records::{self, ContainerRecord, SandboxRecord, Stage};
use super::sandboxes::{SHARED_FILES, container_directories, remove_directory};
use super::state::{Container, Sandbox, Status};
use crate::error::{Context, Result};
use crate::private;
use crate::shim::protocol::{Call, ContainerState as ShimState, Reply};

impl Service {
    pub(super) async fn recover(&self) -> Result<()> {
        let directory = self.0.options.state.join("sandboxes");
        let entries = fs::read_dir(&directory).context(|| format!("reading {}", directory.display()))?;
        for entry in entries.flatten() {
            self.recover_sandbox(&entry.path()).await?;
        }
        self.release_orphans();
        self.release_addresses().await;
        Ok(())
    }

    /// Releases addresses of pods without a record: a reboot clears the records, but not the leases. The service does not
    /// accept calls yet, so that no new pod is affected.
    async fn release_addresses(&self) {
        let networked = |sandbox: &Arc<Sandbox>| sandbox.record().networked && sandbox.stage() != Stage::Stopped;
        let kept = self.0.sandboxes.all().into_iter().filter(networked).map(|sandbox| sandbox.id.clone()).collect();
        if let Err(error) = self.0.network.retain(kept).await {
            tracing::warn!(%error, "failed to release addresses of deleted pods");
        }
    }

    async fn recover_sandbox(&self, directory: &Path) -> Result<()> {
        let id = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let record: Option<SandboxRecord> = records::read(directory);
        // A record is written before anything else is created, and deleted after everything else.
        let Some(record) = record else { return remove_directory(directory) };
        // An earlier version left the files readable by every user.
        private::restrict_all(directory, &SHARED_FILES).context(|| format!("restricting {}", directory.display()))?;
        for (_, directory) in container_directories(directory) {
            private::restrict_all(&directory, &[]).context(|| format!("restricting {}", directory.display()))?;
        }
        let creating = record.stage() == Stage::Creating;
        let sandbox = Arc::new(Sandbox {
            id: id.clone(),
            directory: directory.to_path_buf(),
            record: Mutex::new(record),
            shim: Mutex::new(None),
            changing: tokio::sync::Mutex::new(()),
        });
        if creating {
            tracing::info!(sandbox = id, "undoing an unfinished sandbox");
            self.undo_sandbox(&sandbox).await;
            return Ok(());
        }
        self.0.sandboxes.insert(&id, sandbox.clone());
        self.reserve(&super::sandboxes::unique_name(&sandbox.config()), &id)?;
        let running = self.recover_shim(&sandbox).await;
        for (id, directory) in container_directories(directory) {
            self.recover_container(&id, &directory, &sandbox, running.as_deref());
        }
        Ok(())
    }

    /// The containers of the shim. Without a shim, no container runs.
    async fn recover_shim(&self, sandbox: &Arc<Sandbox>) -> Option<Vec<ShimState>> {
        if sandbox.stage() == Stage::Stopped {
            return None;
        }
        let status = match self.connect_shim(sandbox).await {
            Ok(shim) => shim.call(Call::Status, &[]).await,
            Err(error) => Err(error),
        };
        match status {
            Ok(Reply::Status { pause, containers }) => {
                sandbox.record.lock().pause = pause;
                Some(containers)
            }
            _ => {
                tracing::warn!(sandbox = sandbox.id, "the pod's shim has exited");
                sandbox.record.lock().pause = 0;
                self.stop_processes(sandbox).await;
                None
            }
        }
    }

    fn recover_container(&self, id: &str, directory: &Path, sandbox: &Arc<Sandbox>, running: Option<&[ShimState]>) {
        let Some(record) = records::read::<ContainerRecord>(directory) else {
            tracing::info!(container = id, "undoing an unfinished container");
            let _ = remove_directory(directory);
            return;
        };
        if record.removing {
            if let Err(error) = self.discard_container(id, directory, &record) {
                tracing::warn!(container = id, %error, "failed to remove container");
            }
            return;
        }
        let container = new_container(record, directory.to_path_buf(), sandbox.clone());
        let _ = self.reserve(&super::containers::unique_name(&container.record()), id);
        let found = running.unwrap_or_default().iter().find(|c| c.container == id);
        let status = recovered_status(&container, &container.status(), found, running.is_some());
        container.status.send_modify(|current| *current = status);
        self.0.containers.insert(id, container);
    }

    /// Releases snapshots whose container was never recorded, or was removed.
    fn release_orphans(&self) {
        let known = self.0.containers.all();
        let owned = |key: &String| known.iter().any(|c| key.starts_with(&c.id));
        for key in self.0.images.keys().into_iter().filter(|key| !owned(key)) {
            if let Err(error) = self.0.images.release(&key) {
                tracing::warn!(key, %error, "failed to release snapshot");
            }
        }
    }
}

/// The status of a container, from its record, its shim and the disk.
fn recovered_status(container: &Container, status: &Status, found: Option<&ShimState>, shim: bool) -> Status {
    let record = container.record();
    match found {
        _ if !record.failure.is_empty() => status.failed(record.failed_at, &record.failure),
        Some(ShimState { exit: Some(exit), user, .. }) => Status { user: Some(user.clone()), ..status.exited(exit) },
        Some(found) => Status {
            state: ContainerState::Running,
            pid: found.pid,
            started_at: found.started_at,
            user: Some(found.user.clone()),
            ..status.clone()
        },
        // The shim does not have it: the start was recorded, but did not happen.
        None if shim => status.clone(),
        None if record.started => recorded_exit(&container.directory, status),
        None => status.clone(),
    }
}
