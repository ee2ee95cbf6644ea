//! The lifecycle of a sandbox: created step by step, with all steps undone if one fails, stopped, removed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cri::{ContainerEventType, DNSConfig, LinuxContainerResources, PodSandboxConfig, RunPodSandboxRequest};
use stdx::sync::Mutex;
use tokio::sync::mpsc;

use super::client::{self, ShimClient};
use super::records::{self, SandboxRecord, Stage};
use super::state::Sandbox;
use super::{Service, blocking, fault, new_id};
use crate::error::{Context, Result, refused};
use crate::plan;
use crate::private;
use crate::shim::log::Timestamp;
use crate::shim::protocol::{Call, Event, Reply};

/// A shim that has not stopped its pod by then is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

impl Service {
    pub(super) async fn run_sandbox(&self, request: RunPodSandboxRequest) -> Result<String> {
        let config = request.config.unwrap_or_default();
        let id = new_id()?;
        if !request.runtime_handler.is_empty() && !self.0.options.handlers.contains_key(&request.runtime_handler) {
            return refused(format!("no runtime for {:?} is configured", request.runtime_handler));
        }
        let spec = plan::sandbox(&id, &config)?;
        self.reserve(&unique_name(&config), &id)?;
        let record = SandboxRecord {
            id: id.clone(),
            config: Some(config),
            created_at: Timestamp::now().0,
            handler: request.runtime_handler,
            stage: Stage::Creating as i32,
            networked: spec.network,
            ..SandboxRecord::default()
        };
        let sandbox = Arc::new(Sandbox {
            id: id.clone(),
            directory: self.directory(&id),
            record: Mutex::new(record),
            shim: Mutex::new(None),
            changing: tokio::sync::Mutex::new(()),
        });
        match self.create_sandbox(&sandbox, spec).await {
            Ok(()) => Ok(id),
            Err(error) => {
                self.undo_sandbox(&sandbox).await;
                Err(error)
            }
        }
    }

    async fn create_sandbox(&self, sandbox: &Arc<Sandbox>, spec: crate::spec::SandboxSpec) -> Result<()> {
        let config = sandbox.config();
        private::create_dir(&sandbox.directory).context(|| format!("creating {}", sandbox.directory.display()))?;
        records::write(&sandbox.directory, &sandbox.record())?;
        fault::point("sandbox-recorded");
        write_files(&sandbox.directory, &config)?;
        let listener = client::listener(&sandbox.directory)?;
        self.0.zygote.fork_shim(&sandbox.directory, &pod_name(&config), listener)?;
        fault::point("shim-forked");
        let networked = spec.network;
        let shim = self.connect_shim(sandbox).await?;
        match shim.call(Call::Sandbox(Box::new(spec)), &[]).await? {
            Reply::Sandbox { pid, warnings } => {
                sandbox.record.lock().pause = pid;
                for warning in warnings {
                    tracing::warn!(sandbox = sandbox.id, warning);
                }
            }
            other => return refused(format!("unexpected reply from the shim: {other:?}")),
        }
        fault::point("sandbox-made");
        if networked {
            // The pid is recorded before the network is attached, so that it can be detached after a crash.
            records::write(&sandbox.directory, &sandbox.record())?;
            let ips = self.0.network.add(&sandbox.record()).await?;
            sandbox.record.lock().ips = ips;
        }
        fault::point("network-added");
        sandbox.record.lock().stage = Stage::Ready as i32;
        records::write(&sandbox.directory, &sandbox.record())?;
        self.0.sandboxes.insert(&sandbox.id, sandbox.clone());
        fault::point("sandbox-ready");
        self.publish(&sandbox.id, sandbox, ContainerEventType::Created);
        self.publish(&sandbox.id, sandbox, ContainerEventType::Started);
        Ok(())
    }

    /// Connects to a sandbox's shim and follows its events.
    pub(super) async fn connect_shim(&self, sandbox: &Arc<Sandbox>) -> Result<Arc<ShimClient>> {
        let (shim, events) = ShimClient::open(&sandbox.directory)?;
        let shim = Arc::new(shim);
        shim.call(Call::Watch, &[]).await?;
        *sandbox.shim.lock() = Some(shim.clone());
        tokio::spawn(follow_events(self.clone(), sandbox.clone(), events));
        Ok(shim)
    }

    /// Removes everything of a sandbox that was not confirmed to the client.
    pub(super) async fn undo_sandbox(&self, sandbox: &Arc<Sandbox>) {
        let stopped = self.tear_down(sandbox).await;
        let removed = self.delete_sandbox(sandbox).await;
        for error in [stopped, removed].into_iter().filter_map(std::result::Result::err) {
            tracing::warn!(sandbox = sandbox.id, %error, "failed to undo a sandbox");
        }
        self.release_names(&sandbox.id);
    }

    pub(super) async fn stop_sandbox(&self, sandbox: &Arc<Sandbox>) -> Result<()> {
        let _changing = sandbox.changing.lock().await;
        if sandbox.stage() == Stage::Stopped {
            return Ok(());
        }
        fault::point("sandbox-stopping");
        self.tear_down(sandbox).await?;
        sandbox.record.lock().stage = Stage::Stopped as i32;
        sandbox.record.lock().pause = 0;
        records::write(&sandbox.directory, &sandbox.record())?;
        self.publish(&sandbox.id, sandbox, ContainerEventType::Stopped);
        Ok(())
    }

    /// The client manages the pod's cgroup. The runtime only stores the new values.
    pub(super) fn update_sandbox(
        &self,
        sandbox: &Sandbox,
        overhead: Option<LinuxContainerResources>,
        resources: Option<LinuxContainerResources>,
    ) -> Result<()> {
        {
            let mut record = sandbox.record.lock();
            let linux = record.config.get_or_insert_with(Default::default).linux.get_or_insert_with(Default::default);
            linux.overhead = overhead.or(linux.overhead.take());
            linux.resources = resources.or(linux.resources.take());
        }
        records::write(&sandbox.directory, &sandbox.record())
    }

    /// Detaches the network and ends all processes.
    async fn tear_down(&self, sandbox: &Arc<Sandbox>) -> Result<()> {
        let record = sandbox.record();
        if record.networked {
            self.0.network.remove(&record).await?;
        }
        fault::point("network-removed");
        self.stop_processes(sandbox).await;
        Ok(())
    }

    pub(super) async fn stop_processes(&self, sandbox: &Arc<Sandbox>) {
        let shim = match sandbox.shim() {
            Some(shim) => Some(shim),
            None => ShimClient::open(&sandbox.directory).ok().map(|(shim, _)| Arc::new(shim)),
        };
        let Some(shim) = shim else { return self.kill_cgroups(sandbox) };
        let stopped = tokio::time::timeout(STOP_TIMEOUT, shim.call(Call::Stop, &[])).await;
        if !matches!(stopped, Ok(Ok(_)))
            && let Some(pid) = shim.pid()
        {
            let _ = crate::sys::kill(pid, libc::SIGKILL);
            self.kill_cgroups(sandbox);
        }
        self.read_exits(sandbox);
    }

    /// The shim has exited, after recording the exits of its containers.
    fn read_exits(&self, sandbox: &Arc<Sandbox>) {
        for container in self.containers_of(&sandbox.id) {
            if container.is_running() {
                self.read_exit(&container);
            }
        }
    }

    fn kill_cgroups(&self, sandbox: &Sandbox) {
        let config = sandbox.config();
        let parent = plan::sandbox_cgroup(&config);
        let mut groups = vec![format!("{parent}/{}", sandbox.id)];
        groups.extend(container_directories(&sandbox.directory).iter().map(|(id, _)| format!("{parent}/{id}")));
        for group in groups {
            self.0.cgroups.kill(&group);
        }
    }

    pub(super) async fn remove_sandbox(&self, sandbox: &Arc<Sandbox>) -> Result<()> {
        self.stop_sandbox(sandbox).await?;
        for container in self.containers_of(&sandbox.id) {
            self.remove(&container).await?;
        }
        fault::point("sandbox-removing");
        self.delete_sandbox(sandbox).await?;
        self.0.sandboxes.remove(&sandbox.id);
        self.release_names(&sandbox.id);
        self.publish(&sandbox.id, sandbox, ContainerEventType::Deleted);
        Ok(())
    }

    /// Removes the cgroup and the directory. The record in it shows until then that there is something to remove.
    async fn delete_sandbox(&self, sandbox: &Sandbox) -> Result<()> {
        let group = format!("{}/{}", plan::sandbox_cgroup(&sandbox.config()), sandbox.id);
        let (service, directory) = (self.clone(), sandbox.directory.clone());
        blocking(move || {
            service.remove_cgroup(&group)?;
            remove_directory(&directory)
        })
        .await?
    }

    /// Waits for processes that were killed but have not exited yet.
    pub(super) fn remove_cgroup(&self, path: &str) -> Result<()> {
        Ok(self.0.cgroups.remove_when_empty(path, Duration::from_secs(5))?)
    }
}

/// Handles the events of a shim, until it exits.
async fn follow_events(service: Service, sandbox: Arc<Sandbox>, mut events: mpsc::UnboundedReceiver<Event>) {
    while let Some(event) = events.recv().await {
        match event {
            Event::ContainerExit { container, exit } => service.exited(&container, &exit),
            Event::SandboxExit => service.on_pause_exit(&sandbox),
            Event::ExecExit { .. } => {}
        }
    }
    *sandbox.shim.lock() = None;
    if sandbox.stage() == Stage::Ready {
        service.on_shim_exit(&sandbox);
    }
}

impl Service {
    /// The pause process has exited. The sandbox is not ready any more, and the client has to be notified, since nothing
    /// else of the pod may change.
    fn on_pause_exit(&self, sandbox: &Arc<Sandbox>) {
        sandbox.record.lock().pause = 0;
        if sandbox.stage() != Stage::Ready || sandbox.changing.try_lock().is_err() {
            // The task that creates or stops the sandbox handles this.
            return;
        }
        tracing::warn!(sandbox = sandbox.id, "the pause process has exited");
        if let Err(error) = records::write(&sandbox.directory, &sandbox.record()) {
            tracing::warn!(sandbox = sandbox.id, %error, "failed to update the sandbox's record");
        }
        self.publish(&sandbox.id, sandbox, ContainerEventType::Stopped);
    }

    /// Without its shim a pod cannot continue: kills its processes, and publishes their exits.
    fn on_shim_exit(&self, sandbox: &Arc<Sandbox>) {
        if sandbox.changing.try_lock().is_err() {
            // The sandbox is being stopped, which is why the shim exited.
            return;
        }
        tracing::warn!(sandbox = sandbox.id, "the pod's shim has exited");
        self.kill_cgroups(sandbox);
        sandbox.record.lock().pause = 0;
        for container in self.containers_of(&sandbox.id) {
            if container.is_running() {
                self.read_exit(&container);
            }
        }
        self.publish(&sandbox.id, sandbox, ContainerEventType::Stopped);
    }
}

/// `NAMESPACE/POD`, for the process titles of the pod.
fn pod_name(config: &PodSandboxConfig) -> String {
    let metadata = config.metadata.clone().unwrap_or_default();
    format!("{}/{}", metadata.namespace, metadata.name)
}

pub(super) fn unique_name(config: &PodSandboxConfig) -> String {
    let metadata = config.metadata.clone().unwrap_or_default();
    format!("pod {}_{}_{}_{}", metadata.name, metadata.namespace, metadata.uid, metadata.attempt)
}

/// The container directories in a pod's directory.
pub(super) fn container_directories(sandbox: &Path) -> Vec<(String, std::path::PathBuf)> {
    let entries = fs::read_dir(sandbox).into_iter().flatten().flatten();
    let directories = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    directories.map(|e| (e.file_name().to_string_lossy().into_owned(), e.path())).collect()
}

pub(super) fn remove_directory(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context(|| format!("removing {}", directory.display()))
        }
        _ => Ok(()),
    }
}

/// Files of a sandbox that are mounted into its containers.
pub(super) const SHARED_FILES: [&str; 2] = ["hostname", "resolv.conf"];

/// Writes the pod's hostname and resolv.conf.
fn write_files(directory: &Path, config: &PodSandboxConfig) -> Result<()> {
    let hostname = if plan::host_network(config) {
        String::from_utf8_lossy(rustix::system::uname().nodename().to_bytes()).into_owned()
    } else {
        config.hostname.clone()
    };
    write_shared(&directory.join("hostname"), &format!("{hostname}\n")).at("writing hostname")?;
    let resolver = match config.dns_config.as_ref().and_then(resolver) {
        Some(text) => text,
        None => fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
    };
    write_shared(&directory.join("resolv.conf"), &resolver).at("writing resolv.conf")
}

/// Writes a file that all users of a container may read. On the host, only root may open its directory.
fn write_shared(path: &Path, text: &str) -> std::io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}

/// The contents of resolv.conf; None if nothing is configured, so that the host's file is used.
fn resolver(dns: &DNSConfig) -> Option<String> {
    let mut text = String::new();
    if !dns.searches.is_empty() {
        text += &format!("search {}\n", dns.searches.join(" "));
    }
    for server in &dns.servers {
        text += &format!("nameserver {server}\n");
    }
    if !dns.options.is_empty() {
        text += &format!("options {}\n", dns.options.join(" "));
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolver_files() {
        let own = |list: &[&str]| list.iter().map(|s| s.to_string()).collect::<Vec<_>>();
        let dns = DNSConfig { servers: own(&["10.0.0.10"]), searches: own(&["a.b", "c"]), options: own(&["ndots:5"]) };
        assert_eq!(resolver(&dns).unwrap(), "search a.b c\nnameserver 10.0.0.10\noptions ndots:5\n");
        assert_eq!(resolver(&DNSConfig::default()), None);
    }
}
