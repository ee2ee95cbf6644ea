//! The lifecycle of a container: start, update, stop, remove.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cri::{ContainerEventType, ContainerState};

use super::records::{self, ContainerRecord, Stage};
use super::sandboxes::remove_directory;
use super::state::{Container, Status};
use super::{Service, blocking, fault};
use crate::container::user::User;
use crate::error::{Context, Error, Result, refused};
use crate::plan;
use crate::shim::log::Timestamp;
use crate::shim::protocol::{Call, EXIT_FILE, Exit, Reply, SPEC_FILE, Start, Target};
use crate::spec::ContainerSpec;

/// A killed container exits at once, unless the kernel blocks it.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

impl Service {
    pub(super) async fn start(&self, container: &Arc<Container>) -> Result<()> {
        let _changing = container.changing.lock().await;
        let state = container.status().state;
        if state != ContainerState::Created {
            return refused(format!("container is in {} state", super::convert::state_name(state)));
        }
        let Some(shim) = container.sandbox.shim().filter(|_| container.sandbox.stage() == Stage::Ready) else {
            return refused(format!("sandbox {:?} is not running", container.sandbox.id));
        };
        let spec = read_spec(&container.directory)?;
        container.record.lock().started = true;
        records::write(&container.directory, &container.record())?;
        fault::point("start-recorded");
        match shim.call(Call::Start(start_request(&spec)), &[]).await {
            Ok(Reply::Started { pid, started_at, user, warnings }) => {
                fault::point("container-started");
                for warning in warnings {
                    tracing::warn!(container = container.id, warning);
                }
                self.mark_running(container, pid, started_at, Some(user));
                Ok(())
            }
            Ok(other) => refused(format!("unexpected reply from the shim: {other:?}")),
            Err(error) => {
                self.start_failed(container, &error.to_string())?;
                Err(error)
            }
        }
    }

    fn start_failed(&self, container: &Arc<Container>, reason: &str) -> Result<()> {
        let now = Timestamp::now().0;
        {
            let mut record = container.record.lock();
            (record.failure, record.failed_at) = (reason.to_string(), now);
        }
        container.status.send_modify(|status| *status = status.failed(now, reason));
        self.publish(&container.id, &container.sandbox, ContainerEventType::Stopped);
        records::write(&container.directory, &container.record())
    }

    /// Marks a container as running. Its exit may be handled first, by another task; the first one publishes the start.
    fn mark_running(&self, container: &Arc<Container>, pid: i32, started_at: i64, user: Option<User>) {
        let mut is_new = false;
        container.status.send_modify(|status| {
            is_new = status.state == ContainerState::Created;
            if is_new {
                (status.state, status.pid) = (ContainerState::Running, pid);
            }
            status.started_at = started_at;
            status.user = user.or(status.user.take());
        });
        if is_new {
            self.publish(&container.id, &container.sandbox, ContainerEventType::Started);
        }
    }

    /// Handles the exit of a container, reported by its shim.
    pub(super) fn exited(&self, id: &str, exit: &Exit) {
        let Some(container) = self.0.containers.find(id) else { return };
        self.mark_running(&container, 0, exit.started_at, None);
        container.status.send_modify(|status| *status = status.exited(exit));
        self.publish(id, &container.sandbox, ContainerEventType::Stopped);
    }

    /// Reads the exit of a container from disk, after its shim has exited.
    pub(super) fn read_exit(&self, container: &Arc<Container>) {
        container.status.send_modify(|status| *status = recorded_exit(&container.directory, status));
        self.publish(&container.id, &container.sandbox, ContainerEventType::Stopped);
    }

    pub(super) async fn stop(&self, container: &Arc<Container>, timeout: Duration) -> Result<()> {
        if !container.is_running() {
            return Ok(());
        }
        let Some(shim) = container.sandbox.shim() else { return Ok(()) };
        if !timeout.is_zero() {
            let signal = container.record().stop_signal;
            let _ = shim.call(Call::Signal { target: Target::Container(container.id.clone()), signal }, &[]).await;
            fault::point("stop-signalled");
            if wait_for_exit(container, timeout).await {
                return Ok(());
            }
        }
        let _ = shim.call(Call::KillAll { container: container.id.clone() }, &[]).await;
        if wait_for_exit(container, KILL_TIMEOUT).await {
            fault::point("container-stopped");
            return Ok(());
        }
        refused(format!("container {:?} was killed but has not exited", container.id))
    }

    pub(super) async fn remove(&self, container: &Arc<Container>) -> Result<()> {
        self.stop(container, Duration::ZERO).await?;
        let _changing = container.changing.lock().await;
        container.record.lock().removing = true;
        records::write(&container.directory, &container.record())?;
        fault::point("container-removing");
        if let Some(shim) = container.sandbox.shim() {
            let _ = shim.call(Call::Forget { container: container.id.clone() }, &[]).await;
        }
        let (service, id, directory) = (self.clone(), container.id.clone(), container.directory.clone());
        let record = container.record();
        blocking(move || service.discard_container(&id, &directory, &record)).await??;
        self.0.containers.remove(&container.id);
        self.release_names(&container.id);
        self.publish(&container.id, &container.sandbox, ContainerEventType::Deleted);
        Ok(())
    }

    pub(super) fn discard_container(&self, id: &str, directory: &Path, record: &ContainerRecord) -> Result<()> {
        if !record.cgroup.is_empty() {
            self.remove_cgroup(&record.cgroup)?;
        }
        for key in record.views.iter().map(String::as_str).chain([id]) {
            self.0.images.release(key).map_err(|e| Error::Refused(e.chain()))?;
        }
        fault::point("snapshot-released");
        remove_directory(directory)
    }

    pub(super) async fn update(
        &self,
        container: &Arc<Container>,
        requested: cri::LinuxContainerResources,
    ) -> Result<()> {
        let state = container.status().state;
        if state == ContainerState::Exited {
            return refused(format!("container is in {} state", super::convert::state_name(state)));
        }
        let _changing = container.changing.lock().await;
        let resources = plan::resources(Some(&requested));
        if container.is_running() {
            let (service, path, limits) = (self.clone(), container.record().cgroup, resources.clone());
            for warning in blocking(move || service.0.cgroups.update(&path, &limits)).await?? {
                tracing::warn!(container = container.id, warning);
            }
        }
        // A container that is not running yet starts with the new limits, and a restarted runtime reads them.
        let mut spec = read_spec(&container.directory)?;
        plan::merge(&mut spec.cgroup.resources, resources);
        let text = serde_json::to_vec(&spec).map_err(std::io::Error::from).at("writing the spec")?;
        records::replace(&container.directory.join(SPEC_FILE), &text)?;
        let merged = {
            let mut record = container.record.lock();
            let config = record.config.get_or_insert_with(Default::default);
            let linux = config.linux.get_or_insert_with(Default::default);
            let merged = plan::merged(linux.resources.clone().unwrap_or_default(), requested);
            linux.resources = Some(merged.clone());
            merged
        };
        records::write(&container.directory, &container.record())?;
        container.status.send_modify(|status| status.resources = Some(merged));
        Ok(())
    }
}

async fn wait_for_exit(container: &Container, timeout: Duration) -> bool {
    let mut status = container.status.subscribe();
    let exited = status.wait_for(|s| s.state == ContainerState::Exited);
    tokio::time::timeout(timeout, exited).await.is_ok()
}

/// The exit of a container as recorded on disk.
pub(super) fn recorded_exit(directory: &Path, status: &Status) -> Status {
    let exit = fs::read(directory.join(EXIT_FILE)).ok().and_then(|text| serde_json::from_slice::<Exit>(&text).ok());
    match exit {
        Some(exit) => status.exited(&exit),
        None => status.lost(Timestamp::now().0),
    }
}

pub(super) fn read_spec(directory: &Path) -> Result<ContainerSpec> {
    let path = directory.join(SPEC_FILE);
    let text = fs::read(&path).context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).map_err(std::io::Error::from).context(|| format!("reading {}", path.display()))
}

fn start_request(spec: &ContainerSpec) -> Start {
    Start {
        container: spec.id.clone(),
        pid: spec.pid.clone(),
        terminal: spec.tty,
        stdin: spec.stdin,
        stdin_once: spec.stdin_once,
        log_path: spec.log_path.clone(),
        cgroup: spec.cgroup.path.clone(),
        handler: spec.handler.clone(),
    }
}
