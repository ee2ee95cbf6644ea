//! A container's life: recorded, started, stopped, removed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cri::{ContainerConfig, ContainerEventType, ContainerState, CreateContainerRequest, NamespaceMode};
use tokio::sync::watch;

use super::records::{self, ContainerRecord, Stage};
use super::sandboxes::remove_folder;
use super::state::{Container, Sandbox, Status, lock};
use super::{Service, blocking, fault, new_id};
use crate::container::user::User;
use crate::error::{Context, Error, Result, refused};
use crate::images::Image;
use crate::plan::{self, ContainerInput, Defaults, Seccomp, signal};
use crate::seccomp;
use crate::shim::log::Now;
use crate::shim::protocol::{Call, EXIT_FILE, Exit, Reply, SPEC_FILE, Start, Target};
use crate::spec::{ContainerSpec, DeviceSpec, RootSpec};

/// What is killed ends at once, unless the kernel holds it.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

impl Service {
    pub(super) async fn create(&self, sandbox: &Arc<Sandbox>, request: CreateContainerRequest) -> Result<String> {
        let config = request.config.unwrap_or_default();
        if sandbox.stage() != Stage::Ready {
            return refused(format!("sandbox {:?} is not ready", sandbox.id));
        }
        let id = new_id()?;
        let draft =
            ContainerRecord { sandbox: sandbox.id.clone(), config: Some(config.clone()), ..ContainerRecord::default() };
        if config.metadata.as_ref().is_none_or(|metadata| metadata.name.is_empty()) {
            return refused("config.metadata.name is empty");
        }
        self.reserve(&name(&draft), &id)?;
        let (service, pod, key) = (self.clone(), sandbox.clone(), id.clone());
        let made = blocking(move || service.record_container(&pod, &key, config)).await?;
        match made {
            Ok(container) => {
                self.0.containers.insert(&id, container);
                self.publish(&id, sandbox, ContainerEventType::Created);
                Ok(id)
            }
            Err(error) => {
                self.discard(&id, &sandbox.folder.join(&id));
                self.release_names(&id);
                Err(error)
            }
        }
    }

    /// Everything that blocks on the disk, in the order that leaves nothing unknown behind.
    fn record_container(&self, sandbox: &Arc<Sandbox>, id: &str, config: ContainerConfig) -> Result<Arc<Container>> {
        let wanted = config.image.clone().unwrap_or_default().image;
        let image = self.here(&wanted)?;
        let folder = sandbox.folder.join(id);
        fs::create_dir(&folder).context(|| format!("making {}", folder.display()))?;
        let rootfs = self.0.images.prepare(id, &image.id).map_err(|e| Error::Refused(e.chain()))?;
        fault::point("snapshot-prepared");
        let views = self.views(id, &config)?;
        let host_config = sandbox.config();
        let defaults = Defaults {
            user: image.config.user.clone(),
            env: image.config.env.clone(),
            entrypoint: image.config.entrypoint.clone(),
            cmd: image.config.cmd.clone(),
            working_dir: image.config.working_dir.clone(),
        };
        make_sources(&config)?;
        let spec = plan::container(&ContainerInput {
            id,
            config: &config,
            sandbox: &host_config,
            image: &defaults,
            host: &self.0.host,
            root: RootSpec { lower: rootfs.lower, upper: rootfs.upper, work: rootfs.work, readonly: false },
            sandbox_files: sandbox_files(&sandbox.folder),
            image_layers: views.values().cloned().collect(),
            devices: devices(&config)?,
            seccomp: self.seccomp(&config, &folder)?,
            target_pid: self.target_pid(&config)?,
            handler: self.0.options.handlers.get(&sandbox.record().handler).cloned(),
        })?;
        let text = serde_json::to_vec(&spec).map_err(std::io::Error::from).at("writing the specification")?;
        records::replace(&folder.join(SPEC_FILE), &text)?;
        let record = ContainerRecord {
            id: id.into(),
            sandbox: sandbox.id.clone(),
            created_at: Now::get().0,
            image_id: image.id.clone(),
            image_ref: image.repo_digests.first().cloned().unwrap_or_else(|| image.id.clone()),
            stop_signal: signal::stop(config.stop_signal(), &image.config.stop_signal),
            cgroup: spec.cgroup.path.clone(),
            views: views.into_keys().collect(),
            config: Some(config),
            ..ContainerRecord::default()
        };
        records::write(&folder, &record)?;
        fault::point("container-recorded");
        Ok(new_container(record, folder, sandbox.clone()))
    }

    /// Images that are mounted as volumes, each held by a snapshot of its own: by key, its name and layers.
    fn views(&self, id: &str, config: &ContainerConfig) -> Result<BTreeMap<String, (String, Vec<PathBuf>)>> {
        let mut views = BTreeMap::new();
        let images = config.mounts.iter().filter_map(|m| m.image.as_ref());
        for (number, image) in images.enumerate() {
            let found = self.here(&image.image)?;
            let key = format!("{id}-volume-{number}");
            let layers = self.0.images.view(&key, &found.id).map_err(|e| Error::Refused(e.chain()))?;
            views.insert(key, (image.image.clone(), layers));
        }
        Ok(views)
    }

    /// An image that was pulled before.
    fn here(&self, wanted: &str) -> Result<Arc<Image>> {
        self.0.images.get(wanted).ok_or_else(|| Error::NotFound(format!("image {wanted:?} is not here")))
    }

    fn target_pid(&self, config: &ContainerConfig) -> Result<Option<i32>> {
        let options = plan::context(config).namespace_options.unwrap_or_default();
        if options.pid() != NamespaceMode::Target {
            return Ok(None);
        }
        match self.0.containers.find(&options.target_id) {
            Some(target) if target.is_running() => Ok(Some(target.status().pid)),
            _ => refused(format!("the target container {:?} is not running", options.target_id)),
        }
    }

    /// The compiled filter on disk. The runtime's own is the same for all with the same capabilities.
    fn seccomp(&self, config: &ContainerConfig, folder: &Path) -> Result<Option<PathBuf>> {
        let context = plan::context(config);
        let (path, profile) = match Seccomp::of(&context)? {
            Seccomp::Unconfined => return Ok(None),
            Seccomp::Default => {
                let bounding = plan::capabilities(&context, &self.0.host)?.bounding;
                let path = self.0.options.state.join(format!("seccomp-{bounding:x}"));
                if path.exists() {
                    return Ok(Some(path));
                }
                (path, seccomp::default_profile(bounding))
            }
            Seccomp::Localhost(file) => {
                let text = fs::read_to_string(&file).context(|| format!("reading the seccomp profile {file:?}"))?;
                (folder.join("seccomp"), seccomp::parse(&text)?)
            }
        };
        records::replace(&path, &seccomp::compile(&profile)?)?;
        Ok(Some(path))
    }

    pub(super) async fn start(&self, container: &Arc<Container>) -> Result<()> {
        let _changing = container.changing.lock().await;
        let state = container.status().state;
        if state != ContainerState::Created {
            return refused(format!("container is in {} state", super::convert::state_name(state)));
        }
        let Some(shim) = container.sandbox.shim().filter(|_| container.sandbox.stage() == Stage::Ready) else {
            return refused(format!("sandbox {:?} is not running", container.sandbox.id));
        };
        let spec = read_spec(&container.folder)?;
        lock(&container.record).started = true;
        records::write(&container.folder, &container.record())?;
        fault::point("start-recorded");
        match shim.call(Call::Start(start_of(&spec)), &[]).await {
            Ok(Reply::Started { pid, started_at, user, warnings }) => {
                fault::point("container-started");
                for warning in warnings {
                    tracing::warn!(container = container.id, warning);
                }
                self.running(container, pid, started_at, Some(user));
                Ok(())
            }
            Ok(other) => refused(format!("the shim answered {other:?}")),
            Err(error) => {
                self.start_failed(container, &error.to_string())?;
                Err(error)
            }
        }
    }

    fn start_failed(&self, container: &Arc<Container>, reason: &str) -> Result<()> {
        let now = Now::get().0;
        {
            let mut record = lock(&container.record);
            (record.failure, record.failed_at) = (reason.to_string(), now);
        }
        container.status.send_modify(|status| *status = status.failed(now, reason));
        self.publish(&container.id, &container.sandbox, ContainerEventType::Stopped);
        records::write(&container.folder, &container.record())
    }

    /// It runs. Its end may be told first, by another task; whoever comes first tells of the start.
    fn running(&self, container: &Arc<Container>, pid: i32, started_at: i64, user: Option<User>) {
        let mut news = false;
        container.status.send_modify(|status| {
            news = status.state == ContainerState::Created;
            if news {
                (status.state, status.pid) = (ContainerState::Running, pid);
            }
            status.started_at = started_at;
            status.user = user.or(status.user.take());
        });
        if news {
            self.publish(&container.id, &container.sandbox, ContainerEventType::Started);
        }
    }

    /// A shim told that a container ended.
    pub(super) fn exited(&self, id: &str, exit: &Exit) {
        let Some(container) = self.0.containers.find(id) else { return };
        self.running(&container, 0, exit.started_at, None);
        container.status.send_modify(|status| *status = status.exited(exit));
        self.publish(id, &container.sandbox, ContainerEventType::Stopped);
    }

    /// The shim is gone; what it wrote is all there is to know.
    pub(super) fn read_exit(&self, container: &Arc<Container>) {
        container.status.send_modify(|status| *status = known_end(&container.folder, status));
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
            if ended(container, timeout).await {
                return Ok(());
            }
        }
        let _ = shim.call(Call::KillAll { container: container.id.clone() }, &[]).await;
        if ended(container, KILL_TIMEOUT).await {
            fault::point("container-stopped");
            return Ok(());
        }
        refused(format!("container {:?} was killed and has not ended", container.id))
    }

    pub(super) async fn remove(&self, container: &Arc<Container>) -> Result<()> {
        self.stop(container, Duration::ZERO).await?;
        let _changing = container.changing.lock().await;
        lock(&container.record).removing = true;
        records::write(&container.folder, &container.record())?;
        fault::point("container-removing");
        if let Some(shim) = container.sandbox.shim() {
            let _ = shim.call(Call::Forget { container: container.id.clone() }, &[]).await;
        }
        let (service, id, folder) = (self.clone(), container.id.clone(), container.folder.clone());
        let record = container.record();
        blocking(move || service.discard_container(&id, &folder, &record)).await??;
        self.0.containers.remove(&container.id);
        self.release_names(&container.id);
        self.publish(&container.id, &container.sandbox, ContainerEventType::Deleted);
        Ok(())
    }

    pub(super) fn discard_container(&self, id: &str, folder: &Path, record: &ContainerRecord) -> Result<()> {
        if !record.cgroup.is_empty() {
            self.remove_group(&record.cgroup)?;
        }
        for key in record.views.iter().map(String::as_str).chain([id]) {
            self.0.images.release(key).map_err(|e| Error::Refused(e.chain()))?;
        }
        fault::point("snapshot-released");
        remove_folder(folder)
    }

    /// What an unfinished creation left.
    fn discard(&self, id: &str, folder: &Path) {
        let keys: Vec<_> = self.0.images.keys().into_iter().filter(|key| key.starts_with(id)).collect();
        for key in keys {
            let _ = self.0.images.release(&key);
        }
        let _ = remove_folder(folder);
    }

    pub(super) async fn update(&self, container: &Arc<Container>, asked: cri::LinuxContainerResources) -> Result<()> {
        let state = container.status().state;
        if state == ContainerState::Exited {
            return refused(format!("container is in {} state", super::convert::state_name(state)));
        }
        let _changing = container.changing.lock().await;
        let resources = plan::resources(Some(&asked));
        if container.is_running() {
            let (service, path, limits) = (self.clone(), container.record().cgroup, resources.clone());
            blocking(move || service.0.cgroups.update(&path, &limits)).await??;
        }
        // A container that is not started yet starts with the new limits; a restarted agent knows them.
        let mut spec = read_spec(&container.folder)?;
        plan::merge(&mut spec.cgroup.resources, resources);
        let text = serde_json::to_vec(&spec).map_err(std::io::Error::from).at("writing the specification")?;
        records::replace(&container.folder.join(SPEC_FILE), &text)?;
        let merged = {
            let mut record = lock(&container.record);
            let config = record.config.get_or_insert_with(Default::default);
            let linux = config.linux.get_or_insert_with(Default::default);
            let merged = plan::merged(linux.resources.clone().unwrap_or_default(), asked);
            linux.resources = Some(merged.clone());
            merged
        };
        records::write(&container.folder, &container.record())?;
        container.status.send_modify(|status| status.resources = Some(merged));
        Ok(())
    }
}

/// A pod has one container of a name and attempt.
pub(super) fn name(record: &ContainerRecord) -> String {
    let metadata = record.config.clone().unwrap_or_default().metadata.unwrap_or_default();
    format!("container {}_{}_{}", metadata.name, record.sandbox, metadata.attempt)
}

async fn ended(container: &Container, timeout: Duration) -> bool {
    let mut status = container.status.subscribe();
    let exited = status.wait_for(|s| s.state == ContainerState::Exited);
    tokio::time::timeout(timeout, exited).await.is_ok()
}

/// How it ended, as far as the disk knows.
pub(super) fn known_end(folder: &Path, status: &Status) -> Status {
    let exit = fs::read(folder.join(EXIT_FILE)).ok().and_then(|text| serde_json::from_slice::<Exit>(&text).ok());
    match exit {
        Some(exit) => status.exited(&exit),
        None => status.lost(Now::get().0),
    }
}

pub(super) fn new_container(record: ContainerRecord, folder: PathBuf, sandbox: Arc<Sandbox>) -> Arc<Container> {
    let linux = record.config.as_ref().and_then(|c| c.linux.as_ref());
    let status = Status::created(linux.and_then(|l| l.resources.clone()));
    Arc::new(Container {
        id: record.id.clone(),
        folder,
        sandbox,
        record: Mutex::new(record),
        status: watch::Sender::new(status),
        changing: tokio::sync::Mutex::new(()),
    })
}

pub(super) fn read_spec(folder: &Path) -> Result<ContainerSpec> {
    let path = folder.join(SPEC_FILE);
    let text = fs::read(&path).context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).map_err(std::io::Error::from).context(|| format!("reading {}", path.display()))
}

fn start_of(spec: &ContainerSpec) -> Start {
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

fn sandbox_files(folder: &Path) -> Vec<(String, PathBuf)> {
    ["hostname", "resolv.conf"].map(|name| (format!("/etc/{name}"), folder.join(name))).into()
}

/// A folder of the host's that is asked for and not there is made, as CRI clients expect.
fn make_sources(config: &ContainerConfig) -> Result<()> {
    for mount in config.mounts.iter().filter(|m| !m.host_path.is_empty()) {
        if !Path::new(&mount.host_path).exists() {
            fs::create_dir_all(&mount.host_path).context(|| format!("making {:?} on the host", mount.host_path))?;
        }
    }
    Ok(())
}

/// The host's devices that are asked for; a folder stands for all in it, and a privileged container gets all.
fn devices(config: &ContainerConfig) -> Result<Vec<(DeviceSpec, String)>> {
    let mut found = Vec::new();
    for device in &config.devices {
        let access = if device.permissions.is_empty() { "rwm" } else { &device.permissions };
        if !access.chars().all(|c| "rwm".contains(c)) {
            return refused(format!("devices[host_path={:?}]: permissions {access:?}", device.host_path));
        }
        let before = found.len();
        collect(Path::new(&device.host_path), &device.container_path, access, &mut found)?;
        if found.len() == before {
            return refused(format!("devices[host_path={:?}] is no device", device.host_path));
        }
    }
    if plan::context(config).privileged {
        collect(Path::new("/dev"), "/dev", "rwm", &mut found)?;
    }
    Ok(found)
}

fn collect(host: &Path, seen_as: &str, access: &str, found: &mut Vec<(DeviceSpec, String)>) -> Result<()> {
    /// Folders of /dev whose file systems the container has its own of.
    const OWN: [&str; 4] = ["pts", "shm", "mqueue", "fd"];
    let data = fs::metadata(host).context(|| format!("looking at the device {}", host.display()))?;
    let kind = data.file_type();
    if kind.is_dir() {
        let entries = fs::read_dir(host).context(|| format!("reading {}", host.display()))?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let link = entry.file_type().is_ok_and(|t| t.is_symlink());
            if !link && !OWN.iter().any(|own| *own == name) {
                collect(&entry.path(), &format!("{seen_as}/{}", name.to_string_lossy()), access, found)?;
            }
        }
        return Ok(());
    }
    let kind = match (kind.is_char_device(), kind.is_block_device()) {
        (true, _) => "c",
        (_, true) => "b",
        _ => return Ok(()),
    };
    let device = DeviceSpec {
        path: seen_as.into(),
        kind: kind.into(),
        major: rustix::fs::major(data.rdev()),
        minor: rustix::fs::minor(data.rdev()),
        mode: data.mode() & 0o777,
        uid: data.uid(),
        gid: data.gid(),
    };
    found.push((device, access.into()));
    Ok(())
}
