//! A sandbox's life: made step by step, each undone if a later one fails, stopped, removed.

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
use crate::shim::log::Now;
use crate::shim::protocol::{Call, Event, Reply};

/// A shim that does not end its pod by then is ended itself.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

impl Service {
    pub(super) async fn run_sandbox(&self, request: RunPodSandboxRequest) -> Result<String> {
        let config = request.config.unwrap_or_default();
        let id = new_id()?;
        if !request.runtime_handler.is_empty() && !self.0.options.handlers.contains_key(&request.runtime_handler) {
            return refused(format!("no runtime for {:?} is configured", request.runtime_handler));
        }
        let spec = plan::sandbox(&id, &config)?;
        self.reserve(&name(&config), &id)?;
        let record = SandboxRecord {
            id: id.clone(),
            config: Some(config),
            created_at: Now::get().0,
            handler: request.runtime_handler,
            stage: Stage::Making as i32,
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
        match self.make(&sandbox, spec).await {
            Ok(()) => Ok(id),
            Err(error) => {
                self.undo(&sandbox).await;
                Err(error)
            }
        }
    }

    async fn make(&self, sandbox: &Arc<Sandbox>, spec: crate::spec::SandboxSpec) -> Result<()> {
        let config = sandbox.config();
        private::create_dir(&sandbox.directory).context(|| format!("making {}", sandbox.directory.display()))?;
        records::write(&sandbox.directory, &sandbox.record())?;
        fault::point("sandbox-recorded");
        write_files(&sandbox.directory, &config)?;
        let listener = client::listener(&sandbox.directory)?;
        self.0.zygote.fork_shim(&sandbox.directory, &pod_name(&config), listener)?;
        fault::point("shim-forked");
        let networked = spec.network;
        let shim = self.adopt(sandbox).await?;
        match shim.call(Call::Sandbox(Box::new(spec)), &[]).await? {
            Reply::Sandbox { pid, warnings } => {
                sandbox.record.lock().pause = pid;
                for warning in warnings {
                    tracing::warn!(sandbox = sandbox.id, warning);
                }
            }
            other => return refused(format!("the shim answered {other:?}")),
        }
        fault::point("sandbox-made");
        if networked {
            // Its process is on record before it is connected, so that it can be disconnected.
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

    /// Connects to a sandbox's shim and follows what it tells.
    pub(super) async fn adopt(&self, sandbox: &Arc<Sandbox>) -> Result<Arc<ShimClient>> {
        let (shim, events) = ShimClient::open(&sandbox.directory)?;
        let shim = Arc::new(shim);
        shim.call(Call::Watch, &[]).await?;
        *sandbox.shim.lock() = Some(shim.clone());
        tokio::spawn(follow(self.clone(), sandbox.clone(), events));
        Ok(shim)
    }

    /// Takes back whatever of a sandbox is there. Nobody was told of it.
    pub(super) async fn undo(&self, sandbox: &Arc<Sandbox>) {
        let stopped = self.end(sandbox).await;
        let removed = self.clear(sandbox).await;
        for error in [stopped, removed].into_iter().filter_map(std::result::Result::err) {
            tracing::warn!(sandbox = sandbox.id, %error, "a sandbox is not all undone");
        }
        self.release_names(&sandbox.id);
    }

    pub(super) async fn stop_sandbox(&self, sandbox: &Arc<Sandbox>) -> Result<()> {
        let _changing = sandbox.changing.lock().await;
        if sandbox.stage() == Stage::Stopped {
            return Ok(());
        }
        fault::point("sandbox-stopping");
        self.end(sandbox).await?;
        sandbox.record.lock().stage = Stage::Stopped as i32;
        sandbox.record.lock().pause = 0;
        records::write(&sandbox.directory, &sandbox.record())?;
        self.publish(&sandbox.id, sandbox, ContainerEventType::Stopped);
        Ok(())
    }

    /// The pod's group is its client's to change; the runtime remembers what it was told.
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

    /// Ends its processes and gives its addresses back.
    async fn end(&self, sandbox: &Arc<Sandbox>) -> Result<()> {
        let record = sandbox.record();
        if record.networked {
            self.0.network.remove(&record).await?;
        }
        fault::point("network-removed");
        self.end_processes(sandbox).await;
        Ok(())
    }

    pub(super) async fn end_processes(&self, sandbox: &Arc<Sandbox>) {
        let shim = match sandbox.shim() {
            Some(shim) => Some(shim),
            None => ShimClient::open(&sandbox.directory).ok().map(|(shim, _)| Arc::new(shim)),
        };
        let Some(shim) = shim else { return self.kill_groups(sandbox) };
        let asked = tokio::time::timeout(STOP_TIMEOUT, shim.call(Call::Stop, &[])).await;
        if !matches!(asked, Ok(Ok(_)))
            && let Some(pid) = shim.pid()
        {
            let _ = crate::sys::kill(pid, libc::SIGKILL);
            self.kill_groups(sandbox);
        }
        self.settle(sandbox);
    }

    /// The shim has ended, and wrote how its containers did.
    fn settle(&self, sandbox: &Arc<Sandbox>) {
        for container in self.containers_of(&sandbox.id) {
            if container.is_running() {
                self.read_exit(&container);
            }
        }
    }

    fn kill_groups(&self, sandbox: &Sandbox) {
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
        self.clear(sandbox).await?;
        self.0.sandboxes.remove(&sandbox.id);
        self.release_names(&sandbox.id);
        self.publish(&sandbox.id, sandbox, ContainerEventType::Deleted);
        Ok(())
    }

    /// Its cgroup and its directory, which holds the record that says there is something left.
    async fn clear(&self, sandbox: &Sandbox) -> Result<()> {
        let group = format!("{}/{}", plan::sandbox_cgroup(&sandbox.config()), sandbox.id);
        let (service, directory) = (self.clone(), sandbox.directory.clone());
        blocking(move || {
            service.remove_group(&group)?;
            remove_directory(&directory)
        })
        .await?
    }

    /// Processes that were just killed may still be on their way out.
    pub(super) fn remove_group(&self, path: &str) -> Result<()> {
        Ok(self.0.cgroups.remove_when_empty(path, Duration::from_secs(5))?)
    }
}

/// What a shim tells, until it is gone.
async fn follow(service: Service, sandbox: Arc<Sandbox>, mut events: mpsc::UnboundedReceiver<Event>) {
    while let Some(event) = events.recv().await {
        match event {
            Event::ContainerExit { container, exit } => service.exited(&container, &exit),
            Event::SandboxExit => service.lost_pause(&sandbox),
            Event::ExecExit { .. } => {}
        }
    }
    *sandbox.shim.lock() = None;
    if sandbox.stage() == Stage::Ready {
        service.lost_shim(&sandbox);
    }
}

impl Service {
    /// The pod's namespaces have lost their holder: the sandbox is not ready any more, which its client has to know at
    /// once, since nothing else of the pod may change.
    fn lost_pause(&self, sandbox: &Arc<Sandbox>) {
        sandbox.record.lock().pause = 0;
        if sandbox.stage() != Stage::Ready || sandbox.changing.try_lock().is_err() {
            // It is being made or stopped: whoever does so hears of it.
            return;
        }
        tracing::warn!(sandbox = sandbox.id, "the sandbox's pause process has ended");
        if let Err(error) = records::write(&sandbox.directory, &sandbox.record()) {
            tracing::warn!(sandbox = sandbox.id, %error, "the sandbox's record is not up to date");
        }
        self.publish(&sandbox.id, sandbox, ContainerEventType::Stopped);
    }

    /// Without its shim a pod cannot be kept: its processes are ended, and what is known of them is told.
    fn lost_shim(&self, sandbox: &Arc<Sandbox>) {
        if sandbox.changing.try_lock().is_err() {
            // It is being stopped: that is why the shim ended.
            return;
        }
        tracing::warn!(sandbox = sandbox.id, "the pod's shim is gone");
        self.kill_groups(sandbox);
        sandbox.record.lock().pause = 0;
        for container in self.containers_of(&sandbox.id) {
            if container.is_running() {
                self.read_exit(&container);
            }
        }
        self.publish(&sandbox.id, sandbox, ContainerEventType::Stopped);
    }
}

/// `NAMESPACE/POD`, by which the pod's processes are known to `ps`.
fn pod_name(config: &PodSandboxConfig) -> String {
    let metadata = config.metadata.clone().unwrap_or_default();
    format!("{}/{}", metadata.namespace, metadata.name)
}

pub(super) fn name(config: &PodSandboxConfig) -> String {
    let metadata = config.metadata.clone().unwrap_or_default();
    format!("pod {}_{}_{}_{}", metadata.name, metadata.namespace, metadata.uid, metadata.attempt)
}

/// A pod's directory holds one directory for each of its containers.
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

/// Files of a sandbox that its containers see.
pub(super) const SHARED_FILES: [&str; 2] = ["hostname", "resolv.conf"];

/// Files that containers see: who the pod is, and whom it asks for names.
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

/// A file that every user of a container reads through its mount; on the host its directory is root's alone.
fn write_shared(path: &Path, text: &str) -> std::io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}

/// None if nothing is configured: then the host's own is taken.
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
